//! Leads, or stands by. One instance holds a session lock in PostgreSQL and does the work; the others wait for it.
//! The lock goes with its connection; the epoch keeps a holder that does not know it yet from writing.

use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, watch as flag};
use tokio_postgres::types::ToSql;

use super::apply::{Applier, Batch};
use super::drain::Drainer;
use super::meters::{Metering, add, set};
use super::state::State;
use super::{Replica, watch, within};
use crate::error::{Error, Kind, Result};
use crate::postgres::{STATEMENT_MAX, Session};
use crate::retry::{Patience, backoff_ms};

/// A standby looks this often: takeover is due within three seconds.
const STANDBY_LOOK: Duration = Duration::from_millis(500);
/// Shows others that the leader lives and how far it is.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A batch grows while more is waiting, up to this.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// After losing a server: soon at first, then patiently, for ever.
const RECONNECT: Patience = Patience { attempts_max: u32::MAX, wait_ms_first: 50, wait_ms_max: 3_000 };
/// Old rows are looked for this often.
const KEEP_EVERY: Duration = Duration::from_secs(600);

/// The number of the lock, of schema and prefix.
pub(super) const LOCK: &str = "hashtextextended('trueup replica ' || $1 || ' ' || $2, 0)";

/// What a run did until it was asked to stop.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    pub replica: String,
    pub counts: Metering,
}

impl Replica {
    /// Run until asked to stop: what is queued is still carried over, unless a snapshot is being taken (then the next
    /// run does it), and it ends well. A server that is away at the
    /// start is an error; one that goes away later is waited for.
    pub async fn run(&self, mut stop: flag::Receiver<bool>) -> Result<RunReport> {
        let mut failures = 0;
        let mut began = false;
        loop {
            let mut settled = false;
            match Box::pin(self.lead(&mut stop, &mut settled)).await {
                Ok(()) => {
                    return Ok(RunReport { replica: self.spec.name.clone(), counts: self.meters.read() });
                }
                Err(error) => {
                    began |= settled;
                    failures = if settled { 1 } else { failures + 1 };
                    let passing = matches!(error.kind(), Kind::Unavailable | Kind::Throttled);
                    if !passing || !began {
                        return Err(error.while_(format!("running the replica {}", self.spec.name)));
                    }
                    self.note("reconnect", error.to_string());
                }
            }
            if *stop.borrow() {
                return Ok(RunReport { replica: self.spec.name.clone(), counts: self.meters.read() });
            }
            let wait = Duration::from_millis(backoff_ms(&RECONNECT, failures, self.clock.chance()));
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// One term as leader. `settled` becomes true once both servers were reached and the lock was held.
    async fn lead(&self, stop: &mut flag::Receiver<bool>, settled: &mut bool) -> Result<()> {
        let lead = self.session().await?;
        self.read_state(&lead).await?;
        self.check_permissions().await?;
        *settled = true;
        if !self.take_lock(&lead, stop).await? {
            return Ok(());
        }
        let outcome = self.hold_term(&lead, stop).await;
        if !outcome.as_ref().is_err_and(|error| error.kind() == Kind::Unavailable) {
            // The lock would go with the connection, but not before the server has noticed: who looks or takes over
            // now need not wait for that.
            self.unlock(&lead).await;
        }
        outcome
    }

    async fn hold_term(&self, lead: &Session, stop: &mut flag::Receiver<bool>) -> Result<()> {
        within(STATEMENT_MAX, lead.batch_execute("LISTEN etcd_changes")).await?;
        let mut state = self.raise_epoch(lead).await?;
        let (cluster, revision) = self.check_lineage(lead, &state).await?;
        set(&self.meters.etcd_revision, revision);
        // Rates are measured from here on.
        self.meters.beat(self.clock.elapsed_ms());
        self.remember_cluster(lead, &cluster, state.epoch).await?;
        self.note("leading", format!("leading {} from revision {}", self.prefix(), state.applied_revision));
        let mut writer = Applier::new(self, state.epoch).await?;
        let mut drainer = Drainer::new(self, &state).await?;
        loop {
            // What nobody can compare any more is compared with a snapshot, before anything is written to etcd.
            if state.base.is_none() && !self.has_checkpoint(&state).await? {
                state.base = Some(self.begin_base(&writer, true).await?);
            }
            if state.base.is_some() || state.applied_revision == 0 {
                let base = self.take_base(&mut writer, &state);
                tokio::select! {
                    applied = base => state.applied_revision = applied?,
                    () = lead.ended() => return Err(lost()),
                    () = asked(stop) => return Ok(()),
                }
                state.base = None;
            }
            set(&self.meters.applied_revision, state.applied_revision);
            let term = Box::pin(self.follow(lead, &mut writer, &mut drainer, &mut state, stop)).await;
            match term {
                // History went on without us: a snapshot closes the gap.
                Err(error) if error.kind() == Kind::CursorLost => {
                    self.note("compacted", error.to_string());
                    state = self.read_state(lead).await?;
                    state.base = Some(self.begin_base(&writer, true).await?);
                }
                other => return other,
            }
        }
    }

    async fn take_lock(&self, lead: &Session, stop: &mut flag::Receiver<bool>) -> Result<bool> {
        let mut told = false;
        loop {
            if self.try_lock(lead).await? {
                return Ok(true);
            }
            if !told {
                told = true;
                self.note("standby", "another instance leads; standing by");
            }
            tokio::select! {
                () = self.clock.sleep(STANDBY_LOOK) => {}
                () = asked(stop) => return Ok(false),
            }
        }
    }

    pub(super) async fn try_lock(&self, session: &Session) -> Result<bool> {
        let text = format!("SELECT pg_try_advisory_lock({LOCK})");
        let row =
            within(STATEMENT_MAX, session.query_one(&text, &[&self.tables.schema, &self.prefix()])).await?;
        Ok(row.get(0))
    }

    /// As far as that can be done: it goes with the connection otherwise.
    async fn unlock(&self, session: &Session) {
        let text = format!("SELECT pg_advisory_unlock({LOCK})");
        let values: [&(dyn ToSql + Sync); 2] = [&self.tables.schema, &self.prefix()];
        let _ = within(STATEMENT_MAX, session.query_one(&text, &values)).await;
    }

    async fn remember_cluster(&self, session: &Session, cluster: &str, epoch: i64) -> Result<()> {
        let update =
            format!("UPDATE {} SET cluster_id = $3 WHERE prefix = $1 AND epoch = $2", self.tables.state);
        within(STATEMENT_MAX, session.execute(&update, &[&self.prefix(), &epoch, &cluster])).await?;
        Ok(())
    }

    /// Mirror and drain until asked to stop, or until a connection is lost.
    async fn follow(
        &self,
        lead: &Session,
        writer: &mut Applier<'_>,
        drainer: &mut Drainer<'_>,
        state: &mut State,
        stop: &mut flag::Receiver<bool>,
    ) -> Result<()> {
        let woken = lead.woken_signal();
        tokio::select! {
            outcome = self.mirror(lead, writer, state.applied_revision) => outcome.map(|never| match never {}),
            outcome = drainer.run(&woken, stop) => outcome,
            () = lead.ended() => Err(lost()),
            outcome = self.keep_house() => outcome.map(|never| match never {}),
        }
    }

    /// Keep a watch open and write what it brings; a watch that ends is opened again where writing stopped.
    async fn mirror(
        &self,
        lead: &Session,
        writer: &mut Applier<'_>,
        mut applied: i64,
    ) -> Result<std::convert::Infallible> {
        let mut failures = 0;
        loop {
            let (sender, receiver) = mpsc::channel(watch::BATCHES_AHEAD);
            let reader = watch::read(self.etcd.clone(), self.prefix().to_owned(), applied + 1, sender);
            let mut reader = AbortOnDrop(tokio::spawn(reader));
            let from = applied;
            self.write_batches(writer, receiver, &mut applied).await?;
            let error = match reader.wait().await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            if !matches!(error.kind(), Kind::Unavailable | Kind::Throttled) {
                return Err(error);
            }
            failures = if applied > from { 1 } else { failures + 1 };
            add(&self.meters.watch_reopened, 1);
            self.note("watch", error.to_string());
            self.clock
                .sleep(Duration::from_millis(backoff_ms(&RECONNECT, failures, self.clock.chance())))
                .await;
            let state = self.read_state(lead).await?;
            match self.check_ground(lead, &state).await {
                // Still away: the next attempt will say so again.
                Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::Throttled) => {}
                outcome => set(&self.meters.etcd_revision, outcome?.1),
            }
        }
    }

    /// Write what arrives until the watch ends.
    async fn write_batches(
        &self,
        writer: &mut Applier<'_>,
        mut batches: mpsc::Receiver<Batch>,
        applied: &mut i64,
    ) -> Result<()> {
        let mut beat = self.clock.elapsed_ms();
        let every = u64::try_from(HEARTBEAT.as_millis()).unwrap_or(u64::MAX);
        loop {
            tokio::select! {
                batch = batches.recv() => {
                    let Some(mut batch) = batch else { return Ok(()) };
                    while batch.bytes < BATCH_BYTES_MAX
                        && let Ok(next) = batches.try_recv()
                    {
                        batch.join(next);
                    }
                    let upto = batch.upto;
                    writer.apply(batch).await?;
                    *applied = upto;
                }
                () = self.clock.sleep(HEARTBEAT) => {}
            }
            let now = self.clock.elapsed_ms();
            if now.saturating_sub(beat) >= every {
                beat = now;
                writer.heartbeat().await?;
            }
        }
    }

    async fn keep_house(&self) -> Result<std::convert::Infallible> {
        loop {
            if self.spec.keep_history.is_some() || self.spec.keep_wal.is_some() {
                let session = self.session().await?;
                self.prune(&session).await?;
            }
            self.clock.sleep(KEEP_EVERY).await;
        }
    }
}

fn lost() -> Error {
    Error::new(Kind::Unavailable, "the connection to PostgreSQL was lost")
}

/// Ends when a stop is asked for. A sender that is gone will never ask.
async fn asked(stop: &mut flag::Receiver<bool>) {
    if stop.wait_for(|asked| *asked).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A task that ends with its owner.
pub(super) struct AbortOnDrop<T>(pub tokio::task::JoinHandle<T>);

impl<T> AbortOnDrop<Result<T>> {
    /// What the task came to. May be dropped and called again while the task runs.
    pub async fn wait(&mut self) -> Result<T> {
        match (&mut self.0).await {
            Ok(outcome) => outcome,
            Err(error) => Err(Error::bug(format!("a task of the replica ended: {error}"))),
        }
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
