//! What every page has around it: head, navigation, the dialog that asks, the place where answers are told.

use std::sync::LazyLock;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

use super::{SCRIPT, STYLE};
use crate::clock::rfc3339_ms;
use crate::error::Fault;
use crate::record::Fingerprint;
use crate::server::House;

/// Only what comes from here is drawn or run, and nothing that stands inside a page as text.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Tells one build's assets from another's.
static EDITION: LazyLock<String> =
    LazyLock::new(|| Fingerprint::of_parts(&[STYLE.as_bytes(), SCRIPT.as_bytes()]).short());

/// Where in the navigation a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Overview,
    Stores,
    Queue,
    Workspaces,
    Why,
    Elsewhere,
}

const NAVIGATION: [(At, &str, &str); 5] = [
    (At::Overview, "/", "Overview"),
    (At::Stores, "/stores", "Stores"),
    (At::Queue, "/queue", "Queue"),
    (At::Workspaces, "/workspaces", "Workspaces"),
    (At::Why, "/why", "Why"),
];

/// A page before it is put into its frame.
pub struct Leaf<'p> {
    pub title: &'p str,
    pub at: At,
    /// It shows this pipeline's progress.
    pub pipeline: Option<&'p str>,
    /// It changes by itself when something happens.
    pub live: bool,
    pub body: Markup,
}

impl<'p> Leaf<'p> {
    pub fn still(title: &'p str, at: At, body: Markup) -> Self {
        Leaf { title, at, pipeline: None, live: false, body }
    }

    pub fn show(self, house: &House) -> Response {
        respond(StatusCode::OK, &self.framed(house.clock.now(), house.doors.needs_token()))
    }

    fn framed(self, now: Timestamp, leaves: bool) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                (head(self.title, true))
                body data-now=(rfc3339_ms(now)) data-pipeline=[self.pipeline] data-live[self.live] {
                    a.skip href="#main" { "Skip to content" }
                    (top(self.at))
                    main #main tabindex="-1" { (self.body) }
                    (foot(self.live, leaves))
                    (asking())
                }
            }
        }
    }
}

fn head(title: &str, script: bool) -> Markup {
    let edition = EDITION.as_str();
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (title) " · trueup" }
            link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
            link rel="stylesheet" href={ "/assets/style.css?" (edition) };
            @if script { script src={ "/assets/script.js?" (edition) } defer {} }
        }
    }
}

fn top(at: At) -> Markup {
    html! {
        header.top {
            div {
                a.brand href="/" {
                    img src="/assets/icon.svg" alt="" width="24" height="24";
                    "trueup"
                }
                nav aria-label="Pages" {
                    @for (place, address, name) in NAVIGATION {
                        a href=(address) aria-current=[(place == at).then_some("page")] { (name) }
                    }
                }
                form.find action="/why" role="search" {
                    input name="key" aria-label="Key to explain" placeholder="Why is this key…" required
                        autocomplete="off" spellcheck="false";
                    button { "Explain" }
                }
            }
        }
    }
}

fn foot(live: bool, leaves: bool) -> Markup {
    html! {
        footer.foot {
            span { "trueup " (env!("CARGO_PKG_VERSION")) }
            span { "times are UTC" }
            @if live { span #wire { "connecting …" } }
            a href="/api/openapi.json" { "API" }
            a href="/metrics" { "metrics" }
            @if leaves { form action="/logout" method="post" { button.small { "Log out" } } }
            noscript { "Buttons need JavaScript; everything can be read without it." }
        }
    }
}

fn asking() -> Markup {
    html! {
        dialog #ask aria-labelledby="ask-title" {
            form method="dialog" {
                h2 #ask-title {}
                p {}
                div.actions {
                    button value="no" { "Cancel" }
                    button.primary value="yes" { "Yes" }
                }
            }
        }
        div #told role="status" aria-live="polite" {}
    }
}

/// A page of its own for whoever is not let in yet.
pub fn plain(status: StatusCode, title: &str, body: Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" { (head(title, false)) body { main #main { (body) } } }
    };
    respond(status, &page)
}

/// What went wrong, as a page: the message and what to do.
pub fn trouble(house: &House, status: StatusCode, fault: &Fault) -> Response {
    let body = html! {
        div.card.note.bad {
            div.in {
                h1 { (heading(status)) }
                p.wrap { (fault.message) }
                @if !fault.remedy.is_empty() { p.wrap.muted { (fault.remedy) } }
                p { a href="/" { "To the overview" } }
            }
        }
    };
    let page = Leaf::still(heading(status), At::Elsewhere, body);
    respond(status, &page.framed(house.clock.now(), house.doors.needs_token()))
}

fn heading(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Refused",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        _ if status.is_client_error() => "This does not fit",
        _ => "This did not work",
    }
}

/// Part of a page, for the script to put in.
pub fn fragment(body: &Markup) -> Response {
    respond(StatusCode::OK, body)
}

fn respond(status: StatusCode, page: &Markup) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (status, headers, page.0.clone()).into_response()
}
