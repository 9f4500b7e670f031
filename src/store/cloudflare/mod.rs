//! Cloudflare KV through its REST API. It has no conditions, shows a write up to a minute late, and takes one write per
//! key and second: its caps say so, and nobody may build a baseline on it.
//!
//! A value's version is a hash of its bytes, repeated in the key's metadata together with the telling members of a
//! registry row, so that a listing alone says what is there. Rate and size limits are kept by `limited` around it.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::limited::Profile;
use super::sift::sift;
use super::{
    Access, Caps, Expect, Item, Listed, Mode, Op, Outcome, Page, Query, Store, Stored, What, check_atomic,
    judge,
};
use crate::error::{Error, Fault, Kind, Result};
use crate::record::Version;

mod api;
mod metadata;
mod walk;

pub use api::{API, Namespace};
use api::{Api, Line, Pair};
use walk::Walk;

/// What the service documents, with room for what JSON and base64 add to a bulk write of 100 MB.
pub const PROFILE: Profile = Profile {
    requests_max: 1_200,
    window_ms: 5 * 60 * 1_000,
    bulk_items_max: 10_000,
    bulk_bytes_max: 64_000_000,
    get_max: usize::MAX,
    list_max: 1_000,
    key_max: 512,
    value_max: 25 * 1024 * 1024,
    same_key_ms: 1_000,
};

const CAPS: Caps = Caps {
    create: false,
    cas: false,
    atomic_max: 0,
    strong_read: false,
    cheap_list: false,
    keeps_fingerprint: false,
    sums: false,
    lists_own: false,
    bulk_max: 10_000,
    side_by_side: 1,
    key_max: 512,
    value_max: 25 * 1024 * 1024,
};

/// Values read at once.
const READS: usize = 10;
/// A key nobody has.
const CHECK_KEY: &str = ".trueup-check-whether-this-may-be-written";

pub struct Cloudflare {
    name: String,
    api: Api,
    /// Where the last listing stopped, so that the next page of it goes on there: listings are by cursor, not by key.
    left_off: Mutex<Option<LeftOff>>,
}

struct LeftOff {
    prefix: String,
    /// The last key that was handed out.
    after: String,
    rest: Vec<Line>,
    walk: Walk,
}

impl Cloudflare {
    pub async fn connect(name: String, namespace: Namespace, http: crate::http::Http) -> Result<Self> {
        let api = Api::connect(namespace, http).await?;
        Ok(Cloudflare { name, api, left_off: Mutex::new(None) })
    }

    pub fn requests(&self) -> u64 {
        self.api.requests()
    }

    /// Lines behind `after`, `limit` at most, and whether more follow.
    async fn lines(&self, query: &Query<'_>) -> Result<(Vec<Line>, bool)> {
        let mut lines = Vec::new();
        let (mut rest, mut walk) = match self.resume(query) {
            Some(left) => (left.rest, left.walk),
            None => (Vec::new(), Walk::default()),
        };
        loop {
            let wanted = query.limit - lines.len();
            let taken: Vec<Line> = rest.drain(..rest.len().min(wanted)).collect();
            lines.extend(taken);
            if lines.len() == query.limit || (rest.is_empty() && walk.is_over()) {
                break;
            }
            let page = self.api.keys(query.prefix, walk.cursor()).await?;
            rest = walk.on(query.prefix, page)?;
            rest.retain(|line| query.after.is_none_or(|after| line.name.as_str() > after));
        }
        let more = !rest.is_empty() || !walk.is_over();
        if let Some(last) = lines.last().filter(|_| more) {
            let left = LeftOff { prefix: query.prefix.to_owned(), after: last.name.clone(), rest, walk };
            *self.left_off.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
        }
        Ok((lines, more))
    }

    fn resume(&self, query: &Query<'_>) -> Option<LeftOff> {
        let mut left = self.left_off.lock().unwrap_or_else(PoisonError::into_inner);
        left.take().filter(|left| left.prefix == query.prefix && Some(left.after.as_str()) == query.after)
    }

    async fn values(&self, keys: &[&str]) -> Result<Vec<Option<Bytes>>> {
        // Owned keys: futures that borrow them cannot be told to live long enough.
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        let reads = keys.into_iter().map(|key| async move { self.api.value(&key).await });
        stream::iter(reads).buffered(READS).try_collect().await
    }

    /// A page whose values are read, or told by the metadata where that says enough.
    async fn page(&self, query: &Query<'_>, abridged: bool) -> Result<Page> {
        let (lines, more) = self.lines(query).await?;
        let told: Vec<Option<Listed>> = lines.iter().map(|line| told(line, query.what, abridged)).collect();
        let open: Vec<&str> = lines
            .iter()
            .zip(&told)
            .filter(|(_, told)| told.is_none())
            .map(|(line, _)| line.name.as_str())
            .collect();
        let mut values = self.values(&open).await?.into_iter();
        let mut items = Vec::with_capacity(lines.len());
        for (line, told) in lines.into_iter().zip(told) {
            items.push(match told {
                Some(told) => told,
                None => match values.next().flatten() {
                    Some(value) => listed(line.name, value, query.what),
                    None => return Err(unread(&line.name)),
                },
            });
        }
        Ok(Page { items, more })
    }

    /// Items whose condition holds; the others have their outcome already.
    async fn look(&self, items: Vec<Item>) -> Result<(Vec<(usize, Item)>, Vec<Option<Result<Outcome>>>)> {
        let mut outcomes: Vec<Option<Result<Outcome>>> = items.iter().map(|_| None).collect();
        let conditional = |item: &&Item| item.expect != Expect::Anything;
        let keys: Vec<&str> = items.iter().filter(conditional).map(|item| item.key.as_str()).collect();
        let mut held = self.values(&keys).await?.into_iter();
        let mut open = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            if item.expect == Expect::Anything {
                open.push((at, item));
                continue;
            }
            let there = held.next().flatten();
            let version = there.as_ref().map(version_of);
            let same = matches!((&item.op, &there), (Op::Put { value, .. }, Some(there)) if value == there);
            match judge(&item, version.as_ref(), same) {
                Some(outcome) => outcomes[at] = Some(Ok(outcome)),
                None => open.push((at, item)),
            }
        }
        Ok((open, outcomes))
    }
}

fn version_of(value: &Bytes) -> Version {
    Version(metadata::version(value))
}

fn listed(key: String, value: Bytes, what: What) -> Listed {
    let version = version_of(&value);
    Listed { key, version, fingerprint: None, value: (what == What::Values).then_some(value) }
}

/// Listings and reads are late by turns: which of them is, nobody can tell.
fn unread(key: &str) -> Error {
    Error::new(Kind::Unavailable, format!("Cloudflare lists the key {key} and has no value for it"))
        .remedy_is("Run again in a minute: what was written or deleted a moment ago is shown late.")
}

/// What a line of the listing says by itself; `None` = the value must be read.
fn told(line: &Line, what: What, abridged: bool) -> Option<Listed> {
    let version = line.metadata.as_ref().and_then(metadata::version_in);
    if what == What::Names {
        let version = Version(version.unwrap_or_default());
        return Some(Listed { key: line.name.clone(), version, fingerprint: None, value: None });
    }
    let version = Version(version?);
    let value = match (what, abridged) {
        (What::Names | What::Keys, _) => None,
        (What::Values, true) => Some(metadata::summary_in(line.metadata.as_ref()?)?),
        (What::Values, false) => return None,
    };
    Some(Listed { key: line.name.clone(), version, fingerprint: None, value })
}

/// The service knows no such keys.
fn nameable(item: &Item) -> Result<()> {
    match item.key.as_str() {
        "." | ".." => Err(Error::new(Kind::Invalid, "Cloudflare takes no such key")),
        _ => Ok(()),
    }
}

#[async_trait]
impl Store for Cloudflare {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        CAPS
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let values = self.values(keys).await?;
        let stored = |value: Bytes| Stored { version: version_of(&value), value, fingerprint: None };
        Ok(values.into_iter().map(|value| value.map(stored)).collect())
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.page(&query, false).await
    }

    async fn survey(&self, query: Query<'_>) -> Result<Page> {
        self.page(&Query { what: What::Values, ..query }, true).await
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        check_atomic(&CAPS, items.len(), mode)?;
        let (items, refused) = sift(items, mode, &CAPS, nameable);
        if items.is_empty() {
            return Ok(refused.among(Vec::new()));
        }
        let (open, mut outcomes) = self.look(items).await?;
        let (mut pairs, mut gone) = (Vec::new(), Vec::new());
        for (at, item) in open {
            match item.op {
                Op::Put { value, .. } => pairs.push((at, Pair::new(item.key, &value), version_of(&value))),
                Op::Delete => gone.push((at, item.key)),
                Op::Check => outcomes[at] = Some(Err(Error::bug("a check outside an all-or-nothing write"))),
            }
        }
        if !pairs.is_empty() {
            let failed = self.api.put(pairs.iter().map(|(_, pair, _)| pair)).await;
            for (at, pair, version) in &pairs {
                outcomes[*at] = Some(answer(&failed, &pair.key, Outcome::Applied(Some(version.clone()))));
            }
        }
        if !gone.is_empty() {
            let failed = self.api.delete(gone.iter().map(|(_, key)| key.as_str())).await;
            for (at, key) in &gone {
                outcomes[*at] = Some(answer(&failed, key, Outcome::Applied(None)));
            }
        }
        let missing = || Err(Error::bug("an item without an outcome"));
        Ok(refused.among(outcomes.into_iter().map(|one| one.unwrap_or_else(missing)).collect()))
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.list(Query { limit: 1, ..Query::keys("") }).await?;
        if access == Access::Write {
            // To delete what is not there takes the same permission and changes nothing.
            self.api.delete(std::iter::once(CHECK_KEY)).await?;
        }
        Ok(Vec::new())
    }
}

/// The outcome of one key in a bulk request: the request may fail as a whole, or for some keys.
fn answer(failed: &Result<Vec<String>>, key: &str, well: Outcome) -> Result<Outcome> {
    match failed {
        Err(error) => Err(Error::from(&Fault::of(error))),
        Ok(keys) if keys.iter().any(|other| other == key) => {
            Err(Error::new(Kind::Unavailable, "Cloudflare did not take this key"))
        }
        Ok(_) => Ok(well),
    }
}
