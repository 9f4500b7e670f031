//! What trueup remembers: runs, baselines, cursors, intents, held plans. A struct over a `Store` that has
//! compare-and-set, atomic batches and order; there is no second implementation.
//!
//! Every key is documented in `docs/state-format.md`; [`keys`] is the only place that spells them.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Context, Error, Kind, Result};
use crate::store::{Item, Listed, Query, SharedStore, StoreExt, What};

pub mod base;
pub mod held;
pub mod journal;
pub mod keys;
pub mod lock;
pub mod report;
pub mod retention;

pub use base::{Base, Pointer, Tombstone};
pub use journal::{Intent, PriorValue};
pub use report::{Counts, Report, Status};

/// The layout this program writes. Older ones are upgraded on open, newer ones refused.
pub const FORMAT: u32 = 1;

#[derive(Clone)]
pub struct State {
    store: SharedStore,
}

#[derive(Serialize, serde::Deserialize)]
struct Format {
    format: u32,
}

impl State {
    /// Open for a run: writes the format mark into a new state.
    pub async fn open(store: SharedStore) -> Result<Self> {
        let state = Self::look(store).await?;
        if state.read::<Format>(keys::FORMAT).await?.is_none() {
            state.put(keys::FORMAT, &Format { format: FORMAT }).await?;
        }
        Ok(state)
    }

    /// Open without writing anything.
    pub async fn look(store: SharedStore) -> Result<Self> {
        let state = State { store };
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

    pub async fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(stored) = self.store.get_one(key).await? else { return Ok(None) };
        decode(key, &stored.value).map(Some)
    }

    pub async fn put<T: Serialize + Sync>(&self, key: &str, value: &T) -> Result<()> {
        self.commit(vec![item(key, value)?]).await
    }

    /// One atomic batch. State batches that could outgrow the store's limit are split by their callers.
    pub async fn commit(&self, items: Vec<Item>) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        self.store.write_all(items).await.map(drop).context(|| "writing the state".into())
    }

    /// Many writes that need not be atomic together, in batches the store can take.
    pub async fn commit_in_parts(&self, items: Vec<Item>) -> Result<()> {
        let size = self.store.caps().atomic_max.clamp(1, 1_000);
        let mut rest = items.into_iter().peekable();
        while rest.peek().is_some() {
            self.commit(rest.by_ref().take(size).collect()).await?;
        }
        Ok(())
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
            let limit = self.store.caps().atomic_max.clamp(1, 1_000);
            let page = self.store.list(Query { limit, ..Query::keys(prefix) }).await?;
            if page.items.is_empty() {
                return Ok(removed);
            }
            removed += page.items.len() as u64;
            self.commit(page.items.into_iter().map(|line| Item::delete(line.key)).collect()).await?;
        }
    }
}

/// A state record as a store item.
pub fn item<T: Serialize>(key: impl Into<String>, value: &T) -> Result<Item> {
    let bytes =
        serde_json::to_vec(value).map_err(|error| Error::bug("encoding a state record").caused_by(error))?;
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
