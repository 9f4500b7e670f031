//! A store that counts what it is asked: for tests of what a pass costs.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use trueup::error::Result;
use trueup::store::{Access, Caps, Item, Mode, Op, Outcome, Page, Query, SharedStore, Store, Stored, Sum};

pub struct Counted {
    inner: SharedStore,
    gets: AtomicU64,
    lists: AtomicU64,
    writes: AtomicU64,
    read: AtomicU64,
    put: AtomicU64,
    deleted: AtomicU64,
    failed: AtomicU64,
}

/// What was counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of each verb.
    pub gets: u64,
    pub lists: u64,
    pub writes: u64,
    /// Keys asked for by `get`, and lines listed.
    pub read: u64,
    /// Items that changed the store.
    pub put: u64,
    pub deleted: u64,
    /// Calls that failed as a whole, and items that failed alone.
    pub failed: u64,
}

impl Counts {
    pub fn requests(&self) -> u64 {
        self.gets + self.lists + self.writes
    }

    pub fn changed(&self) -> u64 {
        self.put + self.deleted
    }
}

impl Counted {
    pub fn new(inner: SharedStore) -> Self {
        let zero = AtomicU64::default;
        Counted {
            inner,
            gets: zero(),
            lists: zero(),
            writes: zero(),
            read: zero(),
            put: zero(),
            deleted: zero(),
            failed: zero(),
        }
    }

    pub fn counts(&self) -> Counts {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            gets: now(&self.gets),
            lists: now(&self.lists),
            writes: now(&self.writes),
            read: now(&self.read),
            put: now(&self.put),
            deleted: now(&self.deleted),
            failed: now(&self.failed),
        }
    }

    fn failing<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            add(&self.failed, 1);
        }
        result
    }
}

fn add(count: &AtomicU64, by: usize) {
    count.fetch_add(by as u64, Ordering::Relaxed);
}

#[async_trait]
impl Store for Counted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        add(&self.gets, 1);
        add(&self.read, keys.len());
        self.failing(self.inner.get(keys).await)
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        add(&self.lists, 1);
        let page = self.failing(self.inner.list(query).await)?;
        add(&self.read, page.items.len());
        Ok(page)
    }

    async fn survey(&self, query: Query<'_>) -> Result<Page> {
        add(&self.lists, 1);
        let page = self.failing(self.inner.survey(query).await)?;
        add(&self.read, page.items.len());
        Ok(page)
    }

    async fn sum(&self, prefix: &str) -> Result<Option<Sum>> {
        self.failing(self.inner.sum(prefix).await)
    }

    async fn any_unlisted(&self) -> Result<bool> {
        self.failing(self.inner.any_unlisted().await)
    }

    async fn unlisted(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        self.failing(self.inner.unlisted(keys).await)
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        add(&self.writes, 1);
        let deletes: Vec<bool> = items.iter().map(|item| item.op == Op::Delete).collect();
        let outcomes = self.failing(self.inner.write(items, mode).await)?;
        for (outcome, delete) in outcomes.iter().zip(deletes) {
            match outcome {
                Ok(Outcome::Applied(_)) if delete => add(&self.deleted, 1),
                Ok(Outcome::Applied(_)) => add(&self.put, 1),
                Ok(Outcome::AlreadySo(_) | Outcome::Conflict(_) | Outcome::Untouched) => {}
                Err(_) => add(&self.failed, 1),
            }
        }
        Ok(outcomes)
    }

    async fn is_there(&self) -> Result<bool> {
        self.inner.is_there().await
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.inner.check(access).await
    }
}
