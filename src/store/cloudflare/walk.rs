//! A listing, page by page: it goes on by cursor, in the order of the keys, and ends some day. Pure.

use super::api::{Line, Lines, odd};
use crate::error::Result;

/// Keys that were deleted leave empty pages behind for a while: so many are those of a million.
const EMPTY_PAGES_MAX: u32 = 1_000;

/// How far a listing has come.
#[derive(Default)]
pub struct Walk {
    next: Next,
    /// The last key it showed.
    last: Option<String>,
    /// Pages without a key, in a row.
    empty: u32,
}

#[derive(Default)]
enum Next {
    #[default]
    First,
    At(String),
    Over,
}

impl Walk {
    /// What to ask the next page by.
    pub fn cursor(&self) -> Option<&str> {
        match &self.next {
            Next::At(cursor) => Some(cursor),
            Next::First | Next::Over => None,
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.next, Next::Over)
    }

    /// The next page came. Its keys, if the listing is one.
    pub fn on(&mut self, prefix: &str, page: Lines) -> Result<Vec<Line>> {
        let repeats = page.cursor.is_some() && page.cursor.as_deref() == self.cursor();
        self.empty = if page.lines.is_empty() { self.empty + 1 } else { 0 };
        if repeats || self.empty > EMPTY_PAGES_MAX {
            return Err(odd(
                "does not end: the next page it names was asked for already, or page after page is empty",
            ));
        }
        for line in &page.lines {
            if self.last.as_ref().is_some_and(|last| line.name <= *last) {
                return Err(odd(&format!(
                    "is not in the order of the keys: {} comes too late, or twice",
                    line.name
                )));
            }
            if !line.name.starts_with(prefix) {
                return Err(odd(&format!(
                    "is not the one asked for: {} does not begin with {prefix}",
                    line.name
                )));
            }
            self.last = Some(line.name.clone());
        }
        self.next = page.cursor.map_or(Next::Over, Next::At);
        Ok(page.lines)
    }
}
