//! A snapshot of the prefix at one revision, page by page; reading the next page overlaps with writing this one.
//!
//! The first one goes straight into the table. A later one (after a compaction, or to take up a broken one whose
//! revision is gone) is merged: what is there stays, live keys it lacks get a tombstone; one that contradicts what is there
//! is of another history, and stops everything. The checkpoint moves with the last page only; until then the state says
//! where to go on.

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::mpsc;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use super::apply::{Applier, Contradicted, copy};
use super::codec::{self, Change, Quarantined, Read};
use super::meters::add;
use super::schema::Tables;
use super::state::{BasePlace, State};
use super::{Replica, within};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::key;
use crate::etcd::{Client, RangeRequest, fault, range_end, revision_of};
use crate::postgres::{BULK_MAX, STATEMENT_MAX, prefix_end};

/// What a page aims at: large enough that etcd's counting of the rest is small, small enough for memory.
const PAGE_BYTES: usize = 8 << 20;
const PAGE_KEYS_MAX: i64 = 50_000;
/// The first page finds out how large values are.
const PAGE_KEYS_FIRST: i64 = 1_000;
const PAGE_KEYS_MIN: i64 = 16;
/// Pages read ahead: one on its way while one is being written.
const PAGES_AHEAD: usize = 1;

/// Whether a row `l` is in a stretch of keys: `$2` and `$3` let an index find it, `$4` and `$5` are the truth.
const IN_PAGE: &str = "l.key >= $2 AND ($3::text IS NULL OR l.key < $3) AND convert_to(l.key, 'UTF8') >= $4 \
                       AND ($5::bytea = '\\x00' OR convert_to(l.key, 'UTF8') < $5)";

/// One page of the prefix.
pub(super) struct Page {
    /// From this key on …
    pub start: Bytes,
    /// … up to, but without, this one.
    pub end: Bytes,
    pub last: bool,
    pub changes: Vec<Change>,
    pub odd: Vec<Quarantined>,
}

/// Pages of `[start, end)` at a revision, read ahead by a task of its own.
pub(super) fn pages(
    etcd: &Client,
    start: Bytes,
    end: Bytes,
    revision: i64,
    keys_only: bool,
) -> mpsc::Receiver<Result<Page>> {
    let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
    let etcd = etcd.clone();
    tokio::spawn(async move {
        let mut reader = Reader { etcd, next: start, end, revision, keys_only, limit: PAGE_KEYS_FIRST };
        loop {
            let page = reader.page().await;
            let over = page.as_ref().map_or(true, |page| page.last);
            if sender.send(page).await.is_err() || over {
                return;
            }
        }
    });
    receiver
}

struct Reader {
    etcd: Client,
    next: Bytes,
    end: Bytes,
    revision: i64,
    keys_only: bool,
    limit: i64,
}

impl Reader {
    async fn page(&mut self) -> Result<Page> {
        let answer = loop {
            let request = RangeRequest {
                key: self.next.clone(),
                range_end: self.end.clone(),
                limit: self.limit,
                revision: self.revision,
                keys_only: self.keys_only,
                ..RangeRequest::default()
            };
            match self.etcd.range(request).await {
                Err(error) if fault::is_answer_too_large(&error) && self.limit > 1 => {
                    self.limit = (self.limit / 4).max(1);
                }
                outcome => break outcome?,
            }
        };
        let start = self.next.clone();
        let last = !answer.more;
        if let (Some(pair), false) = (answer.kvs.last(), last) {
            self.next = after(&pair.key);
        }
        let end = if last { self.end.clone() } else { self.next.clone() };
        let bytes: usize = answer.kvs.iter().map(|pair| pair.key.len() + pair.value.len()).sum();
        self.limit = next_limit(answer.kvs.len(), bytes);
        let mut page =
            Page { start, end, last, changes: Vec::with_capacity(answer.kvs.len()), odd: Vec::new() };
        for pair in answer.kvs {
            match codec::read_pair(pair) {
                Read::Row(change) => page.changes.push(change),
                Read::Odd(odd) => page.odd.push(odd),
            }
        }
        Ok(page)
    }
}

/// As many keys as make a page, judged by the page before.
fn next_limit(keys: usize, bytes: usize) -> i64 {
    let each = (bytes / keys.max(1)).max(1);
    i64::try_from(PAGE_BYTES / each).unwrap_or(PAGE_KEYS_MAX).clamp(PAGE_KEYS_MIN, PAGE_KEYS_MAX)
}

/// The first key after this one.
fn after(key: &[u8]) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.put_slice(key);
    next.put_u8(0);
    next.freeze()
}

impl Replica {
    /// Take the snapshot the state asks for, or go on with the one that was broken off.
    pub(super) async fn take_base(&self, applier: &mut Applier<'_>, state: &State) -> Result<i64> {
        add(&self.meters.snapshots, 1);
        let mut place = match &state.base {
            Some(place) => place.clone(),
            None => self.begin_base(applier, state.applied_revision > 0).await?,
        };
        loop {
            match self.write_base(applier, &place, state.applied_revision).await {
                Ok(()) => return Ok(place.revision),
                // Its revision was compacted while we were away: a newer one, merged with what is there.
                Err(error) if error.kind() == Kind::CursorLost => {
                    place = self.begin_base(applier, true).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) async fn begin_base(&self, applier: &Applier<'_>, merge: bool) -> Result<BasePlace> {
        let revision = revision_of(self.etcd.range(key(self.prefix().to_owned())).await?.header);
        let next = Bytes::from(self.prefix().to_owned());
        let update = format!(
            "UPDATE {state} SET base_revision = $3, base_next = $4,
               base_merge = $5 OR EXISTS (SELECT 1 FROM {etcd} WHERE key >= $1 AND ($6::text IS NULL OR key < $6))
             WHERE prefix = $1 AND epoch = $2 RETURNING base_merge",
            state = self.tables.state,
            etcd = self.tables.etcd
        );
        let values: [&(dyn ToSql + Sync); 6] =
            [&self.prefix(), &applier.epoch, &revision, &next.as_ref(), &merge, &prefix_end(self.prefix())];
        let row = within(STATEMENT_MAX, applier.session.query_opt(&update, &values)).await?;
        let merge = row.ok_or_else(|| self.fenced())?.get(0);
        self.note("snapshot", format!("taking a snapshot at revision {revision}"));
        Ok(BasePlace { revision, next, merge })
    }

    async fn write_base(&self, writer: &mut Applier<'_>, place: &BasePlace, applied: i64) -> Result<()> {
        let end = range_end(self.prefix().as_bytes());
        let mut pages = pages(&self.etcd, place.next.clone(), end, place.revision, false);
        while let Some(page) = pages.recv().await {
            let page = page?;
            let transaction = within(STATEMENT_MAX, writer.session.transaction()).await?;
            if place.merge {
                copy(&transaction, "incoming", &page.changes).await?;
                match &mut writer.contradicted {
                    Contradicted::Archived(rows) => {
                        *rows += self.archive_contradicted(&transaction, &page, place.revision).await?;
                    }
                    Contradicted::Stops => {
                        let found = self.contradiction(&transaction, (place.revision, applied)).await?;
                        found.map_or(Ok(()), |why| Err(self.other_history(&why)))?;
                    }
                }
                self.merge_incoming(&transaction).await?;
                self.bury(&transaction, &page, place.revision).await?;
            } else {
                copy(&transaction, &self.tables.etcd, &page.changes).await?;
            }
            self.quarantine(&transaction, &page.odd).await?;
            self.move_base(&transaction, writer.epoch, place, &page).await?;
            if page.last && place.merge && 0 < applied && applied < place.revision {
                let why = match writer.contradicted {
                    Contradicted::Stops => "compacted before it was mirrored",
                    Contradicted::Archived(_) => "passed over by a resync",
                };
                self.record_gap(&transaction, (applied + 1, place.revision), why).await?;
            }
            within(BULK_MAX, transaction.commit()).await?;
            add(&self.meters.events_applied, page.changes.len());
            if page.last {
                return Ok(());
            }
        }
        Err(Error::bug("a snapshot ended without its last page"))
    }

    /// Live keys of this stretch that the snapshot lacks were deleted while nobody was looking.
    pub(super) async fn bury(
        &self,
        transaction: &Transaction<'_>,
        page: &Page,
        revision: i64,
    ) -> Result<u64> {
        let insert = format!(
            "INSERT INTO {etcd} (key, revision, tombstone)
             SELECT l.key, $1, true FROM {live} l
             WHERE {IN_PAGE} AND l.revision < $1 AND NOT EXISTS (SELECT 1 FROM incoming i WHERE i.key = l.key)
             ON CONFLICT (key, revision) DO NOTHING",
            etcd = self.tables.etcd,
            live = self.tables.live
        );
        let (low, high) = (text_below(&page.start), text_above(&page.end));
        let values: [&(dyn ToSql + Sync); 5] =
            [&revision, &low, &high, &page.start.as_ref(), &page.end.as_ref()];
        within(BULK_MAX, transaction.execute(&insert, &values)).await
    }

    /// Rows of this stretch that the snapshot shows to be nobody's but a writer's to this table: of revisions etcd has not
    /// come to, after the newest change of a key, or with other content. What is older is history, and stays.
    async fn archive_contradicted(
        &self,
        transaction: &Transaction<'_>,
        page: &Page,
        revision: i64,
    ) -> Result<u64> {
        let Tables { etcd, archive, state, .. } = &self.tables;
        let archive = format!(
            "WITH untrue AS (
               SELECT l.key, l.revision FROM {etcd} l LEFT JOIN incoming i ON i.key = l.key
               WHERE {IN_PAGE} AND (l.revision > $1 OR l.revision > i.revision
                 OR i.key IS NULL AND l.revision = $1 AND NOT l.tombstone
                 OR l.revision = i.revision AND (l.value, l.tombstone, l.encoding)
                      IS DISTINCT FROM (i.value, i.tombstone, i.encoding))),
             moved AS (
               DELETE FROM {etcd} e USING untrue u WHERE e.key = u.key AND e.revision = u.revision
               RETURNING e.ts, e.key, e.value, e.revision, e.tombstone, e.encoding)
             INSERT INTO {archive} (cluster_id, ts, key, value, revision, tombstone, encoding)
             SELECT (SELECT cluster_id FROM {state} WHERE prefix = $6), * FROM moved"
        );
        let (low, high) = (text_below(&page.start), text_above(&page.end));
        let values: [&(dyn ToSql + Sync); 6] =
            [&revision, &low, &high, &page.start.as_ref(), &page.end.as_ref(), &self.prefix()];
        within(BULK_MAX, transaction.execute(&archive, &values)).await
    }

    async fn move_base(
        &self,
        transaction: &Transaction<'_>,
        epoch: i64,
        place: &BasePlace,
        page: &Page,
    ) -> Result<()> {
        let update = format!(
            "UPDATE {} SET
               applied_revision = CASE WHEN $4 THEN $3::bigint ELSE applied_revision END,
               base_revision = CASE WHEN $4 THEN NULL ELSE base_revision END,
               base_next = CASE WHEN $4 THEN NULL ELSE $5::bytea END,
               witness_key = CASE WHEN $7::bigint > coalesce(witness_revision, 0) THEN $6::text ELSE witness_key END,
               witness_revision = greatest(witness_revision, $7),
               live_key = CASE WHEN $7::bigint > coalesce(live_revision, 0) THEN $6::text ELSE live_key END,
               live_revision = greatest(live_revision, $7), synced_at = clock_timestamp()
             WHERE prefix = $1 AND epoch = $2",
            self.tables.state
        );
        let newest = page.changes.iter().max_by_key(|change| change.revision);
        let (key, revision) = (newest.map(|it| it.key.as_str()), newest.map(|it| it.revision));
        let values: [&(dyn ToSql + Sync); 7] =
            [&self.prefix(), &epoch, &place.revision, &page.last, &page.end.as_ref(), &key, &revision];
        let moved = within(STATEMENT_MAX, transaction.execute(&update, &values)).await?;
        if moved == 1 { Ok(()) } else { Err(self.fenced()) }
    }

    async fn record_gap(&self, to: &Transaction<'_>, (from, until): (i64, i64), why: &str) -> Result<()> {
        let insert = format!(
            "INSERT INTO {} (prefix, from_revision, to_revision, reason) VALUES ($1, $2, $3, $4)",
            self.tables.gaps
        );
        within(STATEMENT_MAX, to.execute(&insert, &[&self.prefix(), &from, &until, &why])).await?;
        self.note("gap", format!("revisions {from} to {until} are not in the history: {why}"));
        Ok(())
    }
}

/// The largest text that is surely not above these bytes: an index can start there.
fn text_below(bytes: &[u8]) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    // Keys with a NUL are quarantined, and PostgreSQL takes none: the part before it is below them.
    text.split('\0').next().unwrap_or_default().to_owned()
}

/// A text that is surely above them; `None` = no bound.
fn text_above(bytes: &[u8]) -> Option<String> {
    prefix_end(&text_below(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_the_size_of_values() {
        assert_eq!(next_limit(1_000, 100_000), PAGE_KEYS_MAX, "small values: as many as allowed");
        assert_eq!(next_limit(1_000, 10_000_000), 838, "10 kB values: 8 MB of them");
        assert_eq!(next_limit(0, 0), PAGE_KEYS_MAX);
        assert_eq!(next_limit(1, 1_500_000_000), PAGE_KEYS_MIN);
    }

    #[test]
    fn bounds_for_the_index_never_cut_off_a_key() {
        assert_eq!(text_below(b"/a/\xff\xff"), "/a/");
        assert_eq!(text_above(b"/a/\xff").as_deref(), Some("/a0"));
        assert_eq!(text_below(b"/a/b\0"), "/a/b");
    }
}
