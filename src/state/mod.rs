//! What trueup remembers: runs, baselines, cursors, intents, held plans. A struct over a `Store` that has
//! compare-and-set, atomic batches and order; there is no second implementation.
//!
//! Every key is documented in `docs/state-format.md`; [`keys`] is the only place that spells them.

use std::cell::RefCell;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Context, Error, Kind, Result};
use crate::record::Version;
use crate::store::{Expect, Item, Listed, Mode, Op, Outcome, Query, SharedStore, StoreExt, What};

pub mod base;
pub mod footing;
pub mod held;
pub mod journal;
pub mod keys;
pub mod lease;
pub mod lock;
mod plain;
pub mod report;
pub mod retention;
mod telling;

pub use base::{Base, Pointer, Tombstone};
pub use journal::{Intent, PriorValue};
pub use lease::Fence;
pub use report::{Counts, Report, Status};

/// The layout this program writes. Older ones are upgraded on open, newer ones refused.
pub const FORMAT: u32 = 3;
/// Bytes of one write: the least any store of state takes in a request (etcd, 1.5 MiB), with room for keys.
const WRITE_BYTES_MAX: usize = 1_000_000;
/// What encoding keeps of a long record's room.
const ROOM_MAX: usize = 1 << 20;
/// Records only others refer to: they may be there before those are, where all of it is too large for one write.
/// The weight is first, so that whatever is left behind by a crash is found and forgotten one day.
const AHEAD: [&str; 3] = ["weight/", "blob/", "body/"];

#[derive(Clone)]
pub struct State {
    store: SharedStore,
    /// Set while a run holds a lease: nothing is written once somebody else has it.
    fence: Option<Fence>,
}

#[derive(Serialize, serde::Deserialize)]
struct Format {
    format: u32,
}

impl State {
    /// Open for a run: writes the format mark into a new state, or one whose records we read and no longer write.
    pub async fn open(store: SharedStore) -> Result<Self> {
        let state = Self::look(store).await?;
        let known = state.read::<Format>(keys::FORMAT).await?;
        if known.is_none_or(|known| known.format < FORMAT) {
            state.put(keys::FORMAT, &Format { format: FORMAT }).await?;
        }
        Ok(state)
    }

    /// Open without writing anything.
    pub async fn look(store: SharedStore) -> Result<Self> {
        let state = State { store, fence: None };
        match state.read::<Format>(keys::FORMAT).await? {
            Some(Format { format }) if format > FORMAT => Err(Error::new(
                Kind::Config,
                format!(
                    "the state in {} has format {format}, this program knows up to {FORMAT}",
                    state.store.name()
                ),
            )
            .remedy_is("Use the newer trueup that wrote it, or another `[state] store`.")),
            _ => Ok(state),
        }
    }

    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// The same state for whoever holds this fence.
    #[must_use]
    pub fn fenced(&self, fence: Option<Fence>) -> State {
        State { fence, ..self.clone() }
    }

    /// An error once the lease of the run that writes here is lost.
    pub fn still_held(&self) -> Result<()> {
        self.fence.as_ref().map_or(Ok(()), Fence::check)
    }

    /// Most items in one atomic write.
    pub fn atomic_max(&self) -> usize {
        let max = self.store.caps().atomic_max;
        // A condition goes with every write; an even number keeps pairs together.
        if self.fence.is_some() { max.saturating_sub(2) } else { max }
    }

    pub async fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(stored) = self.store.get_one(key).await? else { return Ok(None) };
        decode(key, &stored.value).map(Some)
    }

    /// Several records in one go, in order.
    pub async fn read_each<T: DeserializeOwned>(&self, keys: &[String]) -> Result<Vec<Option<T>>> {
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let stored = self.store.get(&names).await?;
        let records = names.iter().zip(stored);
        records.map(|(key, stored)| stored.map(|stored| decode(key, &stored.value)).transpose()).collect()
    }

    /// With the version it has.
    pub async fn read_versioned<T: DeserializeOwned>(&self, key: &str) -> Result<Option<(T, Version)>> {
        let Some(stored) = self.store.get_one(key).await? else { return Ok(None) };
        Ok(Some((decode(key, &stored.value)?, stored.version)))
    }

    pub async fn put<T: Serialize + Sync>(&self, key: &str, value: &T) -> Result<()> {
        self.commit(vec![item(key, value)?]).await
    }

    /// One atomic batch. State batches that could outgrow the store's limit are split by their callers.
    pub async fn commit(&self, items: Vec<Item>) -> Result<()> {
        let items = self.ahead(items).await?;
        self.commit_alone(items).await
    }

    /// Several atomic batches that have nothing to do with one another, all at once: a store may well take them together.
    /// One that fails keeps none of the others from being written.
    pub async fn commit_each(&self, batches: Vec<Vec<Item>>) -> Result<()> {
        let commits = batches.into_iter().map(|items| self.commit(items));
        futures::future::join_all(commits).await.into_iter().collect()
    }

    /// One atomic batch with conditions; `false` = one of them did not hold, and nothing was written.
    pub async fn commit_if(&self, items: Vec<Item>) -> Result<bool> {
        Ok(self.write(items).await?.is_empty())
    }

    /// Write what is too large for one request and may go before the rest. What is left fits.
    async fn ahead(&self, items: Vec<Item>) -> Result<Vec<Item>> {
        if items.iter().map(bytes_of).sum::<usize>() <= WRITE_BYTES_MAX {
            return Ok(items);
        }
        let value_max = usize::try_from(self.store.caps().value_max).unwrap_or(usize::MAX);
        if value_max > WRITE_BYTES_MAX * 10 {
            return Ok(items);
        }
        let (mut first, rest): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| AHEAD.iter().any(|prefix| item.key.starts_with(prefix)));
        first.sort_by_key(|item| AHEAD.iter().position(|prefix| item.key.starts_with(prefix)));
        self.commit_in_parts(first.into_iter().flat_map(cut).collect()).await?;
        Ok(rest)
    }

    /// The keys whose conditions did not hold.
    async fn write(&self, mut items: Vec<Item>) -> Result<Vec<String>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        self.still_held()?;
        let conditional = |item: &Item| (item.expect != Expect::Anything).then(|| item.key.clone());
        let keys: Vec<Option<String>> = items.iter().map(conditional).collect();
        items.extend(self.fence.as_ref().map(Fence::condition));
        let written = self.store.write(items, Mode::All).await;
        let outcomes = written
            .and_then(|outcomes| outcomes.into_iter().collect::<Result<Vec<_>>>())
            .context(|| "writing the state".into())?;
        if let (Some(fence), Some(Outcome::Conflict(_))) = (&self.fence, outcomes.get(keys.len())) {
            return Err(fence.broken());
        }
        let refused = |outcome: &Outcome| matches!(outcome, Outcome::Conflict(_));
        Ok(keys
            .into_iter()
            .zip(&outcomes)
            .filter(|(_, outcome)| refused(outcome))
            .map(|(key, _)| key.unwrap_or_else(|| "a record".into()))
            .collect())
    }

    /// Many writes that need not be atomic together, in batches the store can take.
    pub async fn commit_in_parts(&self, items: Vec<Item>) -> Result<()> {
        let size = self.atomic_max().clamp(1, 1_000);
        let mut part: Vec<Item> = Vec::new();
        let mut bytes = 0;
        for item in items {
            let more = bytes_of(&item);
            // Pairs stay together.
            if part.len() >= size || (bytes + more > WRITE_BYTES_MAX && part.len().is_multiple_of(2)) {
                self.commit_alone(std::mem::take(&mut part)).await?;
                bytes = 0;
            }
            bytes += more;
            part.push(item);
        }
        self.commit_alone(part).await
    }

    /// A batch that is known to fit.
    async fn commit_alone(&self, items: Vec<Item>) -> Result<()> {
        match self.write(items).await?.into_iter().next() {
            None => Ok(()),
            Some(key) => Err(Error::new(Kind::Conflict, format!("{key} was changed by somebody else"))
                .while_("writing the state")),
        }
    }

    /// Every record below a prefix, decoded, with its key.
    pub async fn read_all<T: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<(String, T)>> {
        let lines = self.store.list_all(prefix, What::Values).await?;
        lines.into_iter().map(|line| Ok((line.key.clone(), decode_line(&line)?))).collect()
    }

    /// The keys below a prefix.
    pub async fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(self.store.list_all(prefix, What::Keys).await?.into_iter().map(|line| line.key).collect())
    }

    /// Remove everything below a prefix, page by page.
    pub async fn remove_below(&self, prefix: &str) -> Result<u64> {
        let mut removed = 0;
        loop {
            let limit = self.atomic_max().clamp(1, 1_000);
            let page = self.store.list(Query { limit, ..Query::keys(prefix) }).await?;
            if page.items.is_empty() {
                return Ok(removed);
            }
            removed += page.items.len() as u64;
            self.commit(page.items.into_iter().map(|line| Item::delete(line.key)).collect()).await?;
        }
    }
}

fn bytes_of(item: &Item) -> usize {
    item.key.len() + if let Op::Put { value, .. } = &item.op { value.len() } else { 0 }
}

/// A large prior value in parts a store takes; anything else as it is.
fn cut(item: Item) -> Vec<Item> {
    match &item.op {
        Op::Put { value, .. } if value.len() > WRITE_BYTES_MAX / 2 && item.key.starts_with("blob/") => {
            let part = |(number, start): (usize, usize)| {
                let end = (start + WRITE_BYTES_MAX / 2).min(value.len());
                Item::put(keys::part(&item.key, number), value.slice(start..end))
            };
            (0..value.len()).step_by(WRITE_BYTES_MAX / 2).enumerate().map(part).collect()
        }
        _ => vec![item],
    }
}

/// A state record as a store item.
pub fn item<T: Serialize>(key: impl Into<String>, value: &T) -> Result<Item> {
    item_told(key, |room| serde_json::to_writer(room, value))
}

/// The same, of a record that is told in its own way.
fn item_told(
    key: impl Into<String>,
    tell: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
) -> Result<Item> {
    thread_local! {
        /// There is a record for every key: it is as long as need be once, and each takes what it needs of it.
        static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let encoded = ROOM.with_borrow_mut(|room| {
        room.clear();
        room.shrink_to(ROOM_MAX);
        tell(room).map(|()| Bytes::copy_from_slice(room))
    });
    let bytes = encoded.map_err(|error| Error::bug("encoding a state record").caused_by(error))?;
    Ok(Item::put(key, bytes))
}

pub fn decode<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T> {
    serde_json::from_slice(value).map_err(|error| {
        Error::new(Kind::Corrupt, format!("the state record {key} cannot be read")).caused_by(error)
    })
}

pub fn decode_line<T: DeserializeOwned>(line: &Listed) -> Result<T> {
    decode(&line.key, line.value.as_deref().unwrap_or_default())
}
