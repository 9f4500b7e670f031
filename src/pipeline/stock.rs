//! Taking stock: the first pass over a store that may already hold rows of this shape (somebody else wrote them, or the
//! state was lost) makes a baseline of what is there. What says the same as the source is then not written again, and
//! what is no longer at the source is deleted through the guard like anything else.
//!
//! Rows of an older layout are remembered here until a current row takes their place or their time is over. A listing
//! that fails ends the run: a store that could not be read is never an empty one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::found::{self, Found};
use super::lines::Lines;
use super::{Pipeline, place};
use crate::clock::rfc3339_ms;
use crate::config::{Drift, Heal};
use crate::error::{Context, Result};
use crate::record::Fingerprint;
use crate::shape::{Older, Recalled, Shape};
use crate::state::{Base, Pointer, State, decode_line, item, keys};
use crate::store::memory::Memory;
use crate::store::{Item, Listed, PAGE, Query, SharedStore, Stored, What};

/// A pipeline that knows what its store held before it.
pub struct Informed<'a> {
    pub line: Cow<'a, Pipeline>,
    /// Keys of older rows whose time is over.
    pub expired: Vec<String>,
    /// Keys of all older rows that are known.
    pub older: HashSet<String>,
    /// The source is read whatever its cursors say.
    pub afresh: bool,
    /// Files under keys that may be another's today.
    pub found: Option<Found>,
}

impl<'a> Informed<'a> {
    /// Nobody looked.
    pub fn of_nothing(line: &'a Pipeline) -> Self {
        Informed {
            line: Cow::Borrowed(line),
            expired: Vec::new(),
            older: HashSet::new(),
            afresh: false,
            found: None,
        }
    }
}

/// A stamp no entry has: whatever carries it is rendered again.
const STALE: Fingerprint = Fingerprint([0; 32]);

/// Take stock if that was never done, if a full read is asked for, or if older rows have appeared since; and look after
/// older rows. With `keep = false` nothing is written down.
pub async fn inform(line: &Pipeline, full: bool, keep: bool) -> Result<Informed<'_>> {
    let place = place::look(line).await?;
    let (full, elsewhere) = (full || place.is_other, place.is_other);
    let found = found::look(line, elsewhere, keep).await?;
    let mut informed = Informed { afresh: full, found, ..Informed::of_nothing(line) };
    if place.is_news {
        let line = informed.line.to_mut();
        line.place = place;
        if elsewhere {
            // Nobody changed anything there: it was never as it should be.
            line.drift = Drift { edited: Heal::Heal, missing: Heal::Heal, ..line.drift };
        }
    }
    if !line.shape.recalls() {
        return Ok(informed);
    }
    let mut older = waiting(line, keep).await?;
    let taken: Option<String> = line.state.read(&keys::stock(&line.name)).await?;
    if taken.is_some() && !full && !line.store.caps().cheap_list {
        informed.afresh = has_older(line, &older).await?;
    }
    if taken.is_none() || informed.afresh {
        let target = if keep { line.state.clone() } else { scratch(line).await? };
        let taking = Taking { line, target: &target, now: line.clock.now(), older: &mut older };
        taking.run(keep).await.context(|| format!("taking stock of {}", line.store.name()))?;
        if !keep {
            informed.line.to_mut().baseline = Some(target.store().clone());
        }
    }
    if older.is_empty() {
        return Ok(informed);
    }
    informed.older = older.iter().map(|row| row.key.clone()).collect();
    let now = line.clock.now();
    let over = |row: &&Older| row.until.parse::<Timestamp>().is_ok_and(|until| until < now);
    informed.expired = older.iter().filter(over).map(|row| row.key.clone()).collect();
    older.retain(|row| !informed.expired.contains(&row.key));
    if let Some(shape) = line.shape.knowing(&older) {
        informed.line.to_mut().shape = shape;
    }
    Ok(informed)
}

/// Whether the store holds older rows nobody knew of, where reading the source does not tell. Of keys that are known
/// nothing is read.
async fn has_older(line: &Pipeline, older: &[Older]) -> Result<bool> {
    let prefix = line.shape.key_prefix().unwrap_or_default();
    let mut names = Lines::of(line.store.clone(), prefix, What::Names);
    let mut known = Lines::of(line.state.store().clone(), keys::bases(&line.name), What::Keys);
    let older: HashSet<String> = older.iter().map(|row| row.key.clone()).collect();
    let mut strangers = Strangers::default();
    while let Some(name) = names.pop().await? {
        if known.take(&name.key[prefix.len()..]).await?.is_none() && !older.contains(&name.key) {
            strangers.meet(line, name.key).await?;
        }
    }
    strangers.any_older(line).await
}

/// Keys looked at together.
const TOGETHER: usize = 1_000;

/// Keys of the shape's own pattern that neither the source nor the baseline know.
#[derive(Default)]
pub struct Strangers {
    keys: Vec<String>,
    found: bool,
}

impl Strangers {
    pub async fn meet(&mut self, line: &Pipeline, key: String) -> Result<()> {
        self.keys.push(key);
        if self.keys.len() >= TOGETHER { self.look(line).await } else { Ok(()) }
    }

    /// Whether a row of an older layout was among them.
    pub async fn any_older(&mut self, line: &Pipeline) -> Result<bool> {
        self.look(line).await?;
        Ok(self.found)
    }

    async fn look(&mut self, line: &Pipeline) -> Result<()> {
        let keys = std::mem::take(&mut self.keys);
        if self.found || keys.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let stored = line.store.get(&names).await?;
        let now = line.clock.now();
        let older = |(key, stored): (&String, Option<Stored>)| {
            let recalled = stored.and_then(|stored| line.shape.recall(key, &stored.value, now));
            matches!(recalled, Some(Recalled::Older { .. }))
        };
        self.found = keys.iter().zip(stored).any(older);
        Ok(())
    }
}

/// Older rows that are still there; what was matched or removed since is forgotten.
async fn waiting(line: &Pipeline, keep: bool) -> Result<Vec<Older>> {
    let known = line.state.read_all::<Older>(&keys::older_rows(&line.name)).await?;
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = known.iter().map(|(_, row)| row.key.as_str()).collect();
    let stored = line.store.get(&names).await?;
    let (mut waiting, mut gone) = (Vec::new(), Vec::new());
    for ((key, row), stored) in known.into_iter().zip(stored) {
        let now = line.clock.now();
        let recalled = stored.and_then(|stored| line.shape.recall(&row.key, &stored.value, now));
        match recalled {
            Some(Recalled::Older { .. }) => waiting.push(row),
            _ => gone.push(Item::delete(key)),
        }
    }
    if keep {
        line.state.commit_in_parts(gone).await?;
    }
    Ok(waiting)
}

/// A copy of the baseline that may be changed without anybody noticing.
async fn scratch(line: &Pipeline) -> Result<State> {
    let store: SharedStore = Arc::new(Memory::new());
    let state = State::open(store).await?;
    let mut lines = Lines::of(line.state.store().clone(), keys::bases(&line.name), What::Values);
    let mut items = Vec::new();
    while let Some(known) = lines.pop().await? {
        let copy = Item::put(known.key, known.value.unwrap_or_default());
        items.push(match known.fingerprint {
            Some(print) => copy.with_fingerprint(print),
            None => copy,
        });
    }
    state.commit_in_parts(items).await?;
    Ok(state)
}

struct Taking<'a> {
    line: &'a Pipeline,
    target: &'a State,
    now: Timestamp,
    older: &'a mut Vec<Older>,
}

impl Taking<'_> {
    async fn run(mut self, keep: bool) -> Result<()> {
        let found_before = self.older.len();
        let prefix = self.line.shape.key_prefix().unwrap_or_default().to_owned();
        let mut known = Lines::of(self.line.state.store().clone(), keys::bases(&self.line.name), What::Keys);
        let mut after: Option<String> = None;
        loop {
            let query = Query { prefix: &prefix, after: after.as_deref(), limit: PAGE, what: What::Values };
            let page = self.line.store.survey(query).await?;
            after = page.items.last().map(|line| line.key.clone());
            let mut items = Vec::new();
            for line in &page.items {
                items.extend(self.recall(line, &mut known).await?);
            }
            self.target.commit_in_parts(items).await?;
            if !page.more {
                break;
            }
        }
        if self.older.len() > found_before {
            self.wake_those_awaited().await?;
        }
        if keep {
            let rows = self.older.iter().map(|row| item(keys::older_row(&self.line.name, &row.key), row));
            self.target.commit_in_parts(rows.collect::<Result<_>>()?).await?;
            self.target.put(&keys::stock(&self.line.name), &rfc3339_ms(self.now)).await?;
        }
        Ok(())
    }

    async fn recall(&mut self, line: &Listed, known: &mut Lines) -> Result<Option<Item>> {
        let value = line.value.as_deref().unwrap_or_default();
        match self.line.shape.recall(&line.key, value, self.now) {
            Some(Recalled::Current { identity, entry, fingerprint, carry }) => {
                if known.take(&identity).await?.is_some() {
                    return Ok(None);
                }
                let base = Base {
                    version: line.version.clone(),
                    fingerprint,
                    bytes: Some(Fingerprint::of(value)),
                    scope: entry.scope.clone(),
                    body: entry.version.clone(),
                    key: (line.key != identity).then(|| line.key.clone()),
                    carry,
                    written: Pointer::unset(),
                };
                base.item(&self.line.name, &identity, self.line.shape.stamp(&entry)).map(Some)
            }
            Some(Recalled::Older { until }) => {
                if !self.older.iter().any(|row| row.key == line.key) {
                    let value = String::from_utf8_lossy(value).into_owned();
                    self.older.push(Older { key: line.key.clone(), value, until: rfc3339_ms(until) });
                }
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Current rows for which an older one waits are rendered again, although their source did not change.
    async fn wake_those_awaited(&self) -> Result<()> {
        let Some(shape): Option<Arc<dyn Shape>> = self.line.shape.knowing(self.older) else { return Ok(()) };
        let prefix = keys::bases(&self.line.name);
        let mut lines = Lines::of(self.target.store().clone(), prefix.clone(), What::Values);
        let mut items = Vec::new();
        while let Some(known) = lines.pop().await? {
            let base: Base = decode_line(&known)?;
            let identity = keys::below(&prefix, &known.key);
            if shape.awaited(identity, base.carry.as_ref()) {
                items.push(base.item(&self.line.name, identity, STALE)?);
            }
        }
        self.target.commit_in_parts(items).await
    }
}
