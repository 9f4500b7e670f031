//! The baseline: what trueup last wrote for an identity, one small record each.
//!
//! Field names are one letter because there is one record per key of every store; the stamp is not in the record but
//! in the fingerprint column, so that a run with nothing to do compares without decoding.

use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize};

use super::keys;
use crate::error::Result;
use crate::record::{Fingerprint, Version};
use crate::shape::Prior;
use crate::store::Item;

/// A place in the journal: `run:batch:index`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pointer {
    /// Shared by all pointers of a run.
    pub run: Arc<str>,
    pub batch: u32,
    pub index: u32,
}

impl Pointer {
    /// Not in the journal yet.
    pub fn unset() -> Self {
        Pointer { run: "".into(), batch: 0, index: 0 }
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.run, self.batch, self.index)
    }
}

impl Serialize for Pointer {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl TryFrom<String> for Pointer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or_else(|| format!("{text} is no journal pointer"));
        let run = next()?.into();
        let number = |part: &str| part.parse().map_err(|_| format!("{part} is no number"));
        Ok(Pointer { run, batch: number(next()?)?, index: number(next()?)? })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Base {
    /// The store's version after our write.
    #[serde(rename = "v")]
    pub version: Version,
    #[serde(rename = "f")]
    pub fingerprint: Fingerprint,
    /// SHA-256 of the exact bytes, when that is not the fingerprint.
    #[serde(rename = "h", default)]
    pub bytes: Option<Fingerprint>,
    #[serde(rename = "s", default)]
    pub scope: String,
    /// The source's version of the body.
    #[serde(rename = "b")]
    pub body: String,
    /// The key, when it is not the identity.
    #[serde(rename = "k", default)]
    pub key: Option<String>,
    #[serde(rename = "c", default)]
    pub carry: Option<serde_json::Value>,
    /// The last write, in the journal.
    #[serde(rename = "j")]
    pub written: Pointer,
}

impl Base {
    pub fn key<'a>(&'a self, identity: &'a str) -> &'a str {
        self.key.as_deref().unwrap_or(identity)
    }

    pub fn prior(&self, identity: &str) -> Prior {
        Prior { key: self.key(identity).to_owned(), fingerprint: self.fingerprint, carry: self.carry.clone() }
    }

    /// SHA-256 of the exact bytes we wrote.
    pub fn bytes_hash(&self) -> Fingerprint {
        self.bytes.unwrap_or(self.fingerprint)
    }

    pub fn item(&self, pipeline: &str, identity: &str, stamp: Fingerprint) -> Result<Item> {
        self.item_at(&self.version, pipeline, identity, stamp)
    }

    /// The record as it is once the store has given the write its version.
    pub fn item_at(
        &self,
        version: &Version,
        pipeline: &str,
        identity: &str,
        stamp: Fingerprint,
    ) -> Result<Item> {
        let record = At { version, base: self };
        Ok(super::item(keys::base(pipeline, identity), &record)?.with_fingerprint(stamp))
    }
}

impl Serialize for Base {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        At { version: &self.version, base: self }.serialize(serializer)
    }
}

/// A baseline record with another version: one is written for every key, and copying it first would be for nothing.
struct At<'a> {
    version: &'a Version,
    base: &'a Base,
}

impl Serialize for At<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Base { version: _, fingerprint, bytes, scope, body, key, carry, written } = self.base;
        let mut record = serializer.serialize_map(None)?;
        record.serialize_entry("v", self.version)?;
        record.serialize_entry("f", fingerprint)?;
        if let Some(bytes) = bytes {
            record.serialize_entry("h", bytes)?;
        }
        if !scope.is_empty() {
            record.serialize_entry("s", scope)?;
        }
        record.serialize_entry("b", body)?;
        if let Some(key) = key {
            record.serialize_entry("k", key)?;
        }
        if let Some(carry) = carry {
            record.serialize_entry("c", carry)?;
        }
        record.serialize_entry("j", written)?;
        record.end()
    }
}

/// What is left of a deleted key: where its story is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tombstone {
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(rename = "j")]
    pub written: Pointer,
}
