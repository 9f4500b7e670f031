//! Applying a plan, batch by batch. Each batch is intended in state before it is written to the store and settled
//! in state after; settling one batch and intending the next share a transaction, and run beside the write in
//! between. This is the only place that writes to a target.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt as _;
use futures::future::{MaybeDone, maybe_done};
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::ahead::Ahead;
use super::announcing::Announcing;
use super::failing::Failure;
use super::hold::count_held;
use super::prepare::{Prepare, Ready, Settled, Write};
use super::settle::{self, Arrived};
use super::steps::{Feed, Steps};
use super::write::{Batch, Ended, Writes, Writing, half_moved};
use super::{Ask, Pipeline};
use crate::error::{Error, Fault, Kind, Result};
use crate::shape::Existing;
use crate::state::held::HeldItem;
use crate::state::journal::{self, Change, Late, OpenBatch};
use crate::state::{Report, item, keys};
use crate::store::{Item, Outcome, Sum};

/// What applying found out beyond the report's counts.
#[derive(Default)]
pub struct Applied {
    /// Conflicts met on the way, to be held.
    pub held: Vec<HeldItem>,
    pub failed_scopes: Vec<String>,
    /// Changes the store refused, each by itself.
    pub failures: Vec<Failure>,
    /// Entries found unusable.
    pub parked: HashSet<String>,
    /// Bytes of journal written, for retention.
    pub journal_bytes: u64,
    /// How keys and versions of the baseline changed by what landed …
    pub moved: Sum,
    /// … and whether it changed in any other way.
    pub settled_aside: bool,
}

pub struct Applier<'a, P> {
    pub line: &'a Pipeline,
    pub ask: &'a Ask,
    preparer: &'a P,
    pub report: &'a mut Report,
    pub applied: Applied,
    next_number: u32,
    size: usize,
}

impl<'a, P: Prepare> Applier<'a, P> {
    pub fn new(line: &'a Pipeline, ask: &'a Ask, preparer: &'a P, report: &'a mut Report) -> Self {
        // A batch's settlement and the next one's intents must fit one atomic write of the state.
        // A record that moves has follow-ups at both its keys.
        let records = if line.records.is_some() { 2 } else { 0 };
        let items_each = 5 + 4 * line.then.len() + records;
        let by_state = line.state.atomic_max().saturating_sub(8) / items_each;
        let caps = line.store.caps();
        // Where a request is counted against a limit, as much as it takes goes into one.
        let most = if caps.strong_read { BATCH_MAX } else { caps.bulk_max / records.max(1) };
        let size = line.batch.unwrap_or_else(|| caps.bulk_max.min(most)).clamp(1, by_state.max(1));
        Applier { line, ask, preparer, report, applied: Applied::default(), next_number: 0, size }
    }

    /// Puts before deletes: what moves is never gone in between.
    pub async fn all(&mut self, steps: &mut Steps) -> Result<()> {
        let deletes = AtomicBool::new(false);
        let is_put = |step: &P::Step| {
            let delete = P::is_delete(step);
            deletes.fetch_or(delete, Ordering::Relaxed);
            !delete
        };
        let puts = Feed::Planned(steps.read()?);
        self.phase(&mut Ahead::of(self.preparer, puts, &is_put, self.size), 1).await?;
        if !deletes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let deletes = Feed::Planned(steps.read()?);
        self.phase(&mut Ahead::of(self.preparer, deletes, &P::is_delete, self.size), 1).await
    }

    /// Something was written, or might have been.
    pub fn has_begun(&self) -> bool {
        self.next_number > 0
    }

    /// Puts that are written while others are still being found. All are of new keys, so their order means nothing.
    pub async fn found(&mut self, puts: mpsc::Receiver<Vec<P::Step>>) -> Result<()> {
        let side_by_side = self.line.store.caps().side_by_side;
        self.phase(&mut Ahead::of(self.preparer, Feed::found(puts), &|_| true, self.size), side_by_side).await
    }

    /// Four things at once: the store writes batch *k* (or some side by side); the state settles *k−1* and intends *k+1*,
    /// which then waits for its turn; *k+2* is rendered; the source is read for *k+3*.
    async fn phase(&mut self, ahead: &mut Ahead<'_, P>, side_by_side: usize) -> Result<()> {
        let mut writing = Writing::begin(self.line, self.ask, side_by_side);
        let at_once = if side_by_side > 1 { ANNOUNCED_AT_ONCE } else { 1 };
        let fed = self.feed(ahead, &mut writing, at_once).await;
        writing.no_more();
        // Keep what is known before giving up: the store has these batches.
        self.settle_rest(&mut writing).await?;
        fed?;
        self.stopped().map_or(Ok(()), Err)
    }

    async fn feed(&mut self, ahead: &mut Ahead<'_, P>, writing: &mut Writing, at_once: usize) -> Result<()> {
        let mut announcing = Announcing::to(writing.gate()?, &self.line.state);
        let mut prepared = self.prepare(ahead).await?;
        while let Some(batch) = prepared {
            // One for one: more would keep this one, and what the store waits for, back behind them.
            let settled = writing.ended().map(|ended| self.tally(ended)).transpose()?.unwrap_or_default();
            if let Some(error) = self.stopped() {
                // What was announced is given back by those who were to write it.
                announcing.hand_on(0).await?;
                return self.line.state.commit(settled).await.and(Err(error));
            }
            announcing.push(settled, batch);
            let (next, handed_on) = {
                let mut hand_on = pin!(maybe_done(announcing.hand_on(0)));
                // Polled first as well: the state commits while the next batch is decoded, rendered and encoded.
                let next = ahead_of(hand_on.as_mut(), self.prepare(ahead)).await;
                (next, hand_on.take_output())
            };
            handed_on.unwrap_or(Ok(()))?;
            // What was announced is written, whatever became of the one behind it.
            let left = if next.is_ok() { at_once - 1 } else { 0 };
            ahead.beside(announcing.hand_on(left)).await?;
            prepared = next?;
        }
        writing.only_the_last();
        announcing.hand_on(0).await
    }

    /// Everything that was handed on comes to its end. What one batch came to is written down while others are counted.
    async fn settle_rest(&mut self, writing: &mut Writing) -> Result<()> {
        let state = &self.line.state;
        let (mut commits, mut more) = (FuturesUnordered::new(), true);
        while more || !commits.is_empty() {
            tokio::select! {
                ended = writing.next(), if more => {
                    more = ended.is_some();
                    commits.push(state.commit_each(self.settled(ended, writing)?));
                }
                Some(committed) = commits.next() => committed?,
            }
        }
        Ok(())
    }

    /// What state has to learn of each batch that was written by now. Together they might be too much for one write.
    fn settled(&mut self, first: Option<Ended>, writing: &mut Writing) -> Result<Vec<Vec<Item>>> {
        let mut ended = first;
        let mut all = Vec::new();
        while let Some(one) = ended {
            all.push(self.tally(one)?);
            ended = writing.ended();
        }
        Ok(all)
    }

    /// A batch that was intended will not be written: say so, so that nobody looks for it.
    fn handed_back(&self, batch: &Batch) -> Result<Vec<Item>> {
        let exceptions: Vec<(u32, Late)> =
            (0u32..).zip(batch.writes.iter()).map(|(i, _)| (i, Late::Dropped)).collect();
        let (pipeline, run) = (&self.line.name, &self.report.id);
        Ok(vec![
            item(keys::outcomes(pipeline, run, batch.number), &exceptions)?,
            Item::delete(keys::open_batch(pipeline, run, batch.number)),
        ])
    }

    fn stopped(&self) -> Option<Error> {
        if let Some(kind) = self.report.cause {
            return Some(Error::new(kind, "the store could not be written"));
        }
        self.ask.stop.is_set().then(|| Error::new(Kind::Canceled, "stopped by request"))
    }

    async fn prepare(&mut self, ahead: &mut Ahead<'_, P>) -> Result<Option<Batch>> {
        match ahead.batch(self.next_number).await? {
            Some(ready) => self.accompanied(ready).await,
            None => Ok(None),
        }
    }

    /// A batch, with what a system keeps beside each change.
    async fn accompanied(&mut self, ready: Vec<Ready>) -> Result<Option<Batch>> {
        if ready.is_empty() {
            return Ok(None);
        }
        let number = self.next_number;
        self.next_number += 1;
        let (mut writes, mut announced) = self.sort_out(ready)?;
        if let Some(records) = &self.line.records {
            let beside = records.beside(self.line, &writes).await?;
            for (write, beside) in writes.iter_mut().zip(beside) {
                write.intent.still_new = beside.still_new;
                write.beside = beside;
            }
        }
        self.announce(number, &writes, &mut announced)?;
        Ok(Some(Batch { number, writes, announced }))
    }

    /// Count what is settled without a write, and say what state learns of it; the rest is to be written.
    fn sort_out(&mut self, ready: Vec<Ready>) -> Result<(Writes, Vec<Item>)> {
        let (mut writes, mut announced) = (Vec::with_capacity(ready.len()), Vec::new());
        for one in ready {
            match one {
                Ready::Write(write) => writes.push(write),
                Ready::Settled { scope, how, items, note } => {
                    if let Some(note) = note {
                        self.report.warn(note);
                    }
                    self.applied.settled_aside |= !items.is_empty();
                    announced.extend(items);
                    self.report.count(&scope, |counts| match how {
                        Settled::Unchanged => counts.unchanged += 1,
                        Settled::Skipped => counts.skipped += 1,
                        Settled::Missing => counts.missing += 1,
                        Settled::Forgotten => {}
                    });
                }
                Ready::Parked { entry, parked } => {
                    self.report.warn(format!("{entry}: {}", parked.why));
                    self.report.count(&parked.scope, |counts| counts.skipped += 1);
                    announced.push(item(keys::parked_item(&self.line.name, &entry), &parked)?);
                    self.applied.parked.insert(entry);
                }
                Ready::Failed { scope, scanned, fault } => self.fail(&scope, scanned, *fault),
                Ready::Held(held) => self.hold(*held),
                Ready::Remark(text) => self.report.warn(text),
            }
        }
        Ok((writes, announced))
    }

    fn fail(&mut self, scope: &str, scanned: bool, fault: Fault) {
        self.count_failed(scope, scanned, fault);
        self.applied.failed_scopes.push(scope.to_owned());
    }

    /// What is absent at the source was not scanned there: it brings its own scan along.
    fn count_failed(&mut self, scope: &str, scanned: bool, fault: Fault) {
        self.report.error(fault);
        self.report.count(scope, |counts| {
            counts.scanned += u64::from(!scanned);
            counts.failed += 1;
        });
    }

    fn hold(&mut self, held: HeldItem) {
        count_held(self.report, &held, false);
        self.applied.held.push(held);
    }

    /// Say in state what a batch is about to do.
    fn announce(&self, number: u32, writes: &[Box<Write>], items: &mut Vec<Item>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let (pipeline, run) = (&self.line.name, &self.report.id);
        items.extend(
            writes.iter().flat_map(|write| [&write.blob, &write.body]).flatten().map(|item| (**item).clone()),
        );
        dedup_by_key(items);
        let intents = writes.iter().map(|write| &write.intent);
        items.push(journal::journal(keys::journal(pipeline, run, number), intents)?);
        items.push(item(keys::open_batch(pipeline, run, number), &OpenBatch { only: None })?);
        // With every batch, so that the journal of a run that is cut off is found and forgotten one day.
        items.push(item(keys::weight(pipeline, run), &self.applied.journal_bytes)?);
        Ok(())
    }

    /// Count the outcomes and say what state has to learn.
    fn tally(&mut self, (batch, written): Ended) -> Result<Vec<Item>> {
        let Some(written) = written else { return self.handed_back(&batch) };
        if batch.writes.is_empty() {
            return Ok(Vec::new());
        }
        let mut arrived = Arrived::new(self.line, &self.report.id, batch.number, batch.writes.len());
        let half = half_moved(&batch.writes, &written.outcomes);
        let whole = written.given_up.is_some();
        let outcomes = batch.writes.iter().zip(written.outcomes).zip(written.beside);
        for (index, ((write, outcome), beside)) in (0u32..).zip(outcomes) {
            let landed = beside && outcome.as_ref().is_ok_and(Outcome::landed);
            arrived.beside(&write.beside, landed)?;
            match outcome {
                Ok(outcome) if write.intent.retire => {
                    self.tally_retired(index, write, &outcome, &mut arrived)?
                }
                Err(_) if write.intent.retire => arrived.unknown(index),
                Ok(outcome) => match half.get(&(index as usize)) {
                    None => self.tally_one(index, write, outcome, written.retried, &mut arrived)?,
                    // The baseline must go on naming the old key, or nobody would ever remove it.
                    Some(fault) => {
                        arrived.unknown(index);
                        self.fail(&write.scope, true, fault.clone());
                    }
                },
                Err(error) => {
                    let fault = Fault::of(&error).at_key(write.intent.key());
                    // Nobody knows whether it arrived: the intent stays open until the store is asked.
                    if error.kind().is_systemic() {
                        arrived.unknown(index)
                    } else {
                        arrived.failed(index, &fault)
                    }
                    if whole || self.line.records.is_none() {
                        self.applied.failed_scopes.push(write.scope.to_string());
                    } else {
                        self.applied.failures.push(Failure::of(write, &fault));
                    }
                    self.count_failed(&write.scope, write.stamp.is_some(), fault);
                }
            }
        }
        if let Some(error) = written.given_up {
            self.report.cause = Some(error.kind());
        }
        self.applied.journal_bytes += batch.writes.iter().map(|write| settle::weight(write)).sum::<u64>();
        self.applied.moved = self.applied.moved.and(&arrived.moved);
        arrived.items()
    }

    fn tally_one(
        &mut self,
        index: u32,
        write: &Write,
        outcome: Outcome,
        retried: bool,
        arrived: &mut Arrived<'_>,
    ) -> Result<()> {
        match outcome {
            Outcome::Applied(version) => {
                self.report.writes += 1;
                self.count(write);
                arrived.landed(write, version)
            }
            Outcome::AlreadySo(version) => {
                // After a retry it was most likely we who made it so.
                let ours = retried || write.stamp.is_none();
                self.report.writes += u64::from(retried);
                if ours {
                    self.count(write);
                } else {
                    self.report.count(&write.scope, |counts| counts.unchanged += 1);
                    arrived.already_so(index);
                }
                arrived.landed(write, version)
            }
            Outcome::Conflict(_) | Outcome::Untouched => {
                arrived.conflict(index);
                if write.intent.change == Change::Add && self.line.shape.existing() == Existing::Skip {
                    // Somebody else was first, and what exists stays.
                    self.report.count(&write.scope, |counts| counts.skipped += 1);
                    return Ok(());
                }
                let rule = match write.intent.change {
                    Change::Add => "foreign: the key holds something trueup did not write",
                    Change::Update | Change::Delete => "changed in the store while this run was at work",
                };
                let foreign = write.intent.change == Change::Add;
                self.hold(write.held(rule, foreign));
                Ok(())
            }
        }
    }

    /// The old key of a record that moved; the record itself is counted at its new one.
    fn tally_retired(
        &mut self,
        index: u32,
        write: &Write,
        outcome: &Outcome,
        arrived: &mut Arrived<'_>,
    ) -> Result<()> {
        match outcome {
            Outcome::Applied(_) => self.report.writes += 1,
            Outcome::AlreadySo(_) => {}
            Outcome::Conflict(_) => {
                arrived.conflict(index);
                self.report.warn(format!("{} was changed by somebody else and stays", write.intent.key()));
                return Ok(());
            }
            Outcome::Untouched => {
                arrived.dropped(index);
                return Ok(());
            }
        }
        arrived.landed(write, None)
    }

    fn count(&mut self, write: &Write) {
        self.report.count(&write.scope, |counts| match write.intent.change {
            Change::Add => counts.added += 1,
            Change::Update if write.missing => counts.missing += 1,
            Change::Update => counts.updated += 1,
            Change::Delete => counts.deleted += 1,
        });
    }
}

/// Work until it is done, and let something else go on as long as that takes.
async fn ahead_of<T, F: Future>(mut other: Pin<&mut MaybeDone<F>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _ = other.as_mut().poll(context);
        work.as_mut().poll(context)
    })
    .await
}

/// Batches on their way into state at a time, where several are written side by side: while a store of state flushes one to
/// its disk, others come together behind it.
const ANNOUNCED_AT_ONCE: usize = 8;

/// Items per batch unless the store or the config say otherwise: large enough to share a commit, small enough that
/// a crash repeats little.
const BATCH_MAX: usize = 1_000;

fn dedup_by_key(items: &mut Vec<Item>) {
    let mut seen = HashSet::new();
    items.retain(|item| seen.insert(item.key.clone()));
}
