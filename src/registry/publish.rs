//! The queue and the dead letters as other programs read them: `queue:NAME` and `dead-letter:NAME`, one key each.
//!
//! Only what differs from the last publication is written. Deletions of policies are work for an exporter, not for a
//! reader of the registry: they are not published, and an outside consumer is not asked to do them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::write_each;
use crate::error::Result;
use crate::pipeline::Pipeline;
use crate::queue::dead::Letter;
use crate::queue::{Effect, Task};
use crate::shape::policy::Carry;
use crate::state::journal::Change;
use crate::state::{Base, decode, item, keys};
use crate::store::{Item, StoreExt, What};

const QUEUE: &str = "queue:";
const DEAD: &str = "dead-letter:";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    policy_name: String,
    sha: String,
    operation: Operation,
    retry_count: u32,
    created_at: String,
    error_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file_no: Option<Value>,
    /// When it was given up; dead letters only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved_at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Add,
    Update,
}

type Entries = BTreeMap<String, Entry>;

/// Bring the published copy in step with the queue. On first contact what is already there counts as published by us:
/// the registry's keys are ours.
pub async fn publish(line: &Pipeline, first: bool) -> Result<()> {
    let prefix = keys::published(&line.name);
    let known = line.state.read_all::<Value>(&prefix).await?;
    let mut before: BTreeMap<String, Option<Entry>> = known
        .into_iter()
        .map(|(key, value)| (keys::below(&prefix, &key).to_owned(), serde_json::from_value(value).ok()))
        .collect();
    if first {
        for place in [QUEUE, DEAD] {
            for line in line.store.list_all(place, What::Keys).await? {
                before.entry(line.key).or_insert(None);
            }
        }
    }
    let wanted = wanted(line, &before).await?;
    let (mut writes, mut notes) = (Vec::new(), Vec::new());
    for (key, entry) in &wanted {
        if before.get(key).and_then(Option::as_ref) != Some(entry) {
            writes.push(item(key.clone(), entry)?);
            notes.push(item(format!("{prefix}{key}"), entry)?);
        }
    }
    for key in before.keys().filter(|key| !wanted.contains_key(*key)) {
        writes.push(Item::delete(key.clone()));
        notes.push(Item::delete(format!("{prefix}{key}")));
    }
    if writes.is_empty() {
        return Ok(());
    }
    write_each(line, writes).await?;
    line.state.commit_in_parts(notes).await
}

/// What should be published now, by key.
async fn wanted(line: &Pipeline, before: &BTreeMap<String, Option<Entry>>) -> Result<Entries> {
    let mut wanted = Entries::new();
    for then in &line.then {
        let place = keys::queue(&line.name, &then.name);
        let mut done = Vec::new();
        for (key, task) in line.state.read_all::<Task>(&place).await? {
            if task.change == Change::Delete {
                if matches!(then.effect, Effect::Outside) {
                    done.push(Item::delete(key));
                }
                continue;
            }
            let name = keys::below(&place, &key);
            if let Some(entry) = entry(line, name, &task, before).await? {
                wanted.entry(format!("{QUEUE}{name}")).or_insert(entry);
            }
        }
        line.state.commit_in_parts(done).await?;
        let place = keys::dead(&line.name, &then.name, "");
        for (key, letter) in line.state.read_all::<Letter>(&place).await? {
            let name = keys::below(&place, &key);
            if let Some(entry) = entry(line, name, &letter.task, before).await? {
                let entry = Entry { moved_at: Some(letter.since), ..entry };
                wanted.entry(format!("{DEAD}{name}")).or_insert(entry);
            }
        }
    }
    Ok(wanted)
}

/// A task as the registry shows it; `None` when its policy is gone.
async fn entry(
    line: &Pipeline,
    name: &str,
    task: &Task,
    before: &BTreeMap<String, Option<Entry>>,
) -> Result<Option<Entry>> {
    let key = keys::base(&line.name, name);
    let Some(stored) = line.state.store().get_one(&key).await? else { return Ok(None) };
    let base: Base = decode(&key, &stored.value)?;
    let Some(carry) = Carry::of(base.carry.as_ref()) else { return Ok(None) };
    // What was never processed is still an addition, however often it changed since.
    let earlier = [QUEUE, DEAD].iter().filter_map(|place| before.get(&format!("{place}{name}"))?.as_ref());
    let still_new = earlier.into_iter().any(|entry| entry.operation == Operation::Add);
    let add = task.change == Change::Add || still_new;
    Ok(Some(Entry {
        policy_name: name.to_owned(),
        sha: carry.sha,
        operation: if add { Operation::Add } else { Operation::Update },
        retry_count: task.attempts,
        created_at: task.created.clone(),
        error_message: task.error.as_ref().map(|fault| fault.message.clone()),
        file_no: carry.fields.file_no,
        moved_at: None,
    }))
}
