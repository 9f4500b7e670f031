//! A store in memory: for tests, the demo and `memory:`. It is the contract in its plainest form, and the model
//! other stores are compared with. It refuses nothing a store may be asked for, and forgets all when dropped.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{
    Caps, Item, Listed, Mode, Op, Outcome, Page, Query, Store, Stored, Sum, What, check_atomic, check_limits,
    check_lone, judge, untouched,
};
use crate::error::Result;
use crate::record::Version;

/// Same limits as SQLite's, so that what works in memory works on disk.
const CAPS: Caps = Caps { cheap_list: true, ..super::sqlite::CAPS };

/// A sorted map behind a lock.
pub struct Memory {
    name: String,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    held: BTreeMap<String, Stored>,
    /// Counts up with every change and never back: a version names one state of one key for ever.
    last_version: i64,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    pub fn new() -> Self {
        Self::named("memory:")
    }

    pub fn named(name: impl Into<String>) -> Self {
        Memory { name: name.into(), shelf: Mutex::default() }
    }

    /// No code path panics while it holds the lock half-changed, so a poisoned lock is still whole.
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn judge(&self, item: &Item, mode: Mode) -> Result<Option<Outcome>> {
        check_limits(&CAPS, item)?;
        check_lone(item, mode)?;
        let held = self.held.get(&item.key);
        let same = match (&item.op, held) {
            (Op::Put { value, fingerprint }, Some(held)) => {
                held.value == value && held.fingerprint == *fingerprint
            }
            _ => false,
        };
        Ok(judge(item, held.map(|held| &held.version), same))
    }

    fn apply(&mut self, item: Item) -> Outcome {
        match item.op {
            Op::Put { value, fingerprint } => {
                self.last_version += 1;
                let version = Version::from(self.last_version);
                self.held.insert(item.key, Stored { value, version: version.clone(), fingerprint });
                Outcome::Applied(Some(version))
            }
            Op::Delete => {
                self.held.remove(&item.key);
                Outcome::Applied(None)
            }
            Op::Check => Outcome::AlreadySo(self.held.get(&item.key).map(|held| held.version.clone())),
        }
    }

    fn write_each(&mut self, items: Vec<Item>) -> Vec<Result<Outcome>> {
        let write_one = |item: Item| match self.judge(&item, Mode::Each)? {
            Some(outcome) => Ok(outcome),
            None => Ok(self.apply(item)),
        };
        items.into_iter().map(write_one).collect()
    }

    fn write_all(&mut self, items: Vec<Item>) -> Vec<Result<Outcome>> {
        let judged: Vec<_> = items.iter().map(|item| self.judge(item, Mode::All)).collect();
        let fits = |judged: &Result<Option<Outcome>>| match judged {
            Ok(outcome) => outcome.as_ref().is_none_or(Outcome::landed),
            Err(_) => false,
        };
        if judged.iter().all(fits) {
            let settle = |(item, judged): (Item, Result<Option<Outcome>>)| {
                Ok(judged?.unwrap_or_else(|| self.apply(item)))
            };
            return items.into_iter().zip(judged).map(settle).collect();
        }
        let mut outcomes: Vec<_> =
            judged.into_iter().map(|judged| Ok(judged?.unwrap_or(Outcome::Untouched))).collect();
        untouched(&mut outcomes);
        outcomes
    }

    fn page(&self, query: &Query<'_>) -> Page {
        let start = match query.after {
            Some(after) if after >= query.prefix => Bound::Excluded(after),
            _ => Bound::Included(query.prefix),
        };
        let mut found = self
            .held
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(query.prefix));
        let line = |(key, held): (&String, &Stored)| Listed {
            key: key.clone(),
            version: held.version.clone(),
            fingerprint: held.fingerprint,
            value: (query.what == What::Values).then(|| held.value.clone()),
        };
        let items = found.by_ref().take(query.limit).map(line).collect();
        Page { items, more: found.next().is_some() }
    }
}

#[async_trait]
impl Store for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        CAPS
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let shelves = self.lock();
        Ok(keys.iter().map(|key| shelves.held.get(*key).cloned()).collect())
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        Ok(self.lock().page(&query))
    }

    async fn sum(&self, prefix: &str) -> Result<Option<Sum>> {
        let mut sum = Sum::default();
        let shelves = self.lock();
        let below = shelves.held.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        below.for_each(|(key, stored)| sum.add(key, &stored.version.0));
        Ok(Some(sum))
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        check_atomic(&CAPS, items.len(), mode)?;
        let mut shelves = self.lock();
        Ok(match mode {
            Mode::Each => shelves.write_each(items),
            Mode::All => shelves.write_all(items),
        })
    }
}
