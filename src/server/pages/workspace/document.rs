//! A policy beside its translation, and the agreement. Translations are made by jobs: a page never waits for a model.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::super::Shared;
use super::super::health::{Tone, badge};
use super::super::layout::{At, Leaf};
use super::super::words::{part, time};
use super::prose::{self, Text};
use super::{address, jobs, page_address, page_api};
use crate::clock::rfc3339_ms;
use crate::error::Result;
use crate::server::answer::{Asked, Named, No};
use crate::server::api::workspaces::ask;
use crate::workspace::{Document, Job, Language, Task, Workspace};

#[derive(Debug, Clone, Deserialize)]
pub struct Which {
    language: Option<String>,
    /// The first character of the place somebody points to, and how many there are.
    at: Option<usize>,
    length: Option<usize>,
}

impl Which {
    fn mark(&self) -> std::ops::Range<usize> {
        let from = self.at.unwrap_or(0);
        from..from.saturating_add(self.length.unwrap_or(0))
    }
}

struct View {
    original: Document,
    /// Languages there is a copy in.
    kept: Vec<Language>,
    wanted: Option<Language>,
    translation: Option<Document>,
    jobs: Vec<Job>,
    has_model: bool,
}

/// Only what is kept already is shown translated.
async fn view(room: &Workspace, page: &str, source: &str, wanted: Option<&str>) -> Result<View> {
    let wanted = wanted.filter(|code| !code.is_empty()).map(Language::named).transpose()?;
    let original = room.policy(page, source, None).await?;
    let catalogue = room.policies(page).await?;
    let kept = catalogue.policies.into_iter().find(|policy| policy.source == source);
    let kept = kept.map(|policy| policy.languages).unwrap_or_default();
    let wanted = wanted.filter(|language| *language != original.language);
    let translation = match wanted {
        Some(language) if kept.contains(&language) => Some(room.policy(page, source, Some(language)).await?),
        _ => None,
    };
    let about = |job: &Job| matches!(&job.task, Task::Policy { page: of, source: which, .. } if of == page && which == source);
    let jobs = room.jobs().await?.into_iter().filter(about).collect();
    Ok(View { original, kept, wanted, translation, jobs, has_model: room.llm.is_some() })
}

pub async fn policy(
    State(house): State<Shared>,
    Named((name, page, source)): Named<(String, String, String)>,
    Asked(which): Asked<Which>,
) -> Result<Response, No> {
    let (in_page, of, language) = (page.clone(), source.clone(), which.language.clone());
    let view =
        ask(&house, name.clone(), async move |room| view(&room, &in_page, &of, language.as_deref()).await)
            .await?;
    let now = house.clock.now();
    let here = format!("{}/policies/{}", page_address(&name, &page), part(&source));
    let original = &view.original;
    let body = html! {
        div.head { div {
            (crumbs(&name, &page))
            div.title { h1 { (original.title) } (badge(Tone::Idle, original.language.name())) }
            p.muted { "read " (time(now, &rfc3339_ms(original.created))) }
        } }
        div #languages data-fresh { (languages(&here, &view)) }
        div #text data-fresh { (text(&name, &page, &view, &which)) }
        div #work data-fresh { @if !view.jobs.is_empty() { (jobs::section(&name, Some(&page), &view.jobs, now)) } }
    };
    Ok(Leaf::still(&original.title, At::Workspaces, body).show(&house))
}

pub async fn agreement(
    State(house): State<Shared>,
    Named((name, page)): Named<(String, String)>,
    Asked(which): Asked<Which>,
) -> Result<Response, No> {
    let of = page.clone();
    let found = ask(&house, name.clone(), async move |room| room.pages.body(&of).await).await?;
    let body = html! {
        div.head { div { (crumbs(&name, &page)) h1 { "Agreement of " (found.title) } } }
        section.card aria-label="Text" { div.in {
            (prose::alone(&Text { content: &found.markdown, language: None, mark: which.mark() }))
        } }
    };
    Ok(Leaf::still(&found.title, At::Workspaces, body).show(&house))
}

fn crumbs(workspace: &str, page: &str) -> Markup {
    html! {
        p.crumbs {
            a href="/workspaces" { "Workspaces" } " / " a href=(address(workspace)) { (workspace) } " / "
            a href=(page_address(workspace, page)) { (page) }
        }
    }
}

fn languages(here: &str, view: &View) -> Markup {
    let others = Language::ALL.into_iter().filter(|language| *language != view.original.language);
    html! {
        nav.languages aria-label="Languages" {
            a href=(here) aria-current=[view.wanted.is_none().then_some("true")] { (view.original.language.name()) " (original)" }
            @for language in others {
                @let kept = view.kept.contains(&language);
                a.faint[!kept] href={ (here) "?language=" (language) } hreflang=(language)
                    aria-current=[(view.wanted == Some(language)).then_some("true")]
                    title=[(!kept).then_some("not translated yet")] { (language.name()) }
            }
        }
    }
}

fn text(workspace: &str, page: &str, view: &View, which: &Which) -> Markup {
    let original = Text {
        content: &view.original.content,
        language: Some(view.original.language.code()),
        mark: which.mark(),
    };
    html! {
        section.card aria-label="Text" {
            @match (view.wanted, &view.translation) {
                (None, _) => div.in { (prose::alone(&original)) },
                (Some(language), Some(translation)) => {
                    header.pair { h2 { (view.original.language.name()) } h2 { (language.name()) ": " (translation.title) } }
                    div.in {
                        (prose::beside(&original, &Text {
                            content: &translation.content, language: Some(language.code()), mark: 0..0,
                        }))
                    }
                }
                (Some(language), None) => {
                    (ask_for(workspace, page, view, language))
                    div.in { (prose::alone(&original)) }
                }
            }
        }
    }
}

fn ask_for(workspace: &str, page: &str, view: &View, language: Language) -> Markup {
    let source = &view.original.source;
    let api = format!("{}/policies/{}/translate", page_api(workspace, page), part(source));
    let on_its_way = view.jobs.iter().any(|job| {
        !job.status.is_final()
            && matches!(job.task, Task::Policy { language: Some(into), .. } if into == language)
    });
    html! {
        header {
            h2 { "Not translated into " (language.name()) " yet" }
            @if on_its_way { (badge(Tone::Run, "on its way")) }
            @else if view.has_model {
                button.primary data-post=(api) data-body=(json!({ "language": language }).to_string())
                    data-done="Asked for: it is shown here as soon as it is there." { "Translate into " (language.name()) }
            } @else {
                span.muted { "It needs a model: " code { "llm = { url = \"…/v1\", model = \"…\" }" } }
            }
        }
    }
}
