//! A closer look at what the listing alone does not tell: whether a version that is only a hint is new content, and whose
//! value a new key already holds.

use std::collections::HashMap;

use super::Pipeline;
use super::detect::{self, Finding};
use super::past::Past;
use super::plan::{Action, Seen, Step, Why};
use super::render;
use crate::error::Result;
use crate::record::Fingerprint;
use crate::shape::{Existing, Rendered};
use crate::state::held::{Decision, Verdict};
use crate::state::journal::Change;
use crate::store::StoreExt;

/// Where the listing alone does not tell: a version that is only a hint, a new key already taken.
pub fn needs_a_look(line: &Pipeline, past: &Past, step: &Step) -> bool {
    match step.action {
        _ if step.entry.is_none() => strayed(step),
        _ if is_elsewhere(line, step) => true,
        Action::Change(Change::Update, Why::Sha | Why::Path) => line.compares_content(),
        Action::Change(Change::Add, _) => {
            past.found.is_some()
                || matches!(step.seen, Seen::At(_))
                || (line.compares_content() && past.knows(&step.identity))
        }
        _ => false,
    }
}

/// What a closer look makes of a step.
pub enum Weighed {
    AsPlanned,
    /// Its key holds somebody else's value.
    Foreign,
    /// It is to go, and its key holds what somebody made of it.
    Edited,
    /// The source says what it said before, the store does not, and the config says to leave that.
    Left(&'static str),
}

pub async fn weigh(line: &Pipeline, past: &Past, mut step: Step) -> Result<(Step, Weighed)> {
    if let Some(found) = &past.found {
        step = found.recognise(line, step).await?;
    }
    match step.action {
        _ if !needs_a_look(line, past, &step) => Ok((step, Weighed::AsPlanned)),
        _ if step.entry.is_none() => {
            let edited = is_edited(line, past, &step).await?;
            Ok((step, if edited { Weighed::Edited } else { Weighed::AsPlanned }))
        }
        Action::Change(..) if is_elsewhere(line, &step) && is_foreign(line, past, &step).await? => {
            Ok((step, Weighed::Foreign))
        }
        Action::Change(Change::Update, Why::Sha | Why::Path) if line.compares_content() => {
            // A body that cannot be read stays a planned update: applying it will say why it failed.
            let Ok(after) = after(line, &step).await else { return Ok((step, Weighed::AsPlanned)) };
            let base = step.base()?.map(|(_, base)| base).filter(|base| Some(base.fingerprint) == after);
            let found = base.map(|base| detect::unchanged(&base.version.0, &step.seen, line.drift));
            step.after = after;
            match found {
                None => {}
                Some(Finding::Same) => step.action = Action::Restamp,
                Some(Finding::Act(action)) => step.action = action,
                Some(Finding::Drifted(class)) => return Ok((step, Weighed::Left(class))),
            }
            Ok((step, Weighed::AsPlanned))
        }
        Action::Change(Change::Add, _) => {
            if line.compares_content() {
                step.after = after(line, &step).await.unwrap_or(None);
            }
            let foreign = matches!(step.seen, Seen::At(_)) && is_foreign(line, past, &step).await?;
            Ok((step, if foreign { Weighed::Foreign } else { Weighed::AsPlanned }))
        }
        _ => Ok((step, Weighed::AsPlanned)),
    }
}

/// It is known from another store, and there is something under its key in this one: whose, nobody knows.
fn is_elsewhere(line: &Pipeline, step: &Step) -> bool {
    line.place.is_other && step.base.is_some() && matches!(step.seen, Seen::At(_)) && strayed(step)
}

/// The store holds another version than the one we wrote.
pub fn strayed(step: &Step) -> bool {
    let known = step.base().ok().flatten();
    matches!((&step.seen, known), (Seen::At(version), Some((_, base))) if *version != base.version)
}

/// What is to be deleted is not what we wrote: whoever changed it is not to lose it along with ours.
pub async fn is_edited(line: &Pipeline, past: &Past, step: &Step) -> Result<bool> {
    if may_replace(line, &past.decisions, &step.identity) || !strayed(step) {
        return Ok(false);
    }
    let Some((_, base)) = step.base()? else { return Ok(false) };
    let stored = line.store.get_one(base.key(&step.identity)).await?;
    // What we wrote elsewhere does not make this ours, be it the same.
    let is_ours = |value: &[u8]| !line.place.is_other && Fingerprint::of(value) == base.bytes_hash();
    Ok(stored.is_some_and(|stored| !is_ours(&stored.value)))
}

/// Its entry is older than anything of its kind is kept: nothing is written for it.
pub fn is_over(line: &Pipeline, step: &Step) -> bool {
    let key = || step.entry.as_ref().and_then(|entry| line.shape.key(entry));
    line.shape.expires_below().is_some()
        && key().is_some_and(|key| line.shape.expired(&key, None, line.clock.now()))
}

async fn after(line: &Pipeline, step: &Step) -> Result<Option<Fingerprint>> {
    Ok(match render::render(line, step).await?.rendered {
        Rendered::Put(output) => Some(output.fingerprint),
        _ => None,
    })
}

/// What others put under its key is ours to take over.
pub(super) fn may_replace(line: &Pipeline, decisions: &HashMap<String, Decision>, identity: &str) -> bool {
    let adopted = || decisions.get(identity).is_some_and(|decision| decision.verdict == Verdict::Adopted);
    line.adopt || line.shape.existing() != Existing::Hold || adopted()
}

/// The key of a new entry already holds something. The same bytes are adopted; anything else is somebody else's.
pub async fn is_foreign(line: &Pipeline, past: &Past, step: &Step) -> Result<bool> {
    if may_replace(line, &past.decisions, &step.identity) {
        return Ok(false);
    }
    let key = step.key(line.shape.key_prefix())?;
    let Some(stored) = line.store.get_one(&key).await? else { return Ok(false) };
    Ok(match render::render(line, step).await.map(|drawn| drawn.rendered) {
        Ok(Rendered::Put(output)) => output.value != stored.value,
        _ => false, // applying it will say why it cannot be rendered
    })
}
