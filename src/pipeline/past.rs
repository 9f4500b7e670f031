//! What a pass must know of the passes before it: what people decided, what is held, parked or failing.

use std::collections::{HashMap, HashSet};

use super::failing::Failing;
use super::found::Found;
use super::parked::Parked;
use super::plan::Step;
use super::sightings::Sighting;
use super::steps::Steps;
use super::stock::Informed;
use super::{Ask, Pipeline};
use crate::error::Result;
use crate::record::Fingerprint;
use crate::shape::Shape;
use crate::state::held::{Decision, HeldItem, Verdict};
use crate::state::keys;
use crate::store::Listed;

/// What people said earlier, and what the last pass held.
#[derive(Default)]
pub struct Past {
    pub decisions: HashMap<String, Decision>,
    /// What an `approve` in progress has released.
    pub approved: HashMap<String, HeldItem>,
    /// Held by the last pass; what was not read again stays held.
    pub held: Vec<HeldItem>,
    /// Where each identity stands in it.
    held_at: HashMap<String, usize>,
    /// Items present but unusable, by entry id.
    pub parked: HashMap<String, Parked>,
    pub parked_identities: HashSet<String>,
    /// Changes the store refused in earlier runs, by identity.
    pub failing: HashMap<String, Failing>,
    /// Keys of an older layout whose time is over.
    pub expired: Vec<String>,
    /// Keys of an older layout that are known, expired or not.
    pub older: HashSet<String>,
    /// Where files of entries that are new to the baseline may be.
    pub found: Option<Found>,
}

impl Past {
    /// Nothing but the last run's outcome is known of anything.
    pub fn is_blank(&self) -> bool {
        self.decisions.is_empty()
            && self.approved.is_empty()
            && self.held.is_empty()
            && self.parked.is_empty()
            && self.failing.is_empty()
            && self.expired.is_empty()
            && self.older.is_empty()
            && self.found.is_none()
    }

    pub fn holds(&self, identity: &str) -> bool {
        !self.held_at.is_empty() && self.held_at.contains_key(identity)
    }

    /// The rule this very change was held by, where it was.
    pub fn rule_of(&self, step: &Step) -> Option<&str> {
        let held = self.held_at.get(&step.identity).map(|at| &self.held[*at])?;
        let same = Some(held.change) == step.change() && held.stamp == step.mark() && !held.foreign;
        same.then_some(&held.rule)
    }

    /// Gone from the source and kept, because a person is asked about it or said so.
    pub fn keeps_absent(&self, identity: &str) -> bool {
        let decided = self.decisions.get(identity);
        self.holds(identity)
            || decided.is_some_and(|one| one.verdict == Verdict::Rejected && one.stamp.is_none())
    }

    /// The store refused this very change so often that it is not tried again.
    pub fn gave_up(&self, step: &Step) -> Option<&Failing> {
        self.failing.get(&step.identity).filter(|failing| failing.given_up && failing.stamp == step.stamp)
    }

    /// An undo that no pass has answered yet: what it undid is to be held, and said so.
    pub fn undid_something_new(&self) -> bool {
        let unsaid = |(identity, decision): (&String, &Decision)| {
            decision.verdict == Verdict::Undone && !self.holds(identity)
        };
        self.decisions.iter().any(unsaid)
    }

    /// Identities somebody decided about that neither the source nor the state has any more, after all of it was read.
    pub fn over(&self, met: &HashSet<String>, unseen: &mut Steps) -> Result<HashSet<String>> {
        let decided = self.decisions.iter().filter(|(_, decision)| decision.verdict != Verdict::Adopted);
        let unmet = decided.map(|(identity, _)| identity).filter(|identity| !met.contains(*identity));
        let mut over: HashSet<String> = unmet.cloned().collect();
        if !over.is_empty() {
            for step in unseen.read::<Step>()? {
                over.remove(&step?.identity);
            }
        }
        Ok(over)
    }

    /// The stamp of what is there. What an older trueup remembered of this very version under another one is still about it.
    pub fn stamp(&self, shape: &dyn Shape, seen: &Sighting, known: Option<&Listed>) -> Fingerprint {
        let stamp = shape.stamp(&seen.entry);
        let last = known.and_then(|known| known.fingerprint);
        if last == Some(stamp) || (known.is_none() && self.is_blank()) {
            return stamp;
        }
        let is_known =
            |before: &Fingerprint| last == Some(*before) || self.remembers(&seen.identity, *before);
        shape.stamp_before(&seen.entry).filter(is_known).unwrap_or(stamp)
    }

    /// Something that somebody decided, is to decide, or that failed was about this version of it.
    fn remembers(&self, identity: &str, stamp: Fingerprint) -> bool {
        let held = self.held_at.get(identity).map(|at| &self.held[*at]);
        let stamps = [
            held.and_then(|held| held.stamp),
            self.decisions.get(identity).and_then(|decision| decision.stamp),
            self.approved.get(identity).and_then(|held| held.stamp),
            self.failing.get(identity).and_then(|failing| failing.stamp),
        ];
        stamps.contains(&Some(stamp))
    }

    /// Something else than the last run's outcome is known of it.
    pub fn mentions(&self, identity: &str) -> bool {
        self.knows(identity)
            || (!self.parked_identities.is_empty() && self.parked_identities.contains(identity))
    }

    /// A person decided about it, or is asked to.
    pub fn knows(&self, identity: &str) -> bool {
        self.holds(identity) || (!self.decisions.is_empty() && self.decisions.contains_key(identity))
    }
}

/// Load what people decided and what was held, for a pass.
pub async fn past(line: &Pipeline, ask: &Ask, informed: &Informed<'_>) -> Result<Past> {
    let prefix = keys::decisions(&line.name);
    let decisions = line.state.read_all::<Decision>(&prefix).await?;
    let held = match line.state.held_header(&line.name, crate::state::held::SYNC).await? {
        Some(header) => line.state.held_items(&header).await?,
        None => Vec::new(),
    };
    let parked = super::parked::load(line).await?;
    let failing = super::failing::load(line).await?;
    Ok(Past {
        decisions: decisions
            .into_iter()
            .map(|(key, value)| (keys::below(&prefix, &key).to_owned(), value))
            .collect(),
        approved: ask.approved.iter().map(|held| (held.identity.clone(), held.clone())).collect(),
        held_at: held.iter().enumerate().map(|(at, held)| (held.identity.clone(), at)).collect(),
        held,
        parked_identities: parked
            .values()
            .filter(|one| !one.shadowed)
            .map(|one| one.identity.clone())
            .collect(),
        parked,
        failing,
        expired: informed.expired.clone(),
        older: informed.older.clone(),
        found: informed.found.clone(),
    })
}
