//! The queue's side of the drain: reading what is pending, and writing down what became of it.

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::codec;
use super::drain::{Drainer, Queue};
use super::meters::add;
use super::outcome::Outcome;
use super::packing::{Head, Pending, Planned, Window, plan};
use super::schema::Tables;
use crate::error::{Error, Kind, Result};
use crate::postgres::{STATEMENT_MAX, prefix_end, within};

/// Queued writes looked at together.
const WINDOW_ROWS: i64 = 2_000;
/// And no more than this of values, so that large ones do not pile up in memory.
const WINDOW_BYTES: i64 = 8 << 20;

/// Pending writes below the prefix, and those below nobody's; with the newest of our own writes to each key.
pub(super) fn fetch_text(tables: &Tables) -> String {
    let Tables { wal, state, .. } = tables;
    format!(
        "SELECT w.*, h.chain_base AS head_base, h.result_revision AS head_revision,
                h.operation = 'delete' AS head_deleted
         FROM (SELECT *, sum(size) OVER (ORDER BY id) - size AS before FROM (
                 SELECT id, key, value, encoding, operation, base_revision, expected_revision, exact, attempts,
                        octet_length(coalesce(value, '')) AS size
                 FROM {wal} p WHERE status = 'pending' AND ((key >= $1 AND ($2::text IS NULL OR key < $2))
                   OR NOT EXISTS (SELECT 1 FROM {state} s WHERE starts_with(p.key, s.prefix)))
                 ORDER BY id LIMIT $3) page) w
         LEFT JOIN LATERAL (
           SELECT chain_base, result_revision, operation FROM {wal} a
           WHERE a.key = w.key AND a.status = 'applied' AND a.chain_base IS NOT NULL
           ORDER BY a.result_revision DESC LIMIT 1) h ON true
         WHERE w.before <= $4 ORDER BY w.id"
    )
}

/// Outcomes and the marker's revision, in one statement: after a crash either both are there or neither is.
pub(super) fn settle_text(tables: &Tables) -> String {
    let Tables { wal, state, etcd, .. } = tables;
    format!(
        "WITH d AS (SELECT * FROM unnest($4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
                      $9::text[], $10::bool[]) AS d(id, status, result, expected, chain, error, held)),
         settled AS (
           UPDATE {wal} w SET status = d.status, held = d.held, expected_revision = d.expected,
             result_revision = CASE WHEN d.status = 'conflict' AND d.result = 0
               THEN (SELECT max(e.revision) FROM {etcd} e WHERE e.key = w.key) ELSE d.result END,
             chain_base = CASE WHEN d.status = 'applied' THEN d.chain END,
             last_error = d.error, attempts = w.attempts + 1, processed_at = clock_timestamp()
           FROM d WHERE w.id = d.id AND w.status = 'pending' RETURNING 1)
         UPDATE {state} SET slot_revision = $3 WHERE prefix = $1 AND epoch = $2"
    )
}

impl Drainer<'_> {
    pub(super) async fn look_at_queue(&self) -> Result<Queue> {
        let prefix = self.replica.prefix();
        let values: [&(dyn ToSql + Sync); 4] = [&prefix, &prefix_end(prefix), &WINDOW_ROWS, &WINDOW_BYTES];
        let rows = within(STATEMENT_MAX, self.session.query(&self.fetch, &values)).await?;
        let (mut good, mut refused, mut heads) = (Vec::with_capacity(rows.len()), Vec::new(), HashMap::new());
        for row in &rows {
            let (pending, readable) = pending_of(row);
            let why = if !pending.key.starts_with(prefix) {
                format!("the key is outside the prefix {prefix}")
            } else if !readable {
                "the value is not base64".to_owned()
            } else {
                if let Some(head) = head_of(row) {
                    heads.insert(pending.key.clone(), head);
                }
                good.push(pending);
                continue;
            };
            refused.push((plan(pending, None), Outcome::Failed { why }));
        }
        Ok(Queue { rows: Window::new(good, heads), refused })
    }

    /// Write down what became of these writes, and the marker that proves it.
    pub(super) async fn settle(&self, decided: &[(Planned, Outcome)]) -> Result<()> {
        let each = || decided.iter();
        let ids: Vec<i64> = each().map(|(planned, _)| planned.row.id).collect();
        let statuses: Vec<&str> = each().map(|(_, outcome)| outcome.status()).collect();
        let results: Vec<Option<i64>> = each().map(|(_, outcome)| outcome.revision()).collect();
        let expected: Vec<i64> = each().map(|(planned, _)| planned.expected).collect();
        let chains: Vec<i64> = each().map(|(planned, _)| planned.chain).collect();
        let errors: Vec<Option<String>> = each().map(|(planned, outcome)| reason(planned, outcome)).collect();
        let held: Vec<bool> =
            each().map(|(_, outcome)| outcome.is_held(self.replica.spec.conflict)).collect();
        let prefix = self.replica.prefix();
        let values: [&(dyn ToSql + Sync); 10] = [
            &prefix,
            &self.epoch,
            &self.slot_revision,
            &ids,
            &statuses,
            &results,
            &expected,
            &chains,
            &errors,
            &held,
        ];
        let moved = within(STATEMENT_MAX, self.session.execute(&self.settle, &values)).await?;
        if moved != 1 {
            return Err(self.replica.fenced());
        }
        self.tell(decided, &errors).await
    }

    /// Count, and let people know what they must know.
    async fn tell(&self, decided: &[(Planned, Outcome)], reasons: &[Option<String>]) -> Result<()> {
        let meters = &self.replica.meters;
        for ((planned, outcome), reason) in decided.iter().zip(reasons) {
            let key = &planned.row.key;
            let reason = reason.as_deref().unwrap_or_default();
            match outcome {
                Outcome::Applied { .. } => add(&meters.writes_applied, 1),
                Outcome::Noop => add(&meters.noops, 1),
                Outcome::Conflict { .. } => {
                    add(&meters.conflicts, 1);
                    self.replica.note("conflict", format!("{key}: {reason}"));
                }
                Outcome::Failed { .. } => {
                    add(&meters.failures, 1);
                    self.notify_failure(planned, reason).await?;
                }
            }
        }
        Ok(())
    }

    async fn notify_failure(&self, planned: &Planned, reason: &str) -> Result<()> {
        /// NOTIFY takes 8,000 bytes; the row has the whole story.
        const PAYLOAD_CHARS: usize = 500;
        let detail = format!("write {} to {}: {reason}", planned.row.id, planned.row.key);
        self.replica.record(&self.session, "failed", &detail).await?;
        let payload: String = detail.chars().take(PAYLOAD_CHARS).collect();
        within(STATEMENT_MAX, self.session.execute("SELECT pg_notify('etcd_failures', $1)", &[&payload]))
            .await?;
        Ok(())
    }

    /// Everything queued waits for the same server.
    pub(super) async fn count_waiting(&self, error: &Error) -> Result<()> {
        let rows: Vec<Pending> = self.look_at_queue().await?.rows.into_rows().collect();
        self.count_attempt(&rows, error).await
    }

    /// An attempt that came to nothing. An outage is waited out; anything else ends after `max_attempts`.
    pub(super) async fn count_attempt(&self, rows: &[Pending], error: &Error) -> Result<()> {
        add(&self.replica.meters.retries, rows.len());
        let max = i32::try_from(self.replica.spec.max_attempts).unwrap_or(i32::MAX);
        let gives_up = |row: &&Pending| error.kind() != Kind::Unavailable && row.attempts + 1 >= max;
        let (over, waiting): (Vec<&Pending>, Vec<&Pending>) = rows.iter().partition(gives_up);
        let ids: Vec<i64> = waiting.iter().map(|row| row.id).collect();
        let update = format!(
            "UPDATE {} SET attempts = attempts + 1, last_error = $2 WHERE id = ANY($1) AND status = 'pending'",
            self.replica.tables.wal
        );
        within(STATEMENT_MAX, self.session.execute(&update, &[&ids, &error.to_string()])).await?;
        let why = format!("{error} ({max} attempts). {}", error.remedy());
        let failed: Vec<(Planned, Outcome)> = over
            .into_iter()
            .map(|row| (plan(row.clone(), None), Outcome::Failed { why: why.clone() }))
            .collect();
        if failed.is_empty() { Ok(()) } else { self.settle(&failed).await }
    }
}

fn reason(planned: &Planned, outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Conflict { winning: 0 } => {
            Some(format!("expected revision {}, but etcd has no such key", planned.expected))
        }
        Outcome::Conflict { winning } => {
            Some(format!("expected revision {}, etcd has revision {winning}", planned.expected))
        }
        Outcome::Failed { why } => Some(why.clone()),
        Outcome::Applied { .. } | Outcome::Noop => None,
    }
}

/// A row of the queue, and whether its value can be read.
fn pending_of(row: &Row) -> (Pending, bool) {
    let text: Option<&str> = row.get("value");
    let value = text.map(|text| codec::bytes_of(text, row.get("encoding")));
    let readable = value.as_ref().is_none_or(Option::is_some);
    let pending = Pending {
        id: row.get("id"),
        key: row.get("key"),
        value: value.map(Option::unwrap_or_default),
        base: row.get::<_, Option<i64>>("base_revision").unwrap_or(0),
        expected: row.get("expected_revision"),
        exact: row.get("exact"),
        attempts: row.get("attempts"),
    };
    (pending, readable)
}

fn head_of(row: &Row) -> Option<Head> {
    let base: Option<i64> = row.get("head_base");
    let revision: Option<i64> = row.get("head_revision");
    let deleted: Option<bool> = row.get("head_deleted");
    Some(Head { base: base?, revision: revision?, deleted: deleted? })
}
