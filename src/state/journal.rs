//! Intents: what a batch is about to do, written before it does it. They are the crash record, the proof of
//! ownership and the journal for `undo`, in one.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::plain::{self, Plain, Told};
use super::telling::Object;
use super::{Base, Pointer, State, item_told, keys};
use crate::error::{Error, Fault, Kind, Result};
use crate::record::{Fingerprint, Version};
use crate::store::{Item, StoreExt, What};

/// Larger prior values are kept once, by content hash: the journal record stays small enough to read whole.
pub const INLINE_MAX: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Add,
    Update,
    Delete,
}

impl Change {
    pub fn name(self) -> &'static str {
        match self {
            Change::Add => "add",
            Change::Update => "update",
            Change::Delete => "delete",
        }
    }
}

/// A value as it was before we changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PriorValue {
    Text(String),
    Base64(String),
    /// Below `blob/`.
    Blob(Fingerprint),
}

impl PriorValue {
    /// How to keep a value, and the blob to write first if it is large.
    pub fn keep(value: &Bytes, pipeline: &str, run: &str) -> (Self, Option<Item>) {
        if value.len() > INLINE_MAX {
            let hash = Fingerprint::of(value);
            let blob = Item::put(keys::blob(pipeline, run, &hash.to_string()), value.clone());
            return (PriorValue::Blob(hash), Some(blob));
        }
        match std::str::from_utf8(value) {
            Ok(text) => (PriorValue::Text(text.to_owned()), None),
            Err(_) => (PriorValue::Base64(STANDARD.encode(value)), None),
        }
    }

    /// The hash of the value, without loading it.
    pub fn sha256(&self) -> Result<Fingerprint> {
        match self {
            PriorValue::Text(text) => Ok(Fingerprint::of(text.as_bytes())),
            PriorValue::Base64(text) => decoded(text).map(|value| Fingerprint::of(&value)),
            PriorValue::Blob(hash) => Ok(*hash),
        }
    }

    pub async fn load(&self, state: &State, pipeline: &str, run: &str) -> Result<Bytes> {
        let hash = match self {
            PriorValue::Text(text) => return Ok(Bytes::from(text.clone())),
            PriorValue::Base64(text) => return decoded(text),
            PriorValue::Blob(hash) => hash,
        };
        let key = keys::blob(pipeline, run, &hash.to_string());
        if let Some(stored) = state.store().get_one(&key).await? {
            return Ok(stored.value);
        }
        let parts = state.store().list_all(&format!("{key}/"), What::Values).await?;
        let whole: Vec<u8> = parts.iter().flat_map(|part| part.value.iter().flatten().copied()).collect();
        if Fingerprint::of(&whole) == *hash {
            return Ok(Bytes::from(whole));
        }
        Err(Error::new(Kind::NotFound, format!("the prior value {} is no longer kept", hash.short()))
            .remedy_is("Raise `journal = { keep, max }` to keep prior values longer."))
    }
}

fn decoded(text: &str) -> Result<Bytes> {
    STANDARD.decode(text).map(Bytes::from).map_err(|error| {
        Error::new(Kind::Corrupt, "a prior value in the journal cannot be decoded").caused_by(error)
    })
}

/// What we knew of an identity before this change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PriorBase {
    #[serde(rename = "s")]
    pub stamp: Fingerprint,
    #[serde(rename = "b")]
    pub base: Base,
}

impl PriorBase {
    fn tell(&self, mut to: Object<'_>) -> serde_json::Result<()> {
        to.print("s", &self.stamp);
        to.any_told("b", |to| self.base.tell((&self.base.version, &self.base.written), to))?;
        to.end();
        Ok(())
    }
}

/// SHA-256 of bytes that are put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exact {
    /// What the baseline record to be says they are; told as an empty text.
    AsNext,
    Are(Fingerprint),
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Exact::AsNext);
        }
        let hash = Fingerprint::read(&text);
        hash.map(Exact::Are).ok_or_else(|| serde::de::Error::custom("not a SHA-256 in base64 or hex"))
    }
}

/// One change to one key, complete enough to be settled, dropped, explained or reversed by somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Intent {
    #[serde(rename = "i")]
    pub identity: String,
    #[serde(rename = "c")]
    pub change: Change,
    /// The key, when it is not the identity.
    #[serde(rename = "k", default)]
    pub key: Option<String>,
    /// The exact bytes of a put.
    #[serde(rename = "h", default)]
    pub bytes: Option<Exact>,
    /// What the baseline becomes (its version and its place in the journal are filled in by settle); `None` for a delete.
    #[serde(rename = "n", default)]
    pub next: Option<Box<PriorBase>>,
    /// What the store held before.
    #[serde(rename = "p", default)]
    pub prior: Option<PriorValue>,
    #[serde(rename = "pf", default)]
    pub prior_fingerprint: Option<Fingerprint>,
    #[serde(rename = "pv", default)]
    pub prior_version: Option<Version>,
    /// What the baseline was before.
    #[serde(rename = "o", default)]
    pub prior_base: Option<Box<PriorBase>>,
    /// An older key of the identity is cleared away: the baseline is not touched.
    #[serde(rename = "r", default)]
    pub retire: bool,
    /// Follow-up work this change calls for.
    #[serde(rename = "t", default)]
    pub then: Vec<String>,
    /// The decision that must be recorded when this lands (an undo pins what it undid).
    #[serde(rename = "d", default)]
    pub decision: Option<Box<super::held::Decision>>,
    /// A decision about the identity ends when this lands, even if only a later start finds out that it did.
    #[serde(rename = "l", default)]
    pub lift: bool,
    /// Nobody has done the follow-up work of its addition yet.
    #[serde(rename = "w", default)]
    pub still_new: bool,
    /// The delete that ended the key's life before this one.
    #[serde(rename = "e", default)]
    pub earlier: Option<Pointer>,
}

impl Intent {
    /// As JSON; what goes without saying is left out.
    fn tell(&self, to: &mut Vec<u8>) -> serde_json::Result<()> {
        // All by name, so that none is ever forgotten. Those without one are told by `tell_prior`.
        let Intent {
            identity,
            change,
            key,
            bytes,
            next,
            lift,
            still_new,
            earlier,
            prior: _,
            prior_fingerprint: _,
            prior_version: _,
            prior_base: _,
            retire: _,
            then: _,
            decision: _,
        } = self;
        let mut told = Object::begin(to);
        told.text("i", identity);
        told.text("c", change.name());
        if let Some(key) = key {
            told.text("k", key);
        }
        match bytes {
            None => {}
            Some(Exact::AsNext) => told.text("h", ""),
            Some(Exact::Are(hash)) => told.print("h", hash),
        }
        if let Some(next) = next {
            next.tell(told.object("n"))?;
        }
        self.tell_prior(&mut told)?;
        for (name, is_set) in [("l", *lift), ("w", *still_new)] {
            if is_set {
                told.set(name);
            }
        }
        if let Some(earlier) = earlier {
            told.pointer("e", earlier);
        }
        told.end();
        Ok(())
    }

    /// What an addition without follow-up work has nothing of.
    fn tell_prior(&self, told: &mut Object<'_>) -> serde_json::Result<()> {
        if let Some(prior) = &self.prior {
            told.any("p", prior)?;
        }
        if let Some(print) = &self.prior_fingerprint {
            told.print("pf", print);
        }
        if let Some(version) = &self.prior_version {
            told.text("pv", &version.0);
        }
        if let Some(prior_base) = &self.prior_base {
            prior_base.tell(told.object("o"))?;
        }
        if self.retire {
            told.set("r");
        }
        if !self.then.is_empty() {
            told.any("t", &self.then)?;
        }
        if let Some(decision) = &self.decision {
            told.any("d", decision)?;
        }
        Ok(())
    }
}

/// A batch as a record of the journal.
pub fn journal<'a>(key: String, intents: impl Iterator<Item = &'a Intent>) -> Result<Item> {
    item_told(key, |to| {
        to.push(b'[');
        let mut scope_before = None;
        for (index, intent) in intents.enumerate() {
            if index > 0 {
                to.push(b',');
            }
            match Plain::of(intent) {
                Some(plain) => plain.tell(&mut scope_before, to),
                None => intent.tell(to)?,
            }
        }
        to.push(b']');
        Ok(())
    })
}

impl State {
    /// A batch of the journal, if it is still kept. What became of the baseline points to where it stands here.
    pub async fn intents(&self, pipeline: &str, run: &str, batch: u32) -> Result<Option<Vec<Intent>>> {
        let told: Option<Vec<Told>> = self.read(&keys::journal(pipeline, run, batch)).await?;
        let run: Arc<str> = run.into();
        let mut intents = told.map(plain::intents).transpose()?;
        for (index, intent) in (0u32..).zip(intents.iter_mut().flatten()) {
            if let Some(next) = &mut intent.next {
                next.base.written = Pointer { run: run.clone(), batch, index };
            }
        }
        Ok(intents)
    }
}

impl Intent {
    /// SHA-256 of the exact bytes of a put.
    pub fn bytes_hash(&self) -> Option<Fingerprint> {
        match self.bytes.as_ref()? {
            Exact::Are(hash) => Some(*hash),
            Exact::AsNext => self.next.as_ref().map(|next| next.base.bytes_hash()),
        }
    }

    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.identity)
    }
}

/// What became of an item, where it was not simply applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Late {
    /// The store held exactly this before we came.
    AlreadySo,
    /// Somebody else's value is there; it was held.
    Conflict,
    Failed(Fault),
    /// A crash came in between and the change had not arrived.
    Dropped,
}

/// Exceptions of a batch by index.
pub type Exceptions = Vec<(u32, Late)>;

/// An open batch: which of its intents have no known outcome yet (`None` = all of them).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenBatch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<u32>>,
}

#[cfg(test)]
mod tests {
    use super::super::held::{Decision, Verdict};
    use super::*;
    use crate::store::Op;

    fn simple(identity: &str) -> Intent {
        Intent {
            identity: identity.to_owned(),
            change: Change::Add,
            key: None,
            bytes: None,
            next: None,
            prior: None,
            prior_fingerprint: None,
            prior_version: None,
            prior_base: None,
            retire: false,
            then: Vec::new(),
            decision: None,
            lift: false,
            still_new: false,
            earlier: None,
        }
    }

    fn known(body: &str) -> Box<PriorBase> {
        let base = format!(r#"{{"v":"7","f":"{}","s":"a","b":"{body}"}}"#, Fingerprint::of(b"value"));
        let base = serde_json::from_str(&base).unwrap();
        Box::new(PriorBase { stamp: Fingerprint::of(b"stamp"), base })
    }

    #[test]
    fn a_batch_is_told_with_nothing_that_goes_without_saying_and_comes_back() {
        let (value, stamp) = (Fingerprint::of(b"value"), Fingerprint::of(b"stamp"));
        let full = Intent {
            change: Change::Update,
            key: Some("k".into()),
            bytes: Some(Exact::Are(value)),
            next: Some(known("2")),
            prior: Some(PriorValue::Text("old\n".into())),
            prior_fingerprint: Some(stamp),
            prior_version: Some(Version("6".into())),
            prior_base: Some(known("1")),
            retire: true,
            then: vec!["export".into()],
            decision: Some(Box::new(Decision { verdict: Verdict::Undone, stamp: None, run: "R".into() })),
            lift: true,
            still_new: true,
            earlier: Some(Pointer { run: "R".into(), batch: 3, index: 14 }),
            ..simple("b")
        };
        let new = Intent { bytes: Some(Exact::AsNext), next: Some(known("1")), ..simple("a \"1\"") };
        let batch = [new, full, simple("c")];
        let Op::Put { value: told, .. } = journal("key".into(), batch.iter()).unwrap().op else {
            panic!("a batch is put")
        };
        let letters =
            |print: Fingerprint| print.with_letters(|told| String::from_utf8(told.to_vec()).unwrap());
        let (value, stamp) = (letters(value), letters(stamp));
        let base =
            |body: &str| format!(r#"{{"s":"{stamp}","b":{{"v":"7","f":"{value}","s":"a","b":"{body}"}}}}"#);
        let wanted = [
            format!(r#"[{{"i":"a \"1\"","c":"add","h":"","n":{}}},"#, base("1")),
            format!(r#"{{"i":"b","c":"update","k":"k","h":"{value}","n":{},"#, base("2")),
            format!(r#""p":{{"text":"old\n"}},"pf":"{stamp}","pv":"6","o":{},"r":true,"#, base("1")),
            r#""t":["export"],"d":{"verdict":"undone","run":"R"},"l":true,"w":true,"e":"R:3:14"},"#.into(),
            r#"{"i":"c","c":"add"}]"#.into(),
        ];
        assert_eq!(std::str::from_utf8(&told).unwrap(), wanted.concat());
        assert_eq!(plain::intents(serde_json::from_slice(&told).unwrap()).unwrap(), batch);
    }
}
