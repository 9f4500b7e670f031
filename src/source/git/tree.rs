//! What `git ls-tree -r -z` and `git diff-tree -r -z` print, one entry at a time. Pure.

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

/// What became of a path between two commits.
#[derive(Debug, PartialEq, Eq)]
pub enum Difference {
    Came {
        path: String,
        sha: String,
    },
    Changed {
        path: String,
        sha: String,
    },
    Went {
        path: String,
    },
    /// A file whose path is not UTF-8.
    Unnamed,
    /// It was not a file, and is none.
    Other,
}

/// `:MODE MODE SHA SHA STATUS`, and the path by itself. A mode is enough to tell what is a file, before and now.
pub fn difference(head: &[u8], path: &[u8]) -> Result<Difference> {
    let odd = || {
        let shown = String::from_utf8_lossy(head);
        Error::new(Kind::Corrupt, format!("git diff-tree printed a line that cannot be read: {shown}"))
    };
    let text = std::str::from_utf8(head).map_err(|_| odd())?;
    let words: Vec<&str> = text.strip_prefix(':').ok_or_else(odd)?.split(' ').collect();
    let ([before, now, _, sha, _], false) = (words.as_slice(), path.is_empty()) else { return Err(odd()) };
    let (was, is) = (before.starts_with(FILES), now.starts_with(FILES));
    if !was && !is {
        return Ok(Difference::Other);
    }
    let Ok(path) = std::str::from_utf8(path) else { return Ok(Difference::Unnamed) };
    let (path, sha) = (path.to_owned(), (*sha).to_owned());
    Ok(match (was, is) {
        (false, _) => Difference::Came { path, sha },
        (true, true) => Difference::Changed { path, sha },
        (true, false) => Difference::Went { path },
    })
}

/// How the modes of plain files begin, executable or not.
const FILES: &str = "100";

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

    #[test]
    fn a_difference_is_told_by_what_was_a_file_and_what_is_one() {
        let (none, sha) = ("0".repeat(40), "a".repeat(40));
        let (path, of) = ("a/학칙.md".to_owned(), sha.clone());
        for (before, now, expected) in [
            ("000000", "100644", Difference::Came { path: path.clone(), sha: of.clone() }),
            ("120000", "100755", Difference::Came { path: path.clone(), sha: of.clone() }),
            ("100644", "100755", Difference::Changed { path: path.clone(), sha: of }),
            ("100644", "000000", Difference::Went { path: path.clone() }),
            ("100644", "160000", Difference::Went { path: path.clone() }),
            ("000000", "120000", Difference::Other),
        ] {
            let head = format!(":{before} {now} {none} {sha} X");
            assert_eq!(difference(head.as_bytes(), path.as_bytes()).unwrap(), expected, "{head}");
        }
        let head = format!(":100644 100644 {sha} {sha} M");
        assert_eq!(difference(head.as_bytes(), b"x\xff").unwrap(), Difference::Unnamed);
        for broken in ["", "100644 100644 a b M", ":100644 100644 a b", ":100644 100644 a b M x"] {
            assert_eq!(difference(broken.as_bytes(), b"p").unwrap_err().kind(), Kind::Corrupt, "{broken}");
        }
        assert!(difference(head.as_bytes(), b"").is_err(), "no path");
    }
}
