//! etcd as a store: versions are revisions, conditions are etcd's own compares, batches are its transactions.
//!
//! Keys live below the URL's prefix. Values are kept as they are, so other etcd clients can read them; there is no
//! room beside a value, so fingerprints are not kept.

use async_trait::async_trait;
use bytes::Bytes;

use super::sift::sift;
use super::{
    Access, Caps, Expect, Item, Listed, Mode, Op, Outcome, Page, Query, Store, Stored, What, check_atomic,
    judge, untouched,
};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::{delete, holds, key, put, touch, unmoved};
use crate::etcd::{
    Client, EtcdPlace, KeyValue, RangeRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse, fault,
    range_end, revision_of,
};
use crate::record::Version;
use crate::secret::Secret;

/// etcd's default `--max-txn-ops`. It counts along a path of nested transactions.
const OPERATIONS_MAX: usize = 128;
/// An item written by itself nests twice: "is it already so", then "does its condition hold".
const EACH_MAX: usize = OPERATIONS_MAX - 2;
/// etcd refuses requests over 1.5 MiB; room is left for keys and framing.
const REQUEST_BYTES_MAX: usize = 1_400_000;
const VALUE_BYTES_MAX: u64 = 1_500_000;
/// A larger value goes alone: an item names its value twice, to compare and to put.
const SHARED_BYTES_MAX: usize = 300_000;
/// Values per page: with etcd's largest values still a bearable answer.
const VALUES_PAGE: usize = 500;
/// Writers that keep overtaking us. Each lost round means somebody else succeeded.
const ROUNDS_MAX: usize = 100;

const CAPS: Caps = Caps {
    create: true,
    cas: true,
    atomic_max: OPERATIONS_MAX,
    strong_read: true,
    cheap_list: true,
    keeps_fingerprint: false,
    sums: false,
    lists_own: false,
    bulk_max: EACH_MAX,
    side_by_side: 1,
    key_max: 2_048,
    value_max: VALUE_BYTES_MAX,
};

pub struct EtcdStore {
    name: String,
    prefix: String,
    client: Client,
}

/// What is there under an item's key: its revision, and whether its value is what the item brings.
type Look = (Option<Version>, bool);

impl EtcdStore {
    pub fn open(place: &EtcdPlace, password: Option<Secret>) -> Result<Self> {
        let client = Client::new(place, password)?;
        Ok(EtcdStore { name: place.shown(), prefix: place.prefix.clone(), client })
    }

    fn unwritable(&self, error: Error) -> Error {
        let error = error.while_(format!("asking whether {} may be written", self.name));
        if error.kind() != Kind::Unauthorized {
            return error;
        }
        let grant = format!("`etcdctl role grant-permission ROLE readwrite --prefix=true {}`", self.prefix);
        error.remedy_is(format!("Grant the etcd role readwrite on the prefix: {grant}."))
    }

    fn full(&self, key: &str) -> Bytes {
        Bytes::from(format!("{}{key}", self.prefix))
    }

    fn short(&self, key: &[u8]) -> Result<String> {
        let text = std::str::from_utf8(key).map_err(|_| {
            let message = format!("etcd holds a key that is not UTF-8: {}", key.escape_ascii());
            Error::new(Kind::Invalid, message).remedy_is("Move it out of the prefix.")
        })?;
        Ok(text[self.prefix.len()..].to_owned())
    }

    async fn txn(&self, compare: Vec<crate::etcd::Compare>, success: Vec<RequestOp>) -> Result<TxnResponse> {
        self.client.txn(TxnRequest { compare, success, failure: Vec::new() }).await
    }

    /// Look at many keys without moving their values.
    async fn look(&self, items: &[Item]) -> Result<Vec<Look>> {
        let mut looks = Vec::with_capacity(items.len());
        for chunk in chunks(items, OPERATIONS_MAX - 1) {
            if let [item] = chunk
                && bytes_of(item) > SHARED_BYTES_MAX
            {
                looks.push(self.look_at_large(item).await?);
                continue;
            }
            let ask = |item: &Item| -> RequestOp {
                let full = self.full(&item.key);
                let look: RequestOp = RangeRequest { keys_only: true, ..key(full.clone()) }.into();
                let compare = match &item.op {
                    Op::Put { value, .. } => vec![holds(full, value.clone())],
                    Op::Delete | Op::Check => Vec::new(),
                };
                TxnRequest { compare, success: vec![look.clone()], failure: vec![look] }.into()
            };
            let answer = self.txn(Vec::new(), chunk.iter().map(ask).collect()).await?;
            for response in &answer.responses {
                let inner = response.txn().ok_or_else(strange)?;
                looks.push((
                    inner.responses.first().and_then(ResponseOp::found).map(version),
                    inner.succeeded,
                ));
            }
        }
        if looks.len() == items.len() { Ok(looks) } else { Err(strange()) }
    }

    async fn look_at_large(&self, item: &Item) -> Result<Look> {
        let answer = self.client.range(key(self.full(&item.key))).await?;
        let found = answer.kvs.first();
        let same = match (&item.op, found) {
            (Op::Put { value, .. }, Some(found)) => found.value == value,
            _ => false,
        };
        Ok((found.map(version), same))
    }

    /// Some items, each by itself, in one transaction.
    async fn write_each(&self, items: &[Item]) -> Result<Vec<Outcome>> {
        if let [item] = items
            && bytes_of(item) > SHARED_BYTES_MAX
        {
            return self
                .write_together(items)
                .await
                .map_err(|error| error.while_(format!("writing {}", item.key)));
        }
        let answer = self.txn(Vec::new(), items.iter().map(|item| self.alone(item)).collect()).await?;
        let revision = revision_of(answer.header);
        let outcomes: Option<Vec<Outcome>> = items
            .iter()
            .zip(&answer.responses)
            .map(|(item, response)| outcome_alone(item, response.txn()?, revision))
            .collect();
        outcomes.filter(|outcomes| outcomes.len() == items.len()).ok_or_else(strange)
    }

    /// One item as a transaction: already so? else, if its condition holds, write; else say what is there.
    fn alone(&self, item: &Item) -> RequestOp {
        let full = self.full(&item.key);
        let look: RequestOp = RangeRequest { keys_only: true, ..key(full.clone()) }.into();
        let (settled, write): (_, RequestOp) = match &item.op {
            Op::Put { value, .. } => {
                (holds(full.clone(), value.clone()), put(full.clone(), value.clone()).into())
            }
            Op::Delete | Op::Check => (unmoved(full.clone(), 0), delete(full.clone()).into()),
        };
        let compare = expectation(item).map(|revision| unmoved(full, revision)).into_iter().collect();
        let attempt = TxnRequest { compare, success: vec![write], failure: vec![look.clone()] };
        TxnRequest { compare: vec![settled], success: vec![look], failure: vec![attempt.into()] }.into()
    }

    /// All or nothing: look, judge, and write if nothing moved since the look.
    async fn write_together(&self, items: &[Item]) -> Result<Vec<Outcome>> {
        for _ in 0..ROUNDS_MAX {
            let looks = self.look(items).await?;
            let judged: Vec<Option<Outcome>> = items
                .iter()
                .zip(&looks)
                .map(|(item, (held, same))| judge(item, held.as_ref(), *same))
                .collect();
            if judged.iter().flatten().any(|outcome| !outcome.landed()) {
                return Ok(judged.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Untouched)).collect());
            }
            let compare = items
                .iter()
                .zip(&looks)
                .map(|(item, (held, _))| unmoved(self.full(&item.key), held.as_ref().map_or(0, revision)))
                .collect();
            let writes = items.iter().zip(&judged).filter(|(_, judged)| judged.is_none());
            let writes = writes.map(|(item, _)| self.plain(item)).collect();
            let answer = self.txn(compare, writes).await?;
            if answer.succeeded {
                let now = revision_of(answer.header);
                let settle = |(item, judged): (&Item, Option<Outcome>)| {
                    judged.unwrap_or_else(|| {
                        Outcome::Applied(matches!(item.op, Op::Put { .. }).then(|| now.into()))
                    })
                };
                return Ok(items.iter().zip(judged).map(settle).collect());
            }
        }
        Err(Error::new(Kind::Throttled, "other writers keep changing these keys"))
    }

    fn plain(&self, item: &Item) -> RequestOp {
        match &item.op {
            Op::Put { value, .. } => put(self.full(&item.key), value.clone()).into(),
            Op::Delete | Op::Check => delete(self.full(&item.key)).into(),
        }
    }

    async fn write_all(&self, items: &[Item]) -> Result<Vec<Result<Outcome>>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut outcomes: Vec<Result<Outcome>> =
            self.write_together(items).await?.into_iter().map(Ok).collect();
        if outcomes.iter().flatten().any(|outcome| !outcome.landed()) {
            untouched(&mut outcomes);
        }
        Ok(outcomes)
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        CAPS
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let mut answers = Vec::with_capacity(keys.len());
        // One read per key: a transaction of reads could answer with more than anybody wants in memory at once.
        for chunk in keys.chunks(8) {
            let reads = chunk.iter().map(|name| self.client.range(key(self.full(name))));
            for answer in futures::future::try_join_all(reads).await? {
                answers.push(answer.kvs.into_iter().next().map(|found| Stored {
                    version: version(&found),
                    value: found.value,
                    fingerprint: None,
                }));
            }
        }
        Ok(answers)
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        let prefix = self.full(query.prefix);
        let start = match query.after {
            Some(after) if after >= query.prefix => Bytes::from(format!("{}{after}\0", self.prefix)),
            _ => prefix.clone(),
        };
        let end = range_end(&prefix);
        if end.as_ref() != b"\0" && start >= end {
            return Ok(Page::default());
        }
        let values = query.what == What::Values;
        let mut limit = if values { query.limit.min(VALUES_PAGE) } else { query.limit };
        let answer = loop {
            let request = RangeRequest {
                key: start.clone(),
                range_end: end.clone(),
                limit: i64::try_from(limit).unwrap_or(i64::MAX),
                keys_only: !values,
                ..RangeRequest::default()
            };
            match self.client.range(request).await {
                Err(error) if fault::is_answer_too_large(&error) && limit > 1 => limit = limit.div_ceil(2),
                outcome => break outcome?,
            }
        };
        let line = |found: KeyValue| -> Result<Listed> {
            let (key, version) = (self.short(&found.key)?, version(&found));
            Ok(Listed { key, version, fingerprint: None, value: values.then_some(found.value) })
        };
        Ok(Page { more: answer.more, items: answer.kvs.into_iter().map(line).collect::<Result<_>>()? })
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        check_atomic(&CAPS, items.len(), mode)?;
        let (good, refused) = sift(items, mode, &CAPS, |_| Ok(()));
        if refused.stops(mode) {
            return Ok(refused.untouched(good.len()));
        }
        if mode == Mode::All {
            return self.write_all(&good).await;
        }
        let mut written = Vec::with_capacity(good.len());
        for chunk in chunks(&good, EACH_MAX) {
            match self.write_each(chunk).await {
                Ok(done) => written.extend(done.into_iter().map(Ok)),
                Err(error) => {
                    let fault = crate::error::Fault::of(&error);
                    written.extend(chunk.iter().map(|_| Err(Error::from(&fault))));
                }
            }
        }
        Ok(refused.among(written))
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        let status = self.client.status().await?;
        self.list(Query { limit: 1, ..Query::keys("") }).await?;
        if access == Access::Write {
            let touched = self.client.txn(touch(self.full("trueup-check"))).await;
            touched.map_err(|error| self.unwritable(error))?;
        }
        Ok(vec![format!("etcd {}, {} bytes in use", status.version, status.db_size)])
    }
}

fn version(found: &KeyValue) -> Version {
    Version::from(found.mod_revision)
}

/// A version that is no revision names nothing etcd ever held.
fn revision(version: &Version) -> i64 {
    version.0.parse().ok().filter(|revision| *revision > 0).unwrap_or(-1)
}

fn expectation(item: &Item) -> Option<i64> {
    match &item.expect {
        Expect::Anything => None,
        Expect::Absent => Some(0),
        Expect::Exactly(version) => Some(revision(version)),
    }
}

fn outcome_alone(item: &Item, answer: &TxnResponse, revision: i64) -> Option<Outcome> {
    let inner = answer.responses.first()?;
    if answer.succeeded {
        return Some(Outcome::AlreadySo(inner.found().map(version)));
    }
    let attempt = inner.txn()?;
    if attempt.succeeded {
        return Some(Outcome::Applied(matches!(item.op, Op::Put { .. }).then(|| revision.into())));
    }
    Some(Outcome::Conflict(attempt.responses.first().and_then(ResponseOp::found).map(version)))
}

fn bytes_of(item: &Item) -> usize {
    let value = if let Op::Put { value, .. } = &item.op { value.len() } else { 0 };
    value + item.key.len()
}

/// Cut items into requests that etcd takes: by number, by bytes, and large ones alone.
fn chunks(items: &[Item], max: usize) -> Vec<&[Item]> {
    let (mut cut, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, item) in items.iter().enumerate() {
        let size = bytes_of(item);
        let full = at - start >= max || bytes + 2 * size > REQUEST_BYTES_MAX || size > SHARED_BYTES_MAX;
        if full && at > start {
            cut.push(&items[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += 2 * size;
        if size > SHARED_BYTES_MAX {
            bytes = REQUEST_BYTES_MAX;
        }
    }
    if start < items.len() {
        cut.push(&items[start..]);
    }
    cut
}

fn strange() -> Error {
    Error::new(Kind::Invalid, "etcd's answer does not fit the question")
}
