//! Exports of documents: the row is in the store, the document waits in the state (or lies in the target already, when
//! only its row changed). The source is never asked again.

use super::Task;
use super::effect::Done;
use super::work::Worker;
use crate::error::{Error, Fault, Kind, Result};
use crate::record::Fingerprint;
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

/// `row` is what the store holds under the task's key, `there` what the target holds under `name`.
pub async fn ready(
    worker: &Worker,
    task: &Task,
    name: String,
    row: Option<Stored>,
    there: Option<&Stored>,
) -> Result<Ready> {
    if task.change == Change::Delete {
        return Ok(Ready::Write(Item::delete(name)));
    }
    // A store that shows its writes late is asked again rather than believed.
    let late = !worker.store.caps().strong_read;
    let current = row.as_ref().is_some_and(|row| task.bytes == Some(Fingerprint::of(&row.value)));
    let Some(row) = row.filter(|_| current || !late) else {
        return Ok(if late {
            Ready::Not(Done::HandedBack(Fault::of(&not_yet(worker))))
        } else {
            Ready::Nothing
        });
    };
    let shape = &worker.shape;
    let identity = shape.claims(&task.key).unwrap_or_else(|| task.key.clone());
    let body = worker.state.store().get_one(&keys::body(&worker.pipeline, &identity)).await?;
    let body = body.filter(|body| body.fingerprint == shape.body_mark(&row.value));
    let (document, object) = (body.as_ref().map(|body| &*body.value), there.map(|there| &*there.value));
    Ok(match shape.export(&row.value, document, object, worker.clock.now()) {
        Ok(value) => Ready::Write(Item::put(name, value)),
        Err(error) => Ready::Not(Done::Failed(Fault::of(&error))),
    })
}

fn not_yet(worker: &Worker) -> Error {
    let message = format!("{} does not show what was written yet", worker.store.name());
    Error::new(Kind::Unavailable, message).remedy_is("Nothing to do: the next run exports it.")
}
