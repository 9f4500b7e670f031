//! Writing a batch in one transaction: look, judge, then one statement per table and kind of change.

use bytes::{Bytes, BytesMut};
use futures::SinkExt;
use serde_json::{Map, Value};
use tokio_postgres::Transaction;

use super::super::layout::{Table, Type};
use super::super::row::{Cell, Cells, Held, Place, version};
use super::super::{Batch, swallowed};
use super::ids;
use super::sql::{CACHE_COPY, CACHE_DELETE, LOCK, Sql};
use crate::error::{Error, Kind, Result};
use crate::postgres::{BULK_MAX, STATEMENT_MAX, Session, within};
use crate::record::Fingerprint;
use crate::store::{Mode, Op, Outcome, judge, untouched};

/// A put that is to be done: its place in the batch, and the row it changes if there is one.
struct Put<'a> {
    at: usize,
    cells: &'a Cells<'static>,
    print: Fingerprint,
    row_id: Option<i64>,
    /// The row already has these cells; only its cache entry is to be written.
    same: bool,
}

pub(super) async fn write(
    session: &mut Session,
    sql: &[Sql],
    tables: &[Table],
    batch: &Batch,
) -> Result<Vec<Result<Outcome>>> {
    let transaction = within(STATEMENT_MAX, session.transaction()).await?;
    within(BULK_MAX, transaction.batch_execute(LOCK)).await?;
    let places: Vec<Place> = batch.items.iter().map(|(_, parsed)| parsed.place.clone()).collect();
    let held = super::held(&transaction, sql, tables, &places).await?;
    let stray = stray(&transaction, sql, tables, batch, &held).await?;
    let mut outcomes = judged(batch, &held, &stray);
    let landed = |outcome: &Option<Result<Outcome>>| match outcome {
        None => true,
        Some(outcome) => outcome.as_ref().is_ok_and(Outcome::landed),
    };
    if batch.mode == Mode::All && !outcomes.iter().all(landed) {
        within(STATEMENT_MAX, transaction.rollback()).await?;
        let mut all: Vec<Result<Outcome>> =
            outcomes.into_iter().map(|one| one.unwrap_or(Ok(Outcome::Untouched))).collect();
        untouched(&mut all);
        return Ok(all);
    }
    let pen = Pen { transaction: &transaction, batch, held: &held, stray: &stray };
    for (at, (sql, table)) in sql.iter().zip(tables).enumerate() {
        let todo: Vec<usize> =
            (0..places.len()).filter(|item| places[*item].table == at && outcomes[*item].is_none()).collect();
        if !todo.is_empty() {
            pen.table(sql, table, &todo, &mut outcomes).await?;
        }
    }
    within(STATEMENT_MAX, transaction.commit()).await?;
    let lost = || Err(Error::bug("a write without an outcome"));
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(lost)).collect())
}

/// The rows of those items that delete what no listing shows.
async fn stray(
    transaction: &Transaction<'_>,
    sql: &[Sql],
    tables: &[Table],
    batch: &Batch,
    held: &[Option<Held>],
) -> Result<Vec<Option<i64>>> {
    let mut rows = vec![None; held.len()];
    let wanted = |at: &usize| held[*at].is_none() && batch.items[*at].0.deletes_unlisted();
    let wanted: Vec<usize> = (0..held.len()).filter(wanted).collect();
    let places: Vec<Place> = wanted.iter().map(|at| batch.items[*at].1.place.clone()).collect();
    for (at, found) in wanted.iter().zip(super::natural(transaction, sql, tables, &places).await?) {
        rows[*at] = found.map(|(row_id, _)| row_id);
    }
    Ok(rows)
}

/// What needs no write, and what must not have one.
fn judged(batch: &Batch, held: &[Option<Held>], stray: &[Option<i64>]) -> Vec<Option<Result<Outcome>>> {
    let one = |((item, held), stray): ((&(crate::store::Item, _), &Option<Held>), &Option<i64>)| {
        if stray.is_some() {
            return None;
        }
        let item = &item.0;
        let same = match (&item.op, held) {
            (Op::Put { value, .. }, Some(held)) => held.is(value),
            _ => false,
        };
        if let Op::Put { value, .. } = &item.op
            && has_nul(value)
        {
            let message = "the row holds a NUL character, which PostgreSQL text cannot";
            return Some(Err(Error::new(Kind::Invalid, message).while_(item.key.clone())));
        }
        judge(item, held.as_ref().map(|held| &held.version), same).map(Ok)
    };
    batch.items.iter().zip(held).zip(stray).map(one).collect()
}

/// In JSON a NUL is always escaped; an escaped backslash before `u0000` makes it something else.
pub(super) fn has_nul(value: &[u8]) -> bool {
    let mut rest = value;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        if rest[at..].starts_with(b"\\u0000") {
            return true;
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

struct Pen<'a> {
    transaction: &'a Transaction<'a>,
    batch: &'a Batch,
    held: &'a [Option<Held>],
    stray: &'a [Option<i64>],
}

impl Pen<'_> {
    async fn table(
        &self,
        sql: &Sql,
        table: &Table,
        todo: &[usize],
        outcomes: &mut [Option<Result<Outcome>>],
    ) -> Result<()> {
        let mut puts = Vec::new();
        let (mut gone, mut names) = (Vec::new(), Vec::new());
        for at in todo {
            let old = self.held[*at].as_ref();
            match &self.batch.items[*at].1.put {
                Some((cells, print)) => puts.push(Put {
                    at: *at,
                    cells,
                    print: *print,
                    row_id: old.map(|old| old.row_id),
                    same: old.is_some_and(|old| old.cells == *cells),
                }),
                None => {
                    let row_id = old.map(|old| old.row_id).or(self.stray[*at]);
                    gone.extend(row_id);
                    names.extend(row_id.map(|_| self.batch.items[*at].1.place.external_id.as_str()));
                    outcomes[*at] = Some(Ok(Outcome::Applied(None)));
                }
            }
        }
        if !gone.is_empty() {
            let rows = within(BULK_MAX, self.transaction.execute(&sql.delete, &[&gone, &names])).await?;
            all_done(rows, gone.len())?;
        }
        self.adopt(sql, table, &mut puts).await?;
        self.update(sql, table, &puts).await?;
        self.insert(sql, table, &mut puts).await?;
        self.remember(table, todo, &puts).await?;
        let now = now_ms(&self.batch.now);
        for put in &puts {
            let row_id = put.row_id.ok_or_else(|| Error::bug("a row without its id"))?;
            outcomes[put.at] = Some(Ok(Outcome::Applied(Some(version(row_id, now, &put.print.to_string())))));
        }
        Ok(())
    }

    /// Rows that are there without a cache entry are found by their natural key.
    async fn adopt(&self, sql: &Sql, table: &Table, puts: &mut [Put<'_>]) -> Result<()> {
        let fresh: Vec<usize> = (0..puts.len()).filter(|at| puts[*at].row_id.is_none()).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let keys: Vec<Value> = fresh
            .iter()
            .map(|at| {
                let key: Vec<Cell<'_>> =
                    table.key.iter().map(|key| puts[*at].cells.cells[*key].clone()).collect();
                key_json(table, &key, *at)
            })
            .collect();
        let keys = Value::Array(keys).to_string();
        for row in within(BULK_MAX, self.transaction.query(&sql.natural, &[&keys])).await? {
            let at = usize::try_from(row.get::<_, i64>(0)).unwrap_or(usize::MAX);
            if let Some(put) = puts.get_mut(at) {
                put.row_id = Some(row.get(1));
                put.same = sql.cells(table, &row, 2) == *put.cells;
            }
        }
        Ok(())
    }

    async fn update(&self, sql: &Sql, table: &Table, puts: &[Put<'_>]) -> Result<()> {
        let changed: Vec<Value> = puts
            .iter()
            .filter(|put| !put.same)
            .filter_map(|put| {
                let cells = table.columns.iter().zip(&put.cells.cells);
                let mut row: Map<String, Value> =
                    cells.map(|(column, cell)| (column.name.clone(), json(cell, column.holds))).collect();
                row.insert("row_id".to_owned(), Value::from(put.row_id?));
                row.insert("missing_since".to_owned(), Value::from(put.cells.missing_since.clone()));
                Some(Value::Object(row))
            })
            .collect();
        if changed.is_empty() {
            return Ok(());
        }
        let count = changed.len();
        let rows = Value::Array(changed).to_string();
        let rows = within(BULK_MAX, self.transaction.execute(&sql.update, &[&rows, &self.batch.now])).await?;
        all_done(rows, count)
    }

    async fn insert(&self, sql: &Sql, table: &Table, puts: &mut [Put<'_>]) -> Result<()> {
        let fresh: Vec<usize> = (0..puts.len()).filter(|at| puts[*at].row_id.is_none()).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let rows = fresh.len();
        let reserved = within(BULK_MAX, self.transaction.simple_query(&sql.reserve(rows))).await?;
        let ids = ids::reserved(&reserved, [(table, rows)].into_iter())?;
        let mut lines = BytesMut::with_capacity(fresh.len() * 256);
        for (at, row_id) in fresh.into_iter().zip(ids.into_iter().flatten()) {
            let put = &mut puts[at];
            put.row_id = Some(row_id);
            lines.extend_from_slice(format!("{row_id}\t{0}\t{0}\t", self.batch.now).as_bytes());
            lines.extend_from_slice(put.cells.missing_since.as_deref().unwrap_or("\\N").as_bytes());
            for cell in &put.cells.cells {
                lines.extend_from_slice(b"\t");
                copied(&mut lines, cell);
            }
            lines.extend_from_slice(b"\n");
        }
        debug_assert!(!table.columns.is_empty());
        self.copy(&sql.copy, lines.freeze(), rows).await
    }

    /// The cache entries of everything written, in place of what was there.
    async fn remember(&self, table: &Table, todo: &[usize], puts: &[Put<'_>]) -> Result<()> {
        let ids: Vec<&str> =
            todo.iter().map(|at| self.batch.items[*at].1.place.external_id.as_str()).collect();
        within(BULK_MAX, self.transaction.execute(CACHE_DELETE, &[&table.name, &ids])).await?;
        let mut lines = BytesMut::with_capacity(puts.len() * 160);
        for put in puts {
            copied_text(&mut lines, &table.name);
            lines.extend_from_slice(b"\t");
            copied_text(&mut lines, &self.batch.items[put.at].1.place.external_id);
            let rest = format!(
                "\t{}\t{}\t{}\t{}\n",
                put.print,
                put.row_id.unwrap_or_default(),
                table.schema_version,
                self.batch.now
            );
            lines.extend_from_slice(rest.as_bytes());
        }
        if lines.is_empty() { Ok(()) } else { self.copy(CACHE_COPY, lines.freeze(), puts.len()).await }
    }

    async fn copy(&self, sql: &str, lines: Bytes, rows: usize) -> Result<()> {
        let copied = within(BULK_MAX, async {
            let sink = self.transaction.copy_in::<_, Bytes>(sql).await?;
            let mut sink = std::pin::pin!(sink);
            sink.send(lines).await?;
            sink.finish().await
        })
        .await?;
        all_done(copied, rows)
    }
}

/// A batch that did not go in as a whole is written in parts, until it is known which row it is.
fn all_done(done: u64, rows: usize) -> Result<()> {
    if done == rows as u64 { Ok(()) } else { Err(swallowed()) }
}

/// A natural key as a row of JSON, under a number of its own.
pub(super) fn key_json(table: &Table, key: &[Cell<'_>], number: usize) -> Value {
    let names = table.key.iter().map(|at| table.columns[*at].name.clone());
    let mut row: Map<String, Value> = names.zip(key.iter().map(|cell| json(cell, Type::Text))).collect();
    row.insert("row_id".to_owned(), Value::from(number));
    Value::Object(row)
}

pub(super) fn now_ms(now: &str) -> i64 {
    now.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond)
}

fn json(cell: &Cell<'_>, holds: Type) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Integer(number) => Value::from(*number),
        Cell::Real(number) => Value::from(*number),
        Cell::Boolean(truth) => Value::from(*truth),
        Cell::Text(text) if holds == Type::Json => serde_json::from_str(text).unwrap_or_default(),
        Cell::Text(text) => Value::from(text.as_ref()),
    }
}

/// A cell in COPY's text form.
fn copied(out: &mut BytesMut, cell: &Cell<'_>) {
    match cell {
        Cell::Null => out.extend_from_slice(b"\\N"),
        Cell::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Cell::Real(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Cell::Boolean(truth) => out.extend_from_slice(if *truth { b"t" } else { b"f" }),
        Cell::Text(text) => copied_text(out, text),
    }
}

fn copied_text(out: &mut BytesMut, text: &str) {
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'\\' => b'\\',
            b'\t' => b't',
            b'\n' => b'n',
            b'\r' => b'r',
            _ => continue,
        };
        out.extend_from_slice(&text.as_bytes()[plain..at]);
        out.extend_from_slice(&[b'\\', escape]);
        plain = at + 1;
    }
    out.extend_from_slice(&text.as_bytes()[plain..]);
}
