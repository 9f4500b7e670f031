//! Answers: JSON as `--json` shows it, and errors as `{"error": {"kind", "message", "remedy"}}` with a fitting status.

use axum::Json;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::error::{Error, Fault, Kind};

/// What a route answers.
pub type Answer = std::result::Result<Response, No>;

/// An error on its way out.
pub struct No(pub StatusCode, pub Error);

impl From<Error> for No {
    fn from(error: Error) -> Self {
        No(status(error.kind()), error)
    }
}

/// Kinds as HTTP knows them. What went wrong between trueup and somebody else is never the client's fault.
fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Config => StatusCode::BAD_REQUEST,
        Kind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Conflict | Kind::Busy | Kind::CursorLost => StatusCode::CONFLICT,
        Kind::Unauthorized => StatusCode::BAD_GATEWAY,
        Kind::Unavailable | Kind::Throttled | Kind::Canceled => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Full => StatusCode::INSUFFICIENT_STORAGE,
        Kind::Corrupt | Kind::Bug => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        let No(status, error) = self;
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), kind = error.kind().name(), "{error}");
        }
        let shown = json!({ "error": {
            "kind": error.kind(), "message": error.to_string(), "remedy": error.remedy()
        } });
        let mut response = (status, Json(shown)).into_response();
        // For whoever shows it to a person.
        response.extensions_mut().insert(Fault::of(&error));
        if status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        response
    }
}

pub fn ok<T: Serialize>(value: &T) -> Answer {
    with(StatusCode::OK, value)
}

pub fn with<T: Serialize>(status: StatusCode, value: &T) -> Answer {
    let json = serde_json::to_vec(value)
        .map_err(|error| Error::bug("the answer cannot be shown").caused_by(error))?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], json).into_response())
}

/// The query of an address, with an error of ours if it does not fit.
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = No;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, No> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(value)| Asked(value)).map_err(|error| No::from(bad(error.body_text())))
    }
}

/// The names in a path, likewise.
pub struct Named<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = No;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, No> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(value)| Named(value)).map_err(|error| No::from(bad(error.body_text())))
    }
}

/// How many are asked for: within the bounds the description states.
pub fn limit(asked: Option<usize>, usual: usize, most: usize) -> Result<usize, No> {
    match asked {
        None => Ok(usual.min(most)),
        Some(number) if (1..=most).contains(&number) => Ok(number),
        Some(number) => Err(bad(format!("limit is {number}; it takes 1 to {most}")).into()),
    }
}

/// A key is not empty.
pub fn some_key(key: &str) -> Result<(), No> {
    if key.is_empty() { Err(bad("the key is empty").into()) } else { Ok(()) }
}

/// A body as JSON; none at all is `{}`.
pub fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, No> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| No::from(bad(format!("the body does not fit: {error}"))))
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(Kind::Config, message).remedy_is("/api/openapi.json describes what is taken.")
}

/// Whatever the framework refuses by itself says so in our words.
pub fn in_our_words(status: StatusCode) -> No {
    let (kind, message) = match status {
        StatusCode::NOT_FOUND => (Kind::NotFound, "there is nothing at this address"),
        StatusCode::METHOD_NOT_ALLOWED => (Kind::Config, "this address does not take that method"),
        StatusCode::PAYLOAD_TOO_LARGE => (Kind::Config, "the body is too large"),
        _ if status.is_client_error() => (Kind::Config, "the request does not fit"),
        _ => (Kind::Bug, "the request could not be answered"),
    };
    let error = Error::new(kind, message);
    No(
        status,
        if kind == Kind::Bug { error } else { error.remedy_is("/api/openapi.json describes what is there.") },
    )
}
