//! What everything inside one `trueup serve` shares, and the one way work is started in it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::doors::Doors;
use super::events::Events;
use super::meters::Meters;
use super::pace::Pace;
use super::pages::Board;
use super::sight::Sight;
use super::workspaces::Rooms;
use crate::clock::{SharedClock, rfc3339_ms};
use crate::config::{self, Config};
use crate::error::{Error, Fault, Kind, Result};
use crate::operations;
use crate::pipeline::open::Memory;
use crate::pipeline::{Ask, Stop};
use crate::schedule::Slots;
use crate::schedule::overview::Ended;
use crate::secret::Secret;
use crate::state::Report;

/// Pipelines run at once: each has connections and buffers of its own.
const RUNS_AT_ONCE: usize = 16;

/// The right to run one pipeline.
pub type Seat = OwnedSemaphorePermit;

pub struct House {
    pub config: Config,
    pub memory: Memory,
    pub clock: SharedClock,
    pub slots: Slots,
    pub events: Events,
    pub meters: Meters,
    pub doors: Doors,
    pub pace: Pace,
    pub seats: Arc<Semaphore>,
    pub rooms: Rooms,
    /// All pipelines at a glance.
    pub sight: Sight<Board>,
    pub ended: Ended,
    /// Asks runs to end after what is in flight.
    stop: Stop,
    stopping: watch::Sender<bool>,
    in_flight: watch::Sender<usize>,
    /// Pipelines whose last run could not start: no report of it is kept anywhere.
    troubles: Mutex<BTreeMap<String, Trouble>>,
}

/// Why a run could not start.
#[derive(Debug, Clone)]
pub struct Trouble {
    pub at: String,
    pub fault: Fault,
}

/// Counted as in flight until it is dropped.
struct InFlight(Arc<House>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.send_modify(|count| *count -= 1);
    }
}

impl House {
    pub fn new(
        config: Config,
        memory: Memory,
        clock: SharedClock,
        address: SocketAddr,
        token: Option<Secret>,
    ) -> Arc<House> {
        Arc::new(House {
            slots: Slots::new(memory.state.clone(), clock.clone()),
            events: Events::default(),
            meters: Meters::default(),
            doors: Doors::new(token, address, clock.as_ref()),
            pace: Pace::new(clock.clone()),
            seats: Arc::new(Semaphore::new(RUNS_AT_ONCE)),
            rooms: Rooms::default(),
            sight: Sight::new(clock.clone()),
            ended: Ended::default(),
            stop: Stop::default(),
            stopping: watch::Sender::new(false),
            in_flight: watch::Sender::new(0),
            troubles: Mutex::default(),
            config,
            memory,
            clock,
        })
    }

    /// Ask everything to end. `false` = it was asked before.
    pub fn ask_to_stop(&self) -> bool {
        self.stop.set();
        !self.stopping.send_replace(true)
    }

    /// Set when everything is asked to end.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Ends when nothing is in flight.
    pub async fn idle(&self) {
        // The sender lives as long as the house, so waiting cannot fail.
        drop(self.in_flight.subscribe().wait_for(|count| *count == 0).await);
    }

    /// Sleep, or wake early because of a stop. `false` = stop.
    pub async fn rest(&self, wait: std::time::Duration) -> bool {
        let mut stopping = self.stopping();
        tokio::select! {
            () = self.clock.sleep(wait) => {}
            _ = stopping.wait_for(|asked| *asked) => {}
        }
        !self.is_stopping()
    }

    /// A pipeline by the name in a path.
    pub fn pipeline(&self, name: &str) -> Result<&config::Pipeline> {
        operations::pipeline(&self.config, name).map_err(|error| not_found(&error))
    }

    /// An ask that is stopped with the house and tells everybody how far it is.
    pub fn ask(&self, trigger: &'static str) -> Ask {
        Ask { stop: self.stop.clone(), progress: self.events.progress(), waits: true, ..Ask::plain(trigger) }
    }

    /// Do work that outlives whoever asked for it: a client that goes away does not cut a run in half, and a panic
    /// is an answer, not an end. It has a thread of its own, so that hashing and parsing keep no answer waiting.
    pub async fn work<T, F, W>(self: &Arc<Self>, work: W) -> Result<T>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<T>>,
        T: Send + 'static,
    {
        if self.is_stopping() {
            return Err(
                Error::new(Kind::Canceled, "trueup is stopping").remedy_is("Ask again when it is back.")
            );
        }
        self.in_flight.send_modify(|count| *count += 1);
        let guard = InFlight(self.clone());
        let threads = tokio::runtime::Handle::current();
        let task = tokio::task::spawn_blocking(move || {
            let _guard = guard;
            threads.block_on(work())
        });
        task.await.unwrap_or_else(|error| Err(Error::bug(format!("the work ended early: {error}"))))
    }

    /// One pass of a pipeline, counted and told, as soon as there is a seat for it.
    pub async fn sync(self: &Arc<Self>, pipeline: &str, ask: Ask) -> Result<Report> {
        let seat = self.seats.clone().acquire_owned().await.map_err(|_| Error::bug("the seats are gone"))?;
        self.sync_seated(pipeline, ask, seat).await
    }

    pub async fn sync_seated(self: &Arc<Self>, pipeline: &str, ask: Ask, seat: Seat) -> Result<Report> {
        let (house, name) = (self.clone(), pipeline.to_owned());
        let ran = self
            .work(move || async move {
                let _seat = seat;
                house.sight.changed();
                operations::sync(house.pipeline(&name)?, &house.memory, &ask).await
            })
            .await;
        self.sight.changed();
        match &ran {
            Ok(report) => self.ended(report),
            Err(error) => self.not_started(pipeline, error),
        }
        ran
    }

    /// Pipelines whose last run could not start, and why.
    pub fn troubles(&self) -> BTreeMap<String, Trouble> {
        self.troubles.lock().map(|troubles| troubles.clone()).unwrap_or_default()
    }

    /// A run came to its end: say so to the log, the meters and whoever listens.
    pub fn ended(&self, report: &Report) {
        let counts = &report.counts;
        tracing::info!(
            pipeline = report.pipeline,
            run = report.id,
            trigger = report.trigger,
            status = report.status.name(),
            scanned = counts.scanned,
            added = counts.added,
            updated = counts.updated,
            deleted = counts.deleted,
            held = counts.held,
            failed = counts.failed,
            unproven = counts.unproven,
            "run ended"
        );
        for fault in report.errors.iter().take(LOGGED_MAX) {
            tracing::warn!(
                pipeline = report.pipeline,
                run = report.id,
                scope = fault.scope,
                key = fault.key,
                kind = fault.kind.name(),
                remedy = fault.remedy,
                "{}",
                fault.message
            );
        }
        self.meters.ran(report);
        if let Ok(mut troubles) = self.troubles.lock() {
            troubles.remove(&report.pipeline);
        }
        self.sight.changed();
        self.events.ended(report);
    }

    pub fn not_started(&self, pipeline: &str, error: &Error) {
        let fault = Fault::of(error);
        tracing::warn!(
            pipeline,
            kind = fault.kind.name(),
            remedy = fault.remedy,
            "run not started: {}",
            fault.message
        );
        if error.kind() != Kind::Busy {
            self.meters.not_started(pipeline);
            if let Ok(mut troubles) = self.troubles.lock() {
                let at = rfc3339_ms(self.clock.now());
                troubles.insert(pipeline.to_owned(), Trouble { at, fault: fault.clone() });
            }
        }
        self.sight.changed();
        self.events.not_started(pipeline, &fault);
    }
}

/// Errors of one run that are logged line by line; all of them are in the run's report.
const LOGGED_MAX: usize = 20;

/// What was named in a path does not exist, whatever the command line would call it.
fn not_found(error: &Error) -> Error {
    Error::new(Kind::NotFound, error.to_string()).remedy_is(error.remedy())
}
