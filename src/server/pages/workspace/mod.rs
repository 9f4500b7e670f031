//! Workspaces: which there are, their pages at a glance, and one workspace with all its pages and jobs.
//!
//! A list looks at what is kept and asks nothing of where pages come from; that is asked when one page is opened.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::Shared;
use super::health::{Tone, badge};
use super::layout::{At, Leaf};
use super::pipeline::fault;
use super::words::{many, part, time};
use crate::clock::rfc3339_ms;
use crate::config::{PagesSpec, Workspace as Spec};
use crate::error::Fault;
use crate::server::answer::{Asked, Named, No};
use crate::server::api::workspaces::ask;
use crate::workspace::{Glance, Job, Listing};

mod board;
pub mod document;
pub mod jobs;
pub mod page;
mod prose;
pub mod state;

use state::Progress;

/// Pages of each workspace on the list of all.
const FEW: usize = 10;
/// Pages of one workspace at a time.
const ROWS: usize = 50;

#[derive(Debug, Deserialize)]
pub struct Which {
    after: Option<String>,
    /// A page to go to, by its id.
    page: Option<String>,
}

/// Where a workspace is shown.
fn address(workspace: &str) -> String {
    format!("/workspaces/{}", part(workspace))
}

/// Where a page is shown.
fn page_address(workspace: &str, page: &str) -> String {
    format!("{}/pages/{}", address(workspace), part(page))
}

/// Where the API has a page.
fn page_api(workspace: &str, page: &str) -> String {
    format!("/api{}", page_address(workspace, page))
}

async fn look(
    house: &Shared,
    name: &str,
    after: Option<String>,
    limit: usize,
) -> Result<(Listing, Vec<Job>), No> {
    let looked = ask(house, name.to_owned(), async move |room| {
        Ok((room.listing(after.as_deref(), limit).await?, room.jobs().await?))
    });
    looked.await
}

pub async fn all(State(house): State<Shared>) -> Result<Response, No> {
    let mut cards = Vec::new();
    for (name, spec) in &house.config.workspaces {
        let inside = match look(&house, name, None, FEW).await {
            Ok((listing, jobs)) => html! {
                (pages(spec, &listing, &jobs, house.clock.now()))
                @if listing.more { p.pages { a.button href=(address(name)) { "All pages" } } }
            },
            // One that cannot be opened says so beside the others.
            Err(No(_, error)) => html! { div.in { (fault(&Fault::of(&error))) } },
        };
        cards.push((name, inside));
    }
    let body = html! {
        div.head { h1 { "Workspaces" } }
        @if cards.is_empty() { (nothing(&house.config.file.display().to_string())) }
        @for (name, inside) in cards {
            section.card aria-label=(name) {
                header { h2 { a href=(address(name)) { (name) } } }
                (inside)
            }
        }
    };
    Ok(Leaf::still("Workspaces", At::Workspaces, body).show(&house))
}

pub async fn one(
    State(house): State<Shared>,
    Named(name): Named<String>,
    Asked(which): Asked<Which>,
) -> Result<Response, No> {
    if let Some(page) = which.page.as_deref().map(str::trim).filter(|page| !page.is_empty()) {
        let to = [(header::LOCATION, page_address(&name, page))];
        return Ok((StatusCode::SEE_OTHER, to).into_response());
    }
    let (listing, jobs) = look(&house, &name, which.after.clone(), ROWS).await?;
    let Some(spec) = house.config.workspaces.get(&name) else {
        return Err(crate::error::Error::bug("a workspace went missing between two lines").into());
    };
    let now = house.clock.now();
    let here = address(&name);
    let body = html! {
        div.head {
            div { p.crumbs { a href="/workspaces" { "Workspaces" } } h1 { (name) } }
            form.row action=(here) {
                div.field { label for="page" { "Open a page by its id" }
                    input #page name="page" required autocomplete="off" spellcheck="false"; }
                button { "Open" }
            }
        }
        @if let Some(trouble) = &listing.error { div.card.note.bad { div.in { (fault(trouble)) } } }
        section.card aria-labelledby="pages-title" {
            header { h2 #pages-title { "Pages" } }
            div #pages data-fresh { (pages(spec, &listing, &jobs, now)) }
            (turn(&here, &which, &listing))
        }
        (jobs::section(&name, None, &jobs, now))
    };
    Ok(Leaf::still(&name, At::Workspaces, body).show(&house))
}

fn pages(spec: &Spec, listing: &Listing, jobs: &[Job], now: jiff::Timestamp) -> Markup {
    html! {
        @if listing.pages.is_empty() { (no_pages(spec)) } @else {
            table.cards {
                thead { tr { th { "Page" } th { "State" } th { "Policies read" } th { "Issues" } th { "Analysed" } } }
                tbody { @for page in &listing.pages { (line(&spec.name, page, jobs, now)) } }
            }
        }
    }
}

fn line(workspace: &str, glance: &Glance, jobs: &[Job], now: jiff::Timestamp) -> Markup {
    let progress = Progress::of(jobs, &glance.page, now);
    let codes: Vec<&str> = glance.languages.iter().map(|language| language.code()).collect();
    html! {
        tr {
            td.name.wide { a href=(page_address(workspace, &glance.page)) { (glance.page) } }
            td.wide { (state::badges(glance, &progress)) }
            td data-is="Policies read" {
                (glance.policies)
                @if !codes.is_empty() { span.sub { "also in " (codes.join(", ")) } }
            }
            td data-is="Issues" { (glance.pending) " pending" span.sub { (glance.resolved) " resolved" } }
            td data-is="Analysed" {
                @match glance.analyzed {
                    Some(at) => (time(now, &rfc3339_ms(at))),
                    None => span.muted { "never" },
                }
            }
        }
    }
}

fn turn(here: &str, which: &Which, listing: &Listing) -> Markup {
    let last = listing.pages.last().filter(|_| listing.more);
    html! {
        @if which.after.is_some() || last.is_some() {
            nav.pages aria-label="Parts of the list" {
                @if which.after.is_some() { a.button href=(here) { "First pages" } } @else { span {} }
                @if let Some(page) = last { a.button href={ (here) "?after=" (part(&page.page)) } rel="next" { "Next" } }
            }
        }
    }
}

fn no_pages(spec: &Spec) -> Markup {
    html! {
        div.empty {
            h2 { "No pages yet" }
            @match &spec.pages {
                PagesSpec::Folder(root) => {
                    p { "A page is a sub-folder: the agreement as " code { "page.md" } ", and its policies beside it." }
                    pre { "mkdir -p " (root.join("first").display()) "\ntrueup page policies first --workspace " (spec.name) }
                }
                PagesSpec::Confluence(_) => p { "Pages of a wiki are not listed: open one by its id. It is listed here once something of it is kept." },
            }
        }
    }
}

fn nothing(config: &str) -> Markup {
    html! {
        section.card {
            div.empty {
                h2 { "No workspaces yet" }
                p { "A workspace compares the text of a page with the policies attached to it. Add one to "
                    code.wrap { (config) } " and start the server again:" }
                pre { "[workspaces.agreements]\npages = { folder = \"pages\" }\ninto  = \"sqlite:.trueup/agreements.db\"" }
                p { "Or let " code { "trueup init workspace" } " write a config that runs as it is." }
            }
        }
    }
}

/// On the overview: only that they are there.
pub fn hint<'w>(names: impl ExactSizeIterator<Item = &'w String>) -> Markup {
    html! {
        @if names.len() > 0 {
            section.card aria-labelledby="workspaces" {
                header {
                    div.title { h2 #workspaces { "Workspaces" } (badge(Tone::Idle, &many(names.len() as u64, "workspace"))) }
                }
                ul.in.keys { @for name in names { li { a href=(address(name)) { (name) } } } }
            }
        }
    }
}
