//! `trueup held`, `approve` and `reject`: what a person decides.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;

use super::desk::{self, Desk};
use super::output::{Color, count};
use super::sync::show_one;
use crate::error::Result;
use crate::pipeline::hold;
use crate::state::held::{Header, HeldItem};
use crate::state::journal::Change;
use crate::store::Access;

#[derive(Serialize)]
struct Held {
    held: Vec<Group>,
}

/// Held changes of one kind by one rule.
#[derive(Serialize)]
struct Group {
    plan: String,
    pipeline: String,
    change: Change,
    keys: Vec<String>,
    rule: String,
    since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    undoes: Option<String>,
}

pub async fn held(desk: &Desk) -> Result<u8> {
    let config = desk.config()?;
    let state = desk.memory(&config, Access::Read).await?.state;
    let mut held = Held { held: Vec::new() };
    for header in state.held_headers().await? {
        held.held.extend(groups(&header, state.held_items(&header).await?));
    }
    desk.out.result(&held, || {
        if held.held.is_empty() {
            return "Nothing is held.".into();
        }
        held.held.iter().map(|group| text(desk, group)).collect()
    });
    Ok(0)
}

fn groups(header: &Header, items: Vec<HeldItem>) -> Vec<Group> {
    let mut by_rule: BTreeMap<(&'static str, String), Group> = BTreeMap::new();
    for item in items {
        let group = by_rule.entry((item.change.name(), item.rule.clone())).or_insert_with(|| Group {
            plan: header.plan.clone(),
            pipeline: header.pipeline.clone(),
            change: item.change,
            keys: Vec::new(),
            rule: item.rule.clone(),
            since: header.since.clone(),
            undoes: header.undo.clone(),
        });
        group.keys.push(item.key);
    }
    by_rule.into_values().collect()
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
        text.push_str(&format!("    {key}\n"));
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
        let header = memory.state.find_held(&self.plan).await?;
        let spec = desk::pipeline(&config, &header.pipeline).map_err(|_| hold::no_such_pipeline(&header))?;
        let line = desk.open(spec, &memory, Access::Write).await?;
        let ask = desk.ask("approve");
        let report = match &header.undo {
            Some(run) => line.undo(run, &ask, true).await?,
            None => line.approve(&header, ask).await?,
        };
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
        let header = memory.state.find_held(&self.plan).await?;
        let spec = desk::pipeline(&config, &header.pipeline).map_err(|_| hold::no_such_pipeline(&header))?;
        let line = desk.open(spec, &memory, Access::Write).await?;
        let report = line.reject(&header, &desk.ask("reject")).await?;
        Ok(show_one(&desk.out, report))
    }
}
