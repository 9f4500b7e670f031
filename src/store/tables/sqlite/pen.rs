//! Writing a batch in one transaction: the row and its cache entry arrive together or not at all.

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior};

use super::super::Batch;
use super::super::layout::Table;
use super::super::row::{Cell, Cells, Held, Parsed, Place, version};
use super::sql::{CACHE_DELETE, CACHE_PUT, Sql, bind};
use crate::error::Result;
use crate::record::Fingerprint;
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
        outcomes.push(Ok(pen.item(item, parsed)?));
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
    fn item(&self, item: &Item, parsed: &Parsed) -> rusqlite::Result<Outcome> {
        let place = &parsed.place;
        let held = held(self.transaction, self.sql, self.tables, place)?;
        let same = match (&item.op, &held) {
            (Op::Put { value, .. }, Some(held)) => held.is(value),
            _ => false,
        };
        if let Some(outcome) = judge(item, held.as_ref().map(|held| &held.version), same) {
            return Ok(outcome);
        }
        match (&parsed.put, held) {
            (Some((cells, print)), held) => {
                self.put(place, cells, print, held).map(|version| Outcome::Applied(Some(version)))
            }
            (None, Some(held)) => {
                let delete = &self.sql[place.table].delete;
                self.transaction.prepare_cached(delete)?.execute((held.row_id, &place.external_id))?;
                let name = &self.tables[place.table].name;
                self.transaction.prepare_cached(CACHE_DELETE)?.execute((name, &place.external_id))?;
                Ok(Outcome::Applied(None))
            }
            (None, None) => Ok(Outcome::AlreadySo(None)),
        }
    }

    fn put(
        &self,
        place: &Place,
        cells: &Cells<'_>,
        print: &Fingerprint,
        held: Option<Held>,
    ) -> rusqlite::Result<crate::record::Version> {
        let table = &self.tables[place.table];
        let old = match held {
            Some(held) => Some((held.row_id, held.cells)),
            None => {
                let key: Vec<_> = table.key.iter().map(|at| cells.cells[*at].clone()).collect();
                natural(self.transaction, &self.sql[place.table], table, &key)?
            }
        };
        let row_id = match old {
            Some((row_id, old)) if old == *cells => row_id,
            Some((row_id, old)) => {
                self.update(place.table, row_id, cells, old.cells != cells.cells)?;
                row_id
            }
            None => self.insert(place.table, cells)?,
        };
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

    fn insert(&self, table: usize, cells: &Cells) -> rusqlite::Result<i64> {
        let mut statement = self.transaction.prepare_cached(&self.sql[table].insert)?;
        statement.raw_bind_parameter(1, self.now)?;
        statement.raw_bind_parameter(2, self.now)?;
        statement.raw_bind_parameter(3, &cells.missing_since)?;
        bind(&mut statement, 4, &cells.cells)?;
        statement.raw_execute()?;
        Ok(self.transaction.last_insert_rowid())
    }

    /// A mark alone does not make a row newer.
    fn update(&self, table: usize, row_id: i64, cells: &Cells, newer: bool) -> rusqlite::Result<()> {
        let mut statement = self.transaction.prepare_cached(&self.sql[table].update)?;
        statement.raw_bind_parameter(1, row_id)?;
        statement.raw_bind_parameter(2, newer.then_some(self.now))?;
        statement.raw_bind_parameter(3, &cells.missing_since)?;
        bind(&mut statement, 4, &cells.cells)?;
        statement.raw_execute().map(drop)
    }
}
