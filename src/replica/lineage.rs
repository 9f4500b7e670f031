//! Is this still the cluster we mirrored? Asked at every connect: a restored backup keeps its ids, and may even be
//! ahead of us, so a key we hold is compared too. And: may we do here what we must do?

use super::state::State;
use super::{Replica, codec};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::{key, key_at, touch};
use crate::etcd::{KeyValue, RangeRequest, range_end, revision_of};
use crate::postgres::{STATEMENT_MAX, Session, within};

impl Replica {
    /// Stop unless etcd is the cluster whose history we hold. Returns its id and revision.
    pub(super) async fn check_lineage(&self, session: &Session, state: &State) -> Result<(String, i64)> {
        let answer = self.etcd.range(key(self.spec.marker.clone())).await?;
        let revision = revision_of(answer.header);
        let cluster = answer.header.map_or(0, |header| header.cluster_id);
        let cluster = format!("{cluster:x}");
        if let Some(known) = &state.cluster_id
            && *known != cluster
        {
            return Err(self.other_history(&format!("the cluster id is {cluster}, it was {known}")));
        }
        if revision < state.applied_revision {
            let why = format!("its revision is {revision}, we have seen {}", state.applied_revision);
            return Err(self.other_history(&why));
        }
        if let Some((witness, at)) = &state.witness {
            self.check_witness(session, witness, *at).await?;
        }
        Ok((cluster, revision))
    }

    /// A key we hold at a revision must have been written at that revision, with that content.
    async fn check_witness(&self, session: &Session, witness: &str, at: i64) -> Result<()> {
        let select =
            format!("SELECT value, encoding FROM {} WHERE key = $1 AND revision = $2", self.tables.etcd);
        let row = within(STATEMENT_MAX, session.query_opt(&select, &[&witness, &at])).await?;
        let Some(row) = row else { return Ok(()) };
        let value: Option<&str> = row.get(0);
        let ours = value.and_then(|value| codec::bytes_of(value, row.get(1)));
        let found = match self.etcd.range(key_at(witness.to_owned(), at)).await {
            Ok(answer) => answer.kvs.into_iter().next(),
            // That moment is compacted away. What is there now must at least not be older than what we saw.
            Err(error) if error.kind() == Kind::CursorLost => {
                let now = self.etcd.range(key(witness.to_owned())).await?.kvs.into_iter().next();
                if let Some(now) = &now
                    && now.mod_revision < at
                {
                    return Err(
                        self.other_history(&format!("{witness} was last written before we saw it written"))
                    );
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let same =
            |found: &KeyValue| found.mod_revision == at && ours.as_deref() == Some(found.value.as_ref());
        let agrees = match (&found, &ours) {
            (Some(found), Some(_)) => same(found),
            (None, None) => true,
            _ => false,
        };
        if agrees {
            return Ok(());
        }
        Err(self.other_history(&format!("{witness} was not what we saw at revision {at}")))
    }

    fn other_history(&self, why: &str) -> Error {
        let message = format!("{} has another history than the one mirrored: {why}", self.spec.etcd.shown());
        Error::new(Kind::Corrupt, message).remedy_is(format!(
            "If etcd was replaced or restored on purpose, run `trueup replica resync {}`; the old rows are kept.",
            self.spec.name
        ))
    }

    /// Reading and writing, the prefix and the marker: asked for in ways that change nothing.
    pub(super) async fn check_permissions(&self) -> Result<()> {
        let prefix = self.prefix().to_owned();
        let all =
            RangeRequest { range_end: range_end(prefix.as_bytes()), keys_only: true, ..key(prefix.clone()) };
        self.etcd.range(all).await.map_err(|error| self.denied(error, "reading the prefix"))?;
        let marker = self.etcd.txn(touch(self.spec.marker.clone())).await;
        marker.map_err(|error| self.denied(error, "writing the marker"))?;
        self.etcd.txn(touch(prefix)).await.map_err(|error| self.denied(error, "writing below the prefix"))?;
        Ok(())
    }

    fn denied(&self, error: Error, doing: &str) -> Error {
        let error = error.while_(doing);
        if error.kind() != Kind::Unauthorized || !error.to_string().contains("permission denied") {
            return error;
        }
        let remedy = format!(
            "Grant the etcd role readwrite on the prefix {} and on the marker {}: \
             `etcdctl role grant-permission ROLE readwrite --prefix=true {}` and \
             `etcdctl role grant-permission ROLE readwrite {}`.",
            self.prefix(),
            self.spec.marker,
            self.prefix(),
            self.spec.marker
        );
        error.remedy_is(remedy)
    }
}
