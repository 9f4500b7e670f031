//! A source's events as sightings in order of identity. A sorted source streams; any other is sorted on the way.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::scopes::End;
use super::sorter::Sorter;
use crate::error::{Fault, Result};
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

impl Sighting {
    /// What it is sorted by.
    pub fn place(&self) -> (&str, &str) {
        (&self.identity, &self.rank)
    }
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
    /// Large, and handed on from one to the next.
    Sighting(Box<Sighting>),
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
        Event::Broken(scope, error) => Row::End(scope.to_string(), End::Broken(Box::new(Fault::of(&error)))),
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
    let Identified { identity, rank } = identified;
    Row::Sighting(Box::new(Sighting { identity, rank, entry, what }))
}

const BATCH: usize = 512;

/// Ends and notes go on at once, sightings when the last one is known.
fn sort(mut events: Events, shape: &dyn Shape, out: &mpsc::Sender<Result<Vec<Row>>>) -> Result<()> {
    let mut sorter = Sorter::default();
    while let Some(batch) = events.blocking_recv() {
        let mut aside = Vec::new();
        for event in batch {
            match row(shape, event) {
                None => {}
                Some(Row::Sighting(seen)) => sorter.add(seen)?,
                Some(other @ (Row::End(..) | Row::Note(_))) => aside.push(other),
            }
        }
        if !aside.is_empty() && out.blocking_send(Ok(aside)).is_err() {
            return Ok(());
        }
    }
    let mut batch = Vec::with_capacity(BATCH);
    sorter.finish(|seen| {
        batch.push(Row::Sighting(seen));
        batch.len() < BATCH || out.blocking_send(Ok(std::mem::take(&mut batch))).is_ok()
    })?;
    // A receiver that is gone has had enough.
    drop(out.blocking_send(Ok(batch)));
    Ok(())
}
