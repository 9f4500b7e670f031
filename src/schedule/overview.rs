//! What is due, running, failing, held, at a glance.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Rhythm;
use super::pauses::Pause;
use super::slots::Memo;
use crate::clock::rfc3339_ms;
use crate::config::{self, Config};
use crate::error::{Error, Result};
use crate::pipeline::open::Memory;
use crate::state::{Report, State, Status, decode, keys};
use crate::store::Stored;

/// A slot that has not begun so long after its time is late: beyond any jitter, and a restart.
const LATE_AFTER: Duration = Duration::from_secs(120);

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
    /// The slot that should have been run by now.
    #[serde(skip)]
    pub late: Option<String>,
    #[serde(skip)]
    pub report: Option<Report>,
}

pub async fn all(config: &Config, memory: &Memory) -> Result<Overview> {
    let specs: Vec<&config::Pipeline> = config.pipelines.values().collect();
    Ok(Overview { pipelines: look(&specs, memory).await? })
}

pub async fn one(spec: &config::Pipeline, memory: &Memory) -> Result<One> {
    look(&[spec], memory).await?.pop().ok_or_else(|| Error::bug("a pipeline vanished"))
}

/// All at once: four questions to the state, however many pipelines there are.
async fn look(specs: &[&config::Pipeline], memory: &Memory) -> Result<Vec<One>> {
    let state = &memory.state;
    let lasts: Vec<Option<String>> =
        read_many(state, specs.iter().map(|spec| keys::last(&spec.name))).await?;
    let runs = lasts.iter().flatten().map(|run| keys::run(run));
    let mut reports = read_many::<Report>(state, runs).await?.into_iter();
    let paused: Vec<Option<Pause>> =
        read_many(state, specs.iter().map(|spec| keys::pause(&spec.name))).await?;
    let memos: Vec<Option<Memo>> = read_many(state, specs.iter().map(|spec| keys::slot(&spec.name))).await?;
    let mut all = Vec::with_capacity(specs.len());
    for (((spec, last), paused), memo) in specs.iter().zip(lasts).zip(paused).zip(memos) {
        let report = if last.is_some() { reports.next().flatten() } else { None };
        let mut one = put_together(spec, memory, last, report, paused)?;
        one.late = late(spec, memory, &one, memo)?;
        all.push(one);
    }
    Ok(all)
}

async fn read_many<T: DeserializeOwned>(
    state: &State,
    keys: impl Iterator<Item = String>,
) -> Result<Vec<Option<T>>> {
    let keys: Vec<String> = keys.collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let found = state.store().get(&names).await?;
    let read = |(key, stored): (&String, Option<Stored>)| {
        stored.map(|stored| decode(key, &stored.value)).transpose()
    };
    keys.iter().zip(found).map(read).collect()
}

fn put_together(
    spec: &config::Pipeline,
    memory: &Memory,
    last_run: Option<String>,
    report: Option<Report>,
    paused: Option<Pause>,
) -> Result<One> {
    let running = memory.locks.is_taken(&spec.name);
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
        status,
        last_run,
        finished: report.as_ref().and_then(|report| report.finished.clone()),
        held: counts.held,
        failed: counts.failed,
        unproven: counts.unproven,
        when: spec.when.clone(),
        tz: spec.tz.clone(),
        next: next(spec, memory)?.filter(|_| spec.enabled && paused.is_none()),
        paused: paused.map(|pause| pause.since),
        plan: report.as_ref().and_then(|report| report.plan.clone()).filter(|_| counts.held > 0),
        late: None,
        report,
    })
}

fn late(spec: &config::Pipeline, memory: &Memory, one: &One, memo: Option<Memo>) -> Result<Option<String>> {
    if one.running || one.paused.is_some() || !spec.enabled {
        return Ok(None);
    }
    let due = memo.zip(Rhythm::of(spec)?).and_then(|(memo, rhythm)| memo.due(&rhythm));
    let now = memory.clock.now();
    let is_late = |due: &Timestamp| due.checked_add(LATE_AFTER).is_ok_and(|until| until < now);
    Ok(due.filter(is_late).map(rfc3339_ms))
}

fn next(spec: &config::Pipeline, memory: &Memory) -> Result<Option<String>> {
    let rhythm = Rhythm::of(spec)?;
    Ok(rhythm.and_then(|rhythm| rhythm.next(memory.clock.now())).map(rfc3339_ms))
}
