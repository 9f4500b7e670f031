//! Children of a vanished parent: their scope was never listed again, so it cannot complete. They are gone because
//! the entry their scope hangs from is gone, and only then. Whether that entry was ever known does not matter: it may have
//! been forgotten before its children, by a run that was cut off between the two.

use std::collections::HashSet;

use super::Pipeline;
use super::plan::Step;
use super::scopes::{Absence, Scopes};
use super::steps::Steps;
use super::strays::Wholes;
use crate::error::Result;

/// Identities in scopes without an end whose owner is proven gone, generation by generation.
pub fn gone_with_their_owner(
    line: &Pipeline,
    unseen: &mut Steps,
    scopes: &Scopes,
    wholes: &mut Wholes<'_>,
    said_gone: &HashSet<String>,
) -> Result<HashSet<String>> {
    let mut orphans = HashSet::new();
    if !line.source.has_owners() || unseen.is_empty() {
        return Ok(orphans);
    }
    let mut gone: HashSet<String> = said_gone.clone();
    loop {
        let before = gone.len();
        for step in unseen.read::<Step>()? {
            let step = step?;
            let proven = match scopes.absence(&step.scope) {
                Absence::Proven => true,
                // Gone since an earlier run: the scope was read then, and did not change since.
                Absence::StillThere => {
                    step.base()?.is_some_and(|(_, base)| line.shape.is_missing(&base.prior(&step.identity)))
                }
                Absence::Unknown => false,
            };
            if proven {
                gone.insert(step.identity);
            } else if is_orphan(line, scopes, wholes, &gone, &step.scope) {
                orphans.insert(step.identity.clone());
                gone.insert(step.identity);
            }
        }
        if gone.len() == before {
            return Ok(orphans);
        }
    }
}

fn is_orphan(
    line: &Pipeline,
    scopes: &Scopes,
    wholes: &mut Wholes<'_>,
    gone: &HashSet<String>,
    scope: &str,
) -> bool {
    let owner_gone = || line.source.owner(scope).is_some_and(|owner| gone.contains(&owner));
    !scopes.ended(scope) && owner_gone() || wholes.has_lost(scope)
}
