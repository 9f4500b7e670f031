//! `trueup held`, `approve` and `reject`: what a person decides.

use clap::Args;

use super::desk::Desk;
use super::output::{Color, count, named};
use super::sync::show_one;
use crate::error::Result;
use crate::operations::{self, Group};
use crate::store::Access;

pub async fn held(desk: &Desk) -> Result<u8> {
    let config = desk.config()?;
    let state = desk.memory(&config, Access::Read).await?.state;
    let held = operations::held(&state).await?;
    desk.out.result(&held, || {
        if held.held.is_empty() {
            return "Nothing is held.".into();
        }
        held.held.iter().map(|group| text(desk, group)).collect()
    });
    Ok(0)
}

fn text(desk: &Desk, group: &Group) -> String {
    const SHOWN: usize = 20;
    let out = &desk.out;
    let many = count(group.keys.len() as u64, group.change.name());
    let mut text = format!(
        "{} {}: {many} held since {} ({})\n",
        out.paint(Color::Bold, &group.plan),
        group.pipeline,
        group.since,
        group.rule
    );
    for key in group.keys.iter().take(SHOWN) {
        text.push_str(&format!("    {}\n", named(key)));
    }
    if group.keys.len() > SHOWN {
        text.push_str(&format!("    … and {} more\n", group.keys.len() - SHOWN));
    }
    if group.rule.starts_with("foreign") {
        text.push_str("  `trueup adopt KEY` takes a foreign key over.\n");
    } else {
        text.push_str(&format!(
            "  `trueup approve {0}` applies, `trueup reject {0}` drops it.\n",
            group.plan
        ));
    }
    text
}

#[derive(Args)]
pub struct Approve {
    /// The plan, as `trueup held` and the run report name it
    #[arg(value_name = "PLAN_ID")]
    pub plan: String,
}

impl Approve {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let memory = desk.memory(&config, Access::Write).await?;
        let report = operations::approve(&config, &memory, &self.plan, desk.ask("approve")).await?;
        Ok(show_one(&desk.out, report))
    }
}

#[derive(Args)]
pub struct Reject {
    /// The plan, as `trueup held` and the run report name it
    #[arg(value_name = "PLAN_ID")]
    plan: String,
}

impl Reject {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let memory = desk.memory(&config, Access::Write).await?;
        let report = operations::reject(&config, &memory, &self.plan, &desk.ask("reject")).await?;
        Ok(show_one(&desk.out, report))
    }
}
