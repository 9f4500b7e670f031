//! A batch on its way to the store: rendered, with prior values at hand, as intents and conditional writes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::decide::EDITED;
use super::draft::{Drafted, rendered_from};
use super::failing::{self, Failing};
use super::hold::{held_item, is_approved};
use super::parked::Parked;
use super::past::Past;
use super::plan::{Action, Step};
use super::records::Beside;
use super::{Pipeline, weigh};
use crate::config::Heal;
use crate::error::{Error, Fault, Result};
use crate::portion::Lately;
use crate::record::{Entry, Fingerprint, Scope, Version};
use crate::shape::Output;
use crate::state::held::{Decision, HeldItem};
use crate::state::journal::{Change, Intent, PriorBase, PriorValue};
use crate::state::{Base, Pointer, Tombstone, keys};
use crate::store::{Expect, Item, Op, Stored};

/// What became of a step before it reached the store. What is rare is in a box: it is handed on once for every key.
pub enum Ready {
    /// A write with its intent.
    Write(Box<Write>),
    /// The store is right; only state learns something.
    Settled {
        scope: Scope,
        how: Settled,
        items: Vec<Item>,
        note: Option<String>,
    },
    /// Present but unusable.
    Parked {
        entry: String,
        parked: Box<Parked>,
    },
    /// `scanned` = it was seen at the source, and counted there.
    Failed {
        scope: Scope,
        scanned: bool,
        fault: Box<Fault>,
    },
    Held(Box<HeldItem>),
    /// Something a person should know; nothing comes of it.
    Remark(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Unchanged,
    Skipped,
    /// Gone from the source, and there is nothing left to mark.
    Missing,
    /// Nobody has it, or asks for it, any more.
    Forgotten,
}

pub struct Write {
    pub scope: Scope,
    pub intent: Intent,
    pub op: Op,
    pub expect: Expect,
    /// What the source says; `None` when it has nothing.
    pub stamp: Option<Fingerprint>,
    /// It is gone from the source and kept, marked.
    pub missing: bool,
    pub pointer: Pointer,
    /// Large prior values, written before the intent that names them.
    pub blob: Option<Box<Item>>,
    /// The document itself, for an export that must not ask the source again; written along with the intent.
    pub body: Option<Box<Item>>,
    /// State items that go along when it lands.
    pub release: Vec<Item>,
    /// What a system keeps beside it in the store.
    pub beside: Beside,
    /// The entry it comes from.
    pub entry: Option<String>,
}

impl Write {
    /// What the store is asked for.
    pub fn item(&self) -> Item {
        Item { key: self.intent.key().to_owned(), op: self.op.clone(), expect: self.expect.clone() }
    }

    /// The change as something a person must decide on.
    pub fn held(&self, rule: &str, foreign: bool) -> HeldItem {
        HeldItem {
            identity: self.intent.identity.clone(),
            key: self.intent.key().to_owned(),
            change: self.intent.change,
            rule: rule.to_owned(),
            scope: self.scope.to_string(),
            stamp: self.stamp,
            foreign,
        }
    }
}

/// Turns steps into writes, a batch at a time. A pass renders them from the source, an undo from the journal.
pub trait Prepare: Sync {
    type Step: for<'de> serde::Deserialize<'de> + Send;

    /// Deletes come after puts.
    fn is_delete(step: &Self::Step) -> bool;

    /// Bytes the step brings along, so that a batch stays within memory.
    fn bytes(_step: &Self::Step) -> usize {
        0
    }

    /// A step with what it needs from the source.
    type Draft: Send;

    /// Get what these steps need. Those that would be too much for memory stay; the first never does.
    fn fetch(
        &self,
        steps: Vec<Self::Step>,
    ) -> impl Future<Output = (VecDeque<Self::Draft>, Vec<Self::Step>)> + Send;

    /// As many of the first as fit into memory with what the store holds; at least one. An error ends the run; what is
    /// wrong with one step is in its own answer.
    fn batch(
        &self,
        number: u32,
        drafts: &mut VecDeque<Self::Draft>,
    ) -> impl Future<Output = Result<Vec<Ready>>> + Send;
}

/// Every write learns its place in the journal.
pub async fn number(line: &Pipeline, run: &str, batch: u32, ready: &mut [Ready]) -> Result<()> {
    let run: Arc<str> = run.into();
    let mut ends = Vec::new();
    for (index, write) in (0u32..).zip(writes(ready)) {
        write.pointer = Pointer { run: run.clone(), batch, index };
        match &mut write.intent.next {
            // It is where it is told.
            Some(next) => next.base.written = Pointer::unset(),
            None if write.intent.retire => {}
            None => ends.push(write),
        }
    }
    earlier_lives(line, &mut ends).await
}

fn writes(ready: &mut [Ready]) -> impl Iterator<Item = &mut Write> {
    ready.iter_mut().filter_map(|one| match one {
        Ready::Write(write) => Some(&mut **write),
        _ => None,
    })
}

/// A key may be deleted, come back and be deleted again. The new tombstone takes the place of the old one, so the
/// delete remembers where that one pointed.
async fn earlier_lives(line: &Pipeline, ends: &mut [&mut Write]) -> Result<()> {
    if ends.is_empty() {
        return Ok(());
    }
    let stones: Vec<String> =
        ends.iter().map(|write| keys::tombstone(&line.name, &write.intent.identity)).collect();
    let found = line.state.read_each::<Tombstone>(&stones).await?;
    for (write, stone) in ends.iter_mut().zip(found) {
        write.intent.earlier = stone.map(|stone| stone.written);
    }
    Ok(())
}

/// What is fixed for the run while batches are prepared.
pub struct Preparer<'a> {
    pub line: &'a Pipeline,
    pub run: &'a str,
    pub decisions: &'a HashMap<String, Decision>,
    pub approved: &'a HashMap<String, HeldItem>,
    pub parked: &'a HashMap<String, Parked>,
    pub failing: &'a HashMap<String, Failing>,
    /// What values in the store weigh.
    pub(super) priors_weigh: Lately,
    /// Whether the store holds rows that are not its own yet. Asked for when it first matters.
    pub(super) unlisted: OnceCell<bool>,
}

impl Prepare for Preparer<'_> {
    /// Large, and handed on from one to the next.
    type Step = Box<Step>;

    fn is_delete(step: &Self::Step) -> bool {
        step.change() == Some(Change::Delete)
    }

    fn bytes(step: &Self::Step) -> usize {
        step.entry.as_ref().and_then(|entry| entry.inline.as_ref()).map_or(0, Bytes::len)
    }

    type Draft = Drafted;

    async fn fetch(&self, steps: Vec<Box<Step>>) -> (VecDeque<Drafted>, Vec<Box<Step>>) {
        self.drafts(steps).await
    }

    /// Render every step, fetch prior values together, and build the writes.
    async fn batch(&self, batch: u32, drafts: &mut VecDeque<Drafted>) -> Result<Vec<Ready>> {
        self.render(drafts).await;
        let (mut priors, count) = self.priors(drafts).await?;
        let mut ready = Vec::with_capacity(count);
        for draft in drafts.drain(..count) {
            match draft {
                Drafted::Absent(_) | Drafted::Body(..) => return Err(Error::bug("a step was not rendered")),
                Drafted::Done(one) => ready.push(one),
                Drafted::Delete(step) => {
                    let prior = priors.remove(&step.key(self.line.shape.key_prefix())?);
                    ready.push(self.delete(step, prior)?);
                }
                Drafted::Put(draft) => {
                    // The old key goes only with a new one to take its place.
                    let prior = priors.remove(&draft.output.key);
                    let retired = self.retire(&draft.step, &draft.output, &mut priors)?;
                    if let Some(text) = &draft.remark {
                        ready.push(remark(rendered_from(&draft.step, draft.entry.as_deref())?, text));
                    }
                    self.put(*draft, prior, &mut ready)?;
                    let kept = matches!(ready.last(), Some(Ready::Held(_)));
                    ready.extend(retired.into_iter().filter(|_| !kept));
                }
            }
        }
        number(self.line, self.run, batch, &mut ready).await?;
        Ok(ready)
    }
}

impl<'a> Preparer<'a> {
    pub(super) fn of(line: &'a Pipeline, run: &'a str, past: &'a Past) -> Self {
        Preparer {
            line,
            run,
            decisions: &past.decisions,
            approved: &past.approved,
            parked: &past.parked,
            failing: &past.failing,
            priors_weigh: Lately::default(),
            unlisted: OnceCell::new(),
        }
    }
}

impl Preparer<'_> {
    fn retire(
        &self,
        step: &Step,
        output: &Output,
        priors: &mut HashMap<String, Stored>,
    ) -> Result<Vec<Ready>> {
        let old =
            Self::old_keys(step, output)?.into_iter().filter_map(|key| Some((priors.remove(&key)?, key)));
        Ok(old
            .map(|(prior, key)| {
                let intent = Intent {
                    change: Change::Delete,
                    retire: true,
                    lift: false,
                    ..self.intent(step.identity.clone(), key, None)
                };
                self.write(step, entry_id(step), intent, Op::Delete, Some(prior))
            })
            .collect())
    }

    /// May a new entry take over what is already under its key?
    pub(super) fn may_replace(&self, identity: &str) -> bool {
        weigh::may_replace(self.line, self.decisions, identity)
    }

    fn delete(&self, step: Box<Step>, prior: Option<Stored>) -> Result<Ready> {
        let known = step.base()?;
        if let Some((_, base)) = known
            && let Some(held) = self.edited_before_delete(&step, base, prior.as_ref())?
        {
            return Ok(Ready::Held(Box::new(held)));
        }
        let key = step.key(self.line.shape.key_prefix())?;
        let intent = self.intent(step.identity.clone(), key, prior_base(known));
        let intent = Intent { change: Change::Delete, ..intent };
        Ok(self.write(&step, entry_id(&step), intent, Op::Delete, prior))
    }

    pub(super) fn intent(&self, identity: String, key: String, before: Option<Box<PriorBase>>) -> Intent {
        Intent {
            lift: self.decisions.contains_key(&identity),
            key: (key != identity).then_some(key),
            identity,
            change: Change::Add,
            bytes: None,
            next: None,
            prior: None,
            prior_fingerprint: None,
            prior_version: None,
            prior_base: before,
            retire: false,
            then: self.line.follow_ups(),
            decision: None,
            still_new: false,
            earlier: None,
        }
    }

    /// `entry` is the one it comes from.
    pub(super) fn write(
        &self,
        step: &Step,
        entry: Option<String>,
        intent: Intent,
        op: Op,
        prior: Option<Stored>,
    ) -> Ready {
        let release =
            if intent.retire { Vec::new() } else { self.unpark(entry.as_deref(), &intent.identity) };
        let mut write = conditional(&self.line.name, self.run, intent, op, prior);
        // A look before the write proves nothing where reads are late; what the shape owns is simply written.
        if self.is_accounted_for() && self.may_replace(&write.intent.identity) {
            write.expect = Expect::Anything;
        }
        // A conflict is held under the content where that is compared, like everything a person decides about.
        let content = write
            .intent
            .next
            .as_ref()
            .map(|next| next.base.fingerprint)
            .filter(|_| self.line.compares_content());
        write.stamp = step.stamp.map(|stamp| content.unwrap_or(stamp));
        write.missing = matches!(step.action, Action::Change(Change::Update, super::plan::Why::Absent));
        write.scope = step.scope.clone();
        write.release = release;
        write.entry = entry;
        Ready::Write(write)
    }

    /// Somebody changed the value since we wrote it, and the config does not let us overwrite that.
    pub(super) fn edited(
        &self,
        step: &Step,
        base: &Base,
        prior: Option<&Stored>,
    ) -> Result<Option<HeldItem>> {
        if self.line.drift.edited == Heal::Heal || is_approved(self.approved, step) || !is_edited(base, prior)
        {
            return Ok(None);
        }
        held_item(self.line, step, "edited in the store, and `drift.edited` says to leave it", false)
    }

    /// What somebody else put there is never deleted along with what we wrote.
    fn edited_before_delete(
        &self,
        step: &Step,
        base: &Base,
        prior: Option<&Stored>,
    ) -> Result<Option<HeldItem>> {
        let elsewhere =
            || self.line.place.is_other && prior.is_some_and(|prior| prior.version != base.version);
        if self.may_replace(&step.identity) || !(is_edited(base, prior) || elsewhere()) {
            return Ok(None);
        }
        held_item(self.line, step, EDITED, true)
    }

    pub(super) fn keep(&self, step: &Step, entry: &Entry, why: &str) -> Ready {
        let note = (!why.is_empty()).then(|| format!("{}: {why}", step.identity));
        let mut items = Vec::new();
        let mut how = Settled::Skipped;
        if let Ok(Some((_, base))) = step.base() {
            how = Settled::Unchanged;
            let carry = self.line.shape.kept(entry, base.carry.as_ref());
            let base = Base { body: entry.version.clone(), carry, ..base.clone() };
            items.extend(base.item(&self.line.name, &step.identity, self.line.shape.stamp(entry)));
        }
        Ready::Settled { scope: step.scope.clone(), how, items, note }
    }

    /// State items that forget what stood in the way of a step: it was parked or failed, or a person had decided on it.
    pub(super) fn release(&self, step: &Step) -> Vec<Item> {
        let decided =
            self.decisions.get(&step.identity).map(|_| keys::decision(&self.line.name, &step.identity));
        let entry = step.entry.as_ref().map(|entry| entry.id.as_str());
        let mut items = self.unpark(entry, &step.identity);
        items.extend(decided.map(Item::delete));
        items
    }

    fn unpark(&self, entry: Option<&str>, identity: &str) -> Vec<Item> {
        let parked = entry.filter(|id| self.parked.contains_key(*id));
        let mut items: Vec<Item> =
            parked.map(|id| Item::delete(keys::parked_item(&self.line.name, id))).into_iter().collect();
        if self.failing.contains_key(identity) {
            items.extend(failing::forget(&self.line.name, identity));
        }
        items
    }
}

/// The source's own name for what a step is about.
fn entry_id(step: &Step) -> Option<String> {
    step.entry.as_ref().map(|entry| entry.id.clone())
}

/// What was known, for the journal.
pub(super) fn prior_base(known: Option<(Fingerprint, &Base)>) -> Option<Box<PriorBase>> {
    known.map(|(stamp, base)| Box::new(PriorBase { stamp, base: base.clone() }))
}

/// A write on the condition that the store still holds what was read, which goes into the journal.
pub fn conditional(
    pipeline: &str,
    run: &str,
    mut intent: Intent,
    op: Op,
    prior: Option<Stored>,
) -> Box<Write> {
    let mut blob = None;
    let expect = match prior {
        // A delete of something already absent needs no condition: it is already so.
        None if op == Op::Delete => Expect::Anything,
        None => Expect::Absent,
        // What no listing shows is replaced as if there were nothing, and deleted as what it is; only the journal keeps it.
        Some(prior) if prior.version == Version::default() => {
            let (kept, large) = PriorValue::keep(&prior.value, pipeline, run);
            blob = large.map(Box::new);
            (intent.prior, intent.prior_fingerprint) = (Some(kept), prior.fingerprint);
            if op == Op::Delete { Expect::Exactly(prior.version) } else { Expect::Absent }
        }
        Some(prior) => {
            let (kept, large) = PriorValue::keep(&prior.value, pipeline, run);
            blob = large.map(Box::new);
            intent.prior = Some(kept);
            intent.prior_fingerprint = prior.fingerprint;
            intent.prior_version = Some(prior.version.clone());
            Expect::Exactly(prior.version)
        }
    };
    Box::new(Write {
        scope: Scope::default(),
        intent,
        op,
        expect,
        stamp: None,
        missing: false,
        pointer: Pointer::unset(),
        blob,
        body: None,
        release: Vec::new(),
        beside: Beside::default(),
        entry: None,
    })
}

fn is_edited(base: &Base, prior: Option<&Stored>) -> bool {
    prior.is_some_and(|prior| {
        prior.version != base.version && Fingerprint::of(&prior.value) != base.bytes_hash()
    })
}

pub(super) fn remark(entry: &Entry, text: &str) -> Ready {
    Ready::Remark(format!("{}: {text}", entry.id))
}

pub fn park(step: &Step, entry: &Entry, why: String) -> Ready {
    Ready::Parked {
        entry: entry.id.clone(),
        parked: Box::new(Parked {
            identity: step.identity.clone(),
            scope: step.scope.to_string(),
            why,
            shadowed: false,
            unknown: step.base.is_none(),
        }),
    }
}

pub fn fail(step: &Step, error: &Error) -> Ready {
    let fault = Box::new(Fault::of(error).at_key(step.identity.clone()));
    Ready::Failed { scope: step.scope.clone(), scanned: step.entry.is_some(), fault }
}

/// The value of a put.
pub fn value_of(op: &Op) -> Option<&Bytes> {
    match op {
        Op::Put { value, .. } => Some(value),
        Op::Delete | Op::Check => None,
    }
}
