//! The plainest shape: the key is the entry's id, the value its body, byte for byte.

use jiff::Timestamp;

use super::{Absent, Existing, Identified, Input, Output, Prior, Rendered, Shape};
use crate::error::Result;
use crate::record::{Entry, Fingerprint};

pub struct Raw;

impl Shape for Raw {
    fn name(&self) -> &'static str {
        "raw"
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
        Existing::Hold
    }

    fn identify(&self, entry: &Entry) -> Result<Identified> {
        Ok(Identified { identity: entry.id.clone(), rank: String::new() })
    }

    fn claims(&self, _key: &str) -> Option<String> {
        None
    }

    fn render(&self, input: &Input<'_>) -> Result<Rendered> {
        let Some(body) = input.body else { return Ok(Rendered::NeedBody) };
        Ok(Rendered::Put(Output {
            key: input.identity.to_owned(),
            value: body.bytes.clone(),
            fingerprint: Fingerprint::of(&body.bytes),
            carry: None,
            retire: Vec::new(),
        }))
    }

    fn absent(&self, _prior: &Prior, _value: Option<&[u8]>, _now: Timestamp) -> Absent {
        Absent::Delete
    }
}
