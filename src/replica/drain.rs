//! Carries queued writes to etcd: many keys in one transaction, each key with its own condition, so that a conflict
//! fails only its own write. A server that cannot be reached is waited for; it never turns a write into a failure.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::Statement;

use super::meters::set;
use super::outcome::{self, Outcome};
use super::packing::{KEYS_MAX, Pending, Planned, Window};
use super::settle::{fetch_text, settle_text};
use super::slot::Slot;
use super::state::State;
use super::{ConflictRule, Replica};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::{key, put, unmoved};
use crate::etcd::{RangeRequest, TxnRequest, fault, revision_of};
use crate::postgres::{STATEMENT_MAX, Session, within};
use crate::retry::{Patience, backoff_ms};

/// While etcd is away, and between attempts at an etcd that refuses.
const OUTAGE: Patience = Patience { attempts_max: u32::MAX, wait_ms_first: 100, wait_ms_max: 3_000 };
/// How often PostgreSQL may insist on one write within one window, before others get their turn.
const INSIST_MAX: u32 = 20;
/// On the way out: what is queued is still carried over, but an outage must not keep a process from ending.
const LAST_DRAIN: Duration = Duration::from_secs(10);

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
    pub session: Session,
    pub replica_id: String,
    pub slot_revision: i64,
    pub epoch: i64,
    /// Shrinks when the server takes fewer operations than usual.
    keys_max: usize,
    pub fetch: Statement,
    pub settle: Statement,
}

impl<'a> Drainer<'a> {
    pub async fn new(replica: &'a Replica, state: &State) -> Result<Self> {
        let session = replica.session().await?;
        let fetch = within(STATEMENT_MAX, session.prepare(&fetch_text(&replica.tables))).await?;
        let settle = within(STATEMENT_MAX, session.prepare(&settle_text(&replica.tables))).await?;
        Ok(Drainer {
            replica,
            session,
            replica_id: state.replica.clone(),
            slot_revision: state.slot_revision,
            epoch: state.epoch,
            keys_max: KEYS_MAX,
            fetch,
            settle,
        })
    }

    /// Drain for ever; ends well when asked to stop and nothing is left (or time is up).
    pub async fn run(&mut self, woken: &tokio::sync::Notify, stop: &mut watch::Receiver<bool>) -> Result<()> {
        let mut failures = 0;
        let mut stopping_since = None;
        // Whatever an earlier holder left behind comes first.
        let mut recovered = false;
        loop {
            let outcome = if recovered { self.round().await } else { self.recover().await.map(|()| 1) };
            let idle = match outcome {
                Ok(done) => {
                    recovered = true;
                    failures = 0;
                    done == 0
                }
                Err(Trouble::Etcd(error)) => {
                    // A round counts the attempt itself; not even getting that far is one too.
                    if !recovered {
                        self.count_waiting(&error).await?;
                    }
                    failures += 1;
                    recovered = false;
                    self.replica.note("retry", error.to_string());
                    true
                }
                Err(Trouble::Fatal(error)) => return Err(error),
            };
            if *stop.borrow() {
                let now = self.replica.clock.elapsed_ms();
                let since = *stopping_since.get_or_insert(now);
                let waited = Duration::from_millis(now.saturating_sub(since));
                if (idle && failures == 0) || waited >= LAST_DRAIN {
                    return Ok(());
                }
            }
            if idle {
                self.rest(failures, woken, stop).await;
            }
        }
    }

    async fn rest(&self, failures: u32, woken: &tokio::sync::Notify, stop: &mut watch::Receiver<bool>) {
        let clock = &self.replica.clock;
        if failures > 0 {
            let wait = Duration::from_millis(backoff_ms(&OUTAGE, failures, clock.chance()));
            clock.sleep(wait).await;
            return;
        }
        let stopping = *stop.borrow();
        tokio::select! {
            () = woken.notified() => {}
            () = clock.sleep(self.replica.spec.poll) => {}
            _ = stop.changed(), if !stopping => {}
        }
    }

    /// Carry over what is queued now; says how many writes were decided.
    async fn round(&mut self) -> Result<usize, Trouble> {
        let mut window = self.look_at_queue().await?;
        let mut decided = window.refused.len();
        set(&self.replica.meters.queue_depth, i64::try_from(decided + window.rows.len()).unwrap_or(i64::MAX));
        let refused = std::mem::take(&mut window.refused);
        self.settle(&refused).await?;
        let mut insisted: HashMap<i64, u32> = HashMap::new();
        loop {
            let planned = window.rows.next(self.keys_max);
            if planned.is_empty() {
                return Ok(decided);
            }
            let mut batches = vec![planned];
            while let Some(batch) = batches.pop() {
                match self.submit(&batch).await {
                    Ok(outcomes) => {
                        decided += self.finish(&mut window.rows, &mut insisted, batch, outcomes).await?;
                    }
                    Err(Trouble::Fatal(error)) if is_about_one_write(&error) => {
                        self.split(batch, &error, &mut batches).await?;
                    }
                    Err(Trouble::Etcd(error)) => {
                        let rest =
                            batches.into_iter().flatten().map(|it| it.row).chain(window.rows.into_rows());
                        let rows: Vec<Pending> = batch.into_iter().map(|it| it.row).chain(rest).collect();
                        self.count_attempt(&rows, &error).await?;
                        return Err(Trouble::Etcd(error));
                    }
                    Err(fatal) => return Err(fatal),
                }
            }
        }
    }

    /// One transaction. Deletes of what should not be there are only looked at: they must not move a revision.
    async fn submit(&mut self, batch: &[Planned]) -> Result<Vec<Outcome>, Trouble> {
        if batch.iter().all(Planned::only_looks) {
            return self.look(batch).await;
        }
        let slot = Slot::of(&self.replica_id, batch).to_bytes()?;
        let marker = self.replica.spec.marker.clone();
        let mut success: Vec<_> = batch.iter().map(outcome::request_of).collect();
        success.push(put(marker.clone(), slot).into());
        let request =
            TxnRequest { compare: vec![unmoved(marker, self.slot_revision)], success, failure: Vec::new() };
        let answer = self.replica.etcd.txn(request).await.map_err(Trouble::of_etcd)?;
        if !answer.succeeded {
            let message = "an earlier transaction of ours arrived after all";
            return Err(Trouble::Etcd(Error::new(Kind::Unavailable, message)));
        }
        let revision = revision_of(answer.header);
        let outcomes: Option<Vec<Outcome>> = batch
            .iter()
            .zip(&answer.responses)
            .map(|(planned, response)| outcome::answered(planned, response, revision))
            .collect();
        self.slot_revision = revision;
        outcomes.ok_or_else(|| Error::new(Kind::Invalid, "etcd's answer does not fit the question").into())
    }

    async fn look(&self, batch: &[Planned]) -> Result<Vec<Outcome>, Trouble> {
        let ask = |it: &Planned| RangeRequest { keys_only: true, ..key(it.row.key.clone()) }.into();
        let request = TxnRequest { success: batch.iter().map(ask).collect(), ..TxnRequest::default() };
        let answer = self.replica.etcd.txn(request).await.map_err(Trouble::of_etcd)?;
        let seen = answer.responses.iter().map(|response| response.found().map(|pair| pair.mod_revision));
        Ok(batch.iter().zip(seen).map(|(planned, there)| outcome::looked(planned, there)).collect())
    }

    /// Settle what is decided; a conflict PostgreSQL is to win goes back into the window instead.
    async fn finish(
        &mut self,
        window: &mut Window,
        insisted: &mut HashMap<i64, u32>,
        batch: Vec<Planned>,
        outcomes: Vec<Outcome>,
    ) -> Result<usize> {
        let mut decided = Vec::with_capacity(batch.len());
        let mut again = Vec::new();
        for (planned, outcome) in batch.into_iter().zip(outcomes) {
            let tries = insisted.entry(planned.row.id).or_default();
            match outcome {
                Outcome::Conflict { winning }
                    if self.replica.spec.conflict == ConflictRule::PostgresWins && *tries < INSIST_MAX =>
                {
                    *tries += 1;
                    again.push((planned.row, winning));
                    continue;
                }
                Outcome::Applied { revision } => window.applied(&planned, revision),
                _ => {}
            }
            decided.push((planned, outcome));
        }
        self.settle(&decided).await?;
        for (row, winning) in again.into_iter().rev() {
            window.insist(row, winning);
        }
        Ok(decided.len())
    }

    /// Something in this batch cannot be done. Halve it until the write at fault is alone, then fail that one.
    async fn split(
        &mut self,
        mut batch: Vec<Planned>,
        error: &Error,
        batches: &mut Vec<Vec<Planned>>,
    ) -> Result<()> {
        if fault::is_too_many_operations(error) && batch.len() > 1 {
            self.keys_max = (batch.len() / 2).max(1);
        }
        if batch.len() > 1 {
            let second = batch.split_off(batch.len() / 2);
            batches.extend([second, batch]);
            return Ok(());
        }
        let why = format!("{error}. {}", error.remedy());
        let failed: Vec<(Planned, Outcome)> =
            batch.into_iter().map(|planned| (planned, Outcome::Failed { why: why.clone() })).collect();
        self.settle(&failed).await
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

pub(super) struct Queue {
    pub rows: Window,
    /// Writes that never get as far as etcd.
    pub refused: Vec<(Planned, Outcome)>,
}
