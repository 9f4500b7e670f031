//! Exports of documents: the row is in the store, the document waits in the state (or lies in the target already, when
//! only its row changed). The source is never asked again.

use super::Task;
use super::effect::Done;
use super::work::Worker;
use crate::error::{Error, Fault, Kind, Result};
use crate::state::journal::Change;
use crate::state::keys;
use crate::store::{Item, SharedStore, Stored};

/// What an export comes to before it is written.
pub enum Ready {
    Write(Item),
    /// There is nothing to write any more.
    Nothing,
    /// It cannot be done, or not now.
    Not(Done),
}

/// One answer per task, in order. `rows` are what the store holds under their keys.
pub async fn ready(worker: &Worker, target: &SharedStore, tasks: &[&Task], rows: Vec<Option<Stored>>) -> Result<Vec<Ready>> {
    let names: Vec<String> = tasks.iter().map(|task| body_key(worker, task)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bodies = worker.state.store().get(&names).await?;
    let mut all = Vec::with_capacity(tasks.len());
    for ((task, row), body) in tasks.iter().zip(rows).zip(bodies) {
        all.push(one(worker, target, task, row, body).await?);
    }
    Ok(all)
}

fn body_key(worker: &Worker, task: &Task) -> String {
    let identity = worker.shape.claims(&task.key).unwrap_or_else(|| task.key.clone());
    keys::body(&worker.pipeline, &identity)
}

async fn one(
    worker: &Worker,
    target: &SharedStore,
    task: &Task,
    row: Option<Stored>,
    body: Option<Stored>,
) -> Result<Ready> {
    let shape = &worker.shape;
    let key = shape.export_key(&task.key);
    if task.change == Change::Delete {
        return Ok(Ready::Write(Item::delete(key)));
    }
    // A store that shows its writes late is asked again rather than believed.
    let late = !worker.store.caps().strong_read;
    let current = row.as_ref().is_some_and(|row| task.bytes == Some(crate::record::Fingerprint::of(&row.value)));
    let Some(row) = row.filter(|_| current || !late) else {
        return Ok(if late { Ready::Not(Done::HandedBack(Fault::of(&not_yet(worker)))) } else { Ready::Nothing });
    };
    let mark = shape.body_mark(&row.value);
    let body = body.filter(|body| body.fingerprint == mark);
    let object = match &body {
        Some(_) => None,
        None => target.get(&[&key]).await?.pop().flatten(),
    };
    let document = body.as_ref().map(|body| &*body.value);
    let exported = shape.export(&row.value, document, object.as_ref().map(|object| &*object.value), worker.clock.now());
    Ok(match exported {
        Ok(value) => Ready::Write(Item::put(key, value)),
        Err(error) => Ready::Not(Done::Failed(Fault::of(&error))),
    })
}

fn not_yet(worker: &Worker) -> Error {
    let message = format!("{} does not show what was written yet", worker.store.name());
    Error::new(Kind::Unavailable, message).remedy_is("Nothing to do: the next run exports it.")
}
