//! One pass: recover → read → decide → intend → apply → settle. [`Pipeline::run`] reads like that list; each step is
//! a file beside this one.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::{SharedClock, rfc3339_ms};
use crate::config::{Drift, Guard, Journal};
use crate::error::{Error, Kind, Result};
use crate::queue;
use crate::shape::Shape;
use crate::source::{Cursors, Source};
use crate::state::held::HeldItem;
use crate::state::lock::Locks;
use crate::state::{Report, State, keys, retention};
use crate::store::SharedStore;

mod apply;
pub mod audit;
mod decide;
mod detect;
mod diff;
mod finish;
mod guard;
pub mod hold;
mod lines;
pub mod open;
mod orphans;
mod parked;
pub mod plan;
mod prepare;
pub mod preview;
mod read;
mod recover;
mod render;
mod scopes;
mod settle;
mod sightings;
mod stock;
pub mod undo;
pub mod why;

/// A pipeline of the config, with everything opened. Clones share the same source, store and state.
#[derive(Clone)]
pub struct Pipeline {
    pub name: String,
    pub source: Arc<dyn Source>,
    pub shape: Arc<dyn Shape>,
    pub store: SharedStore,
    pub state: State,
    /// Where the baseline is read when it is not the state's own: a first look that writes nothing.
    pub baseline: Option<SharedStore>,
    pub locks: Arc<Locks>,
    pub clock: SharedClock,
    pub guard: Guard,
    pub drift: Drift,
    pub adopt: bool,
    pub batch: Option<usize>,
    pub concurrency: usize,
    pub keep_runs: std::time::Duration,
    pub journal: Journal,
    /// Follow-up work each change calls for.
    pub then: Vec<queue::FollowUp>,
}

/// What is asked of one pass.
pub struct Ask {
    pub trigger: &'static str,
    /// Only this key.
    pub only: Option<String>,
    /// Read everything, whatever the cursors say.
    pub full: bool,
    /// Held changes a person has approved.
    pub approved: Vec<HeldItem>,
    /// Identities an audit found wrong in the store: written again even if nothing else says so.
    pub heal: HashSet<String>,
    pub stop: Stop,
    pub progress: Arc<dyn Progress>,
}

impl Ask {
    pub fn plain(trigger: &'static str) -> Self {
        let (stop, progress) = (Stop::default(), Arc::new(Silent));
        Ask { trigger, only: None, full: false, approved: Vec::new(), heal: HashSet::new(), stop, progress }
    }
}

/// Set once when a person wants the run to end: what is in flight finishes first.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Told how far a pass is; the command line draws it.
pub trait Progress: Send + Sync {
    /// A new step of the pass, with the number of items it will take if that is known.
    fn step(&self, pipeline: &str, name: &'static str, items: Option<u64>);
    fn advance(&self, items: u64);
}

pub struct Silent;

impl Progress for Silent {
    fn step(&self, _pipeline: &str, _name: &'static str, _items: Option<u64>) {}
    fn advance(&self, _items: u64) {}
}

impl Pipeline {
    /// One pass. An error means that no run was started; whatever happens later is in the report.
    pub async fn run(&self, ask: &Ask) -> Result<Report> {
        let _lock = self.locks.acquire(&self.name)?;
        let recovered = recover::recover(self).await?;
        let mut report = self.begin(ask.trigger).await?;
        if recovered > 0 {
            report.warn(format!("{recovered} changes of an interrupted run had arrived and were settled"));
        }
        if let Err(error) = self.pass(ask, &mut report).await {
            report.fail(&error);
        }
        self.follow_up(ask, &mut report).await;
        self.end(&mut report).await?;
        Ok(report)
    }

    /// One attempt at every open piece of follow-up work, old or new.
    async fn follow_up(&self, ask: &Ask, report: &mut Report) {
        if self.then.is_empty() || ask.stop.is_set() {
            return;
        }
        ask.progress.step(&self.name, "following up", None);
        match self.worker().once().await {
            Ok(summary) => {
                report.dead = summary.dead;
                for fault in summary.paused {
                    report.warn(format!("follow-up {} waits: {}", fault.scope.unwrap_or_default(), fault.message));
                }
                if summary.failed > 0 {
                    report.warn(format!("{} follow-ups failed; `trueup queue ls` shows them", summary.failed));
                }
            }
            Err(error) => report.fail(&error.while_("following up")),
        }
    }

    pub fn worker(&self) -> queue::Worker {
        queue::Worker {
            pipeline: self.name.clone(),
            state: self.state.clone(),
            locks: self.locks.clone(),
            clock: self.clock.clone(),
            store: self.store.clone(),
            shape: self.shape.clone(),
            then: self.then.clone(),
        }
    }

    async fn pass(&self, ask: &Ask, report: &mut Report) -> Result<()> {
        let informed = stock::inform(self, ask, true).await?;
        informed.line.pass_informed(ask, informed.expired, report).await
    }

    async fn pass_informed(&self, ask: &Ask, expired: Vec<String>, report: &mut Report) -> Result<()> {
        let past = decide::past(self, ask, expired).await?;
        let cursors = if ask.full { Cursors::new() } else { self.cursors().await? };

        ask.progress.step(&self.name, "reading", None);
        let reading = read::read(self, ask, &cursors, &past.decisions, report).await;
        report.requests = self.source.requests();
        let reading = reading?;
        if reading.scopes.all_broken() {
            finish::report_broken(&reading.scopes, report);
            return Err(finish::nothing_could_be_read(&reading.scopes));
        }
        let mut plan = decide::decide(self, ask, &past, reading, report).await?;

        ask.progress.step(&self.name, "writing", Some(plan.adds + plan.updates + plan.deletes));
        let preparer = prepare::Preparer { line: self, run: &report.id.clone(), decisions: &past.decisions, parked: &past.parked };
        let mut applier = apply::Applier::new(self, ask, preparer, report);
        let outcome = applier.all(&mut plan.steps).await;
        let applied = applier.applied;
        report.requests = self.source.requests();
        finish::finish(self, ask, &past, plan, applied, report).await?;
        outcome
    }

    /// Whether documents are kept until they are exported.
    fn keeps_bodies(&self) -> bool {
        self.shape.exports_body() && self.then.iter().any(|then| matches!(then.effect, queue::Effect::Export(_)))
    }

    /// The names of the follow-up work every change calls for.
    fn follow_ups(&self) -> Vec<String> {
        self.then.iter().map(|then| then.name.clone()).collect()
    }

    async fn begin(&self, trigger: &str) -> Result<Report> {
        let newest: Option<String> = self.state.read(keys::NEWEST_RUN).await?;
        let chance = u128::from(self.clock.random()) << 64 | u128::from(self.clock.random());
        let id = retention::run_id_after(newest.as_deref(), self.clock.now(), chance)?;
        let report = Report::start(id, &self.name, trigger, rfc3339_ms(self.clock.now()));
        self.state.commit(vec![
            crate::state::item(keys::run(&report.id), &report)?,
            crate::state::item(keys::last(&self.name), &report.id)?,
            crate::state::item(keys::NEWEST_RUN, &report.id)?,
        ]).await?;
        Ok(report)
    }

    /// Write down how it ended, then forget what is old.
    async fn end(&self, report: &mut Report) -> Result<()> {
        report.conclude();
        report.finished = Some(rfc3339_ms(self.clock.now()));
        self.state.put(&keys::run(&report.id), report).await?;
        let now = self.clock.now();
        self.state.forget_runs(&self.name, self.keep_runs, now).await?;
        self.state.forget_journal(&self.name, self.journal.keep, self.journal.max_bytes, now).await
    }

    async fn cursors(&self) -> Result<Cursors> {
        let prefix = keys::cursors(&self.name);
        let all = self.state.read_all::<String>(&prefix).await?;
        Ok(all.into_iter().map(|(key, cursor)| (keys::below(&prefix, &key).to_owned(), cursor)).collect())
    }

    /// The report of a run by id, or an error that says where to look.
    pub async fn find_run(state: &State, run: &str) -> Result<Report> {
        let found: Option<Report> = state.read(&keys::run(run)).await?;
        found.ok_or_else(|| {
            Error::new(Kind::NotFound, format!("there is no run {run}")).remedy_is("`trueup runs` lists them.")
        })
    }
}
