//! A batch of rows that are all said to be new goes in without a look: the unique indexes on natural keys and cache
//! entries are the proof that nothing was there. If one of them objects, nothing of the batch stays, and it is written
//! the careful way, row by row against what is there.

use bytes::{BufMut, Bytes, BytesMut};
use futures::SinkExt;
use tokio_postgres::error::SqlState;

use super::super::Batch;
use super::super::layout::{Column, Table, Type};
use super::super::row::{Cell, Cells, version};
use super::pen::{has_nul, now_ms};
use super::sql::{CACHE_COPY_BINARY, LOCK, Sql};
use crate::clock::read_rfc3339_ms;
use crate::error::Result;
use crate::postgres::{BULK_MAX, STATEMENT_MAX, Session, within};
use crate::record::Fingerprint;
use crate::store::{Expect, Item, Op, Outcome};

/// How a COPY in binary begins (a signature, no flags, no extension) and ends.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TAIL: [u8; 2] = (-1i16).to_be_bytes();
/// Rows encoded while PostgreSQL works on those before them.
const PIECE_ROWS: usize = 250;
/// Milliseconds from 1970 to 2000, where PostgreSQL counts from.
const EPOCH_MS: i64 = 946_684_800_000;

/// One row that is to be new.
struct New<'a> {
    at: usize,
    external_id: &'a str,
    cells: &'a Cells,
    print: Fingerprint,
}

/// `None` = something was there, and nothing was written.
pub(super) async fn write(
    session: &mut Session,
    sql: &[Sql],
    tables: &[Table],
    batch: &Batch,
) -> Result<Option<Vec<Result<Outcome>>>> {
    let Some(rows) = all_new(tables, batch) else { return Ok(None) };
    let now = now_ms(&batch.now);
    // Ended by hand: a session that is left in the middle is never lent again.
    within(BULK_MAX, session.batch_execute(&format!("BEGIN; {LOCK}"))).await?;
    let mut outcomes: Vec<Option<Outcome>> = batch.items.iter().map(|_| None).collect();
    let mut cache = begun(batch.items.len() * 160);
    for ((sql, table), rows) in sql.iter().zip(tables).zip(&rows).filter(|(_, rows)| !rows.is_empty()) {
        let ids = reserve(session, sql, rows.len()).await?;
        // PostgreSQL works on one piece while the next is encoded.
        let mut lines = begun(PIECE_ROWS * 320);
        let pieces = rows.chunks(PIECE_ROWS).zip(ids.chunks(PIECE_ROWS)).map(|(rows, ids)| {
            for (row, row_id) in rows.iter().zip(ids) {
                put_row(&mut lines, table, row.cells, *row_id, now);
                put_entry(&mut cache, table, row, *row_id, now);
                let version = version(*row_id, now, &row.print.to_string());
                outcomes[row.at] = Some(Outcome::Applied(Some(version)));
            }
            lines.split().freeze()
        });
        if !copied(session, &sql.copy_binary, pieces).await? {
            return undone(session).await;
        }
    }
    if !copied(session, CACHE_COPY_BINARY, [cache.freeze()].into_iter()).await? {
        return undone(session).await;
    }
    within(BULK_MAX, session.batch_execute("COMMIT")).await?;
    Ok(Some(outcomes.into_iter().flatten().map(Ok).collect()))
}

async fn undone<T>(session: &Session) -> Result<Option<T>> {
    within(STATEMENT_MAX, session.batch_execute("ROLLBACK")).await?;
    Ok(None)
}

/// The rows by table, if nothing else is in the batch and COPY has a form for all of it.
fn all_new<'a>(tables: &[Table], batch: &'a Batch) -> Option<Vec<Vec<New<'a>>>> {
    let mut rows: Vec<Vec<New<'a>>> = tables.iter().map(|_| Vec::new()).collect();
    for (at, (item, parsed)) in batch.items.iter().enumerate() {
        let (cells, print) = parsed.put.as_ref()?;
        let place = &parsed.place;
        if !is_new(item) || !tells_instants(&tables[place.table], cells) {
            return None;
        }
        rows[place.table].push(New { at, external_id: &place.external_id, cells, print: *print });
    }
    Some(rows)
}

fn is_new(item: &Item) -> bool {
    matches!(&item.op, Op::Put { value, .. } if !has_nul(value)) && item.expect == Expect::Absent
}

/// Every instant is in the one form we write: in another it would be taken for a row that somebody altered.
fn tells_instants(table: &Table, cells: &Cells) -> bool {
    let instants =
        table.columns.iter().zip(&cells.cells).filter_map(|(column, cell)| match (column.holds, cell) {
            (Type::Instant, Cell::Text(text)) => Some(text),
            _ => None,
        });
    instants.chain(&cells.missing_since).all(|text| read_rfc3339_ms(text).is_some())
}

async fn reserve(session: &Session, sql: &Sql, count: usize) -> Result<Vec<i64>> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let row = within(BULK_MAX, session.query_one(&sql.reserve_all, &[&count])).await?;
    Ok(row.get(0))
}

/// `false` = a key is taken.
async fn copied(session: &Session, sql: &str, pieces: impl Iterator<Item = Bytes>) -> Result<bool> {
    within(BULK_MAX, async {
        let sink = session.copy_in::<_, Bytes>(sql).await?;
        let mut sink = std::pin::pin!(sink);
        let mut sent = Ok(());
        for piece in pieces.chain([Bytes::from_static(&TAIL)]) {
            sent = sink.send(piece).await;
            if sent.is_err() {
                break;
            }
        }
        let sent = match sent {
            Ok(()) => sink.finish().await.map(drop),
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) => Ok(true),
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Ok(false),
            Err(error) => Err(error),
        }
    })
    .await
}

fn begun(bytes: usize) -> BytesMut {
    let mut lines = BytesMut::with_capacity(HEAD.len() + bytes);
    lines.extend_from_slice(HEAD);
    lines
}

fn put_row(out: &mut BytesMut, table: &Table, row: &Cells, row_id: i64, now: i64) {
    put_count(out, 4 + table.columns.len());
    put_i64(out, row_id);
    put_instant(out, Some(now));
    put_instant(out, Some(now));
    put_instant(out, row.missing_since.as_deref().and_then(read_rfc3339_ms));
    for (column, cell) in table.columns.iter().zip(&row.cells) {
        put_cell(out, column, cell);
    }
}

fn put_entry(out: &mut BytesMut, table: &Table, row: &New<'_>, row_id: i64, now: i64) {
    put_count(out, 6);
    put_bytes(out, table.name.as_bytes());
    put_bytes(out, row.external_id.as_bytes());
    put_bytes(out, row.print.to_string().as_bytes());
    put_i64(out, row_id);
    put_i64(out, table.schema_version);
    put_instant(out, Some(now));
}

fn put_cell(out: &mut BytesMut, column: &Column, cell: &Cell) {
    match (column.holds, cell) {
        (_, Cell::Null) => out.put_i32(-1),
        (Type::Instant, Cell::Text(text)) => put_instant(out, read_rfc3339_ms(text)),
        (Type::Json, Cell::Text(text)) => {
            // The form of jsonb: its version, then the text.
            put_length(out, text.len() + 1);
            out.put_u8(1);
            out.extend_from_slice(text.as_bytes());
        }
        (_, Cell::Text(text)) => put_bytes(out, text.as_bytes()),
        (_, Cell::Integer(number)) => put_i64(out, *number),
        (_, Cell::Real(number)) => {
            put_length(out, 8);
            out.put_f64(*number);
        }
        (_, Cell::Boolean(truth)) => put_bytes(out, &[u8::from(*truth)]),
    }
}

fn put_count(out: &mut BytesMut, fields: usize) {
    // A table has 1,600 columns at most.
    out.put_i16(i16::try_from(fields).unwrap_or(i16::MAX));
}

fn put_length(out: &mut BytesMut, bytes: usize) {
    // A value is 64 MiB at most.
    out.put_i32(i32::try_from(bytes).unwrap_or(i32::MAX));
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_i64(out: &mut BytesMut, number: i64) {
    put_length(out, 8);
    out.put_i64(number);
}

/// Microseconds since 2000.
fn put_instant(out: &mut BytesMut, ms: Option<i64>) {
    match ms {
        Some(ms) => put_i64(out, (ms - EPOCH_MS) * 1_000),
        None => out.put_i32(-1),
    }
}
