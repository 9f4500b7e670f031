//! Writing a batch in one transaction: the row and its cache entry arrive together or not at all.

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Transaction, TransactionBehavior};

use super::super::layout::Table;
use super::super::row::{Cell, Cells, Held, Parsed, Place, key_of, version};
use super::super::{Batch, swallowed};
use super::sql::{CACHE_DELETE, CACHE_PUT, Sql, bind};
use crate::error::Result;
use crate::record::{Fingerprint, Version};
use crate::store::sqlite::fault::explain;
use crate::store::{Item, Mode, Op, Outcome, judge, untouched};

/// Milliseconds since 1970 of an instant as we write it; 0 for one that somebody else wrote.
pub(super) fn ms(seen_at: &str) -> i64 {
    seen_at.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond)
}

/// What is under a key: a row with its cache entry. One without the other is nothing.
pub(super) fn held(
    connection: &Connection,
    sql: &[Sql],
    tables: &[Table],
    place: &Place,
) -> rusqlite::Result<Option<Held>> {
    let (sql, table) = (&sql[place.table], &tables[place.table]);
    if sql.absent {
        return Ok(None);
    }
    let mut statement = connection.prepare_cached(&sql.held)?;
    let found = statement.query_row((&table.name, &place.external_id), |row| {
        let checksum = row.get_ref(1)?.as_str()?;
        let seen_ms = ms(row.get_ref(2)?.as_str()?);
        Ok(Held::new(table, row.get(0)?, sql.cells(table, row, 3)?, seen_ms, checksum))
    });
    found.optional()
}

/// The row with a natural key, whatever the cache says of it.
pub(super) fn natural(
    connection: &Connection,
    sql: &Sql,
    table: &Table,
    key: &[Cell<'_>],
) -> rusqlite::Result<Option<(i64, Cells<'static>)>> {
    let mut statement = connection.prepare_cached(&sql.natural)?;
    bind(&mut statement, 1, key)?;
    let mut rows = statement.raw_query();
    match rows.next()? {
        Some(row) => Ok(Some((row.get(0)?, sql.cells(table, row, 1)?))),
        None => Ok(None),
    }
}

pub(super) fn write(
    connection: &mut Connection,
    sql: &[Sql],
    tables: &[Table],
    batch: &Batch,
) -> rusqlite::Result<Vec<Result<Outcome>>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let pen = Pen { transaction: &transaction, sql, tables, now: &batch.now };
    let mut outcomes: Vec<Result<Outcome>> = Vec::with_capacity(batch.items.len());
    for (item, parsed) in &batch.items {
        let outcome = pen.item(item, parsed)?;
        outcomes.push(outcome.map_err(|error| error.while_(item.key.clone())));
    }
    let landed = |outcome: &Result<Outcome>| outcome.as_ref().is_ok_and(Outcome::landed);
    if batch.mode == Mode::All && !outcomes.iter().all(landed) {
        untouched(&mut outcomes);
        transaction.rollback()?;
    } else {
        transaction.commit()?;
    }
    Ok(outcomes)
}

struct Pen<'a> {
    transaction: &'a Transaction<'a>,
    sql: &'a [Sql],
    tables: &'a [Table],
    now: &'a str,
}

impl Pen<'_> {
    /// The outer error ends the transaction, the inner one is this item's alone.
    fn item(&self, item: &Item, parsed: &Parsed) -> rusqlite::Result<Result<Outcome>> {
        let place = &parsed.place;
        let held = held(self.transaction, self.sql, self.tables, place)?;
        let same = match (&item.op, &held) {
            (Op::Put { value, .. }, Some(held)) => held.is(value),
            _ => false,
        };
        if held.is_none()
            && item.deletes_unlisted()
            && let Some(row_id) = self.unlisted(place)?
        {
            return self.delete(place, row_id);
        }
        if let Some(outcome) = judge(item, held.as_ref().map(|held| &held.version), same) {
            return Ok(Ok(outcome));
        }
        match (&parsed.put, held) {
            (Some((cells, print)), held) => {
                let row_id = match self.admitted(self.put_row(place, cells, held))? {
                    Ok(Some(row_id)) => row_id,
                    Ok(None) => return Ok(Err(swallowed())),
                    Err(error) => return Ok(Err(error)),
                };
                self.enter(place, row_id, print).map(|version| Ok(Outcome::Applied(Some(version))))
            }
            (None, Some(held)) => self.delete(place, held.row_id),
            (None, None) => Ok(Ok(Outcome::AlreadySo(None))),
        }
    }

    /// The row under a key that has no cache entry.
    fn unlisted(&self, place: &Place) -> rusqlite::Result<Option<i64>> {
        let (sql, table) = (&self.sql[place.table], &self.tables[place.table]);
        let Some(key) = key_of(table, &place.external_id) else { return Ok(None) };
        Ok(natural(self.transaction, sql, table, &key)?.map(|(row_id, _)| row_id))
    }

    fn delete(&self, place: &Place, row_id: i64) -> rusqlite::Result<Result<Outcome>> {
        let mut delete = self.transaction.prepare_cached(&self.sql[place.table].delete)?;
        match self.admitted(delete.execute((row_id, &place.external_id)))? {
            Ok(0) => return Ok(Err(swallowed())),
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
        let name = &self.tables[place.table].name;
        self.transaction.prepare_cached(CACHE_DELETE)?.execute((name, &place.external_id))?;
        Ok(Ok(Outcome::Applied(None)))
    }

    /// A row that a rule of somebody else keeps out is its own error: SQLite has undone that statement and no other.
    fn admitted<T>(&self, done: rusqlite::Result<T>) -> rusqlite::Result<Result<T>> {
        match done {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
                    && !self.transaction.is_autocommit() =>
            {
                Ok(Err(explain(error)))
            }
            done => done.map(Ok),
        }
    }

    /// Write the row alone, and say where it is; `None` = it was not written after all.
    fn put_row(&self, place: &Place, cells: &Cells<'_>, held: Option<Held>) -> rusqlite::Result<Option<i64>> {
        let table = &self.tables[place.table];
        let old = match held {
            Some(held) => Some((held.row_id, held.cells)),
            None => {
                let key: Vec<_> = table.key.iter().map(|at| cells.cells[*at].clone()).collect();
                natural(self.transaction, &self.sql[place.table], table, &key)?
            }
        };
        match old {
            Some((row_id, old)) if old == *cells => Ok(Some(row_id)),
            Some((row_id, old)) => {
                let rows = self.update(place.table, row_id, cells, old.cells != cells.cells)?;
                Ok((rows > 0).then_some(row_id))
            }
            None => self.insert(place.table, cells),
        }
    }

    /// The cache entry of a row.
    fn enter(&self, place: &Place, row_id: i64, print: &Fingerprint) -> rusqlite::Result<Version> {
        let table = &self.tables[place.table];
        let checksum = print.to_string();
        self.transaction.prepare_cached(CACHE_PUT)?.execute((
            &table.name,
            &place.external_id,
            &checksum,
            row_id,
            table.schema_version,
            self.now,
        ))?;
        Ok(version(row_id, ms(self.now), &checksum))
    }

    fn insert(&self, table: usize, cells: &Cells) -> rusqlite::Result<Option<i64>> {
        let mut statement = self.transaction.prepare_cached(&self.sql[table].insert)?;
        statement.raw_bind_parameter(1, self.now)?;
        statement.raw_bind_parameter(2, self.now)?;
        statement.raw_bind_parameter(3, &cells.missing_since)?;
        bind(&mut statement, 4, &cells.cells)?;
        let rows = statement.raw_execute()?;
        Ok((rows > 0).then(|| self.transaction.last_insert_rowid()))
    }

    /// A mark alone does not make a row newer.
    fn update(&self, table: usize, row_id: i64, cells: &Cells, newer: bool) -> rusqlite::Result<usize> {
        let mut statement = self.transaction.prepare_cached(&self.sql[table].update)?;
        statement.raw_bind_parameter(1, row_id)?;
        statement.raw_bind_parameter(2, newer.then_some(self.now))?;
        statement.raw_bind_parameter(3, &cells.missing_since)?;
        bind(&mut statement, 4, &cells.cells)?;
        statement.raw_execute()
    }
}
