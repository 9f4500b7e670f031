//! Starts over on a person's word. Where etcd was replaced or restored, old rows are moved aside, not deleted, and writes
//! that were queued against the old history become conflicts: its revisions mean nothing in the new one. Where it is the
//! etcd we know, only rows it contradicts are moved aside: somebody wrote to the mirror. What is queued stays queued then,
//! and the next leader finds out what was carried over already. Where etcd has compacted what would show which of the two it
//! is, what it contradicts counts as of another history.

use serde::Serialize;

use super::apply::{Applier, Contradicted};
use super::state::State;
use super::{Replica, within};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::key;
use crate::postgres::{BULK_MAX, STATEMENT_MAX, Session, prefix_end};

/// What `replica resync` did.
#[derive(Debug, Clone, Serialize)]
pub struct ResyncReport {
    pub replica: String,
    /// The cluster is another, or has another history, than the one mirrored before.
    pub replaced: bool,
    pub archived_rows: u64,
    /// Writes that waited for a cluster that was replaced. Otherwise they wait on.
    pub abandoned_writes: u64,
    pub revision: i64,
}

impl Replica {
    /// Make the mirror equal to etcd as it is now. Refused while an instance runs.
    pub async fn resync(&self) -> Result<ResyncReport> {
        let mut session = self.session().await?;
        if !self.try_lock(&session).await? {
            return Err(Error::new(Kind::Busy, format!("the replica {} is running", self.spec.name))
                .remedy_is("Stop every `trueup replica run` and `trueup serve` of it first."));
        }
        let mut state = self.raise_epoch(&session).await?;
        let mut applier = Applier::new(self, state.epoch).await?;
        let replaced = match self.check_ground(&session, &state).await {
            Ok(_) => false,
            Err(error) if error.kind() == Kind::Corrupt => true,
            // Nobody can tell another history from a mirror somebody wrote to. Writes that were queued for the one must
            // not meet the other.
            Err(error) if error.kind() == Kind::CursorLost => {
                self.is_contradicted(&mut applier, state.applied_revision).await?
            }
            Err(error) => return Err(error),
        };
        let (mut archived_rows, mut abandoned_writes) = (0, 0);
        if replaced {
            (archived_rows, abandoned_writes) = self.set_aside(&mut session, &state).await?;
            state = self.read_state(&session).await?;
        } else {
            applier.contradicted = Contradicted::Archived(0);
        }
        state.base = None;
        let revision = self.take_base(&mut applier, &state).await?;
        if let Contradicted::Archived(rows) = applier.contradicted {
            archived_rows = rows;
        }
        if !replaced && self.differs(&session, revision).await? {
            let message = "the mirror differs again: somebody else writes to it";
            return Err(Error::new(Kind::Corrupt, message)
                .remedy_is("Find out who writes to the table `etcd`, stop them, and run this again."));
        }
        let detail = format!("resync at revision {revision}, {archived_rows} rows archived");
        self.record(&session, "resync", &detail).await?;
        Ok(ResyncReport {
            replica: self.spec.name.clone(),
            replaced,
            archived_rows,
            abandoned_writes,
            revision,
        })
    }

    async fn differs(&self, session: &Session, revision: i64) -> Result<bool> {
        let (_, drift) = self.compare(session, revision).await?;
        Ok(!drift.is_empty() || !self.ahead_of_etcd(session, revision).await?.is_empty())
    }

    async fn set_aside(&self, session: &mut Session, state: &State) -> Result<(u64, u64)> {
        let answer = self.etcd.range(key(self.spec.marker.clone())).await?;
        let cluster = format!("{:x}", answer.header.map_or(0, |header| header.cluster_id));
        let slot = answer.kvs.first().map_or(0, |pair| pair.mod_revision);
        let (prefix, end) = (self.prefix(), prefix_end(self.prefix()));
        let tables = &self.tables;
        let transaction = within(STATEMENT_MAX, session.transaction()).await?;
        let archive = format!(
            "WITH moved AS (
               DELETE FROM {} WHERE key >= $1 AND ($2::text IS NULL OR key < $2)
               RETURNING ts, key, value, revision, tombstone, encoding)
             INSERT INTO {} (cluster_id, ts, key, value, revision, tombstone, encoding)
             SELECT $3, * FROM moved",
            tables.etcd, tables.archive
        );
        let archived =
            within(BULK_MAX, transaction.execute(&archive, &[&prefix, &end, &state.cluster_id])).await?;
        let abandon = format!(
            "UPDATE {} SET status = 'conflict', processed_at = clock_timestamp(),
               last_error = 'queued for another history of etcd than the one a resync accepted; only etcd can tell whether it is there'
             WHERE status = 'pending' AND key >= $1 AND ($2::text IS NULL OR key < $2)",
            tables.wal
        );
        let abandoned = within(BULK_MAX, transaction.execute(&abandon, &[&prefix, &end])).await?;
        let unchain = format!(
            "UPDATE {} SET chain_base = NULL
             WHERE status = 'applied' AND chain_base IS NOT NULL AND key >= $1 AND ($2::text IS NULL OR key < $2)",
            tables.wal
        );
        within(BULK_MAX, transaction.execute(&unchain, &[&prefix, &end])).await?;
        let reset = format!(
            "WITH drained AS (UPDATE {} SET slot_revision = $3 WHERE prefix = $1)
             UPDATE {} SET cluster_id = $2, applied_revision = 0, witness_key = NULL,
               witness_revision = NULL, live_key = NULL, live_revision = NULL, base_revision = NULL,
               base_next = NULL WHERE prefix = $1",
            tables.drain, tables.state
        );
        within(STATEMENT_MAX, transaction.execute(&reset, &[&prefix, &cluster, &slot])).await?;
        within(BULK_MAX, transaction.commit()).await?;
        Ok((archived, abandoned))
    }
}
