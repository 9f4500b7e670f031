//! State that machines share: real PostgreSQL, real etcd, and processes that are killed, stopped and cut off.

mod flows;
mod leases;
mod processes;
mod servers;
mod slots;
mod storm;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use trueup::clock::SystemClock;
use trueup::config::store_spec;
use trueup::state::lease::Leases;
use trueup::state::lock::Locks;
use trueup::store::{Access, SharedStore, open};

use crate::flow::rig::Rig;
use crate::support;

/// Where the state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Etcd,
    Postgres,
}

/// An empty prefix nobody else uses.
pub async fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("etcd://{}/shared-{number}/", support::etcd().await.endpoints())
}

/// The URL of an empty state.
pub async fn fresh_state(server: Server) -> String {
    match server {
        Server::Etcd => fresh_prefix().await,
        Server::Postgres => support::postgres().await.fresh_database(),
    }
}

pub async fn open_state(url: &str) -> SharedStore {
    let spec = store_spec(url, None).unwrap();
    open::open_state(&spec, Access::Write, SystemClock::new()).await.unwrap()
}

pub async fn open_store(url: &str) -> SharedStore {
    open::open(&store_spec(url, None).unwrap(), Access::Write, SystemClock::new()).await.unwrap()
}

/// A pipeline in memory whose state is in a server, with leases on it.
pub async fn rig_on(server: Server) -> Rig {
    let store = open_state(&fresh_state(server).await).await;
    // Leases live in real time, whatever the pipeline's clock says.
    let locks = Arc::new(Locks::Leases(Leases::new(store.clone(), SystemClock::new())));
    Rig { memory: store, locks, batch: Some(3), ..Rig::new() }
}
