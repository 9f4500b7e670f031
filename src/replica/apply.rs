//! Writes changes into the mirror: whole revisions, in one transaction with the checkpoint that covers them.
//!
//! A trickle goes in one statement, a flood by COPY. A row that is already there is compared, never overwritten.

use bytes::{Bytes, BytesMut};
use futures::SinkExt;
use tokio_postgres::{Statement, Transaction};

use super::codec::{self, Change, CopyBuffer, Quarantined, Read, Row, Rows};
use super::meters::{add, set};
use super::schema::Tables;
use super::{Replica, within};
use crate::error::{Error, Kind, Result};
use crate::postgres::{BULK_MAX, STATEMENT_MAX, Session};

/// From here on COPY is cheaper than sending arrays.
const COPY_ROWS_MIN: usize = 256;
/// Pieces a COPY is sent in: PostgreSQL works on one while the next is on its way.
const COPY_PIECE_BYTES: usize = 256 << 10;

/// Where rows wait to be compared with what is there.
const INCOMING: &str = "CREATE TEMP TABLE IF NOT EXISTS incoming (key text COLLATE \"C\", value text, \
                        revision bigint, tombstone boolean, encoding text) ON COMMIT DELETE ROWS";

/// Changes of whole revisions, in order. Rows are kept as COPY takes them: small while a backlog waits its turn, and
/// ready to be sent.
#[derive(Debug, Default)]
pub(super) struct Batch {
    open: BytesMut,
    pieces: Vec<Bytes>,
    /// Where in `open` its newest row is, and that row's revision; and the newest that is no delete.
    newest: Option<(usize, i64)>,
    newest_live: Option<(usize, i64)>,
    /// The changes the next connect asks etcd about: the newest, and the newest that is no delete.
    witness: Option<(String, i64)>,
    live: Option<(String, i64)>,
    pub rows: usize,
    pub odd: Vec<Quarantined>,
    pub bytes: usize,
    /// Everything up to and including this revision is in here or was before.
    pub upto: i64,
}

impl Batch {
    pub fn with_capacity(bytes: usize) -> Self {
        Batch { open: BytesMut::with_capacity(bytes), ..Batch::default() }
    }

    /// Nothing happened up to this revision.
    pub fn nothing_upto(upto: i64) -> Self {
        Batch { upto, ..Batch::default() }
    }

    pub fn push(&mut self, read: Read) {
        match read {
            Read::Row(change) => {
                let at = self.open.len();
                codec::encode(&mut self.open, &change);
                self.bytes += self.open.len() - at;
                self.rows += 1;
                self.upto = self.upto.max(change.revision);
                let place = Some((at, change.revision));
                self.newest = self.newest.filter(|newest| newest.1 > change.revision).or(place);
                if change.value.is_some() {
                    self.newest_live = self.newest_live.filter(|newest| newest.1 > change.revision).or(place);
                }
            }
            Read::Odd(odd) => {
                self.bytes += odd.key.len() + odd.value.as_ref().map_or(0, Bytes::len);
                self.upto = self.upto.max(odd.revision);
                self.odd.push(odd);
            }
        }
    }

    /// No more rows will be pushed.
    pub fn seal(&mut self) {
        let named = |(at, revision): (usize, i64)| {
            Rows(&self.open[at..]).next().map(|row| (row.key.to_owned(), revision))
        };
        let (newest, live) = (self.newest.take().and_then(named), self.newest_live.take().and_then(named));
        self.witness = newest.or(self.witness.take());
        self.live = live.or(self.live.take());
        let piece = std::mem::take(&mut self.open).freeze();
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }

    pub fn join(&mut self, mut next: Batch) {
        self.seal();
        next.seal();
        self.pieces.append(&mut next.pieces);
        self.odd.append(&mut next.odd);
        self.rows += next.rows;
        self.bytes += next.bytes;
        self.upto = self.upto.max(next.upto);
        self.witness = next.witness.or(self.witness.take());
        self.live = next.live.or(self.live.take());
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0 && self.odd.is_empty()
    }

    /// What was sealed.
    pub fn each(&self) -> impl Iterator<Item = Row<'_>> {
        self.pieces.iter().flat_map(|piece| Rows(piece))
    }

    fn witness(&self) -> (Option<&str>, Option<i64>) {
        columns_of(self.witness.as_ref())
    }

    fn live(&self) -> (Option<&str>, Option<i64>) {
        columns_of(self.live.as_ref())
    }
}

fn columns_of(row: Option<&(String, i64)>) -> (Option<&str>, Option<i64>) {
    (row.map(|it| it.0.as_str()), row.map(|it| it.1))
}

/// What becomes of rows that a snapshot contradicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contradicted {
    /// They stop everything: a person must find out who wrote them.
    Stops,
    /// A person has said so: so many were moved aside.
    Archived(u64),
}

/// One connection that moves the mirror forward.
pub(super) struct Applier<'a> {
    replica: &'a Replica,
    pub session: Session,
    pub epoch: i64,
    pub contradicted: Contradicted,
    trickle: Statement,
    checkpoint: Statement,
    flood: Statement,
}

impl<'a> Applier<'a> {
    pub async fn new(replica: &'a Replica, epoch: i64) -> Result<Self> {
        let session = replica.session().await?;
        let Tables { etcd, state, .. } = &replica.tables;
        // The checkpoint moves only if every row was new: anything else is looked at first.
        let text = format!(
            "WITH fresh AS (
               INSERT INTO {etcd} (key, value, revision, tombstone, encoding)
               SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bool[], $7::text[])
               ON CONFLICT (key, revision) DO NOTHING RETURNING 1)
             UPDATE {state} SET applied_revision = $8, synced_at = clock_timestamp(),
               witness_key = coalesce($9, witness_key), witness_revision = coalesce($10, witness_revision),
               live_key = coalesce($11, live_key), live_revision = coalesce($12, live_revision)
             WHERE prefix = $1 AND epoch = $2 AND (SELECT count(*) FROM fresh) = cardinality($3::text[])"
        );
        let trickle = within(STATEMENT_MAX, session.prepare(&text)).await?;
        let text = format!(
            "UPDATE {state} SET applied_revision = $3, synced_at = clock_timestamp(),
               witness_key = coalesce($4, witness_key), witness_revision = coalesce($5, witness_revision),
               live_key = coalesce($6, live_key), live_revision = coalesce($7, live_revision)
             WHERE prefix = $1 AND epoch = $2"
        );
        let checkpoint = within(STATEMENT_MAX, session.prepare(&text)).await?;
        let flood = within(STATEMENT_MAX, session.prepare(&copy_text(etcd))).await?;
        within(STATEMENT_MAX, session.batch_execute(INCOMING)).await?;
        let contradicted = Contradicted::Stops;
        Ok(Applier { replica, session, epoch, contradicted, trickle, checkpoint, flood })
    }

    /// Make the mirror hold this batch, and say so in the checkpoint.
    pub async fn apply(&mut self, mut batch: Batch) -> Result<()> {
        batch.seal();
        let small = batch.rows < COPY_ROWS_MIN && batch.odd.is_empty();
        let done = if small { self.trickle(&batch).await? } else { self.flood(&batch).await? };
        if !done {
            self.merge(&batch).await?;
        }
        let meters = &self.replica.meters;
        add(&meters.events_applied, batch.rows);
        add(&meters.quarantined, batch.odd.len());
        add(&meters.batches_applied, 1);
        set(&meters.applied_revision, batch.upto);
        Ok(())
    }

    /// `false` = not all rows were new, or we are no longer the leader: nothing was checkpointed.
    async fn trickle(&self, batch: &Batch) -> Result<bool> {
        let columns = Columns::of(batch);
        let ((key, revision), (live_key, live_revision)) = (batch.witness(), batch.live());
        let moved = within(
            STATEMENT_MAX,
            self.session.execute(
                &self.trickle,
                &[
                    &self.replica.prefix(),
                    &self.epoch,
                    &columns.keys,
                    &columns.values,
                    &columns.revisions,
                    &columns.tombstones,
                    &columns.encodings,
                    &batch.upto,
                    &key,
                    &revision,
                    &live_key,
                    &live_revision,
                ],
            ),
        )
        .await?;
        Ok(moved == 1)
    }

    async fn flood(&mut self, batch: &Batch) -> Result<bool> {
        let (replica, epoch) = (self.replica, self.epoch);
        let transaction = within(STATEMENT_MAX, self.session.transaction()).await?;
        match copy_batch(&transaction, &self.flood, batch).await {
            // Rolled back by being dropped; the rows that are there are looked at one by one.
            Err(error) if error.kind() == Kind::Conflict => return Ok(false),
            outcome => outcome?,
        }
        replica.quarantine(&transaction, &batch.odd).await?;
        replica.checkpoint(&transaction, &self.checkpoint, epoch, batch).await?;
        within(STATEMENT_MAX, transaction.commit()).await?;
        Ok(true)
    }

    /// Some rows may be there already: equal ones are passed over, different ones stop everything.
    async fn merge(&mut self, batch: &Batch) -> Result<()> {
        let (replica, epoch) = (self.replica, self.epoch);
        let transaction = within(STATEMENT_MAX, self.session.transaction()).await?;
        copy_batch(&transaction, &copy_text("incoming"), batch).await?;
        replica.merge_incoming(&transaction).await?;
        replica.quarantine(&transaction, &batch.odd).await?;
        replica.checkpoint(&transaction, &self.checkpoint, epoch, batch).await?;
        within(STATEMENT_MAX, transaction.commit()).await
    }

    /// Say that the watch is alive and nothing is waiting.
    pub async fn heartbeat(&self) -> Result<()> {
        let beat = self.replica.meters.beat(self.replica.clock.elapsed_ms());
        let meters = serde_json::to_string(&beat)
            .map_err(|error| Error::bug(format!("meters that are no JSON: {error}")))?;
        let update = format!(
            "UPDATE {} SET synced_at = clock_timestamp(), meters = $3::text::jsonb WHERE prefix = $1 AND epoch = $2",
            self.replica.tables.state
        );
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&self.replica.prefix(), &self.epoch, &meters];
        let moved = within(STATEMENT_MAX, self.session.execute(&update, &values)).await?;
        if moved == 1 { Ok(()) } else { Err(self.replica.fenced()) }
    }
}

impl Replica {
    pub(super) async fn merge_incoming(&self, transaction: &Transaction<'_>) -> Result<()> {
        let etcd = &self.tables.etcd;
        let differs = format!(
            "SELECT i.key, i.revision FROM incoming i JOIN {etcd} e USING (key, revision)
             WHERE (e.value, e.tombstone, e.encoding) IS DISTINCT FROM (i.value, i.tombstone, i.encoding) LIMIT 1"
        );
        if let Some(row) = within(BULK_MAX, transaction.query_opt(&differs, &[])).await? {
            let (key, revision): (String, i64) = (row.get(0), row.get(1));
            let message =
                format!("the mirror holds {key} at revision {revision} with other content than etcd");
            return Err(Error::new(Kind::Corrupt, message).remedy_is(format!(
                "Nothing was overwritten. Find out who wrote to the table, then `trueup replica resync {}`.",
                self.spec.name
            )));
        }
        let insert = format!(
            "INSERT INTO {etcd} (key, value, revision, tombstone, encoding)
             SELECT key, value, revision, tombstone, encoding FROM incoming ON CONFLICT (key, revision) DO NOTHING"
        );
        within(BULK_MAX, transaction.execute(&insert, &[])).await?;
        Ok(())
    }

    pub(super) async fn quarantine(&self, transaction: &Transaction<'_>, odd: &[Quarantined]) -> Result<()> {
        let insert = format!(
            "INSERT INTO {} (prefix, kind, key, revision, value, detail) VALUES ($1, 'quarantined', $2, $3, $4, $5)",
            self.tables.events
        );
        for it in odd {
            let (key, value, prefix) = (it.key.as_ref(), it.value.as_deref(), self.prefix());
            within(
                STATEMENT_MAX,
                transaction.execute(&insert, &[&prefix, &key, &it.revision, &value, &it.why]),
            )
            .await?;
            self.note(
                "quarantined",
                format!("{} at revision {}: {}", key.escape_ascii(), it.revision, it.why),
            );
        }
        Ok(())
    }

    async fn checkpoint(
        &self,
        transaction: &Transaction<'_>,
        statement: &Statement,
        epoch: i64,
        batch: &Batch,
    ) -> Result<()> {
        let ((key, revision), (live_key, live_revision)) = (batch.witness(), batch.live());
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
            [&self.prefix(), &epoch, &batch.upto, &key, &revision, &live_key, &live_revision];
        let moved = within(STATEMENT_MAX, transaction.execute(statement, &values)).await?;
        if moved == 1 { Ok(()) } else { Err(self.fenced()) }
    }
}

fn copy_text(table: &str) -> String {
    format!("COPY {table} (key, value, revision, tombstone, encoding) FROM STDIN BINARY")
}

/// COPY rows into a table with the columns of `etcd`.
pub(super) async fn copy(transaction: &Transaction<'_>, table: &str, changes: &[Change]) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let bytes = changes.iter().map(Change::bytes).sum();
    let mut buffer = CopyBuffer::with_capacity(bytes);
    for change in changes {
        buffer.push(change);
    }
    send(transaction, &copy_text(table), [buffer.finish()]).await
}

async fn copy_batch<T>(transaction: &Transaction<'_>, statement: &T, batch: &Batch) -> Result<()>
where
    T: ?Sized + tokio_postgres::ToStatement,
{
    if batch.rows == 0 {
        return Ok(());
    }
    let pieces = batch.pieces.iter().cloned();
    let pieces = std::iter::once(codec::copy_head()).chain(pieces).chain([codec::copy_tail()]);
    send(transaction, statement, pieces).await
}

async fn send<T>(
    transaction: &Transaction<'_>,
    statement: &T,
    pieces: impl IntoIterator<Item = Bytes>,
) -> Result<()>
where
    T: ?Sized + tokio_postgres::ToStatement,
{
    let sending = async {
        let sink = transaction.copy_in::<_, Bytes>(statement).await?;
        let mut sink = std::pin::pin!(sink);
        for mut rest in pieces {
            while !rest.is_empty() {
                let piece = rest.split_to(rest.len().min(COPY_PIECE_BYTES));
                sink.send(piece).await?;
            }
        }
        sink.finish().await
    };
    within(BULK_MAX, sending).await.map(|_| ())
}

/// Changes as the arrays `unnest` takes.
struct Columns<'a> {
    keys: Vec<&'a str>,
    values: Vec<Option<&'a str>>,
    revisions: Vec<i64>,
    tombstones: Vec<bool>,
    encodings: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a Batch) -> Self {
        Columns {
            keys: batch.each().map(|row| row.key).collect(),
            values: batch.each().map(|row| row.value).collect(),
            revisions: batch.each().map(|row| row.revision).collect(),
            tombstones: batch.each().map(|row| row.value.is_none()).collect(),
            encodings: batch.each().map(|row| row.encoding).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, revision: i64) -> Read {
        Read::Row(Change { key: key.to_owned(), value: Some("v".to_owned()), base64: false, revision })
    }

    #[test]
    fn joined_batches_keep_every_row_in_order_and_the_newest_as_their_witness() {
        let mut first = Batch::default();
        first.push(change("/a", 5));
        first.push(change("/b", 5));
        let mut second = Batch::with_capacity(100);
        second.push(change("/c", 6));
        first.join(second);
        first.join(Batch::nothing_upto(9));
        let rows: Vec<(&str, i64)> = first.each().map(|row| (row.key, row.revision)).collect();
        assert_eq!(rows, [("/a", 5), ("/b", 5), ("/c", 6)]);
        assert_eq!((first.rows, first.upto, first.witness()), (3, 9, (Some("/c"), Some(6))));
        let mut last = Batch::default();
        last.push(Read::Row(Change { key: "/a".to_owned(), value: None, base64: false, revision: 10 }));
        first.join(last);
        assert_eq!((first.witness(), first.live()), ((Some("/a"), Some(10)), (Some("/c"), Some(6))));
    }
}
