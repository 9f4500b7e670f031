//! A store as the source of another, with so many keys that whatever grows with them shows.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trueup::error::Error;
use trueup::pipeline::Pipeline;
use trueup::record::Fingerprint;
use trueup::source::store::FromStore;
use trueup::source::{Cursors, Source, channel};
use trueup::state::keys;
use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, Item, Mode, PAGE, Query, SharedStore, Store as _, What};

use super::line;
use super::scattered::Scattered;
use crate::harness::{Outcome, timed};

/// Bytes of a small record.
const LENGTH: usize = 100;

fn origin(folder: &Path, access: Access) -> Outcome<SharedStore> {
    Ok(Arc::new(Sqlite::open(&folder.join("origin.db"), access)?))
}

/// Fill the source.
pub fn fill(folder: &Path, size: usize) -> Outcome<Duration> {
    const BATCH: usize = 10_000;
    let store = Sqlite::open(&folder.join("origin.db"), Access::Write)?;
    let runtime = line::runtime()?;
    for start in (0..size).step_by(BATCH) {
        let items = (start..size.min(start + BATCH)).map(|number| {
            let value = line::value(number, 1, LENGTH);
            let print = Fingerprint::of(&value);
            Item::put(line::key(number), value).with_fingerprint(print)
        });
        for outcome in runtime.block_on(store.write(items.collect(), Mode::Each))? {
            outcome?;
        }
    }
    Ok(Duration::ZERO)
}

pub fn first(folder: &Path, size: usize) -> Outcome<Duration> {
    let runtime = line::runtime()?;
    let pipeline = runtime.block_on(line::open(folder, ""))?;
    let ((), took) = timed(|| runtime.block_on(line::pass(&pipeline, size)))?;
    Ok(took)
}

fn sorted(folder: &Path) -> Outcome<Arc<dyn Source>> {
    Ok(Arc::new(FromStore::new(origin(folder, Access::Read)?, String::new())))
}

fn unsorted(folder: &Path, size: usize) -> Outcome<Arc<dyn Source>> {
    Ok(Arc::new(Scattered { store: origin(folder, Access::Read)?, size }))
}

pub fn list_sorted(folder: &Path, _size: usize) -> Outcome<Duration> {
    list(folder, sorted(folder)?)
}

pub fn list_unsorted(folder: &Path, size: usize) -> Outcome<Duration> {
    list(folder, unsorted(folder, size)?)
}

pub fn noop_sorted(folder: &Path, _size: usize) -> Outcome<Duration> {
    noop(folder, sorted(folder)?)
}

pub fn noop_unsorted(folder: &Path, size: usize) -> Outcome<Duration> {
    noop(folder, unsorted(folder, size)?)
}

fn noop(folder: &Path, source: Arc<dyn Source>) -> Outcome<Duration> {
    let runtime = line::runtime()?;
    let pipeline = runtime.block_on(line::open_from(folder, source))?;
    let ((), took) = timed(|| runtime.block_on(line::pass(&pipeline, 0)))?;
    Ok(took)
}

/// The floor: list the source, then read the fingerprints of the state, and do nothing with either.
fn list(folder: &Path, source: Arc<dyn Source>) -> Outcome<Duration> {
    let runtime = line::runtime()?;
    let pipeline = runtime.block_on(line::open_from(folder, source))?;
    let ((), took) = timed(|| runtime.block_on(back_to_back(&pipeline)))?;
    Ok(took)
}

async fn back_to_back(pipeline: &Pipeline) -> Result<(), Error> {
    let (mut sink, mut events) = channel();
    let cursors = Cursors::new();
    let listing = async {
        pipeline.source.list(&cursors, &mut sink).await?;
        sink.flush().await?;
        drop(sink);
        Ok::<(), Error>(())
    };
    let draining = async { while events.recv().await.is_some() {} };
    tokio::join!(listing, draining).0?;
    let prefix = keys::bases(line::NAME);
    let mut after: Option<String> = None;
    loop {
        let query = Query { prefix: &prefix, after: after.as_deref(), limit: PAGE, what: What::Keys };
        let mut page = pipeline.state.store().list(query).await?;
        after = page.items.pop().map(|line| line.key);
        if !page.more {
            return Ok(());
        }
    }
}
