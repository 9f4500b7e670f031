//! `trueup status`: what is due, running, failing, held, at a glance.

use super::desk::Desk;
use super::output::{Color, Output, table};
use crate::error::Result;
use crate::schedule::overview::{self, Overview};
use crate::store::Access;

pub async fn run(desk: &Desk) -> Result<u8> {
    let config = desk.config()?;
    let memory = desk.memory(&config, Access::Read).await?;
    let overview = overview::all(&config, &memory).await?;
    desk.out.result(&overview, || text(&desk.out, &overview));
    Ok(0)
}

fn text(out: &Output, overview: &Overview) -> String {
    if overview.pipelines.is_empty() {
        return "No pipelines. Add a `[pipelines.NAME]`; see docs/config.md.".into();
    }
    let head = ["PIPELINE", "STATUS", "LAST RUN", "HELD", "FAILED", "UNPROVEN", "DEAD", "WHEN", "NEXT"];
    let mut rows: Vec<Vec<String>> = vec![head.iter().map(ToString::to_string).collect()];
    for one in &overview.pipelines {
        let status = if one.running { "running" } else { one.status };
        let status = if one.enabled { status.to_owned() } else { format!("{status} (disabled)") };
        rows.push(vec![
            one.pipeline.clone(),
            status,
            one.finished.clone().unwrap_or_else(|| "-".into()),
            one.held.to_string(),
            one.failed.to_string(),
            one.unproven.to_string(),
            one.dead.to_string(),
            one.when.clone().unwrap_or_else(|| "-".into()),
            one.next.clone().unwrap_or_else(|| if one.paused.is_some() { "paused" } else { "-" }.into()),
        ]);
    }
    let mut text = table(&rows);
    for one in &overview.pipelines {
        if let Some(holder) = &one.holder {
            text.push_str(&format!("{} is run by {holder}\n", one.pipeline));
        }
        if let Some(plan) = &one.plan {
            let hint = format!("{} is waiting for you: `trueup held`, `trueup approve {plan}`", one.pipeline);
            text.push_str(&format!("{}\n", out.paint(Color::Yellow, &hint)));
        }
        if one.dead > 0 {
            let hint = format!("{} gave up on {}: `trueup dead ls`", one.pipeline, one.dead);
            text.push_str(&format!("{}\n", out.paint(Color::Yellow, &hint)));
        }
    }
    for left in &overview.left_behind {
        text.push_str(&format!("{}\n", out.paint(Color::Yellow, &left.told())));
    }
    text
}
