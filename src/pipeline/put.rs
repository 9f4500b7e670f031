//! A value on its way into the store, against what is there: left alone, taken over, held or written.

use std::mem::take;

use super::Pipeline;
use super::draft::{Draft, rendered_from};
use super::hold::held_item;
use super::plan::{Action, Seen, Step};
use super::prepare::{Preparer, Ready, Settled, prior_base, remark};
use crate::config::Heal;
use crate::error::Result;
use crate::queue::{self, Task};
use crate::record::{Body, Entry, Fingerprint, Version};
use crate::shape::{Existing, Output, Reconciled};
use crate::state::held::HeldItem;
use crate::state::journal::{Change, Exact, Intent, PriorBase};
use crate::state::{Base, Pointer, keys};
use crate::store::{Item, Op, Stored};

impl Preparer<'_> {
    /// Stock was taken of a store that shows its keys late: what was not in it is new, and looking again tells less.
    pub(super) fn is_accounted_for(&self) -> bool {
        self.line.shape.recalls() && !self.line.store.caps().strong_read
    }

    pub(super) fn put(&self, draft: Draft, prior: Option<Stored>, ready: &mut Vec<Ready>) -> Result<()> {
        let Draft { step, output, entry: rendered, body, .. } = draft;
        let entry = rendered_from(&step, rendered.as_deref())?;
        let known = step.base()?;
        if let Some((_, base)) = known
            && base.key(&step.identity) == output.key
            && self.is_in_place(&step, base, &output, prior.as_ref())
        {
            let stamp = self.stamp(&step, entry, &output);
            let next = self.next(&step, entry.version.clone(), &output);
            ready.push(self.restamp(&step, base, &next, stamp, prior)?);
            return Ok(());
        }
        let output = match &prior {
            None => output,
            Some(stored) => {
                let before = known.map(|(_, base)| base.prior(&step.identity));
                let now = self.line.clock.now();
                match self.line.shape.reconcile(output, &stored.value, before.as_ref(), now) {
                    Reconciled::Keep(output) => {
                        ready.push(self.adopt(&step, entry, &output, stored, body.as_ref())?);
                        return Ok(());
                    }
                    Reconciled::Write(output, note) => {
                        ready.extend(note.map(|text| remark(entry, &text)));
                        output
                    }
                }
            }
        };
        ready.push(self.change(step, rendered, output, body, prior)?);
        Ok(())
    }

    /// What is there says the same: it is ours from now on, as it is.
    fn adopt(
        &self,
        step: &Step,
        entry: &Entry,
        output: &Output,
        stored: &Stored,
        body: Option<&Body>,
    ) -> Result<Ready> {
        let known = step.base()?.is_some();
        let mut next = self.next(step, entry.version.clone(), output);
        if stored.value != output.value {
            // It stays as it is, and is not what this entry would make of it.
            next.fingerprint = Fingerprint::of(&stored.value);
            next.carry = self.line.shape.unlike(next.carry);
        }
        let mut ready = self.take_over(step, next, self.stamp(step, entry, output), stored)?;
        if let Ready::Settled { items, .. } = &mut ready
            && !known
        {
            items.extend(self.follow_up_on(step, output, stored, body)?);
        }
        Ok(ready)
    }

    /// Work for a key that is right already, and of which the state knew nothing: it may have been written, and its work
    /// left undone, after the state was last saved. Nothing is done twice that would be heard twice.
    fn follow_up_on(
        &self,
        step: &Step,
        output: &Output,
        stored: &Stored,
        body: Option<&Body>,
    ) -> Result<Vec<Item>> {
        let (line, bytes) = (self.line, Some(Fingerprint::of(&stored.value)));
        let write = Pointer { run: self.run.into(), ..Pointer::unset() };
        let task = Task::new(output.key.clone(), Change::Add, bytes, write, line.clock.now());
        let mut items = Vec::new();
        for then in line.then.iter().filter(|then| then.repeats()) {
            items.extend(queue::enqueue(&line.name, &then.name, &step.identity, &task)?);
        }
        if let Some(records) = &line.records {
            items.extend(records.doubts(line, &step.identity)?);
        }
        let body = body.filter(|_| line.keeps_bodies());
        items.extend(body.and_then(|body| waiting_body(line, &step.identity, output, body)));
        Ok(items)
    }

    /// Absence has a stamp of its own: the shape's mark, not the source's.
    fn stamp(&self, step: &Step, entry: &Entry, output: &Output) -> Fingerprint {
        match (&step.entry, step.stamp) {
            (Some(seen), Some(stamp)) if seen.version == entry.version => stamp,
            (Some(_), _) => self.line.shape.stamp(entry),
            (None, _) => output.fingerprint,
        }
    }

    /// What the baseline becomes, of this version of the body.
    fn next(&self, step: &Step, body: String, output: &Output) -> Base {
        let bytes = (!self.line.shape.prints_bytes()).then(|| Fingerprint::of(&output.value));
        Base {
            version: Version(String::new()),
            fingerprint: output.fingerprint,
            bytes: bytes.filter(|bytes| *bytes != output.fingerprint),
            scope: step.scope.clone(),
            body,
            key: (output.key != step.identity).then(|| output.key.clone()),
            carry: output.carry.clone(),
            written: Pointer::unset(),
        }
    }

    /// The step is taken apart for it: there is one for every new row, and what it is made of need not be copied.
    fn change(
        &self,
        mut step: Box<Step>,
        rendered: Option<Box<Entry>>,
        output: Output,
        body: Option<Body>,
        mut prior: Option<Stored>,
    ) -> Result<Ready> {
        let (entry, known) = (rendered_from(&step, rendered.as_deref())?, step.base()?);
        let stamp = self.stamp(&step, entry, &output);
        if let Some((_, base)) = known {
            let same_key = base.key(&step.identity) == output.key;
            let stands = if same_key {
                self.edited(&step, base, prior.as_ref())?
            } else {
                self.taken(&step, &output, prior.as_ref())?
            };
            if let Some(held) = stands {
                return Ok(Ready::Held(Box::new(held)));
            }
        } else if let Some(there) = &prior {
            let listed = there.version != Version::default();
            if listed && (there.value == output.value || self.line.shape.existing() == Existing::Skip) {
                return self.adopt(&step, entry, &output, there, body.as_ref());
            }
            // Somebody else's: the condition that nothing is there will say so.
            prior = prior.filter(|_| self.may_replace(&step.identity));
        }
        let waits = body.filter(|_| self.line.keeps_bodies());
        let body = waits.and_then(|body| waiting_body(self.line, &step.identity, &output, &body));
        let change = if known.is_some() || prior.is_some() { Change::Update } else { Change::Add };
        let before = prior_base(known);
        let (id, seen) =
            step.entry.as_mut().map(|entry| (take(&mut entry.id), take(&mut entry.version))).unzip();
        let version = rendered.map(|entry| entry.version).or(seen).unwrap_or_default();
        let next = self.next(&step, version, &output);
        let op = Op::Put { value: output.value, fingerprint: Some(output.fingerprint) };
        let intent = Intent {
            change,
            bytes: Some(Exact::AsNext),
            next: Some(Box::new(PriorBase { stamp, base: next })),
            ..self.intent(take(&mut step.identity), output.key, before)
        };
        let mut ready = self.write(&step, id, intent, op, prior);
        if let Ready::Write(write) = &mut ready {
            write.body = body.map(Box::new);
        }
        Ok(ready)
    }

    /// A new key that already holds what it should: it is ours from now on, without a write.
    fn take_over(&self, step: &Step, next: Base, stamp: Fingerprint, there: &Stored) -> Result<Ready> {
        let bytes = Fingerprint::of(&there.value);
        let bytes = (bytes != next.fingerprint).then_some(bytes);
        let base = Base { version: there.version.clone(), bytes, ..next };
        let mut items = vec![base.item(&self.line.name, &step.identity, stamp)?];
        items.extend(self.release(step));
        Ok(Ready::Settled { scope: step.scope.clone(), how: Settled::Unchanged, items, note: None })
    }

    /// The record moves to a key that holds something else.
    fn taken(&self, step: &Step, output: &Output, prior: Option<&Stored>) -> Result<Option<HeldItem>> {
        let theirs = prior.is_some_and(|prior| prior.value != output.value);
        if !theirs || self.may_replace(&step.identity) {
            return Ok(None);
        }
        let held = held_item(self.line, step, "foreign: the key holds something trueup did not write", true)?;
        Ok(held.map(|held| HeldItem { key: output.key.clone(), ..held }))
    }

    /// The store already holds what would be written, and we know it.
    fn is_in_place(&self, step: &Step, base: &Base, output: &Output, prior: Option<&Stored>) -> bool {
        let unchanged = base.fingerprint == output.fingerprint && base.key(&step.identity) == output.key;
        // A drift was seen in the value itself: then the version alone proves nothing.
        let drift = matches!(step.action, Action::Change(_, super::plan::Why::Drift));
        // The store itself says that what it lists is not what it holds: writing it anew puts that right.
        if drift && matches!((&step.seen, prior), (Seen::At(seen), Some(prior)) if *seen != prior.version) {
            return false;
        }
        // What no listing shows is to be written even if it says the same: then it is shown.
        if prior.is_some_and(|prior| prior.version == Version::default()) {
            return false;
        }
        let by_version = !drift;
        let intact = prior.is_some_and(|prior| {
            (by_version && prior.version == base.version)
                || Fingerprint::of(&prior.value) == base.bytes_hash()
        });
        let adopted =
            step.action == Action::Restamp && self.line.drift.edited == Heal::Adopt && prior.is_some();
        unchanged && (intact || adopted)
    }

    pub(super) fn restamp(
        &self,
        step: &Step,
        base: &Base,
        next: &Base,
        stamp: Fingerprint,
        prior: Option<Stored>,
    ) -> Result<Ready> {
        let base = Base {
            version: prior.map_or_else(|| base.version.clone(), |prior| prior.version),
            body: next.body.clone(),
            scope: next.scope.clone(),
            carry: next.carry.clone(),
            ..base.clone()
        };
        let mut items = vec![base.item(&self.line.name, &step.identity, stamp)?];
        items.extend(self.release(step));
        let how = if step.entry.is_some() { Settled::Unchanged } else { Settled::Missing };
        Ok(Ready::Settled { scope: step.scope.clone(), how, items, note: None })
    }
}

/// A document in the state, until its export is done. The fingerprint tells which version of it this is.
fn waiting_body(line: &Pipeline, identity: &str, output: &Output, body: &Body) -> Option<Item> {
    let mark = line.shape.body_mark(&output.value)?;
    Some(Item::put(keys::body(&line.name, identity), body.bytes.clone()).with_fingerprint(mark))
}
