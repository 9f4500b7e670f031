//! The marker that makes writes exactly-once: one key outside the prefix, written by every transaction of ours with
//! the ids it carries. Whoever finds it moved knows which writes happened, and when.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::Replica;
use super::drain::{Drainer, Trouble};
use super::outcome::{self, Outcome};
use super::packing::{Pending, Planned};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::{key, key_at};
use crate::etcd::{RangeRequest, TxnRequest, fault};
use crate::postgres::{STATEMENT_MAX, within};

/// Keys looked at per transaction of reads, twice each.
const LOOKS_MAX: usize = 60;

/// The marker's value.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Slot {
    pub replica: String,
    /// Queue id, expected revision, chain base of each write in the transaction.
    pub writes: Vec<(i64, i64, i64)>,
}

impl Slot {
    pub fn of(replica: &str, planned: &[Planned]) -> Self {
        let writes = planned.iter().map(|it| (it.row.id, it.expected, it.chain)).collect();
        Slot { replica: replica.to_owned(), writes }
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::bug(format!("a marker that is no JSON: {error}")))
    }
}

impl Replica {
    fn foreign_marker(&self) -> Error {
        let message = format!("the marker {} belongs to another replica", self.spec.marker);
        Error::new(Kind::Config, message)
            .remedy_is("Give this replica a `marker` of its own; two databases must not share one.")
    }
}

impl Drainer<'_> {
    /// Settle what an earlier transaction did, if its answer never came. To be called before the next one.
    pub(super) async fn recover(&mut self) -> Result<(), Trouble> {
        let found = self.replica.etcd.range(key(self.replica.spec.marker.clone())).await;
        let found = found.map_err(Trouble::of_etcd)?;
        let Some(pair) = found.kvs.into_iter().next() else {
            self.slot_revision = 0;
            return Ok(());
        };
        if pair.mod_revision == self.slot_revision {
            return Ok(());
        }
        let slot: Slot = serde_json::from_slice(&pair.value).map_err(|_| self.replica.foreign_marker())?;
        if slot.replica != self.replica_id {
            return Err(self.replica.foreign_marker().into());
        }
        let planned = self.unsettled(&slot).await?;
        let outcomes = self.read_outcomes(&planned, pair.mod_revision).await?;
        if !planned.is_empty() {
            let message = format!(
                "the answer for {} writes was lost; etcd's history tells what became of them",
                planned.len()
            );
            self.replica.note("recovered", message);
        }
        self.slot_revision = pair.mod_revision;
        let decided: Vec<(Planned, Outcome)> = planned.into_iter().zip(outcomes).collect();
        Ok(self.settle(&decided).await?)
    }

    /// The marker's writes that are still pending here.
    async fn unsettled(&self, slot: &Slot) -> Result<Vec<Planned>> {
        let ids: Vec<i64> = slot.writes.iter().map(|write| write.0).collect();
        let select = format!(
            "SELECT id, key, operation, attempts FROM {} WHERE id = ANY($1) AND status = 'pending'",
            self.replica.tables.wal
        );
        let rows = within(STATEMENT_MAX, self.session.query(&select, &[&ids])).await?;
        let by_id: HashMap<i64, (i64, i64)> =
            slot.writes.iter().map(|(id, expected, chain)| (*id, (*expected, *chain))).collect();
        let planned = rows.iter().map(|row| {
            let id: i64 = row.get("id");
            let (expected, chain) = by_id.get(&id).copied().unwrap_or_default();
            let deletes = row.get::<_, &str>("operation") == "delete";
            let value = (!deletes).then(bytes::Bytes::new);
            let (key, attempts) = (row.get("key"), row.get("attempts"));
            let row = Pending { id, key, value, base: chain, expected, exact: false, attempts };
            Planned { row, expected, chain }
        });
        Ok(planned.collect())
    }

    async fn read_outcomes(&self, planned: &[Planned], revision: i64) -> Result<Vec<Outcome>, Trouble> {
        let mut outcomes = Vec::with_capacity(planned.len());
        let mut looks_max = LOOKS_MAX;
        while outcomes.len() < planned.len() {
            let rest = &planned[outcomes.len()..];
            let chunk = &rest[..rest.len().min(looks_max)];
            let reads = chunk.iter().flat_map(|it| {
                [revision - 1, revision]
                    .map(|at| RangeRequest { keys_only: true, ..key_at(it.row.key.clone(), at) }.into())
            });
            let request = TxnRequest { success: reads.collect(), ..TxnRequest::default() };
            match self.replica.etcd.txn(request).await {
                Ok(answer) => {
                    let seen: Vec<Option<i64>> = answer
                        .responses
                        .iter()
                        .map(|response| response.found().map(|pair| pair.mod_revision))
                        .collect();
                    for (it, seen) in chunk.iter().zip(seen.chunks(2)) {
                        let deletes = it.row.value.is_none();
                        outcomes.push(outcome::recovered(deletes, seen[0], seen[1], revision));
                    }
                }
                Err(error) if fault::is_too_many_operations(&error) && chunk.len() > 1 => {
                    looks_max = chunk.len() / 2;
                }
                Err(error) if error.kind() == Kind::CursorLost => {
                    for it in chunk {
                        outcomes.push(self.guess(it, revision).await?);
                    }
                }
                Err(error) => return Err(Trouble::of_etcd(error)),
            }
        }
        Ok(outcomes)
    }

    /// That moment is compacted away. What is there now, and what the mirror saw, may still tell.
    async fn guess(&self, planned: &Planned, revision: i64) -> Result<Outcome, Trouble> {
        let found = self.replica.etcd.range(key(planned.row.key.clone())).await.map_err(Trouble::of_etcd)?;
        let pair = found.kvs.first();
        let now = pair.map(|pair| pair.mod_revision);
        // A later write hides the revision of ours, but not that ours made the key.
        if pair.is_some_and(|pair| [pair.mod_revision, pair.create_revision].contains(&revision)) {
            return Ok(Outcome::Applied { revision });
        }
        let select = format!("SELECT 1 FROM {} WHERE key = $1 AND revision = $2", self.replica.tables.etcd);
        let seen =
            within(STATEMENT_MAX, self.session.query_opt(&select, &[&planned.row.key, &revision])).await?;
        if seen.is_some() {
            return Ok(Outcome::Applied { revision });
        }
        if now.is_none() && planned.row.value.is_none() {
            return Ok(Outcome::Noop);
        }
        self.replica
            .note("uncertain", format!("etcd compacted the history of {} at {revision}", planned.row.key));
        Ok(Outcome::Conflict { winning: now.unwrap_or(0) })
    }
}
