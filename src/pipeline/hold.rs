//! What a person decides about held changes: approve them, or reject them until the source changes.

use std::collections::HashMap;

use super::open::Memory;
use super::plan::Step;
use super::{Ask, Pipeline, finish, start};
use crate::error::{Error, Kind, Result};
use crate::state::held::{Decision, Header, HeldItem, Verdict};
use crate::state::journal::Change;
use crate::state::{Report, State, item, keys};

impl Pipeline {
    /// Apply what is held under this plan. The source is read in full again, so absence is proven anew; what has
    /// changed since is not what was approved and is weighed like anything else.
    pub async fn approve(&self, header: &Header, mut ask: Ask) -> Result<Report> {
        ask.approved = self.state.held_items(header).await?;
        ask.full = true;
        self.run(&ask).await
    }

    /// Drop what is held; it stays dropped until the source's version changes. Foreign keys cannot be rejected away:
    /// they are somebody else's, and stay held.
    pub async fn reject(&self, header: &Header, ask: &Ask) -> Result<Report> {
        let lock = self.locks.acquire(&self.name).await?;
        let line = self.under(&lock);
        let work = Box::pin(async {
            super::recover::recover(&line).await?;
            let mut report = line.begin(ask.trigger).await?;
            report.plan = Some(header.plan.clone());
            if let Err(error) = line.note_rejections(header, &mut report).await {
                report.fail(&error);
            }
            line.close(&mut report, None, None).await;
            Ok(report)
        });
        let outcome = lock.guard(work).await;
        lock.release().await;
        outcome
    }

    async fn note_rejections(&self, header: &Header, report: &mut Report) -> Result<()> {
        if header.undo.is_some() {
            return self.state.nothing_held(&self.name, header.slot()).await;
        }
        // A stranger's key may become free: the record it stood in the way of must not have been dropped by then.
        let held = self.state.held_items(header).await?;
        let (kept, dropped): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|held| held.foreign && held.change == Change::Add);
        let decisions = dropped.iter().map(|held| {
            let decision = Decision { verdict: Verdict::Rejected, stamp: held.stamp, run: report.id.clone() };
            item(keys::decision(&self.name, &held.identity), &decision)
        });
        self.state.commit_in_parts(decisions.collect::<Result<_>>()?).await?;
        for held in &kept {
            count_held(report, held, true);
        }
        finish::hold(self, kept, report).await
    }
}

/// The pipeline a held plan belongs to must still be in the config.
pub fn no_such_pipeline(header: &Header) -> Error {
    let Header { plan, pipeline, .. } = header;
    Error::new(Kind::Config, format!("the plan {plan} belongs to {pipeline}, which is not in the config"))
        .remedy_is(format!("Put the pipeline back, or drop the plan: `trueup reject {plan}`."))
}

/// Drop what is held of a pipeline that is no longer in the config.
pub async fn let_go(memory: &Memory, header: &Header, trigger: &str) -> Result<Report> {
    let dropped = async |state: &State, report: &mut Report| {
        report.plan = Some(header.plan.clone());
        state.nothing_held(&header.pipeline, header.slot()).await
    };
    start::noted(memory, &header.pipeline, trigger, dropped).await
}

/// A person approved this very change.
pub(super) fn is_approved(approved: &HashMap<String, HeldItem>, step: &Step) -> bool {
    let held = approved.get(&step.identity);
    held.is_some_and(|held| Some(held.change) == step.change() && held.stamp == step.mark() && !held.foreign)
}

/// A held step as state keeps it.
pub fn held_item(line: &Pipeline, step: &Step, rule: &str, foreign: bool) -> Result<Option<HeldItem>> {
    let Some(change) = step.change() else { return Ok(None) };
    Ok(Some(HeldItem {
        identity: step.identity.clone(),
        key: step.key(line.shape.key_prefix())?,
        change,
        rule: rule.to_owned(),
        scope: step.scope.to_string(),
        stamp: step.mark(),
        foreign,
    }))
}

/// Count a held item; one that is absent, or whose scope was not read, was not scanned and brings its own scan along.
pub fn count_held(report: &mut Report, held: &HeldItem, unread: bool) {
    report.count(&held.scope, |counts| {
        counts.held += 1;
        match held.change {
            Change::Add => counts.held_by.add += 1,
            Change::Update => counts.held_by.update += 1,
            Change::Delete => counts.held_by.delete += 1,
        }
        if (unread || held.stamp.is_none()) && held.change != Change::Delete {
            counts.scanned += 1;
        }
    });
}
