//! What HTTP servers say counts when it is a whole answer to what was asked, whoever asks.

use std::time::Duration;

use reqwest::{Method, header};
use trueup::clock::TestClock;
use trueup::error::Kind;
use trueup::http::{Ask, Http, parse_url};

use crate::support::http::{Reply, Server};

/// What `ask` comes to when it is answered with this status.
async fn answered(status: u16, change: impl Fn(Ask) -> Ask) -> Result<u16, (Kind, Option<u16>)> {
    let server = Server::start(move |_| Reply::status(status).body(if status == 204 { "" } else { "[]" }));
    let http = Http::new(TestClock::at("2026-01-01T00:00:00Z", 1)).unwrap();
    let ask = Ask::get(parse_url(&server.url("/")).unwrap(), Duration::from_secs(30), 100);
    let answer = http.send(&change(ask)).await;
    answer.map(|answer| answer.status.as_u16()).map_err(|error| (error.kind(), error.http_status()))
}

#[tokio::test]
async fn half_an_answer_the_promise_of_one_and_none_are_no_answers() {
    let plain = |ask| ask;
    for status in [200, 203] {
        assert_eq!(answered(status, plain).await, Ok(status));
    }
    for status in [201, 202, 204, 205, 206, 207, 226] {
        assert_eq!(answered(status, plain).await, Err((Kind::Unavailable, Some(status))), "{status}");
    }
    let post = |ask| Ask { method: Method::POST, ..ask };
    assert_eq!(answered(201, post).await, Ok(201), "it was made");
    assert_eq!(answered(202, post).await, Err((Kind::Unavailable, Some(202))));
}

#[tokio::test]
async fn not_modified_is_an_answer_to_those_who_know_what_was_there() {
    for name in [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE] {
        let known = |ask: Ask| ask.header(name.clone(), "x").unwrap();
        assert_eq!(answered(304, known).await, Ok(304));
    }
    assert_eq!(answered(304, |ask| ask).await, Err((Kind::Invalid, Some(304))));
}
