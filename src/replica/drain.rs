//! Carries queued writes to etcd: many keys in one transaction, each key with its own condition, so that a conflict
//! fails only its own write. A server that cannot be reached is waited for; it never turns a write into a failure.
//!
//! One transaction is on its way at a time. What the ones before it did is written down meanwhile (`ledger`), and the
//! queue is read ahead; nothing waits for a commit in PostgreSQL but the end.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::Statement;

use super::ledger::{Decided, Ledger};
use super::meters::set;
use super::outcome::{self, Form, Outcome};
use super::packing::{Build, Pending, Planned, Window};
use super::settle::{Look, fetch_text};
use super::slot::Slot;
use super::state::State;
use super::{ConflictRule, Replica, within};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::{key, put, unmoved};
use crate::etcd::{RangeRequest, TxnRequest, fault, revision_of};
use crate::postgres::{STATEMENT_MAX, Session};
use crate::retry::{Patience, backoff_ms};

/// While etcd is away, and between attempts at an etcd that refuses.
const OUTAGE: Patience = Patience { attempts_max: u32::MAX, wait_ms_first: 100, wait_ms_max: 3_000 };
/// How often PostgreSQL may insist on one write within one window, before others get their turn.
const INSIST_MAX: u32 = 20;
/// On the way out: what is queued is still carried over, but an outage must not keep a process from ending.
const LAST_DRAIN: Duration = Duration::from_secs(10);
/// Transactions that are decided and not written down: each marker names them all.
const UNSETTLED_MAX: usize = 3;
/// Looks ahead of the newest write seen, before one at the whole queue: a write with a lower number may have become
/// visible later.
const LOOKS_AHEAD_MAX: u32 = 8;
/// After a conflict, transactions in which each write has its own condition: where there is one there are more.
const CAREFUL: u32 = 8;
/// Keys remembered at most before everything is written down and they are forgotten.
const HEADS_MAX: usize = 50_000;

/// What stops a round: etcd, which is waited for, or anything else, which ends the session.
#[derive(Debug)]
pub(super) enum Trouble {
    Etcd(Error),
    Fatal(Error),
}

impl Trouble {
    pub fn of_etcd(error: Error) -> Self {
        match error.kind() {
            Kind::Unavailable | Kind::Throttled | Kind::Full => Trouble::Etcd(error),
            _ => Trouble::Fatal(error),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Fatal(error)
    }
}

pub(super) struct Drainer<'a> {
    pub replica: &'a Replica,
    /// Reads the queue; outcomes are written by a connection of the ledger's own.
    pub session: Session,
    pub replica_id: String,
    pub slot_revision: i64,
    pub fetch: Statement,
    pub ledger: Ledger,
    window: Window,
    /// How often PostgreSQL has insisted on a write.
    insisted: HashMap<i64, u32>,
    /// Shrinks when the server takes fewer operations than usual.
    pub build: Build,
    /// For so many more transactions writes do not stand or fall together.
    careful: u32,
    /// The queue holds more than was looked at, beyond this id.
    more: bool,
    highest: i64,
    looks_ahead: u32,
    /// How often the watch was lost when this was last looked at.
    watches_lost: u64,
}

/// What became of a transaction.
struct Answer {
    /// `None` = not decided, to be sent again.
    outcomes: Vec<Option<Outcome>>,
    /// When that was so.
    revision: i64,
    /// The marker's revision; `None` = it was not moved.
    marker: Option<i64>,
}

impl<'a> Drainer<'a> {
    pub async fn new(replica: &'a Replica, state: &State) -> Result<Self> {
        let session = replica.session().await?;
        // Planned for the queue at hand, a look at a table without statistics reads and sorts all that is pending.
        within(STATEMENT_MAX, session.batch_execute("SET plan_cache_mode = force_generic_plan")).await?;
        let fetch = within(STATEMENT_MAX, session.prepare(&fetch_text(&replica.tables))).await?;
        Ok(Drainer {
            replica,
            session,
            replica_id: state.replica.clone(),
            slot_revision: state.slot_revision,
            fetch,
            ledger: Ledger::new(replica, state.epoch).await?,
            window: Window::default(),
            insisted: HashMap::new(),
            build: Build::new(),
            careful: 0,
            more: false,
            highest: 0,
            looks_ahead: 0,
            watches_lost: 0,
        })
    }

    /// Drain for ever; ends well when asked to stop and nothing is left (or time is up).
    pub async fn run(&mut self, woken: &tokio::sync::Notify, stop: &mut watch::Receiver<bool>) -> Result<()> {
        let mut failures = 0;
        let mut stopping_since = None;
        // Whatever an earlier holder left behind comes first.
        let mut recovered = false;
        loop {
            let stopping = *stop.borrow();
            // With the watch went what we knew of etcd: what answers now may be a backup of it.
            recovered &= !self.lost_watch();
            let outcome = if recovered { self.round().await } else { self.recover_first().await };
            let idle = recovered;
            match outcome {
                Ok(()) => {
                    recovered = true;
                    failures = 0;
                }
                Err(Trouble::Etcd(error)) => {
                    // A round counts the attempt itself; not even getting that far is one too.
                    if !recovered {
                        self.count_waiting(&error).await?;
                    }
                    failures += 1;
                    recovered = false;
                    self.replica.note("retry", error.to_string());
                }
                Err(Trouble::Fatal(error)) => return Err(error),
            }
            if stopping {
                let now = self.replica.clock.elapsed_ms();
                let since = *stopping_since.get_or_insert(now);
                let waited = Duration::from_millis(now.saturating_sub(since));
                if (idle && failures == 0) || waited >= LAST_DRAIN {
                    return self.flush().await;
                }
            }
            if idle || failures > 0 {
                self.rest(failures, woken, stop).await?;
            }
        }
    }

    /// Whether the watch was lost since the last look.
    fn lost_watch(&mut self) -> bool {
        let lost = self.replica.meters.read().watch_reopened;
        std::mem::replace(&mut self.watches_lost, lost) != lost
    }

    async fn recover_first(&mut self) -> Result<(), Trouble> {
        // What was in hand when something went wrong is read again, once it is known what became of it.
        self.window = Window::default();
        self.recover().await
    }

    async fn rest(
        &mut self,
        failures: u32,
        woken: &tokio::sync::Notify,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<()> {
        let clock = self.replica.clock.clone();
        if failures > 0 {
            let wait = Duration::from_millis(backoff_ms(&OUTAGE, failures, clock.chance()));
            clock.sleep(wait).await;
            return Ok(());
        }
        let stopping = *stop.borrow();
        loop {
            let page = tokio::select! {
                () = woken.notified() => return Ok(()),
                () = clock.sleep(self.replica.spec.poll) => return Ok(()),
                _ = stop.changed(), if !stopping => return Ok(()),
                page = self.ledger.written(), if !self.ledger.is_empty() => page?,
            };
            self.tell_all(page)?;
        }
    }

    /// Carry over what is queued now.
    async fn round(&mut self) -> Result<(), Trouble> {
        self.look_at_all().await?;
        loop {
            let planned = self.window.next(self.build.keys_max());
            if !planned.is_empty() {
                self.carry(planned).await?;
            } else if self.more {
                // Perhaps all that was seen is decided: then what follows is seen once that is written down.
                self.flush().await?;
                self.look_at_all().await?;
            } else {
                return Ok(());
            }
        }
    }

    /// From the oldest pending write on. Nothing is in hand but what is being written down.
    async fn look_at_all(&mut self) -> Result<()> {
        if self.window.heads() > HEADS_MAX {
            self.flush().await?;
        }
        if self.ledger.is_empty() {
            self.window.forget();
        }
        self.insisted.clear();
        let look = self.look_at_queue(0, &self.ledger.ids()).await?;
        self.take_in(look);
        Ok(())
    }

    fn take_in(&mut self, look: Look) {
        (self.more, self.highest) = (look.more, look.highest);
        self.looks_ahead = if look.whole { 0 } else { self.looks_ahead + 1 };
        self.window.extend(look.rows, look.heads);
        let depth = self.window.len() + look.refused.len();
        set(&self.replica.meters.queue_depth, i64::try_from(depth).unwrap_or(i64::MAX));
        if !look.refused.is_empty() {
            self.ledger.push(Decided { marker: None, writes: look.refused });
        }
    }

    /// One transaction's worth; halves of it when something in it cannot be done.
    async fn carry(&mut self, planned: Vec<Planned>) -> Result<(), Trouble> {
        let mut batches = vec![planned];
        while let Some(batch) = batches.pop() {
            while self.ledger.has_news() || self.ledger.open().count() >= UNSETTLED_MAX {
                self.written().await?;
            }
            let (answer, ahead) =
                tokio::join!(self.submit(&batch), self.look_ahead(&batch, batches.is_empty()));
            match answer {
                Ok(answer) => {
                    let undecided = self.finish(batch, answer).await;
                    batches.extend((!undecided.is_empty()).then_some(undecided));
                    if let Some(look) = ahead? {
                        self.take_in(look);
                    }
                }
                Err(Trouble::Fatal(error)) if is_about_one_write(&error) => {
                    self.split(batch, &error, &mut batches);
                }
                Err(Trouble::Etcd(error)) => {
                    self.flush().await?;
                    let rest = batches.into_iter().flatten().map(|it| it.row);
                    let rest = rest.chain(std::mem::take(&mut self.window).into_rows());
                    let rows: Vec<Pending> = batch.into_iter().map(|it| it.row).chain(rest).collect();
                    self.count_attempt(&rows, &error).await?;
                    return Err(Trouble::Etcd(error));
                }
                Err(fatal) => return Err(fatal),
            }
        }
        Ok(())
    }

    /// What comes after all that was seen, when the next transaction could not be filled without it. Now and then that
    /// is the whole queue, while nothing but this batch is in hand: whatever is found then has its place behind it.
    async fn look_ahead(&self, batch: &[Planned], alone: bool) -> Result<Option<Look>> {
        if !self.more || !self.window.is_short(self.build.keys_max()) {
            return Ok(None);
        }
        let mut known = self.ledger.ids();
        known.extend(batch.iter().map(|planned| planned.row.id));
        if self.looks_ahead < LOOKS_AHEAD_MAX {
            // After a flood of writes that became visible late, what is decided already may lie behind all that was seen.
            known.retain(|id| *id > self.highest);
            return self.look_at_queue(self.highest, &known).await.map(Some);
        }
        // What has to be forgotten first is for `look_at_all`.
        let remembers = self.window.heads() > HEADS_MAX || !self.insisted.is_empty();
        if !alone || self.window.len() > 0 || remembers {
            return Ok(None);
        }
        self.look_at_queue(0, &known).await.map(Some)
    }

    /// One transaction. Deletes of what should not be there are only looked at: they must not move a revision.
    async fn submit(&self, batch: &[Planned]) -> Result<Answer, Trouble> {
        if batch.iter().all(Planned::only_looks) {
            return self.look(batch).await;
        }
        let form = match self.build.branch(batch.len()) {
            None => Form::Row,
            Some(size) if self.careful > 0 => Form::Branches(size),
            Some(size) => Form::Together(size),
        };
        let slot = Slot::of(&self.replica_id, batch, form, &self.ledger).to_bytes()?;
        let marker = self.replica.spec.marker.clone();
        let mut success = outcome::requests_of(batch, form);
        success.push(put(marker.clone(), slot).into());
        let request =
            TxnRequest { compare: vec![unmoved(marker, self.slot_revision)], success, failure: Vec::new() };
        let answer = self.replica.etcd.txn(request).await.map_err(Trouble::of_etcd)?;
        if !answer.succeeded {
            let message = "an earlier transaction of ours arrived after all";
            return Err(Trouble::Etcd(Error::new(Kind::Unavailable, message)));
        }
        let revision = revision_of(answer.header);
        let outcomes = outcome::outcomes_of(batch, form, &answer.responses, revision)
            .filter(|outcomes| outcomes.len() == batch.len())
            .ok_or_else(|| Error::new(Kind::Corrupt, "etcd's answer does not fit the question"))?;
        Ok(Answer { outcomes, revision, marker: Some(revision) })
    }

    async fn look(&self, batch: &[Planned]) -> Result<Answer, Trouble> {
        let (mut outcomes, mut revision) = (Vec::with_capacity(batch.len()), 0);
        // Reads need no tree: they have no marker to share a revision with.
        for chunk in batch.chunks(self.build.row_max()) {
            let ask = |it: &Planned| RangeRequest { keys_only: true, ..key(it.row.key.clone()) }.into();
            let request = TxnRequest { success: chunk.iter().map(ask).collect(), ..TxnRequest::default() };
            let answer = self.replica.etcd.txn(request).await.map_err(Trouble::of_etcd)?;
            revision = revision_of(answer.header);
            let seen = answer.responses.iter().map(|it| it.found().map(|pair| pair.mod_revision));
            outcomes.extend(chunk.iter().zip(seen).map(|(it, there)| Some(outcome::looked(it, there))));
        }
        Ok(Answer { outcomes, revision, marker: None })
    }

    /// Have written down what is decided; a conflict PostgreSQL is to win goes back into the window instead. Returns what
    /// is not decided.
    async fn finish(&mut self, batch: Vec<Planned>, answer: Answer) -> Vec<Planned> {
        let mut writes = Vec::with_capacity(batch.len());
        let (mut again, mut undecided) = (Vec::new(), Vec::new());
        let insists = self.replica.spec.conflict == ConflictRule::PostgresWins;
        for (planned, outcome) in batch.into_iter().zip(answer.outcomes) {
            let Some(outcome) = outcome else {
                undecided.push(planned);
                continue;
            };
            // What was said to happen on one revision only does not happen on another.
            if let Some(winning) = outcome.winning()
                && insists
                && !planned.row.exact
                && self.may_insist(planned.row.id)
            {
                again.push((planned.row, winning));
                continue;
            }
            if let Outcome::Applied { revision } = outcome {
                self.window.applied(&planned, revision);
            }
            writes.push((planned, outcome));
        }
        self.find_deletes(&mut writes, answer.revision).await;
        self.slot_revision = answer.marker.unwrap_or(self.slot_revision);
        self.ledger.push(Decided { marker: answer.marker, writes });
        for (row, winning) in again.into_iter().rev() {
            self.window.insist(row, winning);
        }
        self.careful = if undecided.is_empty() { self.careful.saturating_sub(1) } else { CAREFUL };
        undecided
    }

    fn may_insist(&mut self, id: i64) -> bool {
        let tries = self.insisted.entry(id).or_default();
        *tries += 1;
        *tries <= INSIST_MAX
    }

    /// Something in this batch cannot be done. Halve it until the write at fault is alone, then fail that one.
    fn split(&mut self, mut batch: Vec<Planned>, error: &Error, batches: &mut Vec<Vec<Planned>>) {
        if fault::is_too_many_operations(error) && batch.len() > 1 {
            self.build = self.build.halved(batch.len());
        }
        if batch.len() > 1 {
            let second = batch.split_off(batch.len() / 2);
            batches.extend([second, batch]);
            return;
        }
        let why = format!("{error}. {}", error.remedy());
        let failed = |planned| (planned, Outcome::Failed { why: why.clone() });
        self.ledger.push(Decided { marker: None, writes: batch.into_iter().map(failed).collect() });
    }
}

/// The server understood and refused: something in the request is at fault.
fn is_about_one_write(error: &Error) -> bool {
    match error.kind() {
        Kind::Invalid | Kind::NotFound => true,
        // A password that was changed or a certificate that ended is about none: the writes wait for a person.
        Kind::Unauthorized => error.to_string().contains("permission denied"),
        _ => false,
    }
}
