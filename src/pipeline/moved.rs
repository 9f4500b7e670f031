//! A second look at lists that may have moved while they were read: absence from such a list is proven only when what is
//! missing is missing twice.

use std::collections::{BTreeMap, HashSet};

use super::plan::Step;
use super::reading::Reading;
use super::scopes::{Absence, End};
use super::{Ask, Pipeline};
use crate::error::{Error, Fault, Kind, Result};
use crate::record::{Entry, Scope};

/// What goes unseen for the first time in a list that may have moved is looked for once more. If any of it is there after
/// all, nobody knows what else was passed over: nothing of the scope is absent in this run.
pub async fn looked_for(line: &Pipeline, ask: &Ask, mut found: Reading) -> Result<Reading> {
    for (scope, missed) in missed(line, &mut found)? {
        ask.progress.step(&line.name, "looking again", None);
        let error = match line.source.names_now(&scope, &ask.stop.flag()).await {
            Ok(names) => match there_after_all(line, &scope, &names, &missed)? {
                0 => continue,
                many => it_moved(many),
            },
            Err(error) if error.kind() == Kind::Canceled => return Err(error),
            Err(error) => error,
        };
        found.scopes.end(&scope, End::Broken(Box::new(Fault::of(&error))));
    }
    Ok(found)
}

/// Identities that were not seen where that would be proof, by scope. What was gone before is no news.
fn missed(line: &Pipeline, found: &mut Reading) -> Result<BTreeMap<Scope, HashSet<String>>> {
    let mut missed: BTreeMap<Scope, HashSet<String>> = BTreeMap::new();
    for step in found.unseen.read::<Step>()? {
        let step = step?;
        let is_proof = found.scopes.absence(&step.scope) == Absence::Proven;
        if is_proof && line.source.may_have_moved(&step.scope) {
            let base = step.base()?;
            if !base.is_some_and(|(_, base)| line.shape.is_missing(&base.prior(&step.identity))) {
                missed.entry(step.scope).or_default().insert(step.identity);
            }
        }
    }
    Ok(missed)
}

fn there_after_all(
    line: &Pipeline,
    scope: &Scope,
    names: &HashSet<String>,
    missed: &HashSet<String>,
) -> Result<usize> {
    let mut there = 0;
    for name in names {
        let identified = line.shape.identify(&Entry::new(name.clone(), scope, ""))?;
        there += usize::from(missed.contains(&identified.identity));
    }
    Ok(there)
}

fn it_moved(many: usize) -> Error {
    let is = if many == 1 { "is" } else { "are" };
    let message = format!("the list moved while it was read: {many} that its pages did not show {is} there");
    Error::new(Kind::Unavailable, message).remedy_is(
        "The next run decides what is gone. If this happens often, the API has no fixed order: ask it for one (a parameter in `path`).",
    )
}
