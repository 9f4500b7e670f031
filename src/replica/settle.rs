//! The queue's side of the drain: reading what is pending, and writing down what became of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::drain::Drainer;
use super::ledger::Decided;
use super::meters::add;
use super::outcome::Outcome;
use super::packing::{Head, Pending, Planned, plan};
use super::schema::Tables;
use super::{codec, within};
use crate::error::{Error, Kind, Result};
use crate::postgres::{STATEMENT_MAX, prefix_end};

/// Queued writes looked at together.
const WINDOW_ROWS: i64 = 2_000;
/// And no more than this of values, so that large ones do not pile up in memory.
const WINDOW_BYTES: i64 = 8 << 20;

/// Pending writes below the prefix, and those below nobody's; with the newest of our own writes to each key.
pub(super) fn fetch_text(tables: &Tables) -> String {
    let Tables { wal, state, .. } = tables;
    format!(
        "SELECT w.id, w.key, w.value, w.encoding, w.base_revision, w.expected_revision, w.exact, w.attempts, w.size,
                w.nonce, h.chain_base, h.result_revision, h.operation = 'delete'
         FROM (SELECT *, sum(size) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - size AS before FROM (
                 SELECT id, key, value, encoding, base_revision, expected_revision, exact, attempts, nonce,
                        octet_length(coalesce(value, '')) AS size
                 FROM {wal} p WHERE status = 'pending' AND id > $5 AND ((key >= $1 AND ($2::text IS NULL OR key < $2))
                   OR NOT EXISTS (SELECT 1 FROM {state} s WHERE starts_with(p.key, s.prefix)))
                 ORDER BY id LIMIT $3) page) w
         LEFT JOIN LATERAL (
           SELECT chain_base, result_revision, operation FROM {wal} a
           WHERE a.key = w.key AND a.status = 'applied' AND a.chain_base IS NOT NULL
           ORDER BY a.result_revision DESC LIMIT 1) h ON true
         WHERE w.before <= $4 ORDER BY w.id"
    )
}

/// Where its columns are: looking for their names, row by row, takes longer than reading them.
mod column {
    pub const ID: usize = 0;
    pub const KEY: usize = 1;
    pub const VALUE: usize = 2;
    pub const ENCODING: usize = 3;
    pub const BASE: usize = 4;
    pub const EXPECTED: usize = 5;
    pub const EXACT: usize = 6;
    pub const ATTEMPTS: usize = 7;
    pub const SIZE: usize = 8;
    pub const NONCE: usize = 9;
    pub const HEAD_BASE: usize = 10;
    pub const HEAD_REVISION: usize = 11;
    pub const HEAD_DELETED: usize = 12;
}

/// What a look at the queue found.
#[derive(Default)]
pub(super) struct Look {
    pub rows: Vec<Pending>,
    pub heads: HashMap<String, Head>,
    /// Writes that never get as far as etcd.
    pub refused: Vec<(Planned, Outcome)>,
    /// From the oldest pending write on.
    pub whole: bool,
    /// It ended at a limit.
    pub more: bool,
    /// The newest write it saw.
    pub highest: i64,
}

impl Drainer<'_> {
    /// Pending writes after an id, without those that are known to be decided.
    pub(super) async fn look_at_queue(&self, after: i64, known: &HashSet<i64>) -> Result<Look> {
        let prefix = self.replica.prefix();
        let limit = WINDOW_ROWS + i64::try_from(known.len()).unwrap_or(0);
        let values: [&(dyn ToSql + Sync); 5] = [&prefix, &prefix_end(prefix), &limit, &WINDOW_BYTES, &after];
        let rows = within(STATEMENT_MAX, self.session.query(&self.fetch, &values)).await?;
        let sizes = rows.iter().map(|row| i64::from(row.get::<_, i32>(column::SIZE)));
        let mut look = Look {
            more: i64::try_from(rows.len()).unwrap_or(0) >= limit || sizes.sum::<i64>() > WINDOW_BYTES,
            whole: after == 0,
            highest: rows.last().map_or(after, |row| row.get(column::ID)),
            ..Look::default()
        };
        for row in rows.iter().filter(|row| !known.contains(&row.get(column::ID))) {
            let (pending, readable) = pending_of(row);
            let why = if !pending.key.starts_with(prefix) {
                format!("the key is outside the prefix {prefix}")
            } else if !readable {
                "the value is not base64".to_owned()
            } else {
                if let Some(head) = head_of(row) {
                    look.heads.insert(pending.key.clone(), head);
                }
                look.rows.push(pending);
                continue;
            };
            look.refused.push((plan(pending, None), Outcome::Failed { why }));
        }
        Ok(look)
    }

    /// Wait until everything decided is written down.
    pub(super) async fn flush(&mut self) -> Result<()> {
        while !self.ledger.is_empty() {
            self.written().await?;
        }
        Ok(())
    }

    /// Wait until something is written down, and say so.
    pub(super) async fn written(&mut self) -> Result<()> {
        let page = self.ledger.written().await?;
        self.tell_all(page)
    }

    pub(super) fn tell_all(&self, page: Option<Arc<Vec<Decided>>>) -> Result<()> {
        let Some(page) = page else { return Err(self.replica.fenced()) };
        for Decided { writes, .. } in page.iter() {
            self.tell(writes);
        }
        Ok(())
    }

    /// Count, and say what people must know; what they look up later was written down with it.
    fn tell(&self, decided: &[(Planned, Outcome)]) {
        let meters = &self.replica.meters;
        for (planned, outcome) in decided {
            let key = &planned.row.key;
            let reason = outcome.reason(planned).unwrap_or_default();
            match outcome {
                Outcome::Applied { .. } => add(&meters.writes_applied, 1),
                Outcome::Noop => add(&meters.noops, 1),
                Outcome::Conflict { .. } | Outcome::Gone { .. } => {
                    add(&meters.conflicts, 1);
                    self.replica.note("conflict", format!("{key}: {reason}"));
                }
                Outcome::Uncertain { .. } => {
                    add(&meters.conflicts, 1);
                    self.replica.note("uncertain", format!("write {} to {key}: {reason}", planned.row.id));
                }
                Outcome::Failed { .. } => {
                    add(&meters.failures, 1);
                    self.replica.note("failed", format!("write {} to {key}: {reason}", planned.row.id));
                }
            }
        }
    }

    /// Everything queued waits for the same server.
    pub(super) async fn count_waiting(&mut self, error: &Error) -> Result<()> {
        let rows = self.look_at_queue(0, &HashSet::new()).await?.rows;
        self.count_attempt(&rows, error).await
    }

    /// An attempt that came to nothing. An outage is waited out; anything else ends after `max_attempts`.
    pub(super) async fn count_attempt(&mut self, rows: &[Pending], error: &Error) -> Result<()> {
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
        let failed = |row: &Pending| (plan(row.clone(), None), Outcome::Failed { why: why.clone() });
        let writes: Vec<(Planned, Outcome)> = over.into_iter().map(failed).collect();
        if writes.is_empty() {
            return Ok(());
        }
        self.ledger.push(Decided { marker: None, writes });
        self.flush().await
    }
}

/// A row of the queue, and whether its value can be read.
fn pending_of(row: &Row) -> (Pending, bool) {
    let text: Option<&str> = row.get(column::VALUE);
    let value = text.map(|text| codec::bytes_of(text, row.get(column::ENCODING)));
    let readable = value.as_ref().is_none_or(Option::is_some);
    let pending = Pending {
        id: row.get(column::ID),
        nonce: row.get(column::NONCE),
        key: row.get(column::KEY),
        value: value.map(Option::unwrap_or_default),
        base: row.get::<_, Option<i64>>(column::BASE).unwrap_or(0),
        expected: row.get(column::EXPECTED),
        exact: row.get(column::EXACT),
        attempts: row.get(column::ATTEMPTS),
    };
    (pending, readable)
}

fn head_of(row: &Row) -> Option<Head> {
    let base: Option<i64> = row.get(column::HEAD_BASE);
    let revision: Option<i64> = row.get(column::HEAD_REVISION);
    let deleted: Option<bool> = row.get(column::HEAD_DELETED);
    Some(Head { base: base?, revision: revision?, deleted: deleted? })
}
