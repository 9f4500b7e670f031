//! The queue and the dead letters as other programs read them: `queue:NAME` and `dead-letter:NAME`, one key each.
//!
//! Entries come and go with their policies, in the same batch. What happens to them afterwards (an export is done, fails,
//! is given up) is published when the pass is over, and so is whatever an interruption left in doubt: only what differs
//! from the last publication is written. Deletions of policies are work for an exporter, not for a reader of the
//! registry: they are not published, and an outside consumer is not asked to do them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::entry::{DEAD, Note, QUEUE, key};
use super::write_each;
use crate::error::Result;
use crate::pipeline::Pipeline;
use crate::pipeline::failing::Failing;
use crate::queue::dead::Letter;
use crate::queue::{Effect, Task, WRITE};
use crate::shape::policy::Carry;
use crate::state::journal::Change;
use crate::state::{Base, decode, item, keys};
use crate::store::{Item, StoreExt, What};

/// What was published before, by key; `None` = it is not known what is there.
type Before = BTreeMap<String, Option<Note>>;

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

/// Bring the published copy in step with the queue. On first contact what is already there counts as published by us:
/// the registry's keys are ours.
pub async fn publish(line: &Pipeline, first: bool) -> Result<()> {
    let before = published(line, first).await?;
    let wanted = wanted(line).await?;
    let prefix = keys::published(&line.name);
    let (mut writes, mut notes) = (Vec::new(), Vec::new());
    let news = news(line, &before, &wanted).await?;
    for (key, note) in &news {
        writes.push(item(key.clone(), &note.entry)?);
        notes.push(item(format!("{prefix}{key}"), note)?);
    }
    let unchanged = |key: &String| {
        let said = before.get(key).and_then(Option::as_ref);
        said.zip(wanted.get(key)).is_some_and(|(note, one)| note.says(&one.task, one.moved_at.as_deref()))
    };
    for key in before.keys().filter(|key| !news.contains_key(*key) && !unchanged(key)) {
        writes.push(Item::delete(key.clone()));
        notes.push(Item::delete(format!("{prefix}{key}")));
    }
    if writes.is_empty() {
        return Ok(());
    }
    // Whatever becomes of the writes, the next run knows where to look.
    let unheard = news.keys().filter(|key| !before.contains_key(*key));
    let doubts = unheard.map(|key| item(format!("{prefix}{key}"), &Value::Null)).collect::<Result<_>>()?;
    line.state.commit_in_parts(doubts).await?;
    write_each(line, writes).await?;
    line.state.commit_in_parts(notes).await
}

async fn published(line: &Pipeline, first: bool) -> Result<Before> {
    let prefix = keys::published(&line.name);
    let known = line.state.read_all::<Value>(&prefix).await?;
    let mut before: Before = known
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
    Ok(before)
}

/// What should be published now, by key.
async fn wanted(line: &Pipeline) -> Result<BTreeMap<String, Wanted>> {
    let mut all = BTreeMap::new();
    let mut want = |place: &str, one: Wanted| {
        if let Some(key) = key(place, &one.name).filter(|_| one.task.change != Change::Delete) {
            all.entry(key).or_insert(one);
        }
    };
    let mut done = Vec::new();
    for then in &line.then {
        let place = keys::queue(&line.name, &then.name);
        for (key, task) in line.state.read_all::<Task>(&place).await? {
            let name = keys::below(&place, &key).to_owned();
            if task.change == Change::Delete && matches!(then.effect, Effect::Outside) {
                done.push(Item::delete(key));
            }
            want(QUEUE, Wanted { name, task, moved_at: None, known: Known::Written });
        }
    }
    let names = line.then.iter().map(|then| then.name.as_str());
    for then in names.chain([WRITE]) {
        let place = keys::dead(&line.name, then, "");
        let known = if then == WRITE { Known::Refused } else { Known::Written };
        for (key, Letter { task, since, .. }) in line.state.read_all::<Letter>(&place).await? {
            let name = keys::below(&place, &key).to_owned();
            want(DEAD, Wanted { name, task, moved_at: Some(since), known });
        }
    }
    line.state.commit_in_parts(done).await?;
    Ok(all)
}

/// Of what is wanted, what is not published as it is. What is known of the policies is read for these alone, at once.
async fn news(
    line: &Pipeline,
    before: &Before,
    wanted: &BTreeMap<String, Wanted>,
) -> Result<BTreeMap<String, Note>> {
    let said = |key: &String| before.get(key).and_then(Option::as_ref);
    let new = |(key, one): &(&String, &Wanted)| {
        said(key).is_none_or(|note| !note.says(&one.task, one.moved_at.as_deref()))
    };
    let open: Vec<(&String, &Wanted)> = wanted.iter().filter(new).collect();
    let places: Vec<String> = open.iter().map(|(_, one)| place_of(line, one)).collect();
    let names: Vec<&str> = places.iter().map(String::as_str).collect();
    let stored = if names.is_empty() { Vec::new() } else { line.state.store().get(&names).await? };
    let mut news = BTreeMap::new();
    for (((key, one), place), stored) in open.into_iter().zip(&places).zip(stored) {
        // A policy that is gone is not published any more.
        let Some(stored) = stored else { continue };
        let carry = match one.known {
            Known::Written => decode::<Base>(place, &stored.value)?.carry,
            Known::Refused => decode::<Failing>(place, &stored.value)?.carry,
        };
        let Some(carry) = Carry::of(carry.as_ref()) else { continue };
        let note = Note::of(&one.name, carry, &one.task, one.moved_at.clone(), said(key));
        news.insert(key.clone(), note);
    }
    Ok(news)
}

fn place_of(line: &Pipeline, one: &Wanted) -> String {
    match one.known {
        Known::Written => keys::base(&line.name, &one.name),
        Known::Refused => keys::failing(&line.name, &one.name),
    }
}
