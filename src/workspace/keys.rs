//! The keys of a workspace: spelled here and nowhere else, both ways.
//!
//! | key | holds |
//! |---|---|
//! | `{page}:policy:{source}` | a policy as it was extracted |
//! | `{page}:policy:{source}:{language}` | its translation |
//! | `{page}:policy:{source}:part:{language}:{hash}` | a piece of a document too large for one value |
//! | `{page}:issue:{id}` | an issue |
//! | `job:{id}` | how a job is getting on |
//! | `system:{name}` | what the workspace remembers beside its pages |
//!
//! Refuses ids that would make a key ambiguous. A prefix always ends in `:`, so that page 12 never sees page 123.

use super::language::Language;
use crate::error::{Error, Kind, Result};

/// Longest key, in characters.
pub const KEY_CHARS_MAX: usize = 500;
/// First parts of keys that mean something else, here or in other stores of keys.
pub const RESERVED: [&str; 6] = ["job", "system", "policy", "queue", "metadata", "dead-letter"];

const POLICY: &str = "policy";
const ISSUE: &str = "issue";
const PART: &str = "part";
/// Stands where the language stands, for parts of an original.
const ORIGINAL: &str = "original";

/// What a key of a page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'k> {
    Policy { page: &'k str, source: &'k str, language: Option<Language> },
    Part { page: &'k str, source: &'k str, hash: &'k str },
    Issue { page: &'k str, id: &'k str },
}

impl<'k> Key<'k> {
    /// `None` for everything that is not a key of a page.
    pub fn parse(key: &'k str) -> Option<Self> {
        if !is_well_formed(key) {
            return None;
        }
        let parts: Vec<&str> = key.split(':').collect();
        let parsed = match parts[..] {
            [page, POLICY, source] => Key::Policy { page, source, language: None },
            [page, POLICY, source, language] => {
                Key::Policy { page, source, language: Some(Language::parse(language)?) }
            }
            [page, POLICY, source, PART, _, hash] => Key::Part { page, source, hash },
            [page, ISSUE, id] => Key::Issue { page, id },
            _ => return None,
        };
        let (page, id) = parsed.ids();
        (check_page(page).is_ok() && check_id("source", id).is_ok()).then_some(parsed)
    }

    fn ids(&self) -> (&'k str, &'k str) {
        match *self {
            Key::Policy { page, source, .. } | Key::Part { page, source, .. } => (page, source),
            Key::Issue { page, id } => (page, id),
        }
    }

    pub fn page(&self) -> &'k str {
        self.ids().0
    }
}

/// `{page}:policy:{source}` for the original, with `:{language}` for a translation.
pub fn policy_key(page: &str, source: &str, language: Option<Language>) -> Result<String> {
    check_page(page)?;
    check_id("source", source)?;
    checked(match language {
        None => format!("{page}:{POLICY}:{source}"),
        Some(language) => format!("{page}:{POLICY}:{source}:{language}"),
    })
}

pub fn part_key(page: &str, source: &str, language: Option<Language>, hash: &str) -> Result<String> {
    let language = language.map_or(ORIGINAL, Language::code);
    checked(format!("{}:{PART}:{language}:{hash}", policy_key(page, source, None)?))
}

/// `{page}:issue:{id}`.
pub fn issue_key(page: &str, id: &str) -> Result<String> {
    check_page(page)?;
    check_id("issue", id)?;
    checked(format!("{page}:{ISSUE}:{id}"))
}

/// `job:{id}`.
pub fn job_key(id: &str) -> Result<String> {
    check_id("job", id)?;
    checked(format!("job:{id}"))
}

/// `system:{name}`, or `system:{name}.{of}` for what is remembered about one thing.
pub fn system_key(name: &str, of: Option<&str>) -> Result<String> {
    checked(match of {
        None => format!("system:{name}"),
        Some(of) => format!("system:{name}.{of}"),
    })
}

/// The page a key belongs to; jobs, the system's keys and whatever is foreign belong to none.
pub fn key_page(key: &str) -> Option<&str> {
    Key::parse(key).map(|key| key.page())
}

/// The source of a policy's key, original or translation.
pub fn policy_key_source(key: &str) -> Option<&str> {
    match Key::parse(key)? {
        Key::Policy { source, .. } => Some(source),
        Key::Part { .. } | Key::Issue { .. } => None,
    }
}

/// The language of a translation's key.
pub fn policy_key_language(key: &str) -> Option<Language> {
    match Key::parse(key)? {
        Key::Policy { language, .. } => language,
        Key::Part { .. } | Key::Issue { .. } => None,
    }
}

/// Everything of a page.
pub fn page_prefix(page: &str) -> Result<String> {
    check_page(page)?;
    checked(format!("{page}:"))
}

pub fn policy_prefix(page: &str) -> Result<String> {
    Ok(format!("{}{POLICY}:", page_prefix(page)?))
}

/// Translations and parts of one source, but not its original.
pub fn source_prefix(page: &str, source: &str) -> Result<String> {
    Ok(format!("{}:", policy_key(page, source, None)?))
}

pub fn issue_prefix(page: &str) -> Result<String> {
    Ok(format!("{}{ISSUE}:", page_prefix(page)?))
}

/// A page id that can stand in a key, and be the name of a folder or a part of a URL.
pub fn check_page(page: &str) -> Result<()> {
    check_id("page", page)?;
    if RESERVED.contains(&page) {
        let message = format!("`{page}` cannot be a page: keys that begin so mean something else");
        return Err(invalid(message));
    }
    if page == "." || page == ".." {
        return Err(invalid(format!("`{page}` cannot be a page")));
    }
    Ok(())
}

fn check_id(what: &str, id: &str) -> Result<()> {
    if id.trim().is_empty() {
        return Err(invalid(format!("an empty {what} id")));
    }
    match id.chars().find(|c| *c == ':' || !is_allowed(*c)) {
        None => Ok(()),
        Some(bad) => Err(invalid(format!("the {what} id `{}` holds {bad:?}", id.escape_debug()))),
    }
}

fn checked(key: String) -> Result<String> {
    if is_well_formed(&key) {
        return Ok(key);
    }
    let length = key.chars().count();
    Err(invalid(if length > KEY_CHARS_MAX {
        format!("a key of {length} characters; {KEY_CHARS_MAX} at most")
    } else {
        format!("the key `{}` holds a character that keys cannot hold", key.escape_debug())
    }))
}

fn is_well_formed(key: &str) -> bool {
    !key.is_empty() && key.chars().count() <= KEY_CHARS_MAX && key.chars().all(is_allowed)
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '_' | '#' | '-') || c.is_whitespace()
}

fn invalid(message: String) -> Error {
    Error::new(Kind::Invalid, message)
        .remedy_is("Ids are made of letters, digits, `.`, `_`, `#`, `-` and blanks; `:` separates them.")
}
