//! The row that says how far a prefix has come, and the fence around it: whoever raised the epoch last may move it.

use bytes::Bytes;

use super::schema::Tables;
use super::{Replica, within};
use crate::error::{Error, Kind, Result};
use crate::postgres::{STATEMENT_MAX, Session};

/// `etcd_sync_state` as it was read.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub replica: String,
    pub cluster_id: Option<String>,
    pub applied_revision: i64,
    /// The newest change mirrored, and the newest that was no delete.
    pub witness: Option<(String, i64)>,
    pub live: Option<(String, i64)>,
    pub base: Option<BasePlace>,
    pub slot_revision: i64,
    pub epoch: i64,
}

/// A snapshot that is not finished: its revision, and the first key not yet written.
#[derive(Debug, Clone)]
pub(super) struct BasePlace {
    pub revision: i64,
    pub next: Bytes,
    pub merge: bool,
}

const COLUMNS: &str = "s.replica::text, s.cluster_id, s.applied_revision, s.witness_key, s.witness_revision, \
                       s.base_revision, s.base_next, s.base_merge, s.live_key, s.live_revision, d.slot_revision, \
                       s.epoch";

impl Replica {
    pub(super) async fn read_state(&self, session: &Session) -> Result<State> {
        let Tables { state, drain, .. } = &self.tables;
        let select =
            format!("SELECT {COLUMNS} FROM {state} s JOIN {drain} d USING (prefix) WHERE prefix = $1");
        let row = within(STATEMENT_MAX, session.query_opt(&select, &[&self.prefix()])).await?;
        row.as_ref().map(state_of).ok_or_else(|| self.uninstalled())
    }

    /// Become the one who may move the state; every older holder is fenced off from here on.
    pub(super) async fn raise_epoch(&self, session: &Session) -> Result<State> {
        let Tables { state, drain, .. } = &self.tables;
        let update = format!(
            "WITH s AS (UPDATE {state} SET epoch = epoch + 1 WHERE prefix = $1 RETURNING *)
             UPDATE {drain} d SET epoch = s.epoch FROM s WHERE d.prefix = s.prefix RETURNING {COLUMNS}"
        );
        let row = within(STATEMENT_MAX, session.query_opt(&update, &[&self.prefix()])).await?;
        row.as_ref().map(state_of).ok_or_else(|| self.uninstalled())
    }

    fn uninstalled(&self) -> Error {
        Error::new(Kind::Config, format!("the prefix {} is not registered in the database", self.prefix()))
            .remedy_is(format!("Run `trueup replica init {}`.", self.spec.name))
    }

    /// Somebody else leads by now; whatever we were about to write is theirs.
    pub(super) fn fenced(&self) -> Error {
        let message = format!("another instance has taken over the replica {}", self.spec.name);
        Error::new(Kind::Unavailable, message)
    }

    /// Keep something for a person to find.
    pub(super) async fn record(&self, session: &Session, kind: &'static str, detail: &str) -> Result<()> {
        self.note(kind, detail);
        let insert = format!("INSERT INTO {} (prefix, kind, detail) VALUES ($1, $2, $3)", self.tables.events);
        within(STATEMENT_MAX, session.execute(&insert, &[&self.prefix(), &kind, &detail])).await?;
        Ok(())
    }
}

fn state_of(row: &tokio_postgres::Row) -> State {
    let base = row.get::<_, Option<i64>>("base_revision").map(|revision| BasePlace {
        revision,
        next: Bytes::from(row.get::<_, Option<Vec<u8>>>("base_next").unwrap_or_default()),
        merge: row.get("base_merge"),
    });
    let witness: (Option<String>, Option<i64>) = (row.get("witness_key"), row.get("witness_revision"));
    let live: (Option<String>, Option<i64>) = (row.get("live_key"), row.get("live_revision"));
    State {
        replica: row.get("replica"),
        cluster_id: row.get("cluster_id"),
        applied_revision: row.get("applied_revision"),
        witness: witness.0.zip(witness.1),
        live: live.0.zip(live.1),
        base,
        slot_revision: row.get("slot_revision"),
        epoch: row.get("epoch"),
    }
}
