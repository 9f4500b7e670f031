//! Undo: the reverse of a run, itself a run. Values come from the journal; a key that was changed since is held, not
//! overwritten, until a person has seen and approved that. What was undone stays pinned, so that the next tick does not redo
//! what a person undid.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::apply::{Applied, Applier};
use super::guard::{self, Holds, Population, Waitings};
use super::hold::count_held;
use super::plan::PlanId;
use super::preview::{Held, Keyed, Preview, Update};
use super::reverse::Reverser;
use super::steps::Steps;
use super::{Ask, Pipeline, place, priors, recover};
use crate::clock::rfc3339_ms;
use crate::error::{Error, Kind, Result};
use crate::record::Fingerprint;
use crate::state::held::{Header, HeldItem};
use crate::state::journal::{Change, Exceptions, Intent, PriorBase, PriorValue};
use crate::state::{Base, Pointer, Report, Tombstone, keys};
use crate::store::{Query, Stored};

/// One change to be reversed: its place in the journal, and what reversing it means.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Reverse {
    pub batch: u32,
    pub index: u32,
    pub identity: String,
    pub key: String,
    pub change: Change,
    pub scope: String,
    /// The scope it was in before, where the baseline knew it.
    before: Option<String>,
    pub stamp: Option<Fingerprint>,
}

impl Reverse {
    pub fn held(&self, rule: &str, foreign: bool) -> HeldItem {
        HeldItem {
            identity: self.identity.clone(),
            key: self.key.clone(),
            change: self.change,
            rule: rule.to_owned(),
            scope: self.scope.clone(),
            stamp: self.stamp,
            foreign,
        }
    }
}

/// What has become of a change since it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// The store holds what the run wrote.
    AsLeft,
    /// Somebody else brought the earlier value back; state does not know yet.
    PutBack,
    /// It was undone before.
    Undone,
    /// The store holds what a later run made of it.
    Overtaken(String),
    /// Somebody else was there.
    Changed,
}

pub(super) const CHANGED: &str = "changed since by somebody else";

fn forgotten(run: &str) -> Error {
    Error::new(Kind::NotFound, format!("what run {run} changed is no longer kept"))
        .remedy_is("Raise `journal = { keep, max }` to be able to undo for longer.")
}

struct Plan {
    steps: Steps,
    held: Vec<HeldItem>,
    reverses: Vec<(Change, String)>,
    /// Scopes in which something goes back.
    scopes: HashSet<String>,
}

impl Pipeline {
    /// Reverse a run; of one that is held, what a person has seen and approved.
    pub async fn undo(&self, run: &str, ask: &Ask, approved: Option<&Header>) -> Result<Report> {
        let lock = self.locks.acquire(&self.name).await?;
        let line = self.under(&lock);
        let work = Box::pin(async {
            recover::recover(&line).await?;
            let done = line.undoable(run).await?;
            let mut report = line.begin(ask.trigger).await?;
            report.undoes = Some(run.to_owned());
            if let Err(error) = line.reverse(&done, ask, approved, &mut report).await {
                report.fail(&error);
            }
            line.follow_up(ask, &mut report).await;
            line.keep_records(ask, &mut report).await;
            line.close(&mut report, None, None).await;
            Ok(report)
        });
        let outcome = lock.guard(work).await;
        lock.release().await;
        outcome
    }

    /// What undoing a run would do. Writes nothing.
    pub async fn preview_undo(&self, run: &str) -> Result<Preview> {
        let done = self.undoable(run).await?;
        let plan = self.plan_undo(&done, None).await?;
        let mut preview =
            Preview { id: plan_id(self, run, &plan), pipeline: self.name.clone(), ..Preview::default() };
        for (change, key) in plan.reverses {
            match change {
                Change::Add => preview.add.push(Keyed { key }),
                Change::Update => preview.update.push(Update { key, why: "undo", diff: None }),
                Change::Delete => preview.delete.push(Keyed { key }),
            }
        }
        for held in plan.held {
            preview.held.push(Held { key: held.key, change: held.change, rule: held.rule });
        }
        preview.writes = (preview.add.len() + preview.update.len() + preview.delete.len()) as u64;
        Ok(preview)
    }

    async fn undoable(&self, run: &str) -> Result<Report> {
        let report = Pipeline::find_run(&self.state, run).await?;
        if report.pipeline != self.name {
            return Err(Error::bug(format!("run {run} belongs to {}", report.pipeline)));
        }
        place::check_undo(self, &report)?;
        let kept: Option<u64> = self.state.read(&keys::weight(&self.name, run)).await?;
        if kept.is_none() && report.writes > 0 {
            return Err(forgotten(run));
        }
        Ok(report)
    }

    async fn reverse(
        &self,
        done: &Report,
        ask: &Ask,
        approved: Option<&Header>,
        report: &mut Report,
    ) -> Result<()> {
        let run = &done.id;
        let seen = match approved {
            Some(header) => Some(self.state.held_items(header).await?),
            None => None,
        };
        let mut plan = self.plan_undo(done, seen.as_deref()).await?;
        for held in &plan.held {
            count_held(report, held, true);
        }
        ask.progress.step(&self.name, "undoing", Some(plan.steps.len()));
        super::cursors::forget(self, &plan.scopes).await?;
        let preparer = Reverser::of(self, run, &report.id, approved.is_some()).await?;
        let mut applier = Applier::new(self, ask, &preparer, report);
        let outcome = applier.all(&mut plan.steps).await;
        let applied = applier.applied;
        self.keep_undo_held(run, plan, applied, report).await?;
        outcome
    }

    async fn keep_undo_held(
        &self,
        run: &str,
        mut plan: Plan,
        applied: Applied,
        report: &mut Report,
    ) -> Result<()> {
        if applied.journal_bytes > 0 {
            self.state.put(&keys::weight(&self.name, &report.id), &applied.journal_bytes).await?;
        }
        // What turned out to be changed since brings its own scan along: there is no source that was scanned.
        for held in applied.held {
            plan.held.push(held);
        }
        let id = plan_id(self, run, &plan);
        report.plan = Some(id.clone());
        fill_scanned(report);
        if plan.held.is_empty() {
            return self.state.nothing_held(&self.name, run).await;
        }
        let header = Header {
            plan: id,
            pipeline: self.name.clone(),
            since: rfc3339_ms(self.clock.now()),
            run: report.id.clone(),
            undo: Some(run.to_owned()),
        };
        self.state.hold(&header, &plan.held).await
    }

    /// Read the run's journal backwards into steps, and let the guard judge the whole. What was undone before, by a
    /// pass that was cut off or by what of it the guard let through, is done with. Of what was `approved` nothing is held, and
    /// nothing else is touched.
    async fn plan_undo(&self, done: &Report, approved: Option<&[HeldItem]>) -> Result<Plan> {
        let run = &done.id;
        let seen: Option<HashSet<(&str, &str)>> =
            approved.map(|held| held.iter().map(|one| (one.identity.as_str(), one.key.as_str())).collect());
        let mut batches = self.state.keys(&keys::journal_of(&self.name, run)).await?;
        batches.reverse();
        let (mut reverses, mut changed, mut kept) = (Vec::new(), Vec::new(), 0);
        for key in batches {
            let number = keys::below(&keys::journal_of(&self.name, run), &key).parse().unwrap_or(u32::MAX);
            let intents = self.state.intents(&self.name, run, number).await?.unwrap_or_default();
            let late: Exceptions =
                self.state.read(&keys::outcomes(&self.name, run, number)).await?.unwrap_or_default();
            let applied = |(index, _): &(u32, &Intent)| !late.iter().any(|(other, _)| other == index);
            let applied: Vec<(u32, &Intent)> = (0u32..).zip(&intents).filter(applied).collect();
            kept += applied.len() as u64;
            let names: Vec<&str> = applied.iter().map(|(_, intent)| intent.key()).collect();
            let stored = priors::stored(&*self.store, &names).await?;
            for ((index, intent), stored) in applied.into_iter().zip(stored).rev() {
                let reverse = self.reverse_of(number, index, intent);
                let is_meant = seen.as_ref().map(|seen| seen.contains(&(&*reverse.identity, &*reverse.key)));
                match self.standing(run, &reverse, intent, stored.as_ref()).await? {
                    _ if is_meant == Some(false) => {}
                    Standing::Undone => {}
                    Standing::Changed => changed.push(reverse.held(CHANGED, true)),
                    Standing::Overtaken(by) if is_meant.is_none() => {
                        changed.push(reverse.held(&format!("changed since by run {by}"), false));
                    }
                    Standing::AsLeft | Standing::PutBack | Standing::Overtaken(_) => reverses.push(reverse),
                }
            }
        }
        if kept < done.writes {
            return Err(forgotten(run));
        }
        let holds = if seen.is_some() { Holds::default() } else { self.judge_undo(&reverses).await? };
        let mut plan = divide(reverses, &holds)?;
        plan.held.extend(changed);
        Ok(plan)
    }

    /// What has become of a change since the run made it.
    pub(super) async fn standing(
        &self,
        run: &str,
        step: &Reverse,
        intent: &Intent,
        stored: Option<&Stored>,
    ) -> Result<Standing> {
        let now = stored.map(|stored| Fingerprint::of(&stored.value));
        if now == intent.bytes_hash() {
            return Ok(Standing::AsLeft);
        }
        let before = intent.prior.as_ref().map(PriorValue::sha256).transpose()?;
        if now == before && intent.retire {
            return Ok(Standing::Undone);
        }
        let base: Option<Base> = self.state.read(&keys::base(&self.name, &step.identity)).await?;
        let gone: Option<Tombstone> = self.state.read(&keys::tombstone(&self.name, &step.identity)).await?;
        let left = base.as_ref().map(Base::bytes_hash);
        let latest = base.map(|base| base.written).or(gone.map(|gone| gone.written));
        let here = Pointer { run: run.into(), batch: step.batch, index: step.index };
        Ok(match latest {
            latest if now == before && latest == Some(here) => Standing::PutBack,
            _ if now == before => Standing::Undone,
            Some(later) if now == left && !intent.retire => Standing::Overtaken(later.run.to_string()),
            _ => Standing::Changed,
        })
    }

    fn reverse_of(&self, batch: u32, index: u32, intent: &Intent) -> Reverse {
        let change = match (intent.change, &intent.prior) {
            (Change::Delete, _) => Change::Add,
            (Change::Add | Change::Update, None) => Change::Delete,
            (Change::Add | Change::Update, Some(_)) => Change::Update,
        };
        let base = intent.next.as_ref().or(intent.prior_base.as_ref()).map(|known| &known.base);
        Reverse {
            batch,
            index,
            identity: intent.identity.clone(),
            key: intent.key().to_owned(),
            change,
            scope: base.map(|base| base.scope.to_string()).unwrap_or_default(),
            before: intent.prior_base.as_ref().map(|known| known.base.scope.to_string()),
            // What the source still says.
            stamp: intent.next.as_ref().and_then(|next| self.mark_of(&intent.identity, next)),
        }
    }

    /// What the source says of a record by its baseline: its content where that is compared, else its stamp; nothing where it
    /// was marked because the source had it no more.
    pub(super) fn mark_of(&self, identity: &str, known: &PriorBase) -> Option<Fingerprint> {
        let is_missing = self.shape.is_missing(&known.base.prior(identity));
        let mark = if self.compares_content() { known.base.fingerprint } else { known.stamp };
        (!is_missing).then_some(mark)
    }

    async fn judge_undo(&self, reverses: &[Reverse]) -> Result<Holds> {
        let count = |change| reverses.iter().filter(|one| one.change == change).count() as u64;
        let (updates, deletes) = (count(Change::Update), count(Change::Delete));
        if updates + deletes == 0 {
            return Ok(Holds::default());
        }
        let known = self.count_known().await?;
        Ok(guard::judge(&self.guard, Population { known, updates, deletes }, Waitings::default()))
    }

    async fn count_known(&self) -> Result<u64> {
        let prefix = keys::bases(&self.name);
        let mut known = 0;
        let mut after: Option<String> = None;
        loop {
            let page =
                self.state.store().list(Query { after: after.as_deref(), ..Query::keys(&prefix) }).await?;
            known += page.items.len() as u64;
            after = page.items.last().map(|line| line.key.clone());
            if !page.more {
                return Ok(known);
            }
        }
    }
}

fn divide(reverses: Vec<Reverse>, holds: &Holds) -> Result<Plan> {
    let (steps, scopes) = (Steps::default(), HashSet::new());
    let mut plan = Plan { steps, held: Vec::new(), reverses: Vec::new(), scopes };
    for one in reverses {
        let rule = match one.change {
            Change::Add => None,
            Change::Update => holds.updates.as_deref(),
            Change::Delete => holds.deletes.as_deref(),
        };
        match rule {
            Some(rule) => plan.held.push(one.held(rule, false)),
            None => {
                plan.steps.push(&one)?;
                plan.scopes.extend(one.before);
                plan.scopes.insert(one.scope);
                plan.reverses.push((one.change, one.key));
            }
        }
    }
    Ok(plan)
}

fn plan_id(line: &Pipeline, run: &str, plan: &Plan) -> String {
    let mut id = PlanId::of(&format!("{} undo {run}", line.name));
    for held in &plan.held {
        id.add_held(held);
    }
    if id.is_empty() {
        for (change, key) in &plan.reverses {
            id.add(key, *change, None, None);
        }
    }
    id.finish()
}

/// An undo scans no source: its items are what it reversed.
fn fill_scanned(report: &mut Report) {
    let fill = |counts: &mut crate::state::Counts| {
        let ended = counts.added + counts.updated + counts.unchanged + counts.skipped + counts.failed;
        counts.scanned = ended + counts.held_by.add + counts.held_by.update;
    };
    fill(&mut report.counts);
    report.groups.values_mut().for_each(fill);
}
