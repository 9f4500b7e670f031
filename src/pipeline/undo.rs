//! Undo: the reverse of a run, itself a run. Values come from the journal; a key that somebody changed since is held,
//! not overwritten; what was undone stays pinned, so that the next tick does not redo what a person undid.

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::apply::{Applied, Applier};
use super::guard::{self, Holds, Population, Waitings};
use super::hold::count_held;
use super::plan::PlanId;
use super::prepare::{Prepare, Ready, conditional, number};
use super::preview::{Held, Keyed, Preview, Update};
use super::steps::Steps;
use super::{Ask, Pipeline, place, priors, recover};
use crate::clock::rfc3339_ms;
use crate::error::{Error, Kind, Result};
use crate::portion::{Lately, Portion};
use crate::record::Fingerprint;
use crate::state::held::{Decision, Header, HeldItem, Verdict};
use crate::state::journal::{Change, Exact, Exceptions, Intent, PriorBase, PriorValue};
use crate::state::{Base, Pointer, Report, Tombstone, item, keys};
use crate::store::{Op, Query, StoreExt, Stored};

/// One change to be reversed: its place in the journal, and what reversing it means.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reverse {
    batch: u32,
    index: u32,
    identity: String,
    key: String,
    change: Change,
    scope: String,
    /// The scope it was in before, where the baseline knew it.
    before: Option<String>,
    stamp: Option<Fingerprint>,
}

impl Reverse {
    fn held(&self, rule: &str, foreign: bool) -> HeldItem {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The store holds what the run wrote.
    AsLeft,
    /// Somebody else brought the earlier value back; state does not know yet.
    PutBack,
    /// It was undone before.
    Undone,
    Changed,
}

const CHANGED: &str = "changed since by somebody else";

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
    /// Reverse a run. `approved` = a person has seen what the guard would hold.
    pub async fn undo(&self, run: &str, ask: &Ask, approved: bool) -> Result<Report> {
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
        let plan = self.plan_undo(&done, false).await?;
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

    async fn reverse(&self, done: &Report, ask: &Ask, approved: bool, report: &mut Report) -> Result<()> {
        let run = &done.id;
        let mut plan = self.plan_undo(done, approved).await?;
        for held in &plan.held {
            count_held(report, held, true);
        }
        ask.progress.step(&self.name, "undoing", Some(plan.steps.len()));
        super::cursors::forget(self, &plan.scopes).await?;
        let preparer =
            Reverser { line: self, run, undo_run: report.id.clone(), values_weigh: Lately::default() };
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
    /// pass that was cut off or by what of it the guard let through, is done with.
    async fn plan_undo(&self, done: &Report, approved: bool) -> Result<Plan> {
        let run = &done.id;
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
                match self.standing(run, &reverse, intent, stored.as_ref()).await? {
                    Standing::AsLeft | Standing::PutBack => reverses.push(reverse),
                    Standing::Undone => {}
                    Standing::Changed => changed.push(reverse.held(CHANGED, true)),
                }
            }
        }
        if kept < done.writes {
            return Err(forgotten(run));
        }
        let holds = if approved { Holds::default() } else { self.judge_undo(&reverses).await? };
        let mut plan = divide(reverses, &holds)?;
        plan.held.extend(changed);
        Ok(plan)
    }

    /// What has become of a change since the run made it.
    async fn standing(
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
        if now != before {
            return Ok(Standing::Changed);
        }
        if intent.retire {
            return Ok(Standing::Undone);
        }
        let base: Option<Base> = self.state.read(&keys::base(&self.name, &step.identity)).await?;
        let gone: Option<Tombstone> = self.state.read(&keys::tombstone(&self.name, &step.identity)).await?;
        let latest = base.map(|base| base.written).or(gone.map(|gone| gone.written));
        let here = Pointer { run: run.into(), batch: step.batch, index: step.index };
        Ok(if latest == Some(here) { Standing::PutBack } else { Standing::Undone })
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
            // What the source still says: its content where that is compared, else its stamp; nothing where it was marked
            // because the source had it no more.
            stamp: intent
                .next
                .as_ref()
                .filter(|next| !self.shape.is_missing(&next.base.prior(&intent.identity)))
                .map(|next| if self.compares_content() { next.base.fingerprint } else { next.stamp }),
        }
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
        id.add(&held.identity, held.change, held.stamp, None);
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

/// Turns journal places into the writes that reverse them.
struct Reverser<'a> {
    line: &'a Pipeline,
    run: &'a str,
    undo_run: String,
    values_weigh: Lately,
}

impl Prepare for Reverser<'_> {
    type Step = Reverse;

    fn is_delete(step: &Reverse) -> bool {
        step.change == Change::Delete
    }

    type Draft = Reverse;

    /// All it needs is in the journal.
    async fn fetch(&self, steps: Vec<Reverse>) -> (VecDeque<Reverse>, Vec<Reverse>) {
        (steps.into(), Vec::new())
    }

    async fn batch(&self, batch: u32, steps: &mut VecDeque<Reverse>) -> Result<Vec<Ready>> {
        let mut portion = Portion::expecting(VALUES_BYTES_MAX, self.values_weigh.each());
        let mut journal = Journal::default();
        let mut ready = Vec::with_capacity(steps.len());
        while !steps.is_empty() && portion.room() > 0 {
            let some: Vec<Reverse> = steps.drain(..steps.len().min(portion.room())).collect();
            let keys: Vec<&str> = some.iter().map(|step| step.key.as_str()).collect();
            let stored = priors::stored(&*self.line.store, &keys).await?;
            for (step, stored) in some.iter().zip(stored) {
                let intent = journal.intent(self, step).await?;
                let there = stored.as_ref().map_or(0, |stored| stored.value.len());
                let one = self.one(step, intent, stored).await?;
                portion.add(there + value_bytes(&one));
                ready.push(one);
            }
        }
        self.values_weigh.learn(&portion);
        number(self.line, &self.undo_run, batch, &mut ready).await?;
        Ok(ready)
    }
}

/// Values in memory at a time: what is there, and what comes back.
const VALUES_BYTES_MAX: usize = 32 << 20;

fn value_bytes(ready: &Ready) -> usize {
    match ready {
        Ready::Write(write) => super::prepare::value_of(&write.op).map_or(0, bytes::Bytes::len),
        _ => 0,
    }
}

/// The batch of the journal that was read last.
#[derive(Default)]
struct Journal(Option<(u32, Vec<Intent>)>);

impl Journal {
    async fn intent(&mut self, of: &Reverser<'_>, step: &Reverse) -> Result<&Intent> {
        if self.0.as_ref().is_none_or(|(number, _)| *number != step.batch) {
            let intents = of.line.state.intents(&of.line.name, of.run, step.batch).await?;
            self.0 = Some((step.batch, intents.unwrap_or_default()));
        }
        let intent = self.0.as_ref().and_then(|(_, intents)| intents.get(step.index as usize));
        intent.ok_or_else(|| Error::new(Kind::Corrupt, "the journal changed while it was read"))
    }
}

impl Reverser<'_> {
    async fn one(&self, step: &Reverse, intent: &Intent, stored: Option<Stored>) -> Result<Ready> {
        let standing = self.line.standing(self.run, step, intent, stored.as_ref()).await?;
        if matches!(standing, Standing::Changed | Standing::Undone) {
            return Ok(Ready::Held(Box::new(step.held(CHANGED, true))));
        }
        let (op, bytes) = match &intent.prior {
            None => (Op::Delete, None),
            Some(prior) => {
                let value = prior.load(&self.line.state, &self.line.name, self.run).await?;
                let bytes = Fingerprint::of(&value);
                (Op::Put { value, fingerprint: intent.prior_fingerprint }, Some(Exact::Are(bytes)))
            }
        };
        // Reversing an undo lifts its pin; reversing anything else pins what the source still says.
        let redo = intent.decision.is_some();
        let decision = Decision { verdict: Verdict::Undone, stamp: step.stamp, run: self.run.to_owned() };
        let reversed = Intent {
            identity: intent.identity.clone(),
            change: step.change,
            key: intent.key.clone(),
            bytes,
            // The baseline goes back to what it was before the run.
            next: self.known_before(intent).await?.map(Box::new),
            prior: None,
            prior_fingerprint: None,
            prior_version: None,
            prior_base: known_now(intent, stored.as_ref()).map(Box::new),
            retire: intent.retire,
            then: self.line.follow_ups(),
            decision: (!redo).then(|| Box::new(decision)),
            lift: redo,
            still_new: false,
            earlier: None,
        };
        let mut write = conditional(&self.line.name, &self.undo_run, reversed, op, stored);
        write.scope = step.scope.as_str().into();
        write.stamp = step.stamp;
        Ok(Ready::Write(write))
    }

    /// What the baseline said before the run, as far as it is true of what is put back.
    async fn known_before(&self, intent: &Intent) -> Result<Option<PriorBase>> {
        let Some(mut known) = intent.prior_base.as_deref().cloned() else { return Ok(None) };
        let key = known.base.key(&intent.identity).to_owned();
        if key != intent.key() && !intent.retire {
            // A record that moved is back at its old key by now, in a new version.
            let stored = self.line.store.get_one(&key).await?;
            known.base.version = stored.map_or(known.base.version, |stored| stored.version);
            return Ok(Some(known));
        }
        // The run healed what somebody else had done, and that is back now: the source knows nothing of it.
        let Some(prior) = &intent.prior else { return Ok(None) };
        let restored = prior.sha256()?;
        if restored != known.base.bytes_hash() {
            known.stamp = Fingerprint([0; 32]);
            known.base = Base { fingerprint: restored, bytes: None, ..known.base };
        }
        Ok(Some(known))
    }
}

/// What the baseline says now: what the run left there.
fn known_now(intent: &Intent, stored: Option<&Stored>) -> Option<PriorBase> {
    let mut known = intent.next.as_deref().cloned()?;
    if let Some(stored) = stored {
        known.base.version = stored.version.clone();
    }
    Some(known)
}

/// Take over foreign keys: the next pass may overwrite them.
impl Pipeline {
    pub async fn adopt(&self, keys_wanted: &[String]) -> Result<Vec<String>> {
        let Some(header) = self.state.held_header(&self.name, crate::state::held::SYNC).await? else {
            return Ok(Vec::new());
        };
        let held = self.state.held_items(&header).await?;
        let foreign = held.iter().filter(|held| held.foreign && keys_wanted.contains(&held.key));
        let mut adopted = Vec::new();
        let mut items = Vec::new();
        for held in foreign {
            let decision = Decision { verdict: Verdict::Adopted, stamp: held.stamp, run: header.run.clone() };
            items.push(item(keys::decision(&self.name, &held.identity), &decision)?);
            adopted.push(held.key.clone());
        }
        self.state.commit_in_parts(items).await?;
        Ok(adopted)
    }
}
