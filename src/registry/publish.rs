//! The queue and the dead letters as other programs read them: `queue:NAME` and `dead-letter:NAME`, one key each.
//!
//! Entries come and go with their policies, in the same batch. What happens to them afterwards (an export is done, fails,
//! is given up) is published when the pass is over, and so is whatever an interruption left in doubt: only what differs
//! from the last publication is written, and what does not differ is not even read. Deletions of policies are work for an
//! exporter, not for a reader of the registry: they are not published, and an outside consumer is not asked to do them.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::entry::{DEAD, Note, QUEUE, key, mark};
use super::write_each;
use crate::error::Result;
use crate::pipeline::Pipeline;
use crate::pipeline::failing::Failing;
use crate::queue::dead::Letter;
use crate::queue::{Effect, Task, WRITE};
use crate::record::Fingerprint;
use crate::shape::policy::Carry;
use crate::state::journal::Change;
use crate::state::{Base, decode, item, keys};
use crate::store::{Expect, Item, Mode, StoreExt, Stored, What};

/// What was published before, by key: the mark of what it said, `None` = it is not known what is there.
type Before = BTreeMap<String, Option<Fingerprint>>;

/// Something that should be published.
struct Wanted {
    name: String,
    task: Task,
    moved_at: Option<String>,
    /// Where the state remembers what the policy is.
    known: Known,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Written,
    Refused,
}

/// Bring the published copy in step with the queue; whether there was anything to write.
pub async fn publish(line: &Pipeline) -> Result<bool> {
    let mut compared = Compared { before: published(line).await?, ..Compared::default() };
    for then in &line.then {
        compared.waiting(line, &then.name, matches!(then.effect, Effect::Outside)).await?;
    }
    compared.given_up(line).await?;
    let Compared { before, wanted, .. } = compared;
    let news = news(line, wanted).await?;
    let prefix = keys::published(&line.name);
    let (mut writes, mut notes) = (Vec::new(), Vec::new());
    for (key, note) in &news {
        writes.push(item(key.clone(), &note.entry)?);
        notes.push(note.item(format!("{prefix}{key}"))?);
    }
    for key in before.keys().filter(|key| !news.contains_key(*key)) {
        writes.push(Item::delete(key.clone()));
        notes.push(Item::delete(format!("{prefix}{key}")));
    }
    if writes.is_empty() {
        return Ok(false);
    }
    // Whatever becomes of the writes, the next run knows where to look.
    let unheard = news.keys().filter(|key| !before.contains_key(*key));
    let doubts = unheard.map(|key| item(format!("{prefix}{key}"), &Value::Null)).collect::<Result<_>>()?;
    line.state.commit_in_parts(doubts).await?;
    write_each(line, writes).await?;
    line.state.commit_in_parts(notes).await?;
    Ok(true)
}

async fn published(line: &Pipeline) -> Result<Before> {
    let prefix = keys::published(&line.name);
    let known = line.state.store().list_all(&prefix, What::Keys).await?.into_iter();
    Ok(known.map(|line| (keys::below(&prefix, &line.key).to_owned(), line.fingerprint)).collect())
}

/// What is published against what should be.
#[derive(Default)]
struct Compared {
    /// What was published, without what is as it should be.
    before: Before,
    wanted: BTreeMap<String, Wanted>,
    /// Keys that have been decided on: of several follow-ups the first is shown.
    decided: HashSet<String>,
}

impl Compared {
    /// Tasks; those that are published as they are need not be read.
    async fn waiting(&mut self, line: &Pipeline, then: &str, outside: bool) -> Result<()> {
        let place = keys::queue(&line.name, then);
        let mut open = Vec::new();
        for listed in line.state.store().list_all(&place, What::Keys).await? {
            let name = keys::below(&place, &listed.key).to_owned();
            let Some(key) = key(QUEUE, &name).filter(|key| self.decided.insert(key.clone())) else {
                continue;
            };
            match self.before.get(&key) {
                Some(said) if said.is_some() && *said == listed.fingerprint => {
                    self.before.remove(&key);
                }
                _ => open.push((key, name, listed.key)),
            }
        }
        let places: Vec<&str> = open.iter().map(|(_, _, place)| place.as_str()).collect();
        let stored = get(line, &places).await?;
        let mut done = Vec::new();
        for ((key, name, place), stored) in open.into_iter().zip(stored) {
            // Done in the meantime.
            let Some(stored) = stored else { continue };
            let task: Task = decode(&place, &stored.value)?;
            if task.change != Change::Delete {
                self.wanted.insert(key, Wanted { name, task, moved_at: None, known: Known::Written });
            } else if outside {
                done.push(Item::delete(place).expecting(Expect::Exactly(stored.version)));
            }
        }
        clear(line, done).await
    }

    async fn given_up(&mut self, line: &Pipeline) -> Result<()> {
        let names = line.then.iter().map(|then| then.name.as_str());
        for then in names.chain([WRITE]) {
            let place = keys::dead(&line.name, then, "");
            let known = if then == WRITE { Known::Refused } else { Known::Written };
            for (at, Letter { task, since, .. }) in line.state.read_all::<Letter>(&place).await? {
                let name = keys::below(&place, &at).to_owned();
                let shown = key(DEAD, &name).filter(|_| task.change != Change::Delete);
                let Some(key) = shown.filter(|key| self.decided.insert(key.clone())) else { continue };
                let moved_at = Some(since);
                if self.before.get(&key) == Some(&Some(mark(&task, moved_at.as_deref()))) {
                    self.before.remove(&key);
                } else {
                    self.wanted.insert(key, Wanted { name, task, moved_at, known });
                }
            }
        }
        Ok(())
    }
}

/// Tasks nobody is asked to do. One that was replaced by a newer task stays.
async fn clear(line: &Pipeline, done: Vec<Item>) -> Result<()> {
    if !done.is_empty() {
        for outcome in line.state.store().write(done, Mode::Each).await? {
            outcome?;
        }
    }
    Ok(())
}

/// What is wanted, as it will be published. What is known of the policies is read for these alone, at once.
async fn news(line: &Pipeline, wanted: BTreeMap<String, Wanted>) -> Result<BTreeMap<String, Note>> {
    let prefix = keys::published(&line.name);
    let places: Vec<String> = wanted.values().map(|one| place_of(line, one)).collect();
    let said: Vec<String> = wanted.keys().map(|key| format!("{prefix}{key}")).collect();
    let known = get(line, &places.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let said = get(line, &said.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut news = BTreeMap::new();
    for ((((key, one), place), known), said) in wanted.into_iter().zip(&places).zip(known).zip(said) {
        // A policy that is gone is not published any more.
        let Some(known) = known else { continue };
        let carry = match one.known {
            Known::Written => decode::<Base>(place, &known.value)?.carry,
            Known::Refused => decode::<Failing>(place, &known.value)?.carry,
        };
        let Some(carry) = Carry::of(carry.as_ref()) else { continue };
        let said: Option<Note> = said.and_then(|said| serde_json::from_slice(&said.value).ok());
        news.insert(key, Note::of(&one.name, carry, &one.task, one.moved_at, said.as_ref()));
    }
    Ok(news)
}

fn place_of(line: &Pipeline, one: &Wanted) -> String {
    match one.known {
        Known::Written => keys::base(&line.name, &one.name),
        Known::Refused => keys::failing(&line.name, &one.name),
    }
}

async fn get(line: &Pipeline, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
    if keys.is_empty() { Ok(Vec::new()) } else { line.state.store().get(keys).await }
}
