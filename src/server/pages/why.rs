//! The story of a key: who owns it, what became of it in every run, what waits, what went wrong.

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::Shared;
use super::health::{Tone, badge};
use super::layout::{At, Leaf};
use super::pipeline::{fault, short};
use super::words::{many, part, time};
use crate::error::{Fault, Kind};
use crate::operations::look;
use crate::pipeline::why::{Story, Waiting};
use crate::server::answer::{Asked, No};

#[derive(Debug, Deserialize)]
pub struct Which {
    #[serde(default)]
    key: String,
    pipeline: Option<String>,
}

pub async fn show(State(house): State<Shared>, Asked(asked): Asked<Which>) -> Result<Response, No> {
    let Which { key, pipeline } = asked;
    let pipeline = pipeline.map(|name| house.pipeline(&name)).transpose()?.map(|spec| spec.name.as_str());
    let told = match key.trim() {
        "" => {
            html! { p.card.empty { "Name a key to see where it came from, every change to it, and what waits." } }
        }
        key => match look::why(&house.config, &house.memory, key, pipeline).await {
            Ok(story) => story_of(&story, house.clock.now()),
            Err(error) if matches!(error.kind(), Kind::NotFound) => unknown(&Fault::of(&error)),
            Err(error) => return Err(error.into()),
        },
    };
    let body = html! {
        div.head { h1 { "Why" } }
        form.row action="/why" {
            div.field { label for="key" { "Key" } input #key.mono name="key" value=(key) required autocomplete="off" spellcheck="false"; }
            button.primary { "Explain" }
        }
        (told)
    };
    Ok(Leaf::still("Why", At::Why, body).show(&house))
}

fn unknown(fault: &Fault) -> Markup {
    html! { div.card.note { div.in { p.wrap { strong { (fault.message) } } p.wrap.muted { (fault.remedy) } } } }
}

fn story_of(story: &Story, now: Timestamp) -> Markup {
    html! {
        section.card aria-labelledby="key-title" {
            header { div.title { h2 #key-title.mono.wrap { (story.key) } (marks(story)) } }
            div.in { (facts(story, now)) }
        }
        @for (title, waiting) in [("Waiting follow-up work", &story.queue), ("Dead letters", &story.dead)] {
            @if !waiting.is_empty() { (waits(title, waiting)) }
        }
        (history(story, now))
        @if !story.errors.is_empty() {
            section.card.note.bad aria-labelledby="errors" {
                header { h2 #errors { "Errors" } }
                div.in { @for trouble in &story.errors {
                    p { "Run " a href={ "/runs/" (trouble.run) } { (short(&trouble.run)) } }
                    (fault(&trouble.fault))
                } }
            }
        }
    }
}

fn marks(story: &Story) -> Markup {
    let fine =
        story.held.is_none() && story.drift.is_none() && story.dead.is_empty() && story.source.is_some();
    html! {
        span.badges {
            @if let Some(held) = &story.held { (badge(Tone::Held, &format!("{} held", held.change.name()))) }
            @if let Some(drift) = story.drift { (badge(Tone::Bad, drift)) }
            @if !story.dead.is_empty() { (badge(Tone::Bad, &many(story.dead.len() as u64, "dead letter"))) }
            @if let Some(decision) = &story.decision { (badge(Tone::Idle, decision.verdict.name())) }
            @if story.version.is_none() && story.drift.is_none() { (badge(Tone::Idle, "not in the store")) }
            @if fine { (badge(Tone::Good, "as written")) }
        }
    }
}

fn facts(story: &Story, now: Timestamp) -> Markup {
    html! {
        dl.facts {
            div { dt { "Pipeline" } dd { a href={ "/pipelines/" (part(&story.pipeline)) } { (story.pipeline) } } }
            @if !story.also.is_empty() { div { dt { "Also in" } dd { @for (at, name) in story.also.iter().enumerate() {
                @if at > 0 { ", " }
                a href={ "/why?key=" (part(&story.key)) "&pipeline=" (part(name)) } { (name) }
            } } } }
            div { dt { "Store" } dd { (story.store) } }
            @if let Some(version) = &story.version { div { dt { "Version there" } dd.mono { (version) } } }
            @if let Some(source) = &story.source {
                div { dt { "Source" } dd { (source.name) @if !source.scope.is_empty() { " · " (source.scope) } } }
                div { dt { "Read as" } dd { (source.shape) } }
                @if let Some(seen) = &source.seen { div { dt { "Last written" } dd { (time(now, seen)) } } }
                div { dt { "Source version" } dd.mono { (source.version) } }
            }
            @if let Some(held) = &story.held { div { dt { "Held by" } dd { code { (held.rule) } } } }
        }
    }
}

fn waits(title: &str, all: &[Waiting]) -> Markup {
    html! {
        section.card aria-label=(title) {
            header { h2 { (title) } a href="/queue" { "to the queue" } }
            div.in { @for one in all {
                p.wrap { code { (one.then) } ": " (one.state) ", " (many(u64::from(one.attempts), "attempt"))
                    @if let Some(error) = &one.error { ", " (error.message) } }
            } }
        }
    }
}

fn history(story: &Story, now: Timestamp) -> Markup {
    html! {
        section.card aria-labelledby="history" {
            header { h2 #history { "History" } }
            @if story.history.is_empty() { p.empty { "No write of it is in the journal." } } @else {
                table.cards {
                    thead { tr { th { "When" } th { "Change" } th { "Outcome" } th { "Run" } th { "SHA-256" } } }
                    tbody { @for event in &story.history { tr {
                        td { @if let Some(at) = &event.at { (time(now, at)) } }
                        td { strong { (event.change.name()) } }
                        td data-is="Outcome" { (event.outcome) }
                        td data-is="Run" { a.mono href={ "/runs/" (event.run) } { (short(&event.run)) } }
                        td.mono data-is="SHA-256" { @if let Some(print) = &event.sha256 { (print.short()) "…" } }
                    } } }
                }
            }
        }
    }
}
