//! Where in the file a problem is, and how it is shown: file, line, column, the line itself and a caret.
//!
//! Problems are collected, not returned one by one: a person fixes several at once. No excerpt shows a secret.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use super::redact;
use super::values::NAME_MAX;
use crate::error::{Error, Kind};

pub type Span = Range<usize>;

/// Problems shown at once; more would scroll the first out of sight.
const SHOWN_MAX: usize = 5;
/// Problems remembered, to be sorted before they are shown; the rest are only counted.
const KEPT_MAX: usize = 1_000;
/// Characters of a line that an excerpt shows; a longer line is cut around the caret.
const EXCERPT_MAX: usize = 100;

struct Problem {
    span: Span,
    message: String,
    notes: Vec<String>,
}

/// The text of one config file and what is wrong with it.
pub struct Problems<'t> {
    file: String,
    text: &'t str,
    found: RefCell<Vec<Problem>>,
    count: Cell<usize>,
}

impl<'t> Problems<'t> {
    pub fn new(file: &Path, text: &'t str) -> Self {
        Problems { file: file.display().to_string(), text, found: RefCell::default(), count: Cell::new(0) }
    }

    pub fn text(&self) -> &'t str {
        self.text
    }

    pub fn add(&self, span: &Span, message: impl Into<String>) {
        self.add_with(span, message, []);
    }

    pub fn add_with<const N: usize>(&self, span: &Span, message: impl Into<String>, notes: [String; N]) {
        let problem = Problem { span: span.clone(), message: message.into(), notes: notes.into() };
        self.count.set(self.count.get() + 1);
        if self.count.get() <= KEPT_MAX {
            self.found.borrow_mut().push(problem);
        }
    }

    pub fn none(&self) -> bool {
        self.count.get() == 0
    }

    /// The line a span begins on, counted from 1.
    pub fn line(&self, span: &Span) -> usize {
        self.position(span.start).0
    }

    /// All problems as one error, in the order of the file; `None` when there are none.
    pub fn into_error(self) -> Option<Error> {
        let mut found = self.found.take();
        if found.is_empty() {
            return None;
        }
        found.sort_by_key(|problem| problem.span.start);
        let mut shown: Vec<String> =
            found.iter().take(SHOWN_MAX).map(|problem| self.render(problem)).collect();
        if self.count.get() > SHOWN_MAX {
            shown.push(format!("… and {} more", self.count.get() - SHOWN_MAX));
        }
        Some(Error::new(Kind::Config, shown.join("\n\n")))
    }

    fn render(&self, problem: &Problem) -> String {
        let (line, column) = self.position(problem.span.start);
        let mut out = format!("{}:{line}:{column}: {}", self.file, problem.message);
        let gutter = " ".repeat(line.to_string().len());
        let (excerpt, caret) = self.excerpt(&problem.span);
        let _ = write!(out, "\n{gutter} |\n{line} | {excerpt}\n{gutter} | {caret}");
        for note in &problem.notes {
            let _ = write!(out, "\n{gutter} = {note}");
        }
        out
    }

    /// Line and column of a byte offset, both from 1, the column in characters.
    fn position(&self, offset: usize) -> (usize, usize) {
        let offset = self.floor(offset);
        let before = &self.text[..offset];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
    }

    fn floor(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }

    /// The line, cut to size and with secrets masked, and the carets below it.
    fn excerpt(&self, span: &Span) -> (String, String) {
        let start = self.floor(span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let line = self.text[line_start..line_end].trim_end_matches('\r');
        let end = self.floor(span.end).min(line_start + line.len());
        let (shown, from, to) = redact::mask_line(line, start - line_start, end.saturating_sub(line_start));
        cut(&shown, from, to)
    }
}

/// Cut a line (as characters) around `from..to` and draw the carets.
fn cut(line: &[char], from: usize, to: usize) -> (String, String) {
    let skip = if from > EXCERPT_MAX / 2 && line.len() > EXCERPT_MAX { from - EXCERPT_MAX / 2 } else { 0 };
    let end = line.len().min(skip + EXCERPT_MAX);
    let mut text = String::new();
    let mut indent = from - skip;
    if skip > 0 {
        text.push('…');
        indent += 1;
    }
    text.extend(line[skip..end].iter().map(|c| if c.is_control() { ' ' } else { *c }));
    if end < line.len() {
        text.push('…');
    }
    let carets = to.min(end).saturating_sub(from).max(1);
    (text.trim_end().to_owned(), " ".repeat(indent) + &"^".repeat(carets))
}

/// The nearest of `names` to what was written, if one is near enough to be meant.
pub fn nearest<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // Longer than any of our names: not worth the quadratic comparison.
    if written.len() > NAME_MAX {
        return None;
    }
    let written = written.to_lowercase();
    let near = (written.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&written, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= near)
        .min()
        .map(|(_, name)| name)
}

/// "; did you mean `x`?" or nothing.
pub fn suggestion<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    nearest(written, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, span: Span) -> String {
        let problems = Problems::new(Path::new("t.toml"), text);
        problems.add(&span, "wrong");
        problems.into_error().unwrap().to_string()
    }

    #[test]
    fn a_problem_shows_line_column_and_caret() {
        assert_eq!(shown("a = 1\nb = å2 \n", 10..13), "t.toml:2:5: wrong\n  |\n2 | b = å2\n  |     ^^");
    }

    #[test]
    fn a_span_past_the_end_or_over_lines_stays_on_one_line() {
        assert_eq!(shown("a", 7..9), "t.toml:1:2: wrong\n  |\n1 | a\n  |  ^");
        assert_eq!(shown("ab\r\ncd", 0..6), "t.toml:1:1: wrong\n  |\n1 | ab\n  | ^^");
        assert_eq!(shown("", 0..0), "t.toml:1:1: wrong\n  |\n1 | \n  | ^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let text = "x".repeat(5_000);
        let report = shown(&text, 3_000..3_002);
        let lines: Vec<&str> = report.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() < 120), "{report}");
        assert_eq!(lines[3].chars().count(), lines[3].trim_end().chars().count());
    }

    #[test]
    fn at_most_five_problems_are_shown_and_the_rest_counted() {
        let problems = Problems::new(Path::new("t.toml"), "abcdefghij");
        for at in (0..8).rev() {
            problems.add(&(at..at + 1), format!("p{at}"));
        }
        let report = problems.into_error().unwrap().to_string();
        assert!(report.starts_with("t.toml:1:1: p0") && report.ends_with("… and 3 more"), "{report}");
    }

    #[test]
    fn the_nearest_name_is_found_only_when_it_is_near() {
        assert_eq!(nearest("frm", ["from", "into", "as"]), Some("from"));
        assert_eq!(nearest("form", ["from", "into"]), Some("from"));
        assert_eq!(nearest("INTO", ["from", "into"]), Some("into"));
        assert_eq!(nearest("zebra", ["from", "into"]), None);
    }
}
