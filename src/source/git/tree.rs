//! What `git ls-tree -r -z` prints, one entry at a time. Pure.

use crate::error::{Error, Kind, Result};

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    File {
        path: String,
        sha: String,
    },
    /// A file whose path is not UTF-8, with its odd bytes escaped.
    Unnamed(String),
    /// A symbolic link or a submodule.
    Other,
}

/// `MODE TYPE SHA<TAB>PATH`
pub fn line(bytes: &[u8]) -> Result<Line> {
    let odd = || {
        let shown = String::from_utf8_lossy(bytes);
        Error::new(Kind::Corrupt, format!("git ls-tree printed a line that cannot be read: {shown}"))
    };
    let tab = bytes.iter().position(|byte| *byte == b'\t').ok_or_else(odd)?;
    let head = std::str::from_utf8(&bytes[..tab]).map_err(|_| odd())?;
    let mut words = head.split(' ');
    let (Some(mode), Some(kind), Some(sha), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(odd());
    };
    if kind != "blob" || mode == LINK {
        return Ok(Line::Other);
    }
    Ok(match std::str::from_utf8(&bytes[tab + 1..]) {
        Ok(path) => Line::File { path: path.to_owned(), sha: sha.to_owned() },
        Err(_) => Line::Unnamed(bytes[tab + 1..].escape_ascii().to_string()),
    })
}

/// The mode git gives a symbolic link; its blob is the path it leads to, not a document.
pub const LINK: &str = "120000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_links_submodules_and_odd_names() {
        let sha = "a".repeat(40);
        let file = |path: &str| Line::File { path: path.into(), sha: sha.clone() };
        for (text, expected) in [
            (format!("100644 blob {sha}\ta/학칙.md").into_bytes(), file("a/학칙.md")),
            (format!("100755 blob {sha}\ta b\tc").into_bytes(), file("a b\tc")),
            (format!("120000 blob {sha}\tlink.md").into_bytes(), Line::Other),
            (format!("160000 commit {sha}\tsub").into_bytes(), Line::Other),
            ([b"100644 blob 00\tx", &[0xFF][..]].concat(), Line::Unnamed("x\\xff".into())),
        ] {
            assert_eq!(line(&text).unwrap(), expected);
        }
        for broken in ["", "100644 blob", "100644 blob 00 x", "100644 blob 00 4\tx"] {
            assert_eq!(line(broken.as_bytes()).unwrap_err().kind(), Kind::Corrupt, "{broken}");
        }
    }
}
