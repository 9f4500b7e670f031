//! What a person asks for, once for everybody who asks: the command line and the HTTP API call these functions and
//! only differ in how they show the answer. Every answer is the JSON of `--json`.
//!
//! Nothing here prints, parses arguments, or knows of HTTP.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::config::{self, Config};
use crate::error::{Error, Fault, Kind, Result};
use crate::pipeline::audit::{Audit, Budget};
use crate::pipeline::notify::Notifier;
use crate::pipeline::open::Memory;
use crate::pipeline::preview::Preview;
use crate::pipeline::{Ask, Pipeline, hold, start};
use crate::registry;
use crate::state::held::{Header, HeldItem};
use crate::state::journal::Change;
use crate::state::report::gravest;
use crate::state::{Report, State, Status, decode, keys};
use crate::store::Access;

pub mod follow;
pub mod look;
pub mod replicas;

/// What is shown of runs.
#[derive(Serialize)]
pub struct Runs {
    pub runs: Vec<Report>,
    /// Pipelines that could not even start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_started: Vec<NotStarted>,
}

impl Runs {
    pub fn of(runs: Vec<Report>) -> Self {
        Runs { runs, not_started: Vec::new() }
    }
}

#[derive(Serialize)]
pub struct NotStarted {
    pub pipeline: String,
    #[serde(flatten)]
    pub fault: Fault,
}

impl NotStarted {
    pub fn of(spec: &config::Pipeline, error: &Error) -> Self {
        NotStarted { pipeline: spec.name.clone(), fault: Fault::of(error) }
    }

    /// What to answer when none of several pipelines could start: the gravest reason.
    pub fn none_started(all: &[NotStarted]) -> Result<()> {
        let worst = gravest(all.iter().map(NotStarted::exit_code));
        let first = all.iter().find(|one| one.exit_code() == worst).or(all.first());
        first.map_or(Ok(()), |first| Err(Error::from(&first.fault)))
    }

    pub fn exit_code(&self) -> u8 {
        self.fault.kind.exit_code()
    }
}

#[derive(Default, Serialize)]
pub struct Plans {
    pub plans: Vec<Preview>,
    /// Pipelines of which nothing can be said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_started: Vec<NotStarted>,
}

impl Plans {
    pub fn of(plans: Vec<Preview>) -> Self {
        Plans { plans, not_started: Vec::new() }
    }
}

#[derive(Default, Serialize)]
pub struct Audits {
    pub audits: Vec<Audit>,
    /// Pipelines that could not be audited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_started: Vec<NotStarted>,
}

#[derive(Serialize)]
pub struct Held {
    pub held: Vec<Group>,
}

/// Held changes of one kind by one rule.
#[derive(Serialize)]
pub struct Group {
    pub plan: String,
    pub pipeline: String,
    pub change: Change,
    pub keys: Vec<String>,
    pub rule: String,
    pub since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
}

/// A pipeline by name, or the nearest name there is.
pub fn pipeline<'c>(config: &'c Config, name: &str) -> Result<&'c config::Pipeline> {
    config.pipelines.get(name).ok_or_else(|| {
        let names = config.pipelines.keys().map(String::as_str);
        let known: Vec<&str> = names.clone().collect();
        let hint = config::suggestion(name, names);
        Error::new(Kind::Config, format!("there is no pipeline {name}{hint}"))
            .remedy_is(format!("Pipelines in the config: {}.", known.join(", ")))
    })
}

/// The pipelines named, or every enabled one.
pub fn chosen<'c>(config: &'c Config, names: &[String]) -> Result<Vec<&'c config::Pipeline>> {
    if names.is_empty() {
        let enabled: Vec<_> = config.pipelines.values().filter(|pipeline| pipeline.enabled).collect();
        if enabled.is_empty() {
            let message = format!("{} has no pipeline to run", config.file.display());
            return Err(
                Error::new(Kind::Config, message).remedy_is("Add a `[pipelines.NAME]`; see docs/config.md.")
            );
        }
        return Ok(enabled);
    }
    names.iter().map(|name| pipeline(config, name)).collect()
}

/// One pass of a pipeline. Whoever is to be told of failures is told of one that could not start, too, and so is whoever
/// asks for runs and for how things stand.
pub async fn sync(spec: &config::Pipeline, memory: &Memory, ask: &Ask) -> Result<Report> {
    let ran = match registry::open(spec, memory, Access::Write).await {
        Ok(line) => line.run(ask).await,
        Err(error) => {
            // The error itself is the answer, whether or not it can be written down.
            drop(start::failed(memory, &spec.name, ask.trigger, &error).await);
            Err(error)
        }
    };
    if let (Err(error), Some(notifier)) = (&ran, Notifier::of(spec, memory)) {
        // The error itself is the answer; a message that cannot be sent waits in the queue.
        drop(notifier.not_started(error).await);
    }
    ran
}

/// What a pass would do.
pub async fn plan(spec: &config::Pipeline, memory: &Memory, ask: &Ask) -> Result<Preview> {
    registry::open(spec, memory, Access::Read).await?.preview(ask).await
}

/// Reports read together: few questions, and few reports read for nothing.
const RUNS_AT_ONCE: usize = 64;

/// The newest runs, newest first.
pub async fn runs(memory: &Memory, pipeline: Option<&str>, limit: usize) -> Result<Runs> {
    let state = &memory.state;
    let mut runs: Vec<Report> = Vec::new();
    // Run ids grow, so the newest are the last keys.
    let newest: Vec<String> = state.keys(keys::RUNS).await?.into_iter().rev().collect();
    for some in newest.chunks(RUNS_AT_ONCE) {
        let names: Vec<&str> = some.iter().map(String::as_str).collect();
        for (key, stored) in names.iter().zip(state.store().get(&names).await?) {
            let Some(stored) = stored else { continue };
            let report: Report = decode(key, &stored.value)?;
            if pipeline.is_none_or(|name| report.pipeline == name) {
                runs.push(as_it_stands(memory, report).await?);
            }
            if runs.len() >= limit {
                return Ok(Runs::of(runs));
            }
        }
    }
    Ok(Runs::of(runs))
}

/// One run.
pub async fn run(memory: &Memory, id: &str) -> Result<Report> {
    as_it_stands(memory, Pipeline::find_run(&memory.state, id).await?).await
}

/// A run that is marked as running although nobody holds the lock was cut off; the next start will write that down.
async fn as_it_stands(memory: &Memory, report: Report) -> Result<Report> {
    if report.status != Status::Running || memory.locks.is_taken(&report.pipeline).await {
        return Ok(report);
    }
    // It may have ended between the two looks.
    let mut report = memory.state.read::<Report>(&keys::run(&report.id)).await?.unwrap_or(report);
    if report.status == Status::Running {
        report.cut_off();
    }
    Ok(report)
}

/// What the guard holds back, by plan, change and rule.
pub async fn held(state: &State) -> Result<Held> {
    held_by(state, |_| true).await
}

/// What the guard holds back of one pipeline.
pub async fn held_of(state: &State, pipeline: &str) -> Result<Held> {
    held_by(state, |header| header.pipeline == pipeline).await
}

async fn held_by(state: &State, wanted: impl Fn(&Header) -> bool) -> Result<Held> {
    let mut held = Held { held: Vec::new() };
    for header in state.held_headers().await?.into_iter().filter(wanted) {
        held.held.extend(groups(&header, state.held_items(&header).await?));
    }
    Ok(held)
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

/// Apply what is held under a plan.
pub async fn approve(config: &Config, memory: &Memory, plan: &str, ask: Ask) -> Result<Report> {
    let (header, line) = held_line(config, memory, plan).await?;
    match &header.undo {
        Some(run) => line.undo(run, &ask, Some(&header)).await.map_err(|error| match error.kind() {
            Kind::NotFound => error.remedy_is(format!(
                "What it would put back is no longer kept; `trueup reject {}` drops it.",
                header.plan
            )),
            _ => error,
        }),
        None => line.approve(&header, ask).await,
    }
}

/// Drop what is held under a plan. Nobody need be there to do it.
pub async fn reject(config: &Config, memory: &Memory, plan: &str, ask: &Ask) -> Result<Report> {
    let header = memory.state.find_held(plan).await?;
    if !config.pipelines.contains_key(&header.pipeline) {
        return hold::let_go(memory, &header, ask.trigger).await;
    }
    let (header, line) = held_line(config, memory, plan).await?;
    line.reject(&header, ask).await
}

async fn held_line(config: &Config, memory: &Memory, plan: &str) -> Result<(Header, Pipeline)> {
    let header = memory.state.find_held(plan).await?;
    let spec = pipeline(config, &header.pipeline).map_err(|_| hold::no_such_pipeline(&header))?;
    let line = registry::open(spec, memory, Access::Write).await?;
    Ok((header, line))
}

/// The reverse of a run, itself a run.
pub async fn undo(config: &Config, memory: &Memory, run: &str, ask: &Ask) -> Result<Report> {
    undone_line(config, memory, run, Access::Write).await?.undo(run, ask, None).await
}

/// What undoing a run would do.
pub async fn preview_undo(config: &Config, memory: &Memory, run: &str) -> Result<Plans> {
    let line = undone_line(config, memory, run, Access::Read).await?;
    Ok(Plans::of(vec![line.preview_undo(run).await?]))
}

async fn undone_line(config: &Config, memory: &Memory, run: &str, access: Access) -> Result<Pipeline> {
    let done = Pipeline::find_run(&memory.state, run).await?;
    registry::open(pipeline(config, &done.pipeline)?, memory, access).await
}

/// Compare source, state and store of these pipelines; with an ask, repair. An error means that none could be audited.
pub async fn audit(
    specs: &[&config::Pipeline],
    memory: &Memory,
    budget: Budget,
    repair: impl Fn() -> Option<Ask>,
) -> Result<Audits> {
    let mut all = Audits::default();
    for spec in specs {
        let ask = repair();
        let access = if ask.is_some() { Access::Write } else { Access::Read };
        let audit = async { registry::open(spec, memory, access).await?.audit(budget, ask).await };
        match audit.await {
            Ok(audit) => all.audits.push(audit),
            Err(error) => all.not_started.push(NotStarted::of(spec, &error)),
        }
    }
    if all.audits.is_empty() {
        NotStarted::none_started(&all.not_started)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn of_several_reasons_not_to_start_the_gravest_is_told_whatever_their_order() {
        let not = |kind| NotStarted { pipeline: "p".into(), fault: Fault::of(&Error::new(kind, "no")) };
        for kinds in [[Kind::Unauthorized, Kind::Unavailable], [Kind::Unavailable, Kind::Unauthorized]] {
            let error = NotStarted::none_started(&kinds.map(not)).unwrap_err();
            assert_eq!(error.kind(), Kind::Unavailable);
        }
        assert!(NotStarted::none_started(&[]).is_ok());
    }
}
