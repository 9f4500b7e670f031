//! Files that were there before us, or whose record was lost with the state, under keys that tell a day. The same entry
//! may have another day by now: looking for the key it would have today would make a second file of it.
//!
//! The store's keys are listed once, on first contact; what nobody remembers is written down under the identity it has.
//! An entry that is new to the baseline is looked up there.

use std::collections::HashMap;

use super::Pipeline;
use super::lines::Lines;
use super::plan::{Action, Kept, Seen, Step, Why};
use crate::clock::rfc3339_ms;
use crate::error::{Context, Result};
use crate::record::Fingerprint;
use crate::state::journal::Change;
use crate::state::{Base, Pointer, item, keys};
use crate::store::{StoreExt, What};

/// Keys looked up at once.
const LOOK_UP: usize = 1_000;
/// A stamp no entry has.
const STALE: Fingerprint = Fingerprint([0; 32]);

/// Where files are that the baseline does not know.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Listed just now; `None` = they are written down.
    listed: Option<HashMap<String, String>>,
}

/// On first contact list what is there; `None` = for this shape a key says it all. With `keep = false` nothing is written
/// down.
pub async fn look(line: &Pipeline, elsewhere: bool, keep: bool) -> Result<Option<Found>> {
    let Some(below) = line.shape.dated_below() else { return Ok(None) };
    if !elsewhere && line.state.read::<String>(&keys::stock(&line.name)).await?.is_some() {
        return Ok(Some(Found::default()));
    }
    let listed = list(line, below).await.context(|| format!("listing {}", line.store.name()))?;
    if keep {
        let rows = listed.iter().map(|(identity, key)| item(keys::found(&line.name, identity), key));
        line.state.commit_in_parts(rows.collect::<Result<_>>()?).await?;
        line.state.put(&keys::stock(&line.name), &rfc3339_ms(line.clock.now())).await?;
    }
    Ok(Some(Found { listed: Some(listed) }))
}

async fn list(line: &Pipeline, below: &str) -> Result<HashMap<String, String>> {
    let mut names = Lines::of(line.store.clone(), below, What::Names);
    let (mut found, mut some) = (HashMap::new(), Vec::new());
    while let Some(name) = names.pop().await? {
        some.extend(line.shape.claims(&name.key).map(|identity| (identity, name.key)));
        if some.len() >= LOOK_UP {
            found.extend(unknown(line, std::mem::take(&mut some)).await?);
        }
    }
    found.extend(unknown(line, some).await?);
    Ok(found)
}

/// Those of these files that the baseline does not know.
async fn unknown(line: &Pipeline, some: Vec<(String, String)>) -> Result<Vec<(String, String)>> {
    let bases: Vec<String> = some.iter().map(|(identity, _)| keys::base(&line.name, identity)).collect();
    let names: Vec<&str> = bases.iter().map(String::as_str).collect();
    let known = line.state.store().get(&names).await?;
    Ok(some.into_iter().zip(known).filter(|(_, known)| known.is_none()).map(|(file, _)| file).collect())
}

impl Found {
    /// An entry that would be added, but has a file under another key: that file is its own.
    pub async fn recognise(&self, line: &Pipeline, mut step: Step) -> Result<Step> {
        let is_new = matches!(step.action, Action::Change(Change::Add, _));
        let Some(now) = step.entry.as_ref().filter(|_| is_new).and_then(|entry| line.shape.key(entry)) else {
            return Ok(step);
        };
        let key = match &self.listed {
            Some(listed) => listed.get(&step.identity).cloned(),
            None => line.state.read(&keys::found(&line.name, &step.identity)).await?,
        };
        // One whose time is over goes, and the entry gets a new one.
        let other = |key: &String| *key != now && !line.shape.expired(key, None, line.clock.now());
        let Some(key) = key.filter(other) else { return Ok(step) };
        // What was removed since is no file any more.
        let Some(stored) = line.store.get_one(&key).await? else { return Ok(step) };
        let base = Base {
            version: stored.version.clone(),
            fingerprint: Fingerprint::of(&stored.value),
            bytes: None,
            scope: step.scope.clone(),
            body: String::new(),
            key: Some(key),
            carry: None,
            written: Pointer::unset(),
        };
        step.base = Some(Box::new(Kept::new(STALE, base.json()?)));
        step.action = Action::Change(Change::Update, Why::Sha);
        step.seen = Seen::At(stored.version);
        Ok(step)
    }
}
