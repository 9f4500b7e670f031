//! Jobs of a workspace or one of its pages: what they do, how far they are, how they ended. Followed by the script
//! while any is under way.

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::super::Shared;
use super::super::health::{Tone, badge};
use super::super::layout::fragment;
use super::super::words::{many, part, time};
use super::{address, page_address, page_api, state};
use crate::clock::rfc3339_ms;
use crate::server::answer::{Asked, Named, No};
use crate::server::api::workspaces::ask;
use crate::workspace::{Job, Status, Task};

/// Jobs of one page, the newest.
const ROWS: usize = 50;

#[derive(Debug, Deserialize)]
pub struct Which {
    page: Option<String>,
}

/// The list alone, for a page that follows it.
pub async fn show(
    State(house): State<Shared>,
    Named(name): Named<String>,
    Asked(which): Asked<Which>,
) -> Result<Response, No> {
    let jobs = ask(&house, name.clone(), async move |room| room.jobs().await).await?;
    Ok(fragment(&list(&name, which.page.as_deref(), &jobs, house.clock.now())))
}

pub fn section(workspace: &str, page: Option<&str>, jobs: &[Job], now: Timestamp) -> Markup {
    let query = page.map(|page| format!("?page={}", part(page))).unwrap_or_default();
    html! {
        section.card aria-labelledby="jobs-title" {
            header { h2 #jobs-title { "Jobs" } span.muted { "of the last hour" } }
            div #jobs data-fresh data-poll={ (address(workspace)) "/jobs" (query) } { (list(workspace, page, jobs, now)) }
        }
    }
}

fn list(workspace: &str, page: Option<&str>, jobs: &[Job], now: Timestamp) -> Markup {
    let of = |job: &&Job| page.is_none() || job.task.page() == page;
    let shown: Vec<&Job> = jobs.iter().rev().filter(of).take(ROWS).collect();
    let busy = shown.iter().any(|job| !job.status.is_final());
    html! {
        @if shown.is_empty() {
            p.empty { "Nothing was asked for. Analyses and translations are done here, one after the other." }
        } @else {
            table.cards data-busy[busy] {
                thead { tr { th { "Job" } th { "State" } th { "Progress" } th { "Since" } th {} } }
                tbody { @for job in shown { (line(workspace, job, now)) } }
            }
        }
    }
}

fn line(workspace: &str, job: &Job, now: Timestamp) -> Markup {
    html! {
        tr {
            td.name.wide {
                (name(&job.task))
                span.sub {
                    @if let Some(page) = job.task.page() { a href=(page_address(workspace, page)) { (page) } " " }
                    span.mono { (job.id) }
                }
            }
            td data-is="State" { (badge_of(job, now)) }
            td.wide.wrap { (progress(&job.status)) }
            td data-is="Since" { (time(now, &rfc3339_ms(job.updated))) }
            td.wide { (again(workspace, job)) }
        }
    }
}

fn name(task: &Task) -> String {
    match task {
        Task::Policies { .. } => "List the policies".into(),
        Task::Policy { source, language: Some(language), .. } => {
            format!("Translate {source} into {}", language.name())
        }
        Task::Policy { source, .. } => format!("Read {source}"),
        Task::Analyze { .. } => "Analyse".into(),
        Task::Reanalyze { .. } => "Analyse again".into(),
        Task::Clear { .. } => "Clear".into(),
        Task::Purge { .. } => "Purge".into(),
    }
}

fn badge_of(job: &Job, now: Timestamp) -> Markup {
    match &job.status {
        Status::Activity { .. } if state::is_late(job, now) => badge(Tone::Late, "late"),
        Status::Activity { activity } => badge(Tone::Run, activity.name()),
        Status::Value { .. } => badge(Tone::Good, "done"),
        Status::Error { .. } => badge(Tone::Bad, "failed"),
    }
}

fn progress(status: &Status) -> Markup {
    html! {
        @match status {
            Status::Activity { activity } => progress aria-label=(activity.name()) {},
            Status::Value { value } => (came_of(value)),
            Status::Error { code, text } => { (text) span.sub { "code " (code) } },
        }
    }
}

/// What a job came to, as far as a number says it.
fn came_of(value: &serde_json::Value) -> String {
    let length = |name: &str| value[name].as_array().map(|all| all.len() as u64);
    let mut said = Vec::new();
    said.extend(length("issues").map(|count| many(count, "new issue")));
    said.extend(
        length("errors").filter(|count| *count > 0).map(|count| format!("{count} could not be read")),
    );
    said.extend(length("policies").map(|count| format!("policies: {count}")));
    said.extend(value["title"].as_str().map(str::to_owned));
    said.extend(value["removed"].as_u64().map(|count| format!("{} removed", many(count, "key"))));
    said.join(", ")
}

/// What failed can be asked for once more: as a new job, which has a history of its own.
fn again(workspace: &str, job: &Job) -> Markup {
    let asked = match (&job.status, &job.task) {
        (Status::Error { .. }, Task::Analyze { page } | Task::Reanalyze { page }) => {
            Some((format!("{}/analyze", page_api(workspace, page)), String::new()))
        }
        (Status::Error { .. }, Task::Policy { page, source, language: Some(language) }) => {
            let api = format!("{}/policies/{}/translate", page_api(workspace, page), part(source));
            Some((api, json!({ "language": language }).to_string()))
        }
        _ => None,
    };
    html! {
        @if let Some((api, body)) = asked {
            button.small data-post=(api) data-body=(body) data-done="Asked for again." aria-label={ "Retry: " (name(&job.task)) } { "Retry" }
        }
    }
}
