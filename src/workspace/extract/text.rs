//! Bytes as text, and text without the noise of its origin.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

use super::broken;
use crate::error::Result;

/// By its byte-order mark, else UTF-8, else the Western encoding old files have.
pub fn decoded(bytes: &[u8]) -> Result<String> {
    let encoding = match Encoding::for_bom(bytes) {
        Some((encoding, _)) => encoding,
        None if bytes.contains(&0) => return Err(broken("it is no text")),
        None if std::str::from_utf8(bytes).is_ok() => UTF_8,
        None => WINDOWS_1252,
    };
    let (text, _, _) = encoding.decode(bytes);
    Ok(text.into_owned())
}

/// Line ends as one kind, no blanks behind lines, no more than one empty line, no control characters.
pub fn tidied(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace(['\r', '\u{c}', '\u{b}'], "\n");
    let mut tidy = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines() {
        let line: String = line.trim_end().chars().filter(|c| !c.is_control() || *c == '\t').collect();
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty <= 1 {
            tidy.push_str(&line);
            tidy.push('\n');
        }
    }
    tidy.trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_encodings_are_read() {
        assert_eq!(decoded("né".as_bytes()).unwrap(), "né");
        assert_eq!(decoded(b"n\xe9").unwrap(), "né");
        assert_eq!(decoded(b"\xff\xfen\0\xe9\0").unwrap(), "né");
        assert_eq!(decoded(b"\xef\xbb\xbfn").unwrap(), "n");
        assert!(decoded(b"\x7fELF\0\0").is_err());
    }

    #[test]
    fn noise_goes_and_words_stay() {
        assert_eq!(tidied("\n\na  \r\n\r\n\r\n\r\nb\u{0}\u{c}c\n"), "a\n\nb\nc");
    }
}
