//! One pass: recover → read → decide → intend → apply → settle. [`Pipeline::run`] reads like that list; each step is
//! a file beside this one.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::{SharedClock, rfc3339_ms};
use crate::config::{Drift, Guard, Journal};
use crate::error::{Error, Fault, Kind, Result};
use crate::queue;
use crate::shape::Shape;
use crate::source::{Cursors, Source, Versions};
use crate::state::footing::Footing;
use crate::state::held::HeldItem;
use crate::state::lock::{Lock, Locks};
use crate::state::{Report, State, item, keys};
use crate::store::{SharedStore, Sum};

mod adopt;
mod again;
mod ahead;
mod announcing;
mod apply;
pub mod audit;
mod clash;
pub mod cores;
mod cursors;
mod decide;
mod detect;
mod diff;
mod draft;
mod expire;
pub mod failing;
mod finish;
mod first;
mod follow;
mod footing;
mod found;
mod guard;
pub mod hold;
mod joined;
mod known;
mod lines;
mod moved;
pub mod notify;
pub mod open;
mod orphans;
mod parked;
mod past;
mod peek;
pub mod place;
pub mod plan;
pub mod prepare;
pub mod preview;
mod priors;
mod put;
mod read;
mod reading;
pub mod records;
mod recover;
mod render;
mod reverse;
mod scopes;
pub mod seal;
mod settle;
mod sightings;
mod since;
mod sorter;
pub mod start;
mod steps;
mod stock;
mod strays;
pub mod undo;
mod weigh;
pub mod why;
mod write;

/// A pipeline of the config, with everything opened. Clones share the same source, store and state.
#[derive(Clone)]
pub struct Pipeline {
    pub name: String,
    /// The digest of its settings.
    pub settings: String,
    /// The digest of those that say what is read, and what it means.
    pub reading: String,
    pub source: Arc<dyn Source>,
    pub shape: Arc<dyn Shape>,
    pub store: SharedStore,
    pub place: place::Place,
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
    /// Records a system keeps of its own in the store.
    pub records: Option<Arc<dyn records::Records>>,
    /// Who is told how runs end.
    pub notifier: Option<notify::Notifier>,
}

/// What is asked of one pass.
pub struct Ask {
    pub trigger: &'static str,
    /// Only this key.
    pub only: Option<String>,
    /// Read everything, whatever the cursors say.
    pub full: bool,
    /// Export every key again, changed or not.
    pub exports: bool,
    /// Held changes a person has approved.
    pub approved: Vec<HeldItem>,
    /// Identities an audit found wrong in the store: written again even if nothing else says so.
    pub heal: HashSet<String>,
    /// Do exactly this, or nothing.
    pub sealed: Option<Arc<seal::Sealed>>,
    /// Follow-up work waits out its back-off; otherwise every open item is attempted.
    pub waits: bool,
    pub stop: Stop,
    pub progress: Arc<dyn Progress>,
}

impl Ask {
    pub fn plain(trigger: &'static str) -> Self {
        let (stop, progress) = (Stop::default(), Arc::new(Silent));
        Ask {
            trigger,
            only: None,
            full: false,
            exports: false,
            approved: Vec::new(),
            heal: HashSet::new(),
            sealed: None,
            waits: false,
            stop,
            progress,
        }
    }
}

/// How a pass went.
enum Turn {
    /// To its end; with what the next one may stand on.
    Done(Option<Footing>),
    /// Rows of an older layout have appeared in the store: nothing was done, stock must be taken first.
    MetOlderRows,
}

/// Set once when a person wants the run to end: what is in flight finishes first.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// The flag itself, for those below the pipeline that look at it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
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
        let lock = self.locks.acquire(&self.name).await?;
        let outcome = Box::pin(self.under(&lock).run_alone(ask, &lock)).await;
        lock.release().await;
        outcome
    }

    async fn run_alone(&self, ask: &Ask, lock: &Lock<'_>) -> Result<Report> {
        let begin = Box::pin(async {
            let recovered = recover::recover(self).await?;
            let footing = footing::load(self).await?;
            Ok((recovered, footing, self.begin(ask.trigger).await?))
        });
        let (recovered, footing, mut report) = lock.guard(begin).await?;
        if recovered > 0 {
            report.warn(format!("{recovered} changes of an interrupted run had arrived and were settled"));
        }
        // A look at one key says nothing about the pipeline.
        let notifier = self.notifier.as_ref().filter(|_| ask.only.is_none());
        let work = Box::pin(async {
            let left = self.pass(ask, footing, &mut report).await.unwrap_or_else(|error| {
                report.fail(&error);
                None
            });
            self.state.still_held()?;
            self.follow_up(ask, &mut report).await;
            self.keep_records(ask, &mut report).await;
            self.close(&mut report, notifier, left).await;
            if let Some(notifier) = notifier.filter(|_| !ask.stop.is_set()) {
                // What cannot be said now waits in the queue.
                drop(notifier.deliver(ask.waits).await);
            }
            Ok(())
        });
        let outcome = lock.guard(work).await;
        self.cut_short(outcome, &mut report);
        Ok(report)
    }

    /// This pipeline for whoever holds the lock: what it writes into the state carries the lock's fence.
    fn under(&self, lock: &Lock<'_>) -> Pipeline {
        Pipeline { state: self.state.fenced(lock.fence()), ..self.clone() }
    }

    /// The lease was lost in the middle: say so. Whoever holds it now finds this run unfinished.
    fn cut_short(&self, outcome: Result<()>, report: &mut Report) {
        if let Err(lost) = outcome {
            report.cause = Some(lost.kind());
            let fault = Fault::of(&lost);
            if !report.errors.contains(&fault) {
                report.error(fault);
            }
            report.conclude();
            report.finished = Some(rfc3339_ms(self.clock.now()));
        }
    }

    async fn pass(
        &self,
        ask: &Ask,
        footing: Option<Footing>,
        report: &mut Report,
    ) -> Result<Option<Footing>> {
        let begun = report.clone();
        let informed = stock::inform(self, ask.full, true).await?;
        if let Turn::Done(left) = informed.line.pass_informed(ask, &informed, footing, report).await? {
            return Ok(left);
        }
        // Reading decided nothing yet: stock is taken, and then everything is read.
        *report = begun;
        let informed = stock::inform(self, true, true).await?;
        informed.line.pass_informed(ask, &informed, None, report).await?;
        Ok(None)
    }

    async fn pass_informed(
        &self,
        ask: &Ask,
        informed: &stock::Informed<'_>,
        footing: Option<Footing>,
        report: &mut Report,
    ) -> Result<Turn> {
        let past = past::past(self, ask, informed).await?;
        let cursors = if informed.afresh { Cursors::new() } else { cursors::load(self).await? };
        let run = report.id.clone();
        let preparer = prepare::Preparer::of(self, &run, &past);
        let mut applier = apply::Applier::new(self, ask, &preparer, report);

        let reading = self.read(&past, &cursors, footing, &mut applier).await;
        applier.report.requests = self.source.requests();
        let planned = match reading {
            Ok(reading) if reading.met_older && !informed.afresh => return Ok(Turn::MetOlderRows),
            Ok(reading) => self.plan(ask, &past, &cursors, reading, applier.report).await,
            Err(error) => Err(error),
        };
        let (mut plan, known, planned) = match planned {
            Ok((plan, known)) => (plan, known, Ok(())),
            // What a first pass has written is finished like everything else.
            Err(error) if applier.has_begun() => (decide::Plan::default(), None, Err(error)),
            Err(error) => return Err(error),
        };
        let outcome = match planned {
            Ok(()) => {
                cursors::forget(self, &plan.touched).await?;
                let items = plan.adds + plan.updates + plan.deletes;
                if items > 0 || !applier.has_begun() {
                    ask.progress.step(&self.name, "writing", Some(items));
                }
                applier.all(&mut plan.steps).await
            }
            Err(error) => Err(error),
        };
        let apply::Applier { applied, report, .. } = applier;
        let left = footing::left(self, ask, known, &applied, report);
        report.requests = self.source.requests();
        if let Err(error) = &outcome {
            report.cause.get_or_insert(error.kind());
        }
        finish::finish(self, ask, &past, plan, applied, report).await?;
        outcome.map(|()| Turn::Done(left))
    }

    /// Everything first, or, where there is nothing to weigh it against, while it is written.
    async fn read(
        &self,
        past: &past::Past,
        cursors: &Cursors,
        footing: Option<Footing>,
        applier: &mut apply::Applier<'_, prepare::Preparer<'_>>,
    ) -> Result<read::Reading> {
        let ask = applier.ask;
        if first::is_first(self, ask, past, cursors).await? {
            ask.progress.step(&self.name, "reading and writing", None);
            return first::read(applier).await;
        }
        ask.progress.step(&self.name, "reading", None);
        read::read(self, ask, cursors, past, footing.as_ref(), applier.report).await
    }

    /// What is to be done about what was read, and what the baseline sums up to.
    async fn plan(
        &self,
        ask: &Ask,
        past: &past::Past,
        cursors: &Cursors,
        reading: read::Reading,
        report: &mut Report,
    ) -> Result<(decide::Plan, Option<Sum>)> {
        report.head = reading.scopes.head().or_else(|| cursors.get("").cloned());
        report.listed = reading.scopes.all_complete().then_some(report.counts.scanned);
        // What was seen before a scope broke is good; only deletions need the proof.
        if reading.scopes.all_broken() && report.counts.scanned == 0 {
            finish::report_broken(&reading.scopes, report);
            return Err(finish::nothing_could_be_read(&reading.scopes));
        }
        // What is taken over is in no sum yet.
        let known = reading.sum.filter(|_| reading.strays.is_empty());
        let mut plan = decide::decide(self, ask, past, reading, report).await?;
        if let Some(sealed) = &ask.sealed {
            sealed.compare(&self.store, &self.sealed_steps(&mut plan.steps).await?).await?;
        }
        if ask.stop.is_set() {
            return Err(Error::new(Kind::Canceled, "stopped by request"));
        }
        Ok((plan, known))
    }

    /// Whether documents are kept until they are exported.
    fn keeps_bodies(&self) -> bool {
        self.shape.exports_body()
            && self.then.iter().any(|then| matches!(then.effect, queue::Effect::Export(_)))
    }

    /// Versions of this source are only hints, and its bodies are at hand: content is compared before it is judged.
    fn compares_content(&self) -> bool {
        self.source.versions() == Versions::Hint && !self.source.remote()
    }

    /// The names of the follow-up work every change calls for.
    fn follow_ups(&self) -> Vec<String> {
        self.then.iter().map(|then| then.name.clone()).collect()
    }

    /// End the run. One that cannot be written down is still reported; the next start finds it unfinished.
    async fn close(&self, report: &mut Report, notifier: Option<&notify::Notifier>, left: Option<Footing>) {
        if let Err(error) = self.end(report, notifier, left).await {
            report.fail(&error);
            report.conclude();
        }
    }

    /// Write down how it ended, then forget what is old.
    async fn end(
        &self,
        report: &mut Report,
        notifier: Option<&notify::Notifier>,
        left: Option<Footing>,
    ) -> Result<()> {
        report.conclude();
        report.finished = Some(rfc3339_ms(self.clock.now()));
        let mut items = vec![item(keys::run(&report.id), report)?];
        if let Some(footing) = left.filter(|_| report.cause.is_none()) {
            items.push(item(keys::footing(&self.name), &footing)?);
        }
        if let Some(notifier) = notifier {
            items.extend(notifier.items(report).await?);
        }
        self.state.commit(items).await?;
        let now = self.clock.now();
        self.state.forget_runs(&self.name, self.keep_runs, now).await?;
        self.state.forget_journal(&self.name, self.journal.keep, self.journal.max_bytes, now).await
    }

    /// The report of a run by id, or an error that says where to look.
    pub async fn find_run(state: &State, run: &str) -> Result<Report> {
        let found: Option<Report> = state.read(&keys::run(run)).await?;
        found.ok_or_else(|| {
            Error::new(Kind::NotFound, format!("there is no run {run}"))
                .remedy_is("`trueup runs` lists them.")
        })
    }
}
