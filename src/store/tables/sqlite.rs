//! Tables in a SQLite file. One connection writes, another reads, each on threads that may block.
//!
//! The file belongs to whoever queries it: other tables in it are left alone. A file of trueup's own key-value layout
//! is refused.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rusqlite::{Connection, OpenFlags};

use super::layout::{self, Found, Table, Type};
use super::row::{self, Held, Place, version};
use super::{Batch, Span};
use crate::error::{Error, Kind, Result, from_io};
use crate::postgres::quoted;
use crate::record::Fingerprint;
use crate::store::sqlite::APPLICATION_ID;
use crate::store::sqlite::fault::explain;
use crate::store::sqlite::file::{
    LOOKS_MAX, Manner, connect, folder_of, manner, open_as, written_all_the_time,
};
use crate::store::{Access, Listed, Outcome, Sum, What, writable};

mod pen;
mod sql;
mod sums;

use sql::Sql;

const BESIDE: &str = "
CREATE TABLE IF NOT EXISTS sync_cache(
  table_name TEXT NOT NULL,
  external_id TEXT NOT NULL,
  checksum TEXT NOT NULL,
  internal_id INTEGER NOT NULL,
  schema_version INTEGER NOT NULL,
  seen_at TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS by_table_and_external_id ON sync_cache(table_name, external_id);
CREATE TABLE IF NOT EXISTS sync_schema(
  table_name TEXT NOT NULL PRIMARY KEY,
  schema_version INTEGER NOT NULL,
  columns TEXT NOT NULL
);";

pub(super) struct Database {
    path: PathBuf,
    writer: Option<Arc<Mutex<Connection>>>,
    /// `None` = opened to be read, and there is no file.
    reader: Option<Arc<Reader>>,
    sql: Arc<Vec<Sql>>,
}

impl Database {
    pub async fn open(path: PathBuf, tables: &mut [Table], access: Access) -> Result<Self> {
        let mut owned = tables.to_vec();
        let opened = blocking(move || {
            let database = open(&path, &mut owned, access)?;
            Ok((database, owned))
        });
        let (database, owned) = opened.await?;
        tables.clone_from_slice(&owned);
        Ok(database)
    }

    pub fn check(&self, access: Access) -> Result<()> {
        match access {
            Access::Read => Ok(()),
            Access::Write => writable::check_database(&self.path),
        }
    }

    pub async fn get(&self, tables: Arc<Vec<Table>>, places: Vec<Place>) -> Result<Vec<Option<Held>>> {
        let Some(reader) = self.reader.clone() else { return Ok(vec![None; places.len()]) };
        let sql = self.sql.clone();
        blocking(move || {
            reader.with(|connection| {
                places
                    .iter()
                    .map(|place| pen::held(connection, &sql, &tables, place).map_err(explain))
                    .collect()
            })
        })
        .await
    }

    pub async fn list(&self, tables: Arc<Vec<Table>>, span: Span) -> Result<Vec<Listed>> {
        let Some(reader) = self.reader.clone() else { return Ok(Vec::new()) };
        let sql = self.sql.clone();
        blocking(move || {
            reader.with(|connection| {
                list(connection, &sql[span.table], &tables[span.table], &span).map_err(explain)
            })
        })
        .await
    }

    pub async fn sum(&self, tables: Arc<Vec<Table>>) -> Result<Sum> {
        let Some(reader) = self.reader.clone() else { return Ok(Sum::default()) };
        let sql = self.sql.clone();
        blocking(move || reader.with(|connection| sums::sum(connection, &sql, &tables).map_err(explain)))
            .await
    }

    pub async fn any_unlisted(&self) -> Result<bool> {
        let Some(reader) = self.reader.clone() else { return Ok(false) };
        let sql = self.sql.clone();
        let any = move |connection: &Connection| {
            for sql in sql.iter().filter(|sql| !sql.absent) {
                if connection.query_row(&sql.any_unlisted, [], |row| row.get(0)).map_err(explain)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        blocking(move || reader.with(&any)).await
    }

    pub async fn unlisted(&self, tables: Arc<Vec<Table>>, places: Vec<Place>) -> Result<Vec<Option<Bytes>>> {
        let Some(reader) = self.reader.clone() else { return Ok(vec![None; places.len()]) };
        let sql = self.sql.clone();
        let one = move |connection: &Connection, place: &Place| {
            let (sql, table) = (&sql[place.table], &tables[place.table]);
            let Some(key) = row::key_of(table, &place.external_id).filter(|_| !sql.absent) else {
                return Ok(None);
            };
            let found = pen::natural(connection, sql, table, &key).map_err(explain)?;
            Ok(found.and_then(|(_, cells)| row::bytes(table, &cells).ok()).map(Bytes::from))
        };
        blocking(move || {
            reader.with(|connection| places.iter().map(|place| one(connection, place)).collect())
        })
        .await
    }

    pub async fn write(&self, tables: Arc<Vec<Table>>, batch: Batch) -> Result<Vec<Result<Outcome>>> {
        let Some(writer) = self.writer.clone() else {
            return Err(Error::bug("a write to tables that were opened to be read"));
        };
        let sql = self.sql.clone();
        blocking(move || {
            let mut connection = writer.lock().unwrap_or_else(PoisonError::into_inner);
            pen::write(&mut connection, &sql, &tables, &batch).map_err(explain)
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::bug("work with SQLite broke off").caused_by(error))?
}

fn open(path: &Path, tables: &mut [Table], access: Access) -> Result<Database> {
    let (writer, reader) = match access {
        Access::Write => {
            let writer = open_to_write(path)?;
            lay_out(&writer, tables)?;
            (Some(writer), Some(Reader::as_now(path, Manner::Shared)?))
        }
        Access::Read => (None, manner(path)?.map(|now| Reader::as_now(path, now)).transpose()?),
    };
    if let (None, Some(reader)) = (&writer, &reader) {
        reader.with(|connection| {
            refuse_a_store(connection)?;
            check_layout(connection, tables)
        })?;
    }
    // Read before they were made or grown, tables have only the columns that are there.
    let sql = match &reader {
        Some(reader) => {
            let sql = |connection: &Connection| {
                // Without a cache nothing in the tables is ours yet.
                let cached = has(connection, "sync_cache")?;
                let found = |table| if cached { found(connection, table) } else { Ok(Found::default()) };
                tables.iter().map(|table| Ok(Sql::new(table, &found(table)?))).collect::<Result<_>>()
            };
            reader.with(sql)?
        }
        None => Vec::new(),
    };
    let writer = writer.map(|connection| Arc::new(Mutex::new(connection)));
    Ok(Database { path: path.to_owned(), writer, reader: reader.map(Arc::new), sql: Arc::new(sql) })
}

/// A connection to read with. Without a log beside it the file is read as it is, and not a byte is added anywhere.
struct Reader {
    path: PathBuf,
    lent: Mutex<(Connection, Manner)>,
}

impl Reader {
    fn as_now(path: &Path, manner: Manner) -> Result<Self> {
        let lent = Mutex::new((open_as(path, manner)?, manner));
        Ok(Reader { path: path.to_owned(), lent })
    }

    /// Work on a file that somebody began to write meanwhile is done again: what it saw may be of two moments.
    fn with<T>(&self, mut work: impl FnMut(&Connection) -> Result<T>) -> Result<T> {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LOOKS_MAX {
            let done = work(&lent.0);
            if lent.1 == Manner::Shared {
                return done;
            }
            let gone = || Error::new(Kind::Unavailable, "the file was removed while it was read");
            let now = manner(&self.path)?.ok_or_else(gone)?;
            if now == lent.1 {
                return done;
            }
            *lent = (open_as(&self.path, now)?, now);
        }
        Err(written_all_the_time())
    }
}

fn open_to_write(path: &Path) -> Result<Connection> {
    let folder = folder_of(path);
    std::fs::create_dir_all(&folder)
        .map_err(|error| from_io(error, format!("making {}", folder.display())))?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = connect(path, flags)?;
    refuse_a_store(&connection)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(explain)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(explain)?;
    connection.set_prepared_statement_cache_capacity(256);
    Ok(connection)
}

fn refuse_a_store(connection: &Connection) -> Result<()> {
    let id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(explain)?;
    if id == APPLICATION_ID {
        return Err(Error::new(
            Kind::Config,
            "this file is a key-value store of trueup, not a database for tables",
        )
        .remedy_is("Name another file; this one was left as it is."));
    }
    Ok(())
}

fn native(holds: Type) -> &'static str {
    match holds {
        Type::Text | Type::Instant | Type::Json => "TEXT",
        Type::Integer => "INTEGER",
        Type::Real => "REAL",
        Type::Boolean => "BOOLEAN",
    }
}

fn has(connection: &Connection, table: &str) -> Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")
        .and_then(|mut it| it.exists([table]))
        .map_err(explain)
}

/// What the database has of a table.
fn found(connection: &Connection, table: &Table) -> Result<Found> {
    let mut found = Found::default();
    let mut columns = connection.prepare("SELECT name, type FROM pragma_table_info(?1)").map_err(explain)?;
    let rows = columns.query_map([&table.name], |row| Ok((row.get(0)?, row.get(1)?))).map_err(explain)?;
    found.columns = rows.collect::<rusqlite::Result<_>>().map_err(explain)?;
    found.is_no_table = !found.columns.is_empty() && !has(connection, &table.name)?;
    if has(connection, "sync_schema")? {
        let sql = "SELECT schema_version, columns FROM sync_schema WHERE table_name = ?1";
        let mut rows = connection.prepare(sql).map_err(explain)?;
        let row =
            rows.query_map([&table.name], |row| Ok((row.get(0)?, row.get(1)?))).map_err(explain)?.next();
        found.described = row.transpose().map_err(explain)?;
    }
    Ok(found)
}

fn check_layout(connection: &Connection, tables: &mut [Table]) -> Result<()> {
    for table in tables {
        layout::compare(table, &found(connection, table)?, native)?;
    }
    Ok(())
}

fn lay_out(connection: &Connection, tables: &mut [Table]) -> Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE").map_err(explain)?;
    let done = lay_out_within(connection, tables);
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(explain)?;
    done
}

fn lay_out_within(connection: &Connection, tables: &mut [Table]) -> Result<()> {
    connection.execute_batch(BESIDE).map_err(explain)?;
    for table in tables {
        let found = found(connection, table)?;
        let change = layout::compare(table, &found, native)?;
        let steps = layout::steps(table, &found, change, create, native);
        for step in steps {
            connection.execute_batch(&step).map_err(explain)?;
        }
        let sql = "INSERT INTO sync_schema VALUES(?1, ?2, ?3) ON CONFLICT(table_name)
                   DO UPDATE SET schema_version = ?2, columns = ?3 WHERE columns IS NOT ?3";
        connection.execute(sql, (&table.name, table.schema_version, table.description())).map_err(explain)?;
        layout::check_key(table, &unique(connection, table).map_err(explain)?)?;
    }
    Ok(())
}

/// The columns of the table's unique indexes.
fn unique(connection: &Connection, table: &Table) -> rusqlite::Result<Vec<Vec<String>>> {
    // An expression has no name.
    let sql = "SELECT json_group_array(coalesce(i.name, '')) FROM pragma_index_list(?1) l
               JOIN pragma_index_info(l.name) i WHERE l.\"unique\" AND NOT l.partial GROUP BY l.name";
    let mut statement = connection.prepare(sql)?;
    let lists = statement.query_map([&table.name], |row| row.get::<_, String>(0))?;
    lists.map(|list| Ok(serde_json::from_str(&list?).unwrap_or_default())).collect()
}

fn create(table: &Table) -> String {
    let mut columns = String::new();
    for (at, column) in table.columns.iter().enumerate() {
        let always = if table.key.contains(&at) { " NOT NULL" } else { "" };
        columns.push_str(&format!("{} {}{always}, ", quoted(&column.name), native(column.holds)));
    }
    format!(
        "CREATE TABLE {}(row_id INTEGER PRIMARY KEY AUTOINCREMENT, {columns}
         created_at TEXT NOT NULL, updated_at TEXT NOT NULL, missing_since TEXT)",
        quoted(&table.name)
    )
}

fn list(connection: &Connection, sql: &Sql, table: &Table, span: &Span) -> rusqlite::Result<Vec<Listed>> {
    if sql.absent {
        return Ok(Vec::new());
    }
    let text = if span.what == What::Values { &sql.list_values } else { &sql.list_keys };
    let mut statement = connection.prepare_cached(text)?;
    let limit = i64::try_from(span.limit).unwrap_or(i64::MAX);
    let mut rows = statement.query((&table.name, &span.from, &span.after, &span.until, limit))?;
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        let id = row.get_ref(0)?.as_str()?;
        let key = format!("{}/{id}", table.name);
        let (row_id, checksum, seen_at) = (row.get(1)?, row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_str()?);
        lines.push(match span.what {
            What::Names | What::Keys => Listed {
                key,
                version: version(row_id, pen::ms(seen_at), checksum),
                fingerprint: Fingerprint::parse(checksum),
                value: None,
            },
            What::Values => {
                let held = Held::new(table, row_id, sql.cells(table, row, 4)?, pen::ms(seen_at), checksum);
                Listed { key, version: held.version, fingerprint: Some(held.print), value: Some(held.value) }
            }
        });
    }
    Ok(lines)
}
