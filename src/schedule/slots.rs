//! Which slot a pipeline was last run for. Of all processes that share a state, one gets a slot; a slot whose runner
//! died is taken up again, by one.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Rhythm;
use crate::clock::{SharedClock, is_absurd, rfc3339_ms};
use crate::error::{Error, Kind, Result};
use crate::state::lock::Locks;
use crate::state::{Report, State, Status, decode, decode_line, item, keys};
use crate::store::{Expect, Item, Listed, Mode, Outcome, StoreExt, What};

/// What runs of a slot are called in their reports.
pub const TRIGGER: &str = "schedule";
/// A runner says this often that it is alive …
pub const BEAT: Duration = Duration::from_secs(2);
/// … and is thought dead after so long without a word: three beats, in case one is slow.
pub const STALE: Duration = Duration::from_secs(6);

/// Clocks of machines that share a state differ by less.
const CLOCKS_DIFFER: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memo {
    rhythm: String,
    slot: Timestamp,
    /// When it was claimed, and when its runner was last heard of.
    claimed: String,
    at: String,
    finished: bool,
}

impl Memo {
    /// The slot that should have been run by now; `edge` is the last one of the rhythm that should have.
    pub(super) fn late(&self, rhythm: &Rhythm, edge: Option<Timestamp>) -> Option<Timestamp> {
        let edge = edge.filter(|_| self.rhythm == rhythm.name())?;
        if self.finished {
            return (self.slot < edge).then(|| rhythm.next(self.slot)).flatten();
        }
        (self.slot <= edge).then_some(self.slot)
    }
}

/// A slot that is ours to run.
#[derive(Debug, Clone)]
pub struct Claim {
    pub pipeline: String,
    pub slot: Timestamp,
    memo: Memo,
}

#[derive(Clone)]
pub struct Slots {
    state: State,
    clock: SharedClock,
}

impl Slots {
    pub fn new(state: State, clock: SharedClock) -> Self {
        Slots { state, clock }
    }

    /// The slot each pipeline was last run for. One seen for the first time (or under a new rhythm) has missed nothing;
    /// that it was seen is remembered, so that what is missed later is known to be.
    pub async fn since(&self, all: &[(&str, &Rhythm)]) -> Result<Vec<Timestamp>> {
        let lines = self.state.store().list_all(keys::SLOTS, What::Values).await?;
        let mut stored: HashMap<String, Listed> =
            lines.into_iter().map(|line| (line.key.clone(), line)).collect();
        let now = self.clock.now();
        let (mut since, mut unseen) = (Vec::with_capacity(all.len()), Vec::new());
        for (pipeline, rhythm) in all {
            let key = keys::slot(pipeline);
            let line = stored.remove(&key);
            let memo: Option<Memo> = line.as_ref().map(decode_line).transpose()?;
            if let Some(memo) = memo.filter(|memo| memo.rhythm == rhythm.name()) {
                since.push(if self.is_absurd(memo.slot) { now } else { memo.slot });
                continue;
            }
            let expect = line.map_or(Expect::Absent, |line| Expect::Exactly(line.version));
            let memo = Memo { finished: true, ..self.memo(rhythm, now) };
            unseen.push(item(key, &memo)?.expecting(expect));
            since.push(now);
        }
        self.remember(&unseen).await?;
        Ok(since)
    }

    /// Few writes for many memos. One that somebody else has written meanwhile stays: they saw the pipeline first.
    async fn remember(&self, unseen: &[Item]) -> Result<()> {
        let store = self.state.store();
        for part in unseen.chunks(store.caps().bulk_max.max(1)) {
            let written = store.write(part.to_vec(), Mode::Each).await;
            for outcome in written.map_err(|error| error.while_("writing down a slot"))? {
                if let Err(error) = outcome
                    && error.kind() != Kind::Conflict
                {
                    return Err(error.while_("writing down a slot"));
                }
            }
        }
        Ok(())
    }

    /// Try to get a slot. `None` = it is, or was, somebody else's.
    pub async fn claim(&self, pipeline: &str, rhythm: &Rhythm, slot: Timestamp) -> Result<Option<Claim>> {
        let (memo, expect) = self.read(pipeline).await?;
        let is_over = |memo: &Memo| memo.slot >= slot && !self.is_absurd(memo.slot);
        if memo.is_some_and(|memo| memo.rhythm == rhythm.name() && is_over(&memo)) {
            return Ok(None);
        }
        let memo = self.memo(rhythm, slot);
        let ours = self.write(pipeline, &memo, expect).await?;
        Ok(ours.then(|| Claim { pipeline: pipeline.to_owned(), slot, memo }))
    }

    /// Its runner is alive. `false` = it is somebody else's by now.
    pub async fn beat(&self, claim: &mut Claim) -> Result<bool> {
        let memo = Memo { at: rfc3339_ms(self.clock.now()), ..claim.memo.clone() };
        if memo == claim.memo {
            return Ok(true);
        }
        let ours = self.replace(claim, &memo).await?;
        claim.memo = memo;
        Ok(ours)
    }

    /// A slot whose runner died or gave it back: not finished, not heard of for a while, and nobody holds the lock.
    pub async fn reclaim(&self, pipeline: &str, rhythm: &Rhythm, locks: &Locks) -> Result<Option<Claim>> {
        let (memo, expect) = self.read(pipeline).await?;
        let Some(memo) = memo.filter(|memo| !memo.finished && memo.rhythm == rhythm.name()) else {
            return Ok(None);
        };
        let claimed: Timestamp = memo.at.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let fresh = claimed.checked_add(STALE).is_ok_and(|until| until > self.clock.now())
            && !self.is_absurd(claimed);
        if fresh || locks.free(&[pipeline]).await? != [true] {
            return Ok(None);
        }
        let slot = memo.slot;
        if self.was_run(pipeline, &memo).await? {
            self.write(pipeline, &Memo { finished: true, ..memo }, expect).await?;
            return Ok(None);
        }
        let memo = self.memo(rhythm, slot);
        let ours = self.write(pipeline, &memo, expect).await?;
        Ok(ours.then(|| Claim { pipeline: pipeline.to_owned(), slot, memo }))
    }

    /// Its runner died after the run's end, and before it could say so here.
    async fn was_run(&self, pipeline: &str, memo: &Memo) -> Result<bool> {
        let Some(last) = self.state.read::<String>(&keys::last(pipeline)).await? else { return Ok(false) };
        let report: Option<Report> = self.state.read(&keys::run(&last)).await?;
        Ok(report.is_some_and(|report| {
            report.trigger == TRIGGER
                && report.started >= memo.claimed
                && !report.interrupted
                && !matches!(report.status, Status::Running | Status::Canceled)
        }))
    }

    /// Pipelines with a slot that is not finished.
    pub async fn unfinished(&self) -> Result<Vec<String>> {
        let all = self.state.read_all::<Memo>(keys::SLOTS).await?;
        let open = all.into_iter().filter(|(_, memo)| !memo.finished);
        Ok(open.map(|(key, _)| keys::below(keys::SLOTS, &key).to_owned()).collect())
    }

    /// Its run came to an end, whatever the end.
    pub async fn finish(&self, claim: &Claim) -> Result<()> {
        self.replace(claim, &Memo { finished: true, ..claim.memo.clone() }).await.map(drop)
    }

    /// It could not be run, or not to its end: whoever comes next takes it up.
    pub async fn hand_back(&self, claim: &Claim) -> Result<()> {
        let memo = Memo { at: rfc3339_ms(self.clock.now()), ..claim.memo.clone() };
        self.replace(claim, &memo).await.map(drop)
    }

    /// Whatever came up until now is not to be made up for.
    pub async fn pass_over(&self, pipeline: &str, rhythm: &Rhythm) -> Result<()> {
        let (_, expect) = self.read(pipeline).await?;
        let memo = Memo { finished: true, ..self.memo(rhythm, self.clock.now()) };
        self.write(pipeline, &memo, expect).await.map(drop)
    }

    /// Only what is still ours is replaced: a slot that somebody took over is theirs.
    async fn replace(&self, claim: &Claim, memo: &Memo) -> Result<bool> {
        let (stored, expect) = self.read(&claim.pipeline).await?;
        if stored.as_ref() != Some(&claim.memo) {
            return Ok(false);
        }
        self.write(&claim.pipeline, memo, expect).await
    }

    fn is_absurd(&self, at: Timestamp) -> bool {
        is_absurd(at, self.clock.now(), CLOCKS_DIFFER)
    }

    fn memo(&self, rhythm: &Rhythm, slot: Timestamp) -> Memo {
        let at = rfc3339_ms(self.clock.now());
        Memo { rhythm: rhythm.name(), slot, claimed: at.clone(), at, finished: false }
    }

    async fn read(&self, pipeline: &str) -> Result<(Option<Memo>, Expect)> {
        let key = keys::slot(pipeline);
        match self.state.store().get_one(&key).await? {
            Some(stored) => Ok((Some(decode(&key, &stored.value)?), Expect::Exactly(stored.version))),
            None => Ok((None, Expect::Absent)),
        }
    }

    /// `true` = it is written; `false` = somebody else was faster.
    async fn write(&self, pipeline: &str, memo: &Memo, expect: Expect) -> Result<bool> {
        let item = item(keys::slot(pipeline), memo)?.expecting(expect);
        match self.state.store().write_one(item).await {
            Ok(Outcome::Applied(_)) => Ok(true),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == Kind::Conflict => Ok(false),
            Err(error) => Err(Error::while_(error, "writing down a slot")),
        }
    }
}
