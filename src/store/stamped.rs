//! A store with room for fingerprints over one without: they lie before the value. For trueup's own records, such as
//! the state in etcd; what others read is better left plain.

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};

use super::sift::sift;
use super::{
    Access, Caps, Item, Listed, Mode, Op, Outcome, Page, Query, SharedStore, Store, Stored, What,
    check_atomic,
};
use crate::error::{Error, Kind, Result};
use crate::record::Fingerprint;

/// One byte says whether a fingerprint follows.
const BARE: u8 = 0;
const MARKED: u8 = 1;
const MARK_BYTES: usize = 33;

pub struct Stamped {
    inner: SharedStore,
}

impl Stamped {
    pub fn new(inner: SharedStore) -> Self {
        Stamped { inner }
    }

    fn unpack(&self, key: &str, packed: &Bytes) -> Result<(Bytes, Option<Fingerprint>)> {
        let parts = match packed.first() {
            Some(&BARE) => Some((packed.slice(1..), None)),
            Some(&MARKED) if packed.len() >= MARK_BYTES => {
                Some((packed.slice(MARK_BYTES..), Fingerprint::from_slice(&packed[1..MARK_BYTES])))
            }
            _ => None,
        };
        parts.ok_or_else(|| {
            Error::new(Kind::Corrupt, format!("{key} in {} was not written by trueup", self.inner.name()))
                .remedy_is("Give trueup a prefix that nobody else writes to.")
        })
    }
}

fn pack(value: &Bytes, fingerprint: Option<Fingerprint>) -> Bytes {
    let mut packed = BytesMut::with_capacity(value.len() + MARK_BYTES);
    match fingerprint {
        Some(print) => {
            packed.put_u8(MARKED);
            packed.put_slice(&print.0);
        }
        None => packed.put_u8(BARE),
    }
    packed.put_slice(value);
    packed.freeze()
}

#[async_trait]
impl Store for Stamped {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        let inner = self.inner.caps();
        Caps {
            keeps_fingerprint: true,
            sums: false,
            value_max: inner.value_max.saturating_sub(MARK_BYTES as u64),
            ..inner
        }
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let found = self.inner.get(keys).await?;
        let unpacked = keys.iter().zip(found).map(|(key, stored)| {
            let Some(stored) = stored else { return Ok(None) };
            let (value, fingerprint) = self.unpack(key, &stored.value)?;
            Ok(Some(Stored { value, fingerprint, version: stored.version }))
        });
        unpacked.collect()
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        let what = query.what;
        let page = self.inner.list(Query { what: What::Values, ..query }).await?;
        let lines = page.items.into_iter().map(|line| {
            let (value, fingerprint) =
                self.unpack(&line.key, line.value.as_ref().unwrap_or(&Bytes::new()))?;
            let value = (what == What::Values).then_some(value);
            Ok(Listed { key: line.key, version: line.version, fingerprint, value })
        });
        Ok(Page { items: lines.collect::<Result<_>>()?, more: page.more })
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        let caps = self.caps();
        check_atomic(&caps, items.len(), mode)?;
        // Checked before the mark goes on: behind it a value would look larger than it is.
        let (mut items, refused) = sift(items, mode, &caps, |_| Ok(()));
        if refused.stops(mode) {
            return Ok(refused.untouched(items.len()));
        }
        for item in &mut items {
            if let Op::Put { value, fingerprint } = &mut item.op {
                *value = pack(value, fingerprint.take());
            }
        }
        Ok(refused.among(self.inner.write(items, mode).await?))
    }

    async fn is_there(&self) -> Result<bool> {
        self.inner.is_there().await
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.inner.check(access).await
    }
}
