//! What is forgotten, and when: runs by age, prior values by age and size. The baseline is never forgotten.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use ulid::Ulid;

use super::{State, Tombstone, keys};
use crate::error::{Error, Result};
use crate::store::Item;

/// A new run id: later than every earlier one, even if the clock stands still or was set back.
pub fn run_id_after(newest: Option<&str>, now: Timestamp, chance: u128) -> Result<String> {
    let now_ms = u64::try_from(now.as_millisecond()).unwrap_or(0);
    let fresh = Ulid::from_parts(now_ms, chance);
    let newest = newest.and_then(|text| Ulid::from_string(text).ok());
    let id = match newest {
        Some(newest) if newest >= fresh => {
            newest.increment().map_err(|_| Error::bug("run ids are used up"))?
        }
        _ => fresh,
    };
    Ok(id.to_string())
}

/// The instant a run id was made, in milliseconds.
pub fn run_time_ms(run: &str) -> Option<u64> {
    Ulid::from_string(run).ok().map(|id| id.timestamp_ms())
}

fn older_than(run: &str, keep: Duration, now: Timestamp) -> bool {
    let now_ms = u64::try_from(now.as_millisecond()).unwrap_or(0);
    let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
    run_time_ms(run).is_some_and(|at| at.saturating_add(keep_ms) < now_ms)
}

impl State {
    /// Forget runs of a pipeline that are older than `keep`. The newest of each pipeline stays.
    pub async fn forget_runs(&self, pipeline: &str, keep: Duration, now: Timestamp) -> Result<()> {
        let newest: Option<String> = self.read(&keys::last(pipeline)).await?;
        let old: Vec<String> = self
            .keys(keys::RUNS)
            .await?
            .into_iter()
            .filter(|key| older_than(keys::below(keys::RUNS, key), keep, now))
            .collect();
        let mut gone = Vec::new();
        for key in old {
            let run = keys::below(keys::RUNS, &key).to_owned();
            let report: Option<super::Report> = self.read(&key).await?;
            if report.is_some_and(|report| report.pipeline == pipeline) && newest.as_ref() != Some(&run) {
                gone.push(Item::delete(key));
            }
        }
        self.commit_in_parts(gone).await
    }

    /// Forget prior values, a run at a time: runs older than `keep`, then the oldest until `max_bytes` are left.
    /// A run that still has an open batch is never forgotten.
    pub async fn forget_journal(
        &self,
        pipeline: &str,
        keep: Duration,
        max_bytes: u64,
        now: Timestamp,
    ) -> Result<()> {
        let prefix = keys::weights(pipeline);
        let weights = self.read_all::<u64>(&prefix).await?;
        let open = self.keys(&keys::open_batches(pipeline)).await?;
        let mut total = 0;
        let mut forgotten = HashSet::new();
        for (key, bytes) in weights.iter().rev() {
            let run = keys::below(&prefix, key);
            total += bytes;
            let expired = older_than(run, keep, now) || total > max_bytes;
            let is_open = open.iter().any(|batch| batch.contains(run));
            if expired && !is_open {
                forgotten.insert(run.to_owned());
            }
        }
        if forgotten.is_empty() {
            return Ok(());
        }
        self.forget_tombstones(pipeline, &forgotten).await?;
        for run in &forgotten {
            self.forget_journal_of(pipeline, run).await?;
        }
        Ok(())
    }

    /// A tombstone only says where the story of a deleted key is: it goes with the story.
    async fn forget_tombstones(&self, pipeline: &str, runs: &HashSet<String>) -> Result<()> {
        let stones = self.read_all::<Tombstone>(&keys::tombstones(pipeline)).await?;
        let gone = stones.into_iter().filter(|(_, stone)| runs.contains(&*stone.written.run));
        self.commit_in_parts(gone.map(|(key, _)| Item::delete(key)).collect()).await
    }

    /// The weight goes last: while it is there, an interrupted clean-up is found again.
    async fn forget_journal_of(&self, pipeline: &str, run: &str) -> Result<()> {
        self.remove_below(&keys::journal_of(pipeline, run)).await?;
        self.remove_below(&keys::outcomes_of(pipeline, run)).await?;
        self.remove_below(&keys::blobs_of(pipeline, run)).await?;
        self.commit(vec![Item::delete(keys::weight(pipeline, run))]).await
    }
}
