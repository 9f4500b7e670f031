//! A store behind a rate and size profile: what a service allows is kept to before it has to say no.
//!
//! Large batches are split, requests wait for their turn, and a key that was just written waits its interval.
//! All waiting goes through the clock. Nothing is retried here and nothing is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::sift::sift;
use super::{Access, Caps, Item, Mode, Op, Outcome, Page, Query, SharedStore, Store, Stored, check_atomic};
use crate::clock::SharedClock;
use crate::error::{Error, Fault, Result};

/// What a service allows.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// Requests per window of this many milliseconds.
    pub requests_max: usize,
    pub window_ms: u64,
    /// Items and bytes (keys and values) in one write.
    pub bulk_items_max: usize,
    pub bulk_bytes_max: u64,
    /// Keys in one get, and lines in one list.
    pub get_max: usize,
    pub list_max: usize,
    pub key_max: usize,
    pub value_max: u64,
    /// Time between two writes of one key, in milliseconds.
    pub same_key_ms: u64,
}

impl Profile {
    /// No limit at all; name the ones that matter.
    pub const NONE: Profile = Profile {
        requests_max: usize::MAX,
        window_ms: 0,
        bulk_items_max: usize::MAX,
        bulk_bytes_max: u64::MAX,
        get_max: usize::MAX,
        list_max: usize::MAX,
        key_max: usize::MAX,
        value_max: u64::MAX,
        same_key_ms: 0,
    };
}

/// Remembered keys before those whose interval is over are forgotten.
const REMEMBERED: usize = 10_000;

pub struct Limited {
    inner: SharedStore,
    clock: SharedClock,
    profile: Profile,
    turns: Mutex<Turns>,
}

/// Who goes when. Turns are given out ahead of time, so waiting needs no lock and nobody overtakes.
#[derive(Default)]
struct Turns {
    /// Starts of the latest `requests_max` requests, oldest first.
    given: VecDeque<u64>,
    /// When each key was last written.
    written: HashMap<String, u64>,
    prune_at: usize,
}

impl Turns {
    /// The moment the next request may start, at or after `earliest`.
    fn next(&mut self, profile: &Profile, earliest: u64) -> u64 {
        if profile.window_ms == 0 || profile.requests_max == usize::MAX {
            return earliest;
        }
        let latest = self.given.back().copied().unwrap_or(0);
        let mut start = earliest.max(latest);
        if self.given.len() >= profile.requests_max.max(1)
            && let Some(oldest) = self.given.pop_front()
        {
            start = start.max(oldest + profile.window_ms);
        }
        self.given.push_back(start);
        start
    }

    /// As `next`, and not before every key has waited its interval.
    fn next_for(&mut self, profile: &Profile, now: u64, items: &[Item]) -> u64 {
        if profile.same_key_ms == 0 {
            return self.next(profile, now);
        }
        let rested = items.iter().filter_map(|item| self.written.get(&item.key));
        let earliest = rested.map(|at| at + profile.same_key_ms).max().unwrap_or(0).max(now);
        let start = self.next(profile, earliest);
        if self.written.len() >= self.prune_at.max(REMEMBERED) {
            self.written.retain(|_, at| *at + profile.same_key_ms > now);
            self.prune_at = self.written.len() * 2;
        }
        self.written.extend(items.iter().map(|item| (item.key.clone(), start)));
        start
    }
}

impl Limited {
    pub fn new(inner: SharedStore, profile: Profile, clock: SharedClock) -> Self {
        Limited { inner, clock, profile, turns: Mutex::default() }
    }

    async fn turn(&self, items: &[Item]) {
        let now = self.clock.elapsed_ms();
        let start = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.next_for(&self.profile, now, items)
        };
        if start > now {
            self.clock.sleep(Duration::from_millis(start - now)).await;
        }
    }

    /// Batches the service takes, in order. An item within the limits always fits one.
    fn split(&self, items: Vec<Item>) -> Vec<Vec<Item>> {
        let mut batches: Vec<Vec<Item>> = Vec::new();
        let mut bytes = 0;
        for item in items {
            let size = size_of(&item);
            match batches.last_mut() {
                Some(batch)
                    if batch.len() < self.profile.bulk_items_max
                        && bytes + size <= self.profile.bulk_bytes_max =>
                {
                    bytes += size;
                    batch.push(item);
                }
                _ => {
                    bytes = size;
                    batches.push(vec![item]);
                }
            }
        }
        batches
    }

    /// A page in parts the service takes.
    async fn paged(&self, query: Query<'_>, survey: bool) -> Result<Page> {
        let mut page = Page::default();
        loop {
            let limit = (query.limit - page.items.len()).min(self.profile.list_max.max(1));
            let after = page.items.last().map(|line| line.key.as_str()).or(query.after);
            self.turn(&[]).await;
            let part = Query { limit, after, ..query.clone() };
            let part = if survey { self.inner.survey(part).await? } else { self.inner.list(part).await? };
            page.more = part.more;
            page.items.extend(part.items);
            if !page.more || page.items.len() >= query.limit {
                return Ok(page);
            }
        }
    }

    async fn send(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        self.turn(&items).await;
        self.inner.write(items, mode).await
    }

    /// Each batch by itself: one that fails leaves the outcomes of the others standing.
    async fn send_split(&self, items: Vec<Item>) -> Result<Vec<Result<Outcome>>> {
        let batches = self.split(items);
        if batches.len() == 1 {
            return self.send(batches.into_iter().flatten().collect(), Mode::Each).await;
        }
        let mut outcomes = Vec::new();
        for batch in batches {
            let count = batch.len();
            match self.send(batch, Mode::Each).await {
                Ok(answers) => outcomes.extend(answers),
                Err(error) => {
                    let fault = Fault::of(&error);
                    outcomes.extend((0..count).map(|_| Err(Error::from(&fault))));
                }
            }
        }
        Ok(outcomes)
    }
}

fn size_of(item: &Item) -> u64 {
    let value = match &item.op {
        Op::Put { value, .. } => value.len(),
        Op::Delete | Op::Check => 0,
    };
    (item.key.len() + value) as u64
}

#[async_trait]
impl Store for Limited {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        let inner = self.inner.caps();
        Caps {
            atomic_max: inner.atomic_max.min(self.profile.bulk_items_max),
            bulk_max: inner.bulk_max.min(self.profile.bulk_items_max),
            key_max: inner.key_max.min(self.profile.key_max),
            value_max: inner.value_max.min(self.profile.value_max),
            // What is limited is asked for no more than it must be.
            sums: false,
            side_by_side: 1,
            ..inner
        }
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(self.profile.get_max.max(1)) {
            self.turn(&[]).await;
            found.extend(self.inner.get(some).await?);
        }
        Ok(found)
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.paged(query, false).await
    }

    async fn survey(&self, query: Query<'_>) -> Result<Page> {
        self.paged(query, true).await
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        let caps = self.caps();
        check_atomic(&caps, items.len(), mode)?;
        let (items, refused) = sift(items, mode, &caps, |_| Ok(()));
        if refused.stops(mode) {
            return Ok(refused.untouched(items.len()));
        }
        if items.is_empty() {
            return Ok(refused.among(Vec::new()));
        }
        let outcomes = match mode {
            Mode::All => self.send(items, mode).await?,
            Mode::Each => self.send_split(items).await?,
        };
        Ok(refused.among(outcomes))
    }

    async fn is_there(&self) -> Result<bool> {
        self.inner.is_there().await
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.turn(&[]).await;
        self.inner.check(access).await
    }
}
