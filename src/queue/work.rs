//! A worker: claims tasks, has their effects done, settles them. Any number may work at once; each task has one
//! claimant at a time, and a claimant that died is noticed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use super::dead::Letter;
use super::effect::{Done, Effects};
use super::{Claim, FollowUp, Task};
use crate::clock::{SharedClock, rfc3339_ms};
use crate::error::{Fault, Result};
use crate::retry::{Patience, backoff_ms};
use crate::shape::Shape;
use crate::source::Source;
use crate::state::lease::{Standing, WORKER};
use crate::state::lock::Locks;
use crate::state::{State, decode_line, item, keys};
use crate::store::{Expect, Item, Mode, Outcome, Query, SharedStore, What};

pub struct Worker {
    pub pipeline: String,
    pub state: State,
    pub locks: Arc<Locks>,
    pub clock: SharedClock,
    /// Where the values are.
    pub store: SharedStore,
    pub shape: Arc<dyn Shape>,
    /// Where documents come from that are no longer kept.
    pub source: Option<Arc<dyn Source>>,
    pub then: Vec<FollowUp>,
    /// Set by a person who wants it to end: what is in flight is finished, nothing more is begun.
    pub stop: Arc<AtomicBool>,
}

/// What one round of work came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    pub done: u64,
    pub failed: u64,
    /// New dead letters.
    pub dead: u64,
    /// Follow-ups that stopped because the other side as a whole was out of reach.
    pub paused: Vec<Fault>,
    /// A person asked to stop, and some were not begun; they stay open.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

impl Summary {
    pub fn add(&mut self, other: Summary) {
        self.done += other.done;
        self.failed += other.failed;
        self.dead += other.dead;
        self.paused.extend(other.paused);
        self.stopped |= other.stopped;
    }
}

struct Claimed {
    identity: String,
    task: Task,
    expect: Expect,
}

impl Worker {
    /// Attempt every open task once, whatever its back-off says.
    pub async fn once(&self) -> Result<Summary> {
        self.attempt(false).await
    }

    /// Attempt every open task that is due.
    pub async fn due(&self) -> Result<Summary> {
        self.attempt(true).await
    }

    async fn attempt(&self, patient: bool) -> Result<Summary> {
        let mut summary = Summary::default();
        if self.then.is_empty() {
            return Ok(summary);
        }
        let me = format!("{WORKER}{:016x}", self.clock.random());
        let lock = self.locks.acquire(&me).await?;
        let outcome = lock.guard(Box::pin(self.rounds(patient, &me, &mut summary))).await;
        lock.release().await;
        self.locks.forget(&me).await;
        outcome.map(|()| summary)
    }

    async fn rounds(&self, patient: bool, me: &str, summary: &mut Summary) -> Result<()> {
        for then in self.then.iter().filter(|then| !matches!(then.effect, super::Effect::Outside)) {
            let unsure = self.drain(then, patient, me, summary).await?;
            if unsure.is_empty() || self.is_stopped() {
                continue;
            }
            // Somebody's claims are in the way, and it is not known yet whether that somebody lives.
            let names: Vec<&str> = unsure.iter().map(String::as_str).collect();
            if self.locks.watch(&names).await?.contains(&Standing::Gone) {
                self.drain(then, patient, me, summary).await?;
            }
        }
        Ok(())
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Attempt what is free. Returns the claimants of which nobody knows yet whether they are there.
    async fn drain(
        &self,
        then: &FollowUp,
        patient: bool,
        me: &str,
        summary: &mut Summary,
    ) -> Result<HashSet<String>> {
        let mut unsure = HashSet::new();
        let prefix = keys::queue(&self.pipeline, &then.name);
        let effects = Effects::new(self, then);
        let mut after: Option<String> = None;
        loop {
            let query =
                Query { prefix: &prefix, after: after.as_deref(), limit: then.batch(), what: What::Values };
            let page = self.state.store().list(query).await?;
            after = page.items.last().map(|line| line.key.clone());
            let mut open = Vec::new();
            let tasks = page.items.iter().map(decode_line::<Task>).collect::<Result<Vec<_>>>()?;
            let claimants = self.claimants(&tasks).await?;
            for (line, task) in page.items.iter().zip(tasks) {
                let standing = task.claim.as_ref().and_then(|claim| claimants.get(&claim.owner)).copied();
                if standing == Some(Standing::Unsure) {
                    unsure.extend(task.claim.as_ref().map(|claim| claim.owner.clone()));
                }
                if self.is_free(&task, standing) && (!patient || task.is_due(self.clock.now())) {
                    let identity = keys::below(&prefix, &line.key).to_owned();
                    open.push(Claimed { identity, task, expect: Expect::Exactly(line.version.clone()) });
                }
            }
            if self.is_stopped() && !open.is_empty() {
                summary.stopped = true;
                return Ok(HashSet::new());
            }
            let claimed = self.claim(then, open, me).await?;
            let results = effects.perform(&claimed.iter().map(|one| &one.task).collect::<Vec<_>>()).await;
            if self.settle(then, claimed, results, summary).await? {
                return Ok(HashSet::new());
            }
            if !page.more {
                return Ok(unsure);
            }
        }
    }

    /// The workers that have claimed some of these.
    async fn claimants(&self, tasks: &[Task]) -> Result<HashMap<String, Standing>> {
        let owners = tasks.iter().filter_map(|task| task.claim.as_ref()).map(|claim| claim.owner.as_str());
        let workers: HashSet<&str> = owners.filter(|owner| owner.starts_with(WORKER)).collect();
        if workers.is_empty() {
            return Ok(HashMap::new());
        }
        let workers: Vec<&str> = workers.into_iter().collect();
        let standing = self.locks.standing(&workers).await?;
        Ok(workers.into_iter().map(str::to_owned).zip(standing).collect())
    }

    /// Nobody has it, or whoever had it is dead or out of time. Of a worker on another machine the clock says nothing:
    /// what counts is whether it still shows signs of life.
    fn is_free(&self, task: &Task, standing: Option<Standing>) -> bool {
        let Some(claim) = &task.claim else { return true };
        let expired = claim.until.parse::<Timestamp>().is_ok_and(|until| until <= self.clock.now());
        match standing {
            Some(Standing::Gone) => true,
            Some(_) if !self.locks.are_local() => false,
            _ => expired,
        }
    }

    async fn claim(&self, then: &FollowUp, open: Vec<Claimed>, me: &str) -> Result<Vec<Claimed>> {
        let until = self.clock.now().checked_add(then.lease()).unwrap_or(Timestamp::MAX);
        let mut claimed = Vec::with_capacity(open.len());
        let mut items = Vec::with_capacity(open.len());
        for mut one in open {
            one.task.claim = Some(Claim { owner: me.to_owned(), until: rfc3339_ms(until) });
            one.task.fence += 1;
            let key = keys::task(&self.pipeline, &then.name, &one.identity);
            items.push(one.task.item(key)?.expecting(one.expect.clone()));
            claimed.push(one);
        }
        if items.is_empty() {
            return Ok(claimed);
        }
        let outcomes = self.state.store().write(items, Mode::Each).await?;
        let ours = claimed.into_iter().zip(outcomes).filter_map(|(one, outcome)| match outcome {
            Ok(Outcome::Applied(Some(version))) => Some(Claimed { expect: Expect::Exactly(version), ..one }),
            // Somebody else was faster, or the task was replaced: it is theirs, or for the next round.
            _ => None,
        });
        Ok(ours.collect())
    }

    /// Write down what became of each. `true` = the other side is out of reach, stop for now.
    async fn settle(
        &self,
        then: &FollowUp,
        claimed: Vec<Claimed>,
        results: Vec<Done>,
        summary: &mut Summary,
    ) -> Result<bool> {
        let (mut paused, mut stop) = (None, false);
        let mut items = Vec::new();
        for (one, result) in claimed.into_iter().zip(results) {
            let key = keys::task(&self.pipeline, &then.name, &one.identity);
            stop |= matches!(result, Done::HandedBack(_));
            match result {
                Done::Well => {
                    summary.done += 1;
                    items.push(Item::delete(key).expecting(one.expect));
                }
                Done::NotBegun => {
                    summary.stopped = true;
                    items.push(Task { claim: None, ..one.task }.item(key)?.expecting(one.expect));
                }
                Done::HandedBack(fault) | Done::Waits(fault) => {
                    let task = Task { claim: None, error: Some(fault.clone()), ..one.task };
                    items.push(task.item(key)?.expecting(one.expect));
                    paused.get_or_insert(fault);
                }
                Done::Hopeless(fault) => {
                    summary.failed += 1;
                    summary.dead += u64::from(self.bury(then, one, fault).await?);
                }
                Done::Failed(fault) => {
                    summary.failed += 1;
                    if one.task.attempts + 1 >= Patience::FOLLOW_UP.attempts_max {
                        summary.dead += u64::from(self.bury(then, one, fault).await?);
                    } else {
                        items.push(self.failed(one.task, fault).item(key)?.expecting(one.expect));
                    }
                }
            }
        }
        // A conflict means a newer version has taken the task's place, which is just as well.
        for outcome in self.state.store().write(items, Mode::Each).await? {
            outcome?;
        }
        summary.paused.extend(paused.map(|fault| fault.at_scope(&then.name)));
        Ok(stop)
    }

    fn failed(&self, task: Task, fault: Fault) -> Task {
        let attempts = task.attempts + 1;
        let wait = Duration::from_millis(backoff_ms(&Patience::FOLLOW_UP, attempts, self.clock.chance()));
        let not_before = self.clock.now().checked_add(wait).unwrap_or(Timestamp::MAX);
        Task { attempts, error: Some(fault), not_before: Some(rfc3339_ms(not_before)), claim: None, ..task }
    }

    /// From the queue to the dead letters, in one atomic write. `false` = a newer version was faster.
    async fn bury(&self, then: &FollowUp, one: Claimed, cause: Fault) -> Result<bool> {
        let since = rfc3339_ms(self.clock.now());
        let task = Task {
            claim: None,
            not_before: None,
            attempts: one.task.attempts + 1,
            error: Some(cause.clone()),
            ..one.task
        };
        let letter = Letter { task, cause, since };
        let items = vec![
            Item::delete(keys::task(&self.pipeline, &then.name, &one.identity)).expecting(one.expect),
            item(keys::dead(&self.pipeline, &then.name, &one.identity), &letter)?,
        ];
        let outcomes =
            self.state.store().write(items, Mode::All).await?.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(outcomes.iter().all(Outcome::landed))
    }
}
