//! The marker that makes writes exactly-once: one key outside the prefix, written by every transaction of ours with
//! the ids it carries, and those of earlier ones that are not written down yet. Whoever finds it moved knows which
//! writes happened, and when.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tokio_postgres::types::ToSql;

use super::drain::{Drainer, Trouble};
use super::ledger::{Decided, Ledger};
use super::outcome::{self, Form, Outcome};
use super::packing::{Pending, Planned};
use super::{ConflictRule, Replica, within};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::{key, key_at, put, unmoved};
use crate::etcd::{KeyValue, RangeRequest, TxnRequest, fault, revision_of};
use crate::postgres::STATEMENT_MAX;

/// Keys looked at per transaction of reads, twice each.
const LOOKS_MAX: usize = 60;

/// The marker's value.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Slot {
    pub replica: String,
    pub writes: Vec<Trace>,
    /// Of each of them. A marker of an older trueup has none.
    #[serde(default)]
    pub nonces: Vec<Option<i64>>,
    /// Those of them that did not happen were not decided either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
    /// Transactions before this one whose outcomes were not in PostgreSQL when this one was sent, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Earlier>,
}

/// Queue id, expected revision, chain base of one write in a transaction.
pub(super) type Trace = (i64, i64, i64);

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Earlier {
    pub revision: i64,
    pub writes: Vec<Trace>,
    #[serde(default)]
    pub nonces: Vec<Option<i64>>,
}

impl Slot {
    pub fn of(replica: &str, planned: &[Planned], form: Form, ledger: &Ledger) -> Self {
        let before = ledger.open().filter_map(|decided| {
            let planned = || decided.writes.iter().map(|(planned, _)| planned);
            let (writes, nonces) = (planned().map(trace).collect(), planned().map(nonce).collect());
            decided.marker.map(|revision| Earlier { revision, writes, nonces })
        });
        let (replica, before) = (replica.to_owned(), before.collect());
        let together = matches!(form, Form::Together(_));
        let (writes, nonces) = (planned.iter().map(trace).collect(), planned.iter().map(nonce).collect());
        Slot { replica, writes, nonces, together, before }
    }

    /// `None` = somebody else's.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::bug(format!("a marker that is no JSON: {error}")))
    }
}

fn trace(planned: &Planned) -> Trace {
    (planned.row.id, planned.expected, planned.chain)
}

fn nonce(planned: &Planned) -> Option<i64> {
    planned.row.nonce
}

impl Replica {
    fn foreign_marker(&self) -> Error {
        let message = format!("the marker {} belongs to another replica", self.spec.marker);
        Error::new(Kind::Config, message)
            .remedy_is("Give this replica a `marker` of its own; two databases must not share one.")
    }
}

impl Drainer<'_> {
    /// Settle what earlier transactions did, if their answers never came or were never written down. To be called
    /// before the next one.
    pub(super) async fn recover(&mut self) -> Result<(), Trouble> {
        self.flush().await?;
        let Some(pair) = self.marker().await? else {
            self.slot_revision = 0;
            return self.lay_marker().await;
        };
        if pair.mod_revision == self.slot_revision {
            return Ok(());
        }
        let slot = Slot::of_bytes(&pair.value).ok_or_else(|| self.replica.foreign_marker())?;
        if slot.replica != self.replica_id {
            return Err(self.replica.foreign_marker().into());
        }
        // A write that was decided and queued again since then is none of those.
        let settled = self.slot_revision;
        let newest = Earlier { revision: pair.mod_revision, writes: slot.writes, nonces: slot.nonces };
        let earlier = slot.before.into_iter().filter(|it| it.revision > settled);
        for it in earlier.chain([newest]) {
            let revision = it.revision;
            let together = slot.together && revision == pair.mod_revision;
            let planned = self.unsettled(&it).await?;
            let outcomes = self.read_outcomes(&planned, revision).await?;
            if !planned.is_empty() {
                let lost = planned.len();
                let message = format!(
                    "the answer for {lost} writes was lost; etcd's history tells what became of them"
                );
                self.replica.note("recovered", message);
            }
            self.slot_revision = revision;
            // What was not decided is tried again, and what PostgreSQL is to win; never what may have happened.
            let insists = self.replica.spec.conflict == ConflictRule::PostgresWins;
            let again = |planned: &Planned, outcome: &Outcome| {
                outcome.winning().is_some() && (together || insists && !planned.row.exact)
            };
            let decided = planned.into_iter().zip(outcomes).filter(|it| !again(&it.0, &it.1));
            let mut writes: Vec<_> = decided.collect();
            self.find_deletes(&mut writes, revision).await;
            self.ledger.push(Decided { marker: Some(revision), writes });
            self.flush().await?;
        }
        Ok(())
    }

    /// The marker as it is. This may be an etcd we know nothing of, which must not be written to, even where the marker is
    /// as we left it: a backup has it, too.
    async fn marker(&self) -> Result<Option<KeyValue>, Trouble> {
        let state = self.replica.read_state(&self.session).await?;
        self.replica.check_ground(&self.session, &state).await.map_err(Trouble::of_etcd)?;
        let found = self.replica.etcd.range(key(self.replica.spec.marker.clone())).await;
        Ok(found.map_err(Trouble::of_etcd)?.kvs.into_iter().next())
    }

    /// Where there is no marker yet, one that names no write: from now on nothing is written to an etcd that lacks it.
    async fn lay_marker(&mut self) -> Result<(), Trouble> {
        let marker = self.replica.spec.marker.clone();
        let slot = Slot {
            replica: self.replica_id.clone(),
            writes: Vec::new(),
            nonces: Vec::new(),
            together: false,
            before: Vec::new(),
        };
        let success = vec![put(marker.clone(), slot.to_bytes()?).into()];
        let request = TxnRequest { compare: vec![unmoved(marker, 0)], success, failure: Vec::new() };
        let answer = self.replica.etcd.txn(request).await.map_err(Trouble::of_etcd)?;
        if !answer.succeeded {
            let message = "somebody else wrote the marker just now";
            return Err(Trouble::Etcd(Error::new(Kind::Unavailable, message)));
        }
        self.slot_revision = revision_of(answer.header);
        self.ledger.push(Decided { marker: Some(self.slot_revision), writes: Vec::new() });
        Ok(self.flush().await?)
    }

    /// Those of these writes that are still pending here. One that only has the id of a write, but not its nonce, came
    /// after a restore and was never sent.
    async fn unsettled(&self, sent: &Earlier) -> Result<Vec<Planned>> {
        let ids: Vec<i64> = sent.writes.iter().map(|write| write.0).collect();
        let select = format!(
            "SELECT id, nonce, key, operation, exact, attempts FROM {} WHERE id = ANY($1) AND status = 'pending'",
            self.replica.tables.wal
        );
        let rows = within(STATEMENT_MAX, self.session.query(&select, &[&ids])).await?;
        let nonces = sent.nonces.iter().copied().chain(std::iter::repeat(None));
        let by_id: HashMap<i64, (i64, i64, Option<i64>)> = (sent.writes.iter().zip(nonces))
            .map(|((id, expected, chain), nonce)| (*id, (*expected, *chain, nonce)))
            .collect();
        let planned = rows.iter().filter_map(|row| {
            let (id, nonce): (i64, Option<i64>) = (row.get("id"), row.get("nonce"));
            let (expected, chain, sent) = by_id.get(&id).copied()?;
            if sent != nonce {
                return None;
            }
            let deletes = row.get::<_, &str>("operation") == "delete";
            let value = (!deletes).then(bytes::Bytes::new);
            let (key, exact, attempts) = (row.get("key"), row.get("exact"), row.get("attempts"));
            let row = Pending { id, nonce, key, value, base: chain, expected, exact, attempts };
            Some(Planned { row, expected, chain })
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

    /// That moment is compacted away. What the mirror saw, and what is there now, may still tell.
    async fn guess(&self, planned: &Planned, revision: i64) -> Result<Outcome, Trouble> {
        let deletes = planned.row.value.is_none();
        // A snapshot of that very revision has a tombstone for whatever was gone by then: it shows no put.
        let select = format!(
            "SELECT 1 FROM {} WHERE key = $1 AND revision = $2 AND tombstone = $3",
            self.replica.tables.etcd
        );
        let values: [&(dyn ToSql + Sync); 3] = [&planned.row.key, &revision, &deletes];
        if within(STATEMENT_MAX, self.session.query_opt(&select, &values)).await?.is_some() {
            return Ok(Outcome::Applied { revision });
        }
        let found = self.replica.etcd.range(key(planned.row.key.clone())).await.map_err(Trouble::of_etcd)?;
        let now = found.kvs.first().map(|pair| (pair.create_revision, pair.mod_revision));
        Ok(outcome::guessed(deletes, planned.expected, now, revision))
    }
}
