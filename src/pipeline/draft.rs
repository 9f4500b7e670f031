//! A batch's steps with their bodies, and then rendered, before anybody looks at what the store holds. Bodies are asked
//! for together, because some sources can give many at once, and no more of them than memory takes.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;

use super::Pipeline;
use super::cores;
use super::plan::{Action, Seen, Step, Why};
use super::prepare::{Prepare as _, Preparer, Ready, Settled, fail, park};
use super::render::{self, Drawn};
use crate::error::{Error, Result};
use crate::record::{Body, Entry};
use crate::shape::{Absent, Output, Prior, Rendered};
use crate::state::journal::{Change, Intent};
use crate::state::{Base, Pointer, keys};
use crate::store::{Item, Stored};

/// A value on its way, before it is known what is there.
pub struct Draft {
    pub step: Box<Step>,
    pub output: Output,
    /// What it was rendered from, where that is not the step's own.
    pub entry: Option<Box<Entry>>,
    pub body: Option<Body>,
    pub remark: Option<String>,
}

/// The entry a step was rendered from.
pub fn rendered_from<'a>(step: &'a Step, entry: Option<&'a Entry>) -> Result<&'a Entry> {
    entry.map_or_else(|| render::entry_of(step), Ok)
}

/// Bodies in memory at a time, for one batch …
const BODIES_BYTES_MAX: usize = 32 << 20;
/// … and where requests are counted against a limit, so that one takes ten thousand documents of 25 KiB.
const COUNTED_BODIES_BYTES_MAX: usize = 256 << 20;

/// A step on its way to being rendered, before its prior value is known.
pub enum Drafted {
    Put(Box<Draft>),
    Delete(Box<Step>),
    Done(Ready),
    /// Waits for what the store holds.
    Absent(Box<Step>),
    /// With the body it needs, to be rendered.
    Body(Box<Step>, Result<Body>),
}

impl Drafted {
    fn body_bytes(&self) -> usize {
        match self {
            Drafted::Body(_, Ok(body)) => body.bytes.len(),
            _ => 0,
        }
    }
}

/// A step after the first look at it.
enum First {
    Drafted(Drafted),
    /// Waits for its body.
    Body(Box<Step>),
}

impl Preparer<'_> {
    /// One draft per step, in order, with bodies as far as they fit; steps whose bodies did not are left over.
    #[allow(clippy::vec_box)] // they come in boxes, and are handed on in them
    pub(super) async fn drafts(&self, steps: Vec<Box<Step>>) -> (VecDeque<Drafted>, Vec<Box<Step>>) {
        let bytes = steps.iter().map(Self::bytes).sum();
        // Rendered together, rendered at one moment.
        let now = self.line.clock.now();
        let looked_at = cores::map(steps, bytes, |step| self.first(step, now));
        let entries = looked_at.iter().filter_map(|first| match first {
            First::Body(step) => step.entry.as_ref(),
            First::Drafted(_) => None,
        });
        let entries: Vec<&Entry> = entries.collect();
        let source = &self.line.source;
        let bodies = match entries.as_slice() {
            [] => Vec::new(),
            some => source.open_all(some, self.line.concurrency, self.bodies_bytes_max()).await,
        };
        let mut bodies = bodies.into_iter();
        let (mut drafts, mut left) = (VecDeque::with_capacity(looked_at.len()), Vec::new());
        for first in looked_at {
            match first {
                First::Drafted(drafted) => drafts.push_back(drafted),
                First::Body(step) => match bodies.next() {
                    Some(body) => drafts.push_back(Drafted::Body(step, body)),
                    None => left.push(step),
                },
            }
        }
        if drafts.is_empty() && !left.is_empty() {
            let missing = || Err(Error::bug("a source gave no answer for a body"));
            drafts.extend(left.drain(..).map(|step| Drafted::Body(step, missing())));
        }
        (drafts, left)
    }

    fn bodies_bytes_max(&self) -> usize {
        if self.line.store.caps().strong_read { BODIES_BYTES_MAX } else { COUNTED_BODIES_BYTES_MAX }
    }

    /// Everything that waits is rendered.
    pub(super) async fn render(&self, drafts: &mut VecDeque<Drafted>) {
        if !drafts.iter().any(|drafted| matches!(drafted, Drafted::Absent(_) | Drafted::Body(..))) {
            return;
        }
        let bytes = drafts.iter().map(Drafted::body_bytes).sum();
        let now = self.line.clock.now();
        let rendered = cores::map(drafts.drain(..).collect(), bytes, |drafted| match drafted {
            Drafted::Body(step, body) => {
                let rendered = body.and_then(|body| render::with_body(self.line, &step, body, now));
                self.drafted(step, rendered)
            }
            other => other,
        });
        let (mut absent, mut rest) = (Vec::new(), VecDeque::with_capacity(rendered.len()));
        for drafted in rendered {
            match drafted {
                Drafted::Absent(step) => absent.push(step),
                other => rest.push_back(other),
            }
        }
        self.draft_absent(absent, &mut rest).await;
        *drafts = rest;
    }

    /// What can be drafted at once; the rest waits.
    fn first(&self, step: Box<Step>, now: Timestamp) -> First {
        match step.action {
            Action::Change(Change::Delete, _) => First::Drafted(Drafted::Delete(step)),
            Action::Change(Change::Update, Why::Absent) => First::Drafted(Drafted::Absent(step)),
            Action::Restamp if step.entry.is_none() && step.after.is_some() => {
                First::Drafted(Drafted::Done(self.taken_over(&step)))
            }
            Action::Restamp if step.entry.is_none() && step.seen == Seen::Nothing => {
                First::Drafted(Drafted::Absent(step))
            }
            Action::Restamp if step.entry.is_none() => First::Drafted(Drafted::Done(self.forgotten(step))),
            Action::Restamp if step.after.is_some() => First::Drafted(Drafted::Done(self.known_same(&step))),
            Action::Change(..) | Action::Restamp => {
                match render::without_body(self.line, &step, now).transpose() {
                    Some(rendered) => First::Drafted(self.drafted(step, rendered)),
                    None => First::Body(step),
                }
            }
        }
    }

    fn drafted(&self, step: Box<Step>, drawn: Result<Drawn>) -> Drafted {
        let Drawn { rendered, entry, body, remark } = match drawn {
            Ok(drawn) => drawn,
            Err(error) => return Drafted::Done(fail(&step, &error)),
        };
        match rendered {
            Rendered::Put(output) => Drafted::Put(Box::new(Draft { step, output, entry, body, remark })),
            Rendered::Keep(why) => Drafted::Done(match rendered_from(&step, entry.as_deref()) {
                Ok(entry) => self.keep(&step, entry, &why),
                Err(error) => fail(&step, &error),
            }),
            Rendered::Skip(why) => Drafted::Done(match rendered_from(&step, entry.as_deref()) {
                Ok(entry) => park(&step, entry, why),
                Err(error) => fail(&step, &error),
            }),
            Rendered::NeedBody => Drafted::Done(fail(&step, &Error::bug("a body was never given"))),
        }
    }

    /// Planning already read the body and found it unchanged.
    fn known_same(&self, step: &Step) -> Ready {
        match (&step.entry, step.base()) {
            (Some(entry), Ok(Some((_, base)))) => {
                let next = Base { body: entry.version.clone(), scope: step.scope.clone(), ..base.clone() };
                match self.restamp(step, base, &next, self.line.shape.stamp(entry), None) {
                    Ok(ready) => ready,
                    Err(error) => fail(step, &error),
                }
            }
            _ => fail(step, &Error::bug("nothing to compare with")),
        }
    }

    /// It has its mark already, and is known from now on.
    fn taken_over(&self, step: &Step) -> Ready {
        let item = match step.base() {
            Ok(Some((stamp, base))) => base.item(&self.line.name, &step.identity, stamp),
            _ => Err(Error::bug("nothing to take over")),
        };
        match item {
            Ok(item) => {
                let (scope, how) = (step.scope.clone(), Settled::Missing);
                Ready::Settled { scope, how, items: vec![item], note: None }
            }
            Err(error) => fail(step, &error),
        }
    }

    /// Nothing is known of it any more.
    fn forgotten(&self, step: Box<Step>) -> Ready {
        let mut items = vec![Item::delete(keys::base(&self.line.name, &step.identity))];
        items.extend(self.release(&step));
        Ready::Settled { scope: step.scope, how: Settled::Forgotten, items, note: None }
    }

    /// Gone from the source, but the shape keeps them, marked. What the store holds of them is asked for together.
    #[allow(clippy::vec_box)] // they come in boxes, and are handed on in them
    async fn draft_absent(&self, mut steps: Vec<Box<Step>>, drafts: &mut VecDeque<Drafted>) {
        while !steps.is_empty() {
            let (count, stored) = self.stored_of(&steps).await;
            let some: Vec<Box<Step>> = steps.drain(..count).collect();
            match stored {
                Ok(stored) => {
                    let mut told = Told::default();
                    for (step, held) in some.into_iter().zip(stored) {
                        drafts.push_back(self.marked(step, held, &mut told).await);
                    }
                }
                Err(error) => drafts.extend(some.iter().map(|step| Drafted::Done(fail(step, &error)))),
            }
        }
    }

    async fn marked(&self, mut step: Box<Step>, stored: Option<Stored>, told: &mut Told) -> Drafted {
        if step.action == Action::Restamp {
            // It was to be forgotten because no listing shows it. One that is there keeps its mark.
            if stored.is_none() || !self.was_marked(&step) {
                return Drafted::Done(self.forgotten(step));
            }
            step.action = Action::Change(Change::Update, Why::Absent);
        }
        match self.mark_absent(&step, stored, told).await {
            Ok(Some(output)) => {
                let entry = Some(Box::new(Entry::new(step.identity.clone(), &step.scope, "")));
                Drafted::Put(Box::new(Draft { step, output, entry, body: None, remark: None }))
            }
            Ok(None) => {
                // The store does not have it either: there is nothing to remember it by.
                let items = vec![Item::delete(keys::base(&self.line.name, &step.identity))];
                Drafted::Done(Ready::Settled { scope: step.scope, how: Settled::Missing, items, note: None })
            }
            Err(error) => Drafted::Done(fail(&step, &error)),
        }
    }

    fn was_marked(&self, step: &Step) -> bool {
        let known = step.base().ok().flatten();
        known.is_some_and(|(_, base)| self.line.shape.is_missing(&base.prior(&step.identity)))
    }

    async fn mark_absent(
        &self,
        step: &Step,
        stored: Option<Stored>,
        told: &mut Told,
    ) -> Result<Option<Output>> {
        let (Some((_, base)), Some(stored)) = (step.base()?, stored) else { return Ok(None) };
        let prior = base.prior(&step.identity);
        if self.line.shape.is_missing(&prior) {
            return self.marked_before(base, &prior, &stored, told).await;
        }
        Ok(match self.line.shape.absent(&prior, Some(&stored.value), self.line.clock.now()) {
            Absent::Put(output) => Some(output),
            Absent::Delete | Absent::Keep => None,
        })
    }

    /// It was marked already, and somebody changed it. What it was is in the journal; if that is no longer kept, what is
    /// there gets its mark back.
    async fn marked_before(
        &self,
        base: &Base,
        prior: &Prior,
        stored: &Stored,
        told: &mut Told,
    ) -> Result<Option<Output>> {
        let (shape, mut at) = (&self.line.shape, Some(base.written.clone()));
        for _ in 0..CHANGES_MAX {
            let Some(place) = at.filter(|place| !place.is_unset()) else { break };
            let Some(intent) = told.intent(self.line, &place).await? else { break };
            if let Some(before) = &intent.prior {
                let value = before.load(&self.line.state, &self.line.name, &place.run).await?;
                let output = shape.mark_again(prior, &value);
                if let Some(output) = output.filter(|output| output.fingerprint == base.fingerprint) {
                    return Ok(Some(output));
                }
            }
            at = intent.prior_base.as_ref().map(|known| known.base.written.clone());
        }
        Ok(shape.mark_again(prior, &stored.value))
    }
}

/// Changes of one record that are looked back through: somebody may have changed it more than once.
const CHANGES_MAX: usize = 8;

/// The batch of the journal that was read last: neighbours are often in the same.
#[derive(Default)]
struct Told(Option<(Arc<str>, u32, Vec<Intent>)>);

impl Told {
    async fn intent(&mut self, line: &Pipeline, place: &Pointer) -> Result<Option<Intent>> {
        let is_here = |(run, batch, _): &(Arc<str>, u32, _)| *run == place.run && *batch == place.batch;
        if !self.0.as_ref().is_some_and(is_here) {
            let intents = line.state.intents(&line.name, &place.run, place.batch).await?;
            self.0 = Some((place.run.clone(), place.batch, intents.unwrap_or_default()));
        }
        Ok(self.0.as_ref().and_then(|(_, _, intents)| intents.get(place.index as usize)).cloned())
    }
}
