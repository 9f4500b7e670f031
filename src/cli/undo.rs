//! `trueup undo`: the reverse of a run, itself a run.

use clap::Args;

use super::desk::Desk;
use super::sync::show_one;
use crate::error::Result;
use crate::operations;
use crate::store::Access;

#[derive(Args)]
pub struct Undo {
    /// The run, as `trueup runs` names it
    #[arg(value_name = "RUN_ID")]
    run: String,
    /// Show what would be undone; writes nothing
    #[arg(long)]
    dry_run: bool,
}

impl Undo {
    pub fn of(run: String) -> Self {
        Undo { run, dry_run: false }
    }

    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let access = if self.dry_run { Access::Read } else { Access::Write };
        let memory = desk.memory(&config, access).await?;
        if self.dry_run {
            super::plan::show(&desk.out, &operations::preview_undo(&config, &memory, &self.run).await?);
            return Ok(0);
        }
        let report = operations::undo(&config, &memory, &self.run, &desk.ask("undo")).await?;
        Ok(show_one(&desk.out, report))
    }
}
