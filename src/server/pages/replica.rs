//! One replica: its lag as it moves, its counters, and the conflicts that wait for a person.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::json;

use super::Shared;
use super::health::{Tone, badge};
use super::layout::{At, Leaf};
use super::pipeline::fault;
use super::words::{grouped, time};
use crate::error::Fault;
use crate::replica::{Conflict, StatusReport};
use crate::server::answer::{Named, No};
use crate::server::api::replicas::engine;

/// Conflicts of one page, parked ones first.
const ROWS: usize = 100;

pub async fn show(State(house): State<Shared>, Named(name): Named<String>) -> Result<Response, No> {
    let replica = engine(&house, &name)?;
    let asked = async { Ok::<_, crate::error::Error>((replica.status().await?, replica.conflicts().await?)) };
    let (facts, conflicts) = match asked.await {
        Ok((status, conflicts)) => (numbers(&status), self::conflicts(&name, &conflicts, house.clock.now())),
        // One that cannot be reached has a page all the same: it says so.
        Err(error) => (html! { div.card.note.bad { div.in { (fault(&Fault::of(&error))) } } }, html! {}),
    };
    let body = html! {
        div.head data-replica-page=(name) {
            div {
                p.crumbs { a href="/" { "Overview" } }
                div.title { h1 { (name) } span.badge.idle data-badge { "asking …" } }
            }
        }
        section.card aria-labelledby="lag-title" {
            header { h2 #lag-title { "Lag" } span data-lag { "unknown" } }
            div.in {
                svg #lag.chart viewBox="0 0 590 72" preserveAspectRatio="none" role="img" aria-labelledby="lag-title lag-top" {
                    rect.base x="0" y="71" width="590" height="1" {}
                    polyline points="" {}
                }
                p.legend #lag-top { "collecting …" }
            }
        }
        div #numbers data-fresh { (facts) }
        div #conflicts data-fresh { (conflicts) }
    };
    Ok(Leaf { title: &name, at: At::Elsewhere, pipeline: None, live: true, body }.show(&house))
}

fn numbers(status: &StatusReport) -> Markup {
    let counts = [
        ("Writes waiting", status.pending),
        ("Tried before", status.retrying),
        ("Conflicts", status.conflicts),
        ("Held", status.held),
        ("Failed", status.failed),
        ("Gaps", status.gaps),
        ("Quarantined", status.quarantined),
        ("Mirrored revision", status.applied_revision),
    ];
    let counts = counts.into_iter().chain(status.etcd_revision.map(|revision| ("etcd revision", revision)));
    let rates = [("From etcd", status.rates.from_etcd), ("To etcd", status.rates.to_etcd)];
    html! {
        // Without etcd, what PostgreSQL knows is told all the same.
        @if let Some(error) = &status.error { div.card.note.bad { div.in { (fault(error)) } } }
        section.card aria-label="Counters" { div.in { dl.facts {
            div { dt { "Prefix" } dd.mono { (status.prefix) } }
            div { dt { "Schema" } dd.mono { (status.schema) } }
            @for (name, rate) in rates { div { dt { (name) } dd { (format!("{rate:.1} / s")) } } }
            div { dt { "Retries" } dd { (grouped(status.retries)) } }
            @for (name, number) in counts { div { dt { (name) } dd { (grouped(number.unsigned_abs())) } } }
        } } }
    }
}

fn conflicts(name: &str, all: &[Conflict], now: jiff::Timestamp) -> Markup {
    html! {
        section.card aria-labelledby="conflicts-title" {
            header { h2 #conflicts-title { "Conflicts" } }
            @if all.is_empty() { p.empty { "No conflicts." } } @else {
                table.cards {
                    thead { tr { th { "Key" } th { "PostgreSQL wanted" } th { "State" } th { "When" } th {} } }
                    tbody { @for conflict in all.iter().take(ROWS) { (line(name, conflict, now)) } }
                }
            }
        }
    }
}

fn line(name: &str, conflict: &Conflict, now: jiff::Timestamp) -> Markup {
    let api = format!("/api/replicas/{}/conflicts/{}/resolve", super::words::part(name), conflict.id);
    html! {
        tr {
            td.name.wide.mono { (conflict.key) }
            td.wrap.wide { (conflict.operation) @if let Some(value) = &conflict.value { " " code { (value.chars().take(200).collect::<String>()) } } }
            td data-is="State" { @if conflict.held { (badge(Tone::Held, "held")) } @else { (badge(Tone::Idle, "etcd won")) } }
            td data-is="When" { (time(now, &conflict.at)) }
            td.wide { @if conflict.held { div.actions {
                @for (winner, word) in [("etcd", "Keep etcd's"), ("postgres", "Take PostgreSQL's")] {
                    button.small data-post=(api) data-body=(json!({ "winner": winner }).to_string()) data-done="Decided."
                        data-ask={ (word) " value for 1 key?" } data-detail=(conflict.key) data-verb=(word) { (word) }
                }
            } } }
        }
    }
}
