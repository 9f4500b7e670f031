//! What is written with a policy, in the same batch: its queue entry comes with an addition or update and takes the place
//! of a dead letter; both go with the policy.

use std::collections::HashSet;

use serde_json::Value;

use super::entry::{DEAD, Entry, Note, Operation, QUEUE, key};
use crate::clock::rfc3339_ms;
use crate::error::Result;
use crate::pipeline::Pipeline;
use crate::pipeline::prepare::Write;
use crate::pipeline::records::Beside;
use crate::queue::Task;
use crate::queue::dead::Letter;
use crate::shape::policy::Carry;
use crate::state::journal::{Change, Intent};
use crate::state::{decode, item, keys};
use crate::store::Item;

pub async fn beside(line: &Pipeline, writes: &[Box<Write>]) -> Result<Vec<Beside>> {
    let waiting = never_worked_on(line, writes).await?;
    let letters = keys::published(&line.name) + DEAD;
    let letters: HashSet<String> = line.state.keys(&letters).await?.into_iter().collect();
    writes.iter().map(|write| one(line, write, &waiting, &letters)).collect()
}

fn one(line: &Pipeline, write: &Write, new: &HashSet<String>, letters: &HashSet<String>) -> Result<Beside> {
    let intent = &write.intent;
    let name = &intent.identity;
    if intent.retire {
        return Ok(Beside::default());
    }
    let prefix = keys::published(&line.name);
    let mut beside = Beside { still_new: new.contains(name), ..Beside::default() };
    let letter = key(DEAD, name)
        .filter(|key| intent.change == Change::Delete || letters.contains(&format!("{prefix}{key}")));
    if intent.change == Change::Delete {
        beside.remove(&prefix, key(QUEUE, name));
    }
    beside.remove(&prefix, letter);
    let carry = intent.next.as_ref().and_then(|next| Carry::of(next.base.carry.as_ref()));
    if let (Some(carry), Some(key), false) = (carry, key(QUEUE, name), intent.then.is_empty()) {
        let entry = Entry {
            policy_name: name.clone(),
            sha: carry.sha,
            operation: Operation::of(intent.change == Change::Add || beside.still_new),
            retry_count: 0,
            created_at: rfc3339_ms(line.clock.now()),
            error_message: None,
            file_no: carry.fields.file_no,
            moved_at: None,
        };
        let note = Note { entry, write: write.pointer.clone() };
        beside.items.push(item(key.clone(), &note.entry)?);
        beside.notes.push(note.item(format!("{prefix}{key}"))?);
    }
    Ok(beside)
}

impl Beside {
    fn remove(&mut self, prefix: &str, key: Option<String>) {
        if let Some(key) = key {
            self.notes.push(Item::delete(format!("{prefix}{key}")));
            self.items.push(Item::delete(key));
        }
    }
}

/// Of what is about to be updated: policies whose addition still waits, or was given up.
async fn never_worked_on(line: &Pipeline, writes: &[Box<Write>]) -> Result<HashSet<String>> {
    let updates = writes.iter().map(|write| &write.intent).filter(|intent| intent.change == Change::Update);
    let places: Vec<(&Intent, [String; 2])> = updates
        .flat_map(|intent| intent.then.iter().map(move |then| (intent, then)))
        .map(|(intent, then)| {
            let (pipeline, name) = (&line.name, &intent.identity);
            (intent, [keys::task(pipeline, then, name), keys::dead(pipeline, then, name)])
        })
        .collect();
    if places.is_empty() {
        return Ok(HashSet::new());
    }
    let names: Vec<&str> = places.iter().flat_map(|(_, pair)| pair).map(String::as_str).collect();
    let stored = line.state.store().get(&names).await?;
    let mut new = HashSet::new();
    for ((intent, [task, letter]), found) in places.iter().zip(stored.chunks(2)) {
        let waits = match &found[0] {
            Some(stored) => decode::<Task>(task, &stored.value)?.is_new(),
            None => false,
        };
        let given_up = match &found[1] {
            Some(stored) => decode::<Letter>(letter, &stored.value)?.task.is_new(),
            None => false,
        };
        if waits || given_up {
            new.insert(intent.identity.clone());
        }
    }
    Ok(new)
}

/// Nobody knows what is published for this policy.
pub fn doubts(line: &Pipeline, identity: &str) -> Result<Vec<Item>> {
    let prefix = keys::published(&line.name);
    let places = [QUEUE, DEAD].into_iter().filter_map(|place| key(place, identity));
    places.map(|key| item(format!("{prefix}{key}"), &Value::Null)).collect()
}
