//! The writes that reverse those of a run. What they put back comes from its journal; what state says now is what the next
//! reader of the journal finds before them.

use std::collections::VecDeque;

use super::Pipeline;
use super::prepare::{Prepare, Ready, conditional, number};
use super::priors;
use super::undo::{CHANGED, Reverse, Standing};
use crate::error::{Error, Kind, Result};
use crate::portion::{Lately, Portion};
use crate::record::Fingerprint;
use crate::state::held::{Decision, HeldItem, SYNC, Verdict};
use crate::state::journal::{Change, Exact, Intent, PriorBase};
use crate::state::{Base, decode, keys};
use crate::store::{Op, StoreExt, Stored};

/// Turns journal places into the writes that reverse them.
pub(super) struct Reverser<'a> {
    line: &'a Pipeline,
    run: &'a str,
    undo_run: String,
    /// A person has seen what it does.
    approved: bool,
    /// What the last pass held.
    held: Option<String>,
    values_weigh: Lately,
}

/// What state says of an identity now.
#[derive(Default)]
struct Now {
    base: Option<PriorBase>,
    gone: bool,
    decision: Option<Decision>,
    held: Option<HeldItem>,
}

impl<'a> Reverser<'a> {
    pub async fn of(line: &'a Pipeline, run: &'a str, undo_run: &str, approved: bool) -> Result<Self> {
        let held = line.state.held_header(&line.name, SYNC).await?;
        let (undo_run, held) = (undo_run.to_owned(), held.map(|header| header.plan));
        Ok(Reverser { line, run, undo_run, approved, held, values_weigh: Lately::default() })
    }
}

impl Prepare for Reverser<'_> {
    type Step = Reverse;

    fn is_delete(step: &Reverse) -> bool {
        step.change == Change::Delete
    }

    type Draft = Reverse;

    /// All it needs is in the journal.
    async fn fetch(&self, steps: Vec<Reverse>) -> (VecDeque<Reverse>, Vec<Reverse>) {
        (steps.into(), Vec::new())
    }

    async fn batch(&self, batch: u32, steps: &mut VecDeque<Reverse>) -> Result<Vec<Ready>> {
        let mut portion = Portion::expecting(VALUES_BYTES_MAX, self.values_weigh.each());
        let mut journal = Journal::default();
        let mut ready = Vec::with_capacity(steps.len());
        while !steps.is_empty() && portion.room() > 0 {
            let some: Vec<Reverse> = steps.drain(..steps.len().min(portion.room())).collect();
            let keys: Vec<&str> = some.iter().map(|step| step.key.as_str()).collect();
            let stored = priors::stored(&*self.line.store, &keys).await?;
            let known = self.now(&some).await?;
            for ((step, stored), now) in some.iter().zip(stored).zip(known) {
                let intent = journal.intent(self, step).await?;
                let there = stored.as_ref().map_or(0, |stored| stored.value.len());
                let one = self.one(step, intent, stored, now).await?;
                portion.add(there + value_bytes(&one));
                ready.push(one);
            }
        }
        self.values_weigh.learn(&portion);
        number(self.line, &self.undo_run, batch, &mut ready).await?;
        Ok(ready)
    }
}

/// Values in memory at a time: what is there, and what comes back.
const VALUES_BYTES_MAX: usize = 32 << 20;

fn value_bytes(ready: &Ready) -> usize {
    match ready {
        Ready::Write(write) => super::prepare::value_of(&write.op).map_or(0, bytes::Bytes::len),
        _ => 0,
    }
}

/// The batch of the journal that was read last.
#[derive(Default)]
struct Journal(Option<(u32, Vec<Intent>)>);

impl Journal {
    async fn intent(&mut self, of: &Reverser<'_>, step: &Reverse) -> Result<&Intent> {
        if self.0.as_ref().is_none_or(|(number, _)| *number != step.batch) {
            let intents = of.line.state.intents(&of.line.name, of.run, step.batch).await?;
            self.0 = Some((step.batch, intents.unwrap_or_default()));
        }
        let intent = self.0.as_ref().and_then(|(_, intents)| intents.get(step.index as usize));
        intent.ok_or_else(|| Error::new(Kind::Corrupt, "the journal changed while it was read"))
    }
}

impl Reverser<'_> {
    async fn now(&self, steps: &[Reverse]) -> Result<Vec<Now>> {
        let name = &self.line.name;
        let plan = self.held.as_deref().unwrap_or_default();
        let keys: Vec<[String; 4]> = steps
            .iter()
            .map(|step| &step.identity)
            .map(|id| {
                let held = keys::held_item(name, plan, id);
                [keys::base(name, id), keys::tombstone(name, id), keys::decision(name, id), held]
            })
            .collect();
        let names: Vec<&str> = keys.iter().flatten().map(String::as_str).collect();
        let found = self.line.state.store().get(&names).await?;
        let now = |(keys, found): (&[String; 4], &[Option<Stored>])| {
            let base = found[0].as_ref().map(|base| {
                let stamp = base.fingerprint.unwrap_or(Fingerprint([0; 32]));
                decode(&keys[0], &base.value).map(|base| PriorBase { stamp, base })
            });
            let decision = found[2].as_ref().map(|decision| decode(&keys[2], &decision.value));
            let held = found[3].as_ref().filter(|_| self.held.is_some());
            let held = held.map(|held| decode(&keys[3], &held.value));
            let (base, decision, held) = (base.transpose()?, decision.transpose()?, held.transpose()?);
            Ok(Now { base, gone: found[1].is_some(), decision, held })
        };
        keys.iter().zip(found.chunks(4)).map(now).collect()
    }

    async fn one(&self, step: &Reverse, intent: &Intent, stored: Option<Stored>, now: Now) -> Result<Ready> {
        let standing = self.line.standing(self.run, step, intent, stored.as_ref()).await?;
        match standing {
            Standing::AsLeft | Standing::PutBack => {}
            // A person has seen that a later run changed it.
            Standing::Overtaken(_) if self.approved => {}
            Standing::Overtaken(_) | Standing::Changed | Standing::Undone => {
                return Ok(Ready::Held(Box::new(step.held(CHANGED, true))));
            }
        }
        let (op, bytes) = match &intent.prior {
            None => (Op::Delete, None),
            Some(prior) => {
                let value = prior.load(&self.line.state, &self.line.name, self.run).await?;
                let bytes = Fingerprint::of(&value);
                (Op::Put { value, fingerprint: intent.prior_fingerprint }, Some(Exact::Are(bytes)))
            }
        };
        let decision = self.decision(step, intent, &now);
        let lift = decision.is_none();
        let reversed = Intent {
            identity: intent.identity.clone(),
            change: step.change,
            key: intent.key.clone(),
            bytes,
            // The baseline goes back to what it was before the run.
            next: self.known_before(intent).await?.map(Box::new),
            prior: None,
            prior_fingerprint: None,
            prior_version: None,
            prior_base: now
                .base
                .filter(|_| !intent.retire)
                .or_else(|| known_now(intent, stored.as_ref()))
                .map(Box::new),
            retire: intent.retire,
            then: self.line.follow_ups(),
            decision: decision.map(Box::new),
            lift,
            still_new: false,
            earlier: None,
        };
        let mut write = conditional(&self.line.name, &self.undo_run, reversed, op, stored);
        write.scope = step.scope.as_str().into();
        write.stamp = step.stamp;
        Ok(Ready::Write(write))
    }

    /// What is pinned with it: what the source says now, whichever of several runs is undone. Reversing an undo lifts its pin,
    /// unless that is about a later run which stays undone.
    fn decision(&self, step: &Reverse, intent: &Intent, now: &Now) -> Option<Decision> {
        let pinned = |stamp| Decision { verdict: Verdict::Undone, stamp, run: self.run.to_owned() };
        if let Some(undone) = &intent.decision {
            let back = intent.prior_base.as_ref();
            let back = back.and_then(|known| self.line.mark_of(&intent.identity, known));
            return (back != undone.stamp).then(|| pinned(undone.stamp));
        }
        // What is held, or was decided about, is newer than what was written last.
        let said = match (now, &now.base) {
            (Now { held: Some(held), .. }, _) => held.stamp,
            (Now { decision: Some(decision), .. }, _) if decision.verdict != Verdict::Adopted => {
                decision.stamp
            }
            (_, Some(base)) if !intent.retire => self.line.mark_of(&intent.identity, base),
            (_, None) if now.gone => None,
            _ => step.stamp,
        };
        Some(pinned(said))
    }

    /// What the baseline said before the run, as far as it is true of what is put back.
    async fn known_before(&self, intent: &Intent) -> Result<Option<PriorBase>> {
        let Some(mut known) = intent.prior_base.as_deref().cloned() else { return Ok(None) };
        let key = known.base.key(&intent.identity).to_owned();
        if key != intent.key() && !intent.retire {
            // A record that moved is back at its old key by now, in a new version.
            let stored = self.line.store.get_one(&key).await?;
            known.base.version = stored.map_or(known.base.version, |stored| stored.version);
            return Ok(Some(known));
        }
        // The run healed what somebody else had done, and that is back now: the source knows nothing of it.
        let Some(prior) = &intent.prior else { return Ok(None) };
        let restored = prior.sha256()?;
        if restored != known.base.bytes_hash() {
            known.stamp = Fingerprint([0; 32]);
            known.base = Base { fingerprint: restored, bytes: None, ..known.base };
        }
        Ok(Some(known))
    }
}

/// What the baseline says now: what the run left there.
fn known_now(intent: &Intent, stored: Option<&Stored>) -> Option<PriorBase> {
    let mut known = intent.next.as_deref().cloned()?;
    if let Some(stored) = stored {
        known.base.version = stored.version.clone();
    }
    Some(known)
}
