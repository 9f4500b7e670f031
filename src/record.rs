//! The small nouns everything is made of: versions, fingerprints, entries of a source.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// A store's own mark on what it holds under a key. Opaque: only ever compared for equality.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub String);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<i64> for Version {
    fn from(number: i64) -> Self {
        Version(number.to_string())
    }
}

/// SHA-256 of whatever a shape says makes two values "the same" (it may leave parts out, like a time of writing).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub fn of(bytes: &[u8]) -> Self {
        Fingerprint(Sha256::digest(bytes).into())
    }

    /// Hash of several parts, each behind its length, so that ("ab","c") and ("a","bc") differ.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Fingerprint(hash.finalize().into())
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Fingerprint(bytes))
    }

    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        Some(Fingerprint(bytes.try_into().ok()?))
    }

    /// Its 64 digits, without a string of their own.
    fn with_hex<T>(&self, tell: impl FnOnce(&str) -> T) -> Option<T> {
        let mut text = [0; 64];
        hex::encode_to_slice(self.0, &mut text).ok()?;
        std::str::from_utf8(&text).ok().map(tell)
    }

    /// Whether these are its digits.
    pub fn is_told_by(&self, digits: &str) -> bool {
        digits.len() == 64 && self.with_hex(|own| own == digits).unwrap_or(false)
    }

    /// Enough of it for a person to tell two apart.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..6])
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_hex(|text| f.write_str(text)).unwrap_or(Err(fmt::Error))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.short())
    }
}

/// Hex where people read it, plain bytes in the binary encoding of plans.
impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return self.0.serialize(serializer);
        }
        let told = self.with_hex(|text| serializer.serialize_str(text));
        told.unwrap_or_else(|| Err(serde::ser::Error::custom("a hash is not to be told in hex")))
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 32]>::deserialize(deserializer).map(Fingerprint);
        }
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Fingerprint::parse(&text).ok_or_else(|| serde::de::Error::custom("not a SHA-256 in hex"))
    }
}

/// A part of a source that is read, or fails, as a whole: a folder, a board, a resource.
/// Slash-separated; the empty scope is the whole source. The first segment is the group reports show.
pub type Scope = Arc<str>;

/// One thing a source has, without its body (unless the listing itself brought it).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The source's own name for it: a path, a row id. Unique within the source.
    pub id: String,
    pub scope: Scope,
    /// Version of the body: a blob SHA, a checksum, or file times. Equal versions mean equal bodies.
    pub version: String,
    pub size: Option<u64>,
    /// What the shape needs besides the body (source-specific JSON); part of what makes an entry "the same".
    #[serde(with = "json_text")]
    pub facts: Option<serde_json::Value>,
    /// The body, when the listing brought it along (feeds, REST).
    pub inline: Option<Bytes>,
}

impl Entry {
    pub fn new(id: impl Into<String>, scope: &Scope, version: impl Into<String>) -> Self {
        Entry {
            id: id.into(),
            scope: scope.clone(),
            version: version.into(),
            size: None,
            facts: None,
            inline: None,
        }
    }
}

/// An entry's body as it was read, with the version that very reading belongs to.
#[derive(Debug, Clone)]
pub struct Body {
    pub bytes: Bytes,
    pub version: String,
}

/// The group a scope is reported under.
pub fn group_of(scope: &str) -> &str {
    match scope.split('/').next() {
        None | Some("") => ".",
        Some(first) => first,
    }
}

/// Facts travel as JSON text, because the plan's binary encoding cannot carry free-form values.
mod json_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    pub fn serialize<S: Serializer>(value: &Option<serde_json::Value>, to: S) -> Result<S::Ok, S::Error> {
        let text = value.as_ref().map(serde_json::to_string).transpose().map_err(ser::Error::custom)?;
        text.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<serde_json::Value>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(de::Error::custom)
    }
}
