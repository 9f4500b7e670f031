//! Stores that watch what passes through, break off, or show little at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;
use trueup::error::Result;
use trueup::record::Fingerprint;
use trueup::state::{State, keys};
use trueup::store::{Caps, Item, Mode, Op, Outcome, Page, Query, SharedStore, Store, StoreExt, Stored};

use crate::flow::rig::LINE;

/// A process that dies: after so many calls, in all stores together, nothing answers any more.
pub struct Fuse {
    left: AtomicI64,
    blown: Notify,
}

impl Fuse {
    pub fn new(calls: Option<i64>) -> Arc<Self> {
        Arc::new(Fuse { left: AtomicI64::new(calls.unwrap_or(i64::MAX)), blown: Notify::new() })
    }

    pub async fn until_blown(&self) {
        self.blown.notified().await;
    }

    fn burns_out(&self) -> bool {
        self.left.fetch_sub(1, Ordering::SeqCst) <= 1
    }

    async fn dead<T>(&self) -> T {
        self.blown.notify_one();
        std::future::pending().await
    }
}

/// A store of the process that may die, in pages of a few lines.
pub struct Seam {
    pub inner: SharedStore,
    pub fuse: Arc<Fuse>,
    /// The last call is done before the process dies, or not at all.
    pub done_before: bool,
    pub page: usize,
    /// Listing on every pass is taken for too expensive.
    pub blind: bool,
    pub failed_lists: AtomicU64,
}

#[async_trait]
impl Store for Seam {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        let caps = self.inner.caps();
        Caps { cheap_list: caps.cheap_list && !self.blind, ..caps }
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        if self.fuse.burns_out() {
            return self.fuse.dead().await;
        }
        self.inner.get(keys).await
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        if self.fuse.burns_out() {
            return self.fuse.dead().await;
        }
        let page = self.inner.list(Query { limit: query.limit.min(self.page), ..query }).await;
        self.failed_lists.fetch_add(u64::from(page.is_err()), Ordering::SeqCst);
        page
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        if !self.fuse.burns_out() {
            return self.inner.write(items, mode).await;
        }
        if self.done_before {
            drop(self.inner.write(items, mode).await);
        }
        self.fuse.dead().await
    }
}

/// What the pipeline did to the store: a value put, or a delete.
pub type Deed = (String, Option<Bytes>);

/// The store itself, watched: every write must have been announced in the state before.
pub struct Watched {
    pub inner: SharedStore,
    pub memory: SharedStore,
    pub deeds: Mutex<Vec<Deed>>,
}

impl Watched {
    pub fn take(&self) -> Vec<Deed> {
        std::mem::take(&mut self.deeds.lock().unwrap())
    }

    /// Every change that an open batch announces.
    async fn announced(&self) -> BTreeSet<(String, Option<Fingerprint>)> {
        let state = State::look(self.memory.clone()).await.unwrap();
        let prefix = keys::open_batches(LINE);
        let mut announced = BTreeSet::new();
        for open in state.keys(&prefix).await.unwrap() {
            let (run, batch) = keys::below(&prefix, &open).split_once('/').unwrap();
            let intents = state.intents(LINE, run, batch.parse().unwrap()).await.unwrap();
            let intents = intents.expect("an open batch has a journal");
            announced.extend(intents.iter().map(|intent| (intent.key().to_owned(), intent.bytes_hash())));
        }
        announced
    }
}

#[async_trait]
impl Store for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        self.inner.get(keys).await
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.inner.list(query).await
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        let announced = self.announced().await;
        let mut outcomes = Vec::with_capacity(items.len());
        for item in items {
            let value = match &item.op {
                Op::Put { value, .. } => Some(value.clone()),
                Op::Delete | Op::Check => None,
            };
            let change = (item.key.clone(), value.as_ref().map(|value| Fingerprint::of(value)));
            assert!(announced.contains(&change), "{} was written without an intent", item.key);
            let key = item.key.clone();
            let outcome = self.inner.write_one(item).await;
            if matches!(outcome, Ok(Outcome::Applied(_))) {
                self.deeds.lock().unwrap().push((key, value));
            }
            outcomes.push(outcome);
        }
        assert_eq!(mode, Mode::Each, "a store is written item by item");
        Ok(outcomes)
    }
}
