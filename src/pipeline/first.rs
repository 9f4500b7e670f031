//! A first pass over nothing: nothing is known of any entry, nobody ever decided anything, and the store holds nothing of
//! ours. Then nothing can be absent, changed or held, and no order matters: what is found is new and is written at once,
//! while the source is still read.
//!
//! It refuses to guess: one record in the baseline or one key in the store, and everything is read before anything is
//! written.

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::apply::Applier;
use super::past::Past;
use super::plan::Step;
use super::prepare::Preparer;
use super::read::{self, Reading};
use super::{Ask, Pipeline};
use crate::error::{Error, Kind, Result};
use crate::source::Cursors;
use crate::state::{Report, keys};
use crate::store::{Query, SharedStore};

/// Chunks of steps between reading and writing: enough to keep both at work, few enough to bound memory.
const CHUNKS: usize = 4;

/// Whether there is nothing a new entry could be weighed against.
pub async fn is_first(line: &Pipeline, ask: &Ask, past: &Past, cursors: &Cursors) -> Result<bool> {
    let plain = ask.only.is_none() && ask.sealed.is_none() && ask.heal.is_empty() && line.baseline.is_none();
    // Two entries of one identity are told apart by their rank, once both are known.
    let each_once = line.source.names_once() && line.shape.keeps_order() && !line.shape.recalls();
    if !plain || !each_once || !past.is_blank() || !cursors.is_empty() {
        return Ok(false);
    }
    let below = line.shape.key_prefix().unwrap_or_default();
    Ok(is_empty(line.state.store(), &keys::bases(&line.name)).await?
        && (!line.store.caps().cheap_list || is_empty(&line.store, below).await?))
}

async fn is_empty(store: &SharedStore, below: &str) -> Result<bool> {
    Ok(store.list(Query { limit: 1, ..Query::keys(below) }).await?.items.is_empty())
}

/// Read the source and write what it has. What was read before something went wrong is written, and counted.
pub async fn read(applier: &mut Applier<'_, Preparer<'_>>) -> Result<Reading> {
    let (onward, steps) = mpsc::channel(CHUNKS);
    let mut reading = JoinSet::new();
    reading.spawn(read_aside(applier.line.clone(), aside(applier.ask), Onward::to(onward)));
    let written = applier.found(steps).await;
    let read = reading.join_next().await.ok_or_else(|| Error::bug("reading was never begun"))?;
    // A panic in a source is a panic of the pass, wherever it ran.
    let (read, seen) = read.unwrap_or_else(|end| match end.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(end) => (
            Err(Error::bug("reading was broken off").caused_by(end)),
            Report::start(String::new(), "", "", String::new()),
        ),
    });
    applier.report.absorb(seen);
    written.and(read)
}

/// What reading needs to know of what is asked.
fn aside(ask: &Ask) -> Ask {
    Ask { full: ask.full, stop: ask.stop.clone(), ..Ask::plain(ask.trigger) }
}

async fn read_aside(line: Pipeline, ask: Ask, onward: Onward) -> (Result<Reading>, Report) {
    let mut seen = Report::start(String::new(), &line.name, ask.trigger, String::new());
    let read = read::read_onward(&line, &ask, onward, &mut seen).await;
    (read, seen)
}

#[allow(clippy::vec_box)] // they are handed on in their boxes
type Chunk = Vec<Box<Step>>;

/// Steps that are handed on while others are still being found.
pub struct Onward {
    steps: Chunk,
    to: mpsc::Sender<Chunk>,
}

impl Onward {
    fn to(to: mpsc::Sender<Chunk>) -> Self {
        Onward { steps: Chunk::new(), to }
    }

    pub fn push(&mut self, step: Step) {
        self.steps.push(Box::new(step));
    }

    /// An error means that nobody takes them any more: writing ended before reading.
    pub async fn hand_on(&mut self) -> Result<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let steps = std::mem::take(&mut self.steps);
        self.to.send(steps).await.map_err(|_| Error::new(Kind::Canceled, "writing was broken off"))
    }
}
