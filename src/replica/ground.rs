//! Whether we still stand on what we mirrored. While etcd has the moment of our checkpoint, what is compared at a connect
//! tells its history from any other. Once that moment is compacted away, a restored backup may have gone past all of it:
//! then only a snapshot tells, every key of it compared with our newest row, and nothing is written to etcd before.

use bytes::Bytes;
use tokio_postgres::Transaction;

use super::apply::{Applier, copy};
use super::base::pages;
use super::state::State;
use super::{Replica, within};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::key;
use crate::etcd::{range_end, revision_of};
use crate::postgres::{BULK_MAX, STATEMENT_MAX, Session};

impl Replica {
    /// Stop unless etcd is the cluster we know, and has the moment of our checkpoint to show it by. Returns its id and
    /// revision.
    pub(super) async fn check_ground(&self, session: &Session, state: &State) -> Result<(String, i64)> {
        let found = self.check_lineage(session, state).await?;
        if self.has_checkpoint(state).await? {
            return Ok(found);
        }
        let message = format!("etcd has compacted its history past revision {}", state.applied_revision);
        Err(Error::new(Kind::CursorLost, message))
    }

    pub(super) async fn has_checkpoint(&self, state: &State) -> Result<bool> {
        Ok(self.seen_at(&self.spec.marker, state.applied_revision).await?.is_some())
    }

    /// How a page of a snapshot at a revision contradicts the mirror, if it does. A row after the newest change of its key
    /// never was, and neither was one with other content. What was changed last before our checkpoint we have seen, so it
    /// is our newest row. What changed after the checkpoint, or is gone, contradicts nothing: nobody was looking.
    pub(super) async fn contradiction(
        &self,
        transaction: &Transaction<'_>,
        (upto, applied): (i64, i64),
    ) -> Result<Option<String>> {
        let select = format!(
            "SELECT i.key, i.revision, l.revision
             FROM incoming i LEFT JOIN LATERAL (
               SELECT e.revision, e.value, e.tombstone, e.encoding FROM {} e
               WHERE e.key = i.key AND e.revision <= $1 ORDER BY e.revision DESC LIMIT 1) l ON true
             WHERE l.revision > i.revision OR i.revision <= $2 AND l.revision IS DISTINCT FROM i.revision
               OR l.revision = i.revision
                 AND (l.value, l.tombstone, l.encoding) IS DISTINCT FROM (i.value, i.tombstone, i.encoding)
             LIMIT 1",
            self.tables.etcd
        );
        let row = within(BULK_MAX, transaction.query_opt(&select, &[&upto, &applied])).await?;
        Ok(row.map(|row| {
            let (key, theirs, ours): (&str, i64, Option<i64>) = (row.get(0), row.get(1), row.get(2));
            match ours {
                Some(ours) if ours == theirs => format!("{key} has other content at revision {theirs}"),
                Some(ours) => format!("{key} was last changed at revision {theirs}, we have seen {ours}"),
                None => format!("{key} was last changed at revision {theirs}, we have seen no such key"),
            }
        }))
    }

    /// Whether etcd as it is now contradicts the mirror. Nothing is changed.
    pub(super) async fn is_contradicted(&self, reader: &mut Applier<'_>, applied: i64) -> Result<bool> {
        loop {
            match self.compare_pages(reader, applied).await {
                // Compacted while we were reading: what is there by now is as good.
                Err(error) if error.kind() == Kind::CursorLost => {}
                outcome => return outcome,
            }
        }
    }

    async fn compare_pages(&self, reader: &mut Applier<'_>, applied: i64) -> Result<bool> {
        let revision = revision_of(self.etcd.range(key(self.prefix().to_owned())).await?.header);
        let (start, end) = (Bytes::from(self.prefix().to_owned()), range_end(self.prefix().as_bytes()));
        let mut pages = pages(&self.etcd, start, end, revision, false);
        while let Some(page) = pages.recv().await {
            let page = page?;
            let transaction = within(STATEMENT_MAX, reader.session.transaction()).await?;
            copy(&transaction, "incoming", &page.changes).await?;
            let found = self.contradiction(&transaction, (revision, applied)).await?;
            within(STATEMENT_MAX, transaction.rollback()).await?;
            if found.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
