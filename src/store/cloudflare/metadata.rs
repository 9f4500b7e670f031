//! What is kept beside a key: the value's version, and of a registry row what tells it from another. Pure.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::record::Fingerprint;

/// Serialised metadata may not be longer.
pub const BYTES_MAX: usize = 1_024;
/// Members that make a JSON value a row worth summing up.
const TELLING: [&str; 3] = ["sha", "path", "title"];
/// Says nothing about what the row is.
const FLEETING: &str = "lastUpdated";

pub fn version(value: &[u8]) -> String {
    Fingerprint::of(value).to_string()[..32].to_owned()
}

/// The metadata of a value. A summary that would not fit is left out; whoever takes stock then reads the value.
pub fn of(value: &[u8]) -> Value {
    let plain = json!({"version": version(value)});
    let Some(row) = summary(value) else { return plain };
    let full = json!({"version": version(value), "row": row});
    if full.to_string().len() <= BYTES_MAX { full } else { plain }
}

fn summary(value: &[u8]) -> Option<Map<String, Value>> {
    let Value::Object(mut row) = serde_json::from_slice(value).ok()? else { return None };
    if !TELLING.iter().all(|name| row.get(*name).is_some_and(Value::is_string)) {
        return None;
    }
    row.remove(FLEETING);
    Some(row)
}

pub fn version_in(metadata: &Value) -> Option<String> {
    metadata.get("version")?.as_str().map(str::to_owned)
}

/// The row as far as the metadata tells it.
pub fn summary_in(metadata: &Value) -> Option<Bytes> {
    metadata.get("row").map(|row| Bytes::from(row.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_summed_up_and_anything_else_only_has_its_version() {
        let row = br#"{"policyName":"a","title":"T","sha":"0","path":"a.md","lastUpdated":"x","fileNo":7}"#;
        let kept = of(row);
        assert_eq!(version_in(&kept), Some(version(row)));
        let summed: Value = serde_json::from_slice(&summary_in(&kept).unwrap()).unwrap();
        assert_eq!(summed, json!({"policyName": "a", "title": "T", "sha": "0", "path": "a.md", "fileNo": 7}));
        for other in [&b"text"[..], b"\xFF", b"[1]", br#"{"title":"T"}"#] {
            assert_eq!(summary_in(&of(other)), None);
        }
        let long = json!({"title": "x".repeat(1_000), "sha": "0", "path": "a.md"}).to_string();
        assert_eq!(summary_in(&of(long.as_bytes())), None);
        assert!(of(long.as_bytes()).to_string().len() <= BYTES_MAX);
    }
}
