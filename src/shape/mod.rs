//! A shape: how an entry becomes a key and a value. Pure: no I/O, no clock; the caller brings both.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::record::{Body, Entry, Fingerprint};

pub mod article;
pub mod canonical;
pub mod policy;
pub mod raw;
pub mod rows;

/// What an entry is, whatever it is called today.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// The name under which state remembers it.
    pub identity: String,
    /// Two entries with one identity: the smallest rank wins, on every run.
    pub rank: String,
}

/// What is known from earlier runs about an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prior {
    pub key: String,
    pub fingerprint: Fingerprint,
    /// The little a shape asked to be remembered.
    pub carry: Option<serde_json::Value>,
}

/// What `render` is given.
pub struct Input<'a> {
    pub entry: &'a Entry,
    pub identity: &'a str,
    /// `None` on the first call; a shape that cannot do without answers `NeedBody`.
    pub body: Option<&'a Body>,
    pub prior: Option<&'a Prior>,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub key: String,
    pub value: Bytes,
    pub fingerprint: Fingerprint,
    pub carry: Option<serde_json::Value>,
    /// Other keys this one replaces (an older layout).
    pub retire: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rendered {
    Put(Output),
    /// Leave what is there (counted as unchanged, or skipped when there is nothing). A reason is told, none is not.
    Keep(String),
    /// Present but not usable; what is stored stays (counted as skipped, reported on every run).
    Skip(String),
    NeedBody,
}

/// What absence means once it is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    Delete,
    /// Keep it, marked (rows: `missing_since`).
    Put(Output),
    Keep,
}

/// A new entry's key is already taken in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is foreign: hold the entry until a person adopts the key.
    Hold,
    /// The shape owns its key pattern: take it over, compare, replace if it differs.
    Replace,
    /// The shape owns its key pattern, and what exists stays as it is.
    Skip,
}

/// What a value found in the store turns out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recalled {
    /// A row of this shape, and the entry it must have come from.
    Current { identity: String, entry: Entry, fingerprint: Fingerprint, carry: Option<serde_json::Value> },
    /// A row of an older layout: it waits for a current one to take its place, until its time is over.
    Older { until: Timestamp },
}

/// A row of an older layout, as state remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Older {
    pub key: String,
    pub value: String,
    /// When it goes, matched or not.
    pub until: String,
}

/// What is to be done about a value that is already there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconciled {
    /// Write this, and say something about it.
    Write(Output, Option<String>),
    /// What is there says the same: leave it, and remember it as ours.
    Keep(Output),
}

pub trait Shape: Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether an entry is this shape's business at all; what is not is neither counted nor reported.
    fn wants(&self, _entry: &Entry) -> bool {
        true
    }

    /// Part of every stamp: a new version renders everything again.
    fn version(&self) -> u32;

    /// Identities sort as entry ids do, so a sorted source can be merged without a detour.
    fn keeps_order(&self) -> bool;

    /// Keys this shape writes are `key_prefix + identity`, if that is so for every identity.
    fn key_prefix(&self) -> Option<&str>;

    /// What to do about a key that already holds something trueup did not write.
    fn existing(&self) -> Existing;

    fn identify(&self, entry: &Entry) -> Result<Identified>;

    /// The identity of a key that is already in the store, if it is of this shape's making.
    fn claims(&self, key: &str) -> Option<String>;

    /// All identities that would be written under this key, where there may be more than one.
    fn namesakes(&self, _key: &str) -> Vec<String> {
        Vec::new()
    }

    fn render(&self, input: &Input<'_>) -> Result<Rendered>;

    fn absent(&self, prior: &Prior, value: Option<&[u8]>, now: Timestamp) -> Absent;

    /// It is kept although the source no longer has it, and marked so.
    fn is_missing(&self, _prior: &Prior) -> bool {
        false
    }

    /// What it is while it is missing, made of what it was (or of what is there now, by whoever changed it).
    fn mark_again(&self, _prior: &Prior, _value: &[u8]) -> Option<Output> {
        None
    }

    /// Something a person should know about an entry that was rendered with its body.
    fn remark(&self, _input: &Input<'_>) -> Option<String> {
        None
    }

    /// Whether rows found in the store can be recalled: then the first pass takes stock of it.
    fn recalls(&self) -> bool {
        false
    }

    /// What a value in the store is, so that a baseline can be made of it; `None` = nothing of this shape's making.
    fn recall(&self, _key: &str, _value: &[u8], _now: Timestamp) -> Option<Recalled> {
        None
    }

    /// The same shape, told of the rows of an older layout that wait for their current ones.
    fn knowing(&self, _older: &[Older]) -> Option<Arc<dyn Shape>> {
        None
    }

    /// Whether a row of an older layout waits for this identity.
    fn awaited(&self, _identity: &str, _carry: Option<&serde_json::Value>) -> bool {
        false
    }

    /// What is about to be written against what is there.
    fn reconcile(
        &self,
        output: Output,
        _stored: &[u8],
        _prior: Option<&Prior>,
        _now: Timestamp,
    ) -> Reconciled {
        Reconciled::Write(output, None)
    }

    /// Whether an export needs the document itself, not only the row.
    fn exports_body(&self) -> bool {
        false
    }

    /// Which version of its document a row speaks of; an export never puts another one beside it.
    fn body_mark(&self, _value: &[u8]) -> Option<Fingerprint> {
        None
    }

    /// What an export writes for a row. `body` is the document, if it is at hand; `object` is what the export's target
    /// holds now. `None` = it takes the document, and neither is it.
    fn export(
        &self,
        value: &Bytes,
        _body: Option<&[u8]>,
        _object: Option<&[u8]>,
        _now: Timestamp,
    ) -> Result<Option<Bytes>> {
        Ok(Some(value.clone()))
    }

    /// The key an export uses for one of ours.
    fn export_key(&self, key: &str) -> String {
        key.to_owned()
    }

    /// The key an entry will be written under, where that is known without its body or its past.
    fn key(&self, _entry: &Entry) -> Option<String> {
        None
    }

    /// Where keys lie that are kept for a limited time only; `None` = everything is kept.
    fn expires_below(&self) -> Option<&str> {
        None
    }

    /// Is this key of the shape's making, and older than it is to be kept, by all that is remembered of it? Such a key is
    /// deleted unguarded.
    fn expired(&self, _key: &str, _carry: Option<&serde_json::Value>, _now: Timestamp) -> bool {
        false
    }

    /// Where keys lie that tell a day, so that one entry may have had another key before; `None` = a key says it all.
    fn dated_below(&self) -> Option<&str> {
        None
    }

    /// What is remembered of a key that is kept as it is, although its entry changed.
    fn kept(&self, _entry: &Entry, carry: Option<&serde_json::Value>) -> Option<serde_json::Value> {
        carry.cloned()
    }

    /// What is remembered of a key that was there before us and shows something else than its entry.
    fn unlike(&self, carry: Option<serde_json::Value>) -> Option<serde_json::Value> {
        carry
    }

    /// Fingerprints are the SHA-256 of the values' bytes.
    fn prints_bytes(&self) -> bool {
        false
    }

    /// What makes an entry the same as last time: shape version, body version and facts.
    fn stamp(&self, entry: &Entry) -> Fingerprint {
        stamp_of(self.name(), self.version(), entry)
    }

    /// The stamp an older trueup gave it, where that was another: what is remembered under it is still about this version.
    fn stamp_before(&self, _entry: &Entry) -> Option<Fingerprint> {
        None
    }
}

fn stamp_of(shape: &str, version: u32, entry: &Entry) -> Fingerprint {
    let facts = entry.facts.as_ref().map(ToString::to_string).unwrap_or_default();
    Fingerprint::of_parts(&[
        shape.as_bytes(),
        &version.to_be_bytes(),
        entry.id.as_bytes(),
        entry.version.as_bytes(),
        facts.as_bytes(),
    ])
}
