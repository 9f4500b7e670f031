//! The pages of `trueup serve`: drawn here, in one go, from the same answers the API gives; a little script asks
//! before it acts and follows what is going on. Everything is in the binary: no other host, no build step.
//!
//! They decide nothing and change nothing: what a button does is a request to the API, with the API's own rules on
//! who may ask. Nothing of a source or a store reaches a page without being escaped.

use std::sync::Arc;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::api::{Route, act, asking, read};

mod chart;
mod health;
pub mod layout;
mod login;
mod overview;
mod pipeline;
mod plan;
mod queue;
mod replica;
mod run;
mod stores;
mod why;
mod words;
mod workspace;

pub use overview::Board;

type Shared = Arc<super::House>;

pub const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
const ICON: &str = include_str!("icon.svg");
/// Assets are named by their content, so a browser may keep them.
const KEEP: &str = "public, max-age=31536000, immutable";

/// Every page. They are no part of the described API.
pub const PAGES: &[Route] = &[
    read("/", "What is true, late, failing or held", "Page", || get(overview::show)),
    read("/pipelines/{name}", "One pipeline", "Page", || get(pipeline::show)),
    act("/pipelines/{name}/plan", "What a run would do, as part of a page", "Page", || post(plan::pipeline)),
    read("/runs/{run}", "One run", "Page", || get(run::show)),
    read("/stores", "The stores of the config", "Page", || get(stores::all)),
    read("/stores/{name}", "The keys of a store, or one value", "Page", || get(stores::one)),
    read("/why", "The story of a key", "Page", || get(why::show)),
    read("/queue", "Follow-up work and dead letters", "Page", || get(queue::show)),
    read("/replicas/{name}", "One replica", "Page", || get(replica::show)),
    read("/workspaces", "The workspaces of the config", "Page", || get(workspace::all)),
    read("/workspaces/{workspace}", "The pages of a workspace", "Page", || get(workspace::one)),
    read("/workspaces/{workspace}/jobs", "Its jobs, as part of a page", "Page", || {
        get(workspace::jobs::show)
    }),
    asking("/workspaces/{workspace}/pages/{page}", "Policies, issues and jobs of a page", "Page", || {
        get(workspace::page::show)
    }),
    asking("/workspaces/{workspace}/pages/{page}/agreement", "The text of a page", "Page", || {
        get(workspace::document::agreement)
    }),
    asking("/workspaces/{workspace}/pages/{page}/policies/{source}", "A policy, translated", "Page", || {
        get(workspace::document::policy)
    }),
    read("/login", "Show the token", "Page", || get(login::show).post(login::enter)).open(),
    act("/logout", "Forget the session", "Page", || post(login::leave)),
    read("/assets/style.css", "", "Asset", || get(style)).open(),
    read("/assets/script.js", "", "Asset", || get(script)).open(),
    read("/assets/icon.svg", "", "Asset", || get(icon)).open(),
];

/// To the log-in page, and back afterwards.
pub fn ask_to_log_in(wanted: &str) -> Response {
    login::first(wanted)
}

async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT)
}

async fn icon() -> Response {
    asset("image/svg+xml", ICON)
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, KEEP)], text).into_response()
}
