//! The small nouns everything is made of: versions, fingerprints, entries of a source.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
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
        Version(itoa::Buffer::new().format(number).to_owned())
    }
}

/// SHA-256 of whatever a shape says makes two values "the same" (it may leave parts out, like a time of writing).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

/// A fingerprint in base64, in the alphabet of URLs and without padding.
const LETTERS: usize = 43;

impl Fingerprint {
    pub fn of(bytes: &[u8]) -> Self {
        Fingerprint(Sha256::digest(bytes).into())
    }

    /// Hash of several parts, each behind its length, so that ("ab","c") and ("a","bc") differ.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        // Most are short, and hashing them in one go takes half as long.
        const SHORT: usize = 256;
        let mut room = [0; SHORT];
        let mut at = 0;
        let mut add = |bytes: &[u8]| {
            let end = at + bytes.len();
            let free = room.get_mut(at..end)?;
            free.copy_from_slice(bytes);
            at = end;
            Some(())
        };
        let fits = parts.iter().try_for_each(|part| {
            add(&(part.len() as u64).to_be_bytes())?;
            add(part)
        });
        if fits.is_some() {
            return Fingerprint::of(&room[..at]);
        }
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Fingerprint(hash.finalize().into())
    }

    /// 64 digits, and nothing before them.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let text = (text.len() == 2 * bytes.len()).then_some(text)?;
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Fingerprint(bytes))
    }

    /// As records of the state have it: 43 letters, or the 64 digits of older ones.
    pub fn read(text: &str) -> Option<Self> {
        // Room for what the decoder may write beside it.
        let mut bytes = [0; 33];
        if text.len() != LETTERS {
            return Fingerprint::parse(text);
        }
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        Fingerprint::from_slice(&bytes[..length])
    }

    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        Some(Fingerprint(bytes.try_into().ok()?))
    }

    /// Its 64 digits, without a string of their own.
    pub fn with_hex<T>(&self, tell: impl FnOnce(&str) -> T) -> T {
        tell(hex::Buffer::<32>::new().format(&self.0))
    }

    /// Its 43 letters, a third less than the digits.
    pub fn with_letters<T>(&self, tell: impl FnOnce(&[u8]) -> T) -> T {
        let mut letters = [0; LETTERS];
        // 32 bytes always are as many.
        let _ = URL_SAFE_NO_PAD.encode_slice(self.0, &mut letters);
        tell(&letters)
    }

    /// Whether these are its digits.
    pub fn is_told_by(&self, digits: &str) -> bool {
        self.with_hex(|own| own == digits)
    }

    /// Enough of it for a person to tell two apart.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..6])
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_hex(|text| f.write_str(text))
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
        self.with_hex(|text| serializer.serialize_str(text))
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 32]>::deserialize(deserializer).map(Fingerprint);
        }
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Fingerprint::read(&text).ok_or_else(|| serde::de::Error::custom("not a SHA-256 in base64 or hex"))
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
    /// SHA-256 of that body, where the source knows it: nobody need hash it again.
    pub print: Option<Fingerprint>,
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
            print: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_and_nothing_else() {
        let print = Fingerprint::of(b"x");
        let text = print.to_string();
        assert_eq!(Fingerprint::parse(&text), Some(print));
        assert!(print.is_told_by(&text) && !print.is_told_by(&text.to_uppercase()));
        for other in [&text[1..], &format!("0x{text}"), &format!("0x{}", &text[2..]), "", &"g".repeat(64)] {
            assert_eq!(Fingerprint::parse(other), None, "{other}");
        }
    }

    #[test]
    fn letters_and_digits_are_read_alike_and_nothing_else() {
        for value in ["", "x", "y", "many more"] {
            let print = Fingerprint::of(value.as_bytes());
            let letters = print.with_letters(|letters| String::from_utf8(letters.to_vec()).unwrap());
            assert_eq!((letters.len(), letters.contains('=')), (LETTERS, false));
            assert_eq!(Fingerprint::read(&letters), Some(print));
            assert_eq!(Fingerprint::read(&print.to_string()), Some(print));
            for other in [&letters[1..], &format!("{letters}="), &format!("={}", &letters[1..]), ""] {
                assert_eq!(Fingerprint::read(other), None, "{other}");
            }
        }
    }

    #[test]
    fn parts_hash_the_same_in_one_go_and_piece_by_piece() {
        for length in [0, 1, 100, 239, 240, 241, 1_000] {
            let part = vec![7u8; length];
            let mut hash = Sha256::new();
            for part in [&part[..], b"end"] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
            assert_eq!(Fingerprint::of_parts(&[&part, b"end"]).0, hash.finalize()[..], "{length}");
        }
        assert_ne!(Fingerprint::of_parts(&[b"ab", b"c"]), Fingerprint::of_parts(&[b"a", b"bc"]));
    }
}
