//! Writing a batch to the store: what moves is put before it is cleared away, what failed in passing is tried again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::prepare::Write;
use super::records::{self, Answer};
use super::{Ask, Pipeline, Progress, Stop};
use crate::error::{Error, Fault, Kind, Result};
use crate::retry::{self, Patience, Verdict};
use crate::store::{Item, Outcome};

pub struct Written {
    pub outcomes: Vec<Result<Outcome>>,
    /// Whether what goes beside each change landed.
    pub beside: Vec<bool>,
    /// Some answers came only after a failed attempt.
    pub retried: bool,
    /// The store as a whole could not be written.
    pub given_up: Option<Error>,
}

impl Written {
    /// Nobody knows what became of these.
    fn unknown(count: usize, error: &Error) -> Self {
        let outcomes = (0..count).map(|_| Err(copy(error))).collect();
        Written { outcomes, beside: vec![false; count], retried: true, given_up: Some(copy(error)) }
    }
}

#[allow(clippy::vec_box)] // they are handed on in their boxes
pub type Writes = Vec<Box<Write>>;

/// Changes that belong to one place in the journal.
pub struct Batch {
    pub number: u32,
    pub writes: Writes,
    /// What state must hold before it is written: its intents, and items that need no write to the store.
    pub announced: Vec<Item>,
}

/// A batch that is over; `None` = it was never begun.
pub type Ended = (Batch, Option<Written>);

/// Batches that are intended and wait for the one before them: the store is never kept waiting, and little is in memory.
const WAITING_MAX: usize = 1;
/// Where batches go side by side, those that wait go together, unless the config says how large a batch is to be: every
/// write that a store is asked for costs it something of its own.
const TOGETHER_MAX: usize = 8;
/// … but of the last ones only so many: what became of them is written down while the rest is written.
const LAST_TOGETHER_MAX: usize = 4;

/// Batches being written, on a task of its own, one after the other or a few side by side: the store is fed while their
/// neighbours are rendered and settled. Whoever drops it ends it.
pub struct Writing {
    batches: Option<mpsc::Sender<Batch>>,
    ended: mpsc::UnboundedReceiver<Ended>,
    /// Whatever comes from now on is among the last.
    last: Arc<AtomicBool>,
    task: JoinSet<()>,
}

impl Writing {
    /// More than one side by side only where no batch may have to do with another.
    pub fn begin(line: &Pipeline, ask: &Ask, side_by_side: usize) -> Self {
        let together = if side_by_side > 1 && line.batch.is_none() { TOGETHER_MAX } else { 1 };
        let (batches, waiting) = mpsc::channel(WAITING_MAX);
        let (told, ended) = mpsc::unbounded_channel();
        let mut task = JoinSet::new();
        let (stop, progress) = (ask.stop.clone(), ask.progress.clone());
        let last = Arc::<AtomicBool>::default();
        let side_by_side = side_by_side.max(1);
        let manner = Manner { line: line.clone(), side_by_side, together, last: last.clone() };
        task.spawn(write_all(manner, (stop, progress), waiting, told));
        Writing { batches: Some(batches), ended, last, task }
    }

    /// Where batches to be written go in.
    pub fn gate(&self) -> Result<Gate> {
        let Some(batches) = &self.batches else { return Err(Error::bug("a batch after the last one")) };
        Ok(Gate(batches.clone()))
    }

    /// A batch that is over, if there is one.
    pub fn ended(&mut self) -> Option<Ended> {
        self.ended.try_recv().ok()
    }

    /// Only what is announced by now still comes.
    pub fn only_the_last(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Nothing else comes in.
    pub fn no_more(&mut self) {
        self.only_the_last();
        self.batches = None;
    }

    /// The next batch that is over; `None` = that was all.
    pub async fn next(&mut self) -> Option<Ended> {
        let ended = self.ended.recv().await;
        if ended.is_none()
            && let Some(Err(end)) = self.task.join_next().await
            && end.is_panic()
        {
            // A panic in a store is a panic of the pass, wherever it ran.
            std::panic::resume_unwind(end.into_panic());
        }
        ended
    }
}

/// The way in for batches; none is written before those that went in before it.
pub struct Gate(mpsc::Sender<Batch>);

impl Gate {
    /// Room for a batch, as soon as there is some.
    pub async fn room(&self) -> Result<mpsc::Permit<'_, Batch>> {
        self.0.reserve().await.map_err(|_| broken_off())
    }
}

fn broken_off() -> Error {
    Error::new(Kind::Canceled, "writing to the store was broken off")
}

/// How batches are written: so many writes at a time, of so many batches each.
struct Manner {
    line: Pipeline,
    side_by_side: usize,
    together: usize,
    last: Arc<AtomicBool>,
}

/// Until somebody wants it to end, or the store cannot be written: then what waits is given back as it is. What is under
/// way comes to its end.
async fn write_all(
    Manner { line, side_by_side, together, last }: Manner,
    (stop, progress): (Stop, Arc<dyn Progress>),
    mut waiting: mpsc::Receiver<Batch>,
    told: mpsc::UnboundedSender<Ended>,
) {
    let (mut lost, mut more) = (false, true);
    let (mut group, mut under_way) = (Vec::new(), FuturesUnordered::new());
    while more || !group.is_empty() || !under_way.is_empty() {
        let free = under_way.len() < side_by_side;
        let last_ones = last.load(Ordering::Relaxed);
        let ended = if !group.is_empty() && (lost || stop.is_set()) {
            std::mem::take(&mut group).into_iter().map(|batch| (batch, None)).collect()
        } else if !group.is_empty()
            && (under_way.is_empty() || free && (group.len() == together || last_ones))
        {
            // Beside another one goes only what is whole: alone, a store is not kept waiting.
            let most = if last_ones { group.len().min(LAST_TOGETHER_MAX) } else { group.len() };
            let rest = group.split_off(most);
            under_way.push(written(&line, std::mem::replace(&mut group, rest)));
            continue;
        } else {
            let room = together - usize::from(!free);
            tokio::select! {
                batch = waiting.recv(), if more && group.len() < room => {
                    more = batch.is_some();
                    group.extend(batch);
                    continue;
                }
                Some(written) = under_way.next() => {
                    lost |= written.iter().any(|(_, how)| how.given_up.is_some());
                    progress.advance(written.iter().map(|(batch, _)| batch.writes.len() as u64).sum());
                    written.into_iter().map(|(batch, how)| (batch, Some(how))).collect::<Vec<_>>()
                }
            }
        };
        if ended.into_iter().any(|ended| told.send(ended).is_err()) {
            return;
        }
    }
}

/// Batches that are written as one, each with what became of it. What is too much for a store together may not be one by one.
async fn written(line: &Pipeline, mut batches: Vec<Batch>) -> Vec<(Batch, Written)> {
    let lengths: Vec<usize> = batches.iter().map(|batch| batch.writes.len()).collect();
    let mut writes: Writes = batches.iter_mut().flat_map(|batch| std::mem::take(&mut batch.writes)).collect();
    let together = write(line, &writes).await;
    for (batch, length) in batches.iter_mut().zip(&lengths).rev() {
        batch.writes = writes.split_off(writes.len() - length);
    }
    if together.given_up.is_some() && batches.len() > 1 {
        return written_alone(line, batches).await;
    }
    let Written { mut outcomes, mut beside, retried, given_up } = together;
    let each = batches.into_iter().zip(lengths).map(|(batch, length)| {
        let outcomes = outcomes.drain(..length).collect();
        let beside = beside.drain(..length).collect();
        (batch, Written { outcomes, beside, retried, given_up: given_up.as_ref().map(copy) })
    });
    each.collect()
}

/// The same once more, batch by batch, until one of them cannot be written either: then the store is not to be had.
async fn written_alone(line: &Pipeline, batches: Vec<Batch>) -> Vec<(Batch, Written)> {
    let mut all: Vec<(Batch, Written)> = Vec::with_capacity(batches.len());
    let mut lost: Option<Error> = None;
    for batch in batches {
        let mut written = match &lost {
            None => write(line, &batch.writes).await,
            Some(error) => Written::unknown(batch.writes.len(), error),
        };
        // The first attempt was with the others.
        written.retried = true;
        lost = lost.or(written.given_up.as_ref().map(copy));
        all.push((batch, written));
    }
    all
}

/// Write a batch. The old key of a record that moves goes only once the new one is there.
async fn write(line: &Pipeline, writes: &[Box<Write>]) -> Written {
    let (retired, rest): (Vec<usize>, Vec<usize>) =
        (0..writes.len()).partition(|&index| writes[index].intent.retire);
    let mut written = attempt(line, writes, rest).await;
    let has_place = |index: &usize| match put_before(writes, *index) {
        Some(put) => written.outcomes[put].as_ref().is_ok_and(Outcome::landed),
        None => true,
    };
    let (free, kept): (Vec<usize>, Vec<usize>) = retired.into_iter().partition(has_place);
    for index in kept {
        written.outcomes[index] = Ok(Outcome::Untouched);
    }
    if !free.is_empty() {
        let mut second = attempt(line, writes, free.clone()).await;
        for index in free {
            std::mem::swap(&mut written.outcomes[index], &mut second.outcomes[index]);
        }
        written.given_up = written.given_up.or(second.given_up);
    }
    written
}

/// The write that puts a retired key's record at its new place, if it is one of this batch.
fn put_before(writes: &[Box<Write>], retired: usize) -> Option<usize> {
    let put = (0..retired).rev().find(|&index| !writes[index].intent.retire)?;
    (writes[put].intent.identity == writes[retired].intent.identity).then_some(put)
}

/// Puts whose old key could not be removed, with the reason.
pub fn half_moved(writes: &[Box<Write>], outcomes: &[Result<Outcome>]) -> HashMap<usize, Fault> {
    let failed = outcomes.iter().enumerate().filter_map(|(index, outcome)| {
        let error = outcome.as_ref().err().filter(|_| writes[index].intent.retire)?;
        Some((put_before(writes, index)?, Fault::of(error).at_key(writes[index].intent.key())))
    });
    failed.collect()
}

/// Write some of a batch, repeating what failed in passing.
async fn attempt(line: &Pipeline, writes: &[Box<Write>], mut open: Vec<usize>) -> Written {
    let mut answers: Vec<Option<Answer>> = writes.iter().map(|_| None).collect();
    let mut attempt = 0;
    let mut given_up = None;
    while !open.is_empty() {
        attempt += 1;
        let sent: Vec<&Write> = open.iter().map(|&index| &*writes[index]).collect();
        let answered = match records::deliver(line, &sent).await {
            Ok(answered) => answered,
            Err(error) => {
                let unknown = |_: &usize| Answer { outcome: Err(copy(&error)), beside: false };
                let answered = open.iter().map(unknown).collect();
                given_up = Some(error);
                answered
            }
        };
        let mut again = Vec::new();
        let mut pause = None;
        for (&index, answer) in open.iter().zip(answered) {
            if let Err(error) = &answer.outcome
                && let Verdict::Again { wait_ms } =
                    retry::judge(&patience(line), attempt, error, line.clock.chance())
            {
                pause = pause.max(Some(wait_ms));
                again.push(index);
            }
            answers[index] = Some(answer);
        }
        open = again;
        if let (Some(wait_ms), false) = (pause, open.is_empty()) {
            given_up = None;
            line.clock.sleep(Duration::from_millis(wait_ms)).await;
        }
    }
    let missing =
        || Answer { outcome: Err(Error::bug("a store gave no outcome for a write")), beside: false };
    let answers = answers.into_iter().map(|answer| answer.unwrap_or_else(missing));
    let (outcomes, beside) = answers.map(|answer| (answer.outcome, answer.beside)).unzip();
    Written { outcomes, beside, retried: attempt > 1, given_up }
}

fn patience(line: &Pipeline) -> Patience {
    if line.store.caps().cheap_list { Patience::LOCAL } else { Patience::REQUEST }
}

/// Errors hold causes that cannot be cloned; kind, text and remedy can.
pub fn copy(error: &Error) -> Error {
    Error::from(&Fault::of(error))
}
