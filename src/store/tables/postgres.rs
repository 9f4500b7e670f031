//! Tables in PostgreSQL: batches go in as a whole, new rows by COPY, changed ones in one statement per table.
//!
//! Writers of one database take turns on `sync_cache`, except those whose rows are all said to be new: they go side by side,
//! and take turns only with those that look first. Readers never wait. What somebody changes by hand between our
//! look and our write within one transaction is overwritten, as any later change of ours would.

use bytes::Bytes;
use futures::TryStreamExt as _;
use serde_json::Value;
use tokio_postgres::{GenericClient, Row, Transaction};

use super::layout::{self, Change, Found, Table, Type};
use super::row::{self, Adding, Cells, Held, Place, version};
use super::{Batch, Span};
use crate::config::natural_key_index;
use crate::error::{Error, Kind, Result};
use crate::postgres::pool::Pool;
use crate::postgres::rights::Right;
use crate::postgres::{BULK_MAX, PostgresPlace, STATEMENT_MAX, Session, quoted, within};
use crate::record::Fingerprint;
use crate::secret::Secret;
use crate::store::{Access, Item, Listed, Mode, Outcome, Sum, What};

mod fresh;
mod ids;
mod pen;
mod sql;

use sql::Sql;

/// PostgreSQL works on a batch with one core, and waits in between for the rows we encode. A third one gains nothing more
/// where two cores are shared with us.
pub(super) const SIDE_BY_SIDE: usize = 2;

/// Everything asked here is found by an index and wanted in its order. Tables that grow while they are filled have no
/// statistics that would tell the planner so.
const BY_INDEX: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
                        SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

/// … except where whole tables are: of all their rows none is looked up.
const AS_A_WHOLE: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
                          SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_nestloop = off";

/// What lies beside the tables of a recipe.
const BESIDE_NAMES: [&str; 2] = ["sync_cache", "sync_schema"];

const BESIDE: &str = "
SELECT pg_advisory_xact_lock(hashtextextended('trueup tables', 0));
CREATE TABLE IF NOT EXISTS sync_cache(
  table_name text COLLATE \"C\" NOT NULL,
  external_id text COLLATE \"C\" NOT NULL,
  checksum text NOT NULL,
  internal_id bigint NOT NULL,
  schema_version bigint NOT NULL,
  seen_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS by_table_and_external_id ON sync_cache(table_name, external_id);
CREATE TABLE IF NOT EXISTS sync_schema(
  table_name text PRIMARY KEY,
  schema_version bigint NOT NULL,
  columns text NOT NULL
);";

pub(super) struct Database {
    pool: Pool,
    access: Access,
    sql: Vec<Sql>,
}

impl Database {
    pub async fn open(
        url: &str,
        password: Option<Secret>,
        tables: &mut [Table],
        access: Access,
    ) -> Result<Self> {
        let pool = Pool::open(PostgresPlace::parse(url)?, password, BY_INDEX).await?;
        let sql = pool.with(async |session| prepare(session, tables, access).await).await?;
        Ok(Database { pool, access, sql })
    }

    pub async fn get(&self, tables: &[Table], places: &[Place]) -> Result<Vec<Option<Held>>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        self.pool.with(async |session| held(&**session, &self.sql, tables, places).await).await
    }

    pub async fn list(&self, table: &Table, span: &Span) -> Result<Vec<Listed>> {
        let sql = &self.sql[span.table];
        if sql.absent {
            return Ok(Vec::new());
        }
        let text = if span.what == What::Values { &sql.list_values } else { &sql.list_keys };
        let limit = i64::try_from(span.limit).unwrap_or(i64::MAX);
        let rows = self
            .pool
            .with(async |session| {
                within(
                    BULK_MAX,
                    session.query(text, &[&table.name, &span.from, &span.after, &span.until, &limit]),
                )
                .await
            })
            .await?;
        Ok(rows.iter().map(|row| line(sql, table, span, row)).collect())
    }

    /// All tables, as of one moment.
    pub async fn sum(&self, tables: &[Table]) -> Result<Sum> {
        self.pool
            .with(async |session| {
                let mut adding = Adding::default();
                let transaction = within(STATEMENT_MAX, session.transaction()).await?;
                within(STATEMENT_MAX, transaction.batch_execute(AS_A_WHOLE)).await?;
                for (sql, table) in self.sql.iter().zip(tables).filter(|(sql, _)| !sql.absent) {
                    within(BULK_MAX, summed(&transaction, sql, table, &mut adding)).await?;
                }
                within(STATEMENT_MAX, transaction.commit()).await?;
                Ok(adding.sum)
            })
            .await
    }

    /// Rows that are all said to be new; `None` = the careful way must tell.
    pub async fn write_new(
        &self,
        tables: &[Table],
        items: &[Item],
        now: &str,
    ) -> Result<Option<Vec<Outcome>>> {
        self.must_write()?;
        let written =
            self.pool.with(async |session| fresh::write(session, &self.sql, tables, items, now).await).await;
        match written {
            Err(error) if error.kind() == Kind::Conflict || error.is_about_data() => Ok(None),
            written => written,
        }
    }

    /// Opening them to be written makes tables and indexes where they are missing, which only their owner may.
    pub async fn check(&self, tables: &[Table], access: Access) -> Result<()> {
        let right = if access == Access::Write { Right::Own } else { Right::Read };
        let names = tables.iter().map(|table| quoted(&table.name));
        let names: Vec<String> = names.chain(BESIDE_NAMES.map(str::to_owned)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.pool.check(&names, right).await
    }

    fn must_write(&self) -> Result<()> {
        match self.access {
            Access::Write => Ok(()),
            Access::Read => Err(Error::bug("a write to tables that were opened to be read")),
        }
    }

    /// A row that the database does not take fails alone: the batch is written in halves until it is by itself.
    pub async fn write(&self, tables: &[Table], batch: Batch) -> Result<Vec<Result<Outcome>>> {
        self.must_write()?;
        let mut outcomes = Vec::with_capacity(batch.items.len());
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            let written =
                self.pool.with(async |session| pen::write(session, &self.sql, tables, &part).await).await;
            match written {
                Ok(written) => outcomes.extend(written),
                Err(error) if part.mode == Mode::Each && error.is_about_data() => match &part.items[..] {
                    [(item, _)] => outcomes.push(Err(error.while_(item.key.clone()))),
                    several => {
                        let items = part.items.split_off(several.len() / 2);
                        parts.push(Batch { items, mode: part.mode, now: part.now.clone() });
                        parts.push(part);
                    }
                },
                Err(error) => return Err(error),
            }
        }
        Ok(outcomes)
    }

    pub async fn any_unlisted(&self) -> Result<bool> {
        self.pool
            .with(async |session| {
                for sql in self.sql.iter().filter(|sql| !sql.absent) {
                    let found = within(BULK_MAX, session.query_one(&sql.any_unlisted, &[])).await?;
                    if found.get(0) {
                        return Ok(true);
                    }
                }
                Ok(false)
            })
            .await
    }

    pub async fn unlisted(&self, tables: &[Table], places: &[Place]) -> Result<Vec<Option<Bytes>>> {
        let found = self.pool.with(async |session| natural(&**session, &self.sql, tables, places).await);
        let rows = found.await?.into_iter().zip(places);
        let value = |(row, place): (Option<Natural>, &Place)| {
            row.and_then(|(_, cells)| row::bytes(&tables[place.table], &cells).ok()).map(Bytes::from)
        };
        Ok(rows.map(value).collect())
    }
}

static NOTHING: Found =
    Found { described: None, columns: Vec::new(), collations: Vec::new(), is_no_table: false };

/// Make, grow or merely compare the tables, and learn which columns are there. They are looked at all at once: a database
/// that is far away answers one question as slowly as a dozen.
async fn prepare(session: &mut Session, tables: &mut [Table], access: Access) -> Result<Vec<Sql>> {
    let transaction = within(STATEMENT_MAX, session.transaction()).await?;
    let (cached, described) = match access {
        Access::Write => {
            within(STATEMENT_MAX, transaction.batch_execute(BESIDE)).await?;
            (true, true)
        }
        Access::Read => {
            let known =
                "SELECT to_regclass('sync_cache') IS NOT NULL, to_regclass('sync_schema') IS NOT NULL";
            let known = within(STATEMENT_MAX, transaction.query_one(known, &[])).await?;
            (known.get(0), known.get(1))
        }
    };
    let looks = tables.iter().map(|table| found(&transaction, table, described));
    let found_now = futures::future::try_join_all(looks).await?;
    let (mut all, mut made) = (Vec::with_capacity(tables.len()), String::new());
    for (table, mut there) in tables.iter_mut().zip(found_now) {
        let change = layout::compare(table, &there, native)?;
        if access == Access::Write {
            let stays = change == Change::Nothing;
            if change == Change::Create {
                made.push_str(&primary_key(table));
            }
            lay_out(&transaction, table, &there, change).await?;
            if !stays {
                there = found(&transaction, table, described).await?;
            }
        }
        // Without a cache nothing in the tables is ours yet.
        all.push(Sql::new(table, if cached { &there } else { &NOTHING }));
    }
    if access == Access::Write {
        check_keys(&transaction, tables).await?;
        within(STATEMENT_MAX, transaction.batch_execute(&made)).await?;
    }
    within(STATEMENT_MAX, transaction.commit()).await?;
    Ok(all)
}

async fn check_keys(transaction: &Transaction<'_>, tables: &[Table]) -> Result<()> {
    let sql = "SELECT c.relname::text, array_agg(a.attname::text)
               FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid
               JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1])
               WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY($1)
                 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
               GROUP BY c.relname, i.indexrelid";
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    let rows = within(STATEMENT_MAX, transaction.query(sql, &[&names])).await?;
    let unique: Vec<(String, Vec<String>)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    tables.iter().try_for_each(|table| {
        let of = unique.iter().filter(|(name, _)| *name == table.name).map(|(_, columns)| columns);
        layout::check_key(table, of)
    })
}

async fn lay_out(
    transaction: &Transaction<'_>,
    table: &mut Table,
    before: &Found,
    change: Change,
) -> Result<()> {
    let steps = layout::steps(table, before, change, create, native);
    within(BULK_MAX, transaction.batch_execute(&steps.join(";"))).await?;
    let sql = "INSERT INTO sync_schema VALUES($1, $2, $3) ON CONFLICT(table_name)
               DO UPDATE SET schema_version = $2, columns = $3 WHERE sync_schema.columns <> $3";
    let description = table.description();
    within(STATEMENT_MAX, transaction.execute(sql, &[&table.name, &table.schema_version, &description]))
        .await?;
    Ok(())
}

fn create(table: &Table) -> String {
    let mut columns = String::new();
    for (at, column) in table.columns.iter().enumerate() {
        let always = if table.key.contains(&at) { " NOT NULL" } else { "" };
        columns.push_str(&format!("{} {}{always}, ", quoted(&column.name), native(column.holds)));
    }
    format!(
        "CREATE TABLE {}(row_id bigint GENERATED BY DEFAULT AS IDENTITY (INCREMENT BY {}), {columns}
         created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL, missing_since timestamptz)",
        quoted(&table.name),
        ids::EACH
    )
}

/// The natural key of a new table, whose index is there.
fn primary_key(table: &Table) -> String {
    let index = quoted(&natural_key_index(&table.name));
    format!("ALTER TABLE {} ADD CONSTRAINT {index} PRIMARY KEY USING INDEX {index};", quoted(&table.name))
}

/// As `format_type` calls it.
fn native(holds: Type) -> &'static str {
    match holds {
        Type::Text => "text",
        Type::Integer => "bigint",
        Type::Real => "double precision",
        Type::Boolean => "boolean",
        Type::Instant => "timestamp with time zone",
        Type::Json => "jsonb",
    }
}

/// The columns that are there and, where there is such a table, what `sync_schema` says of them.
async fn found(transaction: &Transaction<'_>, table: &Table, described: bool) -> Result<Found> {
    let name = &table.name;
    let columns = async {
        // The view of the standard says the same, and takes a hundred times as long.
        let sql = "SELECT a.attname::text, format_type(coalesce(nullif(t.typbasetype, 0), t.oid), NULL),
                     c.relkind NOT IN ('r', 'p'), quote_ident(n.nspname) || '.' || quote_ident(k.collname)
                   FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
                   LEFT JOIN pg_collation k ON k.oid = a.attcollation LEFT JOIN pg_namespace n ON n.oid = k.collnamespace
                   WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = $1::text
                     AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped
                   ORDER BY a.attnum";
        within(STATEMENT_MAX, transaction.query(sql, &[name])).await
    };
    let described = async {
        let sql = "SELECT schema_version, columns FROM sync_schema WHERE table_name = $1";
        if !described {
            return Ok(None);
        }
        within(STATEMENT_MAX, transaction.query_opt(sql, &[name])).await
    };
    let (columns, described) = tokio::try_join!(columns, described)?;
    Ok(Found {
        is_no_table: columns.first().and_then(|row| row.get(2)).unwrap_or(false),
        columns: columns.iter().map(|row| (row.get(0), row.get(1))).collect(),
        collations: columns
            .iter()
            .filter_map(|row| Some((row.get(0), row.get::<_, Option<_>>(3)?)))
            .collect(),
        described: described.map(|row| (row.get(0), row.get(1))),
    })
}

/// What is under each key: a row with its cache entry. One without the other is nothing.
async fn held(
    client: &impl GenericClient,
    sql: &[Sql],
    tables: &[Table],
    places: &[Place],
) -> Result<Vec<Option<Held>>> {
    let mut all: Vec<Option<Held>> = vec![None; places.len()];
    for (at, (sql, table)) in sql.iter().zip(tables).enumerate() {
        let wanted: Vec<usize> = (0..places.len()).filter(|place| places[*place].table == at).collect();
        if wanted.is_empty() || sql.absent {
            continue;
        }
        let ids: Vec<&str> = wanted.iter().map(|place| places[*place].external_id.as_str()).collect();
        for row in within(BULK_MAX, client.query(&sql.held, &[&table.name, &ids])).await? {
            let index = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
            let Some(place) = wanted.get(index) else { continue };
            all[*place] =
                Some(Held::new(table, row.get(1), sql.cells(table, &row, 4), row.get(3), row.get(2)));
        }
    }
    Ok(all)
}

/// A row's id and cells.
type Natural = (i64, Cells<'static>);

/// The rows with these natural keys, whatever the cache says of them.
async fn natural(
    client: &impl GenericClient,
    sql: &[Sql],
    tables: &[Table],
    places: &[Place],
) -> Result<Vec<Option<Natural>>> {
    let mut all = vec![None; places.len()];
    for (at, (sql, table)) in sql.iter().zip(tables).enumerate() {
        let key = |(index, place): (usize, &Place)| {
            let key = row::key_of(table, &place.external_id).filter(|_| place.table == at)?;
            Some(pen::key_json(table, &key, index))
        };
        let keys: Vec<Value> = places.iter().enumerate().filter_map(key).collect();
        if keys.is_empty() || sql.absent {
            continue;
        }
        let keys = Value::Array(keys).to_string();
        for row in within(BULK_MAX, client.query(&sql.natural, &[&keys])).await? {
            let index = usize::try_from(row.get::<_, i64>(0)).unwrap_or(usize::MAX);
            if let Some(one) = all.get_mut(index) {
                *one = Some((row.get(1), sql.cells(table, &row, 2)));
            }
        }
    }
    Ok(all)
}

async fn summed(
    transaction: &Transaction<'_>,
    sql: &Sql,
    table: &Table,
    adding: &mut Adding,
) -> Result<(), tokio_postgres::Error> {
    let mut rows = std::pin::pin!(transaction.query_raw(&sql.sum, [&table.name]).await?);
    while let Some(row) = rows.try_next().await? {
        adding.add(table, row.get(0), row.get(1), row.get(3), row.get(2));
    }
    Ok(())
}

fn line(sql: &Sql, table: &Table, span: &Span, row: &Row) -> Listed {
    let key = format!("{}/{}", table.name, row.get::<_, &str>(0));
    let (row_id, checksum, seen_ms) = (row.get(1), row.get::<_, &str>(2), row.get(3));
    match span.what {
        What::Names | What::Keys => Listed {
            key,
            version: version(row_id, seen_ms, checksum),
            fingerprint: Fingerprint::parse(checksum),
            value: None,
        },
        What::Values => {
            let held = Held::new(table, row_id, sql.cells(table, row, 4), seen_ms, checksum);
            Listed { key, version: held.version, fingerprint: Some(held.print), value: Some(held.value) }
        }
    }
}
