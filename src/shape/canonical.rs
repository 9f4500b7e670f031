//! Canonical JSON (RFC 8785): one text per value, whatever order its fields came in.
//!
//! Keys are sorted here, by UTF-16 code units, and never taken from the order of a map: a feature of `serde_json` that
//! another crate turns on cannot change a hash. Numbers are IEEE doubles, as the RFC wants them.
//! It refuses nothing: a `serde_json::Value` holds no NaN and no lone surrogate.

use serde_json::{Map, Number, Value};

use crate::record::Fingerprint;

/// Above this an integer is no longer exact as a double.
pub const EXACT_MAX: u64 = 1 << 53;

/// The canonical text.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(&mut out, value);
    out
}

/// SHA-256 of the canonical text.
pub fn fingerprint(value: &Value) -> Fingerprint {
    Fingerprint::of(&to_vec(value))
}

pub fn write(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(out, item);
            }
            out.push(b']');
        }
        Value::Object(map) => write_object(out, map),
    }
}

fn write_object(out: &mut Vec<u8>, map: &Map<String, Value>) {
    let mut fields: Vec<(&str, &Value)> = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
    if !fields.is_sorted_by(|a, b| a.0 < b.0) || fields.iter().any(|(key, _)| !key.is_ascii()) {
        fields.sort_unstable_by(|a, b| utf16_order(a.0, b.0));
    }
    out.push(b'{');
    for (at, (key, value)) in fields.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, key);
        out.push(b':');
        write(out, value);
    }
    out.push(b'}');
}

/// Code units, not characters: beyond the basic plane the two orders differ.
fn utf16_order(a: &str, b: &str) -> std::cmp::Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

/// A number as JavaScript prints it.
pub fn write_number(out: &mut Vec<u8>, number: &Number) {
    if let Some(whole) = number.as_i64().filter(|whole| whole.unsigned_abs() <= EXACT_MAX) {
        return write_integer(out, whole);
    }
    // Every JSON number has a nearest double; serde_json refuses those too large for one.
    write_real(out, number.as_f64().unwrap_or_default());
}

pub fn write_integer(out: &mut Vec<u8>, whole: i64) {
    const DIGITS: usize = 20;
    let mut text = [0u8; DIGITS];
    let mut at = DIGITS;
    let mut rest = whole.unsigned_abs();
    loop {
        at -= 1;
        // A digit is below ten.
        text[at] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if whole < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&text[at..]);
}

pub fn write_real(out: &mut Vec<u8>, real: f64) {
    out.extend_from_slice(ryu_js::Buffer::new().format(real).as_bytes());
}

/// What stands for each byte: 0 = itself, `u` = \u00XX, anything else = a backslash and this.
static ESCAPES: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut at = 0;
    while at < 0x20 {
        table[at] = b'u';
        at += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0A] = b'n';
    table[0x0C] = b'f';
    table[0x0D] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

pub fn write_string(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    out.reserve(rest.len() + 2);
    out.push(b'"');
    while let Some(at) = first_escape(rest) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        match ESCAPES[usize::from(byte)] {
            b'u' => {
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
            escape => out.extend_from_slice(&[b'\\', escape]),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Where the first byte is that does not stand for itself.
#[allow(clippy::needless_bitwise_bool)] // lazy operators would be branches, one byte after the other
fn first_escape(bytes: &[u8]) -> Option<usize> {
    // Most texts have none: compared side by side, a stride takes the processor no longer than a byte.
    const STRIDE: usize = 16;
    let is_plain = |stride: &&[u8; STRIDE]| {
        !stride.iter().fold(false, |found, byte| found | (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\'))
    };
    let plain = STRIDE * bytes.as_chunks().0.iter().take_while(is_plain).count();
    bytes[plain..].iter().position(|byte| ESCAPES[usize::from(*byte)] != 0).map(|at| plain + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// serde_json escapes what the RFC wants escaped, in the same way.
    #[test]
    fn escapes_are_found_wherever_they_stand() {
        for special in ["\"", "\\", "\n", "\u{8}", "\0", "\u{1f}", " ", "\u{7f}", "é", "€", "😀"] {
            for before in 0..40 {
                for text in [
                    format!("{}{special}{}", "x".repeat(before), "y".repeat(40 - before)),
                    format!("{}{special}", "é".repeat(before)),
                    special.repeat(before),
                ] {
                    let mut out = b"before".to_vec();
                    write_string(&mut out, &text);
                    let expected = format!("before{}", serde_json::to_string(&text).unwrap());
                    assert_eq!(String::from_utf8(out).unwrap(), expected);
                }
            }
        }
    }
}
