//! Conflicts for people: what is parked or was lost, and how one is ended.

use serde::Serialize;

use super::Replica;
use crate::error::{Error, Kind, Result};
use crate::etcd::request::key;
use crate::postgres::{STATEMENT_MAX, within};

/// Longest listing a person is shown.
const SHOWN_MAX: i64 = 1_000;

/// A write that met another.
#[derive(Debug, Clone, Serialize)]
pub struct Conflict {
    pub id: i64,
    pub key: String,
    pub operation: String,
    pub value: Option<String>,
    pub expected_revision: i64,
    pub winning_revision: Option<i64>,
    /// Parked for a person; otherwise etcd has won.
    pub held: bool,
    pub origin: String,
    pub at: String,
}

/// How a parked conflict ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Winner {
    /// Leave etcd as it is.
    Etcd,
    /// Write ours on top of what etcd has now.
    Postgres,
}

impl Replica {
    /// Conflicts, parked ones first, then the newest.
    pub async fn conflicts(&self) -> Result<Vec<Conflict>> {
        let session = self.session().await?;
        let select = format!(
            "SELECT id, key, operation, value, expected_revision, result_revision, held, origin,
                    to_char(ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') AS at
             FROM {} WHERE status = 'conflict' AND starts_with(key, $1)
             ORDER BY held DESC, id DESC LIMIT $2",
            self.tables.wal
        );
        let rows = within(STATEMENT_MAX, session.query(&select, &[&self.prefix(), &SHOWN_MAX])).await?;
        let conflict = |row: &tokio_postgres::Row| Conflict {
            id: row.get("id"),
            key: row.get("key"),
            operation: row.get("operation"),
            value: row.get("value"),
            expected_revision: row.get("expected_revision"),
            winning_revision: row.get("result_revision"),
            held: row.get("held"),
            origin: row.get("origin"),
            at: row.get("at"),
        };
        Ok(rows.iter().map(conflict).collect())
    }

    /// End one conflict. For PostgreSQL to win, the write is queued again on top of what etcd holds now.
    pub async fn resolve(&self, id: i64, winner: Winner) -> Result<Conflict> {
        let session = self.session().await?;
        let found = self.conflicts().await?.into_iter().find(|conflict| conflict.id == id);
        let mut conflict = found.ok_or_else(|| {
            Error::new(Kind::NotFound, format!("there is no conflict {id}"))
                .remedy_is(format!("`trueup replica conflicts {}` lists them.", self.spec.name))
        })?;
        let wal = &self.tables.wal;
        match winner {
            Winner::Etcd => {
                let update = format!("UPDATE {wal} SET held = false WHERE id = $1 AND status = 'conflict'");
                within(STATEMENT_MAX, session.execute(&update, &[&id])).await?;
            }
            Winner::Postgres => {
                let there = self.etcd.range(key(conflict.key.clone())).await?.kvs;
                let revision = there.first().map_or(0, |pair| pair.mod_revision);
                let update = format!(
                    "UPDATE {wal} SET status = 'pending', held = false, exact = true, base_revision = $2,
                       expected_revision = $2, result_revision = NULL, last_error = NULL, nonce = DEFAULT
                     WHERE id = $1 AND status = 'conflict'"
                );
                within(STATEMENT_MAX, session.execute(&update, &[&id, &revision])).await?;
                let wake = "SELECT pg_notify('etcd_changes', $1)";
                within(STATEMENT_MAX, session.execute(wake, &[&id.to_string()])).await?;
            }
        }
        conflict.held = false;
        let how = if winner == Winner::Etcd { "etcd" } else { "PostgreSQL" };
        self.record(&session, "resolved", &format!("write {id} to {}: {how} wins", conflict.key)).await?;
        Ok(conflict)
    }
}
