//! The world around the demo: small servers on loopback, in this very process. What they say can be changed in between.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::error::{Result, from_io};

/// Serve it for as long as the process lives. Its address.
pub async fn serve(router: Router) -> Result<String> {
    let listening = async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let (listener, address) =
        listening.await.map_err(|error| from_io(error, "starting a server on loopback"))?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}

/// Pages by path, each with its type.
#[derive(Clone, Default)]
pub struct Pages(Arc<Mutex<BTreeMap<String, (&'static str, String)>>>);

impl Pages {
    pub fn put(&self, path: &str, kind: &'static str, text: String) {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.insert(path.to_owned(), (kind, text));
    }

    pub async fn serve(&self) -> Result<String> {
        serve(Router::new().route("/{*path}", get(answer)).with_state(self.clone())).await
    }
}

async fn answer(State(pages): State<Pages>, Path(path): Path<String>) -> Response {
    let found = pages.0.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
    match found {
        Some((kind, text)) => ([(CONTENT_TYPE, kind)], text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
