//! One page of a workspace: its policies with their languages, its issues as a board, its jobs.
//!
//! Opening it lists the page's attachments where they come from, as `trueup page policies` does: copies of policies
//! that changed are dropped on the way. Where that cannot be had, what is kept is shown all the same.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::super::Shared;
use super::super::health::{Tone, badge};
use super::super::layout::{At, Leaf};
use super::super::pipeline::fault;
use super::super::words::{many, part};
use super::state::{self, Progress};
use super::{address, board, jobs, page_address, page_api};
use crate::error::{Fault, Kind, Result};
use crate::server::answer::{Named, No};
use crate::server::api::workspaces::ask;
use crate::workspace::{Catalogue, Glance, Issue, Job, Policy, Workspace};

/// Everything a page shows.
struct View {
    catalogue: Result<Catalogue>,
    issues: Vec<Issue>,
    glance: Glance,
    jobs: Vec<Job>,
    has_model: bool,
}

async fn view(room: &Workspace, page: &str) -> Result<View> {
    let catalogue = room.policies(page).await;
    let kept = room.glance(page).await?;
    let catalogue = match catalogue {
        // Nothing is there, and nothing is kept of it.
        Err(error) if error.kind() == Kind::NotFound && is_empty(&kept) => return Err(error),
        other => other,
    };
    let issues = match &catalogue {
        Ok(_) => room.issues(page).await?,
        // Its references cannot be checked now; the issues are there.
        Err(_) => room.issues(page).await.unwrap_or_default(),
    };
    let jobs = room.jobs().await?;
    Ok(View { catalogue, issues, glance: kept, jobs, has_model: room.llm.is_some() })
}

fn is_empty(kept: &Glance) -> bool {
    kept.pending + kept.resolved + kept.policies == 0
}

pub async fn show(
    State(house): State<Shared>,
    Named((name, page)): Named<(String, String)>,
) -> Result<Response, No> {
    let asked = page.clone();
    let view = ask(&house, name.clone(), async move |room| view(&room, &asked).await).await?;
    let now = house.clock.now();
    let here = page_address(&name, &page);
    let body = html! {
        div #state.board data-fresh { (head(&name, &page, &view, now)) }
        section.card aria-labelledby="policies-title" {
            header { h2 #policies-title { "Policies" } a href={ (here) "/agreement" } { "Read the agreement" } }
            div #policies data-fresh { (policies(&here, &view)) }
        }
        (board::section(&name, &page, &view.issues, now))
        (jobs::section(&name, Some(&page), &view.jobs, now))
        (clearing(&name, &page, &view.glance))
    };
    Ok(Leaf::still(&page, At::Workspaces, body).show(&house))
}

fn head(workspace: &str, page: &str, view: &View, now: jiff::Timestamp) -> Markup {
    let progress = Progress::of(&view.jobs, page, now);
    html! {
        div.head {
            div {
                p.crumbs { a href="/workspaces" { "Workspaces" } " / " a href=(address(workspace)) { (workspace) } }
                div.title { h1 { (page) } (state::badges(&view.glance, &progress)) }
            }
            @if view.has_model {
                button.primary data-post={ (page_api(workspace, page)) "/analyze" }
                    data-done="Asked for: the job is below." { "Analyse" }
            }
        }
        @if view.glance.analysis_stale {
            div.card.note.held { div.in {
                p { strong { "A policy changed or went since the page was analysed." } }
                @if view.has_model { p { "“Analyse” compares again; what is resolved stays so." } }
            } }
        }
        @if !view.has_model {
            div.card.note.idle { div.in { p { "Translating and analysing need a model: set "
                code { "llm = { url = \"…/v1\", model = \"…\" }" } " in " code { "[workspaces." (workspace) "]" } "." } } }
        }
    }
}

fn policies(here: &str, view: &View) -> Markup {
    html! {
        @match &view.catalogue {
            Err(error) => div.in { p { strong { "The page's policies cannot be listed now." } } (fault(&Fault::of(error))) },
            Ok(catalogue) if catalogue.policies.is_empty() => div.empty {
                h2 { "No policies" }
                p { "Attach PDF, HTML, DOCX, Markdown or text files to the page, or put them into its folder." }
            },
            Ok(catalogue) => table.cards {
                thead { tr { th { "Policy" } th { "State" } th { "Written in" } th { "Read in" } } }
                tbody { @for policy in &catalogue.policies { (line(here, policy)) } }
            },
        }
    }
}

fn line(here: &str, policy: &Policy) -> Markup {
    let to = format!("{here}/policies/{}", part(&policy.source));
    let others = policy.languages.iter().filter(|language| Some(**language) != policy.language);
    html! {
        tr {
            td.name.wide {
                a href=(to) { (policy.title) }
                @if policy.source != policy.title { span.sub.mono { (policy.source) } }
            }
            td data-is="State" {
                @if policy.stale { (badge(Tone::Held, "changed")) }
                @else if policy.language.is_some() { (badge(Tone::Good, "read")) }
                @else { (badge(Tone::Idle, "not read yet")) }
            }
            td data-is="Written in" {
                @match policy.language { Some(language) => (language.name()), None => span.muted { "unknown" } }
            }
            td.wide data-is="Read in" {
                div.languages {
                    @for language in others {
                        a href={ (to) "?language=" (language) } hreflang=(language) { (language.name()) }
                    }
                    a.faint href={ (to) "#languages" } { "other …" }
                }
            }
        }
    }
}

fn clearing(workspace: &str, page: &str, kept: &Glance) -> Markup {
    let issues = many((kept.pending + kept.resolved) as u64, "issue");
    html! {
        details #more {
            summary { "Remove everything kept of this page" }
            p.muted { "The page itself stays where it is. What people wrote about its issues goes." }
            button.danger data-post={ (page_api(workspace, page)) "/clear" } data-danger data-done="Removed."
                data-ask={ "Remove " (issues) " and every copy of page " (page) "?" } data-verb={ "Remove " (issues) }
                data-detail="This cannot be undone." { "Remove" }
        }
    }
}
