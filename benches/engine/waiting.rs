//! What waits in the state: a long history of runs, and a long queue of follow-up work.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use trueup::queue;
use trueup::record::Fingerprint;
use trueup::state::journal::Intent;
use trueup::state::{Pointer, Report, item, keys};
use trueup::store::{Item, Mode};

use super::{generated, line};
use crate::harness::{Outcome, timed};

const EXPORT: &str = "then = { export = \"sqlite:export.db\" }\n";

/// A state that remembers this many runs.
pub fn history(folder: &Path, size: usize) -> Outcome<Duration> {
    let runtime = line::runtime()?;
    let memory = runtime.block_on(line::memory(&line::config(folder, "")?))?;
    let mut items = Vec::new();
    for number in 0..size {
        let id = ulid::Ulid::from_parts(1_700_000_000_000 + number as u64, number as u128).to_string();
        let mut report = Report::start(id.clone(), line::NAME, "bench", "2026-01-01T00:00:00.000Z".into());
        report.finished = Some("2026-01-01T00:00:01.000Z".into());
        report.conclude();
        items.push(item(keys::run(&id), &report)?);
        if number + 1 == size {
            items.push(item(keys::last(line::NAME), &id)?);
        }
    }
    runtime.block_on(memory.state.commit_in_parts(items))?;
    Ok(Duration::ZERO)
}

/// Values in the target, and a task for each in the queue, as a pass would leave them.
pub fn enqueue(folder: &Path, size: usize) -> Outcome<Duration> {
    const BATCH: usize = 1_000;
    let runtime = line::runtime()?;
    let pipeline = runtime.block_on(line::open(folder, EXPORT))?;
    let then = &pipeline.then[0].name;
    for start in (0..size).step_by(BATCH) {
        let (mut records, mut tasks) = (Vec::new(), Vec::new());
        for number in start..size.min(start + BATCH) {
            let (key, value) = (line::key(number), line::value(number, 1, generated::LENGTH));
            let print = Fingerprint::of(&value);
            let intent: Intent =
                serde_json::from_value(json!({ "i": key, "c": "add", "h": print, "t": [then] }))?;
            let write = Pointer { run: "01JD00000000000000000000000".into(), batch: 0, index: 0 };
            tasks.extend(queue::tasks(line::NAME, &intent, &write, pipeline.clock.now())?);
            records.push(Item::put(key, value).with_fingerprint(print));
        }
        runtime.block_on(pipeline.store.write(records, Mode::Each))?;
        runtime.block_on(pipeline.state.commit(tasks))?;
    }
    Ok(Duration::ZERO)
}

/// Have everything in the queue done.
pub fn drain(folder: &Path, size: usize) -> Outcome<Duration> {
    let runtime = line::runtime()?;
    let pipeline = runtime.block_on(line::open(folder, EXPORT))?;
    let (summary, took) = timed(|| runtime.block_on(pipeline.worker().once()))?;
    if summary.done != size as u64 {
        return Err(format!("of {size} tasks: {summary:?}").into());
    }
    Ok(took)
}
