"""The same REST API into PostgreSQL by dlt: as its documentation has it, merged by key, parents and children.

Arguments: which API (`lists` or `hierarchy`), its address, the database, a folder for dlt's own state.
"""

import sys

import dlt
from dlt.sources.rest_api import rest_api_source

which, base, database, folder = sys.argv[1:]


def resource(name: str, path: str, items: str = "$", key: str | list = "id", **params: str) -> dict:
    endpoint = {"path": path, "data_selector": items, "params": params}
    return {"name": name, "primary_key": key, "parallelized": True, "endpoint": endpoint}


def lists() -> list[dict]:
    return [resource("cases", "/cases"), resource("votes", "/votes/{resources.cases.id}")]


def hierarchy() -> list[dict]:
    def export(name: str, path: str, items: str, key: str | list = "id", **params: str) -> dict:
        return resource(name, f"/eksport/{path}", items, key, format="json", **params)

    return [
        export("parties", "allepartier", "partier_liste"),
        export("cases", "saker", "saker_liste"),
        export("votes", "voteringer", "sak_votering_liste", "votering_id", sakid="{resources.cases.id}"),
        export(
            "vote_proposals",
            "voteringsforslag",
            "voteringsforslag_liste",
            ["votering_id", "forslag_id"],
            voteringid="{resources.votes.votering_id}",
        ),
    ]


source = rest_api_source(
    {
        "client": {"base_url": base, "paginator": "single_page"},
        "resource_defaults": {"write_disposition": "merge"},
        "resources": {"lists": lists, "hierarchy": hierarchy}[which](),
    }
)
pipeline = dlt.pipeline(
    pipeline_name="beside",
    pipelines_dir=folder,
    destination=dlt.destinations.postgres(database),
    dataset_name="beside",
)
pipeline.run(source).raise_on_failed_jobs()
