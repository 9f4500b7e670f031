//! Every route of the API, once: the router and the OpenAPI document are both made from this table. Pages have a
//! table of their own.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, any, get, post};

use super::House;
use super::front::{self, Way};
use super::pages::PAGES;

mod basics;
mod decisions;
mod follow;
mod live;
pub mod openapi;
mod pipelines;
pub mod replicas;
mod runs;
pub mod stores;
pub mod workspaces;

/// Who may ask for a route, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody: it says nothing worth hiding.
    Open,
    Read,
    /// It changes something, or makes trueup ask others.
    Act,
}

pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub access: Access,
    pub summary: &'static str,
    pub asks: &'static [Param],
    /// The schema of its body, if it takes one.
    pub takes: Option<&'static str>,
    /// The status and schema of its answer.
    pub status: u16,
    pub answers: &'static str,
    handler: fn() -> MethodRouter<Arc<House>>,
}

/// Something asked for in the path or the query.
pub struct Param {
    pub name: &'static str,
    pub kind: &'static str,
    pub needed: bool,
    pub about: &'static str,
}

/// Items in one answer at most: a page, not a dump.
pub const LIMIT_MAX: usize = 1_000;

/// Bodies are lists of keys at most.
const BODY_MAX: usize = 1 << 20;

pub const fn read(
    path: &'static str,
    summary: &'static str,
    answers: &'static str,
    handler: fn() -> MethodRouter<Arc<House>>,
) -> Route {
    let (method, access) = ("get", Access::Read);
    Route { method, path, access, summary, asks: &[], takes: None, status: 200, answers, handler }
}

pub const fn act(
    path: &'static str,
    summary: &'static str,
    answers: &'static str,
    handler: fn() -> MethodRouter<Arc<House>>,
) -> Route {
    let (method, access) = ("post", Access::Act);
    Route { method, path, access, summary, asks: &[], takes: None, status: 200, answers, handler }
}

/// A look that makes trueup ask others, and remember what they said.
pub const fn asking(
    path: &'static str,
    summary: &'static str,
    answers: &'static str,
    handler: fn() -> MethodRouter<Arc<House>>,
) -> Route {
    Route { access: Access::Act, ..read(path, summary, answers, handler) }
}

impl Route {
    const fn asks(self, asks: &'static [Param]) -> Route {
        Route { asks, ..self }
    }

    const fn takes(self, schema: &'static str) -> Route {
        Route { takes: Some(schema), ..self }
    }

    pub const fn open(self) -> Route {
        Route { access: Access::Open, ..self }
    }
}

const fn may(name: &'static str, kind: &'static str, about: &'static str) -> Param {
    Param { name, kind, needed: false, about }
}

const fn must(name: &'static str, about: &'static str) -> Param {
    Param { name, kind: "string", needed: true, about }
}

pub const ROUTES: &[Route] = &[
    read("/healthz", "The process is up", "Health", || get(basics::health)).open(),
    read("/readyz", "The process is up and its state can be read", "Health", || get(basics::ready)).open(),
    read("/metrics", "Counters for Prometheus", "Text", || get(basics::metrics)),
    Route {
        access: Access::Act,
        ..read("/__scheduled", "Run the pipelines whose `when` is this expression", "Runs", || {
            get(pipelines::scheduled)
        })
    }
    .asks(&[must("cron", "the cron expression, as the config writes it")]),
    read("/api/pipelines", "What is due, running, failing, held", "Overview", || get(pipelines::all)),
    read("/api/pipelines/{name}", "One pipeline", "Pipeline", || get(pipelines::one)),
    act("/api/pipelines/{name}/pause", "Pause its schedule", "Pipeline", || post(pipelines::pause)),
    act("/api/pipelines/{name}/resume", "Resume its schedule", "Pipeline", || post(pipelines::resume)),
    act("/api/pipelines/{name}/run", "Run it now, and wait for the end", "Runs", || post(pipelines::run))
        .takes("RunAsked"),
    Route {
        status: 202,
        ..act("/api/pipelines/{name}/start", "Run it now, without waiting", "Started", || {
            post(pipelines::start)
        })
    }
    .takes("RunAsked"),
    act("/api/pipelines/{name}/plan", "What a run would do; writes nothing", "Plans", || {
        post(pipelines::plan)
    })
    .takes("RunAsked"),
    act("/api/pipelines/{name}/audit", "Compare source, state and store", "Audits", || {
        post(pipelines::audit)
    })
    .takes("AuditAsked"),
    read("/api/runs", "The history of runs, newest first", "Runs", || get(runs::all)).asks(&[
        may("pipeline", "string", "only runs of this pipeline"),
        may("limit", "integer", "at most this many (50)"),
    ]),
    read("/api/runs/{run}", "One run", "Report", || get(runs::one)),
    act("/api/runs/{run}/undo", "Plan and apply the reverse of a run", "Runs", || post(runs::undo)),
    act("/api/runs/{run}/undo/plan", "What undoing a run would do; writes nothing", "Plans", || {
        post(runs::undo_plan)
    }),
    read("/api/held", "What the guard holds back", "Held", || get(decisions::held)),
    act("/api/held/{plan}/approve", "Apply what is held under a plan", "Runs", || post(decisions::approve)),
    act("/api/held/{plan}/reject", "Drop what is held under a plan", "Runs", || post(decisions::reject)),
    read("/api/why", "The whole story of one key", "Story", || get(decisions::why))
        .asks(&[must("key", "the key"), may("pipeline", "string", "as this pipeline tells it")]),
    read("/api/queue", "Follow-up work that waits", "Queue", || get(follow::queue)).asks(&[may(
        "limit",
        "integer",
        "at most this many (1000)",
    )]),
    act("/api/queue/work", "Attempt every open item once, whatever its back-off", "Worked", || {
        post(follow::work)
    }),
    read("/api/dead", "Follow-up work that was given up", "Dead", || get(follow::dead)),
    read("/api/dead/show", "Everything about the dead letters of a key", "Dead", || get(follow::show))
        .asks(&[must("key", "the key")]),
    act("/api/dead/retry", "Put dead letters back into the queue and attempt them", "Retried", || {
        post(follow::retry)
    })
    .takes("Which"),
    act("/api/dead/drop", "Forget dead letters", "Dropped", || post(follow::forget)).takes("Which"),
    read("/api/stores", "The stores of the config", "Stores", || get(stores::all)),
    read("/api/stores/{store}/keys", "Keys of a store, in byte order", "Keys", || get(stores::keys)).asks(&[
        may("prefix", "string", "only keys that start so"),
        may("after", "string", "only keys after this one: the last of the page before"),
        may("limit", "integer", "at most this many (200)"),
    ]),
    read("/api/stores/{store}/value", "The value of a key", "Value", || get(stores::value))
        .asks(&[must("key", "the key")]),
    read("/api/replicas", "How the replicas are doing", "Replicas", || get(replicas::all)),
    read("/api/replicas/{name}", "How a replica is doing", "Replica", || get(replicas::one)),
    read("/api/replicas/{name}/conflicts", "Writes that wait for a person", "Conflicts", || {
        get(replicas::conflicts)
    }),
    act("/api/replicas/{name}/conflicts/{id}/resolve", "Decide a held conflict", "Object", || {
        post(replicas::resolve)
    })
    .takes("Winner"),
    read("/api/workspaces", "The workspaces of the config", "Workspaces", || get(workspaces::all)),
    read("/api/workspaces/{workspace}/pages", "Its pages, and what is kept of each", "Listing", || {
        get(workspaces::pages)
    })
    .asks(&[
        may("after", "string", "only pages after this one: the last of the answer before"),
        may("limit", "integer", "at most this many (50)"),
    ]),
    asking("/api/workspaces/{workspace}/pages/{page}/policies", "Its policies", "Policies", || {
        get(workspaces::policies)
    }),
    asking("/api/workspaces/{workspace}/pages/{page}/policies/{source}", "A policy", "Document", || {
        get(workspaces::policy)
    })
    .asks(&[may("language", "Language", "left out: as it was written")]),
    Route {
        status: 202,
        ..act(
            "/api/workspaces/{workspace}/pages/{page}/policies/{source}/translate",
            "Have a policy translated, as a job",
            "Job",
            || post(workspaces::translate),
        )
    }
    .takes("Translated"),
    read("/api/workspaces/{workspace}/pages/{page}/issues", "The issues of a page", "Issues", || {
        get(workspaces::issues)
    }),
    Route {
        status: 201,
        ..act("/api/workspaces/{workspace}/pages/{page}/issues", "Make an issue", "Issue", || {
            post(workspaces::create)
        })
    }
    .takes("NewIssue"),
    read("/api/workspaces/{workspace}/pages/{page}/issues/{id}", "One issue", "Issue", || {
        get(workspaces::issue)
    }),
    act("/api/workspaces/{workspace}/pages/{page}/issues/{id}/classify", "Set its severity", "Issue", || {
        post(workspaces::classify)
    })
    .takes("Classified"),
    act(
        "/api/workspaces/{workspace}/pages/{page}/issues/{id}/annotate",
        "Replace its notes",
        "Issue",
        || post(workspaces::annotate),
    )
    .takes("Annotated"),
    act("/api/workspaces/{workspace}/pages/{page}/issues/{id}/resolve", "It is dealt with", "Issue", || {
        post(workspaces::resolve)
    }),
    act(
        "/api/workspaces/{workspace}/pages/{page}/issues/{id}/reopen",
        "It is not, after all",
        "Issue",
        || post(workspaces::reopen),
    ),
    Route {
        status: 202,
        ..act("/api/workspaces/{workspace}/pages/{page}/analyze", "Analyse the page, as a job", "Job", || {
            post(workspaces::analyze)
        })
    },
    act("/api/workspaces/{workspace}/pages/{page}/clear", "Remove all kept of a page", "Object", || {
        post(workspaces::clear)
    }),
    act("/api/workspaces/{workspace}/purge", "Remove what is kept of pages that are gone", "Object", || {
        post(workspaces::purge)
    })
    .takes("PurgeAsked"),
    read("/api/workspaces/{workspace}/jobs", "Work in the background", "Jobs", || get(workspaces::jobs)),
    read("/api/workspaces/{workspace}/jobs/{id}", "How a job is getting on", "Job", || get(workspaces::job)),
    read("/api/openapi.json", "This description", "Object", || get(openapi::show)),
    read("/api/events", "What is going on, as server-sent events", "Events", || get(live::events)),
];

/// Where nothing is.
static NOWHERE: Route = read("(none)", "", "Text", || any(basics::nowhere));

pub fn router(house: &Arc<House>) -> Router {
    let passed = |route: &'static Route| {
        let way = Way { house: house.clone(), route };
        (route.handler)().layer(from_fn_with_state(way, front::pass))
    };
    let mut router: Router<Arc<House>> = Router::new();
    for route in ROUTES.iter().chain(PAGES) {
        router = router.route(route.path, passed(route));
    }
    router
        .fallback_service(passed(&NOWHERE).with_state(house.clone()))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(house.clone())
}
