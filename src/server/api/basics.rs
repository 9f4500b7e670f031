//! Health and metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::server::House;
use crate::server::answer::{self, Answer, No};
use crate::state::keys;

pub async fn health() -> Answer {
    answer::ok(&json!({ "ok": true }))
}

/// Ready = the state answers, and nobody asked us to stop.
pub async fn ready(State(house): State<Arc<House>>) -> Answer {
    if house.is_stopping() {
        return answer::with(StatusCode::SERVICE_UNAVAILABLE, &json!({ "ok": false }));
    }
    let state: Option<serde_json::Value> = house.memory.state.read(keys::FORMAT).await?;
    answer::ok(&json!({ "ok": state.is_some() }))
}

pub async fn metrics(State(house): State<Arc<House>>) -> Result<Response, No> {
    let text = house.meters.render(&house).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

pub async fn nowhere() -> Response {
    answer::in_our_words(StatusCode::NOT_FOUND).into_response()
}
