//! After a crash: open intents are compared with the store. What arrived is settled; the rest is dropped and will be
//! read and planned again. Nothing is written to the store here.

use std::collections::{HashMap, HashSet};

use super::Pipeline;
use super::failing::{self, Failing};
use super::priors;
use super::settle;
use crate::error::{Error, Kind, Result};
use crate::record::{Fingerprint, Version};
use crate::state::journal::{Exceptions, Intent, Late, OpenBatch};
use crate::state::{Pointer, Report, Status, item, keys};
use crate::store::{Item, Stored};

/// Settle what an interrupted run left open. Returns how many changes turned out to have arrived.
pub async fn recover(line: &Pipeline) -> Result<u64> {
    mark_interrupted(line).await?;
    let prefix = keys::open_batches(&line.name);
    let mut arrived = 0;
    let mut failing = None;
    for (key, open) in line.state.read_all::<OpenBatch>(&prefix).await? {
        let (run, batch) = place(keys::below(&prefix, &key))?;
        let failing = match &mut failing {
            Some(failing) => failing,
            None => failing.insert(failing::load(line).await?),
        };
        arrived += settle_batch(line, &key, (run, batch), open, failing).await?;
    }
    Ok(arrived)
}

fn place(name: &str) -> Result<(&str, u32)> {
    let parts = name.split_once('/').and_then(|(run, batch)| Some((run, batch.parse().ok()?)));
    parts.ok_or_else(|| Error::new(Kind::Corrupt, format!("the state record open/…/{name} cannot be read")))
}

async fn settle_batch(
    line: &Pipeline,
    key: &str,
    (run, batch): (&str, u32),
    open: OpenBatch,
    failing: &HashMap<String, Failing>,
) -> Result<u64> {
    let intents = line.state.intents(&line.name, run, batch).await?.unwrap_or_default();
    let mut late: Exceptions =
        line.state.read(&keys::outcomes(&line.name, run, batch)).await?.unwrap_or_default();
    let indices = open.only.unwrap_or_else(|| (0u32..).zip(&intents).map(|(index, _)| index).collect());
    let wanted: Vec<(u32, &Intent)> =
        indices.into_iter().filter_map(|index| Some((index, intents.get(index as usize)?))).collect();
    let names: Vec<&str> = wanted.iter().map(|(_, intent)| intent.key()).collect();
    let stored = priors::stored(&*line.store, &names).await?;
    let unmoved = unmoved(line, &intents).await?;
    let mut items = Vec::new();
    let mut count = 0;
    for ((index, intent), stored) in wanted.into_iter().zip(stored) {
        if let Some(records) = line.records.as_ref().filter(|_| !intent.retire) {
            items.extend(records.doubts(line, &intent.identity)?);
        }
        match arrived(intent, stored.as_ref()) {
            // The baseline goes on naming the old key, so that the next pass completes the move.
            Some(_) if !intent.retire && unmoved.contains(&intent.identity) => {
                late.push((index, Late::Dropped))
            }
            Some(version) => {
                count += 1;
                let pointer = Pointer { run: run.into(), batch, index };
                settle::landed(line, intent, version, &pointer, &mut items)?;
                if failing.contains_key(&intent.identity) {
                    items.extend(failing::forget(&line.name, &intent.identity));
                }
            }
            None => late.push((index, Late::Dropped)),
        }
    }
    if !late.is_empty() {
        items.push(item(keys::outcomes(&line.name, run, batch), &late)?);
    }
    items.push(Item::delete(key));
    line.state.commit(items).await?;
    Ok(count)
}

/// Identities on the move whose old key is still in the store as it was.
async fn unmoved(line: &Pipeline, intents: &[Intent]) -> Result<HashSet<String>> {
    let retired: Vec<&Intent> = intents.iter().filter(|intent| intent.retire).collect();
    if retired.is_empty() {
        return Ok(HashSet::new());
    }
    let names: Vec<&str> = retired.iter().map(|intent| intent.key()).collect();
    let stored = line.store.get(&names).await?;
    let left = retired.iter().zip(stored).filter(|(intent, stored)| {
        stored.as_ref().is_some_and(|stored| Some(&stored.version) == intent.prior_version.as_ref())
    });
    Ok(left.map(|(intent, _)| intent.identity.clone()).collect())
}

/// Did this change reach the store? The exact bytes are the proof.
#[allow(clippy::option_option)] // arrived at all, and then with which version
fn arrived(intent: &Intent, stored: Option<&Stored>) -> Option<Option<Version>> {
    match (intent.bytes_hash(), stored) {
        // What no listing shows we did not write.
        (Some(_), Some(stored)) if stored.version == Version::default() => None,
        (Some(bytes), Some(stored)) if Fingerprint::of(&stored.value) == bytes => {
            Some(Some(stored.version.clone()))
        }
        (None, None) => Some(None),
        _ => None,
    }
}

/// We hold the lock, so a run still marked as running has no process any more.
async fn mark_interrupted(line: &Pipeline) -> Result<()> {
    let Some(last) = line.state.read::<String>(&keys::last(&line.name)).await? else { return Ok(()) };
    let Some(mut report) = line.state.read::<Report>(&keys::run(&last)).await? else { return Ok(()) };
    if report.status != Status::Running {
        return Ok(());
    }
    report.cut_off();
    report.finished = Some(crate::clock::rfc3339_ms(line.clock.now()));
    line.state.put(&keys::run(&last), &report).await
}
