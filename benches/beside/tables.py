"""The same REST API into PostgreSQL by dlt: as its documentation has it, merged by key, parents and children.

Arguments: the API's address, the database, a folder for dlt's own state.
"""

import sys

import dlt
from dlt.sources.rest_api import rest_api_source

base, database, folder = sys.argv[1:]


def resource(name: str, path: str) -> dict:
    return {"name": name, "parallelized": True, "endpoint": {"path": path, "data_selector": "$"}}


source = rest_api_source(
    {
        "client": {"base_url": base, "paginator": "single_page"},
        "resource_defaults": {"write_disposition": "merge", "primary_key": "id"},
        "resources": [resource("cases", "/cases"), resource("votes", "/votes/{resources.cases.id}")],
    }
)
pipeline = dlt.pipeline(
    pipeline_name="beside",
    pipelines_dir=folder,
    destination=dlt.destinations.postgres(database),
    dataset_name="beside",
)
pipeline.run(source).raise_on_failed_jobs()
