//! Policies: Markdown documents by name. One row per document in a key-value registry, with its title, its SHA and its
//! path; the document itself is not in the row.
//!
//! The name of the file is the identity, wherever the file lies: a moved file is the same policy, and of two files with
//! one name the smaller path wins on every run. Files that are not Markdown, and readmes, are none of its business. A
//! document that is empty, too large or cannot be named leaves the row it had as it is and is reported on every run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use super::{
    Absent, Existing, Identified, Input, Older, Output, Prior, Recalled, Reconciled, Rendered, Shape,
};
use crate::clock::rfc3339_ms;
use crate::config::POLICY_OBJECTS;
use crate::error::{Error, Kind, Result};
use crate::record::{Entry, Fingerprint};

mod entry;
mod object;
mod title;

pub use entry::{Deprecated, KEY_MAX, PREFIX, PolicyEntry, Status, Stored};
pub use title::title;

/// Larger documents are no regulations; they are neither fetched nor read.
pub const BODY_BYTES_MAX: u64 = 1 << 20;
/// How long rows of the first layout, and the fields carried over from them, are kept.
pub const TRANSITION: Duration = Duration::from_secs(90 * 24 * 3600);
/// Changes when rows would come out differently for the same document.
const VERSION: u32 = 1;

/// What is remembered of a row, so that a moved file needs no body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carry {
    pub title: String,
    pub sha: String,
    /// The shape version the title was found by.
    #[serde(default)]
    pub by: u32,
    #[serde(default, skip_serializing_if = "Deprecated::is_empty")]
    pub fields: Deprecated,
    /// Until when the deprecated fields are carried along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl Carry {
    pub fn of(carry: Option<&serde_json::Value>) -> Option<Carry> {
        serde_json::from_value(carry?.clone()).ok()
    }

    /// The fields that still count.
    fn fields_at(&self, now: Timestamp) -> Deprecated {
        let over =
            self.until.as_ref().and_then(|until| until.parse::<Timestamp>().ok()).is_some_and(|at| at < now);
        if over { Deprecated::default() } else { self.fields.clone() }
    }
}

/// A row of the first layout that waits for its policy.
#[derive(Debug, Clone)]
struct Waiting {
    key: String,
    fields: Deprecated,
    until: String,
}

#[derive(Debug, Default)]
pub struct Policy {
    /// Rows of the first layout, by title and by the name in their key.
    waiting: HashMap<String, Waiting>,
}

impl Policy {
    fn told(&self, older: &[Older]) -> Policy {
        let mut waiting = HashMap::new();
        for row in older {
            let Stored::Legacy { title, fields } = Stored::read(&row.key, row.value.as_bytes()) else {
                continue;
            };
            let one = Waiting { key: row.key.clone(), fields, until: row.until.clone() };
            if let Some(name) = row.key.strip_prefix(PREFIX) {
                waiting.insert(folded(name), one.clone());
            }
            waiting.insert(folded(&title), one);
        }
        Policy { waiting }
    }

    fn waits_for(&self, name: &str) -> Option<&Waiting> {
        if self.waiting.is_empty() { None } else { self.waiting.get(&folded(name)) }
    }

    fn row(&self, input: &Input<'_>, title: String, sha: String) -> Result<Output> {
        let mut until = None;
        let mut fields = Deprecated::default();
        if let Some(carry) = input.prior.and_then(|prior| Carry::of(prior.carry.as_ref())) {
            fields = carry.fields_at(input.now);
            until = carry.until.filter(|_| !fields.is_empty());
        }
        let mut retire = Vec::new();
        let matches = [self.waits_for(input.identity), self.waits_for(&title)];
        for waiting in matches.into_iter().flatten() {
            fields = fields.or(&waiting.fields);
            until = until.or_else(|| Some(waiting.until.clone()));
            retire.push(waiting.key.clone());
        }
        let row = PolicyEntry {
            policy_name: input.identity.to_owned(),
            title,
            status: Status::Active,
            last_updated: rfc3339_ms(input.now),
            sha,
            path: input.entry.id.clone(),
            fields,
        };
        let mut output = output(&row, until)?;
        retire.retain(|key| *key != output.key);
        retire.dedup();
        output.retire = retire;
        Ok(output)
    }
}

/// Names and titles are compared as people read them.
fn folded(name: &str) -> String {
    name.trim().nfc().collect()
}

fn output(row: &PolicyEntry, until: Option<String>) -> Result<Output> {
    let encode = |error: serde_json::Error| Error::bug("a policy cannot be written as JSON").caused_by(error);
    let carry = Carry {
        title: row.title.clone(),
        sha: row.sha.clone(),
        by: VERSION,
        fields: row.fields.clone(),
        until: until.filter(|_| !row.fields.is_empty()),
    };
    Ok(Output {
        key: format!("{PREFIX}{}", row.policy_name),
        value: Bytes::from(serde_json::to_vec(row).map_err(encode)?),
        fingerprint: row.fingerprint(),
        carry: Some(serde_json::to_value(carry).map_err(encode)?),
        retire: Vec::new(),
    })
}

/// Why this document cannot have a row, if that shows without its body.
fn fault(entry: &Entry, name: &str) -> Option<String> {
    if stem(&entry.id).is_none_or(str::is_empty) {
        return Some("the file has no name in front of .md".to_owned());
    }
    if PREFIX.len() + name.len() > KEY_MAX {
        return Some(format!("the name is longer than a key may be ({KEY_MAX} bytes)"));
    }
    if let Some(fault) = entry::path_fault(&entry.id) {
        return Some(fault.to_owned());
    }
    match entry.size {
        Some(0) => Some(EMPTY.to_owned()),
        Some(size) if size > BODY_BYTES_MAX => Some(too_large(size)),
        _ => None,
    }
}

/// The source's own SHA; where it has none (a folder has times), the SHA-256 of the document.
fn sha(entry: &Entry, body: &[u8]) -> String {
    if entry::is_sha(&entry.version) {
        entry.version.to_ascii_lowercase()
    } else {
        Fingerprint::of(body).to_string()
    }
}

const EMPTY: &str = "the document is empty";

fn too_large(size: u64) -> String {
    format!("the document has {size} bytes, {BODY_BYTES_MAX} at most are taken")
}

/// The document as text, or why it cannot have a row.
fn text(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() as u64 > BODY_BYTES_MAX {
        return Err(too_large(bytes.len() as u64));
    }
    match std::str::from_utf8(bytes) {
        Err(_) => Err("the document is not UTF-8 text".to_owned()),
        Ok(text) if text.trim_start_matches('\u{FEFF}').trim().is_empty() => Err(EMPTY.to_owned()),
        Ok(text) => Ok(text),
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The name of a Markdown file without its ending; `None` for other files. A path that is not UTF-8 has a slash at its end:
/// such a document is there, though it cannot be used.
fn stem(path: &str) -> Option<&str> {
    let name = base_name(path.strip_suffix('/').unwrap_or(path));
    let at = name.len().checked_sub(3)?;
    // `get`: the third byte from the end may lie inside a character.
    name.get(at..).filter(|ending| ending.eq_ignore_ascii_case(".md"))?;
    name.get(..at)
}

impl Shape for Policy {
    fn name(&self) -> &'static str {
        "policy"
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn key_prefix(&self) -> Option<&str> {
        Some(PREFIX)
    }

    fn existing(&self) -> Existing {
        Existing::Replace
    }

    fn wants(&self, entry: &Entry) -> bool {
        stem(&entry.id).is_some_and(|stem| !stem.eq_ignore_ascii_case("readme"))
    }

    fn identify(&self, entry: &Entry) -> Result<Identified> {
        let identity = match stem(&entry.id) {
            Some(stem) if !stem.is_empty() => stem.nfc().collect(),
            _ => entry.id.clone(),
        };
        Ok(Identified { identity, rank: entry.id.clone() })
    }

    fn claims(&self, key: &str) -> Option<String> {
        key.strip_prefix(PREFIX).filter(|name| !name.is_empty()).map(str::to_owned)
    }

    fn render(&self, input: &Input<'_>) -> Result<Rendered> {
        if let Some(fault) = fault(input.entry, input.identity) {
            return Ok(Rendered::Skip(fault));
        }
        let carry = input.prior.and_then(|prior| Carry::of(prior.carry.as_ref()));
        let known = carry
            .filter(|carry| carry.by == VERSION && carry.sha == input.entry.version.to_ascii_lowercase());
        let (title, sha) = match (known, input.body) {
            (Some(carry), _) => (carry.title, carry.sha),
            (None, None) => return Ok(Rendered::NeedBody),
            (None, Some(body)) => match text(&body.bytes) {
                Ok(text) => {
                    (title::title(text).unwrap_or(input.identity).to_owned(), sha(input.entry, &body.bytes))
                }
                Err(fault) => return Ok(Rendered::Skip(fault)),
            },
        };
        self.row(input, title, sha).map(Rendered::Put)
    }

    fn remark(&self, input: &Input<'_>) -> Option<String> {
        let body = input.body?;
        let untitled = text(&body.bytes).is_ok_and(|text| title::title(text).is_none());
        untitled.then(|| "the document has no heading of level one; its name is its title".to_owned())
    }

    fn absent(&self, _prior: &Prior, _value: Option<&[u8]>, _now: Timestamp) -> Absent {
        Absent::Delete
    }

    fn exports_body(&self) -> bool {
        true
    }

    fn export_key(&self, key: &str) -> String {
        let name = key.strip_prefix(PREFIX).unwrap_or(key);
        format!("{POLICY_OBJECTS}{name}/policy.md")
    }

    fn body_mark(&self, value: &[u8]) -> Option<Fingerprint> {
        let row: PolicyEntry = serde_json::from_slice(value).ok()?;
        Some(Fingerprint::of(row.sha.as_bytes()))
    }

    fn export(
        &self,
        value: &Bytes,
        body: Option<&[u8]>,
        object: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Option<Bytes>> {
        let odd = || Error::new(Kind::Invalid, "the row is not a policy");
        let row: PolicyEntry = serde_json::from_slice(value).map_err(|error| odd().caused_by(error))?;
        // The file that is there serves again when only the row changed.
        let again = object.filter(|file| object::member(file, "sha").as_deref() == Some(row.sha.as_str()));
        let Some(document) = body.or_else(|| object::document(again?)) else { return Ok(None) };
        // One that says all of it stays as it is, saved when it was.
        let saved_at = again.and_then(|file| object::member(file, "savedAt"));
        let same = saved_at.map(|at| object::compose(&row, &at, document)).filter(|file| again == Some(file));
        Ok(Some(same.unwrap_or_else(|| object::compose(&row, &rfc3339_ms(now), document))))
    }

    fn recalls(&self) -> bool {
        true
    }

    fn recall(&self, key: &str, value: &[u8], now: Timestamp) -> Option<Recalled> {
        match Stored::read(key, value) {
            Stored::Current(row) => {
                let until = (!row.fields.is_empty()).then(|| rfc3339_ms(deadline(now)));
                let entry = Entry::new(row.path.clone(), &"".into(), row.sha.clone());
                let output = output(&row, until).ok()?;
                let Output { fingerprint, carry, .. } = output;
                Some(Recalled::Current { identity: row.policy_name, entry, fingerprint, carry })
            }
            Stored::Legacy { .. } => Some(Recalled::Older { until: deadline(now) }),
            Stored::Other => None,
        }
    }

    fn knowing(&self, older: &[Older]) -> Option<Arc<dyn Shape>> {
        Some(Arc::new(self.told(older)))
    }

    fn awaited(&self, identity: &str, carry: Option<&serde_json::Value>) -> bool {
        let by_title = || Carry::of(carry).is_some_and(|carry| self.waits_for(&carry.title).is_some());
        self.waits_for(identity).is_some() || by_title()
    }

    fn reconcile(&self, output: Output, stored: &[u8], prior: Option<&Prior>, now: Timestamp) -> Reconciled {
        let Stored::Current(ours) = Stored::read(&output.key, &output.value) else {
            return Reconciled::Write(output, None);
        };
        let carry = Carry::of(output.carry.as_ref());
        let (theirs, fields) = match Stored::read(&output.key, stored) {
            Stored::Current(row) => (Some(row.clone()), row.fields),
            Stored::Legacy { fields, .. } => (None, fields),
            Stored::Other => return Reconciled::Write(output, None),
        };
        // What we know ourselves comes first; rows met for the first time bring their fields along.
        let first_met = prior.is_none();
        let carried = first_met || theirs.is_none();
        let fields = if carried { ours.fields.clone().or(&fields) } else { ours.fields.clone() };
        let until = carry.and_then(|carry| carry.until).unwrap_or_else(|| rfc3339_ms(deadline(now)));
        let archived = theirs.as_ref().is_some_and(|row| row.status == Status::Archived);
        let same = theirs.is_some_and(|row| row.says_the_same(&ours) && row.fields == fields);
        let Ok(merged) = self::output(&PolicyEntry { fields, ..ours }, Some(until)) else {
            return Reconciled::Write(output, None);
        };
        let merged = Output { retire: output.retire, ..merged };
        if same && (first_met || archived) {
            return Reconciled::Keep(merged);
        }
        let note = archived.then(|| "it was archived and is active again: the document changed".to_owned());
        Reconciled::Write(merged, note)
    }
}

fn deadline(now: Timestamp) -> Timestamp {
    now.checked_add(TRANSITION).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
