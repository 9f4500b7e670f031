//! One entry of the queue, or one dead letter, as other programs read it in the registry; and the note the state keeps of
//! its publication.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config;
use crate::error::Result;
use crate::queue::{self, Task};
use crate::record::Fingerprint;
use crate::shape::policy::{Carry, KEY_MAX};
use crate::state::{self, Pointer};
use crate::store::Item;

pub const QUEUE: &str = config::QUEUE;
pub const DEAD: &str = config::DEAD_LETTERS;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub policy_name: String,
    pub sha: String,
    pub operation: Operation,
    pub retry_count: u32,
    pub created_at: String,
    pub error_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_no: Option<Value>,
    /// When it was given up; dead letters only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Add,
    Update,
}

impl Operation {
    pub fn of(is_new: bool) -> Self {
        if is_new { Operation::Add } else { Operation::Update }
    }
}

/// What was published, and after which write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub entry: Entry,
    pub write: Pointer,
}

impl Note {
    /// A task as the registry shows it. `before` is what was published under its key.
    pub fn of(
        name: &str,
        carry: Carry,
        task: &Task,
        moved_at: Option<String>,
        before: Option<&Note>,
    ) -> Self {
        let before = before.filter(|note| note.write == task.write);
        let entry = Entry {
            policy_name: name.to_owned(),
            sha: carry.sha,
            operation: Operation::of(task.is_new()),
            retry_count: task.attempts,
            // The entry of a change was written with it, an instant before its task.
            created_at: before.map_or_else(|| task.created.clone(), |note| note.entry.created_at.clone()),
            error_message: task.error.as_ref().map(|fault| fault.message.clone()),
            file_no: carry.fields.file_no,
            moved_at,
        };
        Note { entry, write: task.write.clone() }
    }

    /// As a state record, marked by what it says.
    pub fn item(&self, key: String) -> Result<Item> {
        let Entry { retry_count, error_message, moved_at, .. } = &self.entry;
        let mark = queue::mark(&self.write, *retry_count, error_message.as_deref());
        Ok(state::item(key, self)?.with_fingerprint(marked(mark, moved_at.as_deref())))
    }
}

/// Whatever carries the same mark says the same.
pub fn mark(task: &Task, moved_at: Option<&str>) -> Fingerprint {
    marked(task.mark(), moved_at)
}

fn marked(mark: Fingerprint, moved_at: Option<&str>) -> Fingerprint {
    moved_at.map_or(mark, |at| Fingerprint::of_parts(&[&mark.0, at.as_bytes()]))
}

/// The key of a policy's queue entry or dead letter. A name may be just short enough for its policy and too long for
/// this: then it has none.
pub fn key(place: &str, name: &str) -> Option<String> {
    (place.len() + name.len() <= KEY_MAX).then(|| format!("{place}{name}"))
}
