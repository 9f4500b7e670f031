//! Follow-up work and dead letters: what waits, and what a person does about it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};

use super::chosen;
use crate::config::{Config, ShapeSpec};
use crate::error::{Error, Kind, Result};
use crate::pipeline::notify::Notifier;
use crate::pipeline::open::Memory;
use crate::pipeline::{Ask, Stop, failing};
use crate::queue::dead::{self, Letter};
use crate::queue::{self, Placed, Summary, Task};
use crate::registry;
use crate::state::State;
use crate::store::Access;

/// Which dead letters are meant.
#[derive(Debug, Clone, Default)]
pub struct Which {
    pub keys: Vec<String>,
    pub all: bool,
}

#[derive(Debug, Serialize)]
pub struct Retried {
    pub retried: usize,
    pub done: u64,
    pub failed: u64,
    #[serde(skip)]
    pub waits: bool,
    /// A person asked to stop, and some were not begun.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

/// A task as it is shown.
pub fn task(one: &Placed<Task>) -> Value {
    let task = &one.what;
    json!({
        "key": task.key,
        "pipeline": one.pipeline,
        "then": one.then,
        "state": task.state(),
        "attempts": task.attempts,
        "error": task.error.as_ref().map(|fault| &fault.message),
        "change": task.change,
        "created": task.created,
        "token": task.fence,
    })
}

/// A dead letter as it is listed.
pub fn letter(letter: &Placed<Letter>) -> Value {
    let Letter { task, cause, since } = &letter.what;
    json!({
        "key": task.key,
        "pipeline": letter.pipeline,
        "then": letter.then,
        "kind": cause.kind,
        "message": cause.message,
        "remedy": cause.remedy,
        "attempts": task.attempts,
        "since": since,
    })
}

/// Everything about a dead letter.
pub fn whole_letter(placed: &Placed<Letter>) -> Value {
    let mut value = letter(placed);
    let task = &placed.what.task;
    value["change"] = json!(task.change);
    value["sha256"] = json!(task.bytes);
    value["run"] = json!(task.write.run);
    value["created"] = json!(task.created);
    value
}

/// Attempt every open item of these pipelines once, whatever its back-off, until a person asks to stop.
pub async fn attempt(config: &Config, memory: &Memory, names: &[String], stop: &Stop) -> Result<Summary> {
    let mut summary = Summary::default();
    for spec in chosen(config, names)? {
        if stop.is_set() {
            // What waits there is not even looked at.
            summary.stopped = true;
            break;
        }
        if let Some(notifier) = Notifier::of(spec, memory) {
            summary.add(notifier.deliver(false).await?);
        }
        let line = registry::open(spec, memory, Access::Write).await?;
        let worker = queue::Worker { stop: stop.flag(), ..line.worker() };
        let worked = worker.once().await?;
        if worked != Summary::default() {
            line.refresh_records().await?;
        }
        summary.add(worked);
    }
    Ok(summary)
}

/// Somebody outside settled a task: whoever reads the registry is told.
pub async fn refresh(config: &Config, memory: &Memory, pipeline: &str) -> Result<()> {
    // A pipeline that left the config has nothing to publish in.
    let Some(spec) = config.pipelines.get(pipeline).filter(|spec| spec.shape == ShapeSpec::Policy) else {
        return Ok(());
    };
    registry::open(spec, memory, Access::Write).await?.refresh_records().await
}

/// Put dead letters back into the queue and attempt them; where the write itself was given up, write again.
pub async fn retry(config: &Config, memory: &Memory, which: Which, stop: &Stop) -> Result<Retried> {
    let (writes, letters): (Vec<_>, Vec<_>) =
        letters(&memory.state, which).await?.into_iter().partition(|letter| letter.then == queue::WRITE);
    dead::retry(&memory.state, &letters).await?;
    let mut summary = Summary::default();
    for letter in &writes {
        if stop.is_set() {
            summary.stopped = true;
            break;
        }
        summary.add(write_again(config, memory, letter).await?);
    }
    let mut names: Vec<String> = letters.iter().map(|letter| letter.pipeline.clone()).collect();
    names.dedup();
    if !names.is_empty() {
        summary.add(attempt(config, memory, &names, stop).await?);
    }
    Ok(Retried {
        retried: letters.len() + writes.len(),
        done: summary.done,
        failed: summary.failed,
        waits: !summary.paused.is_empty(),
        stopped: summary.stopped,
    })
}

/// A pass over one key, whatever the cursor says.
async fn write_again(config: &Config, memory: &Memory, letter: &Placed<Letter>) -> Result<Summary> {
    let specs = chosen(config, std::slice::from_ref(&letter.pipeline))?;
    let Some(spec) = specs.into_iter().next() else { return Ok(Summary::default()) };
    let line = registry::open(spec, memory, Access::Write).await?;
    failing::try_again(&memory.state, &letter.pipeline, &letter.identity).await?;
    let ask = Ask { only: Some(letter.what.task.key.clone()), ..Ask::plain("retry") };
    let report = line.run(&ask).await?;
    let failed = u64::from(report.counts.failed > 0 || report.cause.is_some());
    Ok(Summary { done: 1 - failed, failed, ..Summary::default() })
}

/// What dropping dead letters came to.
#[derive(Debug, Serialize)]
pub struct Dropped {
    pub dropped: usize,
    /// Registries that could not be told; the next run tells them.
    #[serde(skip)]
    pub untold: Vec<Error>,
}

/// Forget dead letters, and have whoever reads the registry forget them too.
pub async fn drop_letters(config: &Config, memory: &Memory, which: Which) -> Result<Dropped> {
    let letters = letters(&memory.state, which).await?;
    dead::drop_letters(&memory.state, &letters).await?;
    let names: BTreeSet<&str> = letters.iter().map(|letter| letter.pipeline.as_str()).collect();
    let mut untold = Vec::new();
    for name in names {
        untold.extend(refresh(config, memory, name).await.err());
    }
    Ok(Dropped { dropped: letters.len(), untold })
}

async fn letters(state: &State, which: Which) -> Result<Vec<Placed<Letter>>> {
    match (which.all, which.keys.is_empty()) {
        (true, true) => dead::all(state).await,
        (false, false) => dead::of(state, &which.keys).await,
        _ => {
            Err(Error::new(Kind::Config, "name keys, or say --all")
                .remedy_is("`trueup dead ls` lists the keys."))
        }
    }
}
