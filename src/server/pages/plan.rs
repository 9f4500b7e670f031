//! A plan as part of a page: what a run would add, update (with diffs), delete and hold. It writes nothing.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::Shared;
use super::health::{Tone, badge};
use super::layout::fragment;
use super::pipeline::{fault, keys};
use super::words::many;
use crate::operations;
use crate::pipeline::preview::{Preview, Update};
use crate::server::answer::{Named, No};

/// Updates shown one by one.
const UPDATES: usize = 100;
/// So few diffs are shown at once; more are opened one by one.
const OPEN: usize = 5;
/// Lines of one diff: enough to judge by.
const LINES: usize = 400;

pub async fn pipeline(State(house): State<Shared>, Named(name): Named<String>) -> Result<Response, No> {
    house.pipeline(&name)?;
    let shared = house.clone();
    let ask = house.ask("plan");
    let plan = house
        .work(move || async move { operations::plan(shared.pipeline(&name)?, &shared.memory, &ask).await });
    Ok(fragment(&drawn(&plan.await?)))
}

fn drawn(plan: &Preview) -> Markup {
    let count = |number: usize, noun: &str| many(number as u64, noun);
    html! {
        section.card aria-labelledby="plan-title" {
            header {
                div.title { h2 #plan-title { "Plan" } (summary(plan)) }
                div.actions {
                    small { (many(plan.requests.made, "request")) " made, " (plan.requests.to_come) " to come" }
                    button.small data-close="#plan" { "Close" }
                }
            }
            div.in {
                @if plan.writes == 0 && plan.held.is_empty() {
                    p { "A run would change nothing: " (many(plan.unchanged, "key")) " unchanged." }
                }
                @if !plan.add.is_empty() {
                    (group(&format!("{} to add", count(plan.add.len(), "key")), &keys(plan.add.iter().map(|add| add.key.as_str()))))
                }
                @if !plan.update.is_empty() { (group(&format!("{} to update", count(plan.update.len(), "key")), &updates(&plan.update))) }
                @if !plan.delete.is_empty() {
                    (group(&format!("{} to delete", count(plan.delete.len(), "key")), &keys(plan.delete.iter().map(|gone| gone.key.as_str()))))
                }
                @if !plan.held.is_empty() { (held(plan)) }
                @for scope in &plan.unproven { p.wrap { (badge(Tone::Bad, "unproven")) " " code { (scope.scope) } ": " (scope.error) } }
                @for one in &plan.failed { (fault(one)) }
                @for warning in &plan.warnings { p.wrap.muted { (warning) } }
            }
        }
    }
}

fn summary(plan: &Preview) -> Markup {
    html! {
        span.badges {
            @for (number, word) in [(plan.add.len(), "to add"), (plan.update.len(), "to update"), (plan.delete.len(), "to delete")] {
                @if number > 0 { (badge(Tone::Run, &format!("{number} {word}"))) }
            }
            @if !plan.held.is_empty() { (badge(Tone::Held, &format!("{} would be held", plan.held.len()))) }
            @if !plan.unproven.is_empty() { (badge(Tone::Bad, &format!("{} unproven", plan.unproven.len()))) }
            @if !plan.failed.is_empty() { (badge(Tone::Bad, &format!("{} failed", plan.failed.len()))) }
        }
    }
}

fn group(title: &str, body: &Markup) -> Markup {
    html! { details open { summary { strong { (title) } } (body) } }
}

fn held(plan: &Preview) -> Markup {
    let rule = plan.held.first().map(|held| held.rule.as_str()).unwrap_or_default();
    html! {
        details {
            summary { strong { (many(plan.held.len() as u64, "change")) " would be held" } ": over " code { (rule) } }
            (keys(plan.held.iter().map(|held| held.key.as_str())))
        }
    }
}

fn updates(all: &[Update]) -> Markup {
    let rest = all.len().saturating_sub(UPDATES) as u64;
    html! {
        @for update in all.iter().take(UPDATES) {
            details open[all.len() <= OPEN] {
                summary { code { (update.key) } " " small { "changed: " (update.why) } }
                @match &update.diff { Some(diff) => (lines(diff)), None => p.muted { "There is no diff to show." } }
            }
        }
        @if rest > 0 { p.muted { "and " (rest) " more" } }
    }
}

fn lines(diff: &str) -> Markup {
    let class = |line: &str| match line.as_bytes().first() {
        Some(b'+') => Some("plus"),
        Some(b'-') => Some("minus"),
        Some(b'@') => Some("at"),
        _ => None,
    };
    html! { pre.diff tabindex="0" { @for line in diff.lines().take(LINES) { span class=[class(line)] { (line) } } } }
}
