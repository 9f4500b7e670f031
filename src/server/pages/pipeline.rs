//! One pipeline: how it is, what it did, what waits for a decision, and the buttons for all of that.

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::json;

use super::health::{self, Beside, Tone, badge};
use super::layout::{At, Leaf};
use super::words::{doing, exact, grouped, many, part, time, took};
use super::{Shared, chart};
use crate::config::{self, From, Then};
use crate::error::Fault;
use crate::operations::{self, Group};
use crate::schedule::overview::{self, One};
use crate::server::House;
use crate::server::answer::{Named, No};
use crate::state::report::{Trouble, untold};
use crate::state::{Counts, Report, Status};

/// Runs listed; the chart takes the newest of them.
const RUNS: usize = 30;
/// Held keys listed by name; the count says how many there are.
const KEYS: usize = 200;
/// Errors of the last run shown at once; the run's own page has them all.
const ERRORS: usize = 5;

pub async fn show(State(house): State<Shared>, Named(name): Named<String>) -> Result<Response, No> {
    let spec = house.pipeline(&name)?;
    let state = &house.memory.state;
    let one = overview::one(spec, &house.memory).await?;
    let runs = operations::runs(&house.memory, Some(&name), RUNS).await?.runs;
    let held = operations::held_of(state, &name).await?.held;
    let trouble = house.troubles().remove(&name);
    let marks = health::marks(&one, Beside { not_started: trouble.is_some() });
    let now = house.clock.now();
    let body = html! {
        div #state.board data-fresh {
            (head(&one, &marks))
            @if let Some(trouble) = &trouble { (not_started(&trouble.fault, &trouble.at, now)) }
            @if let Some(report) = &one.report { (errors(report, now)) }
            @if one.dead > 0 {
                div.card.note.bad { div.in { (many(one.dead, "dead letter")) " in " a href="/queue#dead" { "the queue" } "." } }
            }
        }
        div #progress.live.gone { progress {} span.muted {} }
        div #held.board data-fresh { (self::held(&held, now)) }
        div #plan.board tabindex="-1" {}
        div #facts data-fresh { (facts(&house, spec, &one, now)) }
        div #runs data-fresh { (history(&runs, now)) }
    };
    let leaf = Leaf { title: &name, at: At::Elsewhere, pipeline: Some(&name), live: true, body };
    Ok(leaf.show(&house))
}

fn head(one: &One, marks: &[health::Mark]) -> Markup {
    let api = format!("/api/pipelines/{}", part(&one.pipeline));
    html! {
        div.head {
            div {
                p.crumbs { a href="/" { "Overview" } }
                div.title { h1 { (one.pipeline) } (health::badges(marks)) }
            }
            div.actions {
                button data-post={ "/pipelines/" (part(&one.pipeline)) "/plan" } data-into="#plan" { "Plan" }
                @if one.paused.is_some() {
                    button data-post={ (api) "/resume" } data-done="Resumed: the next slot runs." { "Resume" }
                } @else if one.when.is_some() && one.enabled {
                    button data-post={ (api) "/pause" } data-done="Paused: no slot runs until it is resumed." { "Pause" }
                }
                button.primary data-post={ (api) "/start" } data-body="{}" data-done="Started." { "Sync now" }
            }
        }
    }
}

fn not_started(fault: &Fault, at: &str, now: Timestamp) -> Markup {
    html! {
        div.card.note.bad {
            div.in {
                p { strong { "The last run could not start, " (time(now, at)) "." } }
                (self::fault(fault))
            }
        }
    }
}

pub fn fault(fault: &Fault) -> Markup {
    told(&Trouble { fault, others: 0 })
}

pub fn told(trouble: &Trouble<'_>) -> Markup {
    let Trouble { fault, others } = trouble;
    html! {
        p.wrap {
            @if let Some(place) = fault.place() {
                code { (place) }
                @if *others > 0 { " and " (many(*others, "other")) }
                ": "
            }
            (fault.message)
        }
        @if !fault.remedy.is_empty() { p.wrap.muted { "What to do: " (fault.remedy) } }
    }
}

fn errors(report: &Report, now: Timestamp) -> Markup {
    let troubles = report.troubles();
    let rest = untold(&troubles, ERRORS) + report.errors_omitted;
    html! {
        @if !report.errors.is_empty() {
            div.card.note.bad {
                div.in {
                    p { strong { "The last run ended " (report.status.name()) ", "
                        (time(now, report.finished.as_deref().unwrap_or(&report.started))) "." } }
                    @for one in troubles.iter().take(ERRORS) { (told(one)) }
                    @if rest > 0 { p { a href={ "/runs/" (report.id) } { "and " (many(rest, "more error")) } } }
                }
            }
        }
    }
}

/// What is held, by plan; approving and rejecting are about a whole plan.
fn held(groups: &[Group], now: Timestamp) -> Markup {
    let mut plans: Vec<&str> = groups.iter().map(|group| group.plan.as_str()).collect();
    plans.dedup();
    html! {
        @for plan in plans {
            @let of: Vec<&Group> = groups.iter().filter(|group| group.plan == plan).collect();
            @let question = question(&of);
            section.card.note.held aria-label="Held" {
                header {
                    div.title {
                        h2 { "Held by the guard" }
                        (badge(Tone::Held, &many(of.iter().map(|group| group.keys.len() as u64).sum(), "change")))
                    }
                    div.actions {
                        button data-post={ "/api/held/" (part(plan)) "/reject" } data-ask={ "Reject: do not " (lower(&question)) "?" }
                            data-detail="The changes are dropped until the source changes again." data-verb="Reject" { "Reject" }
                        button.danger data-post={ "/api/held/" (part(plan)) "/approve" } data-danger
                            data-ask={ (question) "?" } data-verb=(question)
                            data-detail="What is absent is proven absent once more, then it is applied. The run can be undone." { "Approve" }
                    }
                }
                div.in { @for group in of { (held_group(group, now)) } }
            }
        }
    }
}

/// What approving does, with its count: `Delete 30 keys`.
fn question(groups: &[&Group]) -> String {
    let parts: Vec<String> =
        groups.iter().map(|group| doing(group.change, group.keys.len() as u64)).collect();
    match parts.split_first() {
        Some((first, rest)) => {
            rest.iter().fold(first.clone(), |text, part| format!("{text}, {}", lower(part)))
        }
        None => "Apply nothing".to_owned(),
    }
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

fn held_group(group: &Group, now: Timestamp) -> Markup {
    html! {
        p {
            strong { (doing(group.change, group.keys.len() as u64)) }
            ": over " code { (group.rule) } ", held " (time(now, &group.since))
            @if let Some(run) = &group.undoes { ", by undoing " a href={ "/runs/" (run) } { (short(run)) } }
            "."
        }
        details id={ "keys-" (group.plan) "-" (group.change.name()) } {
            summary { "Show the keys" }
            (keys(group.keys.iter().map(String::as_str)))
        }
    }
}

/// Keys by name, so many at most.
pub fn keys<'k>(all: impl ExactSizeIterator<Item = &'k str>) -> Markup {
    let rest = all.len().saturating_sub(KEYS) as u64;
    html! {
        ul.keys {
            @for key in all.take(KEYS) { li { a.mono href={ "/why?key=" (part(key)) } { (key) } } }
            @if rest > 0 { li.muted { "and " (grouped(rest)) " more" } }
        }
    }
}

fn facts(house: &House, spec: &config::Pipeline, one: &One, now: Timestamp) -> Markup {
    let then: Vec<&str> = spec.then.iter().map(follow_up).collect();
    html! {
        section.card aria-label="Facts" {
            div.in {
                dl.facts {
                    div { dt { "Next run" } dd { (next(one, now)) } }
                    div { dt { "Schedule" } dd {
                        @match &spec.when { Some(when) => { code { (when) } " " (spec.tz) }, None => "none: runs when asked" }
                    } }
                    div { dt { "From" } dd { (origin(spec)) } }
                    div { dt { "Into" } dd {
                        @if house.config.stores.contains_key(&spec.into.name) || spec.into.name.contains(':') {
                            a href={ "/stores/" (part(&spec.into.name)) } { (spec.into.name) }
                        } @else { (spec.into.name) }
                    } }
                    div { dt { "Then" } dd { (if then.is_empty() { "nothing".to_owned() } else { then.join(", ") }) } }
                    @if let Some(since) = &one.paused { div { dt { "Paused" } dd { (time(now, since)) } } }
                }
            }
        }
    }
}

fn follow_up(then: &Then) -> &str {
    match then {
        Then::Export(store) => &store.name,
        Then::Webhook(_) => "web hook",
        Then::Command(_) => "command",
    }
}

/// Where it reads from, without anything that may be a secret.
pub fn origin(spec: &config::Pipeline) -> String {
    match &spec.from {
        From::Files { folder, .. } => {
            format!("files in {}", folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy())
        }
        From::Store { store, prefix } => format!("store {} {prefix}", store.name).trim_end().to_owned(),
        From::Rss(_) => "rss".to_owned(),
        From::Git(_) => "git".to_owned(),
        From::Github(_) => "github".to_owned(),
        From::Rest(_) => "rest".to_owned(),
    }
}

pub fn next(one: &One, now: Timestamp) -> Markup {
    html! {
        @if let Some(late) = &one.late { "due " (time(now, late)) }
        @else if let Some(next) = &one.next { (time(now, next)) }
        @else if one.paused.is_some() { span.muted { "paused" } }
        @else { span.muted { "when asked" } }
    }
}

/// `+3 ~1 −2`, spelled out for those who hear it.
pub fn changes(counts: &Counts) -> Markup {
    let parts =
        [("+", counts.added, "added"), ("~", counts.updated, "updated"), ("−", counts.deleted, "deleted")];
    let said: Vec<String> =
        parts.iter().map(|(_, count, word)| format!("{} {word}", grouped(*count))).collect();
    let some = parts.iter().any(|(_, count, _)| *count > 0);
    html! {
        span.mono title=(said.join(", ")) {
            @if some {
                @for (sign, count, _) in parts { @if count > 0 { (sign) (grouped(count)) " " } }
            } @else { span.muted { "none" } }
        }
    }
}

fn history(runs: &[Report], now: Timestamp) -> Markup {
    html! {
        section.card aria-labelledby="runs-title" {
            header { h2 #runs-title { "Runs" } }
            @if runs.is_empty() {
                p.empty { "It has not run yet. “Plan” shows what a run would do; “Sync now” does it." }
            } @else {
                div.in { (chart::runs(runs)) }
                div.scroll {
                    table.cards {
                        thead { tr {
                            th { "Run" } th { "Ended" } th { "By" } th { "Changes" } th.num { "Scanned" } th.num { "Held" }
                            th.num { "Took" } th.num { "Undo" }
                        } }
                        tbody { @for run in runs { (line(run, runs, now)) } }
                    }
                }
            }
        }
    }
}

fn line(run: &Report, runs: &[Report], now: Timestamp) -> Markup {
    let started = run.started.parse().map_or_else(|_| run.started.clone(), exact);
    html! {
        tr {
            td { a href={ "/runs/" (run.id) } title=(started) { (time(now, &run.started)) } }
            td { (badge(Tone::of(run.status), run.status.name())) }
            td data-is="By" { (run.trigger) }
            td data-is="Changes" { (changes(&run.counts)) }
            td.num data-is="Scanned" { (grouped(run.counts.scanned)) }
            td.num data-is="Held" { (grouped(run.counts.held)) }
            td.num data-is="Took" { (took(&run.started, run.finished.as_deref()).unwrap_or_else(|| "…".into())) }
            td.num { (undo(run, runs)) }
        }
    }
}

/// A run can be undone once, as long as it changed something.
fn undo(run: &Report, runs: &[Report]) -> Markup {
    let changed = run.counts.added + run.counts.updated + run.counts.deleted;
    let undone =
        runs.iter().any(|other| other.undoes.as_ref() == Some(&run.id) && other.status == Status::Ok);
    html! {
        @if undone { span.muted { "undone" } }
        @else if changed > 0 && run.status != Status::Running { (undo_button(&run.id)) }
    }
}

pub fn undo_button(run: &str) -> Markup {
    let api = format!("/api/runs/{}/undo", part(run));
    html! {
        button.small data-post=(api) data-preview={ (api) "/plan" } data-danger aria-label={ "Undo run " (short(run)) } { "Undo" }
    }
}

/// Enough of an id for a person to tell two apart: run ids differ at their end.
pub fn short(run: &str) -> &str {
    run.get(run.len().saturating_sub(6)..).unwrap_or(run)
}

/// The body of a request about one key.
pub fn about(key: &str) -> String {
    json!({ "keys": [key] }).to_string()
}
