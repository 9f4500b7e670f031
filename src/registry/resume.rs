//! First contact with a registry: the state was lost, or somebody else kept the registry before. What it says is still to
//! be done becomes work again, what it says was given up is given up still; neither is ours to forget.

use std::collections::HashSet;

use serde_json::Value;

use super::entry::{DEAD, Entry, Operation, QUEUE};
use crate::clock::rfc3339_ms;
use crate::error::{Error, Fault, Kind, Result};
use crate::pipeline::Pipeline;
use crate::queue::dead::Letter;
use crate::queue::{self, Task};
use crate::state::journal::Change;
use crate::state::{Base, Pointer, item, keys};
use crate::store::{Item, StoreExt as _, What};

/// Entries looked at together.
const TOGETHER: usize = 500;

/// Entries this state knows nothing of. Those without a policy are marked as doubtful only, and go.
pub async fn resume(line: &Pipeline, run: &str) -> Result<()> {
    let prefix = keys::published(&line.name);
    let known: HashSet<String> = line.state.keys(&prefix).await?.into_iter().collect();
    for place in [QUEUE, DEAD] {
        let there = line.store.list_all(place, What::Names).await?.into_iter().map(|line| line.key);
        let unknown: Vec<String> = there.filter(|key| !known.contains(&format!("{prefix}{key}"))).collect();
        for some in unknown.chunks(TOGETHER) {
            resume_some(line, place, some, run).await?;
        }
    }
    Ok(())
}

async fn resume_some(line: &Pipeline, place: &str, some: &[String], run: &str) -> Result<()> {
    let names: Vec<&str> = some.iter().map(|key| keys::below(place, key)).collect();
    let bases: Vec<String> = names.iter().map(|name| keys::base(&line.name, name)).collect();
    let bases = line.state.read_each::<Base>(&bases).await?;
    let values = line.store.get(&some.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut items = Vec::new();
    for (((key, name), base), value) in some.iter().zip(names).zip(bases).zip(values) {
        if let Some(base) = base {
            let entry = value.and_then(|value| serde_json::from_slice::<Entry>(&value.value).ok());
            let task = task(line, run, &base, name, entry.as_ref());
            let moved_at = entry.and_then(|entry| entry.moved_at);
            if place == QUEUE {
                items.extend(waiting(line, name, &task)?);
            } else {
                items.extend(given_up(line, name, &task, moved_at).await?);
            }
        }
        // After its task: whoever finds the mark finds that too.
        items.push(item(format!("{}{key}", keys::published(&line.name)), &Value::Null)?);
    }
    line.state.commit_in_parts(items).await
}

fn task(line: &Pipeline, run: &str, base: &Base, name: &str, entry: Option<&Entry>) -> Task {
    let change = match entry.map(|entry| entry.operation) {
        Some(Operation::Update) => Change::Update,
        Some(Operation::Add) | None => Change::Add,
    };
    // A store that shows its writes late was not read in full.
    let bytes = line.store.caps().strong_read.then(|| base.bytes_hash());
    let write = Pointer { run: run.into(), ..Pointer::unset() };
    let fresh = Task::new(base.key(name).to_owned(), change, bytes, write, line.clock.now());
    let Some(entry) = entry else { return fresh };
    let error = entry.error_message.as_ref().map(|text| Fault::of(&Error::new(Kind::Unavailable, text)));
    Task { attempts: entry.retry_count, created: entry.created_at.clone(), error, ..fresh }
}

fn waiting(line: &Pipeline, name: &str, task: &Task) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for then in &line.then {
        items.extend(queue::enqueue(&line.name, &then.name, name, task)?);
    }
    Ok(items)
}

/// What waits again, or has changed since, is not given up.
async fn given_up(line: &Pipeline, name: &str, task: &Task, moved_at: Option<String>) -> Result<Vec<Item>> {
    let tasks: Vec<String> = line.then.iter().map(|then| keys::task(&line.name, &then.name, name)).collect();
    let waiting = line.state.read_each::<Task>(&tasks).await?;
    let cause = task.error.clone().unwrap_or_else(|| Fault::of(&untold()));
    let since = moved_at.unwrap_or_else(|| rfc3339_ms(line.clock.now()));
    let letter = Letter { task: task.clone(), cause, since };
    let open = line.then.iter().zip(waiting).filter(|(_, waiting)| waiting.is_none());
    open.map(|(then, _)| item(keys::dead(&line.name, &then.name, name), &letter)).collect()
}

fn untold() -> Error {
    Error::new(Kind::Unavailable, "the registry does not say why it was given up")
}
