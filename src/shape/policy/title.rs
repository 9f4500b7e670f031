//! The title of a Markdown document: its first ATX heading of level one, outside front matter, code fences and
//! comments. Pure.

/// `None` when the document has no such heading, or only empty ones.
pub fn title(text: &str) -> Option<&str> {
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let mut block = Block::None;
    // CRLF gives empty lines in between, which mean nothing here.
    for line in body(text).split(['\n', '\r']) {
        match block {
            Block::Comment => {
                if line.contains("-->") {
                    block = Block::None;
                }
            }
            Block::Fence(mark, length) => {
                let inner = indented(line).unwrap_or_default();
                let run = inner.len() - inner.trim_start_matches(mark).len();
                if run >= length && inner[run..].trim().is_empty() {
                    block = Block::None;
                }
            }
            Block::None => {
                let Some(inner) = indented(line) else { continue };
                if let Some(title) = heading(inner) {
                    return Some(title);
                }
                block = opened(inner);
            }
        }
    }
    None
}

enum Block {
    None,
    Comment,
    /// The mark and how many of them opened it.
    Fence(char, usize),
}

/// What follows the front matter, if there is any: `---` on the first line up to the next `---` or `...`.
fn body(text: &str) -> &str {
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next() else { return text };
    if first.trim_end() != "---" {
        return text;
    }
    let mut at = first.len();
    for line in lines {
        at += line.len();
        if matches!(line.trim_end(), "---" | "...") {
            return &text[at..];
        }
    }
    text
}

/// A line without its indent; `None` from four columns on, where it is code.
fn indented(line: &str) -> Option<&str> {
    let inner = line.trim_start_matches(' ');
    (line.len() - inner.len() < 4 && !inner.starts_with('\t')).then_some(inner)
}

fn heading(inner: &str) -> Option<&str> {
    let rest = inner.strip_prefix('#')?;
    if !rest.starts_with([' ', '\t']) {
        return None;
    }
    let rest = rest.trim();
    // A closing run of marks counts as such only behind a space.
    let bare = rest.trim_end_matches('#');
    let title = if bare.is_empty() || bare.ends_with([' ', '\t']) { bare.trim_end() } else { rest };
    (!title.is_empty()).then_some(title)
}

fn opened(inner: &str) -> Block {
    for mark in ['`', '~'] {
        let length = inner.len() - inner.trim_start_matches(mark).len();
        // The word behind a fence of back-ticks holds none; otherwise it is a code span.
        if length >= 3 && !(mark == '`' && inner[length..].contains('`')) {
            return Block::Fence(mark, length);
        }
    }
    if inner.starts_with("<!--") && !inner.contains("-->") { Block::Comment } else { Block::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_heading_of_level_one_is_the_title() {
        for (text, expected) in [
            ("# 한국교원대학교 학칙\n", Some("한국교원대학교 학칙")),
            ("\u{FEFF}# 학칙\r\n본문\r\n", Some("학칙")),
            ("\r\n\r\n#  학칙  \r\n", Some("학칙")),
            ("text\n## two\n# one\n# other\n", Some("one")),
            ("   # three spaces", Some("three spaces")),
            ("    # four are code\n# yes", Some("yes")),
            ("\t# a tab is code\n# yes", Some("yes")),
            ("#no\n#\n# \n# yes ##\n", Some("yes")),
            ("# C#\n", Some("C#")),
            ("# #\n# yes", Some("yes")),
            ("#\tyes", Some("yes")),
            ("####### seven\n", None),
            ("no heading at all", None),
            ("", None),
            ("---\ntitle: x\n# not this\n---\n# yes\n", Some("yes")),
            ("---\r\ntitle: x\r\n---\r\n# yes\r\n", Some("yes")),
            ("---\ntitle: x\n...\n# yes\n", Some("yes")),
            ("---\n# never closed\n", Some("never closed")),
            ("text\n---\n# yes\n---\n", Some("yes")),
            ("```\n# no\n```\n# yes", Some("yes")),
            ("```sh\n# no\n````\n# yes", Some("yes")),
            ("~~~\n# no\n```\n# no\n~~~\n# yes", Some("yes")),
            ("````\n```\n# no\n````\n# yes", Some("yes")),
            ("```a`b```\n# yes", Some("yes")),
            ("```\n# never closed", None),
            ("<!--\n# no\n-->\n# yes", Some("yes")),
            ("<!-- one line -->\n# yes", Some("yes")),
        ] {
            assert_eq!(title(text), expected, "{text:?}");
        }
    }
}
