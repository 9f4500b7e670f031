//! A store: three verbs with conditions. Registries, archives, tables, state, queues and leases are all this.
//!
//! The contract below is what `tests/conformance` checks on every implementation and wrapper.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, Kind, Result};
use crate::record::{Fingerprint, Version};

pub mod cloudflare;
pub mod etcd;
pub mod failures;
pub mod faulty;
pub mod folder;
pub mod limited;
pub mod memory;
pub mod objects;
pub mod open;
pub mod postgres;
pub mod prefixed;
mod sift;
pub mod sqlite;
pub mod stamped;
mod sum;
pub mod tables;
mod writable;

pub use sum::Sum;

/// What a store can promise. Code asks the caps, never the kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent promises, not states of one thing
pub struct Caps {
    /// `Expect::Absent` is atomic: of two writers exactly one wins.
    pub create: bool,
    /// `Expect::Exactly` is atomic for puts and deletes. Without it the check is a look before the write.
    pub cas: bool,
    /// Most items in one `Mode::All` write; 0 = none.
    pub atomic_max: usize,
    /// A read sees every write that was answered before it began.
    pub strong_read: bool,
    /// Listing keys is cheap enough to do on every pass (local or one round trip per thousands).
    pub cheap_list: bool,
    /// `Put.fingerprint` comes back from `get` and `list`.
    pub keeps_fingerprint: bool,
    /// `sum` answers, for much less than a listing costs.
    pub sums: bool,
    /// A listing shows nothing but what was written through such a store.
    pub lists_own: bool,
    /// Items per `write` that the store handles best.
    pub bulk_max: usize,
    /// Such writes of new keys that it takes side by side faster than one after the other; 1 = it does not.
    pub side_by_side: usize,
    /// Longest key and largest value, in bytes.
    pub key_max: usize,
    pub value_max: u64,
}

/// What a store holds under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub value: Bytes,
    pub version: Version,
    pub fingerprint: Option<Fingerprint>,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    pub version: Version,
    pub fingerprint: Option<Fingerprint>,
    /// Present when `What::Values` was asked for.
    pub value: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Keys alone: a store that would have to read values for their versions leaves those empty.
    Names,
    Keys,
    Values,
}

/// What to list: keys that start with `prefix` and are greater than `after`, in byte order, `limit` at most.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    pub prefix: &'a str,
    pub after: Option<&'a str>,
    pub limit: usize,
    pub what: What,
}

impl<'a> Query<'a> {
    pub fn keys(prefix: &'a str) -> Self {
        Query { prefix, after: None, limit: PAGE, what: What::Keys }
    }

    pub fn values(prefix: &'a str) -> Self {
        Query { prefix, after: None, limit: PAGE, what: What::Values }
    }
}

/// Keys per page of a listing: few round trips, a few hundred kilobytes in memory.
pub const PAGE: usize = 2_000;

/// A page of a listing. `more = false` is the proof that nothing follows.
#[derive(Debug, Clone, Default)]
pub struct Page {
    pub items: Vec<Listed>,
    pub more: bool,
}

/// The condition under which an item is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    Anything,
    Absent,
    /// For a delete the version may be that of what [`Store::unlisted`] gave.
    Exactly(Version),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Put {
        value: Bytes,
        fingerprint: Option<Fingerprint>,
    },
    Delete,
    /// Only a condition, no write. Allowed in `Mode::All` only. When it holds, the outcome is `AlreadySo`.
    Check,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub key: String,
    pub op: Op,
    pub expect: Expect,
}

impl Item {
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        let op = Op::Put { value: value.into(), fingerprint: None };
        Item { key: key.into(), op, expect: Expect::Anything }
    }

    pub fn delete(key: impl Into<String>) -> Self {
        Item { key: key.into(), op: Op::Delete, expect: Expect::Anything }
    }

    #[must_use]
    pub fn with_fingerprint(mut self, print: Fingerprint) -> Self {
        if let Op::Put { fingerprint, .. } = &mut self.op {
            *fingerprint = Some(print);
        }
        self
    }

    /// It deletes what no listing shows.
    pub fn deletes_unlisted(&self) -> bool {
        self.op == Op::Delete && self.expect == Expect::Exactly(Version::default())
    }

    #[must_use]
    pub fn expecting(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }
}

/// Each item by itself, or all or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Each,
    All,
}

/// What became of an item; the version is what the store holds now (`None` = nothing).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Applied(Option<Version>),
    /// The store already held exactly this (or already lacked it). Judged before `expect`, which makes a retry
    /// after a lost answer safe. A store whose reads are late may skip the look when nothing is expected.
    AlreadySo(Option<Version>),
    /// The condition did not hold; nothing was written for this item.
    Conflict(Option<Version>),
    /// `Mode::All` only: another item's condition failed, so nothing was written.
    Untouched,
}

impl Outcome {
    pub fn landed(&self) -> bool {
        matches!(self, Outcome::Applied(_) | Outcome::AlreadySo(_))
    }
}

/// Whether a store is opened to be looked at or to be changed. Reading creates nothing and leaves every byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

#[async_trait]
pub trait Store: Send + Sync {
    /// How messages name it: the URL without secrets.
    fn name(&self) -> &str;

    fn caps(&self) -> Caps;

    /// One answer per key, in order. A key the store does not hold is `None`; a failed read is an error,
    /// never `None`.
    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>>;

    /// A page in byte order. An error means the listing proves nothing. A page of values may end before `limit`
    /// to stay small in memory: `more` alone says whether anything follows.
    async fn list(&self, query: Query<'_>) -> Result<Page>;

    /// As `list` with values, for whoever takes stock: a store that keeps the telling members of its values beside
    /// the keys answers with those alone and reads no value.
    async fn survey(&self, query: Query<'_>) -> Result<Page> {
        self.list(Query { what: What::Values, ..query }).await
    }

    /// All keys below a prefix with their versions, as a listing would give them, summed up; `None` = only a listing
    /// can tell.
    async fn sum(&self, _prefix: &str) -> Result<Option<Sum>> {
        Ok(None)
    }

    /// Whether the store holds something that no listing shows, because it is not the store's own yet, and that a put
    /// would replace.
    async fn any_unlisted(&self) -> Result<bool> {
        Ok(false)
    }

    /// What of that is under these keys; it has no version.
    async fn unlisted(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        Ok(vec![None; keys.len()])
    }

    /// One outcome per item, in order.
    ///
    /// `Each`: items are independent; an error beside one says its outcome is unknown or refused, the others stand.
    /// `All`: everything or nothing, at most `caps().atomic_max` items; a conflict is an outcome, not an error.
    /// In `All`, a refused item is an error beside it and leaves the others `Untouched`.
    /// The outer error means that nothing is known about any item. A key appears once per call.
    /// When an outcome is returned the write is durable.
    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>>;

    /// Whether there is anything to read: opened to be read, a file, folder or table that is not there is like an empty
    /// one. Whoever concludes something from its being empty asks this first, and again at the end.
    async fn is_there(&self) -> Result<bool> {
        Ok(true)
    }

    /// Reach the store and find out what it can really do, and with [`Access::Write`] whether we may write there, however
    /// it was opened. Nothing is left behind. Findings are for people (`trueup check`).
    async fn check(&self, access: Access) -> Result<Vec<String>> {
        let _ = access;
        self.list(Query { limit: 1, ..Query::keys("") }).await.map(|_| Vec::new())
    }
}

pub type SharedStore = Arc<dyn Store>;

/// Conveniences over the three verbs.
#[async_trait]
pub trait StoreExt: Store {
    async fn get_one(&self, key: &str) -> Result<Option<Stored>> {
        Ok(self.get(&[key]).await?.pop().flatten())
    }

    async fn write_one(&self, item: Item) -> Result<Outcome> {
        let mut outcomes = self.write(vec![item], Mode::Each).await?;
        outcomes.pop().unwrap_or_else(|| Err(Error::bug("a store gave no outcome for a write")))
    }

    /// All or nothing; a conflict becomes an error that names the key.
    async fn write_all(&self, items: Vec<Item>) -> Result<Vec<Outcome>> {
        let keys: Vec<String> = items.iter().map(|item| item.key.clone()).collect();
        let outcomes = self.write(items, Mode::All).await?.into_iter().collect::<Result<Vec<_>>>()?;
        for (key, outcome) in keys.iter().zip(&outcomes) {
            if let Outcome::Conflict(_) = outcome {
                return Err(Error::new(Kind::Conflict, format!("{key} was changed by somebody else")));
            }
        }
        Ok(outcomes)
    }

    /// Every line below a prefix. For small prefixes; large ones are paged by their reader.
    async fn list_all(&self, prefix: &str, what: What) -> Result<Vec<Listed>> {
        let mut all: Vec<Listed> = Vec::new();
        loop {
            let after = all.last().map(|line| line.key.clone());
            let page = self.list(Query { prefix, after: after.as_deref(), limit: PAGE, what }).await?;
            let more = page.more;
            all.extend(page.items);
            if !more {
                return Ok(all);
            }
        }
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

/// The smallest string greater than every string with this prefix; `None` = unbounded.
/// Works on bytes, as every store sorts by them.
pub fn prefix_end(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// Refuse what no later layer could explain: empty keys, and sizes over the store's limits.
pub fn check_limits(caps: &Caps, item: &Item) -> Result<()> {
    if item.key.is_empty() {
        return Err(Error::new(Kind::Invalid, "an empty key"));
    }
    if item.key.len() > caps.key_max {
        let message =
            format!("the key is {} bytes long, the store takes {} at most", item.key.len(), caps.key_max);
        return Err(Error::new(Kind::Invalid, message));
    }
    match &item.op {
        Op::Put { value, .. } if value.len() as u64 > caps.value_max => {
            let message =
                format!("the value is {} bytes, the store takes {} at most", value.len(), caps.value_max);
            Err(Error::new(Kind::Invalid, message).remedy_is("Exclude it, or use an object store."))
        }
        _ => Ok(()),
    }
}

/// `All` is for stores that can, with batches they can take: anything else is the caller's mistake.
pub fn check_atomic(caps: &Caps, items: usize, mode: Mode) -> Result<()> {
    if mode == Mode::All && items > caps.atomic_max {
        let message = format!("{items} items all or nothing; the store takes {} at most", caps.atomic_max);
        return Err(Error::bug(message));
    }
    Ok(())
}

/// What an item comes to before anything is written: `None` = its condition holds and there is something to do.
/// For stores that look before they write; `same` says whether what is held equals what a put brings.
pub fn judge(item: &Item, held: Option<&Version>, same: bool) -> Option<Outcome> {
    let settled = match item.op {
        Op::Put { .. } => held.is_some() && same,
        Op::Delete => held.is_none(),
        Op::Check => false,
    };
    if settled {
        return Some(Outcome::AlreadySo(held.cloned()));
    }
    let holds = match &item.expect {
        Expect::Anything => true,
        Expect::Absent => held.is_none(),
        Expect::Exactly(version) => held == Some(version),
    };
    match (holds, &item.op) {
        (false, _) => Some(Outcome::Conflict(held.cloned())),
        (true, Op::Check) => Some(Outcome::AlreadySo(held.cloned())),
        (true, _) => None,
    }
}

/// A condition by itself is only meaningful beside the writes it guards.
pub fn check_lone(item: &Item, mode: Mode) -> Result<()> {
    match (&item.op, mode) {
        (Op::Check, Mode::Each) => Err(Error::bug("a check outside an all-or-nothing write")),
        _ => Ok(()),
    }
}

/// An all-or-nothing write that did not happen: what stood in the way stays, the rest was not touched.
pub fn untouched(outcomes: &mut [Result<Outcome>]) {
    for outcome in outcomes {
        if outcome.as_ref().is_ok_and(Outcome::landed) {
            *outcome = Ok(Outcome::Untouched);
        }
    }
}
