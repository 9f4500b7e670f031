//! `trueup status`: what is running, failing, held, at a glance.

use serde::Serialize;

use super::desk::Desk;
use super::output::{Color, Output, table};
use crate::config::{self, Config};
use crate::error::Result;
use crate::pipeline::open::Memory;
use crate::state::lease::Holder;
use crate::state::{Report, Status, keys};
use crate::store::Access;

#[derive(Serialize)]
struct Overview {
    pipelines: Vec<One>,
}

#[derive(Serialize)]
struct One {
    pipeline: String,
    enabled: bool,
    running: bool,
    /// Who runs it, where the state is shared by machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
    /// `never` until the first run.
    status: &'static str,
    last_run: Option<String>,
    finished: Option<String>,
    held: u64,
    failed: u64,
    unproven: u64,
    when: Option<String>,
    plan: Option<String>,
}

pub async fn run(desk: &Desk) -> Result<u8> {
    let config = desk.config()?;
    let memory = desk.memory(&config, Access::Read).await?;
    let overview = overview(&config, &memory).await?;
    desk.out.result(&overview, || text(&desk.out, &overview));
    Ok(0)
}

async fn overview(config: &Config, memory: &Memory) -> Result<Overview> {
    let mut pipelines = Vec::new();
    for spec in config.pipelines.values() {
        pipelines.push(one(spec, memory).await?);
    }
    Ok(Overview { pipelines })
}

async fn one(spec: &config::Pipeline, memory: &Memory) -> Result<One> {
    let state = &memory.state;
    let last: Option<String> = state.read(&keys::last(&spec.name)).await?;
    let report: Option<Report> = match &last {
        Some(run) => state.read(&keys::run(run)).await?,
        None => None,
    };
    let holder = memory.locks.holder(&spec.name).await?;
    let running = holder.is_some() || (memory.locks.are_local() && memory.locks.is_taken(&spec.name).await);
    let status = match &report {
        None => "never",
        // Marked as running, but nobody holds the lock: the next start will settle it.
        Some(report) if report.status == Status::Running && !running => "interrupted",
        Some(report) => report.status.name(),
    };
    let counts = report.as_ref().map(|report| report.counts.clone()).unwrap_or_default();
    Ok(One {
        pipeline: spec.name.clone(),
        enabled: spec.enabled,
        running,
        holder,
        status,
        last_run: last,
        finished: report.as_ref().and_then(|report| report.finished.clone()),
        held: counts.held,
        failed: counts.failed,
        unproven: counts.unproven,
        when: spec.when.clone(),
        plan: report.and_then(|report| report.plan).filter(|_| counts.held > 0),
    })
}

fn text(out: &Output, overview: &Overview) -> String {
    if overview.pipelines.is_empty() {
        return "No pipelines. Add a `[pipelines.NAME]`; see docs/config.md.".into();
    }
    let head = ["PIPELINE", "STATUS", "LAST RUN", "HELD", "FAILED", "UNPROVEN", "WHEN"];
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
            one.when.clone().unwrap_or_else(|| "-".into()),
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
    }
    text
}
