//! What etcd decided and PostgreSQL does not know yet. It is written down while the next transaction is on its way to
//! etcd; what piles up meanwhile is written down together.
//!
//! Until then every marker names these writes again (`slot`), so that a crash loses none of them.

use std::collections::HashSet;
use std::sync::Arc;

use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;

use super::outcome::Outcome;
use super::packing::Planned;
use super::run::AbortOnDrop;
use super::schema::Tables;
use super::{ConflictRule, Replica, within};
use crate::error::Result;
use crate::postgres::{STATEMENT_MAX, Session};

/// Outcomes and the marker's revision, in one statement: after a crash either both are there or neither is, and an
/// instance that no longer leads writes nothing.
fn settle_text(tables: &Tables) -> String {
    format!("{} SELECT EXISTS (SELECT 1 FROM lead)", settled(tables, ""))
}

/// The same, with what people are told: of failures, and of what may have happened.
fn settle_and_tell_text(tables: &Tables) -> String {
    let settled = settled(tables, "RETURNING w.id, w.key, d.event, w.last_error");
    format!(
        "{settled},
         told AS (
           INSERT INTO {} (prefix, kind, detail)
           SELECT $1, event, format('write %s to %s: %s', id, key, last_error)
           FROM settled WHERE event IS NOT NULL ORDER BY id RETURNING kind, detail)
         SELECT EXISTS (SELECT 1 FROM lead),
                (SELECT count(pg_notify('etcd_failures', left(detail, {NOTICE_CHARS}))) FROM told WHERE kind = 'failed')",
        tables.events
    )
}

fn settled(tables: &Tables, returning: &str) -> String {
    let Tables { wal, drain, etcd, .. } = tables;
    format!(
        "WITH lead AS (
           UPDATE {drain} SET slot_revision = coalesce($3, slot_revision)
           WHERE prefix = $1 AND epoch = $2 RETURNING 1),
         d AS (SELECT * FROM unnest($4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
                 $9::text[], $10::bool[], $11::text[]) AS d(id, status, result, expected, chain, error, held, event)),
         settled AS (
           UPDATE {wal} w SET status = d.status, held = d.held, expected_revision = d.expected,
             result_revision = CASE WHEN d.status = 'conflict' AND d.result IS NULL
               THEN (SELECT max(e.revision) FROM {etcd} e
                     WHERE e.key = w.key AND e.tombstone AND e.revision > d.expected) ELSE d.result END,
             chain_base = CASE WHEN d.status = 'applied' THEN d.chain END,
             last_error = d.error, attempts = w.attempts + 1, processed_at = clock_timestamp()
           FROM lead, d WHERE w.id = d.id AND w.status = 'pending' {returning})"
    )
}

/// NOTIFY takes 8,000 bytes; the row has the whole story.
const NOTICE_CHARS: usize = 500;

/// Writes decided together.
#[derive(Debug)]
pub(super) struct Decided {
    /// Revision of the transaction, which is its marker's too; `None` = decided without one.
    pub marker: Option<i64>,
    pub writes: Vec<(Planned, Outcome)>,
}

pub(super) struct Ledger {
    pen: Arc<Pen>,
    waiting: Vec<Decided>,
    writing: Option<Writing>,
}

struct Writing {
    decided: Arc<Vec<Decided>>,
    task: AbortOnDrop<Result<bool>>,
}

/// A connection of its own: reading the queue must not wait for a commit.
struct Pen {
    session: Session,
    settle: Statement,
    settle_and_tell: Statement,
    prefix: String,
    epoch: i64,
    rule: ConflictRule,
}

impl Ledger {
    pub async fn new(replica: &Replica, epoch: i64) -> Result<Self> {
        let session = replica.session().await?;
        // A few hundred rows by their ids: planned once, whatever the length of the arrays and the size of the table.
        within(STATEMENT_MAX, session.batch_execute("SET plan_cache_mode = force_generic_plan")).await?;
        let settle = within(STATEMENT_MAX, session.prepare(&settle_text(&replica.tables))).await?;
        let settle_and_tell =
            within(STATEMENT_MAX, session.prepare(&settle_and_tell_text(&replica.tables))).await?;
        let (prefix, rule) = (replica.prefix().to_owned(), replica.spec.conflict);
        let pen = Arc::new(Pen { session, settle, settle_and_tell, prefix, epoch, rule });
        Ok(Ledger { pen, waiting: Vec::new(), writing: None })
    }

    /// Take these in; they are written down as soon as what is being written is done.
    pub fn push(&mut self, decided: Decided) {
        self.waiting.push(decided);
        self.go_on();
    }

    fn go_on(&mut self) {
        if self.writing.is_some() || self.waiting.is_empty() {
            return;
        }
        let decided = Arc::new(std::mem::take(&mut self.waiting));
        let (pen, page) = (self.pen.clone(), decided.clone());
        let task = AbortOnDrop(tokio::spawn(async move { pen.write(&page).await }));
        self.writing = Some(Writing { decided, task });
    }

    /// Everything that is not written down yet, oldest first.
    pub fn open(&self) -> impl Iterator<Item = &Decided> {
        self.writing.iter().flat_map(|writing| writing.decided.iter()).chain(&self.waiting)
    }

    pub fn ids(&self) -> HashSet<i64> {
        self.open().flat_map(|decided| decided.writes.iter().map(|(planned, _)| planned.row.id)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.writing.is_none()
    }

    /// Something was written down, and `written` will say so at once.
    pub fn has_news(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.task.0.is_finished())
    }

    /// What has been written down by now; `None` when somebody else leads. Ends never when nothing is being written,
    /// and may be dropped while it waits.
    pub async fn written(&mut self) -> Result<Option<Arc<Vec<Decided>>>> {
        let Some(writing) = &mut self.writing else { return std::future::pending().await };
        let led = writing.task.wait().await;
        let decided = self.writing.take().map(|writing| writing.decided);
        if !led? {
            return Ok(None);
        }
        self.go_on();
        Ok(decided)
    }
}

impl Pen {
    /// `false` = another instance leads, and nothing was written.
    async fn write(&self, decided: &[Decided]) -> Result<bool> {
        let each = || decided.iter().flat_map(|it| &it.writes);
        let marker = decided.iter().filter_map(|it| it.marker).max();
        let ids: Vec<i64> = each().map(|(planned, _)| planned.row.id).collect();
        let statuses: Vec<&str> = each().map(|(_, outcome)| outcome.status()).collect();
        let results: Vec<Option<i64>> = each().map(|(_, outcome)| outcome.revision()).collect();
        let expected: Vec<i64> = each().map(|(planned, _)| planned.expected).collect();
        let chains: Vec<i64> = each().map(|(planned, _)| planned.chain).collect();
        let errors: Vec<Option<String>> = each().map(|(planned, outcome)| outcome.reason(planned)).collect();
        let held: Vec<bool> = each().map(|(_, outcome)| outcome.is_held(self.rule)).collect();
        let events: Vec<Option<&str>> = each().map(|(_, outcome)| outcome.event()).collect();
        let values: [&(dyn ToSql + Sync); 11] = [
            &self.prefix,
            &self.epoch,
            &marker,
            &ids,
            &statuses,
            &results,
            &expected,
            &chains,
            &errors,
            &held,
            &events,
        ];
        // These are rare, and naming every write that settles is not free.
        let settle = if events.iter().any(Option::is_some) { &self.settle_and_tell } else { &self.settle };
        let said = within(STATEMENT_MAX, self.session.query_one(settle, &values)).await?;
        Ok(said.get(0))
    }
}
