//! A source's events as sightings in order of identity. A sorted source streams; any other is sorted on the way,
//! in an unnamed temporary database that never needs more memory than its cache.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::scopes::End;
use crate::error::{Error, Fault, Result};
use crate::record::Entry;
use crate::shape::{Identified, Shape};
use crate::source::{Event, Events};

/// An entry under the identity state knows it by.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sighting {
    pub identity: String,
    pub rank: String,
    pub entry: Entry,
    pub what: What,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    There,
    /// There, but not usable.
    Bad(Fault),
    /// The source says it was removed.
    Gone,
}

#[derive(Debug)]
pub enum Row {
    Sighting(Sighting),
    End(String, End),
    Note(String),
}

/// Rows in order of identity, in batches.
pub enum Sightings {
    Live(Events, Arc<dyn Shape>),
    Sorted(mpsc::Receiver<Result<Vec<Row>>>),
}

impl Sightings {
    pub fn of(events: Events, shape: Arc<dyn Shape>, sorted: bool) -> Self {
        if sorted && shape.keeps_order() {
            return Sightings::Live(events, shape);
        }
        let (sender, receiver) = mpsc::channel(4);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = sort(events, shape.as_ref(), &sender) {
                // The receiver is gone only when the pass already failed.
                drop(sender.blocking_send(Err(error)));
            }
        });
        Sightings::Sorted(receiver)
    }

    pub async fn next(&mut self) -> Result<Option<Vec<Row>>> {
        match self {
            Sightings::Live(events, shape) => {
                let rows = |batch: Vec<Event>| {
                    batch.into_iter().filter_map(|event| row(shape.as_ref(), event)).collect()
                };
                Ok(events.recv().await.map(rows))
            }
            Sightings::Sorted(rows) => rows.recv().await.transpose(),
        }
    }
}

/// `None` = none of the shape's business.
fn row(shape: &dyn Shape, event: Event) -> Option<Row> {
    let (Event::Seen(entry) | Event::Bad(entry, _) | Event::Gone(entry)) = &event else {
        return Some(named(shape, event));
    };
    if shape.wants(entry) { Some(named(shape, event)) } else { None }
}

fn named(shape: &dyn Shape, event: Event) -> Row {
    match event {
        Event::Seen(entry) => sighting(shape, entry, What::There),
        Event::Bad(entry, error) => sighting(shape, entry, What::Bad(Fault::of(&error))),
        Event::Gone(entry) => sighting(shape, entry, What::Gone),
        Event::Complete(scope, cursor) => Row::End(scope.to_string(), End::Complete(cursor)),
        Event::Window(scope, cursor) => Row::End(scope.to_string(), End::Window(cursor)),
        Event::Unchanged(scope) => Row::End(scope.to_string(), End::Unchanged),
        Event::Broken(scope, error) => Row::End(scope.to_string(), End::Broken(Fault::of(&error))),
        Event::Note(text) => Row::Note(text),
    }
}

fn sighting(shape: &dyn Shape, entry: Entry, what: What) -> Row {
    let (identified, what) = match shape.identify(&entry) {
        Ok(identified) => (identified, what),
        // What cannot be named is reported under the source's own name and touches nothing.
        Err(error) => {
            (Identified { identity: entry.id.clone(), rank: String::new() }, What::Bad(Fault::of(&error)))
        }
    };
    Row::Sighting(Sighting { identity: identified.identity, rank: identified.rank, entry, what })
}

/// The sorter's cache: with it a million entries are sorted in well under 150 MB.
const CACHE_KIB: i64 = 32 * 1024;
const BATCH: usize = 512;

fn sort(mut events: Events, shape: &dyn Shape, out: &mpsc::Sender<Result<Vec<Row>>>) -> Result<()> {
    let broken = |error: rusqlite::Error| Error::bug("sorting a listing").caused_by(error);
    let spill = rusqlite::Connection::open("").map_err(broken)?;
    spill
        .execute_batch(&format!(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-{CACHE_KIB};
             CREATE TABLE sighting(identity TEXT, rank TEXT, row BLOB); BEGIN"
        ))
        .map_err(broken)?;
    let mut insert = spill.prepare("INSERT INTO sighting VALUES (?1, ?2, ?3)").map_err(broken)?;
    while let Some(batch) = events.blocking_recv() {
        let mut ends = Vec::new();
        for event in batch {
            match row(shape, event) {
                None => {}
                Some(Row::Sighting(seen)) => {
                    let bytes = postcard::to_stdvec(&seen)
                        .map_err(|e| Error::bug("encoding a sighting").caused_by(e))?;
                    insert.execute((&seen.identity, &seen.rank, bytes)).map_err(broken)?;
                }
                Some(aside @ (Row::End(..) | Row::Note(_))) => ends.push(aside),
            }
        }
        if !ends.is_empty() && out.blocking_send(Ok(ends)).is_err() {
            return Ok(());
        }
    }
    let mut query =
        spill.prepare("SELECT row FROM sighting ORDER BY identity, rank, rowid").map_err(broken)?;
    let mut rows = query.query([]).map_err(broken)?;
    let mut batch = Vec::with_capacity(BATCH);
    while let Some(row) = rows.next().map_err(broken)? {
        let bytes = row.get_ref(0).and_then(|value| Ok(value.as_blob()?)).map_err(broken)?;
        let seen = postcard::from_bytes(bytes)
            .map_err(|error| Error::bug("decoding a sighting").caused_by(error))?;
        batch.push(Row::Sighting(seen));
        if batch.len() == BATCH && out.blocking_send(Ok(std::mem::take(&mut batch))).is_err() {
            return Ok(());
        }
    }
    drop(out.blocking_send(Ok(batch)));
    Ok(())
}
