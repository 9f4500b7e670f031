//! Rows: what a `rest` source gives is a canonical row already, its entry id is the key, its SHA-256 the fingerprint.
//!
//! What this shape decides is absence: a row that is gone stays, marked with `missing_since`, or is deleted. A row that
//! comes back is rendered anew, without the mark. It owns its keys: a row that is already there is taken over.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Absent, Existing, Identified, Input, Output, Prior, Recalled, Rendered, Shape, canonical, stamp_of,
};
use crate::clock::rfc3339_ms;
use crate::config::{OnMissing, RowsSpec};
use crate::error::{Error, Kind, Result};
use crate::record::{Entry, Fingerprint};

/// When a row was first missed; a column of every table.
pub const MISSING_SINCE: &str = "missing_since";

pub struct Rows {
    spec: RowsSpec,
}

impl Rows {
    pub fn new(spec: RowsSpec) -> Self {
        Rows { spec }
    }
}

impl Shape for Rows {
    fn name(&self) -> &'static str {
        "rows"
    }

    fn version(&self) -> u32 {
        1
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn prints_bytes(&self) -> bool {
        true
    }

    fn key_prefix(&self) -> Option<&str> {
        Some("")
    }

    fn existing(&self) -> Existing {
        Existing::Replace
    }

    fn identify(&self, entry: &Entry) -> Result<Identified> {
        Ok(Identified { identity: entry.id.clone(), rank: String::new() })
    }

    fn claims(&self, key: &str) -> Option<String> {
        Some(key.to_owned())
    }

    /// A row says whether it is marked, and its key of which table it is; of which list, nobody knows.
    fn recall(&self, key: &str, value: &[u8], _now: Timestamp) -> Option<Recalled> {
        let row: Map<String, Value> = serde_json::from_slice(value).ok()?;
        let (table, _) = key.split_once('/')?;
        Some(Recalled::Current {
            identity: key.to_owned(),
            entry: Entry::new(key.to_owned(), &table.into(), ""),
            fingerprint: Fingerprint::of(value),
            carry: row.get(MISSING_SINCE).map(|since| json!({ MISSING_SINCE: since })),
        })
    }

    fn render(&self, input: &Input<'_>) -> Result<Rendered> {
        let (value, known) = match (&input.entry.inline, input.body) {
            (Some(inline), _) => (inline.clone(), input.entry.print),
            (None, Some(body)) => (body.bytes.clone(), None),
            (None, None) => return Ok(Rendered::NeedBody),
        };
        if value.first() != Some(&b'{') {
            return Err(Error::new(Kind::Invalid, "a row is a JSON object, and this is not one"));
        }
        let fingerprint = known.unwrap_or_else(|| Fingerprint::of(&value));
        Ok(Rendered::Put(Output {
            key: input.identity.to_owned(),
            value,
            fingerprint,
            carry: None,
            retire: Vec::new(),
        }))
    }

    fn absent(&self, prior: &Prior, value: Option<&[u8]>, now: Timestamp) -> Absent {
        if self.spec.on_missing == OnMissing::Delete {
            return Absent::Delete;
        }
        if self.is_missing(prior) {
            return Absent::Keep;
        }
        let row = value
            .and_then(|value| serde_json::from_slice::<Map<String, Value>>(value).ok())
            .unwrap_or_default();
        Absent::Put(marked(prior, row, Value::String(rfc3339_ms(now))))
    }

    fn mark_again(&self, prior: &Prior, value: &[u8]) -> Option<Output> {
        let since = prior.carry.as_ref()?.get(MISSING_SINCE)?.clone();
        let row = serde_json::from_slice(value).ok()?;
        Some(marked(prior, row, since))
    }

    /// A row is written as it is listed, and its version is its hash: that tells all.
    fn stamp(&self, entry: &Entry) -> Fingerprint {
        let own = if entry.facts.is_none() { Fingerprint::parse(&entry.version) } else { None };
        own.unwrap_or_else(|| stamp_of(self.name(), self.version(), entry))
    }

    fn stamp_before(&self, entry: &Entry) -> Option<Fingerprint> {
        Some(stamp_of(self.name(), self.version(), entry))
    }

    fn is_missing(&self, prior: &Prior) -> bool {
        prior.carry.as_ref().is_some_and(|carry| carry.get(MISSING_SINCE).is_some())
    }
}

/// The row with its mark. Before the store was asked there is no row yet, and only the kind of answer counts.
fn marked(prior: &Prior, mut row: Map<String, Value>, since: Value) -> Output {
    let carry = json!({ MISSING_SINCE: since.clone() });
    row.insert(MISSING_SINCE.to_owned(), since);
    let value = canonical::to_vec(&Value::Object(row));
    Output {
        key: prior.key.clone(),
        fingerprint: Fingerprint::of(&value),
        value: Bytes::from(value),
        carry: Some(carry),
        retire: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prior(carry: Option<Value>) -> Prior {
        Prior { key: "cases/1".into(), fingerprint: Fingerprint::of(b"row"), carry }
    }

    #[test]
    fn a_row_is_marked_once_and_the_mark_is_part_of_it() {
        let rows = Rows::new(RowsSpec { on_missing: OnMissing::Mark });
        let now: Timestamp = "2026-11-15T00:00:00Z".parse().unwrap();
        let Absent::Put(output) = rows.absent(&prior(None), Some(br#"{"id":1,"z":true}"#), now) else {
            panic!("a row that is gone is marked")
        };
        assert_eq!(&output.value[..], br#"{"id":1,"missing_since":"2026-11-15T00:00:00.000Z","z":true}"#);
        assert_eq!(rows.absent(&prior(output.carry.clone()), None, now), Absent::Keep);
        for value in
            [r#"{"id":1,"z":true}"#, r#"{"id":1,"missing_since":"2020-01-01T00:00:00.000Z","z":true}"#]
        {
            let again = rows.mark_again(&prior(output.carry.clone()), value.as_bytes()).unwrap();
            assert_eq!(again.value, output.value, "the mark stays what it was");
        }
    }

    #[test]
    fn a_row_is_deleted_only_where_the_config_says_so() {
        let rows = Rows::new(RowsSpec { on_missing: OnMissing::Delete });
        assert_eq!(rows.absent(&prior(None), None, Timestamp::UNIX_EPOCH), Absent::Delete);
    }
}
