//! The token, shown once on a page, for a cookie that scripts cannot read and other sites cannot make a browser send.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::html;
use serde::Deserialize;

use super::{Shared, layout};
use crate::server::answer::Asked;
use crate::server::doors::{SESSION, is_same_origin};
use crate::server::listen::Peer;
use crate::server::{front, pace};

#[derive(Debug, Deserialize)]
pub struct Next {
    #[serde(default)]
    next: String,
}

pub async fn show(State(house): State<Shared>, Asked(Next { next }): Asked<Next>) -> Response {
    if house.doors.needs_token() { form(StatusCode::OK, &next, None) } else { go("/") }
}

/// A wrong token costs a turn of the slow bucket, as everywhere.
pub async fn enter(
    State(house): State<Shared>,
    peer: Option<axum::Extension<Peer>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (mut token, mut next) = (String::new(), String::new());
    for (name, value) in url::form_urlencoded::parse(&body) {
        match &*name {
            "token" => token = value.into_owned(),
            "next" => next = value.into_owned(),
            _ => {}
        }
    }
    if !is_same_origin(&headers) {
        return form(StatusCode::FORBIDDEN, "", Some("That came from a page of another site. Log in here."));
    }
    let is_token = house.doors.is_token(token.trim());
    let Some(session) = is_token.then(|| house.doors.session()).flatten() else {
        let from = front::address(peer.map(|axum::Extension(peer)| peer));
        return if house.pace.take(from, pace::Kind::Refused) {
            form(StatusCode::UNAUTHORIZED, &next, Some("This is not the token."))
        } else {
            form(StatusCode::TOO_MANY_REQUESTS, &next, Some("Too many attempts. Wait a moment."))
        };
    };
    let secure = if is_https(&headers) { "; Secure" } else { "" };
    let cookie = format!("{SESSION}={session}; Path=/; HttpOnly; SameSite=Strict{secure}");
    ([(header::SET_COOKIE, cookie)], go(inside(&next))).into_response()
}

pub async fn leave(State(house): State<Shared>, headers: HeaderMap) -> Response {
    house.doors.end_session(&headers);
    let cookie = format!("{SESSION}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    ([(header::SET_COOKIE, cookie)], go("/login")).into_response()
}

/// To the log-in page, and back afterwards.
pub fn first(wanted: &str) -> Response {
    go(&format!("/login?next={}", super::words::part(wanted)))
}

fn go(to: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, to.to_owned())]).into_response()
}

/// Only to an address of this server: a path, and none that a browser would read as another host.
fn inside(next: &str) -> &str {
    let plain = next.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b'\\');
    if plain && next.starts_with('/') && !next.starts_with("//") { next } else { "/" }
}

/// The proxy in front says whether the browser came by TLS.
fn is_https(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
}

fn form(status: StatusCode, next: &str, wrong: Option<&str>) -> Response {
    let body = html! {
        div.card.login {
            form.in method="post" action="/login" {
                h1 { "trueup" }
                p.muted { "This server asks for its token: the value of " code { "TRUEUP_TOKEN" } "." }
                input type="hidden" name="next" value=(next);
                div.field {
                    label for="token" { "Token" }
                    input #token type="password" name="token" required autofocus autocomplete="current-password"
                        aria-describedby=[wrong.map(|_| "wrong")];
                }
                @if let Some(wrong) = wrong { p #wrong role="alert" { (super::health::badge(super::health::Tone::Bad, wrong)) } }
                button.primary { "Log in" }
            }
        }
    };
    layout::plain(status, "Log in", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_leads_nowhere_else() {
        for (next, to) in [
            ("/pipelines/notes?x=1", "/pipelines/notes?x=1"),
            ("", "/"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("/a\r\nset-cookie: x", "/"),
        ] {
            assert_eq!(inside(next), to, "{next:?}");
        }
    }
}
