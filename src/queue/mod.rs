//! Follow-up work: one task per identity and follow-up, recorded in the same atomic write as the baseline, so a crash
//! between apply and settle loses none. A newer version of a key replaces its older task or dead letter.
//!
//! The states a task goes through are drawn in `docs/queue-states.md`.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::{is_absurd, rfc3339_ms};
use crate::config::{Command, StoreSpec, Then, Webhook};
use crate::error::{Fault, Result};
use crate::record::Fingerprint;
use crate::retry::Patience;
use crate::state::journal::{Change, Intent};
use crate::state::{Pointer, State, decode_line, item, keys};
use crate::store::{Item, Query};

mod command;
pub mod dead;
pub mod depth;
mod document;
mod effect;
pub mod outside;
mod work;

pub use work::{Summary, Worker};

/// What stands in a follow-up's place where the write itself was given up.
pub const WRITE: &str = "write";

/// Web hooks and commands claimed together, in rounds of those under way at once.
const ROUNDS: usize = 4;

/// A piece of follow-up work a pipeline calls for.
#[derive(Debug, Clone)]
pub struct FollowUp {
    /// Stable for the same work, whatever its place in the list: `export-3f2a…`.
    pub name: String,
    pub effect: Effect,
}

#[derive(Debug, Clone)]
pub enum Effect {
    Export(StoreSpec),
    Webhook(Webhook),
    Command(Command),
    /// Left for somebody outside, who takes tasks by `trueup queue take`.
    Outside,
}

impl FollowUp {
    pub fn of(then: &Then) -> Self {
        let (kind, target, effect) = match then {
            Then::Export(store) => ("export", format!("{:?}", store.place), Effect::Export(store.clone())),
            Then::Webhook(hook) => ("webhook", hook.url.expose().to_owned(), Effect::Webhook(hook.clone())),
            Then::Command(command) => (
                "command",
                format!("{}\0{}", command.program, command.args.join("\0")),
                Effect::Command(command.clone()),
            ),
        };
        let name = format!("{kind}-{}", &Fingerprint::of(target.as_bytes()).short()[..8]);
        FollowUp { name, effect }
    }

    pub fn outside() -> Self {
        FollowUp { name: "outside".into(), effect: Effect::Outside }
    }

    /// Whether it may be asked for again when nobody knows whether it was done: an export repeated changes nothing, and
    /// whoever is outside decides for himself. A web hook or a command would be heard twice.
    pub fn repeats(&self) -> bool {
        matches!(self.effect, Effect::Export(_) | Effect::Outside)
    }

    /// Tasks claimed at a time: two state writes per this many tasks, and what a killed worker leaves behind.
    fn batch(&self) -> usize {
        match self.effect {
            Effect::Export(_) | Effect::Outside => 200,
            Effect::Webhook(_) | Effect::Command(_) => ROUNDS * effect::CONCURRENCY,
        }
    }

    /// A claim lasts longer than the effects of a batch may take, so a live worker never loses it.
    fn lease(&self) -> Duration {
        const MARGIN: Duration = Duration::from_secs(15 * 60);
        let each = match &self.effect {
            Effect::Export(_) | Effect::Outside => Duration::ZERO,
            Effect::Webhook(hook) => hook.timeout,
            Effect::Command(command) => command.timeout,
        };
        each.saturating_mul(u32::try_from(ROUNDS).unwrap_or(1)).saturating_add(MARGIN)
    }
}

/// What is to be done about one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub key: String,
    pub change: Change,
    /// SHA-256 of the value's bytes; `None` for a delete, or where nobody has read them.
    pub bytes: Option<Fingerprint>,
    /// The write this follows, in the journal: also what makes an effect idempotent.
    pub write: Pointer,
    pub created: String,
    #[serde(default)]
    pub attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// Not before this instant, for workers that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Grows with every claim: a worker that lost its claim cannot settle. It begins elsewhere for every write, so
    /// that a token given out for an older version of the task never fits a newer one.
    #[serde(default)]
    pub fence: u64,
    /// An update of something whose addition was never worked on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub still_new: bool,
    /// What a notification says; other tasks are told about their key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Who is at work on a task, and until when that is believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub owner: String,
    pub until: String,
}

impl Task {
    /// One that nobody has tried yet.
    pub fn new(
        key: String,
        change: Change,
        bytes: Option<Fingerprint>,
        write: Pointer,
        now: Timestamp,
    ) -> Self {
        Task {
            key,
            change,
            bytes,
            created: rfc3339_ms(now),
            attempts: 0,
            error: None,
            not_before: None,
            claim: None,
            fence: first_fence(&write),
            write,
            still_new: false,
            message: None,
        }
    }

    pub fn state(&self) -> &'static str {
        if self.claim.is_some() { "taken" } else { "open" }
    }

    /// Whoever does it meets its key for the first time.
    pub fn is_new(&self) -> bool {
        self.change == Change::Add || self.still_new
    }

    /// As a state record, marked so that whoever follows the queue sees by its keys what changed.
    pub fn item(&self, key: String) -> Result<Item> {
        Ok(item(key, self)?.with_fingerprint(self.mark()))
    }

    /// What a follower of the queue is told: the write, and how the work on it goes. Claims are not part of it.
    pub fn mark(&self) -> Fingerprint {
        mark(&self.write, self.attempts, self.error.as_ref().map(|fault| fault.message.as_str()))
    }

    /// Its back-off is over.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let not_before = self.not_before.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
        let longest = Duration::from_millis(2 * Patience::FOLLOW_UP.wait_ms_max);
        not_before.is_none_or(|at| at <= now || is_absurd(at, now, longest))
    }
}

/// State items that enqueue what a landed change calls for.
pub fn tasks(pipeline: &str, intent: &Intent, write: &Pointer, now: Timestamp) -> Result<Vec<Item>> {
    let mut items = Vec::with_capacity(2 * intent.then.len());
    // The key a record moved away from has a task beside the one of the record itself.
    let name = if intent.retire { format!("~moved/{}", intent.key()) } else { intent.identity.clone() };
    let fresh = Task::new(intent.key().to_owned(), intent.change, intent.bytes_hash(), write.clone(), now);
    let task = Task { still_new: intent.still_new, ..fresh };
    for then in &intent.then {
        items.extend(enqueue(pipeline, then, &name, &task)?);
    }
    Ok(items)
}

/// State items that put a task in its place: whatever waited there, or was given up, is replaced.
pub fn enqueue(pipeline: &str, then: &str, name: &str, task: &Task) -> Result<[Item; 2]> {
    Ok([task.item(keys::task(pipeline, then, name))?, Item::delete(keys::dead(pipeline, then, name))])
}

/// A state item that enqueues a message about a run.
pub fn notice(pipeline: &str, then: &str, run: &str, message: String, now: Timestamp) -> Result<Item> {
    let write = Pointer { run: run.into(), ..Pointer::unset() };
    let fresh = Task::new(run.to_owned(), Change::Add, None, write, now);
    let task = Task { message: Some(message), ..fresh };
    task.item(keys::task(pipeline, then, run))
}

/// The mark of a task that follows this write.
pub fn mark(write: &Pointer, attempts: u32, error: Option<&str>) -> Fingerprint {
    let write = write.to_string();
    // An empty message is another thing than none.
    let error = error.map(|text| format!("!{text}")).unwrap_or_default();
    Fingerprint::of_parts(&[write.as_bytes(), &attempts.to_be_bytes(), error.as_bytes()])
}

/// Far from every other write's, small enough for any JSON reader, with room for thousands of claims.
fn first_fence(write: &Pointer) -> u64 {
    let hash = Fingerprint::of(write.to_string().as_bytes());
    hash.0.iter().take(5).fold(0, |number, byte| number << 8 | u64::from(*byte)) << 12
}

/// A task or dead letter with its place.
#[derive(Debug, Clone)]
pub struct Placed<T> {
    pub pipeline: String,
    pub then: String,
    pub identity: String,
    pub what: T,
}

impl<T> Placed<T> {
    fn of(prefix: &str, key: &str, what: T) -> Option<Self> {
        let mut parts = keys::below(prefix, key).splitn(3, '/').map(str::to_owned);
        Some(Placed { pipeline: parts.next()?, then: parts.next()?, identity: parts.next()?, what })
    }
}

/// Everything that waits, in byte order of pipeline, follow-up and identity.
pub async fn waiting(state: &State) -> Result<Vec<Placed<Task>>> {
    let all = state.read_all::<Task>(keys::QUEUE).await?;
    Ok(all.into_iter().filter_map(|(key, task)| Placed::of(keys::QUEUE, &key, task)).collect())
}

/// Whether any of these follow-ups has a task that is due.
pub async fn is_any_due(state: &State, pipeline: &str, names: &[String], now: Timestamp) -> Result<bool> {
    for name in names {
        if is_due(state, &keys::queue(pipeline, name), now).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Follow-ups that have tasks waiting, by name. Looks at one key of each.
pub async fn names(state: &State, pipeline: &str) -> Result<Vec<String>> {
    let prefix = keys::queue_of(pipeline);
    let (mut names, mut after) = (Vec::new(), None::<String>);
    loop {
        let query = Query { after: after.as_deref(), limit: 1, ..Query::keys(&prefix) };
        let page = state.store().list(query).await?;
        let Some(line) = page.items.first() else { return Ok(names) };
        let name = keys::below(&prefix, &line.key).split('/').next().unwrap_or_default().to_owned();
        // The character after the slash: past every task of this one.
        after = Some(format!("{prefix}{name}0"));
        names.push(name);
    }
}

/// Claimed tasks count: their claimant may be dead, which a worker finds out.
async fn is_due(state: &State, prefix: &str, now: Timestamp) -> Result<bool> {
    let mut after: Option<String> = None;
    loop {
        let page = state.store().list(Query { after: after.as_deref(), ..Query::values(prefix) }).await?;
        for line in &page.items {
            if decode_line::<Task>(line)?.is_due(now) {
                return Ok(true);
            }
        }
        after = page.items.last().map(|line| line.key.clone());
        if !page.more {
            return Ok(false);
        }
    }
}
