//! The baseline: what trueup last wrote for an identity, one small record each.
//!
//! Field names are one letter because there is one record per key of every store; the stamp is not in the record but
//! in the fingerprint column, so that a run with nothing to do compares without decoding.

use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use super::keys;
use super::telling::Object;
use crate::error::{Error, Result};
use crate::record::{Fingerprint, Scope, Version};
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
        /// Of no run.
        static NONE: LazyLock<Arc<str>> = LazyLock::new(|| "".into());
        Pointer { run: NONE.clone(), batch: 0, index: 0 }
    }

    pub fn is_unset(&self) -> bool {
        self.run.is_empty()
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
#[serde(from = "Told")]
pub struct Base {
    /// The store's version after our write; empty while there is none.
    pub version: Version,
    pub fingerprint: Fingerprint,
    /// SHA-256 of the exact bytes, when that is not the fingerprint.
    pub bytes: Option<Fingerprint>,
    pub scope: Scope,
    /// The source's version of the body.
    pub body: String,
    /// The key, when it is not the identity.
    pub key: Option<String>,
    pub carry: Option<serde_json::Value>,
    /// The last write, in the journal.
    pub written: Pointer,
}

/// A baseline record as it is told: what goes without saying is left out.
#[derive(Deserialize)]
struct Told {
    #[serde(rename = "v", default)]
    version: Version,
    #[serde(rename = "f")]
    fingerprint: Fingerprint,
    #[serde(rename = "h", default)]
    bytes: Option<Fingerprint>,
    #[serde(rename = "s", default)]
    scope: Scope,
    #[serde(rename = "b", default)]
    body: Option<String>,
    #[serde(rename = "k", default)]
    key: Option<String>,
    #[serde(rename = "c", default)]
    carry: Option<serde_json::Value>,
    #[serde(rename = "j", default)]
    written: Option<Pointer>,
}

impl From<Told> for Base {
    fn from(told: Told) -> Self {
        let Told { version, fingerprint, bytes, scope, body, key, carry, written } = told;
        let body = body.unwrap_or_else(|| fingerprint.to_string());
        let written = written.unwrap_or_else(Pointer::unset);
        Base { version, fingerprint, bytes, scope, body, key, carry, written }
    }
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
        self.item_at((&self.version, &self.written), pipeline, identity, stamp)
    }

    /// The record as it is once the store has given the write its version, with its place in the journal.
    pub fn item_at(
        &self,
        (version, written): (&Version, &Pointer),
        pipeline: &str,
        identity: &str,
        stamp: Fingerprint,
    ) -> Result<Item> {
        let item = super::item_told(keys::base(pipeline, identity), |to| self.tell((version, written), to))?;
        Ok(item.with_fingerprint(stamp))
    }

    pub fn json(&self) -> Result<String> {
        let mut told = Vec::new();
        let bug = || Error::bug("encoding a baseline record");
        self.tell((&self.version, &self.written), &mut told).map_err(|error| bug().caused_by(error))?;
        String::from_utf8(told).map_err(|error| bug().caused_by(error))
    }

    /// As JSON, with the version and the place it has by then: one is written for every key, and copying it first would be
    /// for nothing.
    pub(super) fn tell(
        &self,
        (version, written): (&Version, &Pointer),
        to: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        let Base { version: _, fingerprint, bytes, scope, body, key, carry, written: _ } = self;
        let mut record = Object::begin(to);
        if !version.0.is_empty() {
            record.text("v", &version.0);
        }
        record.print("f", fingerprint);
        if let Some(bytes) = bytes {
            record.print("h", bytes);
        }
        if !scope.is_empty() {
            record.text("s", scope);
        }
        if !fingerprint.is_told_by(body) {
            record.text("b", body);
        }
        if let Some(key) = key {
            record.text("k", key);
        }
        if let Some(carry) = carry {
            record.any("c", carry)?;
        }
        if !written.is_unset() {
            record.pointer("j", written);
        }
        record.end();
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn base(body: &str, written: Pointer) -> Base {
        Base {
            version: Version("7".into()),
            fingerprint: Fingerprint::of(b"value"),
            bytes: None,
            scope: Scope::default(),
            body: body.to_owned(),
            key: None,
            carry: None,
            written,
        }
    }

    #[test]
    fn what_goes_without_saying_is_left_out_and_comes_back() {
        let value = Fingerprint::of(b"value");
        let print = value.to_string();
        let letters = value.with_letters(|told| String::from_utf8(told.to_vec()).unwrap());
        let written = Pointer { run: "RUN".into(), batch: 1, index: 2 };
        for (record, told) in [
            (base("1", written.clone()), format!(r#"{{"v":"7","f":"{letters}","b":"1","j":"RUN:1:2"}}"#)),
            (base(&print, written), format!(r#"{{"v":"7","f":"{letters}","j":"RUN:1:2"}}"#)),
            (base(&print, Pointer::unset()), format!(r#"{{"v":"7","f":"{letters}"}}"#)),
            (base("", Pointer::unset()), format!(r#"{{"v":"7","f":"{letters}","b":""}}"#)),
        ] {
            assert_eq!(record.json().unwrap(), told);
            assert_eq!(serde_json::from_str::<Base>(&told).unwrap(), record);
        }
        let older = format!(r#"{{"v":"7","f":"{print}","b":"{print}","j":":0:0"}}"#);
        assert_eq!(serde_json::from_str::<Base>(&older).unwrap(), base(&print, Pointer::unset()));
    }
}
