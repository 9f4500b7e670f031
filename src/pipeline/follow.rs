//! What comes after a pass: follow-up work, old and new.

use std::collections::HashSet;

use super::{Ask, Pipeline};
use crate::error::{Error, Kind, Result};
use crate::queue;
use crate::state::{Report, keys};
use crate::store::Item;

impl Pipeline {
    /// One attempt at every open piece of follow-up work, old or new.
    pub(super) async fn follow_up(&self, ask: &Ask, report: &mut Report) {
        if let Err(error) = self.left_over(report).await {
            report.fail(&error.while_("following up"));
        }
        if report.cause == Some(Kind::Canceled) {
            return;
        }
        if let Err(error) = self.take_up(ask, report).await {
            report.fail(&error.while_("following up"));
        }
        if self.then.is_empty() {
            return;
        }
        ask.progress.step(&self.name, "following up", None);
        let worker = queue::Worker { stop: ask.stop.flag(), ..self.worker() };
        match if ask.waits { worker.due().await } else { worker.once().await } {
            Ok(summary) => {
                report.dead += summary.dead;
                for fault in summary.paused {
                    report.warn(format!(
                        "follow-up {} waits: {}",
                        fault.scope.unwrap_or_default(),
                        fault.message
                    ));
                }
                let waiting = summary.failed.saturating_sub(summary.dead);
                if waiting > 0 {
                    report.warn(format!("{waiting} follow-ups failed; `trueup queue ls` shows them"));
                }
                if summary.dead > 0 {
                    let given_up = summary.dead;
                    report.warn(format!("{given_up} follow-ups were given up; `trueup dead ls` shows them"));
                }
                // What else went wrong says more about the run.
                if summary.stopped && report.cause.is_none() {
                    report.fail(&stopped());
                }
            }
            Err(error) => report.fail(&error.while_("following up")),
        }
        // Documents that are no longer kept were asked for at the source.
        report.requests = self.source.requests();
        if let Err(error) = self.forget_bodies().await {
            report.fail(&error.while_("following up"));
        }
    }

    /// Work that no change of this run called for.
    async fn take_up(&self, ask: &Ask, report: &Report) -> Result<()> {
        if let Some(records) = &self.records {
            records.resume(self, &report.id).await?;
        }
        self.export_again(ask, report).await
    }

    /// Work that waits for a follow-up the config no longer names is never dropped silently: the follow-up may only
    /// have moved.
    async fn left_over(&self, report: &mut Report) -> Result<()> {
        let messages = self.notifier.as_ref().map(|notifier| notifier.follow_up().name);
        let known: Vec<String> = self.follow_ups().into_iter().chain(messages).collect();
        for name in queue::names(&self.state, &self.name).await? {
            if !known.contains(&name) {
                report.warn(format!(
                    "work waits for {name}, which the config no longer names; `trueup queue ls` shows it, \
                     `trueup queue done KEY --then {name}` ends it"
                ));
            }
        }
        Ok(())
    }

    /// Documents whose exports are done, or were given up for good, wait no longer.
    async fn forget_bodies(&self) -> Result<()> {
        if !self.keeps_bodies() {
            return Ok(());
        }
        let mut needed = HashSet::new();
        for then in &self.then {
            for place in [keys::queue(&self.name, &then.name), keys::dead(&self.name, &then.name, "")] {
                let waiting = self.state.keys(&place).await?;
                needed.extend(waiting.iter().map(|key| keys::below(&place, key).to_owned()));
            }
        }
        let prefix = keys::bodies(&self.name);
        let waiting = self.state.keys(&prefix).await?.into_iter();
        let gone =
            waiting.filter(|key| !needed.contains(keys::below(&prefix, key))).map(Item::delete).collect();
        self.state.commit_in_parts(gone).await
    }

    pub fn worker(&self) -> queue::Worker {
        queue::Worker {
            pipeline: self.name.clone(),
            state: self.state.clone(),
            locks: self.locks.clone(),
            clock: self.clock.clone(),
            store: self.store.clone(),
            shape: self.shape.clone(),
            source: Some(self.source.clone()),
            then: self.then.clone(),
            stop: std::sync::Arc::default(),
        }
    }
}

/// A person asked to stop while follow-up work was left.
fn stopped() -> Error {
    Error::new(Kind::Canceled, "stopped by request before all follow-up work was begun")
        .remedy_is("The rest waits in the queue; the next run, or `trueup queue work`, goes on with it.")
}
