//! A document as people read it: paragraph by paragraph, with the place somebody points to marked.
//!
//! The text stays as it is, Markdown signs included, so that places counted in characters hold.

use std::ops::Range;

use maud::{Markup, html};

use super::super::words::grouped;

/// Characters of a document that a page shows: a book, and still a page a browser draws at once.
const CHARS_MAX: usize = 400_000;

/// Lines that belong together.
#[derive(Debug, PartialEq, Eq)]
struct Block<'t> {
    text: &'t str,
    /// Where it begins, in characters.
    at: usize,
}

/// One text, in its language.
pub struct Text<'t> {
    pub content: &'t str,
    pub language: Option<&'static str>,
    /// Characters to mark.
    pub mark: Range<usize>,
}

/// Paragraphs are what stands between empty lines.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut at, mut byte) = (Vec::new(), 0, 0);
    let mut open: Option<(usize, usize)> = None;
    for line in text.split_inclusive('\n') {
        if at >= CHARS_MAX {
            break;
        }
        if line.trim().is_empty() {
            blocks.extend(open.take().map(|(from, at)| Block { text: text[from..byte].trim_end(), at }));
        } else {
            open.get_or_insert((byte, at));
        }
        at += line.chars().count();
        byte += line.len();
    }
    blocks.extend(open.map(|(from, at)| Block { text: text[from..byte].trim_end(), at }));
    blocks
}

/// One document.
pub fn alone(text: &Text<'_>) -> Markup {
    html! {
        div.prose lang=[text.language] { @for block in blocks(text.content) { (paragraph(&block, &text.mark)) } }
        (rest(text.content))
    }
}

/// Two beside each other: paragraph by paragraph where both have as many, else each as a column.
pub fn beside(one: &Text<'_>, other: &Text<'_>) -> Markup {
    let (left, right) = (blocks(one.content), blocks(other.content));
    if left.len() != right.len() {
        return html! { div.pair { div { (alone(one)) } div { (alone(other)) } } };
    }
    html! {
        @for (left, right) in left.iter().zip(&right) {
            div.pair {
                div.prose lang=[one.language] { (paragraph(left, &one.mark)) }
                div.prose lang=[other.language] { (paragraph(right, &other.mark)) }
            }
        }
        (rest(one.content))
    }
}

fn paragraph(block: &Block<'_>, mark: &Range<usize>) -> Markup {
    let heading = block.text.starts_with('#');
    let verbatim = block.text.starts_with('|') || block.text.starts_with("```");
    let (before, marked, after) = parted(block, mark);
    // The place itself has the name; where a mark goes over several paragraphs, the first.
    let first = block.at <= mark.start;
    html! {
        p.heading[heading].verbatim[verbatim] {
            (before)
            @if !marked.is_empty() { mark id=[first.then_some("excerpt")] { (marked) } }
            (after)
        }
    }
}

/// Before the mark, within, after.
fn parted<'t>(block: &Block<'t>, mark: &Range<usize>) -> (&'t str, &'t str, &'t str) {
    let from = mark.start.saturating_sub(block.at);
    let to = mark.end.saturating_sub(block.at);
    let byte = |chars: usize| block.text.char_indices().nth(chars).map_or(block.text.len(), |(at, _)| at);
    let (from, to) = (byte(from), byte(to));
    let from = from.min(to);
    (&block.text[..from], &block.text[from..to], &block.text[to..])
}

fn rest(text: &str) -> Markup {
    let more = text.chars().count().saturating_sub(CHARS_MAX) as u64;
    html! {
        @if more > 0 { p.muted { "and " (grouped(more)) " more characters: " code { "trueup page policy" } " writes it all." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_keep_their_place_in_characters() {
        let text = "# Über\n\nfirst line\nsecond\n\n\nlast";
        let found: Vec<(usize, &str)> = blocks(text).iter().map(|block| (block.at, block.text)).collect();
        assert_eq!(found, [(0, "# Über"), (8, "first line\nsecond"), (28, "last")]);
        for (at, said) in found {
            assert_eq!(text.chars().skip(at).take(said.chars().count()).collect::<String>(), said);
        }
    }

    #[test]
    fn a_mark_is_where_the_excerpt_is() {
        let text = "# Über\n\nfirst line\n\nlast";
        let mark = 14..18;
        let parts: Vec<_> = blocks(text).iter().map(|block| parted(block, &mark).1).collect();
        assert_eq!(parts, ["", "line", ""]);
        let over: Vec<_> = blocks(text).iter().map(|block| parted(block, &(14..24)).1).collect();
        assert_eq!(over, ["", "line", "last"]);
        let none: Vec<_> = blocks(text).iter().map(|block| parted(block, &(0..0)).1).collect();
        assert_eq!(none, ["", "", ""]);
        let shown = alone(&Text { content: text, language: Some("en"), mark: 14..18 }).0;
        assert!(shown.contains("first <mark id=\"excerpt\">line</mark>"), "{shown}");
    }
}
