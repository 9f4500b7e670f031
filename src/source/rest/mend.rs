//! Values that JSON can write and nothing can hold: numbers beyond every double (`1e400`), halves of characters
//! (`"\ud83d"`). One of them makes a whole answer unreadable; with something that fits no column in its place, it is the
//! error of the item it stands in.

/// Stands for such a value: an object, which is no text, number or truth, under a name nobody else uses.
pub const UNREADABLE: &str = "\u{0}unreadable";

/// In its place.
const INSTEAD: &[u8] = b"{\"\\u0000unreadable\":true}";

/// The answer without such values; `None` = it has none, and what is wrong with it is something else.
pub fn mended(body: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut copied, mut at) = (Vec::new(), 0, 0);
    while let Some(byte) = body.get(at) {
        let start = at;
        match byte {
            b'"' => {
                at = end_of_text(body, at);
                if has_half(&body[start..at]) {
                    out.extend_from_slice(&body[copied..start]);
                    out.extend_from_slice(if is_name(body, at) { b"\"\\ufffd\"" } else { INSTEAD });
                    copied = at;
                }
            }
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                at += body[at..].iter().position(|byte| !is_part(byte)).unwrap_or(body.len() - at);
                let number = std::str::from_utf8(&body[start..at]).ok()?.parse::<f64>();
                if number.is_ok_and(f64::is_infinite) {
                    out.extend_from_slice(&body[copied..start]);
                    out.extend_from_slice(INSTEAD);
                    copied = at;
                }
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return None;
    }
    out.extend_from_slice(&body[copied..]);
    Some(out)
}

/// Behind the text that begins here.
fn end_of_text(body: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = body.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    body.len()
}

/// Whether what ends here is the name of a member.
fn is_name(body: &[u8], end: usize) -> bool {
    body[end..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// Whether a text has one half of a surrogate pair without the other.
fn has_half(text: &[u8]) -> bool {
    let unit = |at: usize| {
        let digits = std::str::from_utf8(text.get(at + 2..at + 6)?).ok()?;
        (text.get(at..at + 2)? == b"\\u").then(|| u16::from_str_radix(digits, 16).ok())?
    };
    let mut at = 0;
    while at < text.len() {
        at += match (text[at], unit(at)) {
            (b'\\', Some(0xd800..=0xdbff)) => match unit(at + 6) {
                Some(0xdc00..=0xdfff) => 12,
                _ => return true,
            },
            (b'\\', Some(0xdc00..=0xdfff)) => return true,
            (b'\\', _) => 2,
            _ => 1,
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_can_hold_is_replaced_and_all_else_stays() {
        let instead = std::str::from_utf8(INSTEAD).unwrap();
        for (body, mend) in [
            (r#"[{"x": 1e400}, {"x": 1}]"#, Some(format!(r#"[{{"x": {instead}}}, {{"x": 1}}]"#))),
            ("[-1E+999,2]", Some(format!("[{instead},2]"))),
            (r#"["cut \ud83d", "a"]"#, Some(format!(r#"[{instead}, "a"]"#))),
            (r#"["\udc00"]"#, Some(format!("[{instead}]"))),
            (r#"["\ud83d\ud83d\ude00"]"#, Some(format!("[{instead}]"))),
            (r#"{"\ud83d" : 1}"#, Some(r#"{"\ufffd" : 1}"#.to_owned())),
            (r#"["\ud83d\ude00", "\\ud83d", "1e400", 1e308, "\""]"#, None),
            ("[1, tru", None),
            (r#"["\"#, None),
            ("", None),
        ] {
            let found = mended(body.as_bytes()).map(|found| String::from_utf8(found).unwrap());
            assert_eq!(found, mend, "{body}");
        }
    }
}
