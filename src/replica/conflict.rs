//! Conflicts for people: what is parked or was lost, and how one is ended.

use serde::Serialize;

use super::{Replica, within};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::key;
use crate::postgres::{STATEMENT_MAX, Session};

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
        self.conflicts_with(&session, None).await
    }

    /// All that a person is shown, or one.
    async fn conflicts_with(&self, session: &Session, id: Option<i64>) -> Result<Vec<Conflict>> {
        let select = format!(
            "SELECT id, key, operation, value, expected_revision, result_revision, held, origin,
                    to_char(ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') AS at
             FROM {} WHERE status = 'conflict' AND starts_with(key, $1) AND ($3::bigint IS NULL OR id = $3)
             ORDER BY held DESC, id DESC LIMIT $2",
            self.tables.wal
        );
        let rows = within(STATEMENT_MAX, session.query(&select, &[&self.prefix(), &SHOWN_MAX, &id])).await?;
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

    /// The conflict, if it waits for a person: what is decided would be written over what came after it.
    async fn held_conflict(&self, session: &Session, id: i64) -> Result<Conflict> {
        let listed = format!("`trueup replica conflicts {}` lists those that are.", self.spec.name);
        match self.conflicts_with(session, Some(id)).await?.into_iter().next() {
            None => Err(Error::new(Kind::NotFound, format!("there is no conflict {id}")).remedy_is(listed)),
            Some(conflict) if !conflict.held => Err(self.decided(&conflict)),
            Some(conflict) => Ok(conflict),
        }
    }

    fn decided(&self, conflict: &Conflict) -> Error {
        let message = format!("conflict {} is not held: etcd has won", conflict.id);
        let remedy = format!("To have the value after all, write it again: etcd_set('{}', …).", conflict.key);
        Error::new(Kind::Conflict, message).remedy_is(remedy)
    }

    /// End a conflict that is held. For PostgreSQL to win, the write is queued again on top of what etcd holds now.
    pub async fn resolve(&self, id: i64, winner: Winner) -> Result<Conflict> {
        let session = self.session().await?;
        let mut conflict = self.held_conflict(&session, id).await?;
        let wal = &self.tables.wal;
        let changed = match winner {
            Winner::Etcd => {
                let update =
                    format!("UPDATE {wal} SET held = false WHERE id = $1 AND status = 'conflict' AND held");
                within(STATEMENT_MAX, session.execute(&update, &[&id])).await?
            }
            Winner::Postgres => {
                let there = self.etcd.range(key(conflict.key.clone())).await?.kvs;
                let revision = there.first().map_or(0, |pair| pair.mod_revision);
                let update = format!(
                    "UPDATE {wal} SET status = 'pending', held = false, exact = true, base_revision = $2,
                       expected_revision = $2, result_revision = NULL, last_error = NULL, nonce = DEFAULT
                     WHERE id = $1 AND status = 'conflict' AND held"
                );
                let changed = within(STATEMENT_MAX, session.execute(&update, &[&id, &revision])).await?;
                let wake = "SELECT pg_notify('etcd_changes', $1)";
                within(STATEMENT_MAX, session.execute(wake, &[&id.to_string()])).await?;
                changed
            }
        };
        if changed == 0 {
            return Err(self.decided(&conflict));
        }
        conflict.held = false;
        let how = if winner == Winner::Etcd { "etcd" } else { "PostgreSQL" };
        self.record(&session, "resolved", &format!("write {id} to {}: {how} wins", conflict.key)).await?;
        Ok(conflict)
    }
}
