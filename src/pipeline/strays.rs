//! Strays: rows the store shows as ours that the baseline does not know and the source no longer has. The state was lost,
//! the pipeline has another name, a resource was taken out of the recipe and put back, the database was restored.
//!
//! Nobody knows which scope such a row was in. It is taken over where its whole table was read: then the source has it in
//! none of them. Otherwise it stays as it is.

use std::collections::HashMap;

use super::Pipeline;
use super::past::Past;
use super::plan::{Action, Kept, Seen, Step, Why};
use super::scopes::{Absence, Scopes};
use super::steps::Steps;
use crate::error::Result;
use crate::record::Fingerprint;
use crate::shape::{Absent, Existing, Recalled};
use crate::state::journal::Change;
use crate::state::{Base, Pointer};
use crate::store::Stored;

/// Keys looked at together.
const TOGETHER: usize = 1_000;

/// Whether what the store lists is of our making and the shape's to take over.
pub fn are_ours(line: &Pipeline) -> bool {
    line.store.caps().lists_own && line.shape.existing() == Existing::Replace
}

/// Strays met on the way through the store's listing.
#[derive(Default)]
pub struct Strays {
    keys: Vec<String>,
}

impl Strays {
    pub async fn meet(&mut self, line: &Pipeline, key: String, found: &mut Steps) -> Result<()> {
        self.keys.push(key);
        if self.keys.len() >= TOGETHER { self.look(line, found).await } else { Ok(()) }
    }

    /// See what those met so far are.
    pub async fn look(&mut self, line: &Pipeline, found: &mut Steps) -> Result<()> {
        let keys = std::mem::take(&mut self.keys);
        if keys.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        for (key, stored) in keys.iter().zip(line.store.get(&names).await?) {
            if let Some(step) = stored.map(|stored| step(line, key, stored)).transpose()?.flatten() {
                found.push(&step)?;
            }
        }
        Ok(())
    }
}

/// A stray as if the baseline had known it.
fn step(line: &Pipeline, key: &str, stored: Stored) -> Result<Option<Step>> {
    let recalled = line.shape.recall(key, &stored.value, line.clock.now());
    let Some(Recalled::Current { identity, entry, fingerprint, carry }) = recalled else { return Ok(None) };
    let bytes = Fingerprint::of(&stored.value);
    let base = Base {
        version: stored.version.clone(),
        fingerprint,
        bytes: (bytes != fingerprint).then_some(bytes),
        scope: entry.scope.clone(),
        body: entry.version.clone(),
        key: (key != identity).then(|| key.to_owned()),
        carry,
        written: Pointer::unset(),
    };
    Ok(Some(Step {
        scope: entry.scope.clone(),
        identity,
        action: Action::Change(Change::Delete, Why::Absent),
        stamp: None,
        base: Some(Box::new(Kept::new(line.shape.stamp(&entry), base.json()?))),
        entry: None,
        seen: Seen::At(stored.version),
        after: None,
    }))
}

/// Those that the source is proven not to have.
pub fn gone(line: &Pipeline, past: &Past, strays: &mut Steps, wholes: &mut Wholes<'_>) -> Result<Vec<Step>> {
    let mut gone = Vec::new();
    if strays.is_empty() {
        return Ok(gone);
    }
    // A row that a person wants gone, or not yet, is at the source.
    let is_wanted = |identity: &str| past.decisions.get(identity).is_some_and(|one| one.stamp.is_some());
    for step in strays.read::<Step>()? {
        let mut step = step?;
        if is_wanted(&step.identity) || !wholes.is_whole(&step.scope) {
            continue;
        }
        // It is marked already, and only to be known.
        if let Some((_, base)) = step.base()?
            && line.shape.absent(&base.prior(&step.identity), None, line.clock.now()) == Absent::Keep
        {
            (step.after, step.action) = (Some(base.fingerprint), Action::Restamp);
        }
        gone.push(step);
    }
    Ok(gone)
}

/// Whether all of a table was read, whatever its scopes are.
pub struct Wholes<'a> {
    line: &'a Pipeline,
    scopes: &'a Scopes,
    known: HashMap<String, bool>,
}

impl<'a> Wholes<'a> {
    pub fn of(line: &'a Pipeline, scopes: &'a Scopes) -> Self {
        Wholes { line, scopes, known: HashMap::new() }
    }

    /// Something that was not seen, of a scope or of a table as a whole.
    pub fn absence(&mut self, scope: &str) -> Absence {
        match self.scopes.absence(scope) {
            Absence::Unknown if !scope.contains('/') && !self.scopes.ended(scope) && self.is_whole(scope) => {
                Absence::Proven
            }
            absence => absence,
        }
    }

    /// A scope nobody came to, although all entries of the kind it hangs from were seen: its own is not among them.
    pub fn has_lost(&mut self, scope: &str) -> bool {
        if self.scopes.ended(scope) || !self.line.source.comes_to_all() {
            return false;
        }
        let owner = self.line.source.owner(scope);
        owner.is_some_and(|owner| self.is_whole(owner.split('/').next().unwrap_or_default()))
    }

    /// A scope that did not change has what the baseline knows, and nothing else.
    fn is_whole(&mut self, table: &str) -> bool {
        if let Some(known) = self.known.get(table) {
            return *known;
        }
        let whole = match self.line.source.owner(&format!("{table}/")) {
            None => matches!(self.scopes.absence(table), Absence::Proven | Absence::StillThere),
            // Asked for once per row of another table: for all of them only if that one is whole.
            Some(owner) => {
                let parent = owner.split('/').next().unwrap_or_default();
                self.scopes.all_read_below(table) && self.is_whole(parent)
            }
        };
        self.known.insert(table.to_owned(), whole);
        whole
    }
}
