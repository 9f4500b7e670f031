//! From findings to a plan: bodies are compared where a version is only a hint, absence is weighed, the guard and
//! people's decisions have their say. What is left is applied; the rest is held, and says by which rule.

use std::collections::HashSet;

use futures::stream::{self, StreamExt};

use super::failing::Failing;
use super::guard::{self, Holds, Population, Waitings};
use super::hold::{count_held, held_item, is_approved};
use super::past::Past;
use super::plan::{Action, PlanId, Seen, Step, Why};
use super::reading::{Reading, left_so};
use super::scopes::{Absence, Scopes};
use super::steps::Steps;
use super::strays::{self, Wholes};
use super::weigh::{Weighed, is_edited, is_over, needs_a_look, strayed, weigh};
use super::{Ask, Pipeline};
use crate::config::Heal;
use crate::error::Result;
use crate::record::Scope;
use crate::shape::Absent;
use crate::state::held::{HeldItem, Verdict};
use crate::state::journal::Change;
use crate::state::{Report, keys};
use crate::store::StoreExt;

/// What a pass will do, and what it leaves to a person.
#[derive(Default)]
pub struct Plan {
    /// To be applied.
    pub steps: Steps,
    /// [`HeldItem`]s.
    pub held: Steps,
    pub adds: u64,
    pub updates: u64,
    pub deletes: u64,
    pub scopes: Scopes,
    pub known: u64,
    pub void: Vec<String>,
    pub shadowed: Vec<(String, String, String)>,
    pub failed: Vec<String>,
    /// Scopes in which something is about to change.
    pub touched: HashSet<Scope>,
    /// Identities whose change was given up before, and is still wanted.
    pub given_up: HashSet<String>,
    /// What `approve` takes: over what is held, or over everything when nothing is.
    pub id: String,
    /// The id over everything that will be applied.
    whole: PlanId,
}

impl Plan {
    /// Count a step that will be applied.
    fn count(&mut self, step: &Step) {
        let Some(change) = step.change() else { return };
        match change {
            Change::Add => self.adds += 1,
            Change::Update => self.updates += 1,
            Change::Delete => self.deletes += 1,
        }
        self.whole.add(&step.identity, change, step.mark(), step.base.as_ref().map(|kept| kept.stamp));
    }
}

pub async fn decide(
    line: &Pipeline,
    ask: &Ask,
    past: &Past,
    reading: Reading,
    report: &mut Report,
) -> Result<Plan> {
    let plan = Plan { whole: PlanId::of(&line.name), ..Plan::default() };
    let population = Population { known: reading.known + reading.unknown, ..Population::default() };
    let decider = Decider {
        line,
        ask,
        past,
        report,
        plan,
        weighed: Steps::default(),
        gone: HashSet::new(),
        population,
        waiting: Waitings::default(),
    };
    decider.run(reading).await
}

/// Why something that is gone from the source is not deleted.
pub const EDITED: &str = "foreign: edited in the store since trueup wrote it";

struct Decider<'a> {
    line: &'a Pipeline,
    ask: &'a Ask,
    past: &'a Past,
    report: &'a mut Report,
    plan: Plan,
    /// Steps that are real changes, before the guard.
    weighed: Steps,
    /// Identities the source itself says were removed.
    gone: HashSet<String>,
    population: Population,
    /// What was held before, and is still wanted.
    waiting: Waitings,
}

impl Decider<'_> {
    async fn run(mut self, mut reading: Reading) -> Result<Plan> {
        match reading.all_new.take().filter(|_| self.past.is_blank()) {
            // Nobody ever had a say in any of it, and the guard has none: a first load is planned as it was read.
            Some(id) => {
                (self.plan.adds, self.plan.whole) = (reading.steps.len(), id);
                self.weighed = std::mem::take(&mut reading.steps);
            }
            None => self.weigh_sighted(&mut reading.steps).await?,
        }
        if self.ask.only.is_none() && reading.scopes.all_complete() {
            self.plan.void.extend(self.past.over(&reading.met, &mut reading.unseen)?);
        }
        let mut wholes = Wholes::of(self.line, &reading.scopes);
        self.weigh_unseen(&mut reading.unseen, &reading.scopes, &mut wholes).await?;
        self.weigh_strays(strays::gone(self.line, self.past, &mut reading.strays, &mut wholes)?)?;
        self.keep_what_was_not_read(&reading, &mut wholes).await?;
        let holds = guard::judge(&self.line.guard, self.population, self.waiting);
        self.divide(&holds)?;
        self.expire().await?;
        self.let_older_go().await?;
        super::finish::report_broken(&reading.scopes, self.report);
        self.plan.known = reading.known;
        self.plan.scopes = reading.scopes;
        self.plan.void.append(&mut reading.void);
        self.plan.shadowed = reading.shadowed;
        self.plan.failed = reading.failed;
        self.plan.touched.extend(reading.touched);
        self.plan.id = self.plan_id()?;
        Ok(self.plan)
    }

    /// Steps in order; bodies that must be compared are read several at a time.
    async fn weigh_sighted(&mut self, steps: &mut Steps) -> Result<()> {
        let (line, past) = (self.line, self.past);
        let mut steps = steps.read::<Step>()?;
        loop {
            let some = steps.by_ref().take(WEIGHED_AT_ONCE).collect::<Result<Vec<Step>>>()?;
            if some.is_empty() {
                return Ok(());
            }
            if !some.iter().any(|step| needs_a_look(line, past, step)) {
                some.into_iter().try_for_each(|step| self.sort_in(step, Weighed::AsPlanned))?;
                continue;
            }
            let weighed = stream::iter(some).map(|step| weigh(line, past, step)).buffered(line.concurrency);
            let mut weighed = std::pin::pin!(weighed);
            while let Some(result) = weighed.next().await {
                let (step, as_what) = result?;
                self.sort_in(step, as_what)?;
            }
        }
    }

    fn sort_in(&mut self, step: Step, as_what: Weighed) -> Result<()> {
        if step.entry.is_none() {
            self.gone.insert(step.identity.clone());
        }
        match as_what {
            Weighed::AsPlanned if step.entry.is_none() => self.absent(step),
            Weighed::AsPlanned if is_over(self.line, &step) => self.leave_to_time(step),
            Weighed::AsPlanned => self.consider(step),
            Weighed::Edited => self.hold(&step, EDITED, true),
            Weighed::Foreign => {
                self.hold(&step, "foreign: the key holds something trueup did not write", true)
            }
            Weighed::Left(class) => {
                self.report.warn(left_so(&step.identity, class));
                self.report.count(&step.scope, |counts| counts.unchanged += 1);
                Ok(())
            }
        }
    }

    /// Too old to be written. What is known of it is kept up to date, for as long as its file is there.
    fn leave_to_time(&mut self, mut step: Step) -> Result<()> {
        if step.base.is_some() {
            step.action = Action::Restamp;
            return self.consider(step);
        }
        self.report.count(&step.scope, |counts| counts.skipped += 1);
        Ok(())
    }

    async fn weigh_unseen(
        &mut self,
        unseen: &mut Steps,
        scopes: &Scopes,
        wholes: &mut Wholes<'_>,
    ) -> Result<()> {
        let orphans = super::orphans::gone_with_their_owner(self.line, unseen, scopes, wholes, &self.gone)?;
        for step in unseen.read::<Step>()? {
            let step = step?;
            let absence =
                if orphans.contains(&step.identity) { Absence::Proven } else { wholes.absence(&step.scope) };
            match absence {
                Absence::Proven => {
                    // Whatever else is held stays so, and this is decided now.
                    if self.ask.only.is_some() {
                        self.gone.insert(step.identity.clone());
                    }
                    if is_edited(self.line, self.past, &step).await? {
                        self.hold(&step, EDITED, true)?;
                    } else {
                        self.absent(step)?;
                    }
                }
                Absence::StillThere => self.still_there(step)?,
                Absence::Unknown if !self.line.source.has_scope(&step.scope) => self.forget(step)?,
                Absence::Unknown => self.still_missing(&step),
            }
        }
        self.gone.extend(orphans);
        Ok(())
    }

    /// They are ours from now on, and gone.
    fn weigh_strays(&mut self, strays: Vec<Step>) -> Result<()> {
        for step in strays {
            self.gone.insert(step.identity.clone());
            if step.action == Action::Restamp { self.weighed.push(&step)? } else { self.absent(step)? }
        }
        Ok(())
    }

    fn absent(&mut self, mut step: Step) -> Result<()> {
        let Some((_, base)) = step.base()? else { return Ok(()) };
        match self.line.shape.absent(&base.prior(&step.identity), None, self.line.clock.now()) {
            Absent::Delete => self.consider(step),
            Absent::Put(_) => {
                step.action = Action::Change(Change::Update, Why::Absent);
                self.consider(step)
            }
            Absent::Keep if step.seen == Seen::Nothing => self.forget(step),
            Absent::Keep if self.is_marked_otherwise(&step) => {
                step.action = Action::Change(Change::Update, Why::Absent);
                self.consider(step)
            }
            // Gone from the source and kept: said again on every run, for as long as it is so.
            Absent::Keep => {
                self.report.count(&step.scope, |counts| counts.missing += 1);
                Ok(())
            }
        }
    }

    /// Neither the source nor the store has it, or nobody asks for it any more: nothing is to be known of it.
    fn forget(&mut self, mut step: Step) -> Result<()> {
        self.plan.touched.insert(step.scope.clone());
        step.action = Action::Restamp;
        self.weighed.push(&step)
    }

    /// It is marked, and somebody changed it since.
    fn is_marked_otherwise(&self, step: &Step) -> bool {
        let heals = self.line.drift.edited == Heal::Heal;
        heals && (self.ask.heal.contains(&step.identity) || strayed(step))
    }

    /// Nobody knows whether it is back, so it counts as before.
    fn still_missing(&mut self, step: &Step) {
        if self.is_missing(step) {
            self.report.count(&step.scope, |counts| counts.missing += 1);
        }
    }

    fn is_missing(&self, step: &Step) -> bool {
        let base = step.base().ok().flatten();
        base.is_some_and(|(_, base)| self.line.shape.is_missing(&base.prior(&step.identity)))
    }

    /// Not read because its scope did not change: it counts as before. What was gone before is still gone, and what that
    /// means may have changed.
    fn still_there(&mut self, step: Step) -> Result<()> {
        if self.past.keeps_absent(&step.identity) {
            return Ok(()); // counted with what stays held, or not at the source
        }
        if self.is_missing(&step) {
            return self.absent(step);
        }
        let parked = self.past.parked_identities.contains(&step.identity);
        self.report.count(&step.scope, |counts| {
            counts.scanned += 1;
            if parked {
                counts.skipped += 1;
            } else {
                counts.unchanged += 1;
            }
        });
        Ok(())
    }

    /// What was held or parked in a scope that was not read again stays so, and is said again; but not of records that
    /// neither state nor store know any more, because nobody asks for their scope or they went with a run that was undone.
    async fn keep_what_was_not_read(&mut self, reading: &Reading, wholes: &mut Wholes<'_>) -> Result<()> {
        let scopes = &reading.scopes;
        // A look at one key decides about no other.
        let one = self.ask.only.is_some();
        let mut is_open = |held: &&HeldItem| {
            let decided = reading.met.contains(&held.identity) || self.gone.contains(&held.identity);
            let unread = !scopes.was_read(&held.scope) && !wholes.has_lost(&held.scope);
            (one || unread) && !decided
        };
        let open: Vec<&HeldItem> = self.past.held.iter().filter(|held| is_open(held)).collect();
        for some in open.chunks(WEIGHED_AT_ONCE) {
            let bases: Vec<String> =
                some.iter().map(|held| keys::base(&self.line.name, &held.identity)).collect();
            let bases: Vec<&str> = bases.iter().map(String::as_str).collect();
            let known = self.line.state.store().get(&bases).await?;
            for (held, known) in some.iter().zip(known) {
                // The store is asked only where the state cannot tell: it may take a request for each.
                let stays = known.is_some()
                    || held.change == Change::Add
                    || self.line.store.get_one(&held.key).await?.is_some();
                if stays {
                    count_held(self.report, held, true);
                    self.plan.held.push(*held)?;
                }
            }
        }
        if one {
            return Ok(());
        }
        for (entry, parked) in &self.past.parked {
            if !scopes.was_read(&parked.scope) {
                self.report.warn(format!("{entry}: {}", parked.why));
                if parked.counts_alone() && scopes.absence(&parked.scope) == Absence::StillThere {
                    self.report.count(&parked.scope, |counts| {
                        counts.scanned += 1;
                        counts.skipped += 1;
                    });
                }
            }
        }
        Ok(())
    }

    /// People's decisions first; what they leave open goes to the guard.
    fn consider(&mut self, step: Step) -> Result<()> {
        let decision =
            self.past.decisions.get(&step.identity).filter(|decision| decision.verdict != Verdict::Adopted);
        if decision.is_some_and(|decision| decision.stamp != step.mark()) {
            self.plan.void.push(step.identity.clone());
        }
        let Some(change) = step.change() else { return self.weighed.push(&step) };
        if let Some(failing) = self.past.gave_up(&step) {
            self.leave(&step, failing);
            return Ok(());
        }
        let decided = decision.is_some_and(|decision| decision.stamp == step.mark());
        if decided && change == Change::Delete && step.seen == Seen::Nothing {
            self.plan.void.push(step.identity.clone());
            return self.forget(step); // there is nothing left to decide about
        }
        let approved = is_approved(&self.past.approved, &step);
        match decision.filter(|decision| decision.stamp == step.mark()) {
            Some(decision) if decision.verdict == Verdict::Undone && !approved => {
                return self.hold(&step, &format!("undone {}", decision.run), false);
            }
            Some(decision) if decision.verdict == Verdict::Rejected => {
                if step.entry.is_some() {
                    self.report.count(&step.scope, |counts| counts.skipped += 1);
                }
                return Ok(());
            }
            _ => {}
        }
        if let Some(rule) = self.past.rule_of(&step).filter(|rule| guard::is_by_guard(rule) && !approved) {
            if self.ask.only.is_some() {
                return self.hold(&step, rule, false);
            }
            match change {
                Change::Add => {}
                Change::Update => self.waiting.updates.add(rule),
                Change::Delete => self.waiting.deletes.add(rule),
            }
        }
        match change {
            Change::Add => {}
            Change::Update => self.population.updates += 1,
            Change::Delete => self.population.deletes += 1,
        }
        if step.entry.is_none() && !self.plan.touched.contains(&step.scope) {
            self.plan.touched.insert(step.scope.clone());
        }
        self.plan.count(&step);
        self.weighed.push(&step)
    }

    /// Given up: said on every run, until a newer version or a person asks for another try.
    fn leave(&mut self, step: &Step, failing: &Failing) {
        self.report.warn(failing.warning());
        if step.entry.is_some() {
            self.report.count(&step.scope, |counts| counts.skipped += 1);
        }
        self.plan.given_up.insert(step.identity.clone());
    }

    /// What has had its time goes, whatever the guard says; only a person who undid that is asked first.
    async fn expire(&mut self) -> Result<()> {
        if self.ask.only.is_some() {
            return Ok(());
        }
        let fresh = super::expire::fresh(self.line, &mut self.plan.steps)?;
        for step in super::expire::steps(self.line).await? {
            if fresh.contains(&step.identity) {
                continue;
            }
            let decision = self.past.decisions.get(&step.identity);
            match decision.filter(|decision| decision.verdict == Verdict::Undone) {
                Some(decision) => self.hold(&step, &format!("undone {}", decision.run), false)?,
                None => self.take(&step)?,
            }
        }
        Ok(())
    }

    /// Over a threshold every change of that kind is held, unless a person approved that very change.
    fn divide(&mut self, holds: &Holds) -> Result<()> {
        let mut weighed = std::mem::take(&mut self.weighed);
        if *holds == Holds::default() {
            self.plan.steps = weighed;
            return Ok(());
        }
        (self.plan.adds, self.plan.updates, self.plan.deletes) = (0, 0, 0);
        self.plan.whole = PlanId::of(&self.line.name);
        for step in weighed.read::<Step>()? {
            let step = step?;
            let approved = is_approved(&self.past.approved, &step);
            let rule = match step.change() {
                Some(Change::Update) => holds.updates.as_deref(),
                Some(Change::Delete) => holds.deletes.as_deref(),
                Some(Change::Add) | None => None,
            };
            match rule {
                Some(rule) if !approved => self.hold(&step, rule, false)?,
                _ => self.take(&step)?,
            }
        }
        Ok(())
    }

    /// Rows of an older layout go when their time is over. Nobody needs to be asked: it was said when they were met.
    async fn let_older_go(&mut self) -> Result<()> {
        for key in self.past.expired.iter().filter(|_| self.ask.only.is_none()) {
            let identity = self.line.shape.claims(key).unwrap_or_else(|| key.clone());
            if self.line.state.store().get_one(&keys::base(&self.line.name, &identity)).await?.is_some() {
                continue;
            }
            let action = Action::Change(Change::Delete, Why::Absent);
            let (scope, seen) = (Scope::default(), Seen::NotAsked);
            self.take(&Step {
                identity,
                scope,
                action,
                stamp: None,
                entry: None,
                base: None,
                seen,
                after: None,
            })?;
        }
        Ok(())
    }

    fn take(&mut self, step: &Step) -> Result<()> {
        self.plan.count(step);
        self.plan.steps.push(step)
    }

    fn hold(&mut self, step: &Step, rule: &str, foreign: bool) -> Result<()> {
        let Some(held) = held_item(self.line, step, rule, foreign)? else { return Ok(()) };
        count_held(self.report, &held, false);
        self.plan.held.push(&held)
    }

    fn plan_id(&mut self) -> Result<String> {
        plan_id(&self.line.name, &mut self.plan)
    }
}

/// The id names what needs a decision: what is held, or the whole plan when nothing is.
pub fn plan_id(pipeline: &str, plan: &mut Plan) -> Result<String> {
    let mut id = PlanId::of(pipeline);
    for held in plan.held.read::<HeldItem>()? {
        id.add_held(&held?);
    }
    Ok(if id.is_empty() { plan.whole.finish() } else { id.finish() })
}

/// Steps looked at together: enough to keep bodies coming, few enough that those listings brought along stay few.
const WEIGHED_AT_ONCE: usize = 64;
