//! One run: its counts, by group, and every error it met.

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::Shared;
use super::health::{Tone, badge};
use super::layout::{At, Leaf};
use super::pipeline::{short, told, undo_button};
use super::words::{exact, grouped, many, part, time, took};
use crate::operations;
use crate::server::answer::{Named, No};
use crate::state::report::untold;
use crate::state::{Report, Status};

/// Groups and errors of one page.
const GROUPS: usize = 200;
const ERRORS: usize = 200;

pub async fn show(State(house): State<Shared>, Named(run): Named<String>) -> Result<Response, No> {
    let report = operations::run(&house.memory, &run).await?;
    let now = house.clock.now();
    let title = format!("Run {}", short(&report.id));
    let body = html! {
        (head(&report, &title))
        (facts(&report, now))
        @if !report.errors.is_empty() { (errors(&report)) }
        @if report.groups.len() > 1 { (groups(&report)) }
    };
    Ok(Leaf::still(&title, At::Elsewhere, body).show(&house))
}

fn head(report: &Report, title: &str) -> Markup {
    let counts = &report.counts;
    let changed = counts.added + counts.updated + counts.deleted;
    html! {
        div.head {
            div {
                p.crumbs {
                    a href="/" { "Overview" } " / "
                    a href={ "/pipelines/" (part(&report.pipeline)) } { (report.pipeline) }
                }
                div.title { h1 { (title) } (badge(Tone::of(report.status), report.status.name())) }
            }
            @if changed > 0 && report.status != Status::Running { div.actions { (undo_button(&report.id)) } }
        }
    }
}

fn facts(report: &Report, now: Timestamp) -> Markup {
    let counts = &report.counts;
    let started = report.started.parse().map_or_else(|_| report.started.clone(), exact);
    let numbers = [
        ("Scanned", counts.scanned),
        ("Added", counts.added),
        ("Updated", counts.updated),
        ("Deleted", counts.deleted),
        ("Unchanged", counts.unchanged),
        ("Skipped", counts.skipped),
        ("Held", counts.held),
        ("Failed", counts.failed),
        ("Unproven scopes", counts.unproven),
        ("New dead letters", report.dead),
        ("Requests to the source", report.requests),
        ("Writes", report.writes),
    ];
    html! {
        section.card aria-label="Counts" { div.in { dl.facts {
            div { dt { "Id" } dd.mono { (report.id) } }
            div { dt { "Started" } dd { (started) ", " (time(now, &report.started)) } }
            div { dt { "Took" } dd { (took(&report.started, report.finished.as_deref()).unwrap_or_else(|| "…".into())) } }
            div { dt { "By" } dd { (report.trigger) } }
            @if let Some(run) = &report.undoes { div { dt { "Undoes" } dd { a href={ "/runs/" (run) } { (short(run)) } } } }
            @for (name, number) in numbers { div { dt { (name) } dd { (grouped(number)) } } }
        } } }
    }
}

fn errors(report: &Report) -> Markup {
    let troubles = report.troubles();
    let rest = untold(&troubles, ERRORS) + report.errors_omitted;
    html! {
        section.card.note.bad aria-labelledby="errors" {
            header { h2 #errors { (many(report.errors.len() as u64 + report.errors_omitted, "error")) } }
            div.in {
                @for one in troubles.iter().take(ERRORS) { (told(one)) }
                @if rest > 0 { p.muted { "and " (grouped(rest)) " more" } }
            }
        }
    }
}

fn groups(report: &Report) -> Markup {
    html! {
        section.card aria-labelledby="groups" {
            header { h2 #groups { "By group" } }
            div.scroll { table {
                thead { tr { th { "Group" } th.num { "Scanned" } th.num { "Added" } th.num { "Updated" } th.num { "Deleted" } th.num { "Held" } th.num { "Failed" } } }
                tbody { @for (name, counts) in report.groups.iter().take(GROUPS) { tr {
                    td.wrap { (if name.is_empty() { "(all)" } else { name }) }
                    @for number in [counts.scanned, counts.added, counts.updated, counts.deleted, counts.held, counts.failed] {
                        td.num { (grouped(number)) }
                    }
                } } }
            } }
        }
    }
}
