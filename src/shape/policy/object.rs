//! A policy as a file: the row as front matter, then the document byte for byte. Pure.

use bytes::{BufMut, Bytes, BytesMut};

use super::entry::PolicyEntry;

/// Between the front matter and the document.
const END: &str = "\n---\n\n";

pub fn compose(row: &PolicyEntry, saved_at: &str, document: &[u8]) -> Bytes {
    let members = [
        ("policyName", row.policy_name.as_str()),
        ("title", &row.title),
        ("sha", &row.sha),
        ("path", &row.path),
        ("savedAt", saved_at),
        ("lastUpdated", &row.last_updated),
    ];
    let mut text = String::from("---");
    for (name, value) in members {
        text.push_str(&format!("\n{name}: {}", quoted(value)));
    }
    text.push_str(END);
    let mut file = BytesMut::with_capacity(text.len() + document.len());
    file.put_slice(text.as_bytes());
    file.put_slice(document);
    file.freeze()
}

/// The document in a file that was composed here. Its front matter has one line per member, so the first end is the end.
pub fn document(file: &[u8]) -> Option<&[u8]> {
    let rest = file.strip_prefix(b"---\n")?;
    let end = END.as_bytes();
    let at = rest.windows(end.len()).position(|window| window == end)?;
    Some(&rest[at + end.len()..])
}

/// What its front matter says.
pub fn member(file: &[u8], name: &str) -> Option<String> {
    let head = &file[..file.len() - document(file)?.len()];
    let head = std::str::from_utf8(head).ok()?;
    let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
    serde_json::from_str(value).ok()
}

/// A double-quoted scalar that every YAML reader understands: JSON, with what YAML calls unprintable escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control()
                || matches!(c, '\u{2028}' | '\u{2029}' | '\u{FEFF}' | '\u{FFFE}' | '\u{FFFF}') =>
            {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Deprecated, Status};
    use super::*;

    fn row() -> PolicyEntry {
        PolicyEntry {
            policy_name: "학칙".into(),
            title: "A \"b\" \\ c\u{7F}".into(),
            status: Status::Active,
            last_updated: "2025-10-20T16:00:00.000Z".into(),
            sha: "0".repeat(40),
            path: "규정/학칙.md".into(),
            fields: Deprecated::default(),
        }
    }

    #[test]
    fn a_file_is_front_matter_and_the_document_byte_for_byte() {
        let body = b"\xEF\xBB\xBF# T\r\n\n---\n\nmore\xFF";
        let file = compose(&row(), "2025-10-20T16:00:01.000Z", body);
        let head = &file[..file.len() - body.len()];
        let expected = format!(
            "---\npolicyName: \"학칙\"\ntitle: \"A \\\"b\\\" \\\\ c\\u007f\"\nsha: \"{}\"\npath: \"규정/학칙.md\"\n\
             savedAt: \"2025-10-20T16:00:01.000Z\"\nlastUpdated: \"2025-10-20T16:00:00.000Z\"\n---\n\n",
            "0".repeat(40)
        );
        assert_eq!(std::str::from_utf8(head).unwrap(), expected);
        assert_eq!(document(&file).unwrap(), body);
        assert_eq!(member(&file, "sha"), Some("0".repeat(40)));
        for other in [&b""[..], b"# T", b"---\nx: 1\n---\n# T"] {
            assert_eq!((document(other), member(other, "sha")), (None, None));
        }
    }
}
