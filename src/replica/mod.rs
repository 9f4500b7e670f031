//! System 2: an etcd prefix is a table in PostgreSQL, and SQL functions write back.
//!
//! From etcd: a snapshot at one revision (`base`), then whole revisions as they come (`watch`, `stagger`, `apply`).
//! To etcd: queued writes as compare-and-set transactions (`drain`), exactly once across crashes (`outcome`).
//! One instance leads, others stand by (`run`). It never trusts the stream alone (`audit`), never wipes, and never
//! overwrites a row of history: what contradicts it stops it.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::clock::SharedClock;
use crate::error::{Error, Kind, Result};
use crate::etcd::{Client, EtcdPlace};
use crate::postgres::{self, PostgresPlace, Session, fault};
use crate::secret::SecretRef;

mod apply;
mod audit;
mod base;
mod check;
mod codec;
mod conflict;
mod deletes;
mod drain;
mod ground;
mod keep;
mod ledger;
mod lineage;
mod meters;
mod outcome;
mod pace;
mod packing;
mod resync;
mod run;
mod schema;
mod settle;
mod slot;
mod stagger;
mod state;
mod status;
mod watch;

pub use audit::{AuditReport, Drift};
pub use conflict::{Conflict, Winner};
pub use meters::Metering;
pub use pace::Rates;
pub use resync::ResyncReport;
pub use run::RunReport;
pub use schema::InitReport;
pub use status::StatusReport;

use meters::Meters;
use schema::Tables;

/// Who wins when both sides changed a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictRule {
    /// etcd's value stays, the write is marked `conflict`.
    #[default]
    EtcdWins,
    /// The write is tried again on top of what etcd has.
    PostgresWins,
    /// The write is parked until a person resolves it.
    Hold,
}

/// A replica as the config describes it.
#[derive(Debug, Clone)]
pub struct ReplicaSpec {
    pub name: String,
    pub etcd: EtcdPlace,
    pub etcd_password: Option<SecretRef>,
    pub postgres: PostgresPlace,
    pub postgres_password: Option<SecretRef>,
    pub schema: String,
    pub conflict: ConflictRule,
    /// Pending writes are looked for at least this often, whatever became of NOTIFY.
    pub poll: Duration,
    /// Key outside the prefix that makes writes exactly-once.
    pub marker: String,
    /// Attempts of one write at a server that answers; an outage is waited out.
    pub max_attempts: u32,
    /// How long superseded rows of history, and decided writes, are kept; `None` = for ever.
    pub keep_history: Option<Duration>,
    pub keep_wal: Option<Duration>,
}

/// NOTIFY wakes the drain at once; this is for when it was lost.
pub const POLL: Duration = Duration::from_secs(1);
/// Enough for a leader election, few enough for a person to hear of it soon.
pub const MAX_ATTEMPTS: u32 = 5;

impl ReplicaSpec {
    /// A replica with every default.
    pub fn new(name: &str, etcd: &str, postgres: &str) -> Result<Self> {
        let spec = ReplicaSpec {
            name: name.to_owned(),
            etcd: EtcdPlace::parse(etcd)?,
            etcd_password: None,
            postgres: PostgresPlace::parse(postgres)?,
            postgres_password: None,
            schema: "public".to_owned(),
            conflict: ConflictRule::default(),
            poll: POLL,
            marker: format!("_trueup/replica/{name}"),
            max_attempts: MAX_ATTEMPTS,
            keep_history: None,
            keep_wal: None,
        };
        spec.check()?;
        Ok(spec)
    }

    /// Refuse what could only go wrong later.
    pub fn check(&self) -> Result<()> {
        if self.etcd.prefix.is_empty() {
            return Err(Error::new(Kind::Config, format!("the replica {} names no etcd prefix", self.name))
                .remedy_is("Give the prefix as the path of the URL: etcd://127.0.0.1:2379/service/."));
        }
        if self.marker.is_empty() || self.marker.starts_with(&self.etcd.prefix) {
            return Err(Error::new(Kind::Config, format!("the marker {} is inside the prefix", self.marker))
                .remedy_is("Give `marker` a key outside the mirrored prefix."));
        }
        if self.schema.is_empty() || self.schema.contains('\0') {
            return Err(Error::new(Kind::Config, "the replica's schema has no name"));
        }
        Ok(())
    }
}

/// Something worth a line in a log.
#[derive(Debug, Clone, Serialize)]
pub struct Note {
    pub kind: &'static str,
    pub message: String,
}

pub type Listener = Arc<dyn Fn(&Note) + Send + Sync>;

/// A replica that can be run, asked and mended. Each verb of the command line is one call.
pub struct Replica {
    spec: ReplicaSpec,
    etcd: Client,
    clock: SharedClock,
    tables: Tables,
    meters: Arc<Meters>,
    listener: Listener,
}

impl Replica {
    pub fn new(spec: ReplicaSpec, clock: SharedClock) -> Result<Self> {
        spec.check()?;
        let password = spec.etcd_password.as_ref().map(SecretRef::require).transpose()?;
        let etcd = Client::new(&spec.etcd, password)?;
        let tables = Tables::new(&spec.schema);
        Ok(Replica { spec, etcd, clock, tables, meters: Arc::default(), listener: Arc::new(|_| {}) })
    }

    /// Hear what happens while it runs.
    #[must_use]
    pub fn heard_by(mut self, listener: Listener) -> Self {
        self.listener = listener;
        self
    }

    pub fn spec(&self) -> &ReplicaSpec {
        &self.spec
    }

    /// Counters since this process began, for `/metrics`.
    pub fn meters(&self) -> Metering {
        self.meters.read()
    }

    fn note(&self, kind: &'static str, message: impl Into<String>) {
        (self.listener)(&Note { kind, message: message.into() });
    }

    async fn session(&self) -> Result<Session> {
        let password = self.spec.postgres_password.as_ref().map(SecretRef::require).transpose()?;
        Session::open(&self.spec.postgres, password.as_ref()).await
    }

    fn prefix(&self) -> &str {
        &self.spec.etcd.prefix
    }
}

/// Wait for PostgreSQL, as everybody does. What is missing there is what `replica init` installs.
async fn within<T>(max: Duration, work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T> {
    postgres::within_or(max, work, |error| {
        let told = fault::from_postgres(error);
        if error.code().is_some_and(fault::is_schema_missing) {
            return told.remedy_is("Run `trueup replica init NAME` to install or upgrade the schema.");
        }
        told
    })
    .await
}
