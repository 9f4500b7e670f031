//! The wire: HTTP/1 connections, so many at once, each with a limit on how long it may keep us waiting.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 1_024;
/// A client that takes longer to say what it wants is holding a seat for nothing.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// Answers under way when a stop is asked for.
const DRAIN: Duration = Duration::from_secs(5);
/// After an accept that failed for want of file handles.
const BREATH: Duration = Duration::from_millis(50);

/// The address a request came from.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

pub async fn serve(listener: TcpListener, app: Router, mut stopping: watch::Receiver<bool>) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &seats) => accepted,
            _ = stopping.wait_for(|asked| *asked) => break,
        };
        match accepted {
            Some((stream, peer, seat)) => {
                let (app, stopping) = (app.clone(), stopping.clone());
                tokio::spawn(async move {
                    let _seat = seat;
                    converse(stream, peer, app, stopping).await;
                });
            }
            // Nothing to do about it but to breathe; the next may succeed.
            None => drop(tokio::time::timeout(BREATH, std::future::pending::<Infallible>()).await),
        }
    }
    // Every seat free = every answer given.
    let all = seats.acquire_many(u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX));
    drop(tokio::time::timeout(DRAIN, all).await);
}

type Seat = tokio::sync::OwnedSemaphorePermit;

async fn accept(listener: &TcpListener, seats: &Arc<Semaphore>) -> Option<(TcpStream, Peer, Seat)> {
    let seat = seats.clone().acquire_owned().await.ok()?;
    let (stream, address) = listener.accept().await.ok()?;
    Some((stream, Peer(address.ip()), seat))
}

async fn converse(stream: TcpStream, peer: Peer, app: Router, mut stopping: watch::Receiver<bool>) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        app.clone().call(request)
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // How a conversation ends is the client's business: it may hang up whenever it likes.
        ended = connection.as_mut() => return drop(ended),
        _ = stopping.wait_for(|asked| *asked) => connection.as_mut().graceful_shutdown(),
    }
    drop(tokio::time::timeout(DRAIN, connection).await);
}
