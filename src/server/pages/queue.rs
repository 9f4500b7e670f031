//! Follow-up work that waits, and what was given up, with a way to try it again.

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::Shared;
use super::health::{Tone, badge};
use super::layout::{At, Leaf};
use super::pipeline::about;
use super::words::{grouped, many, part, time};
use crate::queue::dead::{self, Letter};
use crate::queue::{self, Placed, Task};
use crate::server::answer::No;

/// Rows of one page; the counts say how many there are.
const ROWS: usize = 200;

pub async fn show(State(house): State<Shared>) -> Result<Response, No> {
    let waiting = queue::waiting(&house.memory.state).await?;
    let letters = dead::all(&house.memory.state).await?;
    let now = house.clock.now();
    let body = html! {
        div.head { h1 { "Queue" } }
        div #dead data-fresh { (self::letters(&letters, now)) }
        div #waiting data-fresh { (tasks(&waiting, now)) }
    };
    Ok(Leaf { title: "Queue", at: At::Queue, pipeline: None, live: true, body }.show(&house))
}

fn letters(all: &[Placed<Letter>], now: Timestamp) -> Markup {
    let count = all.len() as u64;
    html! {
        section.card aria-labelledby="dead-title" {
            header {
                div.title { h2 #dead-title { "Dead letters" } @if count > 0 { (badge(Tone::Bad, &grouped(count))) } }
                @if count > 1 {
                    div.actions {
                        button data-post="/api/dead/drop" data-body=r#"{"all":true}"# data-danger data-verb={ "Drop " (many(count, "dead letter")) }
                            data-ask={ "Drop " (many(count, "dead letter")) "?" } data-done="Dropped."
                            data-detail="The work they stand for is not done, and not tried again." { "Drop all" }
                        button.primary data-post="/api/dead/retry" data-body=r#"{"all":true}"#
                            data-done="Put back and tried again." { "Retry all" }
                    }
                }
            }
            @if all.is_empty() { p.empty { "Nothing was given up." } } @else {
                table.cards {
                    thead { tr { th { "Key" } th { "Follow-up" } th { "What went wrong" } th { "Since" } th {} } }
                    tbody { @for letter in all.iter().take(ROWS) { (letter_line(letter, now)) } }
                }
                (more(count))
            }
        }
    }
}

fn letter_line(letter: &Placed<Letter>, now: Timestamp) -> Markup {
    let Letter { task, cause, since } = &letter.what;
    html! {
        tr {
            td.name.wide { a.mono href={ "/why?key=" (part(&task.key)) } { (task.key) } span.sub { (pipeline(&letter.pipeline)) } }
            td data-is="Follow-up" { (kind(&letter.then)) span.sub { (task.change.name()) ", " (many(u64::from(task.attempts), "attempt")) } }
            td.wide.wrap { (cause.message) span.sub { (cause.remedy) } }
            td data-is="Since" { (time(now, since)) }
            td.wide { div.actions {
                button.small.primary data-post="/api/dead/retry" data-body=(about(&task.key)) data-done="Put back and tried again."
                    aria-label={ "Retry " (task.key) } { "Retry" }
                button.small data-post="/api/dead/drop" data-body=(about(&task.key)) data-danger data-ask="Drop 1 dead letter?"
                    data-detail={ "The work for " (task.key) " is not done, and not tried again." } data-verb="Drop 1 dead letter"
                    data-done="Dropped." aria-label={ "Drop " (task.key) } { "Drop" }
            } }
        }
    }
}

fn tasks(all: &[Placed<Task>], now: Timestamp) -> Markup {
    let count = all.len() as u64;
    html! {
        section.card aria-labelledby="waiting-title" {
            header {
                div.title { h2 #waiting-title { "Waiting" } @if count > 0 { (badge(Tone::Idle, &grouped(count))) } }
                @if count > 0 { button data-post="/api/queue/work" data-done="Every open item was tried once." { "Try all now" } }
            }
            @if all.is_empty() { p.empty { "No follow-up work is waiting." } } @else {
                table.cards {
                    thead { tr { th { "Key" } th { "Follow-up" } th { "State" } th { "Created" } } }
                    tbody { @for task in all.iter().take(ROWS) { (task_line(task, now)) } }
                }
                (more(count))
            }
        }
    }
}

fn task_line(placed: &Placed<Task>, now: Timestamp) -> Markup {
    let task = &placed.what;
    html! {
        tr {
            td.name.wide { a.mono href={ "/why?key=" (part(&task.key)) } { (task.key) } span.sub { (pipeline(&placed.pipeline)) } }
            td data-is="Follow-up" { (kind(&placed.then)) span.sub { (task.change.name()) } }
            td data-is="State" {
                (task.state()) @if task.attempts > 0 { ", " (many(u64::from(task.attempts), "attempt")) }
                @if let Some(error) = &task.error { span.sub { (error.message) } }
            }
            td data-is="Created" { (time(now, &task.created)) }
        }
    }
}

fn pipeline(name: &str) -> Markup {
    html! { a href={ "/pipelines/" (part(name)) } { (name) } }
}

/// `export` of `export-3f2a…`: the rest tells two of a kind apart, for machines.
fn kind(then: &str) -> &str {
    then.split_once('-').map_or(then, |(kind, _)| kind)
}

fn more(count: u64) -> Markup {
    let rest = count.saturating_sub(ROWS as u64);
    html! { @if rest > 0 { p.pages.muted { "and " (grouped(rest)) " more" } } }
}
