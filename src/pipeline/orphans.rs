//! Children of a vanished parent: their scope was never listed again, so it cannot complete. They are gone because
//! the entry their scope hangs from is gone, and only then.

use std::collections::HashSet;

use super::Pipeline;
use super::plan::Step;
use super::scopes::{Absence, Scopes};
use super::steps::Steps;
use crate::error::Result;

/// Identities in scopes without an end whose owner is proven gone, generation by generation.
pub fn gone_with_their_owner(
    line: &Pipeline,
    unseen: &mut Steps,
    scopes: &Scopes,
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
            let owner_gone = || line.source.owner(&step.scope).is_some_and(|owner| gone.contains(&owner));
            if proven {
                gone.insert(step.identity);
            } else if !scopes.ended(&step.scope) && owner_gone() {
                orphans.insert(step.identity.clone());
                gone.insert(step.identity);
            }
        }
        if gone.len() == before {
            return Ok(orphans);
        }
    }
}
