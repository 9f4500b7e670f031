//! `plan`: everything a pass would decide, nothing of what it would write.

use std::collections::HashSet;

use serde::Serialize;

use super::plan::{Action, Seen, Step};
use super::weigh::strayed;
use super::{Ask, Pipeline, cursors, decide, finish, past, read, render, stock};
use crate::error::{Error, Result};
use crate::shape::{Existing, Rendered};
use crate::source::Cursors;
use crate::state::Report;
use crate::state::held::HeldItem;
use crate::state::journal::Change;
use crate::store::StoreExt;

#[derive(Debug, Default, Serialize)]
pub struct Preview {
    pub id: String,
    pub pipeline: String,
    pub add: Vec<Keyed>,
    pub update: Vec<Update>,
    pub delete: Vec<Keyed>,
    pub held: Vec<Held>,
    pub unproven: Vec<Unproven>,
    pub failed: Vec<crate::error::Fault>,
    pub unchanged: u64,
    /// Left out of the store: too old, rejected, shadowed.
    #[serde(skip_serializing_if = "super::audit::is_zero")]
    pub skipped: u64,
    pub requests: Requests,
    pub writes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Keyed {
    pub key: String,
}

#[derive(Debug, Serialize)]
pub struct Update {
    pub key: String,
    pub why: &'static str,
    /// A unified diff, where both sides are text and at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Held {
    pub key: String,
    pub change: Change,
    pub rule: String,
}

#[derive(Debug, Serialize)]
pub struct Unproven {
    pub scope: String,
    pub error: String,
}

#[derive(Debug, Default, Serialize)]
pub struct Requests {
    pub made: u64,
    pub to_come: u64,
}

impl Pipeline {
    /// What a pass would do now. An error means that it cannot be said, which is not the same as "nothing".
    pub async fn preview(&self, ask: &Ask) -> Result<Preview> {
        let mut report = Report::start(String::new(), &self.name, ask.trigger, String::new());
        let informed = stock::inform(self, ask.full, false).await?;
        if let Some(preview) = informed.line.preview_informed(ask, &informed, &mut report).await? {
            return Ok(preview);
        }
        let mut report = Report::start(String::new(), &self.name, ask.trigger, String::new());
        let informed = stock::inform(self, true, false).await?;
        let preview = informed.line.preview_informed(ask, &informed, &mut report).await?;
        preview.ok_or_else(|| Error::bug("stock was taken, and older rows were met again"))
    }

    /// `None` = rows of an older layout were met: stock must be taken first.
    async fn preview_informed(
        &self,
        ask: &Ask,
        informed: &stock::Informed<'_>,
        report: &mut Report,
    ) -> Result<Option<Preview>> {
        let past = past::past(self, ask, informed).await?;
        let cursors = if informed.afresh { Cursors::new() } else { cursors::load(self).await? };
        let reading = read::read(self, ask, &cursors, &past, None, report).await?;
        if reading.met_older && !informed.afresh {
            return Ok(None);
        }
        if reading.scopes.all_broken() && report.counts.scanned == 0 {
            return Err(finish::nothing_could_be_read(&reading.scopes));
        }
        let mut plan = decide::decide(self, ask, &past, reading, report).await?;
        let mut preview = Preview { id: plan.id.clone(), pipeline: self.name.clone(), ..Preview::default() };
        for (scope, fault) in plan.scopes.broken() {
            preview.unproven.push(Unproven { scope: scope.to_owned(), error: fault.message.clone() });
        }
        for held in plan.held.read::<HeldItem>()? {
            let held = held?;
            preview.held.push(Held { key: held.key, change: held.change, rule: held.rule });
        }
        // What an undo could not do waits as well.
        for header in self.state.held_of(&self.name).await?.iter().filter(|header| header.undo.is_some()) {
            for held in self.state.held_items(header).await? {
                preview.held.push(Held { key: held.key, change: held.change, rule: held.rule });
            }
        }
        let adopted = self.adopted(&mut plan).await?;
        for step in plan.steps.read::<Step>()? {
            self.show(&step?, &adopted, &mut preview).await?;
        }
        preview.failed =
            std::mem::take(&mut report.errors).into_iter().filter(|fault| fault.scope.is_none()).collect();
        preview.warnings = std::mem::take(&mut report.warnings);
        preview.unchanged += report.counts.unchanged;
        preview.skipped = report.counts.skipped;
        preview.requests.made = self.source.requests();
        Ok(Some(preview))
    }

    fn shown_key(&self, step: &Step) -> Result<String> {
        let named = || step.entry.as_ref().and_then(|entry| self.shape.key(entry));
        let new = step.base.is_none().then(named).flatten();
        new.map_or_else(|| step.key(self.shape.key_prefix()), Ok)
    }

    /// New keys under which the store has something that no listing shows: it is taken over, which is no addition.
    async fn adopted(&self, plan: &mut decide::Plan) -> Result<HashSet<String>> {
        let mut adopted = HashSet::new();
        if plan.adds == 0 || !self.store.any_unlisted().await? {
            return Ok(adopted);
        }
        let is_new = |step: &Step| step.seen == Seen::Nothing && step.base.is_none() && step.entry.is_some();
        let mut steps = plan.steps.read::<Step>()?.peekable();
        while steps.peek().is_some() {
            let some = steps.by_ref().take(LOOKED_UP_TOGETHER).collect::<Result<Vec<Step>>>()?;
            let new = some.iter().filter(|step| is_new(step));
            let keys: Vec<String> = new.map(|step| self.shown_key(step)).collect::<Result<_>>()?;
            let names: Vec<&str> = keys.iter().map(String::as_str).collect();
            let stored = self.store.unlisted(&names).await?;
            adopted.extend(keys.into_iter().zip(stored).filter_map(|(key, stored)| stored.map(|_| key)));
        }
        Ok(adopted)
    }

    async fn show(&self, step: &Step, adopted: &HashSet<String>, preview: &mut Preview) -> Result<()> {
        let key = self.shown_key(step)?;
        let found = if adopted.contains(&key) { Some(Found::Other) } else { self.finds(step, &key).await? };
        let nothing_to_write =
            step.action == Action::Restamp || found == Some(Found::Same) || is_gone_already(step);
        preview.writes += u64::from(!nothing_to_write);
        match step.action {
            Action::Restamp => preview.unchanged += 1,
            Action::Change(Change::Delete, _) => preview.delete.push(Keyed { key }),
            Action::Change(..) if found == Some(Found::Same) => preview.unchanged += 1,
            Action::Change(Change::Add, _) if found.is_none() => {
                preview.requests.to_come += u64::from(self.source.remote());
                preview.add.push(Keyed { key });
            }
            Action::Change(_, why) => {
                preview.requests.to_come += u64::from(self.source.remote());
                let shown = preview.update.len() < DIFFS_MAX && !self.source.remote();
                let diff = if shown { super::diff::of(self, step, &key).await? } else { None };
                preview.update.push(Update { key, why: why.name(), diff });
            }
        }
        Ok(())
    }
}

/// What a key holds that is to be written.
#[derive(PartialEq, Eq)]
enum Found {
    Same,
    Other,
}

impl Pipeline {
    /// What is there already of something that is not known to be ours: the same is taken over as it is.
    async fn finds(&self, step: &Step, key: &str) -> Result<Option<Found>> {
        let is_news = step.base.is_none() || strayed(step);
        if step.entry.is_none() || !is_news || self.source.remote() || !matches!(step.seen, Seen::At(_)) {
            return Ok(None);
        }
        let Some(stored) = self.store.get_one(key).await? else { return Ok(None) };
        Ok(match render::render(self, step).await.map(|drawn| drawn.rendered) {
            Ok(Rendered::Put(output)) if output.value == stored.value => Some(Found::Same),
            Ok(Rendered::Put(_)) if step.base.is_none() && self.shape.existing() == Existing::Skip => {
                Some(Found::Same)
            }
            Ok(Rendered::Put(_)) => Some(Found::Other),
            _ => None,
        })
    }
}

/// The store lost it before us.
fn is_gone_already(step: &Step) -> bool {
    matches!(step.action, Action::Change(Change::Delete, _)) && step.seen == Seen::Nothing
}

/// New keys that are looked up in one go.
const LOOKED_UP_TOGETHER: usize = 1_000;
/// Diffs shown in one plan: enough to judge, not a second copy of the data.
const DIFFS_MAX: usize = 100;
