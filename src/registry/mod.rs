//! The policy registry beyond its shape: what a run leaves in the registry besides the policies. Its keys are those that
//! existing consumers read: `metadata:sync:*`, `queue:NAME` and `dead-letter:NAME`.
//!
//! The engine's own state is the truth; what is here is a published copy. Queue entries are written in the same batch as
//! the policies they belong to, the metadata when a run is over; what was published is compared with what should be at the
//! end of every run, so that an interrupted run is made good by the next one.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::clock::rfc3339_ms;
use crate::config::{self, ShapeSpec};
use crate::error::{Context, Error, Fault, Kind, Result};
use crate::pipeline::Pipeline;
use crate::pipeline::open::Memory;
use crate::pipeline::prepare::Write;
use crate::pipeline::records::{Beside, Records};
use crate::retry::Patience;
use crate::state::{Report, Status, keys};
use crate::store::{Access, Item, Mode};

mod beside;
mod entry;
mod publish;
mod resume;

const LAST_RUN: &str = "metadata:sync:lastRun";
const LAST_COMMIT: &str = "metadata:sync:lastCommit";
/// Nothing is ever written here: deleting it changes nothing, and shows that the store takes writes.
const NOBODYS: &str = "metadata:sync:probe";

/// Open a pipeline of the config; one of policies keeps a registry.
pub async fn open(spec: &config::Pipeline, memory: &Memory, access: Access) -> Result<Pipeline> {
    let line = Pipeline::open(spec, memory, access).await?;
    let records: Option<Arc<dyn Records>> = match spec.shape {
        ShapeSpec::Policy => Some(Arc::new(Registry)),
        _ => line.records.clone(),
    };
    Ok(Pipeline { records, ..line })
}

/// What a pass that is under way publishes meanwhile is looked at again this often; the pass itself has the last word.
const REFRESHES_MAX: usize = 3;

pub struct Registry;

/// What the registry remembers between runs.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Memo {
    /// The commit `lastCommit` names.
    commit: Option<String>,
    /// Policies in the last complete listing.
    total: u64,
    /// Nobody has looked yet at what the registry says is still to be done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unmet: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct LastRun {
    timestamp: String,
    total_processed: u64,
    added: u64,
    updated: u64,
    deleted: u64,
    status: &'static str,
    error_count: u64,
    #[serde(rename = "commitSHA")]
    commit: Option<String>,
    #[serde(rename = "previousCommitSHA")]
    previous_commit: Option<String>,
}

#[async_trait]
impl Records for Registry {
    async fn beside(&self, line: &Pipeline, writes: &[Box<Write>]) -> Result<Vec<Beside>> {
        beside::beside(line, writes).await.context(|| "preparing the queue's entries".into())
    }

    fn doubts(&self, line: &Pipeline, identity: &str) -> Result<Vec<Item>> {
        beside::doubts(line, identity)
    }

    async fn resume(&self, line: &Pipeline, run: &str) -> Result<()> {
        let memo: Option<Memo> = line.state.read(&keys::registry(&line.name)).await?;
        let is_met = memo.as_ref().is_some_and(|memo| !memo.unmet);
        // Without stock of the registry nobody knows its policies.
        if is_met || line.state.read::<String>(&keys::stock(&line.name)).await?.is_none() {
            return Ok(());
        }
        resume::resume(line, run).await.context(|| "taking up the registry's queue".into())?;
        let met = Memo { unmet: false, ..memo.unwrap_or_default() };
        line.state.put(&keys::registry(&line.name), &met).await
    }

    async fn after(&self, line: &Pipeline, report: &mut Report) -> Result<()> {
        let memo: Option<Memo> = line.state.read(&keys::registry(&line.name)).await?;
        let published = publish::publish(line).await.context(|| "publishing the queue".into());
        if let Err(error) = published {
            report.fail(&error);
            report.conclude();
        }
        let memo = memo.unwrap_or_else(|| Memo { unmet: true, ..Memo::default() });
        let next =
            self.write(line, report, &memo).await.context(|| "writing the registry's metadata".into())?;
        line.state.put(&keys::registry(&line.name), &next).await
    }

    async fn refresh(&self, line: &Pipeline) -> Result<()> {
        if line.state.read::<Memo>(&keys::registry(&line.name)).await?.is_none() {
            return Ok(());
        }
        for _ in 0..REFRESHES_MAX {
            let published = publish::publish(line).await.context(|| "publishing the queue".into())?;
            if !published {
                break;
            }
        }
        Ok(())
    }

    fn attempts_max(&self) -> Option<u32> {
        Some(Patience::FOLLOW_UP.attempts_max)
    }

    fn probe(&self) -> Item {
        Item::delete(NOBODYS)
    }
}

impl Registry {
    /// The metadata comes last: whoever reads it finds the rest in place.
    async fn write(&self, line: &Pipeline, report: &Report, memo: &Memo) -> Result<Memo> {
        let total = report.listed.unwrap_or(memo.total);
        let last_run = LastRun {
            timestamp: rfc3339_ms(line.clock.now()),
            total_processed: total,
            added: report.counts.added,
            updated: report.counts.updated,
            deleted: report.counts.deleted,
            status: status(report.status),
            error_count: report.errors.len() as u64 + report.errors_omitted,
            commit: report.head.clone().or_else(|| memo.commit.clone()),
            previous_commit: memo.commit.clone(),
        };
        let json =
            serde_json::to_vec(&last_run).map_err(|error| Error::bug("encoding lastRun").caused_by(error))?;
        let mut items = vec![Item::put(LAST_RUN, json)];
        let moved = moved(line, report, memo).await?;
        if let Some(commit) = &moved {
            items.push(Item::put(LAST_COMMIT, commit.clone()));
        }
        write_each(line, items).await?;
        // A commit whose queue could not be published is named by the run that makes that good.
        Ok(Memo { commit: moved.or_else(|| memo.commit.clone()), total, unmet: memo.unmet })
    }
}

/// The commit to name now, if it is another one. A run that failed names none; the cursor may have moved in a run that
/// was cut off, or failed, before it could say so.
async fn moved(line: &Pipeline, report: &Report, memo: &Memo) -> Result<Option<String>> {
    if report.cause.is_some() {
        return Ok(None);
    }
    let commit: Option<String> = match &report.cursor {
        Some(commit) => Some(commit.clone()),
        None => line.state.read(&keys::cursors(&line.name)).await?,
    };
    Ok(commit.filter(|commit| report.cursor.is_some() || memo.commit.as_ref() != Some(commit)))
}

/// A run that left something undone is partial, also when a person was asked.
fn status(status: Status) -> &'static str {
    match status {
        Status::Ok => "success",
        Status::Partial | Status::Held => "partial",
        Status::Failed | Status::Canceled | Status::Running => "failed",
    }
}

/// Write in the store's own batches; everything is attempted, then one error names every key that failed.
async fn write_each(line: &Pipeline, items: Vec<Item>) -> Result<()> {
    let size = line.store.caps().bulk_max.max(1);
    let mut failed: Vec<(String, Fault)> = Vec::new();
    let mut rest = items.into_iter().peekable();
    while rest.peek().is_some() {
        let batch: Vec<Item> = rest.by_ref().take(size).collect();
        let names: Vec<String> = batch.iter().map(|item| item.key.clone()).collect();
        match line.store.write(batch, Mode::Each).await {
            Ok(outcomes) => {
                let errors = names
                    .into_iter()
                    .zip(outcomes)
                    .filter_map(|(key, one)| Some((key, Fault::of(&one.err()?))));
                failed.extend(errors);
            }
            Err(error) => failed.extend(names.into_iter().map(|key| (key, Fault::of(&error)))),
        }
    }
    let Some((_, first)) = failed.first() else { return Ok(()) };
    let names: Vec<&str> = failed.iter().map(|(key, _)| key.as_str()).collect();
    let kind = if first.kind == Kind::Conflict { Kind::Unavailable } else { first.kind };
    Err(Error::new(kind, format!("{} could not be written: {}", names.join(", "), first.message))
        .remedy_is(first.remedy.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_runs_begins_as_the_config_says() {
        for key in [LAST_RUN, LAST_COMMIT, NOBODYS] {
            assert!(key.starts_with(config::METADATA), "{key}");
        }
    }
}
