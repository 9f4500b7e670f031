//! Retention: old rows go, in small steps, but never the newest row of a key and never an undecided write.

use std::time::Duration;

use super::{Replica, within};
use crate::error::Result;
use crate::postgres::{BULK_MAX, Session, prefix_end};

/// Rows per statement: short locks, and others get their turn.
const STEP_ROWS: i64 = 5_000;
/// Steps per round; the next round goes on.
const STEPS_MAX: usize = 200;

impl Replica {
    /// Delete what is older than the config keeps. Says how many rows of history and of the queue went.
    pub async fn prune_now(&self) -> Result<(u64, u64)> {
        let session = self.session().await?;
        self.prune(&session).await
    }

    pub(super) async fn prune(&self, session: &Session) -> Result<(u64, u64)> {
        let etcd = &self.tables.etcd;
        let history = format!(
            "DELETE FROM {etcd} WHERE (key, revision) IN (
               SELECT o.key, o.revision FROM {etcd} o
               WHERE o.key >= $1 AND ($2::text IS NULL OR o.key < $2)
                 AND o.ts < clock_timestamp() - make_interval(secs => $3)
                 AND EXISTS (SELECT 1 FROM {etcd} n WHERE n.key = o.key AND n.revision > o.revision)
               LIMIT $4)"
        );
        let queue = format!(
            "DELETE FROM {wal} WHERE id IN (
               SELECT id FROM {wal} WHERE key >= $1 AND ($2::text IS NULL OR key < $2)
                 AND status <> 'pending' AND NOT held
                 AND processed_at < clock_timestamp() - make_interval(secs => $3)
               LIMIT $4)",
            wal = self.tables.wal
        );
        let history = self.prune_by(session, &history, self.spec.keep_history).await?;
        let queue = self.prune_by(session, &queue, self.spec.keep_wal).await?;
        if history + queue > 0 {
            self.note("pruned", format!("{history} rows of history and {queue} of the queue"));
        }
        Ok((history, queue))
    }

    async fn prune_by(&self, session: &Session, text: &str, keep: Option<Duration>) -> Result<u64> {
        let Some(keep) = keep else { return Ok(0) };
        let (prefix, end, age) = (self.prefix(), prefix_end(self.prefix()), keep.as_secs_f64());
        let mut gone = 0;
        for _ in 0..STEPS_MAX {
            let step = within(BULK_MAX, session.execute(text, &[&prefix, &end, &age, &STEP_ROWS])).await?;
            gone += step;
            if step < u64::try_from(STEP_ROWS).unwrap_or(u64::MAX) {
                break;
            }
        }
        Ok(gone)
    }
}
