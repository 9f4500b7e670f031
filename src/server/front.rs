//! What every request passes on its way in and out: who asks, how often, for how long, and how it went.

use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;

use super::House;
use super::answer::{self, No};
use super::api::{Access, Route};
use super::listen::Peer;
use super::{doors, pace, pages};
use crate::error::{Error, Fault, Kind};

/// Looking something up.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Reading a source, or changing stores. The work itself goes on when nobody waits for its answer any more.
const WORK_WITHIN: Duration = Duration::from_secs(600);

/// What a request's way depends on.
#[derive(Clone)]
pub struct Way {
    pub house: Arc<House>,
    pub route: &'static Route,
}

pub async fn pass(State(way): State<Way>, request: Request, next: Next) -> Response {
    let started = way.house.clock.elapsed_ms();
    let method = request.method().clone();
    let is_api = request.uri().path().starts_with("/api");
    let page = (!is_api && takes_pages(request.headers())).then(|| request.uri().to_string());
    let mut response = match admit(&way, &request) {
        Ok(()) => answer(&way, request, next).await,
        Err(no) => no.into_response(),
    };
    if way.route.access == Access::Act {
        way.house.sight.changed();
    }
    if is_api && response.status().as_u16() >= 400 && !is_json(&response) {
        let allowed = response.headers_mut().remove(header::ALLOW);
        response = answer::in_our_words(response.status()).into_response();
        response.headers_mut().extend(allowed.map(|methods| (header::ALLOW, methods)));
    }
    if let Some(wanted) = page {
        response = for_people(&way, &method, &wanted, response);
    }
    let took = way.house.clock.elapsed_ms().saturating_sub(started);
    way.house.meters.answered(&method, way.route.path, response.status(), took);
    tracing::debug!(%method, path = way.route.path, status = response.status().as_u16(), took_ms = took, "answered");
    harden(&mut response);
    response
}

/// An answer in time, even if that answer is that there is none. A panic is a fault of one route, not of the process.
async fn answer(way: &Way, request: Request, next: Next) -> Response {
    let within = match way.route.access {
        Access::Open | Access::Read => READ_WITHIN,
        Access::Act => WORK_WITHIN,
    };
    match tokio::time::timeout(within, AssertUnwindSafe(next.run(request)).catch_unwind()).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => No::from(Error::bug("this request met a fault in trueup")).into_response(),
        Err(_) => {
            let error = Error::new(Kind::Unavailable, format!("no answer within {} s", within.as_secs()));
            let remedy = "What was asked for may go on: `GET /api/runs` shows it.";
            No(StatusCode::GATEWAY_TIMEOUT, error.remedy_is(remedy)).into_response()
        }
    }
}

/// The address somebody asks from.
pub fn address(peer: Option<Peer>) -> IpAddr {
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(address)| address)
}

/// A browser that opens an address, not a program.
fn takes_pages(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|kinds| kinds.to_str().ok())
        .is_some_and(|kinds| kinds.contains("text/html"))
}

/// People see errors as pages, and are asked for the token where it is missing.
fn for_people(way: &Way, method: &Method, wanted: &str, response: Response) -> Response {
    let Some(fault) = response.extensions().get::<Fault>() else { return response };
    match response.status() {
        StatusCode::UNAUTHORIZED if *method == Method::GET => pages::ask_to_log_in(wanted),
        status => pages::layout::trouble(&way.house, status, fault),
    }
}

fn admit(way: &Way, request: &Request) -> Result<(), No> {
    let from = address(request.extensions().get::<Peer>().copied());
    let acts = way.route.access == Access::Act;
    let kind = if acts { pace::Kind::Write } else { pace::Kind::Read };
    if !way.house.pace.take(from, kind) {
        return Err(too_many());
    }
    if way.route.access == Access::Open {
        return Ok(());
    }
    let Err(no) = way.house.doors.admit(request.method(), request.headers(), acts) else { return Ok(()) };
    if no == doors::No::Token && !way.house.pace.take(from, pace::Kind::Refused) {
        return Err(too_many());
    }
    Err(refusal(no))
}

fn too_many() -> No {
    let error =
        Error::new(Kind::Throttled, "too many requests from this address").remedy_is("Ask more slowly.");
    No(StatusCode::TOO_MANY_REQUESTS, error)
}

fn refusal(no: doors::No) -> No {
    let (status, message, remedy) = match no {
        doors::No::Token => (
            StatusCode::UNAUTHORIZED,
            "a token is needed",
            "Send `Authorization: Bearer TOKEN` with the value of TRUEUP_TOKEN.",
        ),
        doors::No::CrossSite => (
            StatusCode::FORBIDDEN,
            "refused: the request comes from a page of another site",
            "Ask from this server's own page, or with a program.",
        ),
        doors::No::Host => (
            StatusCode::FORBIDDEN,
            "refused: this server does not go by that name",
            "Ask for it as localhost or by its address, or set TRUEUP_TOKEN.",
        ),
    };
    No(status, Error::new(Kind::Unauthorized, message).remedy_is(remedy))
}

fn is_json(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json")
}

/// Nothing of ours is for another page to frame, guess the kind of, or keep.
fn harden(response: &mut Response) {
    const ALWAYS: [(header::HeaderName, &str); 4] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in ALWAYS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
}
