//! What reading found, and what it says of every scope.

use std::collections::HashSet;

use super::plan::PlanId;
use super::scopes::Scopes;
use super::steps::Steps;
use crate::record::Scope;
use crate::state::footing::Footing;
use crate::store::Sum;

/// What reading found: steps to take, things not seen, and how every scope ended.
#[derive(Default)]
pub struct Reading {
    pub steps: Steps,
    /// The steps' id, as long as all of them are simply new.
    pub all_new: Option<PlanId>,
    /// Known but not seen; what that means depends on how their scopes ended.
    pub unseen: Steps,
    /// In the store as ours, and neither known nor seen.
    pub strays: Steps,
    /// Rows of the store that the baseline does not know, seen or not.
    pub unknown: u64,
    pub scopes: Scopes,
    /// Keys the baseline holds.
    pub known: u64,
    /// Those keys with their versions, where that is of use.
    pub sum: Option<Sum>,
    /// Decisions the source has overtaken.
    pub void: Vec<String>,
    /// Entries that lost to another of the same identity: entry id, identity, scope.
    pub shadowed: Vec<(String, String, String)>,
    /// Scopes in which an item failed; their cursors stay.
    pub failed: Vec<String>,
    /// Rows of an older layout that nobody knew of were met in the store.
    pub met_older: bool,
    /// Identities that somebody decided about, or is asked to, and that are at the source: they are judged anew.
    pub met: HashSet<String>,
    /// Scopes something of is about to change, or moves to another scope.
    pub touched: HashSet<Scope>,
    /// Scopes without a change at the source in which the store was changed: to mend that they must be read.
    pub stale: HashSet<String>,
}

impl Reading {
    /// What is known of the step's scope will not be true any more, nor of the one it comes from.
    pub fn touch(&mut self, scope: &Scope, left: Option<&str>) {
        if !self.touched.contains(scope) {
            self.touched.insert(scope.clone());
        }
        if let Some(left) = left.filter(|left| !self.touched.contains(*left)) {
            self.touched.insert(left.into());
        }
    }

    /// Of the baseline only its sum was looked at.
    pub fn stand_on(&mut self, footing: &Footing) {
        self.known = footing.sum.count;
        self.sum = Some(footing.sum);
    }
}

pub fn left_so(identity: &str, class: &str) -> String {
    format!("{identity} was {class} in the store and left so, as `drift` says")
}
