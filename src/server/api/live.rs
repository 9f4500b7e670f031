//! Live progress as server-sent events. A listener that falls behind is let go; its browser comes back by itself.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream};

use crate::error::{Error, Kind};
use crate::server::House;
use crate::server::answer::No;

/// Listeners at once; a page needs one.
const LISTENERS_MAX: usize = 256;
/// A line now and then, so that nobody in between thinks the connection dead.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

pub async fn events(State(house): State<Arc<House>>) -> Result<Response, No> {
    if house.events.listeners() >= LISTENERS_MAX {
        let error = Error::new(Kind::Throttled, "too many listeners").remedy_is("Close some pages.");
        return Err(No(StatusCode::SERVICE_UNAVAILABLE, error));
    }
    let alive = KeepAlive::new().interval(ALIVE_EVERY);
    Ok(Sse::new(told(&house)).keep_alive(alive).into_response())
}

fn told(house: &House) -> impl Stream<Item = Result<sse::Event, Infallible>> + use<> {
    let listening = (house.events.listen(), house.stopping(), true);
    stream::unfold(listening, |(mut events, mut stopping, first)| async move {
        if first {
            // Something to show at once: the connection stands.
            return Some((Ok(sse::Event::default().comment("listening")), (events, stopping, false)));
        }
        // Too far behind, or everything is over: the stream ends.
        let event = tokio::select! {
            event = events.recv() => event.ok()?,
            _ = stopping.wait_for(|asked| *asked) => return None,
        };
        let sent = sse::Event::default().event(event.name()).json_data(&event).unwrap_or_default();
        Some((Ok(sent), (events, stopping, false)))
    })
}
