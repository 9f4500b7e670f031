//! Never trust the stream alone: both sides are read in key order and compared, key by key, at one revision.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::base::pages;
use super::codec::Change;
use super::state::State;
use super::{Replica, within};
use crate::error::{Error, Kind, Result};
use crate::etcd::request::key_at;
use crate::etcd::{range_end, revision_of};
use crate::postgres::{BULK_MAX, STATEMENT_MAX, Session, prefix_end};

/// Keys of the mirror read at once.
const PAGE_ROWS: i64 = 20_000;
/// Drift shown and healed per audit; more than this asks for a resync.
const DRIFT_MAX: usize = 10_000;
/// What etcd has done is in the mirror of a leader that is well within this.
const ARRIVES_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A key on which the two sides differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drift {
    pub key: String,
    /// `mod_revision` in etcd; `None` = not there.
    pub etcd: Option<i64>,
    /// Revision of the newest row; `None` = not there, or deleted.
    pub postgres: Option<i64>,
}

/// What `replica audit` found.
#[derive(Debug, Clone, Serialize)]
pub struct AuditReport {
    pub replica: String,
    pub revision: i64,
    pub etcd_keys: u64,
    pub postgres_keys: u64,
    /// Hash over (key, `mod_revision`) in key order; equal hashes mean equal live sets.
    pub etcd_hash: String,
    pub postgres_hash: String,
    pub drift: Vec<Drift>,
    /// Keys that differ, and nobody can tell whether the mirror is wrong or only behind: etcd has compacted the history
    /// that would show it. Told apart once the replica has caught up.
    pub unproven: Vec<Drift>,
    pub healed: usize,
}

impl AuditReport {
    /// Both sides are the same, or are by now.
    pub fn is_clean(&self) -> bool {
        self.drift.len() <= self.healed && self.unproven.is_empty()
    }
}

/// Both sides, and where they differ.
type Compared = (AuditReport, Vec<Drift>);

/// One side, rolled up as it is read.
#[derive(Default)]
struct Side {
    keys: u64,
    hash: Sha256,
}

impl Side {
    fn add(&mut self, key: &str, revision: i64) {
        self.keys += 1;
        self.hash.update((key.len() as u64).to_be_bytes());
        self.hash.update(key.as_bytes());
        self.hash.update(revision.to_be_bytes());
    }

    fn hex(self) -> String {
        hex::encode(self.hash.finalize())
    }
}

impl Replica {
    /// Compare the live sets at the mirror's checkpoint, and mend the mirror if asked to.
    pub async fn audit(&self, heal: bool) -> Result<AuditReport> {
        let session = self.session().await?;
        let state = self.read_state(&session).await?;
        if state.applied_revision == 0 {
            return Err(Error::new(Kind::NotFound, "nothing has been mirrored yet")
                .remedy_is(format!("Run `trueup replica run {}` first.", self.spec.name)));
        }
        // Compared with an etcd of another history, all of the mirror would be drift, and be buried.
        let (_, newest) = self.check_lineage(&session, &state).await?;
        let (mut report, drift) = self.compared(&session, &state, newest).await?;
        if heal && !drift.is_empty() {
            for it in &drift {
                self.heal(&session, it, report.revision).await?;
            }
            let (after, left) = self.compared(&session, &state, newest).await?;
            let left: HashSet<&str> = left.iter().chain(&after.unproven).map(|it| it.key.as_str()).collect();
            report.healed = drift.iter().filter(|it| !left.contains(it.key.as_str())).count();
        }
        report.drift = drift;
        Ok(report)
    }

    /// The mirror at its checkpoint, and what it has of revisions etcd has not come to.
    async fn compared(&self, session: &Session, state: &State, newest: i64) -> Result<Compared> {
        let (report, mut drift) = match self.compare(session, state.applied_revision).await {
            // The checkpoint is older than etcd's history: compare with now.
            Err(error) if error.kind() == Kind::CursorLost => self.compare_now(session).await?,
            outcome => outcome?,
        };
        drift.extend(self.ahead_of_etcd(session, newest).await?);
        Ok((report, drift))
    }

    /// Keys of the mirror with a row of a revision that is yet to come.
    pub(super) async fn ahead_of_etcd(&self, session: &Session, newest: i64) -> Result<Vec<Drift>> {
        let select = format!(
            "SELECT key, max(revision) FROM {} WHERE key >= $1 AND ($2::text IS NULL OR key < $2) AND revision > $3
             GROUP BY key ORDER BY key LIMIT $4",
            self.tables.etcd
        );
        let (prefix, end, limit) =
            (self.prefix(), prefix_end(self.prefix()), i64::try_from(DRIFT_MAX).unwrap_or(i64::MAX));
        // etcd may have gone on since it was asked.
        let rows = within(BULK_MAX, session.query(&select, &[&prefix, &end, &newest, &limit])).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let now = revision_of(self.etcd.range(key_at(self.spec.marker.clone(), 0)).await?.header);
        let ahead = rows.iter().map(|row| Drift { key: row.get(0), etcd: None, postgres: Some(row.get(1)) });
        Ok(ahead.filter(|it| it.postgres.is_some_and(|at| at > now)).collect())
    }

    pub(super) async fn compare(&self, session: &Session, revision: i64) -> Result<Compared> {
        let (mut ours, mut theirs) = (Side::default(), Side::default());
        let mut drift = Vec::new();
        let start = Bytes::from(self.prefix().to_owned());
        let mut pages = pages(&self.etcd, start, range_end(self.prefix().as_bytes()), revision, true);
        let mut mirror = Mirror::new(self, session, revision);
        while let Some(page) = pages.recv().await {
            for change in page?.changes {
                theirs.add(&change.key, change.revision);
                while let Some((key, _)) = mirror.peek().await?
                    && *key < change.key
                {
                    let (key, at) = mirror.take();
                    ours.add(&key, at);
                    drift.push(Drift { key, etcd: None, postgres: Some(at) });
                }
                let at = match mirror.peek().await? {
                    Some((key, at)) if *key == change.key => Some(*at),
                    _ => None,
                };
                if let Some(at) = at {
                    let (key, _) = mirror.take();
                    ours.add(&key, at);
                }
                if at != Some(change.revision) {
                    drift.push(Drift { key: change.key, etcd: Some(change.revision), postgres: at });
                }
            }
            if drift.len() > DRIFT_MAX {
                return Err(too_much(&self.spec.name));
            }
        }
        while mirror.peek().await?.is_some() {
            let (key, at) = mirror.take();
            ours.add(&key, at);
            drift.push(Drift { key, etcd: None, postgres: Some(at) });
        }
        let report = AuditReport {
            replica: self.spec.name.clone(),
            revision,
            etcd_keys: theirs.keys,
            postgres_keys: ours.keys,
            etcd_hash: theirs.hex(),
            postgres_hash: ours.hex(),
            drift: Vec::new(),
            unproven: Vec::new(),
            healed: 0,
        };
        Ok((report, drift))
    }

    /// The mirror as it is, with etcd as it is. In a quiet prefix the checkpoint stands still for ever, so what is on
    /// its way is told from what is wrong by waiting for it.
    async fn compare_now(&self, session: &Session) -> Result<Compared> {
        let revision = revision_of(self.etcd.range(key_at(self.spec.marker.clone(), 0)).await?.header);
        let (report, drift) = self.compare(session, revision).await?;
        if drift.is_empty() {
            return Ok((report, drift));
        }
        let led = self.is_led(session).await?;
        if led {
            self.await_arrival(session, &drift, revision).await?;
        }
        let (mut report, left) = self.compare(session, revision).await?;
        let applied = self.read_state(session).await?.applied_revision;
        let is_coming = |it: &Drift| it.etcd.is_some_and(|at| at > applied);
        // A delete leaves nothing in etcd to tell its revision by. Where all else has arrived, it would have, too.
        let caught_up = applied >= revision || led && !left.iter().any(is_coming);
        let (unproven, drift) =
            left.into_iter().partition(|it| if it.etcd.is_some() { is_coming(it) } else { !caught_up });
        report.unproven = unproven;
        Ok((report, drift))
    }

    /// Wait until the mirror agrees with etcd about these keys at a revision, has come that far, or has had its time.
    async fn await_arrival(&self, session: &Session, drift: &[Drift], revision: i64) -> Result<()> {
        let select = format!(
            "SELECT DISTINCT ON (key) key, revision, tombstone FROM {}
             WHERE key = ANY($1) AND revision <= $2 ORDER BY key, revision DESC",
            self.tables.etcd
        );
        let keys: Vec<&str> = drift.iter().map(|it| it.key.as_str()).collect();
        let until = self.clock.elapsed_ms() + u64::try_from(ARRIVES_WITHIN.as_millis()).unwrap_or(u64::MAX);
        loop {
            let far = self.read_state(session).await?.applied_revision >= revision;
            let rows = within(BULK_MAX, session.query(&select, &[&keys, &revision])).await?;
            let live = rows.iter().filter(|row| !row.get::<_, bool>(2));
            let live: HashMap<&str, i64> = live.map(|row| (row.get(0), row.get(1))).collect();
            let agrees = drift.iter().all(|it| live.get(it.key.as_str()).copied() == it.etcd);
            if agrees || far || self.clock.elapsed_ms() >= until {
                return Ok(());
            }
            self.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Put right one key of the mirror; history is only ever added to.
    async fn heal(&self, session: &Session, drift: &Drift, revision: i64) -> Result<()> {
        let insert = format!(
            "INSERT INTO {} (key, value, revision, tombstone, encoding) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (key, revision) DO NOTHING",
            self.tables.etcd
        );
        let (value, at, encoding) = match drift.etcd {
            None => (None, revision, "utf8"),
            Some(at) => match self.read_change(&drift.key, at).await? {
                Some(change) => (change.value.clone(), at, change.encoding()),
                None => return Ok(()),
            },
        };
        if drift.postgres.is_some_and(|ours| ours > at) {
            return Err(Error::new(
                Kind::Corrupt,
                format!("the mirror has {} newer than etcd has it", drift.key),
            )
            .remedy_is(format!("Run `trueup replica resync {}`.", self.spec.name)));
        }
        let deleted = value.is_none();
        within(STATEMENT_MAX, session.execute(&insert, &[&drift.key, &value, &at, &deleted, &encoding]))
            .await?;
        self.record(session, "healed", &format!("{} at revision {at}", drift.key)).await
    }

    async fn read_change(&self, key: &str, at: i64) -> Result<Option<Change>> {
        let answer = match self.etcd.range(key_at(key.to_owned(), at)).await {
            Err(error) if error.kind() == Kind::CursorLost => {
                self.etcd.range(key_at(key.to_owned(), 0)).await?
            }
            outcome => outcome?,
        };
        let read = answer.kvs.into_iter().next().map(super::codec::read_pair);
        Ok(match read {
            Some(super::codec::Read::Row(change)) if change.revision == at => Some(change),
            _ => None,
        })
    }
}

fn too_much(name: &str) -> Error {
    Error::new(Kind::Corrupt, format!("the mirror differs from etcd in more than {DRIFT_MAX} keys"))
        .remedy_is(format!("Run `trueup replica resync {name}`."))
}

/// The mirror's live keys at a revision, in order, a page at a time.
struct Mirror<'a> {
    session: &'a Session,
    text: String,
    prefix: String,
    prefix_end: Option<String>,
    revision: i64,
    after: Option<String>,
    page: std::collections::VecDeque<(String, i64)>,
    whole: bool,
}

impl<'a> Mirror<'a> {
    fn new(replica: &Replica, session: &'a Session, revision: i64) -> Self {
        let text = format!(
            "SELECT key, revision FROM (
               SELECT DISTINCT ON (key) key, revision, tombstone FROM {}
               WHERE key >= $1 AND ($2::text IS NULL OR key < $2) AND revision <= $3 AND ($5::text IS NULL OR key > $5)
               ORDER BY key, revision DESC) newest
             WHERE NOT tombstone ORDER BY key LIMIT $4",
            replica.tables.etcd
        );
        let prefix_end = prefix_end(replica.prefix());
        let prefix = replica.prefix().to_owned();
        Mirror {
            session,
            text,
            prefix,
            prefix_end,
            revision,
            after: None,
            page: std::collections::VecDeque::new(),
            whole: false,
        }
    }

    async fn peek(&mut self) -> Result<Option<&(String, i64)>> {
        if self.page.is_empty() && !self.whole {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&self.prefix, &self.prefix_end, &self.revision, &PAGE_ROWS, &self.after];
            let rows = within(BULK_MAX, self.session.query(&self.text, &values)).await?;
            self.whole = rows.len() < usize::try_from(PAGE_ROWS).unwrap_or(usize::MAX);
            self.page = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        }
        Ok(self.page.front())
    }

    /// The line `peek` showed.
    fn take(&mut self) -> (String, i64) {
        let line = self.page.pop_front().unwrap_or_default();
        self.after = Some(line.0.clone());
        line
    }
}
