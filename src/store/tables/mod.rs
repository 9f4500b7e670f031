//! Tables: rows with typed columns, one real table per resource, and `sync_cache` beside them in the same database.
//!
//! A key is `table/natural key`, a value the row as canonical JSON. The row and its cache entry are written in one
//! transaction. Listing joins the two: a row that was deleted behind our back is not listed, and a row without a cache
//! entry is not ours yet: a put takes it over by its natural key and never makes a second one.
//!
//! Reading values recomputes their hash: a row that was altered has another version than its cache entry says.
//! It refuses values that are no rows of their table, and changes of a table that would lose data.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Access, Caps, Item, Listed, Mode, Outcome, Page, Query, Store, Stored, Sum, What, check_atomic,
    check_limits, check_lone,
};
use crate::clock::{SharedClock, rfc3339_ms};
use crate::config::{Database, Place as At, StoreSpec, TableSpec};
use crate::error::{Context, Error, Kind, Result};
use crate::postgres::prefix_end;
use crate::record::{Fingerprint, Version};

mod canon;
pub mod layout;
mod postgres;
mod row;
mod sqlite;

use layout::Table;
use row::{Held, Parsed, Place};

const CAPS: Caps = Caps {
    create: true,
    cas: true,
    atomic_max: 1_000,
    strong_read: true,
    cheap_list: true,
    keeps_fingerprint: true,
    sums: true,
    lists_own: true,
    bulk_max: 1_000,
    side_by_side: 1,
    // An index entry of PostgreSQL takes 2,704 bytes.
    key_max: 2_048,
    // A row is in memory several times on its way; nobody queries larger ones.
    value_max: 64 << 20,
};

/// A page of values ends here, whatever its limit says.
const PAGE_BYTES_MAX: usize = 8 << 20;

pub struct Tables {
    name: String,
    tables: Arc<Vec<Table>>,
    database: Open,
    clock: SharedClock,
}

enum Open {
    Sqlite(sqlite::Database),
    Postgres(postgres::Database),
}

/// A stretch of one table's listing.
#[derive(Debug, Clone)]
struct Span {
    table: usize,
    /// External ids from here on …
    from: String,
    /// … beyond this one …
    after: Option<String>,
    /// … and before this one.
    until: Option<String>,
    limit: usize,
    what: What,
}

/// What a database does in one write, in the order of the items.
struct Batch {
    items: Vec<(Item, Parsed<'static>)>,
    mode: Mode,
    now: String,
}

impl Tables {
    /// Open the database; with [`Access::Write`] tables are made or grown, with [`Access::Read`] nothing is changed and
    /// what is not there is empty.
    pub async fn open(
        spec: &StoreSpec,
        tables: Vec<TableSpec>,
        access: Access,
        clock: SharedClock,
    ) -> Result<Self> {
        let mut tables: Vec<Table> = tables.iter().map(Table::new).collect();
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        let At::Tables(place) = &spec.place else { return Err(Error::bug("a place without tables")) };
        let database = match place {
            Database::Sqlite(path) => {
                Open::Sqlite(sqlite::Database::open(path.clone(), &mut tables, access).await?)
            }
            Database::Postgres(url) => {
                let password =
                    spec.secrets.get("password").map(crate::secret::SecretRef::require).transpose()?;
                Open::Postgres(postgres::Database::open(url.expose(), password, &mut tables, access).await?)
            }
        };
        Ok(Tables { name: spec.name.clone(), tables: Arc::new(tables), database, clock })
    }

    async fn held(&self, places: Vec<Place>) -> Result<Vec<Option<Held>>> {
        match &self.database {
            Open::Sqlite(database) => database.get(self.tables.clone(), places).await,
            Open::Postgres(database) => database.get(&self.tables, &places).await,
        }
    }

    async fn span(&self, span: Span) -> Result<Vec<Listed>> {
        match &self.database {
            Open::Sqlite(database) => database.list(self.tables.clone(), span).await,
            Open::Postgres(database) => database.list(&self.tables[span.table], &span).await,
        }
    }

    /// The stretch of a table that a query asks for; `None` = nothing of it.
    fn stretch(&self, table: usize, query: &Query<'_>, limit: usize) -> Option<Span> {
        let root = format!("{}/", self.tables[table].name);
        let from = match query.prefix.strip_prefix(&root) {
            Some(rest) => rest,
            None if root.starts_with(query.prefix) => "",
            None => return None,
        };
        let after = match query.after {
            None => None,
            Some(after) => match after.strip_prefix(&root) {
                Some(rest) => Some(rest.to_owned()),
                None if after < root.as_str() => None,
                None => return None,
            },
        };
        Some(Span { table, from: from.to_owned(), after, until: prefix_end(from), limit, what: query.what })
    }
}

/// The database said yes, and the row is as it was: somebody's trigger or rule lets the change go by.
fn swallowed() -> Error {
    Error::new(Kind::Invalid, "the database said that it is done and did not do it")
        .remedy_is("A trigger or rule of the table swallows the change. Let it pass, or exclude the row.")
        .about_data()
}

/// What each item means; those that mean nothing have their answer already.
#[allow(clippy::type_complexity)] // answers, and what is left to be done
fn understand(
    tables: &[Table],
    items: Vec<Item>,
    mode: Mode,
) -> (Vec<Option<Result<Outcome>>>, Vec<(Item, Parsed<'static>)>) {
    let mut answers = Vec::with_capacity(items.len());
    let mut good = Vec::with_capacity(items.len());
    for item in items {
        let refused = |error: Error| error.while_(item.key.clone());
        let parsed = check_limits(&CAPS, &item)
            .and_then(|()| check_lone(&item, mode))
            .map_err(refused)
            .and_then(|()| row::parse(tables, &item).map(Parsed::into_owned));
        match parsed {
            Ok(parsed) => {
                answers.push(None);
                good.push((item, parsed));
            }
            Err(error) => answers.push(Some(Err(error))),
        }
    }
    (answers, good)
}

#[async_trait]
impl Store for Tables {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        match self.database {
            Open::Sqlite(_) => CAPS,
            Open::Postgres(_) => Caps { side_by_side: postgres::SIDE_BY_SIDE, ..CAPS },
        }
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let found: Vec<Option<Place>> = keys.iter().map(|key| row::place(&self.tables, key)).collect();
        let places: Vec<Place> = found.iter().flatten().cloned().collect();
        let held = self.held(places).await.context(|| format!("reading {}", self.name))?;
        let mut held = held.into_iter();
        let stored =
            |held: Held| Stored { value: held.value, version: held.version, fingerprint: Some(held.print) };
        Ok(found.into_iter().map(|place| place.and_then(|_| held.next().flatten()).map(stored)).collect())
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        let mut page = Page::default();
        let mut bytes = 0;
        for table in 0..self.tables.len() {
            let left = query.limit - page.items.len();
            let Some(span) = self.stretch(table, &query, left + 1) else { continue };
            for line in self.span(span).await.context(|| format!("listing {}", self.name))? {
                if page.items.len() == query.limit || bytes >= PAGE_BYTES_MAX {
                    page.more = true;
                    return Ok(page);
                }
                bytes += line.value.as_ref().map_or(0, bytes::Bytes::len);
                page.items.push(line);
            }
        }
        Ok(page)
    }

    async fn sum(&self, prefix: &str) -> Result<Option<Sum>> {
        if !prefix.is_empty() {
            return Ok(None);
        }
        let sum = match &self.database {
            Open::Sqlite(database) => database.sum(self.tables.clone()).await,
            Open::Postgres(database) => database.sum(&self.tables).await,
        };
        sum.context(|| format!("summing up {}", self.name)).map(Some)
    }

    async fn any_unlisted(&self) -> Result<bool> {
        let any = match &self.database {
            Open::Sqlite(database) => database.any_unlisted().await,
            Open::Postgres(database) => database.any_unlisted().await,
        };
        any.context(|| format!("reading {}", self.name))
    }

    async fn unlisted(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let found: Vec<Option<Place>> = keys.iter().map(|key| row::place(&self.tables, key)).collect();
        let places: Vec<Place> = found.iter().flatten().cloned().collect();
        let values = match &self.database {
            _ if places.is_empty() => Ok(Vec::new()),
            Open::Sqlite(database) => database.unlisted(self.tables.clone(), places).await,
            Open::Postgres(database) => database.unlisted(&self.tables, &places).await,
        };
        let mut values = values.context(|| format!("reading {}", self.name))?.into_iter();
        let stored = |value: bytes::Bytes| Stored {
            version: Version::default(),
            fingerprint: Some(Fingerprint::of(&value)),
            value,
        };
        Ok(found.into_iter().map(|place| place.and_then(|_| values.next().flatten()).map(stored)).collect())
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        check_atomic(&CAPS, items.len(), mode)?;
        let now = rfc3339_ms(self.clock.now());
        let writing = || format!("writing to {}", self.name);
        if let Open::Postgres(database) = &self.database
            && let Some(outcomes) = database.write_new(&self.tables, &items, &now).await.context(writing)?
        {
            return Ok(outcomes.into_iter().map(Ok).collect());
        }
        let tables = self.tables.clone();
        // Whoever writes has other things to do meanwhile.
        let understood = tokio::task::spawn_blocking(move || understand(&tables, items, mode)).await;
        let (answers, good) =
            understood.map_err(|error| Error::bug("reading rows broke off").caused_by(error))?;
        if mode == Mode::All && good.len() < answers.len() {
            return Ok(answers.into_iter().map(|answer| answer.unwrap_or(Ok(Outcome::Untouched))).collect());
        }
        let batch = Batch { items: good, mode, now };
        let written = match &self.database {
            _ if batch.items.is_empty() => Ok(Vec::new()),
            Open::Sqlite(database) => database.write(self.tables.clone(), batch).await,
            Open::Postgres(database) => database.write(&self.tables, batch).await,
        };
        let mut written = written.context(writing)?.into_iter();
        let lost = || Err(Error::bug("a write without an outcome"));
        Ok(answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| written.next().unwrap_or_else(lost)))
            .collect())
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        match &self.database {
            Open::Sqlite(database) => database.check(access)?,
            Open::Postgres(database) => database.check(&self.tables, access).await?,
        }
        self.list(Query { limit: 1, ..Query::keys("") }).await.map(|_| Vec::new())
    }
}
