//! Exports of documents: the row is in the store, the document waits in the state (or lies in the target already, when
//! only its row changed). One that is kept no longer, because its export was done once and an undo brings it back, is
//! asked for at the source, by the version its row names.

use super::Task;
use super::effect::{CONCURRENCY, Done};
use super::work::Worker;
use crate::error::{Error, Fault, Kind, Result};
use crate::record::{Body, Entry, Fingerprint};
use crate::shape::{Input, Recalled, Rendered};
use crate::state::journal::Change;
use crate::state::keys;
use crate::store::{Item, StoreExt, Stored};

/// What an export comes to before it is written.
pub enum Ready {
    Write(Item),
    /// There is nothing to write any more.
    Nothing,
    /// It cannot be done, or not now.
    Not(Done),
}

/// An export that is to be made ready.
pub struct Job<'a> {
    pub task: &'a Task,
    /// The key in the target …
    pub name: String,
    /// … and what it holds there.
    pub there: Option<&'a Stored>,
    /// What the store holds under the task's key.
    pub row: Option<Stored>,
}

enum Looked {
    Ready(Ready),
    /// Only the source can have the document.
    Missing(Missing),
}

struct Missing {
    name: String,
    identity: String,
    row: Stored,
    entry: Entry,
}

/// Bodies asked for together; what an export writes together is in memory anyway.
const BYTES_MAX: usize = 32 << 20;

/// One answer per job, in order.
pub async fn ready(worker: &Worker, jobs: Vec<Job<'_>>) -> Result<Vec<Ready>> {
    let mut looked = Vec::with_capacity(jobs.len());
    for job in jobs {
        looked.push(look(worker, job).await?);
    }
    let missing = looked.iter().filter_map(|one| match one {
        Looked::Missing(missing) => Some(&missing.entry),
        Looked::Ready(_) => None,
    });
    let mut found = found(worker, &missing.collect::<Vec<_>>()).await.into_iter();
    let ready = looked.into_iter().map(|one| match one {
        Looked::Ready(ready) => ready,
        Looked::Missing(missing) => {
            composed(worker, missing, found.next().unwrap_or_else(|| Err(unanswered())))
        }
    });
    Ok(ready.collect())
}

async fn look(worker: &Worker, job: Job<'_>) -> Result<Looked> {
    let Job { task, name, there, row } = job;
    if task.change == Change::Delete {
        return Ok(Looked::Ready(Ready::Write(Item::delete(name))));
    }
    // A store that shows its writes late is asked again rather than believed.
    let late = !worker.store.caps().strong_read;
    let told = |row: &Stored| task.bytes.is_none_or(|bytes| bytes == Fingerprint::of(&row.value));
    let current = row.as_ref().is_some_and(told);
    let Some(row) = row.filter(|_| current || !late) else {
        return Ok(Looked::Ready(if late {
            Ready::Not(Done::HandedBack(Fault::of(&not_yet(worker))))
        } else {
            Ready::Nothing
        }));
    };
    let (shape, now) = (&worker.shape, worker.clock.now());
    let identity = shape.claims(&task.key).unwrap_or_else(|| task.key.clone());
    let body = worker.state.store().get_one(&keys::body(&worker.pipeline, &identity)).await?;
    let body = body.filter(|body| body.fingerprint == shape.body_mark(&row.value));
    let (document, object) = (body.as_ref().map(|body| &*body.value), there.map(|there| &*there.value));
    Ok(match shape.export(&row.value, document, object, now) {
        Ok(Some(value)) => Looked::Ready(Ready::Write(Item::put(name, value))),
        Ok(None) => match shape.recall(&task.key, &row.value, now) {
            Some(Recalled::Current { entry, .. }) => Looked::Missing(Missing { name, identity, row, entry }),
            _ => Looked::Ready(Ready::Not(Done::Hopeless(Fault::of(&lost())))),
        },
        Err(error) => Looked::Ready(Ready::Not(Done::Failed(Fault::of(&error)))),
    })
}

/// What the source has of these, one answer each.
async fn found(worker: &Worker, entries: &[&Entry]) -> Vec<Result<Body>> {
    let mut bodies = Vec::with_capacity(entries.len());
    let Some(source) = &worker.source else { return bodies };
    while bodies.len() < entries.len() {
        let some = source.open_all(&entries[bodies.len()..], CONCURRENCY, BYTES_MAX).await;
        if some.is_empty() {
            break;
        }
        bodies.extend(some);
    }
    bodies
}

fn composed(worker: &Worker, missing: Missing, body: Result<Body>) -> Ready {
    let body = match body {
        Ok(body) => body,
        // That says nothing about the document, and the next one may be had.
        Err(error) if error.kind().is_systemic() => return Ready::Not(Done::Waits(Fault::of(&error))),
        Err(error) => return Ready::Not(Done::Hopeless(Fault::of(&lost().caused_by(error)))),
    };
    if !is_of(worker, &missing, &body) {
        return Ready::Not(Done::Hopeless(Fault::of(&lost())));
    }
    match worker.shape.export(&missing.row.value, Some(&body.bytes), None, worker.clock.now()) {
        Ok(Some(value)) => Ready::Write(Item::put(missing.name, value)),
        Ok(None) => Ready::Not(Done::Hopeless(Fault::of(&lost()))),
        Err(error) => Ready::Not(Done::Failed(Fault::of(&error))),
    }
}

/// Whether this is the document the row speaks of: it would come to a row that speaks of the same. A folder has no
/// versions to ask for, and gives what is there now.
fn is_of(worker: &Worker, missing: &Missing, body: &Body) -> bool {
    let shape = &worker.shape;
    let entry = Entry { version: body.version.clone(), ..missing.entry.clone() };
    let (identity, now) = (missing.identity.as_str(), worker.clock.now());
    match shape.render(&Input { entry: &entry, identity, body: Some(body), prior: None, now }) {
        Ok(Rendered::Put(output)) => shape.body_mark(&output.value) == shape.body_mark(&missing.row.value),
        _ => false,
    }
}

fn lost() -> Error {
    Error::new(Kind::NotFound, "the document is no longer kept, and its source does not have it any more")
        .remedy_is("Bring the document back at its source, or change it there; then `trueup dead retry`.")
}

fn unanswered() -> Error {
    Error::bug("a source gave no answer for a body")
}

fn not_yet(worker: &Worker) -> Error {
    let message = format!("{} does not show what was written yet", worker.store.name());
    Error::new(Kind::Unavailable, message).remedy_is("Nothing to do: the next run exports it.")
}
