//! A batch of rows that are all said to be new goes in without a look: the unique indexes on natural keys and cache
//! entries are the proof that nothing was there. If one of them objects, nothing of the batch stays, and it is written
//! the careful way, row by row against what is there.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use futures::SinkExt;
use tokio_postgres::Statement;

use super::super::CAPS;
use super::super::layout::{Column, Table, Type};
use super::super::row::{self, Cell, Cells, version};
use super::ids;
use super::pen::{has_nul, now_ms};
use super::sql::{CACHE_COPY_BINARY, LOCK_BESIDE_NEW, Sql};
use crate::clock::read_rfc3339_ms;
use crate::error::{Error, Kind, Result};
use crate::postgres::{BULK_MAX, Session, within};
use crate::record::Fingerprint;
use crate::store::{Expect, Item, Op, Outcome, check_limits};

/// How a COPY in binary begins (a signature, no flags, no extension) and ends.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TAIL: [u8; 2] = (-1i16).to_be_bytes();
/// Rows that are encoded at a time, and go into one COPY. PostgreSQL holds a binary one's rows back until it has a thousand,
/// each in a slot of its own, and the time it takes to let go of them grows with the square of their number …
const PIECE_ROWS: usize = 500;
/// … but it uses them again: of so many rows all go into one.
const MANY_ROWS: usize = 2_500;
/// Milliseconds from 1970 to 2000, where PostgreSQL counts from.
const EPOCH_MS: i64 = 946_684_800_000;

/// `None` = not all of it is new rows: nothing was written, and the careful way will tell. So does a conflict, after which
/// the session is of no use any more.
pub(super) async fn write(
    session: &mut Session,
    sql: &[Sql],
    tables: &[Table],
    items: &[Item],
    now: &str,
) -> Result<Option<Vec<Outcome>>> {
    let Some(by_table) = by_table(tables, items) else { return Ok(None) };
    let now = now_ms(now);
    let parts: Vec<_> =
        sql.iter().zip(tables).zip(&by_table).filter(|(_, named)| !named.is_empty()).collect();
    let outcomes = items.iter().map(|_| None).collect();
    let mut fresh = Fresh { items, now, cache: VecDeque::new(), outcomes };
    let first = async {
        let_others_go().await;
        parts.first().map(|((_, table), named)| fresh.read(table, &named[..named.len().min(PIECE_ROWS)]))
    };
    let (begun, mut first) = tokio::join!(begun(session, &parts), first);
    let (reserved, into_cache, into_tables) = begun?;
    let mut pieces = Vec::new();
    for ((((_, table), named), ids), into) in parts.into_iter().zip(&reserved).zip(&into_tables) {
        let each = named.chunks(PIECE_ROWS).zip(ids.chunks(PIECE_ROWS));
        let spans = Span::of_pieces(each.len(), named.len());
        pieces.extend(each.zip(spans).map(|((named, ids), span)| (into, span, table, named, ids)));
    }
    let mut cache_spans = Span::of_pieces(pieces.len(), items.len());
    let mut pieces = pieces.into_iter();
    // All rows, then all cache entries.
    let next = || match pieces.next() {
        Some((into, span, table, named, ids)) => {
            let rows = first.take().unwrap_or_else(|| fresh.read(table, named)).map_err(|Odd| not_new())?;
            let lines = fresh.encode(table, named, ids, &rows);
            Ok(Some(Piece { into, span, rows: rows.len(), lines }))
        }
        None => {
            let cached = fresh.cache.pop_front().zip(cache_spans.next());
            Ok(cached.map(|((rows, lines), span)| Piece { into: &into_cache, span, rows, lines }))
        }
    };
    copied(session, next).await?;
    let outcomes = fresh.outcomes.into_iter().collect::<Option<_>>();
    outcomes.map(Some).ok_or_else(|| Error::bug("a row was left out"))
}

/// Whoever carries to PostgreSQL what was just said waits for this very thread: what takes long must not come first.
async fn let_others_go() {
    tokio::task::yield_now().await;
}

/// An item turned out to be something else than a new row.
struct Odd;

fn not_new() -> Error {
    Error::new(Kind::Conflict, "not all of it is new rows")
}

/// Where in its COPY a piece stands.
#[derive(Clone, Copy)]
struct Span {
    begins: bool,
    ends: bool,
}

impl Span {
    /// Of pieces that have so many rows together.
    fn of_pieces(pieces: usize, rows: usize) -> impl Iterator<Item = Span> {
        let together = rows >= MANY_ROWS;
        (1..=pieces).map(move |at| Span { begins: !together || at == 1, ends: !together || at == pieces })
    }
}

/// A part of a COPY.
struct Piece<'a> {
    into: &'a Statement,
    span: Span,
    rows: usize,
    lines: BytesMut,
}

/// Carry out one COPY after the other, and commit. While PostgreSQL works on a piece the next is encoded, and the next COPY is
/// asked for before the one before it is said to be done. What breaks off leaves a session nobody can use.
async fn copied<'a>(session: &Session, mut next: impl FnMut() -> Result<Option<Piece<'a>>>) -> Result<()> {
    let Some(mut piece) = next()? else { return Err(Error::bug("nothing to copy")) };
    let mut sink = Box::pin(within(BULK_MAX, session.copy_in(piece.into)).await?);
    let mut rows = 0;
    loop {
        rows += piece.rows;
        within(BULK_MAX, sink.send(framed(piece.span, piece.lines))).await?;
        if !piece.span.ends {
            let_others_go().await;
            piece = next()?.ok_or_else(|| Error::bug("a COPY without an end"))?;
            continue;
        }
        // First of all that these are all: until then PostgreSQL does not begin with most of its work.
        let done = within(BULK_MAX, sink.as_mut().finish());
        let following = async {
            let_others_go().await;
            let Some(piece) = next()? else { return Ok(None) };
            // One that is asked for after one that failed leaves the session in disorder: it goes with the error.
            let opened = within(BULK_MAX, session.copy_in(piece.into)).await;
            opened.map(|sink| Some((Box::pin(sink), piece)))
        };
        let (done, following) = tokio::join!(done, following);
        // Somebody's trigger let rows go by: the careful way tells which.
        if done? != std::mem::take(&mut rows) as u64 {
            return Err(not_new());
        }
        match following? {
            Some(copy) => (sink, piece) = copy,
            None => return within(BULK_MAX, session.batch_execute("COMMIT")).await,
        }
    }
}

/// A piece with what a COPY begins and ends with.
fn framed(span: Span, mut lines: BytesMut) -> Bytes {
    if span.ends {
        lines.extend_from_slice(&TAIL);
    }
    if !span.begins {
        // There was room for a head.
        bytes::Buf::advance(&mut lines, HEAD.len());
    }
    lines.freeze()
}

/// Where a row is in the batch, and its natural key.
type Named<'a> = (usize, &'a str);

/// A table with its statements, and its rows.
type Part<'a> = ((&'a Sql, &'a Table), &'a Vec<Named<'a>>);

/// A transaction that has its turn, with row ids for every table, and what will be asked in it. A session that is left in
/// the middle of one is never lent again.
async fn begun(session: &Session, parts: &[Part<'_>]) -> Result<(Vec<Vec<i64>>, Statement, Vec<Statement>)> {
    let ids: Vec<String> = parts.iter().map(|((sql, _), named)| sql.reserve(named.len())).collect();
    let begin = format!("BEGIN; {LOCK_BESIDE_NEW}; {}", ids.join("; "));
    let into_tables = parts.iter().map(|((sql, _), _)| session.prepared(&sql.copy_binary));
    // All in one go: the order is kept.
    let begun = async {
        tokio::try_join!(
            session.simple_query(&begin),
            session.prepared(CACHE_COPY_BINARY),
            futures::future::try_join_all(into_tables)
        )
    };
    let (answers, into_cache, into_tables) = within(BULK_MAX, begun).await?;
    let named = parts.iter().map(|((_, table), named)| (*table, named.len()));
    Ok((ids::reserved(&answers, named)?, into_cache, into_tables))
}

/// The rows of each table, if all of the batch is rows that are said to be new.
fn by_table<'i>(tables: &[Table], items: &'i [Item]) -> Option<Vec<Vec<Named<'i>>>> {
    let mut all: Vec<Vec<Named<'i>>> = tables.iter().map(|_| Vec::new()).collect();
    if items.is_empty() || !items.iter().all(is_new) {
        return None;
    }
    for (at, item) in items.iter().enumerate() {
        let (table, id) = row::parts(tables, &item.key)?;
        all[table].push((at, id));
    }
    // In the order of the index: it takes them faster, and of two writers that bring the same rows one waits for the other,
    // never both.
    for named in &mut all {
        named.sort_by_key(|(_, id)| *id);
    }
    Some(all)
}

fn is_new(item: &Item) -> bool {
    matches!(item.op, Op::Put { .. }) && item.expect == Expect::Absent
}

/// A batch on its way in.
struct Fresh<'a> {
    items: &'a [Item],
    now: i64,
    /// Cache entries of what went before, piece by piece, with their number.
    cache: VecDeque<(usize, BytesMut)>,
    outcomes: Vec<Option<Outcome>>,
}

/// A row where it is in its item, as cells, and its hash.
type Understood<'a> = (Cells<'a>, Fingerprint);

impl<'a> Fresh<'a> {
    fn read(&self, table: &Table, named: &[Named<'_>]) -> Result<Vec<Understood<'a>>, Odd> {
        let items = self.items;
        named.iter().map(|(at, id)| understood(table, id, &items[*at]).ok_or(Odd)).collect()
    }

    /// Rows as a piece of a COPY; their cache entries, of another, come later.
    fn encode(
        &mut self,
        table: &Table,
        named: &[Named<'_>],
        ids: &[i64],
        rows: &[Understood<'_>],
    ) -> BytesMut {
        let (mut lines, mut cache) = (begin(named.len() * 320), begin(named.len() * 160));
        for (((at, id), row_id), (cells, print)) in named.iter().zip(ids).zip(rows) {
            put_row(&mut lines, table, cells, *row_id, self.now);
            let version = print.with_hex(|print| {
                put_entry(&mut cache, table, (id, print), *row_id, self.now);
                version(*row_id, self.now, print)
            });
            self.outcomes[*at] = Some(Outcome::Applied(Some(version)));
        }
        self.cache.push_back((named.len(), cache));
        lines
    }
}

fn understood<'i>(table: &Table, id: &str, item: &'i Item) -> Option<Understood<'i>> {
    check_limits(&CAPS, item).ok()?;
    let Op::Put { value, fingerprint } = &item.op else { return None };
    let (cells, print) = row::understood(table, id, value, *fingerprint).ok()?;
    (tells_instants(table, &cells) && !has_nuls(table, &cells)).then_some((cells, print))
}

/// PostgreSQL's texts hold none.
fn has_nuls(table: &Table, cells: &Cells<'_>) -> bool {
    table.columns.iter().zip(&cells.cells).any(|(column, cell)| match (column.holds, cell) {
        (Type::Json, Cell::Text(text)) => has_nul(text.as_bytes()),
        // What stands in JSON as it is has none: they are always escaped.
        (_, Cell::Text(Cow::Owned(text))) => text.as_bytes().contains(&0),
        _ => false,
    })
}

/// Every instant is in the one form we write: in another it would be taken for a row that somebody altered.
fn tells_instants(table: &Table, cells: &Cells<'_>) -> bool {
    let instants =
        table.columns.iter().zip(&cells.cells).filter_map(|(column, cell)| match (column.holds, cell) {
            (Type::Instant, Cell::Text(text)) => Some(text.as_ref()),
            _ => None,
        });
    instants.chain(cells.missing_since.as_deref()).all(|text| read_rfc3339_ms(text).is_some())
}

fn begin(bytes: usize) -> BytesMut {
    let mut lines = BytesMut::with_capacity(HEAD.len() + bytes);
    lines.extend_from_slice(HEAD);
    lines
}

fn put_row(out: &mut BytesMut, table: &Table, row: &Cells<'_>, row_id: i64, now: i64) {
    put_count(out, 4 + table.columns.len());
    put_i64(out, row_id);
    put_instant(out, Some(now));
    put_instant(out, Some(now));
    put_instant(out, row.missing_since.as_deref().and_then(read_rfc3339_ms));
    for (column, cell) in table.columns.iter().zip(&row.cells) {
        put_cell(out, column, cell);
    }
}

fn put_entry(out: &mut BytesMut, table: &Table, (id, print): (&str, &str), row_id: i64, now: i64) {
    put_count(out, 6);
    put_bytes(out, table.name.as_bytes());
    put_bytes(out, id.as_bytes());
    put_bytes(out, print.as_bytes());
    put_i64(out, row_id);
    put_i64(out, table.schema_version);
    put_instant(out, Some(now));
}

fn put_cell(out: &mut BytesMut, column: &Column, cell: &Cell<'_>) {
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
