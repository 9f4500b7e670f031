//! Which store the baseline tells of. The config may lead to another one than it did: what earlier runs left says nothing
//! of what is there, and none of them can be undone there.

use super::Pipeline;
use crate::error::{Error, Kind, Result};
use crate::state::{Report, item, keys};
use crate::store::Item;

/// Where a pipeline's store is.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// As runs write it down; nothing in it is secret.
    pub name: String,
    /// The baseline tells of another one.
    pub is_other: bool,
    /// The state does not name it yet.
    pub is_news: bool,
}

impl Place {
    pub fn named(name: &str) -> Self {
        Place { name: name.to_owned(), ..Place::default() }
    }
}

/// The place, and how it stands to the baseline.
pub async fn look(line: &Pipeline) -> Result<Place> {
    let known: Option<String> = line.state.read(&keys::place(&line.name)).await?;
    let name = line.place.name.clone();
    let is_other = known.as_ref().is_some_and(|known| *known != name);
    Ok(Place { is_news: is_other || known.is_none(), is_other, name })
}

/// What state learns of a pass that came to its end, if it has seen to every record: from now on the baseline tells of this
/// store. What is held there may be somebody else's, and must not be taken for ours by the next run.
pub fn settled(line: &Pipeline, report: &Report) -> Result<Option<Item>> {
    let held = if line.place.is_other { report.counts.held } else { 0 };
    let open = report.counts.failed + report.counts.unproven + held;
    if !line.place.is_news || open > 0 || !report.errors.is_empty() {
        return Ok(None);
    }
    item(keys::place(&line.name), &line.place.name).map(Some)
}

/// A run is undone where it was made, or not at all: elsewhere it would take away what others put there.
pub fn check_undo(line: &Pipeline, done: &Report) -> Result<()> {
    match &done.store {
        Some(then) if *then != line.place.name => {
            let (run, now) = (&done.id, &line.place.name);
            Err(Error::new(Kind::Config, format!("run {run} wrote to {then}, and `into` leads to {now}"))
                .remedy_is("Let `into` of this pipeline lead there, undo the run, then change it back."))
        }
        _ => Ok(()),
    }
}
