//! The issues of a page as a board: those that wait, and those that are dealt with.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::json;

use super::super::health::{Tone, badge};
use super::super::words::{grouped, part, time};
use super::state::{in_order, tone, word};
use super::{page_address, page_api};
use crate::clock::rfc3339_ms;
use crate::workspace::analyze::AGREEMENT;
use crate::workspace::{Issue, Passage, Reference, Severity};

/// Issues of one column.
const ROWS: usize = 200;

pub fn section(workspace: &str, page: &str, issues: &[Issue], now: Timestamp) -> Markup {
    html! {
        section.card aria-labelledby="issues-title" {
            header { h2 #issues-title { "Issues" } }
            div #issues.in data-fresh {
                @if issues.is_empty() {
                    p.empty { "No issues. An analysis (" code { "trueup page analyze " (page) } ") looks for some, and anybody can write one down." }
                } @else {
                    div.lanes { @for resolved in [false, true] { (lane(workspace, page, issues, resolved, now)) } }
                }
            }
            (new_issue(workspace, page))
        }
    }
}

fn lane(workspace: &str, page: &str, issues: &[Issue], resolved: bool, now: Timestamp) -> Markup {
    let all = in_order(issues.iter().filter(|issue| issue.resolved.is_some() == resolved));
    let (id, title, tone) =
        if resolved { ("resolved", "Resolved", Tone::Good) } else { ("pending", "Pending", Tone::Held) };
    let rest = all.len().saturating_sub(ROWS) as u64;
    html! {
        div.lane #(id) role="group" aria-label=(title) {
            h3 { (title) " " (badge(tone, &grouped(all.len() as u64))) }
            @if all.is_empty() { p.muted { @if resolved { "Nothing was dealt with yet." } @else { "Nothing waits." } } }
            @for issue in all.into_iter().take(ROWS) { (card(workspace, page, issue, now)) }
            @if rest > 0 { p.muted { "and " (grouped(rest)) " more: " code { "trueup page issues " (page) } } }
        }
    }
}

fn card(workspace: &str, page: &str, issue: &Issue, now: Timestamp) -> Markup {
    let api = format!("{}/issues/{}", page_api(workspace, page), part(&issue.id));
    html! {
        article.issue id={ "issue-" (issue.id) } aria-label=(issue.title) {
            div.title { strong.wrap { (issue.title) } (badge(tone(issue.severity), word(issue.severity))) }
            @for passage in &issue.description { (described(workspace, page, passage)) }
            @if let Some(notes) = &issue.annotations { p.notes { (notes) } }
            p.muted {
                "found " (time(now, &rfc3339_ms(issue.created)))
                @if let Some(at) = issue.resolved { ", resolved " (time(now, &rfc3339_ms(at))) }
            }
            div.actions {
                @if issue.resolved.is_some() {
                    button.small data-post={ (api) "/reopen" } data-done="Reopened." { "Reopen" }
                } @else {
                    button.small.primary data-post={ (api) "/resolve" } data-done="Resolved." { "Resolve" }
                }
                (classify(&api, issue.severity))
            }
            (annotate(&api, issue))
        }
    }
}

fn described(workspace: &str, page: &str, passage: &Passage) -> Markup {
    match passage {
        Passage::Text(text) => html! { p.wrap { (text) } },
        Passage::Reference(place) => html! {
            blockquote {
                (place.excerpt)
                footer {
                    a href=(to_excerpt(workspace, page, place)) {
                        @if place.source == AGREEMENT { "the agreement" } @else { (place.title) }
                    }
                    @if place.unresolved { " " (badge(Tone::Late, "not found there any more")) }
                }
            }
        },
    }
}

/// The document, at the place an issue points to.
fn to_excerpt(workspace: &str, page: &str, place: &Reference) -> String {
    let document = if place.source == AGREEMENT {
        format!("{}/agreement", page_address(workspace, page))
    } else {
        format!("{}/policies/{}", page_address(workspace, page), part(&place.source))
    };
    match (place.offset, place.length) {
        (Some(offset), Some(length)) => format!("{document}?at={offset}&length={length}#excerpt"),
        _ => document,
    }
}

fn classify(api: &str, severity: Severity) -> Markup {
    let all = (1..=3).filter_map(|number| Severity::try_from(number).ok());
    html! {
        div.choice role="group" aria-label="Severity" {
            @for one in all {
                button.small data-post={ (api) "/classify" } data-body=(json!({ "severity": one }).to_string())
                    data-done={ "Now " (word(one)) "." } aria-pressed=(one == severity) { (word(one)) }
            }
        }
    }
}

fn annotate(api: &str, issue: &Issue) -> Markup {
    let notes = issue.annotations.as_deref().unwrap_or_default();
    let name = format!("notes-{}", issue.id);
    html! {
        details id={ "write-" (issue.id) } {
            summary { @if notes.is_empty() { "Write notes" } @else { "Change the notes" } }
            form data-post={ (api) "/annotate" } data-done=(if notes.is_empty() { "Noted." } else { "Notes replaced." }) {
                div.field {
                    label for=(name) { "Notes (Markdown; empty removes them)" }
                    textarea #(name) name="text" rows="4" { (notes) }
                }
                button.small.primary { "Save the notes" }
            }
        }
    }
}

fn new_issue(workspace: &str, page: &str) -> Markup {
    html! {
        details.in #new-issue {
            summary { "New issue" }
            form data-post={ (page_api(workspace, page)) "/issues" } data-done="Made." {
                div.field { label for="new-title" { "What is wrong, in one line" } input #new-title name="title" required maxlength="500" autocomplete="off"; }
                div.field {
                    label for="new-severity" { "Severity" }
                    select #new-severity name="severity" data-number {
                        option value="1" { "minor" } option value="2" { "notable" } option value="3" { "grave" }
                    }
                }
                div.field { label for="new-description" { "Description" } textarea #new-description name="description" rows="4" {} }
                button.primary { "Make the issue" }
            }
        }
    }
}
