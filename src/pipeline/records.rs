//! Records a system keeps of its own in the store, beside the payload. They are written in the same batch as the changes
//! they belong to: in one atomic write where the store has such, in one request where it has those. What a crash or a
//! refusal leaves open is marked as doubtful in the state, and made good when the pass is over.

use super::prepare::Write;
use super::{Ask, Pipeline};
use crate::error::{Fault, Result};
use crate::state::{Report, item};
use crate::store::{Item, Mode, Outcome};

#[async_trait::async_trait]
pub trait Records: Send + Sync {
    /// What is written along with each of these changes, one answer each, in order.
    async fn beside(&self, line: &Pipeline, writes: &[Box<Write>]) -> Result<Vec<Beside>>;

    /// State items that say: of the records beside this identity nobody knows whether they arrived.
    fn doubts(&self, line: &Pipeline, identity: &str) -> Result<Vec<Item>>;

    /// Before follow-up work is attempted: work the store tells of, and the state knows nothing of, becomes ours.
    async fn resume(&self, line: &Pipeline, run: &str) -> Result<()>;

    /// The last word on a pass. Called when everything else is done and the report is concluded; what it writes is its
    /// own.
    async fn after(&self, line: &Pipeline, report: &mut Report) -> Result<()>;

    /// Say what happened to follow-up work. Needs no lock: a pass may be under way.
    async fn refresh(&self, line: &Pipeline) -> Result<()>;

    /// After this many runs a change that the store refuses by itself is given up; `None` = never.
    fn attempts_max(&self) -> Option<u32> {
        None
    }

    /// A write that changes nothing, to tell a store that refuses some keys from one that is down.
    fn probe(&self) -> Item;
}

/// Records written along with one change.
#[derive(Default)]
pub struct Beside {
    pub items: Vec<Item>,
    /// What state learns once they have landed.
    pub notes: Vec<Item>,
    /// Nobody has done the follow-up work of the key's addition yet.
    pub still_new: bool,
}

impl Beside {
    /// State items for records of which nobody knows whether they landed.
    pub fn doubts(&self) -> Result<Vec<Item>> {
        self.notes.iter().map(|note| item(note.key.clone(), &serde_json::Value::Null)).collect()
    }
}

impl Pipeline {
    /// What a system wants done once a pass is over. A look at one key is no such pass.
    pub(super) async fn keep_records(&self, ask: &Ask, report: &mut Report) {
        let Some(records) = self.records.as_ref().filter(|_| ask.only.is_none()) else { return };
        report.conclude();
        if let Err(error) = records.after(self, report).await {
            report.fail(&error);
        }
    }

    /// Follow-up work was done between two passes, or beside one.
    pub async fn refresh_records(&self) -> Result<()> {
        match &self.records {
            Some(records) => records.refresh(self).await,
            None => Ok(()),
        }
    }
}

/// What became of a change, and whether the records beside it landed.
pub struct Answer {
    pub outcome: Result<Outcome>,
    pub beside: bool,
}

/// Write changes with what goes beside them. An error means that nothing is known about any of them.
pub async fn deliver(line: &Pipeline, writes: &[&Write]) -> Result<Vec<Answer>> {
    // Nothing goes out once the lease is lost.
    line.state.still_held()?;
    let alone = writes.iter().all(|write| write.beside.items.is_empty());
    let atomic_max = line.store.caps().atomic_max;
    if alone || atomic_max == 0 {
        return Ok(regroup(writes, line.store.write(together(writes), Mode::Each).await?));
    }
    let mut answers = Vec::with_capacity(writes.len());
    for part in parts(writes, atomic_max) {
        match deliver_part(line, part).await {
            Ok(some) => answers.extend(some),
            Err(error) if answers.is_empty() => return Err(error),
            Err(error) => {
                let fault = Fault::of(&error);
                let failed = |_: &&Write| Answer { outcome: Err((&fault).into()), beside: false };
                answers.extend(part.iter().map(failed));
            }
        }
    }
    Ok(answers)
}

/// All of it, or, where something stands in the way, each change with what is beside it by itself.
async fn deliver_part(line: &Pipeline, writes: &[&Write]) -> Result<Vec<Answer>> {
    let outcomes = line.store.write(together(writes), Mode::All).await?;
    if writes.len() == 1 || outcomes.iter().all(|one| one.as_ref().is_ok_and(Outcome::landed)) {
        return Ok(regroup(writes, outcomes));
    }
    let mut answers = Vec::with_capacity(writes.len());
    for write in writes {
        let outcome = match line.store.write(together(&[*write]), Mode::All).await {
            Ok(outcomes) => regroup(&[*write], outcomes),
            Err(error) => vec![Answer { outcome: Err(error), beside: false }],
        };
        answers.extend(outcome);
    }
    Ok(answers)
}

/// Every change, followed by what goes beside it.
fn together(writes: &[&Write]) -> Vec<Item> {
    let mut items = Vec::with_capacity(writes.len());
    for write in writes {
        items.push(write.item());
        items.extend(write.beside.items.iter().cloned());
    }
    items
}

/// As many changes as fit one atomic write with all that goes beside them.
fn parts<'a, 'w>(writes: &'a [&'w Write], atomic_max: usize) -> Vec<&'a [&'w Write]> {
    let (mut parts, mut start, mut size) = (Vec::new(), 0, 0);
    for (at, write) in writes.iter().enumerate() {
        let more = 1 + write.beside.items.len();
        if at > start && size + more > atomic_max {
            parts.push(&writes[start..at]);
            (start, size) = (at, 0);
        }
        size += more;
    }
    parts.push(&writes[start..]);
    parts
}

fn regroup(writes: &[&Write], outcomes: Vec<Result<Outcome>>) -> Vec<Answer> {
    if outcomes.len() == writes.len() && writes.iter().all(|write| write.beside.items.is_empty()) {
        return outcomes.into_iter().map(|outcome| Answer { outcome, beside: true }).collect();
    }
    let mut outcomes = outcomes.into_iter();
    let missing = || Err(crate::error::Error::bug("a store gave no outcome for a write"));
    let group = |write: &&Write| {
        let outcome = outcomes.next().unwrap_or_else(missing);
        let beside = outcomes.by_ref().take(write.beside.items.len());
        let refused = beside.filter_map(|one| match one {
            Ok(outcome) if outcome.landed() => None,
            Ok(_) => Some(None),
            Err(error) => Some(Some(error)),
        });
        let refused: Vec<Option<crate::error::Error>> = refused.collect();
        let beside = refused.is_empty();
        // What is beside it stood in its way: that is the reason to tell.
        match (outcome, refused.into_iter().flatten().next()) {
            (Ok(Outcome::Untouched), Some(error)) => Answer { outcome: Err(error), beside },
            (outcome, _) => Answer { outcome, beside },
        }
    };
    writes.iter().map(group).collect()
}
