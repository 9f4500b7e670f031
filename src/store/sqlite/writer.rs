//! Writing: one thread owns the one connection that writes. Waiting batches share a transaction, and so a flush.
//!
//! Most items are one statement: the condition is part of it, and only when nothing changed is the row looked at.

use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;

use rusqlite::{Connection, OptionalExtension as _, Statement};
use tokio::sync::{mpsc, oneshot};

use super::fault::explain;
use super::several::{ROWS, Several, go_together};
use super::{CAPS, INLINE_MAX};
use crate::clock::mark_us;
use crate::error::{Error, Fault, Result};
use crate::record::{Fingerprint, Version};
use crate::store::{Expect, Item, Mode, Op, Outcome, check_limits, check_lone, judge, untouched};

/// Batches waiting for the writer: more than that wait in their senders.
const QUEUE: usize = 64;
/// Waiting batches are put into one transaction until it has this many items.
const GROUP_ITEMS: usize = 4_000;

type Outcomes = Vec<Result<Outcome>>;

struct Job {
    items: Vec<Item>,
    mode: Mode,
    answer: oneshot::Sender<Result<Outcomes>>,
}

/// The thread, and the way to it.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub fn start(connection: Connection) -> Result<Writer> {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let (report, ready) = std_mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || run(&connection, waiting, &report))
            .map_err(|error| crate::error::from_io(error, "starting a thread"))?;
        let writer = Writer { jobs: Some(jobs), thread: Some(thread) };
        ready.recv().map_err(|_| gone())??;
        Ok(writer)
    }

    pub async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Outcomes> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(Job { items, mode, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

impl Drop for Writer {
    /// What was accepted is written and the file closed before the store is gone.
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was already reported to everybody who waited for an answer.
            let _ = thread.join();
        }
    }
}

fn gone() -> Error {
    Error::bug("the thread that writes to SQLite ended")
}

fn run(connection: &Connection, mut waiting: mpsc::Receiver<Job>, ready: &std_mpsc::Sender<Result<()>>) {
    let pen = Pen::prepare(connection).map_err(explain);
    let mut pen = match pen {
        Ok(pen) => pen,
        Err(error) => return drop(ready.send(Err(error))),
    };
    if ready.send(Ok(())).is_err() {
        return;
    }
    while let Some(job) = waiting.blocking_recv() {
        let mut items = job.items.len();
        let mut group = vec![job];
        while items < GROUP_ITEMS {
            let Ok(job) = waiting.try_recv() else { break };
            items += job.items.len();
            group.push(job);
        }
        pen.settle(group);
    }
}

/// The statements, prepared once, and the counter within a transaction.
struct Pen<'c> {
    connection: &'c Connection,
    begin: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    load_counter: Statement<'c>,
    save_counter: Statement<'c>,
    look: Statement<'c>,
    put_any: Statement<'c>,
    put_absent: Statement<'c>,
    put_exactly: Statement<'c>,
    put_row: Statement<'c>,
    several: Several<'c>,
    delete_any: Statement<'c>,
    delete_row: Statement<'c>,
    large_insert: Statement<'c>,
    large_update: Statement<'c>,
    large_delete: Statement<'c>,
    last_version: i64,
    /// No version of ours is lower: a file that was made anew, or put back from a backup, must not give a version again that
    /// stood for something else.
    lowest: i64,
}

/// Version, where a large value is, and whether value and fingerprint are those of the put.
struct Held {
    version: i64,
    large: Option<i64>,
    same: bool,
}

impl<'c> Pen<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let sql = |text: &str| connection.prepare(text);
        Ok(Pen {
            connection,
            begin: sql("BEGIN IMMEDIATE")?,
            commit: sql("COMMIT")?,
            rollback: sql("ROLLBACK")?,
            load_counter: sql("SELECT value FROM meta WHERE name = 'version'")?,
            save_counter: sql("UPDATE meta SET value = ?1 WHERE name = 'version'")?,
            look: sql(
                "SELECT version, large, fingerprint IS ?3 AND CASE WHEN large IS NULL THEN value IS ?2
                         ELSE (SELECT large.value IS ?2 FROM large WHERE large.id = kv.large) END
                       FROM kv WHERE key = ?1",
            )?,
            put_any: sql("INSERT INTO kv(key, version, fingerprint, value) VALUES(?1, ?2, ?3, ?4)
                          ON CONFLICT(key) DO UPDATE SET version = ?2, fingerprint = ?3, value = ?4
                          WHERE large IS NULL AND (value IS NOT ?4 OR fingerprint IS NOT ?3)")?,
            put_absent: sql("INSERT INTO kv(key, version, fingerprint, value) VALUES(?1, ?2, ?3, ?4)
                             ON CONFLICT(key) DO NOTHING")?,
            put_exactly: sql("UPDATE kv SET version = ?2, fingerprint = ?3, value = ?4
                              WHERE key = ?1 AND version = ?5 AND large IS NULL
                                AND (value IS NOT ?4 OR fingerprint IS NOT ?3)")?,
            put_row: sql(
                "INSERT INTO kv(key, version, fingerprint, value, large) VALUES(?1, ?2, ?3, ?4, ?5)
                          ON CONFLICT(key) DO UPDATE
                          SET version = ?2, fingerprint = ?3, value = ?4, large = ?5",
            )?,
            several: Several::prepare(connection)?,
            delete_any: sql("DELETE FROM kv WHERE key = ?1 AND large IS NULL")?,
            delete_row: sql("DELETE FROM kv WHERE key = ?1")?,
            large_insert: sql("INSERT INTO large(value) VALUES(?1)")?,
            large_update: sql("UPDATE large SET value = ?2 WHERE id = ?1")?,
            large_delete: sql("DELETE FROM large WHERE id = ?1")?,
            last_version: 0,
            lowest: mark_us(),
        })
    }

    /// Write a group of batches in one transaction, or, where one of them must be undone, each in its own.
    fn settle(&mut self, group: Vec<Job>) {
        match self.attempt(&group) {
            Ok(Some(outcomes)) => {
                for (job, outcomes) in group.into_iter().zip(outcomes) {
                    answer(job, Ok(outcomes));
                }
            }
            Ok(None) => {
                for job in group {
                    self.settle(vec![job]);
                }
            }
            Err(error) => {
                let fault = Fault::of(&explain(error));
                for job in group {
                    answer(job, Err(Error::from(&fault)));
                }
            }
        }
    }

    /// `None`: a batch that is all or nothing came to nothing, and others shared its transaction.
    fn attempt(&mut self, group: &[Job]) -> rusqlite::Result<Option<Vec<Outcomes>>> {
        let attempted = self.attempt_within(group);
        if !self.connection.is_autocommit() {
            self.rollback.execute([])?;
        }
        attempted
    }

    /// Leaves the transaction open where it must not be kept.
    fn attempt_within(&mut self, group: &[Job]) -> rusqlite::Result<Option<Vec<Outcomes>>> {
        self.begin.execute([])?;
        let counter = self.load_counter.query_row([], |row| row.get::<_, i64>(0))?.max(self.lowest);
        self.last_version = counter;
        let mut answers = Vec::with_capacity(group.len());
        for job in group {
            let mut outcomes = Vec::with_capacity(job.items.len());
            let mut all_new = true;
            for run in job.items.chunk_by(go_together) {
                let (several, rest) = run.as_chunks::<ROWS>();
                for items in several {
                    if all_new {
                        all_new = self.several(items, job.mode, &mut outcomes)?;
                    } else {
                        self.each(items, job.mode, &mut outcomes)?;
                    }
                }
                self.each(rest, job.mode, &mut outcomes)?;
            }
            let kept = |outcome: &Result<Outcome>| outcome.as_ref().is_ok_and(Outcome::landed);
            if job.mode == Mode::All && !outcomes.iter().all(kept) {
                untouched(&mut outcomes);
                return Ok((group.len() == 1).then(|| vec![outcomes]));
            }
            answers.push(outcomes);
        }
        if self.last_version != counter {
            self.save_counter.execute([self.last_version])?;
        }
        self.commit.execute([])?;
        Ok(Some(answers))
    }

    /// Whether all of them were new; where one is not, each is seen to by itself, and so had better be those behind them.
    fn several(
        &mut self,
        items: &[Item; ROWS],
        mode: Mode,
        outcomes: &mut Outcomes,
    ) -> rusqlite::Result<bool> {
        let first = self.last_version + 1;
        let put = self.several.put(items, first)?;
        if put == 0 {
            self.each(items, mode, outcomes)?;
            return Ok(false);
        }
        // Versions of those that were not put are never given.
        self.last_version += i64::try_from(ROWS).unwrap_or(i64::MAX);
        for (item, version) in items.iter().zip(first..) {
            let is_new =
                put == ROWS || self.look(&item.key, None, None)?.is_some_and(|held| held.version == version);
            outcomes.push(if is_new {
                Ok(Outcome::Applied(Some(version.into())))
            } else {
                self.item(item, mode)?
            });
        }
        Ok(put == ROWS)
    }

    fn each(&mut self, items: &[Item], mode: Mode, outcomes: &mut Outcomes) -> rusqlite::Result<()> {
        for item in items {
            outcomes.push(self.item(item, mode)?);
        }
        Ok(())
    }

    /// The outer error ends the transaction, the inner one is this item's alone.
    fn item(&mut self, item: &Item, mode: Mode) -> rusqlite::Result<Result<Outcome>> {
        if let Err(error) = check_limits(&CAPS, item).and_then(|()| check_lone(item, mode)) {
            return Ok(Err(error));
        }
        match &item.op {
            Op::Put { value, fingerprint } => self.put(item, value, fingerprint.as_ref()),
            Op::Delete => self.delete(item),
            Op::Check => {
                let held = self.look(&item.key, None, None)?;
                let version = held.map(|held| Version::from(held.version));
                let judged = judge(item, version.as_ref(), false);
                Ok(judged.ok_or_else(|| Error::bug("a check came to nothing")))
            }
        }
        .map(|outcome| outcome.map_err(|error: Error| error.while_(item.key.clone())))
    }

    fn put(
        &mut self,
        item: &Item,
        value: &[u8],
        print: Option<&Fingerprint>,
    ) -> rusqlite::Result<Result<Outcome>> {
        let next = self.last_version + 1;
        let mark = print.map(|print| print.0.as_slice());
        if value.len() <= INLINE_MAX {
            let key = item.key.as_str();
            let changed = match &item.expect {
                Expect::Anything => self.put_any.execute((key, next, mark, value))?,
                Expect::Absent => self.put_absent.execute((key, next, mark, value))?,
                Expect::Exactly(version) => match version.0.parse::<i64>() {
                    Ok(version) => self.put_exactly.execute((key, next, mark, value, version))?,
                    Err(_) => 0,
                },
            };
            if changed == 1 {
                self.last_version = next;
                return Ok(Ok(Outcome::Applied(Some(next.into()))));
            }
        }
        self.put_looking(item, value, mark)
    }

    /// The way of everything that is not plain: unchanged, in conflict, or large now or before.
    fn put_looking(
        &mut self,
        item: &Item,
        value: &[u8],
        mark: Option<&[u8]>,
    ) -> rusqlite::Result<Result<Outcome>> {
        let held = self.look(&item.key, Some(value), mark)?;
        let version = held.as_ref().map(|held| Version::from(held.version));
        if let Some(outcome) = judge(item, version.as_ref(), held.as_ref().is_some_and(|held| held.same)) {
            return Ok(Ok(outcome));
        }
        let before = held.and_then(|held| held.large);
        let (inline, large) = if value.len() > INLINE_MAX {
            let id = if let Some(id) = before {
                self.large_update.execute((id, value))?;
                id
            } else {
                self.large_insert.insert([value])?
            };
            (None, Some(id))
        } else {
            if let Some(id) = before {
                self.large_delete.execute([id])?;
            }
            (Some(value), None)
        };
        self.last_version += 1;
        self.put_row.execute((item.key.as_str(), self.last_version, mark, inline, large))?;
        Ok(Ok(Outcome::Applied(Some(self.last_version.into()))))
    }

    fn delete(&mut self, item: &Item) -> rusqlite::Result<Result<Outcome>> {
        if item.expect == Expect::Anything && self.delete_any.execute([&item.key])? == 1 {
            return Ok(Ok(Outcome::Applied(None)));
        }
        let held = self.look(&item.key, None, None)?;
        let version = held.as_ref().map(|held| Version::from(held.version));
        if let Some(outcome) = judge(item, version.as_ref(), false) {
            return Ok(Ok(outcome));
        }
        if let Some(id) = held.and_then(|held| held.large) {
            self.large_delete.execute([id])?;
        }
        self.delete_row.execute([&item.key])?;
        Ok(Ok(Outcome::Applied(None)))
    }

    fn look(
        &mut self,
        key: &str,
        value: Option<&[u8]>,
        mark: Option<&[u8]>,
    ) -> rusqlite::Result<Option<Held>> {
        let held = self.look.query_row((key, value, mark), |row| {
            let same = row.get::<_, Option<bool>>(2)?.unwrap_or(false);
            Ok(Held { version: row.get(0)?, large: row.get(1)?, same })
        });
        held.optional()
    }
}

/// Whoever asked may have stopped waiting; what was written stays written.
fn answer(job: Job, outcome: Result<Outcomes>) {
    let _ = job.answer.send(outcome);
}
