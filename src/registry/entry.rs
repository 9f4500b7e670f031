//! One entry of the queue, or one dead letter, as other programs read it in the registry; and the note the state keeps of
//! its publication.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::queue::Task;
use crate::shape::policy::{Carry, KEY_MAX};
use crate::state::Pointer;

pub const QUEUE: &str = "queue:";
pub const DEAD: &str = "dead-letter:";

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

    /// Whether what was published still says what the task does. Everything else is fixed by the write.
    pub fn says(&self, task: &Task, moved_at: Option<&str>) -> bool {
        let error = task.error.as_ref().map(|fault| fault.message.as_str());
        self.write == task.write
            && self.entry.retry_count == task.attempts
            && self.entry.error_message.as_deref() == error
            && self.entry.moved_at.as_deref() == moved_at
    }
}

/// The key of a policy's queue entry or dead letter. A name may be just short enough for its policy and too long for
/// this: then it has none.
pub fn key(place: &str, name: &str) -> Option<String> {
    (place.len() + name.len() <= KEY_MAX).then(|| format!("{place}{name}"))
}
