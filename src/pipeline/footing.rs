//! A pass need not look at every record: when all keys and versions of the store come to the sum the last run left, then
//! nothing changed there, and what the source says did not change need not be compared.
//!
//! The sum a run leaves is made of what it knows it wrote, never of what it finds in the store: a change behind our back
//! cannot get into it. Anything out of the ordinary (something held, parked, failed, decided by a person) and there is
//! none, so that the next pass compares record by record.

use tokio::task::JoinHandle;

use super::apply::Applied;
use super::past::Past;
use super::{Ask, Pipeline};
use crate::error::{Error, Result};
use crate::state::footing::{Footing, Standing};
use crate::state::{Report, keys};
use crate::store::{Item, Sum};

/// Whether a pipeline can have one, and would use it: its store sums up the keys of its baseline, and its source tells
/// what did not change.
pub fn is_possible(line: &Pipeline) -> bool {
    line.source.skips_unchanged() && line.store.caps().sums && line.shape.key_prefix().is_some()
}

/// An empty sum to begin with, where sums are of use.
pub fn nothing_yet(line: &Pipeline, ask: &Ask) -> Option<Sum> {
    (is_possible(line) && ask.only.is_none()).then(Sum::default)
}

/// What the last run left. It ended well, or there is none.
pub async fn load(line: &Pipeline) -> Result<Option<Footing>> {
    if !is_possible(line) {
        return Ok(None);
    }
    let footing: Option<Footing> = line.state.read(&keys::footing(&line.name)).await?;
    Ok(footing.filter(|footing| footing.settings == line.settings))
}

/// The state item that takes it away. Whoever leaves none takes one away, too: the config may lead to another store for a
/// while, and what was left before that says nothing about the baseline afterwards.
pub fn taken_away(line: &Pipeline) -> Item {
    Item::delete(keys::footing(&line.name))
}

/// The store is being summed up, beside the listing of the source.
pub struct Ground {
    footing: Footing,
    sum: JoinHandle<Result<Option<Sum>>>,
}

impl Ground {
    /// `None` = this pass compares record by record, whatever the sums say.
    pub fn of(line: &Pipeline, ask: &Ask, past: &Past, footing: Option<&Footing>) -> Option<Self> {
        let footing = footing?.clone();
        if ask.only.is_some() || !ask.heal.is_empty() || line.baseline.is_some() || !past.is_blank() {
            return None;
        }
        let (store, prefix) = (line.store.clone(), line.shape.key_prefix()?.to_owned());
        Some(Ground { footing, sum: tokio::spawn(async move { store.sum(&prefix).await }) })
    }

    /// The store holds exactly what the last run left. If not, every record is compared.
    pub async fn holds(self) -> Result<Option<Footing>> {
        let sum = self.sum.await.map_err(|error| Error::bug("summing up broke off").caused_by(error))??;
        Ok((sum == Some(self.footing.sum)).then_some(self.footing))
    }

    /// Nobody will ask.
    pub fn leave(self) {
        self.sum.abort();
    }
}

/// Count what a pass would have counted, one by one.
pub fn count(footing: &Footing, report: &mut Report) {
    for (group, standing) in &footing.groups {
        report.count(group, |counts| {
            counts.scanned += standing.there;
            counts.unchanged += standing.there;
            counts.missing += standing.missing;
        });
    }
}

/// What this pass leaves, if it went well and nothing is left for another look.
pub fn left(
    line: &Pipeline,
    ask: &Ask,
    before: Option<Sum>,
    applied: &Applied,
    report: &Report,
) -> Option<Footing> {
    let counts = &report.counts;
    let open = counts.failed + counts.held + counts.skipped + counts.unproven;
    if open > 0
        || report.cause.is_some()
        || !report.errors.is_empty()
        || applied.settled_aside
        || ask.stop.is_set()
    {
        return None;
    }
    let groups = report.groups.iter().map(|(group, counts)| {
        let there = counts.added + counts.updated + counts.unchanged;
        (group.clone(), Standing { there, missing: counts.missing })
    });
    let groups = groups.collect();
    Some(Footing { sum: before?.and(&applied.moved), settings: line.settings.clone(), groups })
}
