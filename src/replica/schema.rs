//! The SQL side: versioned migrations, installed once each, and the names of what they install.

use serde::Serialize;
use tokio_postgres::GenericClient;

use super::{Replica, within};
use crate::error::{Error, Kind, Result};
use crate::postgres::{BULK_MAX, STATEMENT_MAX, Session, quoted};

/// Every migration in order; a number is never reused and a text never changed once released.
const MIGRATIONS: [(i32, &str, &str); 6] = [
    (1, "tables", include_str!("schema/0001_tables.sql")),
    (2, "functions", include_str!("schema/0002_functions.sql")),
    (3, "views", include_str!("schema/0003_views.sql")),
    (4, "drain", include_str!("schema/0004_drain.sql")),
    (5, "nonce", include_str!("schema/0005_nonce.sql")),
    (6, "live", include_str!("schema/0006_live.sql")),
];

/// The version this program works with.
pub(super) const KNOWN: i32 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// Qualified names of the tables.
pub(super) struct Tables {
    pub schema: String,
    pub etcd: String,
    pub wal: String,
    pub state: String,
    pub drain: String,
    pub events: String,
    pub gaps: String,
    pub archive: String,
    pub live: String,
    pub versions: String,
}

impl Tables {
    pub fn new(schema: &str) -> Self {
        let schema = quoted(schema);
        let table = |name: &str| format!("{schema}.{name}");
        Tables {
            etcd: table("etcd"),
            wal: table("etcd_wal"),
            state: table("etcd_sync_state"),
            drain: table("etcd_drain_state"),
            events: table("etcd_events"),
            gaps: table("etcd_gaps"),
            archive: table("etcd_archive"),
            live: table("etcd_live"),
            versions: table("etcd_schema_version"),
            schema,
        }
    }
}

/// What `replica init` found and did.
#[derive(Debug, Clone, Serialize)]
pub struct InitReport {
    pub replica: String,
    pub schema: String,
    pub prefix: String,
    pub marker: String,
    /// Migrations installed by this call; empty = it was all there.
    pub installed: Vec<String>,
    pub schema_version: i32,
    pub etcd_version: String,
}

pub(super) async fn check_encoding(session: &Session) -> Result<()> {
    let encoding: String =
        within(STATEMENT_MAX, session.query_one("SHOW server_encoding", &[])).await?.get(0);
    if encoding == "UTF8" {
        return Ok(());
    }
    Err(Error::new(Kind::Config, format!("the database is encoded in {encoding}"))
        .remedy_is("Create a database with ENCODING 'UTF8': etcd's keys and values are UTF-8."))
}

/// The version a table of versions tells of; 0 = none is installed.
pub(super) async fn version(client: &impl GenericClient, versions: &str) -> Result<i32> {
    let select = format!("SELECT coalesce(max(version), 0) FROM {versions}");
    Ok(within(STATEMENT_MAX, client.query_one(&select, &[])).await?.get(0))
}

pub(super) fn check_known(version: i32) -> Result<()> {
    if version <= KNOWN {
        return Ok(());
    }
    Err(Error::new(Kind::Config, format!("the schema has version {version}, this trueup knows {KNOWN}"))
        .remedy_is("Use a newer trueup: the database was upgraded by one."))
}

impl Replica {
    /// Install or upgrade the schema, register the prefix, and check both sides' permissions. Idempotent.
    pub async fn init(&self) -> Result<InitReport> {
        let mut session = self.session().await?;
        let installed = self.migrate(&mut session).await?;
        self.register(&session).await?;
        let etcd = self.etcd.status().await?;
        self.check_permissions().await?;
        Ok(InitReport {
            replica: self.spec.name.clone(),
            schema: self.spec.schema.clone(),
            prefix: self.prefix().to_owned(),
            marker: self.spec.marker.clone(),
            installed,
            schema_version: MIGRATIONS.len().try_into().unwrap_or(i32::MAX),
            etcd_version: etcd.version,
        })
    }

    async fn migrate(&self, session: &mut Session) -> Result<Vec<String>> {
        check_encoding(session).await?;
        let Tables { schema, versions, .. } = &self.tables;
        let transaction = within(STATEMENT_MAX, session.transaction()).await?;
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended('trueup replica init', 0))";
        within(BULK_MAX, transaction.batch_execute(lock)).await?;
        // Only if it is missing: to be told so takes the right to make schemas, which nobody needs who was given one.
        let missing = "SELECT to_regnamespace($1) IS NULL";
        if within(STATEMENT_MAX, transaction.query_one(missing, &[schema])).await?.get(0) {
            within(STATEMENT_MAX, transaction.batch_execute(&format!("CREATE SCHEMA {schema}"))).await?;
        }
        let table = format!(
            "CREATE TABLE IF NOT EXISTS {versions} (
               version int PRIMARY KEY, name text NOT NULL, installed_at timestamptz NOT NULL DEFAULT now())"
        );
        within(STATEMENT_MAX, transaction.batch_execute(&table)).await?;
        let have = version(&transaction, versions).await?;
        check_known(have)?;
        let mut installed = Vec::new();
        for (version, name, text) in MIGRATIONS.iter().filter(|migration| migration.0 > have) {
            let text = text.replace("{schema}", schema);
            within(BULK_MAX, transaction.batch_execute(&text))
                .await
                .map_err(|error| error.while_(format!("installing the replica's {name}")))?;
            let record = format!("INSERT INTO {versions} (version, name) VALUES ($1, $2)");
            within(STATEMENT_MAX, transaction.execute(&record, &[version, name])).await?;
            installed.push(format!("{version:04}_{name}"));
        }
        within(BULK_MAX, transaction.commit()).await?;
        Ok(installed)
    }

    /// Claim the prefix. Two replicas whose prefixes overlap would each see the other's keys as drift.
    async fn register(&self, session: &Session) -> Result<()> {
        let Tables { state, drain, .. } = &self.tables;
        let overlap = format!(
            "SELECT prefix FROM {state} WHERE prefix <> $1 AND (starts_with(prefix, $1) OR starts_with($1, prefix)) LIMIT 1"
        );
        let other = within(STATEMENT_MAX, session.query_opt(&overlap, &[&self.prefix()])).await?;
        if let Some(other) = other {
            let other: String = other.get(0);
            let message = format!("the prefixes {} and {other} overlap in one schema", self.prefix());
            return Err(
                Error::new(Kind::Config, message).remedy_is("Give this replica a `schema` of its own.")
            );
        }
        let insert = format!(
            "WITH drained AS (INSERT INTO {drain} (prefix) VALUES ($1) ON CONFLICT DO NOTHING)
             INSERT INTO {state} (prefix) VALUES ($1) ON CONFLICT DO NOTHING"
        );
        within(STATEMENT_MAX, session.execute(&insert, &[&self.prefix()])).await?;
        Ok(())
    }
}
