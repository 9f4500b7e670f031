//! The least that could keep two files in step with a source: a bare loop that writes the same records into one and
//! their fingerprints into another, as durably and in batches of the same size as the engine does.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use trueup::record::Fingerprint;

use super::generated::LENGTH;
use super::line::{key, value};
use crate::harness::{Outcome, timed};

/// The engine's own batch.
const BATCH: usize = 1_000;

pub fn first(folder: &Path, size: usize) -> Outcome<Duration> {
    write(folder, size, 1)
}

/// In a folder that had its first loop.
pub fn update(folder: &Path, size: usize) -> Outcome<Duration> {
    write(folder, size, 2)
}

fn open(path: &Path) -> Outcome<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS kv(key TEXT PRIMARY KEY, fingerprint BLOB, value BLOB) WITHOUT ROWID",
    )?;
    Ok(connection)
}

fn write(folder: &Path, size: usize, generation: u32) -> Outcome<Duration> {
    let mut records = open(&folder.join("bare-records.db"))?;
    let mut prints = open(&folder.join("bare-fingerprints.db"))?;
    let ((), took) = timed(|| -> Outcome<()> {
        for start in (0..size).step_by(BATCH) {
            batch(&mut records, &mut prints, start..size.min(start + BATCH), generation)?;
        }
        Ok(())
    })?;
    Ok(took)
}

fn batch(
    records: &mut Connection,
    prints: &mut Connection,
    numbers: std::ops::Range<usize>,
    generation: u32,
) -> Outcome<()> {
    const PUT: &str = "INSERT INTO kv VALUES(?1, ?2, ?3)
                       ON CONFLICT(key) DO UPDATE SET fingerprint = ?2, value = ?3";
    let (records, prints) = (records.transaction()?, prints.transaction()?);
    {
        let (mut put_record, mut put_print) = (records.prepare_cached(PUT)?, prints.prepare_cached(PUT)?);
        for number in numbers {
            let (key, value) = (key(number), value(number, generation, LENGTH));
            let print = Fingerprint::of(&value);
            put_record.execute((&key, print.0.as_slice(), &value))?;
            put_print.execute((&key, print.0.as_slice(), None::<Vec<u8>>))?;
        }
    }
    records.commit()?;
    prints.commit()?;
    Ok(())
}
