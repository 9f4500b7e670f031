//! What is due, running, failing, held, at a glance.

use serde::Serialize;

use super::{Rhythm, pauses};
use crate::clock::rfc3339_ms;
use crate::config::{self, Config};
use crate::error::Result;
use crate::pipeline::open::Memory;
use crate::state::{Report, Status, keys};

#[derive(Debug, Clone, Serialize)]
pub struct Overview {
    pub pipelines: Vec<One>,
}

#[derive(Debug, Clone, Serialize)]
pub struct One {
    pub pipeline: String,
    pub enabled: bool,
    pub running: bool,
    /// `never` until the first run.
    pub status: &'static str,
    pub last_run: Option<String>,
    pub finished: Option<String>,
    pub held: u64,
    pub failed: u64,
    pub unproven: u64,
    pub when: Option<String>,
    pub tz: String,
    /// The next slot; none while it is paused or disabled.
    pub next: Option<String>,
    /// Since when a person has paused it.
    pub paused: Option<String>,
    pub plan: Option<String>,
}

pub async fn all(config: &Config, memory: &Memory) -> Result<Overview> {
    let mut pipelines = Vec::new();
    for spec in config.pipelines.values() {
        pipelines.push(one(spec, memory).await?);
    }
    Ok(Overview { pipelines })
}

pub async fn one(spec: &config::Pipeline, memory: &Memory) -> Result<One> {
    let state = &memory.state;
    let last: Option<String> = state.read(&keys::last(&spec.name)).await?;
    let report: Option<Report> = match &last {
        Some(run) => state.read(&keys::run(run)).await?,
        None => None,
    };
    let running = memory.locks.is_taken(&spec.name);
    let status = match &report {
        None => "never",
        // Marked as running, but nobody holds the lock: the next start will settle it.
        Some(report) if report.status == Status::Running && !running => "interrupted",
        Some(report) => report.status.name(),
    };
    let counts = report.as_ref().map(|report| report.counts.clone()).unwrap_or_default();
    let paused = pauses::of(state, &spec.name).await?.map(|pause| pause.since);
    Ok(One {
        pipeline: spec.name.clone(),
        enabled: spec.enabled,
        running,
        status,
        last_run: last,
        finished: report.as_ref().and_then(|report| report.finished.clone()),
        held: counts.held,
        failed: counts.failed,
        unproven: counts.unproven,
        when: spec.when.clone(),
        tz: spec.tz.clone(),
        next: next(spec, memory)?.filter(|_| spec.enabled && paused.is_none()),
        paused,
        plan: report.and_then(|report| report.plan).filter(|_| counts.held > 0),
    })
}

fn next(spec: &config::Pipeline, memory: &Memory) -> Result<Option<String>> {
    let rhythm = Rhythm::of(spec)?;
    Ok(rhythm.and_then(|rhythm| rhythm.next(memory.clock.now())).map(rfc3339_ms))
}
