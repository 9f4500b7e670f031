//! How a replica is doing, as both servers tell it: no running instance is needed to ask. While etcd is away it is told
//! as PostgreSQL knows it, with the reason.

use serde::Serialize;

use super::pace::{Beat, LOOK_BACK_MS};
use super::run::LOCK;
use super::{Metering, Rates, Replica, within};
use crate::error::{Fault, Result};
use crate::etcd::request::key;
use crate::etcd::revision_of;
use crate::postgres::{BULK_MAX, Session};

/// What `replica status` shows.
#[derive(Debug, Clone, Serialize)]
pub struct StatusReport {
    pub replica: String,
    pub prefix: String,
    pub schema: String,
    pub conflict: super::ConflictRule,
    pub cluster_id: Option<String>,
    /// `None` while etcd cannot be asked; `error` says why.
    pub etcd_revision: Option<i64>,
    pub applied_revision: i64,
    /// Revisions of the whole store since the last one mirrored; other prefixes count too, so a quiet prefix in a
    /// busy cluster shows some.
    pub lag_revisions: Option<i64>,
    /// Since the leader last said that nothing was waiting; `None` = never.
    pub lag_seconds: Option<f64>,
    /// Somebody holds the lock.
    pub running: bool,
    /// A snapshot is being taken.
    pub snapshot_revision: Option<i64>,
    /// Changes per second over the last minute, as of the leader's last heartbeat; none when nobody leads.
    pub rates: Rates,
    pub pending: i64,
    /// Of these, tried at least once.
    pub retrying: i64,
    /// Attempts of writes that came to nothing, since the leader's process began.
    pub retries: u64,
    pub oldest_pending_seconds: Option<f64>,
    pub conflicts: i64,
    pub held: i64,
    pub failed: i64,
    pub gaps: i64,
    pub quarantined: i64,
    /// The leader's counters as of its last heartbeat.
    pub counts: Metering,
    /// Why etcd could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

impl Replica {
    pub async fn status(&self) -> Result<StatusReport> {
        let session = self.session().await?;
        let state = self.read_state(&session).await?;
        let asked = self.etcd.range(key(self.spec.marker.clone())).await;
        let (etcd_revision, error) = match asked {
            Ok(answer) => (Some(revision_of(answer.header)), None),
            Err(error) => (None, Some(Fault::of(&error))),
        };
        let row = self.status_row(&session).await?;
        let meters: Option<String> = row.get("meters");
        let beat: Beat = meters.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let (lag_seconds, running): (Option<f64>, bool) = (row.get("lag"), self.is_led(&session).await?);
        // A leader that is gone, or was silent for longer than a rate looks back, has none.
        let beats = running && lag_seconds.is_some_and(|lag| lag * 1_000.0 <= LOOK_BACK_MS as f64);
        Ok(StatusReport {
            replica: self.spec.name.clone(),
            prefix: self.prefix().to_owned(),
            schema: self.spec.schema.clone(),
            conflict: self.spec.conflict,
            cluster_id: state.cluster_id,
            etcd_revision,
            applied_revision: state.applied_revision,
            lag_revisions: etcd_revision.map(|revision| (revision - state.applied_revision).max(0)),
            lag_seconds,
            running,
            snapshot_revision: state.base.map(|base| base.revision),
            rates: if beats { beat.rates } else { Rates::default() },
            pending: row.get("pending"),
            retrying: row.get("retrying"),
            retries: beat.counts.retries,
            oldest_pending_seconds: row.get("oldest"),
            conflicts: row.get("conflicts"),
            held: row.get("held"),
            failed: row.get("failed"),
            gaps: row.get("gaps"),
            quarantined: row.get("quarantined"),
            counts: beat.counts,
            error,
        })
    }

    async fn status_row(&self, session: &Session) -> Result<tokio_postgres::Row> {
        let tables = &self.tables;
        let select = format!(
            "SELECT extract(epoch FROM clock_timestamp() - s.synced_at)::float8 AS lag, s.meters::text AS meters,
               (SELECT count(*) FROM {wal} WHERE status = 'pending' AND starts_with(key, $1)) AS pending,
               (SELECT count(*) FROM {wal} WHERE status = 'pending' AND attempts > 0 AND starts_with(key, $1)) AS retrying,
               (SELECT extract(epoch FROM clock_timestamp() - min(ts))::float8 FROM {wal}
                 WHERE status = 'pending' AND starts_with(key, $1)) AS oldest,
               (SELECT count(*) FROM {wal} WHERE status = 'conflict' AND starts_with(key, $1)) AS conflicts,
               (SELECT count(*) FROM {wal} WHERE status = 'conflict' AND held AND starts_with(key, $1)) AS held,
               (SELECT count(*) FROM {wal} WHERE status = 'failed'
                 AND (starts_with(key, $1) OR NOT EXISTS (
                   SELECT 1 FROM {state} o WHERE starts_with(key, o.prefix)))) AS failed,
               (SELECT count(*) FROM {gaps} WHERE prefix = $1) AS gaps,
               (SELECT count(*) FROM {events} WHERE prefix = $1 AND kind = 'quarantined') AS quarantined
             FROM {state} s WHERE s.prefix = $1",
            wal = tables.wal,
            state = tables.state,
            gaps = tables.gaps,
            events = tables.events
        );
        within(BULK_MAX, session.query_one(&select, &[&self.prefix()])).await
    }

    /// Whether an instance holds the lock right now.
    pub(super) async fn is_led(&self, session: &Session) -> Result<bool> {
        let text = format!(
            "SELECT EXISTS (SELECT 1 FROM pg_locks l, (SELECT {LOCK} AS h) k
                    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
                      AND l.classid::bigint = (k.h >> 32) & 4294967295 AND l.objid::bigint = k.h & 4294967295
                      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
        );
        let row = within(BULK_MAX, session.query_one(&text, &[&self.tables.schema, &self.prefix()])).await?;
        Ok(row.get(0))
    }
}
