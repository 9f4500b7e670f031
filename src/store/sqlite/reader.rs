//! Reading: a few connections of their own, so that no reader waits for the writer or the other way round.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::fault::explain;
use super::file::{self, Found, LOOKS_MAX, Manner};
use crate::error::{Error, Kind, Result};
use crate::record::{Fingerprint, Version};
use crate::store::{Access, Listed, Page, Query, Stored, Sum, What, prefix_end};

/// Reads at the same time: enough for a few workers; each costs a page cache.
const READERS: usize = 4;
/// A page of values ends once it holds this many bytes, whatever its limit: pages of large values stay in memory.
const PAGE_BYTES: usize = 32 * 1024 * 1024;

const GET: &str = "SELECT kv.version, kv.fingerprint, coalesce(kv.value, large.value)
                   FROM kv LEFT JOIN large ON large.id = kv.large WHERE kv.key = ?1";
const LIST_KEYS: &str =
    "SELECT key, version, fingerprint FROM kv WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3";
const LIST_VALUES: &str = "SELECT kv.key, kv.version, kv.fingerprint, coalesce(kv.value, large.value)
                           FROM kv LEFT JOIN large ON large.id = kv.large
                           WHERE kv.key >= ?1 AND kv.key < ?2 ORDER BY kv.key LIMIT ?3";

const SUM: &str = "SELECT key, version FROM kv WHERE key >= ?1 AND key < ?2";

/// The connections that are free just now.
pub(super) struct Readers {
    path: PathBuf,
    access: Access,
    turns: Semaphore,
    free: Mutex<Vec<Reader>>,
}

struct Reader {
    connection: Connection,
    manner: Manner,
}

impl Readers {
    pub fn new(path: PathBuf, access: Access) -> Self {
        Readers { path, access, turns: Semaphore::new(READERS), free: Mutex::default() }
    }

    pub async fn turn(&self) -> Result<SemaphorePermit<'_>> {
        self.turns.acquire().await.map_err(|_| Error::new(Kind::Canceled, "the store was closed"))
    }

    pub fn close(&self) {
        self.turns.close();
        self.free().clear();
    }

    /// Open once, to learn at the start what is wrong with the file.
    pub fn try_out(&self) -> Result<()> {
        self.with(|connection| match connection {
            Some(connection) => {
                let count = "SELECT count(*) FROM sqlite_schema WHERE name IN ('kv','large','meta')";
                match connection.query_row(count, [], |row| row.get::<_, i64>(0)).map_err(explain)? {
                    3 => Ok(()),
                    _ => Err(Error::new(Kind::Corrupt, "tables are missing in the file")),
                }
            }
            None => Ok(()),
        })
    }

    /// Lend a connection to `work`. After an error it is closed instead of being lent again. Work on a file that somebody
    /// began to write meanwhile is done again: what it saw, an error included, may be of two moments.
    pub fn with<T>(&self, work: impl Fn(Option<&mut Connection>) -> Result<T>) -> Result<T> {
        for _ in 0..LOOKS_MAX {
            let Some(manner) = self.manner()? else { return work(None) };
            let kept = self.free().pop().filter(|reader| reader.manner == manner);
            let mut reader = match kept {
                Some(reader) => reader,
                None => Reader { connection: self.connect(manner)?, manner },
            };
            let done = work(Some(&mut reader.connection));
            if manner != Manner::Shared && self.manner()? != Some(manner) {
                continue;
            }
            let done = done?;
            if !self.turns.is_closed() {
                self.free().push(reader);
            }
            return Ok(done);
        }
        Err(file::written_all_the_time())
    }

    /// How to open the file now; `None` = there is none. A writer of ours keeps the log alive all the time.
    fn manner(&self) -> Result<Option<Manner>> {
        match self.access {
            Access::Write => Ok(Some(Manner::Shared)),
            Access::Read => file::manner(&self.path),
        }
    }

    fn connect(&self, manner: Manner) -> Result<Connection> {
        if self.access == Access::Read && file::look(&self.path)? != Found::Ours {
            return Err(Error::new(Kind::Unavailable, "the file was replaced while it was read"));
        }
        file::open_as(&self.path, manner)
    }

    fn free(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn get(source: Option<&mut Connection>, keys: &[String]) -> Result<Vec<Option<Stored>>> {
    let Some(connection) = source else { return Ok(keys.iter().map(|_| None).collect()) };
    if let [key] = keys {
        return get_each(connection, std::slice::from_ref(key)).map_err(explain);
    }
    // One transaction: all keys as of one moment, and one lock instead of one per key.
    let moment = connection.transaction().map_err(explain)?;
    get_each(&moment, keys).map_err(explain)
}

fn get_each(connection: &Connection, keys: &[String]) -> rusqlite::Result<Vec<Option<Stored>>> {
    let mut statement = connection.prepare_cached(GET)?;
    let stored = |row: &Row<'_>| {
        Ok(Stored { version: version(row, 0)?, fingerprint: fingerprint(row, 1)?, value: value(row, 2)? })
    };
    keys.iter().map(|key| statement.query_row([key], stored).optional()).collect()
}

/// A query that can move to another thread: a half-open range of keys.
pub(super) struct Span {
    from: Vec<u8>,
    /// `None` = to the end.
    until: Option<Vec<u8>>,
    limit: usize,
    what: What,
}

impl Span {
    pub fn of(query: &Query<'_>) -> Self {
        let from = match query.after {
            // The smallest string greater than `after`.
            Some(after) if after >= query.prefix => [after.as_bytes(), b"\0"].concat(),
            _ => query.prefix.as_bytes().to_vec(),
        };
        Span { from, until: prefix_end(query.prefix), limit: query.limit, what: query.what }
    }
}

/// A bound on keys: compared as text, byte by byte, even where it is not valid UTF-8.
struct Edge<'a>(Option<&'a [u8]>);

impl ToSql for Edge<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        // SQLite sorts every blob after every text: the empty one is the end of all keys.
        Ok(ToSqlOutput::Borrowed(self.0.map_or(ValueRef::Blob(&[]), ValueRef::Text)))
    }
}

pub(super) fn list(source: Option<&mut Connection>, span: &Span) -> Result<Page> {
    let Some(connection) = source else { return Ok(Page::default()) };
    let sql = if span.what == What::Values { LIST_VALUES } else { LIST_KEYS };
    let mut statement = connection.prepare_cached(sql).map_err(explain)?;
    let one_more = i64::try_from(span.limit).unwrap_or(i64::MAX).saturating_add(1);
    let bounds = (Edge(Some(&span.from)), Edge(span.until.as_deref()), one_more);
    let mut rows = statement.query(bounds).map_err(explain)?;
    let mut items = Vec::with_capacity(span.limit.min(crate::store::PAGE));
    let mut bytes = 0;
    while let Some(row) = rows.next().map_err(explain)? {
        if items.len() == span.limit || bytes >= PAGE_BYTES {
            return Ok(Page { items, more: true });
        }
        let listed = line(row, span.what).map_err(explain)?;
        bytes += listed.value.as_ref().map_or(0, Bytes::len);
        items.push(listed);
    }
    Ok(Page { items, more: false })
}

pub(super) fn sum(source: Option<&mut Connection>, span: &Span) -> Result<Sum> {
    let mut sum = Sum::default();
    let Some(connection) = source else { return Ok(sum) };
    let mut statement = connection.prepare_cached(SUM).map_err(explain)?;
    let bounds = (Edge(Some(&span.from)), Edge(span.until.as_deref()));
    let mut rows = statement.query(bounds).map_err(explain)?;
    while let Some(row) = rows.next().map_err(explain)? {
        let pair = row.get_ref(0).and_then(|key| Ok((key.as_str()?, version(row, 1)?)));
        let (key, version) = pair.map_err(explain)?;
        sum.add(key, &version.0);
    }
    Ok(sum)
}

fn line(row: &Row<'_>, what: What) -> rusqlite::Result<Listed> {
    Ok(Listed {
        key: row.get_ref(0)?.as_str()?.to_owned(),
        version: version(row, 1)?,
        fingerprint: fingerprint(row, 2)?,
        value: if what == What::Values { Some(value(row, 3)?) } else { None },
    })
}

fn version(row: &Row<'_>, at: usize) -> rusqlite::Result<Version> {
    Ok(Version::from(row.get_ref(at)?.as_i64()?))
}

fn fingerprint(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Fingerprint>> {
    Ok(row.get_ref(at)?.as_blob_or_null()?.and_then(Fingerprint::from_slice))
}

fn value(row: &Row<'_>, at: usize) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(at)?.as_bytes()?))
}
