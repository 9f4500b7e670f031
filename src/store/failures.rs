//! How often each store failed, for whoever shows counters.
//!
//! Stores are opened in many places, each for one piece of work; the count is the process's, so it is kept here and not
//! handed around. Refuses nothing and changes nothing: a failure is counted and passed on.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::{Access, Caps, Item, Mode, Outcome, Page, Query, SharedStore, Store, Stored, Sum};
use crate::error::Result;

/// By the name of the config, or the address without secrets; as many as the config names.
static TALLY: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn add(store: &str, count: u64) {
    let mut tally = TALLY.lock().unwrap_or_else(PoisonError::into_inner);
    match tally.get_mut(store) {
        Some(failures) => *failures += count,
        None => drop(tally.insert(store.to_owned(), count)),
    }
}

/// Failed operations of every store that was opened, so far.
pub fn by_store() -> BTreeMap<String, u64> {
    TALLY.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A store whose failures are counted.
pub struct Watched {
    inner: SharedStore,
    name: String,
}

impl Watched {
    /// An opening that failed counts, too.
    pub fn opened(name: &str, opened: Result<SharedStore>) -> Result<Self> {
        add(name, u64::from(opened.is_err()));
        opened.map(|inner| Watched { inner, name: name.to_owned() })
    }

    fn counted<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            add(&self.name, 1);
        }
        result
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
        self.counted(self.inner.get(keys).await)
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.counted(self.inner.list(query).await)
    }

    async fn survey(&self, query: Query<'_>) -> Result<Page> {
        self.counted(self.inner.survey(query).await)
    }

    async fn sum(&self, prefix: &str) -> Result<Option<Sum>> {
        self.counted(self.inner.sum(prefix).await)
    }

    async fn any_unlisted(&self) -> Result<bool> {
        self.counted(self.inner.any_unlisted().await)
    }

    async fn unlisted(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        self.counted(self.inner.unlisted(keys).await)
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        let outcomes = self.counted(self.inner.write(items, mode).await)?;
        let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        if failed > 0 {
            add(&self.name, failed as u64);
        }
        Ok(outcomes)
    }

    async fn is_there(&self) -> Result<bool> {
        self.counted(self.inner.is_there().await)
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.counted(self.inner.check(access).await)
    }
}
