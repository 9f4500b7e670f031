//! Typed values over a compare-and-set store.
//!
//! Every value is one JSON object that names the workspace that wrote it: what does not is somebody else's, and is
//! neither overwritten nor deleted. Rows of a page are written under the page's *era*, a counter that `clear` moves
//! on: a writer that began before the clear finds another era and writes nothing. Refuses values nested deeper than
//! [`DEPTH_MAX`] and stores that cannot write conditionally.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys;
use crate::clock::SharedClock;
use crate::error::{Context, Error, Kind, Result};
use crate::record::Version;
use crate::retry::{Patience, backoff_ms};
use crate::store::{Expect, Item, Listed, Mode, Op, Outcome, SharedStore, StoreExt, What};

/// Levels of arrays and objects in one value: deeper than any document here, and what key-value services allow.
pub const DEPTH_MAX: usize = 32;
/// Rounds of one compare-and-set. In each somebody wins, so this many writers of one key can all get through.
const ROUNDS_MAX: u32 = 1_000;
/// Between two rounds: a write takes a few milliseconds.
const ROUND: Patience = Patience { attempts_max: ROUNDS_MAX, wait_ms_first: 2, wait_ms_max: 50 };

/// A value with the version it was read at.
#[derive(Debug, Clone)]
pub struct Held<T> {
    pub what: T,
    pub version: Version,
}

/// As it is kept: the value's own members, and whose it is.
#[derive(Serialize, Deserialize)]
struct Signed<T> {
    workspace: String,
    #[serde(flatten)]
    what: T,
}

/// The state of a page's counter when a writer began.
#[derive(Debug, Clone)]
pub struct Era {
    key: String,
    page: String,
    version: Option<Version>,
    pub number: u64,
}

impl Era {
    fn expect(&self) -> Expect {
        self.version.clone().map_or(Expect::Absent, Expect::Exactly)
    }

    fn ended(&self) -> Error {
        let message = format!("page {} was cleared meanwhile; nothing was written", self.page);
        Error::new(Kind::Conflict, message).remedy_is("Begin again if it is still wanted.")
    }
}

/// The members of a page's counter.
#[derive(Serialize, Deserialize)]
struct Counter {
    generation: u64,
}

pub struct Shelf {
    pub store: SharedStore,
    /// The workspace's name.
    pub owner: String,
    pub clock: SharedClock,
}

impl Shelf {
    pub fn new(store: SharedStore, owner: &str, clock: SharedClock) -> Result<Self> {
        let caps = store.caps();
        if !caps.cas || caps.atomic_max < 2 {
            let message = format!("a workspace cannot live in {}", store.name());
            return Err(Error::new(Kind::Config, message).remedy_is(
                "It needs conditional and atomic writes: sqlite:PATH, postgres://… or etcd://….",
            ));
        }
        Ok(Shelf { store, owner: owner.to_owned(), clock })
    }

    /// `None` when there is nothing; an error when somebody else's value is there.
    pub async fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Held<T>>> {
        match self.store.get_one(key).await? {
            None => Ok(None),
            Some(stored) => {
                let what = self.open(&stored.value).ok_or_else(|| self.foreign(key))?;
                Ok(Some(Held { what, version: stored.version }))
            }
        }
    }

    /// The value, if this workspace wrote it and it can be read.
    pub fn open<T: DeserializeOwned>(&self, value: &[u8]) -> Option<T> {
        let signed: Signed<T> = serde_json::from_slice(value).ok()?;
        (signed.workspace == self.owner).then_some(signed.what)
    }

    fn foreign(&self, key: &str) -> Error {
        let message = format!("{key} in {} holds something this workspace did not write", self.store.name());
        Error::new(Kind::Conflict, message).remedy_is(
            "Move it away (`trueup kv get`, `trueup kv rm`), or give the workspace a store of its own.",
        )
    }

    /// The bytes a value is kept as.
    pub fn seal<T: Serialize>(&self, what: &T) -> Result<Vec<u8>> {
        let value = serde_json::to_value(what)
            .map_err(|error| Error::bug("a value cannot be written as JSON").caused_by(error))?;
        if depth(&value) > DEPTH_MAX {
            return Err(Error::new(Kind::Invalid, format!("a value nested deeper than {DEPTH_MAX} levels")));
        }
        let signed = Signed { workspace: self.owner.clone(), what: value };
        serde_json::to_vec(&signed)
            .map_err(|error| Error::bug("a value cannot be written as JSON").caused_by(error))
    }

    /// Everything below a prefix that this workspace wrote and that can be read.
    pub async fn all<T: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<(String, Held<T>)>> {
        let lines = self.store.list_all(prefix, What::Values).await?;
        let held = |line: Listed| {
            let what = self.open(line.value.as_deref()?)?;
            Some((line.key, Held { what, version: line.version }))
        };
        Ok(lines.into_iter().filter_map(held).collect())
    }

    /// Where a page's counter stands: the first thing a writer of its rows looks at.
    pub async fn era(&self, page: &str) -> Result<Era> {
        keys::check_page(page)?;
        let key = keys::system_key("generation", Some(page))?;
        let counter: Option<Held<Counter>> = self.read(&key).await?;
        let (version, number) = match counter {
            Some(held) => (Some(held.version), held.what.generation),
            None => (None, 0),
        };
        Ok(Era { key, page: page.to_owned(), version, number })
    }

    /// Move a page's counter on: whoever began before this writes nothing any more.
    pub async fn end_era(&self, page: &str) -> Result<()> {
        for round in 1..=ROUNDS_MAX {
            let era = self.era(page).await?;
            let next = Counter { generation: era.number + 1 };
            if self.put(&era.key, &next, era.expect()).await?.is_some() {
                return Ok(());
            }
            self.pause(round).await;
        }
        Err(crowded(page))
    }

    /// Write one value under a condition; `None` when it did not hold.
    pub async fn put<T: Serialize>(&self, key: &str, what: &T, expect: Expect) -> Result<Option<Version>> {
        let outcome = self.store.write_one(Item::put(key, self.seal(what)?).expecting(expect)).await?;
        Ok(landed(&outcome))
    }

    /// Write a page's row under a condition and its era; `None` when the row's own condition did not hold.
    pub async fn put_row(
        &self,
        era: &Era,
        key: &str,
        value: Vec<u8>,
        expect: Expect,
    ) -> Result<Option<Version>> {
        let fence = Item { key: era.key.clone(), op: Op::Check, expect: era.expect() };
        let row = Item::put(key, value).expecting(expect);
        let outcomes = self.store.write(vec![fence, row], Mode::All).await?;
        let [fence, row] = <[Result<Outcome>; 2]>::try_from(outcomes)
            .map_err(|_| Error::bug("a store gave no outcome for a write"))?;
        if let Outcome::Conflict(_) = fence? {
            return Err(era.ended());
        }
        row.map(|outcome| landed(&outcome)).context(|| format!("writing {key}"))
    }

    /// Read, change, write if nobody else did meanwhile; again until it is done. `change` gets `None` when there is
    /// nothing, and answers `None` to leave it as it is.
    pub async fn update<T>(
        &self,
        key: &str,
        mut change: impl FnMut(Option<T>) -> Option<T> + Send,
    ) -> Result<()>
    where
        T: Serialize + DeserializeOwned + Send + Sync,
    {
        for round in 1..=ROUNDS_MAX {
            let held: Option<Held<T>> = self.read(key).await?;
            let expect = held.as_ref().map_or(Expect::Absent, |held| Expect::Exactly(held.version.clone()));
            let Some(next) = change(held.map(|held| held.what)) else { return Ok(()) };
            if self.put(key, &next, expect).await?.is_some() {
                return Ok(());
            }
            self.pause(round).await;
        }
        Err(crowded(key))
    }

    /// Remove these keys unless they changed since they were listed. How many went.
    pub async fn remove(&self, lines: Vec<(String, Version)>) -> Result<usize> {
        let items = lines.into_iter().map(|(key, seen)| Item::delete(key).expecting(Expect::Exactly(seen)));
        self.delete(items.collect()).await
    }

    /// Remove these keys, whatever they hold by now. How many went.
    pub async fn remove_anyway(&self, keys: Vec<String>) -> Result<usize> {
        self.delete(keys.into_iter().map(Item::delete).collect()).await
    }

    async fn delete(&self, items: Vec<Item>) -> Result<usize> {
        let mut removed = 0;
        for chunk in items.chunks(self.store.caps().bulk_max.max(1)) {
            for outcome in self.store.write(chunk.to_vec(), Mode::Each).await? {
                removed += usize::from(matches!(outcome?, Outcome::Applied(_)));
            }
        }
        Ok(removed)
    }

    /// Wait a moment before the next round; longer when many rounds were lost.
    pub async fn pause(&self, round: u32) {
        let wait_ms = backoff_ms(&ROUND, round, self.clock.chance());
        self.clock.sleep(std::time::Duration::from_millis(wait_ms)).await;
    }

    /// Rounds a compare-and-set may take.
    pub fn rounds() -> std::ops::RangeInclusive<u32> {
        1..=ROUNDS_MAX
    }
}

/// Too many writers at once: the caller may try again.
pub fn crowded(key: &str) -> Error {
    Error::new(Kind::Conflict, format!("{key} is changed by too many at once")).remedy_is("Try again.")
}

fn landed(outcome: &Outcome) -> Option<Version> {
    match outcome {
        Outcome::Applied(version) | Outcome::AlreadySo(version) => version.clone(),
        Outcome::Conflict(_) | Outcome::Untouched => None,
    }
}

/// Levels of arrays and objects; a scalar has none.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
