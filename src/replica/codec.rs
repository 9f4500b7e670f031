//! Between etcd's bytes and PostgreSQL's text. Nothing is lost on the way: a value that is no text becomes base64,
//! a key that is none is quarantined with all its bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::etcd::event::EventType;
use crate::etcd::{Event, KeyValue};

/// What the `etcd` table takes as a key.
pub const KEY_BYTES_MAX: usize = 2_048;

/// One row of history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    /// `None` = deleted.
    pub value: Option<String>,
    pub base64: bool,
    pub revision: i64,
}

/// A change of a key that cannot be a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    pub key: Bytes,
    pub value: Option<Bytes>,
    pub revision: i64,
    pub why: &'static str,
}

/// What became of one key at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    Row(Change),
    Odd(Quarantined),
}

impl Change {
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, String::len) + ROW_OVERHEAD
    }

    pub fn encoding(&self) -> &'static str {
        if self.base64 { "base64" } else { "utf8" }
    }
}

/// Lengths, revision, flag and encoding of a row in a COPY, roughly.
const ROW_OVERHEAD: usize = 48;

pub fn read_event(event: Event) -> Option<Read> {
    let deleted = event.r#type() == EventType::Delete;
    event.kv.map(|pair| read(pair, deleted))
}

pub fn read_pair(pair: KeyValue) -> Read {
    read(pair, false)
}

fn read(pair: KeyValue, deleted: bool) -> Read {
    let revision = pair.mod_revision;
    let why = if pair.key.len() > KEY_BYTES_MAX {
        "the key is longer than 2,048 bytes"
    } else if pair.key.contains(&0) {
        "the key holds a NUL byte"
    } else if std::str::from_utf8(&pair.key).is_err() {
        "the key is not UTF-8"
    } else {
        let key = String::from_utf8_lossy(&pair.key).into_owned();
        let (value, base64) = if deleted { (None, false) } else { text_of(&pair.value) };
        return Read::Row(Change { key, value, base64, revision });
    };
    Read::Odd(Quarantined { key: pair.key, value: (!deleted).then_some(pair.value), revision, why })
}

/// A value as PostgreSQL text takes it, and whether that is base64.
fn text_of(value: &[u8]) -> (Option<String>, bool) {
    match std::str::from_utf8(value) {
        Ok(text) if !value.contains(&0) => (Some(text.to_owned()), false),
        _ => (Some(STANDARD.encode(value)), true),
    }
}

/// The bytes a queued write means; `None` when its base64 is none.
pub fn bytes_of(value: &str, encoding: &str) -> Option<Bytes> {
    match encoding {
        "base64" => STANDARD.decode(value).ok().map(Bytes::from),
        _ => Some(Bytes::copy_from_slice(value.as_bytes())),
    }
}

/// `COPY … (key, value, revision, tombstone, encoding) FROM STDIN BINARY`, field by field as the protocol has it.
pub struct CopyBuffer(BytesMut);

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const FIELDS: i16 = 5;
const NULL: i32 = -1;
const END: i16 = -1;

impl CopyBuffer {
    pub fn with_capacity(bytes: usize) -> Self {
        let mut buffer = BytesMut::with_capacity(bytes + 64);
        buffer.put_slice(SIGNATURE);
        buffer.put_i32(0); // flags
        buffer.put_i32(0); // header extension
        CopyBuffer(buffer)
    }

    pub fn push(&mut self, change: &Change) {
        encode(&mut self.0, change);
    }

    pub fn finish(mut self) -> Bytes {
        self.0.put_i16(END);
        self.0.freeze()
    }
}

/// What comes before the rows of a COPY.
pub fn copy_head() -> Bytes {
    CopyBuffer::with_capacity(0).0.freeze()
}

/// And what comes after them.
pub fn copy_tail() -> Bytes {
    Bytes::copy_from_slice(&END.to_be_bytes())
}

/// One row of a COPY.
pub fn encode(buffer: &mut BytesMut, change: &Change) {
    buffer.put_i16(FIELDS);
    text(buffer, &change.key);
    match &change.value {
        Some(value) => text(buffer, value),
        None => buffer.put_i32(NULL),
    }
    buffer.put_i32(8);
    buffer.put_i64(change.revision);
    buffer.put_i32(1);
    buffer.put_u8(u8::from(change.value.is_none()));
    text(buffer, change.encoding());
}

fn text(buffer: &mut BytesMut, text: &str) {
    // Keys are 2 KB and values 2 MB at most: etcd's own limits.
    buffer.put_i32(i32::try_from(text.len()).unwrap_or(i32::MAX));
    buffer.put_slice(text.as_bytes());
}

/// A row as it was encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    pub key: &'a str,
    pub value: Option<&'a str>,
    pub revision: i64,
    pub encoding: &'a str,
}

/// Encoded rows one by one.
pub struct Rows<'a>(pub &'a [u8]);

impl<'a> Rows<'a> {
    fn field(&mut self) -> Option<&'a str> {
        // Negative = NULL.
        let bytes = usize::try_from(self.0.get_i32()).ok()?;
        let (field, rest) = self.0.split_at(bytes);
        self.0 = rest;
        std::str::from_utf8(field).ok()
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.advance(size_of::<i16>());
        let (key, value) = (self.field().unwrap_or_default(), self.field());
        self.0.advance(size_of::<i32>());
        let revision = self.0.get_i64();
        self.0.advance(size_of::<i32>() + 1);
        Some(Row { key, value, revision, encoding: self.field().unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &[u8], value: &[u8]) -> KeyValue {
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        KeyValue { key, value, mod_revision: 7, ..KeyValue::default() }
    }

    #[test]
    fn text_stays_text_and_other_bytes_come_back_through_base64() {
        for value in [&b"plain"[..], "한글".as_bytes(), b"", b"\xff\x00\xfe", b"a\0b"] {
            let Read::Row(change) = read_pair(pair(b"/k", value)) else { panic!("a row") };
            let text = change.value.clone().unwrap();
            assert_eq!(bytes_of(&text, change.encoding()).unwrap(), value);
            assert_eq!(change.base64, value.contains(&0));
        }
    }

    #[test]
    fn encoded_rows_can_be_read_again() {
        let change = |key: &str, value: Option<&str>, base64, revision| Change {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            base64,
            revision,
        };
        let changes = [
            change("/a", Some("한글"), false, 7),
            change("/b", None, false, 8),
            change("/c", Some(""), true, 9),
        ];
        let mut buffer = BytesMut::new();
        for change in &changes {
            encode(&mut buffer, change);
        }
        let rows: Vec<Change> = Rows(&buffer)
            .map(|row| change(row.key, row.value, row.encoding == "base64", row.revision))
            .collect();
        assert_eq!(rows, changes);
    }

    #[test]
    fn a_key_that_cannot_be_text_is_kept_in_quarantine() {
        for key in [&b"/\xff"[..], b"/a\0b", &[b'k'; KEY_BYTES_MAX + 1]] {
            let Read::Odd(odd) = read_pair(pair(key, b"v")) else { panic!("quarantined") };
            assert_eq!((odd.key.as_ref(), odd.value.as_deref()), (key, Some(&b"v"[..])));
        }
    }
}
