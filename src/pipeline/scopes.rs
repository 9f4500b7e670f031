//! What a listing proved. Pure bookkeeping of how each scope ended; the one place that says "absent".

use std::collections::{BTreeMap, HashSet};

use crate::error::Fault;

/// How a scope ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Complete(Option<String>),
    Window(Option<String>),
    Unchanged,
    /// Boxed: few scopes break, and there may be one for every row.
    Broken(Box<Fault>),
}

/// What may be concluded about something that was not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// It is not there.
    Proven,
    /// The scope was not read because nothing changed in it: it is still there.
    StillThere,
    /// Nobody knows.
    Unknown,
}

/// The ends of all scopes of one listing. A scope's end covers everything below it, unless a scope in between
/// ended by itself.
#[derive(Debug, Default)]
pub struct Scopes {
    ends: BTreeMap<String, End>,
    /// Entries nobody could look at: a link that leads nowhere may have led to a folder.
    doubtful: HashSet<String>,
}

impl Scopes {
    /// Record an end. A scope that broke once stays broken, whatever else is said of it.
    pub fn end(&mut self, scope: &str, end: End) {
        match self.ends.get_mut(scope) {
            Some(End::Broken(_)) => {}
            Some(old) => *old = end,
            None => drop(self.ends.insert(scope.to_owned(), end)),
        }
    }

    /// An entry is there, and what it is nobody knows: nothing below it is known to be absent.
    pub fn doubt(&mut self, entry: &str) {
        self.doubtful.insert(entry.to_owned());
    }

    /// The end that covers a scope, and whose it is: its own, or the nearest above it.
    fn covered<'s>(&self, scope: &'s str) -> Option<(&'s str, &End)> {
        if !self.doubtful.is_empty() && upward(scope).any(|at| self.doubtful.contains(at)) {
            return None;
        }
        upward(scope).find_map(|at| self.ends.get(at).map(|end| (at, end)))
    }

    fn covering(&self, scope: &str) -> Option<&End> {
        self.covered(scope).map(|(_, end)| end)
    }

    /// The scope that said nothing changed in it, if that is what is known of this one.
    pub fn unchanged<'s>(&self, scope: &'s str) -> Option<&'s str> {
        self.covered(scope).filter(|(_, end)| **end == End::Unchanged).map(|(name, _)| name)
    }

    /// May something of this scope that was not seen be taken for absent?
    pub fn absence(&self, scope: &str) -> Absence {
        match self.covering(scope) {
            Some(End::Complete(_)) => Absence::Proven,
            Some(End::Unchanged) => Absence::StillThere,
            Some(End::Window(_) | End::Broken(_)) | None => Absence::Unknown,
        }
    }

    /// Whether the scope was looked at in this pass, so that what was decided about it earlier is decided anew.
    pub fn was_read(&self, scope: &str) -> bool {
        matches!(self.covering(scope), Some(End::Complete(_) | End::Window(_)))
    }

    /// The scope itself, or one above it, came to an end.
    pub fn ended(&self, scope: &str) -> bool {
        self.covering(scope).is_some()
    }

    /// Every scope below one was read to its end, or did not change.
    pub fn all_read_below(&self, scope: &str) -> bool {
        let below = format!("{scope}/");
        let ends = self.ends.range(below.clone()..).take_while(|(name, _)| name.starts_with(&below));
        ends.into_iter().all(|(_, end)| matches!(end, End::Complete(_) | End::Unchanged))
    }

    pub fn broken(&self) -> impl Iterator<Item = (&str, &Fault)> {
        self.ends.iter().filter_map(|(scope, end)| match end {
            End::Broken(fault) => Some((scope.as_str(), &**fault)),
            _ => None,
        })
    }

    /// Every scope was broken: the source as a whole could not be read.
    pub fn all_broken(&self) -> bool {
        !self.ends.is_empty() && self.ends.values().all(|end| matches!(end, End::Broken(_)))
    }

    /// Everything was read to its end: what was seen is all there is.
    pub fn all_complete(&self) -> bool {
        !self.ends.is_empty() && self.ends.values().all(|end| matches!(end, End::Complete(_)))
    }

    /// Nothing was read: every scope said that it did not change.
    pub fn all_unchanged(&self) -> bool {
        !self.ends.is_empty() && self.ends.values().all(|end| *end == End::Unchanged)
    }

    /// Where the source as a whole stands now, if it was read to its end.
    pub fn head(&self) -> Option<String> {
        match self.ends.get("") {
            Some(End::Complete(cursor)) => cursor.clone(),
            _ => None,
        }
    }

    /// Cursors that may move: of scopes read well, with nothing failed and nothing broken in or below them.
    pub fn cursors<'a>(&'a self, failed: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
        // There may be a scope for every row: each is looked up, and not held against every failure.
        let broken = self.broken().map(|(scope, _)| scope);
        let spoiled: HashSet<&str> =
            failed.iter().map(String::as_str).chain(broken).flat_map(upward).collect();
        self.ends.iter().filter_map(move |(scope, end)| match end {
            End::Complete(Some(cursor)) | End::Window(Some(cursor)) if !spoiled.contains(scope.as_str()) => {
                Some((scope.as_str(), cursor.as_str()))
            }
            _ => None,
        })
    }
}

/// A scope and everything above it, up to the source as a whole.
fn upward(scope: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(scope), |at| match at.rfind('/') {
        Some(slash) => Some(&at[..slash]),
        None if at.is_empty() => None,
        None => Some(""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Kind};

    fn broken() -> End {
        End::Broken(Box::new(Fault::of(&Error::new(Kind::Unavailable, "down"))))
    }

    fn scopes(ends: &[(&str, End)]) -> Scopes {
        let mut scopes = Scopes::default();
        for (scope, end) in ends {
            scopes.end(scope, end.clone());
        }
        scopes
    }

    #[test]
    fn absence_needs_a_complete_scope_and_nothing_broken_in_between() {
        let whole = scopes(&[
            ("", End::Complete(None)),
            ("a/b", broken()),
            ("w", End::Window(None)),
            ("u", End::Unchanged),
        ]);
        for (scope, expected) in [
            ("", Absence::Proven),
            ("a", Absence::Proven),
            ("a/b", Absence::Unknown),
            ("a/b/c", Absence::Unknown),
            ("a/bc", Absence::Proven),
            ("w", Absence::Unknown),
            ("u/x", Absence::StillThere),
        ] {
            assert_eq!(whole.absence(scope), expected, "{scope}");
        }
        assert_eq!((whole.unchanged("u/x"), whole.unchanged("w")), (Some("u"), None));
        assert_eq!(scopes(&[("25", End::Complete(None))]).absence("26"), Absence::Unknown);
        assert_eq!(scopes(&[]).absence(""), Absence::Unknown);
    }

    #[test]
    fn below_an_entry_nobody_could_look_at_nothing_is_absent() {
        let mut whole = scopes(&[("", End::Complete(None))]);
        whole.doubt("a/b");
        let unknown = ["", "a", "a/b", "a/b/c", "a/bc"].map(|scope| whole.absence(scope) == Absence::Unknown);
        assert_eq!(unknown, [false, false, true, true, false]);
    }

    #[test]
    fn a_scope_that_broke_stays_broken() {
        let twice = scopes(&[("a", broken()), ("a", End::Complete(None))]);
        assert_eq!(twice.absence("a"), Absence::Unknown);
        assert!(twice.all_broken());
    }

    #[test]
    fn a_cursor_moves_only_when_nothing_failed_below_it() {
        let ends = [("", End::Complete(Some("1".into()))), ("b", End::Window(Some("2".into())))];
        let moved = |failed: &[&str]| {
            let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
            scopes(&ends).cursors(&failed).map(|(scope, _)| scope.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(moved(&[]), ["", "b"]);
        assert_eq!(moved(&["a/x"]), ["b"]);
        assert_eq!(moved(&["ab"]), ["b"]);
        assert_eq!(moved(&["bc"]), ["b"]);
        assert_eq!(moved(&["b"]), [""; 0]);
        assert_eq!(moved(&["b/x"]), [""; 0]);
        assert_eq!(moved(&["b/x/y", "b/x"]), [""; 0]);
    }
}
