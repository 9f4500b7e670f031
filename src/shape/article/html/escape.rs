//! Text that must not be taken for Markdown. The escapes are Turndown's; `<` and `&` are escaped besides where a
//! CommonMark reader would take what follows for a tag or an entity and lose the text.

use std::borrow::Cow;

pub fn text(raw: &str) -> Cow<'_, str> {
    let bytes = raw.as_bytes();
    let start = start_escape(bytes);
    let busy =
        bytes.iter().any(|byte| matches!(byte, b'\\' | b'*' | b'`' | b'[' | b']' | b'_' | b'<' | b'&'));
    if start.is_none() && !busy {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len() + 8);
    let mut rest = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escaped = start == Some(at)
            || match byte {
                b'\\' | b'*' | b'`' | b'[' | b']' | b'_' => true,
                b'<' => opens_tag(&bytes[at + 1..]),
                b'&' => is_entity(&raw[at..]),
                _ => false,
            };
        if escaped {
            out.push_str(&raw[rest..at]);
            out.push('\\');
            rest = at;
        }
    }
    out.push_str(&raw[rest..]);
    Cow::Owned(out)
}

/// Where the beginning of a text needs a backslash, so that it does not start a block.
fn start_escape(bytes: &[u8]) -> Option<usize> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 {
        return bytes[digits..].starts_with(b". ").then_some(digits);
    }
    let hashes = bytes.iter().take_while(|byte| **byte == b'#').count();
    let starts = match bytes.first()? {
        b'-' | b'=' | b'>' => true,
        b'+' => bytes.starts_with(b"+ "),
        b'#' => hashes <= 6 && bytes.get(hashes) == Some(&b' '),
        b'~' => bytes.starts_with(b"~~~"),
        _ => false,
    };
    starts.then_some(0)
}

/// What follows a `<`: would it be a tag, a comment, a declaration or an autolink?
pub fn opens_tag(after: &[u8]) -> bool {
    after.first().is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'!' | b'?'))
}

/// Longest entity name HTML knows, and room for any character reference.
const ENTITY_MAX: usize = 33;

/// Does this text, which starts with `&`, start with an entity or a character reference?
pub fn is_entity(text: &str) -> bool {
    let body = &text.as_bytes()[1..];
    let Some(end) = body.iter().take(ENTITY_MAX).position(|byte| *byte == b';') else { return false };
    match &body[..end] {
        [] | [b'#'] => false,
        [b'#', b'x' | b'X', hex @ ..] => !hex.is_empty() && hex.iter().all(u8::is_ascii_hexdigit),
        [b'#', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        name => name.iter().all(u8::is_ascii_alphanumeric),
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn what_would_be_markup_gets_a_backslash_and_nothing_else_does() {
        let cases = [
            ("plain", "plain"),
            ("a*b_c`d[e]f\\", "a\\*b\\_c\\`d\\[e\\]f\\\\"),
            ("1. one", "1\\. one"),
            ("1.one", "1.one"),
            ("12. x", "12\\. x"),
            ("-x", "\\-x"),
            ("a - b", "a - b"),
            ("+ x", "\\+ x"),
            ("+x", "+x"),
            ("== x", "\\== x"),
            ("## x", "\\## x"),
            ("####### x", "####### x"),
            ("~~~", "\\~~~"),
            ("> x", "\\> x"),
            ("1 < 2", "1 < 2"),
            ("a <b> c", "a \\<b> c"),
            ("AT&T", "AT&T"),
            ("&lt;", "\\&lt;"),
            ("&#39;", "\\&#39;"),
            ("가나다 라", "가나다 라"),
        ];
        for (raw, escaped) in cases {
            assert_eq!(text(raw), escaped, "{raw}");
        }
    }
}
