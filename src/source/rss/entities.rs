//! Entities that are left after XML had its turn: boards write HTML into CDATA, where XML decodes nothing.

use std::borrow::Cow;

const NAMES: [(&str, char); 6] =
    [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&'), ("&quot;", '"'), ("&#39;", '\''), ("&apos;", '\'')];

/// Decodes once: `&amp;lt;` becomes `&lt;`.
pub fn decode(text: &str) -> Cow<'_, str> {
    let Some(mut at) = text.find('&') else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((name, c)) = NAMES.iter().find(|(name, _)| rest.starts_with(name)) {
            out.push(*c);
            rest = &rest[name.len()..];
        } else {
            out.push('&');
            rest = &rest[1..];
        }
        let Some(next) = rest.find('&') else { break };
        at = next;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Is there a tag or a comment in this text, rather than a lone `<`?
pub fn has_tag(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'<').any(|(at, _)| match bytes.get(at + 1) {
        Some(b'/') => bytes.get(at + 2).is_some_and(u8::is_ascii_alphabetic),
        Some(b'!') => bytes[at..].starts_with(b"<!--"),
        Some(byte) => byte.is_ascii_alphabetic(),
        None => false,
    })
}

/// The description of an item that came as CDATA: escaped markup is unfolded, real markup stays.
pub fn description(text: String) -> String {
    if text.contains("&lt;") && !has_tag(&text) { decode(&text).into_owned() } else { text }
}

/// Text as HTML that shows exactly it.
pub fn to_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_decoded_once_and_only_the_six() {
        assert_eq!(decode("a &lt;b&gt; &amp;lt; &quot;&#39;&apos; &nbsp; & x"), "a <b> &lt; \"'' &nbsp; & x");
        assert_eq!(decode("plain"), "plain");
    }

    #[test]
    fn only_escaped_markup_is_unfolded() {
        assert_eq!(description("&lt;p&gt;1 &amp;lt; 2&lt;/p&gt;".into()), "<p>1 &lt; 2</p>");
        assert_eq!(description("<p>1 &lt; 2</p>".into()), "<p>1 &lt; 2</p>");
        assert_eq!(description("a &amp; b".into()), "a &amp; b");
        assert_eq!(description("1 < 2 &lt; 3".into()), "1 < 2 < 3");
    }
}
