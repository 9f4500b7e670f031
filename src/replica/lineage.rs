//! Is this still the cluster we mirrored? Asked at every connect: a restored backup keeps its ids, and may even be
//! ahead of us, so what we saw last is compared too: the newest change, the newest that was no delete, and our own
//! marker. An etcd that came up empty is told by that marker, too: it is laid before anything else is written, and where
//! it is gone something else must show that this is the etcd we know. And: may we do here what we must do?

use std::cmp::Ordering;

use bytes::Bytes;

use super::slot::Slot;
use super::state::State;
use super::{Replica, codec, within};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::{key, key_at, touch};
use crate::etcd::{KeyValue, RangeRequest, range_end, revision_of};
use crate::postgres::{STATEMENT_MAX, Session};

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
        let mut shown = self.check_marker(state, answer.kvs.first())?;
        for (witness, at) in [&state.witness, &state.live].into_iter().flatten() {
            shown |= self.check_witness(session, state, witness, *at).await?;
        }
        if !shown && state.slot_revision > 0 {
            let why = "our marker is gone, and so is all we could tell it by";
            return Err(self.other_history(why));
        }
        Ok((cluster, revision))
    }

    /// The marker we wrote last cannot be older than we know it to be. One that is gone, or is another's, shows nothing.
    fn check_marker(&self, state: &State, marker: Option<&KeyValue>) -> Result<bool> {
        let Some(marker) = marker else { return Ok(false) };
        let ours = Slot::of_bytes(&marker.value).is_some_and(|slot| slot.replica == state.replica);
        if !ours || marker.mod_revision >= state.slot_revision {
            return Ok(ours);
        }
        let (then, now) = (state.slot_revision, marker.mod_revision);
        Err(self.other_history(&format!("our marker is of revision {now}, we wrote it at {then}")))
    }

    /// A key we hold at a revision must have been written at that revision, with that content. `true` = it was; what is
    /// compacted away may leave that open.
    async fn check_witness(&self, session: &Session, state: &State, witness: &str, at: i64) -> Result<bool> {
        let Some(ours) = self.held(session, witness, at).await? else { return Ok(false) };
        let agrees = match self.seen_at(witness, at).await? {
            Some(there) => {
                // What was never there cannot have been deleted.
                let was_there = match ours {
                    Some(_) => Some(true),
                    None => self.seen_at(witness, at - 1).await?.map(|before| before.is_some()),
                };
                if is_same(there.as_ref(), ours.as_ref(), at) { was_there } else { Some(false) }
            }
            // That moment is compacted away. Until the last one we have seen, nothing may have become of it.
            None => self.agrees_since(session, state, witness, (at, ours.as_ref())).await?,
        };
        if agrees == Some(false) {
            return Err(self.other_history(&format!("{witness} was not what we saw at revision {at}")));
        }
        Ok(agrees.is_some())
    }

    /// `None` = nobody can tell.
    async fn agrees_since(
        &self,
        session: &Session,
        state: &State,
        witness: &str,
        (at, ours): (i64, Option<&Bytes>),
    ) -> Result<Option<bool>> {
        let newest = format!("SELECT max(revision) FROM {} WHERE key = $1", self.tables.etcd);
        let newest = within(STATEMENT_MAX, session.query_one(&newest, &[&witness])).await?;
        if newest.get::<_, Option<i64>>(0) == Some(at)
            && let Some(there) = self.seen_at(witness, state.applied_revision).await?
        {
            let same = is_same(there.as_ref(), ours, at);
            // That there is nothing shows nothing.
            return Ok((there.is_some() || !same).then_some(same));
        }
        // What is there now must at least not be older than what we saw.
        let now = self.etcd.range(key(witness.to_owned())).await?.kvs.into_iter().next();
        Ok(now.and_then(|now| match now.mod_revision.cmp(&at) {
            Ordering::Less => Some(false),
            Ordering::Equal => Some(ours.is_some_and(|ours| now.value == *ours)),
            Ordering::Greater => None,
        }))
    }

    /// Our row of a key at a revision: `Some(None)` = a delete; `None` = we hold none.
    async fn held(&self, session: &Session, witness: &str, at: i64) -> Result<Option<Option<Bytes>>> {
        let select =
            format!("SELECT value, encoding FROM {} WHERE key = $1 AND revision = $2", self.tables.etcd);
        let row = within(STATEMENT_MAX, session.query_opt(&select, &[&witness, &at])).await?;
        Ok(row.map(|row| {
            let value: Option<&str> = row.get(0);
            value.and_then(|value| codec::bytes_of(value, row.get(1)))
        }))
    }

    /// A key as it was at a revision; `None` = that moment is compacted away.
    pub(super) async fn seen_at(&self, witness: &str, at: i64) -> Result<Option<Option<KeyValue>>> {
        match self.etcd.range(key_at(witness.to_owned(), at)).await {
            Ok(answer) => Ok(Some(answer.kvs.into_iter().next())),
            Err(error) if error.kind() == Kind::CursorLost => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn other_history(&self, why: &str) -> Error {
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

/// Whether etcd has of a key what we have of it at a revision.
fn is_same(there: Option<&KeyValue>, ours: Option<&Bytes>, at: i64) -> bool {
    match (there, ours) {
        (Some(there), Some(ours)) => there.mod_revision == at && there.value == *ours,
        (None, None) => true,
        _ => false,
    }
}
