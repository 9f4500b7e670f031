//! `trueup runs`: the history, newest first.

use clap::Args;

use super::desk::Desk;
use super::output::table;
use crate::error::Result;
use crate::operations;
use crate::state::Report;
use crate::store::Access;

#[derive(Args)]
pub struct Runs {
    /// Only runs of this pipeline
    #[arg(long, value_name = "P")]
    pipeline: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

impl Runs {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let memory = desk.memory(&config, Access::Read).await?;
        let shown = operations::runs(&memory, self.pipeline.as_deref(), self.limit).await?;
        // One that left the config may still have a history.
        if let (Some(name), true) = (&self.pipeline, shown.runs.is_empty()) {
            operations::pipeline(&config, name)?;
        }
        desk.out.result(&shown, || text(&shown.runs));
        Ok(0)
    }
}

fn text(runs: &[Report]) -> String {
    if runs.is_empty() {
        return "No runs yet. `trueup sync` makes one.".into();
    }
    let head =
        ["RUN", "PIPELINE", "STARTED", "TRIGGER", "STATUS", "ADDED", "UPDATED", "DELETED", "HELD", "FAILED"];
    let mut rows = vec![head.iter().map(ToString::to_string).collect()];
    for run in runs {
        let counts = &run.counts;
        let status = if run.interrupted { "interrupted" } else { run.status.name() };
        let mut row = vec![
            run.id.clone(),
            run.pipeline.clone(),
            run.started.clone(),
            run.trigger.clone(),
            status.into(),
        ];
        row.extend(
            [counts.added, counts.updated, counts.deleted, counts.held, counts.failed].map(|n| n.to_string()),
        );
        rows.push(row);
    }
    table(&rows)
}
