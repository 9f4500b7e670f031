//! The overview: what is true, late, failing or held, at a glance; one row per pipeline, the gravest first.
//!
//! It asks the state a fixed number of questions and draws one page of rows, however many pipelines there are.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::health::{self, Beside, CLASSES, Class, Mark};
use super::layout::{At, Leaf};
use super::words::{grouped, many, part, time};
use super::{Shared, pipeline, workspace};
use crate::error::Result;
use crate::queue::depth::{self, Depth};
use crate::schedule::overview::{self, One};
use crate::server::House;
use crate::server::answer::{Asked, No};

/// Rows of one page.
const ROWS: usize = 50;

#[derive(Debug, Default, Deserialize)]
pub struct Which {
    /// Only pipelines of this class.
    show: Option<String>,
    page: Option<usize>,
}

/// What the overview shows, whichever part of it: taken for all who ask within a moment.
pub struct Board {
    /// The gravest first.
    rows: Vec<Row>,
    tally: BTreeMap<Class, u64>,
    queue: Depth,
    dead: Depth,
}

/// One line of the overview.
struct Row {
    one: One,
    marks: Vec<Mark>,
    trouble: Option<String>,
}

impl Row {
    fn class(&self) -> Class {
        self.marks.first().map_or(Class::True, |mark| mark.class)
    }

    fn is(&self, class: Class) -> bool {
        self.marks.iter().any(|mark| mark.class == class)
    }
}

pub async fn show(State(house): State<Shared>, Asked(which): Asked<Which>) -> Result<Response, No> {
    let now = house.clock.now();
    let board = house.sight.look(|| look(&house)).await?;
    let Board { rows, tally, queue, dead } = &*board;
    let total = rows.len();
    let shown = CLASSES.into_iter().find(|class| Some(class.name()) == which.show.as_deref());
    let rows: Vec<&Row> = rows.iter().filter(|row| shown.is_none_or(|class| row.is(class))).collect();
    let page = which.page.unwrap_or(1).clamp(1, rows.len().div_ceil(ROWS).max(1));
    let body = html! {
        div #overview.board data-fresh {
            div.head { h1 { "Overview" } p.muted { (verdict(tally, total)) } }
            @if total == 0 && house.config.replicas.is_empty() && house.config.workspaces.is_empty() { (nothing(&house)) } @else {
                (tiles(tally, shown, queue, dead))
                @if total > 0 { (table(&house, &rows, page, shown, now)) }
            }
        }
        (replicas(&house))
        (workspace::hint(house.config.workspaces.keys()))
    };
    let leaf = Leaf { title: "Overview", at: At::Overview, pipeline: None, live: true, body };
    Ok(leaf.show(&house))
}

async fn look(house: &House) -> Result<Board> {
    let queue = depth::of_queue(&house.memory.state).await?;
    let dead = depth::of_dead(&house.memory.state).await?;
    let mut rows = rows(house).await?;
    rows.sort_by(|a, b| a.class().cmp(&b.class()).then_with(|| a.one.pipeline.cmp(&b.one.pipeline)));
    let mut tally: BTreeMap<Class, u64> = BTreeMap::new();
    for row in &rows {
        // One that is failing and holds something is in both counts.
        for class in CLASSES.into_iter().filter(|class| row.is(*class)) {
            *tally.entry(class).or_default() += 1;
        }
    }
    Ok(Board { rows, tally, queue, dead })
}

async fn rows(house: &House) -> Result<Vec<Row>> {
    let troubles = house.troubles();
    let all = overview::all_knowing(&house.config, &house.memory, &house.ended).await?.pipelines;
    let row = |one: One| {
        let trouble = troubles.get(&one.pipeline).map(|trouble| trouble.fault.message.clone());
        let beside = Beside { not_started: trouble.is_some() };
        let errors = one.report.as_ref().and_then(|report| report.errors.first());
        let trouble = trouble.or_else(|| errors.map(|fault| fault.message.clone()));
        Row { marks: health::marks(&one, beside), one, trouble }
    };
    Ok(all.into_iter().map(row).collect())
}

/// One sentence. It never says that all is well when something is held or failing.
fn verdict(tally: &BTreeMap<Class, u64>, total: usize) -> String {
    let of = |class: Class| tally.get(&class).copied().unwrap_or(0);
    let parts: Vec<String> = [Class::Failing, Class::Held, Class::Late]
        .into_iter()
        .filter(|class| of(*class) > 0)
        .map(|class| format!("{} {}", grouped(of(class)), class.name()))
        .collect();
    let all = many(total as u64, "pipeline");
    match (total, parts.is_empty()) {
        (0, _) => String::new(),
        (_, false) => format!("{} of {all}", parts.join(", ")),
        (_, true) if of(Class::True) == total as u64 => format!("{all}: all true"),
        (_, true) => format!("{all}: nothing failing, held or late"),
    }
}

fn tiles(tally: &BTreeMap<Class, u64>, shown: Option<Class>, queue: &Depth, dead: &Depth) -> Markup {
    html! {
        ul.tiles {
            @for class in CLASSES {
                @let count = tally.get(&class).copied().unwrap_or(0);
                @if count > 0 || class != Class::New {
                    @let here = shown == Some(class);
                    li {
                        a class={ "tile " (if count == 0 { "zero" } else { class.tone().class() }) }
                            href=(if here { "/".to_owned() } else { format!("/?show={}", class.name()) })
                            aria-current=[here.then_some("true")] {
                            b { (grouped(count)) }
                            span { (class.name()) }
                        }
                    }
                }
            }
            li { a.tile.zero[queue.total() == 0] href="/queue" { b { (queue.shown()) } span { "queued" } } }
            li {
                a class={ "tile " (if dead.total() == 0 { "zero" } else { "bad" }) } href="/queue#dead" {
                    b { (dead.shown()) } span { "dead letters" }
                }
            }
        }
    }
}

fn table(house: &House, rows: &[&Row], page: usize, shown: Option<Class>, now: Timestamp) -> Markup {
    let from = (page - 1) * ROWS;
    html! {
        section.card aria-labelledby="pipelines" {
            header {
                h2 #pipelines { @if let Some(class) = shown { "Pipelines: " (class.name()) } @else { "Pipelines" } }
                @if shown.is_some() { a href="/" { "show all" } }
            }
            @if rows.is_empty() { p.empty { "No pipeline is like that." } } @else {
                table.cards {
                    thead {
                        tr { th { "Pipeline" } th { "State" } th { "Last run" } th { "Changes" } th { "Next run" } }
                    }
                    tbody { @for row in rows.iter().skip(from).take(ROWS) { (line(house, row, now)) } }
                }
                (pages(rows.len(), page, shown))
            }
        }
    }
}

fn line(house: &House, row: &Row, now: Timestamp) -> Markup {
    let one = &row.one;
    let spec = house.config.pipelines.get(&one.pipeline);
    html! {
        tr {
            td.name.wide {
                a href={ "/pipelines/" (part(&one.pipeline)) } { (one.pipeline) }
                @if let Some(spec) = spec { span.sub { (pipeline::origin(spec)) " → " (spec.into.name) } }
            }
            td.wide {
                (health::badges(&row.marks))
                @if let Some(trouble) = row.trouble.as_ref().filter(|_| row.class() == Class::Failing) {
                    span.sub { (trouble) }
                }
            }
            td data-is="Last run" {
                @match &one.report {
                    Some(report) => (time(now, report.finished.as_deref().unwrap_or(&report.started))),
                    None => span.muted { "never" },
                }
            }
            td data-is="Changes" { @if let Some(report) = &one.report { (pipeline::changes(&report.counts)) } }
            td data-is="Next run" { (pipeline::next(one, now)) }
        }
    }
}

fn pages(rows: usize, page: usize, shown: Option<Class>) -> Markup {
    let last = rows.div_ceil(ROWS);
    let filter = shown.map(|class| format!("show={}&", class.name())).unwrap_or_default();
    let to = |page: usize| format!("/?{filter}page={page}");
    html! {
        @if last > 1 {
            nav.pages aria-label="Pages of pipelines" {
                @if page > 1 { a.button href=(to(page - 1)) rel="prev" { "Previous" } } @else { span {} }
                span.muted { "page " (page) " of " (last) }
                @if page < last { a.button href=(to(page + 1)) rel="next" { "Next" } } @else { span {} }
            }
        }
    }
}

/// Filled in by the script: replicas are asked over the network, and a page does not wait for that.
fn replicas(house: &House) -> Markup {
    html! {
        @if !house.config.replicas.is_empty() {
            section.card aria-labelledby="replicas" {
                header { h2 #replicas { "Replicas" } }
                table.cards {
                    thead { tr { th { "Replica" } th { "State" } th { "Lag" } th { "Conflicts" } } }
                    tbody {
                        @for replica in house.config.replicas.values() {
                            tr data-replica=(replica.name) {
                                td.name {
                                    a href={ "/replicas/" (part(&replica.name)) } { (replica.name) }
                                }
                                td { span.badge.idle data-badge { "asking …" } }
                                td data-is="Lag" { span data-lag { "unknown" } }
                                td data-is="Conflicts" {
                                    a href={ "/replicas/" (part(&replica.name)) "#conflicts" } { "show" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn nothing(house: &House) -> Markup {
    html! {
        section.card {
            div.empty {
                h2 { "No pipelines yet" }
                p { "A pipeline is a sentence: from a source, as a shape, into a store. Add one to "
                    code.wrap { (house.config.file.display()) } " and start the server again:" }
                pre { "[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"sqlite:.trueup/notes.db\"\nwhen = \"0 16 * * *\"" }
                p { "Or let " code { "trueup init" } " write a config that runs as it is." }
            }
        }
    }
}
