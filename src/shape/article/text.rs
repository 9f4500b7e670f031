//! Plain text inside Markdown: what goes in must come out of a CommonMark parser as it was.

use std::borrow::Cow;

use super::html::escape::{is_entity, opens_tag};

/// Text on one line: every run of white space that holds a line end is a space.
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.contains(['\n', '\r']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(
        text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "),
    )
}

/// The text of a heading. Brackets stay as they are unless they would make a link.
pub fn heading(text: &str) -> String {
    let text = line(text);
    let mut escaped = escape(&text, text.contains("]("));
    // A heading may be closed by a run of `#`; ours is not.
    let end = escaped.trim_end_matches('#').len();
    if end < escaped.len() {
        escaped.insert(end, '\\');
    }
    escaped
}

/// The text of a link.
pub fn link_text(text: &str) -> String {
    escape(&line(text), true)
}

fn escape(text: &str, brackets: bool) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let next = rest.chars().next().unwrap_or(' ');
        let escaped = match c {
            '[' | ']' => brackets,
            '*' | '`' => true,
            // Between letters an underscore is just a letter.
            '_' => !(before.is_alphanumeric() && next.is_alphanumeric()),
            '\\' => next.is_ascii_punctuation() || next == ' ',
            '<' => opens_tag(rest.as_bytes()),
            '&' => is_entity(&text[at..]),
            // GFM: a run of tildes strikes text out.
            '~' => true,
            _ => false,
        };
        if escaped {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    out
}

/// The target of a link: parentheses, spaces and what else would end or change it are percent-encoded.
pub fn link_target(url: &str) -> String {
    let mut out = String::with_capacity(url.len() + 8);
    for (at, c) in url.char_indices() {
        match c {
            '(' | ')' | ' ' | '<' | '>' | '\\' => percent(c, &mut out),
            c if c.is_control() || c.is_whitespace() => percent(c, &mut out),
            // An entity would be decoded; the ampersand itself is meant.
            '&' if is_entity(&url[at..]) => out.push_str("&amp;"),
            c => out.push(c),
        }
    }
    out
}

fn percent(c: char, out: &mut String) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        out.push_str(&format!("%{byte:02X}"));
    }
}
