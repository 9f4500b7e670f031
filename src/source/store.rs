//! Any store as a source: its keys below a prefix, under their full names, so that a mirror has the same keys.
//!
//! Where the store keeps fingerprints they are the versions, and equal content is never copied twice. A value that
//! was put without one has the store's own version, which only hints at a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};

use super::{Cursors, Event, Sink, Source, Versions};
use crate::error::{Context, Error, Kind, Result};
use crate::portion::{Lately, Portion};
use crate::record::{Body, Entry, Fingerprint, Scope, Version};
use crate::store::{Access, Listed, PAGE, Page, Query, SharedStore, StoreExt, Stored, What};

/// Values asked for in one go: few round trips, and no more in memory than a batch on its way out holds anyway.
const OPENED_TOGETHER: usize = 1_000;

pub struct FromStore {
    name: String,
    store: SharedStore,
    prefix: String,
    requests: AtomicU64,
    /// A listing met a value without a fingerprint.
    bare: AtomicBool,
    /// What its values weigh.
    weigh: Lately,
}

impl FromStore {
    pub fn new(store: SharedStore, prefix: String) -> Self {
        let name = if prefix.is_empty() {
            format!("store {}", store.name())
        } else {
            format!("store {} below {prefix}", store.name())
        };
        let (requests, bare, weigh) = (AtomicU64::new(0), AtomicBool::new(false), Lately::default());
        FromStore { name, store, prefix, requests, bare, weigh }
    }

    fn body(&self, entry: &Entry, stored: Option<Stored>) -> Result<Body> {
        let stored = stored.ok_or_else(|| {
            let message = format!("{} was removed from {} after it was listed", entry.id, self.store.name());
            Error::new(Kind::Conflict, message)
        })?;
        Ok(Body { version: version_of(stored.fingerprint, stored.version), bytes: stored.value })
    }

    async fn page(&self, after: Option<&str>) -> Result<Page> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let query = Query { prefix: &self.prefix, after, limit: PAGE, what: What::Keys };
        let page = self.store.list(query).await.context(|| format!("listing {}", self.name))?;
        if page.more && page.items.is_empty() {
            return Err(Error::bug(format!(
                "{} gave an empty page and says more follows",
                self.store.name()
            )));
        }
        Ok(page)
    }

    /// What is not there is not empty: nothing it lacks was removed from it.
    async fn must_be_there(&self) -> Result<()> {
        if self.store.is_there().await? {
            return Ok(());
        }
        Err(Error::new(Kind::NotFound, format!("{} is not there", self.store.name())).remedy_is(
            "Check the name and what became of it; if another pipeline is to make it, run that one first.",
        ))
    }

    async fn tell(&self, lines: Vec<Listed>, out: &mut Sink) -> Result<()> {
        let mut scope: Scope = "".into();
        for line in lines {
            if line.fingerprint.is_none() {
                self.bare.store(true, Ordering::Relaxed);
            }
            let folder = line.key.rsplit_once('/').map_or("", |(folder, _)| folder);
            if *scope != *folder {
                scope = Arc::from(folder);
            }
            let version = version_of(line.fingerprint, line.version);
            out.send(Event::Seen(Entry::new(line.key, &scope, version))).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Source for FromStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn sorted(&self) -> bool {
        true
    }

    fn versions(&self) -> Versions {
        if self.store.caps().keeps_fingerprint && !self.bare.load(Ordering::Relaxed) {
            Versions::Content
        } else {
            Versions::Hint
        }
    }

    async fn list(&self, _cursors: &Cursors, out: &mut Sink) -> Result<()> {
        self.must_be_there().await?;
        let mut page = self.page(None).await?;
        loop {
            let after = page.items.last().map(|line| line.key.clone());
            let more = page.more;
            self.tell(page.items, out).await?;
            let next = if more { self.page(after.as_deref()).await.map(Some) } else { Ok(None) };
            page = match next {
                Ok(Some(page)) => page,
                // It may have gone away in the middle.
                Ok(None) => match self.must_be_there().await {
                    Ok(()) => return out.send(Event::Complete("".into(), None)).await,
                    Err(error) => return out.send(Event::Broken("".into(), error)).await,
                },
                Err(error) => return out.send(Event::Broken("".into(), error)).await,
            };
        }
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let stored = self.store.get_one(&entry.id).await.context(|| format!("reading {}", entry.id))?;
        self.body(entry, stored)
    }

    /// As many as the store gives at a time; where that fails, one by one, so that each has its own answer.
    async fn open_all(&self, entries: &[&Entry], at_once: usize, bytes_max: usize) -> Vec<Result<Body>> {
        let mut portion = Portion::expecting(bytes_max, self.weigh.each());
        let mut bodies: Vec<Result<Body>> = Vec::with_capacity(entries.len());
        while bodies.len() < entries.len() && portion.room() > 0 {
            let rest = &entries[bodies.len()..];
            let part = &rest[..rest.len().min(portion.room()).min(OPENED_TOGETHER)];
            self.requests.fetch_add(1, Ordering::Relaxed);
            let keys: Vec<&str> = part.iter().map(|entry| entry.id.as_str()).collect();
            let read: Vec<Result<Body>> = match self.store.get(&keys).await {
                Ok(found) => part.iter().zip(found).map(|(entry, found)| self.body(entry, found)).collect(),
                Err(_) => {
                    let opening: Vec<_> = part.iter().map(|entry| self.open(entry)).collect();
                    stream::iter(opening).buffered(at_once).collect().await
                }
            };
            for body in read {
                portion.add(body.as_ref().map_or(0, |body| body.bytes.len()));
                bodies.push(body);
            }
        }
        self.weigh.learn(&portion);
        bodies
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.must_be_there().await?;
        self.store.check(Access::Read).await
    }
}

fn version_of(fingerprint: Option<Fingerprint>, version: Version) -> String {
    fingerprint.map_or(version.0, |print| print.to_string())
}
