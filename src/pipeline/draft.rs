//! A batch's steps rendered, before anybody looks at what the store holds. Bodies are asked for together, because
//! some sources can give many at once.

use futures::stream::{self, StreamExt};

use super::cores;
use super::plan::{Action, Step, Why};
use super::prepare::{Prepare as _, Preparer, Ready, Settled, fail, park};
use super::render::{self, Drawn};
use crate::error::{Error, Result};
use crate::record::{Body, Entry};
use crate::shape::{Absent, Output, Rendered};
use crate::state::journal::Change;
use crate::state::{Base, keys};
use crate::store::Item;

/// A value on its way, before it is known what is there.
pub struct Draft {
    pub step: Step,
    pub output: Output,
    pub entry: Entry,
    pub body: Option<Body>,
    pub remark: Option<String>,
}

/// A step after rendering, before its prior value is known.
#[allow(clippy::large_enum_variant)] // one per item of a batch, and soon gone
pub enum Drafted {
    Put(Box<Draft>),
    Delete(Step),
    Done(Ready),
}

/// A step after the first look at it.
enum First {
    Drafted(Drafted),
    /// Waits for what the store holds.
    Absent(Step),
    /// Waits for its body.
    Body(Step),
}

impl Preparer<'_> {
    /// One draft per step, in order.
    pub(super) async fn drafts(&self, steps: Vec<Step>) -> Vec<Drafted> {
        let bytes = steps.iter().map(Self::bytes).sum();
        let (mut absent, mut bodies) = (Vec::new(), Vec::new());
        let mut drafts: Vec<Option<Drafted>> = Vec::with_capacity(steps.len());
        for (at, first) in cores::map(steps, bytes, |step| self.first(step)).into_iter().enumerate() {
            drafts.push(match first {
                First::Drafted(drafted) => Some(drafted),
                First::Absent(step) => {
                    absent.push((at, step));
                    None
                }
                First::Body(step) => {
                    bodies.push((at, step));
                    None
                }
            });
        }
        let absent =
            stream::iter(absent).map(|(at, step)| async move { (at, self.draft_absent(step).await) });
        for (at, draft) in absent.buffered(self.line.concurrency).collect::<Vec<_>>().await {
            drafts[at] = Some(draft);
        }
        for (at, draft) in self.draft_with_bodies(bodies).await {
            drafts[at] = Some(draft);
        }
        drafts.into_iter().flatten().collect()
    }

    /// What can be drafted at once; the rest waits.
    fn first(&self, step: Step) -> First {
        match step.action {
            Action::Change(Change::Delete, _) => First::Drafted(Drafted::Delete(step)),
            Action::Change(Change::Update, Why::Absent) => First::Absent(step),
            Action::Restamp if step.after.is_some() => First::Drafted(Drafted::Done(self.known_same(&step))),
            Action::Change(..) | Action::Restamp => {
                match render::without_body(self.line, &step).transpose() {
                    Some(rendered) => First::Drafted(self.drafted(step, rendered)),
                    None => First::Body(step),
                }
            }
        }
    }

    async fn draft_with_bodies(&self, steps: Vec<(usize, Step)>) -> Vec<(usize, Drafted)> {
        let entries: Vec<&Entry> = steps.iter().filter_map(|(_, step)| step.entry.as_ref()).collect();
        if entries.is_empty() {
            return Vec::new();
        }
        let bodies = self.line.source.open_all(&entries, self.line.concurrency).await;
        let bytes = bodies.iter().flatten().map(|body| body.bytes.len()).sum();
        let missing = || Err(Error::bug("a source gave no answer for a body"));
        let bodies = bodies.into_iter().chain(std::iter::repeat_with(missing));
        cores::map(steps.into_iter().zip(bodies).collect(), bytes, |((at, step), body)| {
            let rendered = body.and_then(|body| render::with_body(self.line, &step, body));
            (at, self.drafted(step, rendered))
        })
    }

    fn drafted(&self, step: Step, drawn: Result<Drawn>) -> Drafted {
        let Drawn { rendered, entry, body, remark } = match drawn {
            Ok(drawn) => drawn,
            Err(error) => return Drafted::Done(fail(&step, &error)),
        };
        match rendered {
            Rendered::Put(output) => Drafted::Put(Box::new(Draft { step, output, entry, body, remark })),
            Rendered::Keep(why) => Drafted::Done(self.keep(&step, &entry, &why)),
            Rendered::Skip(why) => Drafted::Done(park(&step, &entry, why)),
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

    /// Gone from the source, but the shape keeps it, marked.
    async fn draft_absent(&self, step: Step) -> Drafted {
        match self.mark_absent(&step).await {
            Ok(Some(output)) => {
                let entry = Entry::new(step.identity.clone(), &step.scope.as_str().into(), "");
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

    async fn mark_absent(&self, step: &Step) -> Result<Option<Output>> {
        let Some((_, base)) = step.base()? else { return Ok(None) };
        let stored = self.line.store.get(&[base.key(&step.identity)]).await?.pop().flatten();
        let Some(stored) = stored else { return Ok(None) };
        let prior = base.prior(&step.identity);
        Ok(match self.line.shape.absent(&prior, Some(&stored.value), self.line.clock.now()) {
            Absent::Put(output) => Some(output),
            Absent::Delete | Absent::Keep => None,
        })
    }
}
