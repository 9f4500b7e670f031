//! What a person decides about held changes: approve them, or reject them until the source changes.

use super::{Ask, Pipeline};
use crate::error::{Error, Kind, Result};
use crate::state::held::{Decision, Header, HeldItem, Verdict};
use crate::state::journal::Change;
use crate::state::{Report, item, keys};

impl Pipeline {
    /// Apply what is held under this plan. The source is read in full again, so absence is proven anew; what has
    /// changed since is not what was approved and is weighed like anything else.
    pub async fn approve(&self, header: &Header, mut ask: Ask) -> Result<Report> {
        ask.approved = self.state.held_items(header).await?;
        ask.full = true;
        self.run(&ask).await
    }

    /// Drop what is held; it stays dropped until the source's version changes. Foreign keys cannot be rejected away:
    /// they are somebody else's, and stay reported.
    pub async fn reject(&self, header: &Header, ask: &Ask) -> Result<Report> {
        let lock = self.locks.acquire(&self.name).await?;
        let line = self.under(&lock);
        let work = Box::pin(async {
            super::recover::recover(&line).await?;
            let mut report = line.begin(ask.trigger).await?;
            report.plan = Some(header.plan.clone());
            if let Err(error) = line.note_rejections(header, &report.id).await {
                report.fail(&error);
            }
            line.close(&mut report, None, None).await;
            Ok(report)
        });
        let outcome = lock.guard(work).await;
        lock.release().await;
        outcome
    }

    async fn note_rejections(&self, header: &Header, run: &str) -> Result<()> {
        let held = self.state.held_items(header).await?;
        if header.undo.is_none() {
            // A stranger's key may become free: the record it stood in the way of must not have been dropped by then.
            let ours = held.iter().filter(|held| !(held.foreign && held.change == Change::Add));
            let decisions = ours.map(|held: &HeldItem| {
                let decision =
                    Decision { verdict: Verdict::Rejected, stamp: held.stamp, run: run.to_owned() };
                item(keys::decision(&self.name, &held.identity), &decision)
            });
            self.state.commit_in_parts(decisions.collect::<Result<_>>()?).await?;
        }
        self.state.nothing_held(&self.name, header.slot()).await
    }
}

/// The pipeline a held plan belongs to must still be in the config.
pub fn no_such_pipeline(header: &Header) -> Error {
    Error::new(
        Kind::Config,
        format!("the plan {} belongs to {}, which is not in the config", header.plan, header.pipeline),
    )
}
