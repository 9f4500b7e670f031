//! Counters for Prometheus. `docs/operations.md` names them all; a test holds the two together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::House;
use super::api::replicas::engine;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::operations;
use crate::queue;
use crate::queue::dead;
use crate::replica::StatusReport;
use crate::schedule::overview;
use crate::state::{Report, Status};
use crate::store::failures;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    pipeline: String,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    pipeline: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPipeline {
    pipeline: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    pipeline: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStore {
    store: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReplica {
    replica: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRoute {
    method: String,
    path: &'static str,
    status: u16,
}

type Timed = Family<ByRoute, Histogram, fn() -> Histogram>;

/// A number that may be unknown: then it is NaN, which no alarm takes for zero.
type Known = Family<ByReplica, Gauge<f64, AtomicU64>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDirection {
    replica: String,
    direction: &'static str,
}

/// What replicas say of themselves when somebody looks.
#[derive(Default)]
struct Replicas {
    up: Family<ByReplica, Gauge>,
    lag: Known,
    pending: Known,
    conflicts: Known,
    held: Known,
    failed: Known,
    rates: Family<ByDirection, Gauge<f64, AtomicU64>>,
    changes: Family<ByDirection, Counter>,
    retries: Family<ByReplica, Counter>,
}

pub struct Meters {
    registry: Registry,
    runs: Family<ByStatus, Counter>,
    records: Family<ByOutcome, Counter>,
    errors: Family<ByKind, Counter>,
    writes: Family<ByPipeline, Counter>,
    requests: Family<ByPipeline, Counter>,
    lag: Family<ByPipeline, Gauge>,
    held: Family<ByPipeline, Gauge>,
    queue: Family<ByPipeline, Gauge>,
    dead: Family<ByPipeline, Gauge>,
    store_errors: Family<ByStore, Counter>,
    replicas: Replicas,
    answers: Timed,
    /// When each pipeline last had a run that was ok; known from the first look on.
    oks: OnceLock<Mutex<BTreeMap<String, String>>>,
}

impl Default for Meters {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("trueup");
        let answers: Timed = Family::new_with_constructor(|| Histogram::new(SECONDS));
        let meters = Meters {
            runs: Family::default(),
            records: Family::default(),
            errors: Family::default(),
            writes: Family::default(),
            requests: Family::default(),
            lag: Family::default(),
            held: Family::default(),
            queue: Family::default(),
            dead: Family::default(),
            store_errors: Family::default(),
            replicas: Replicas::default(),
            answers,
            oks: OnceLock::new(),
            registry: Registry::default(),
        };
        registry.register("runs", "Runs that ended, by status", meters.runs.clone());
        registry.register("records", "Records by what became of them", meters.records.clone());
        registry.register("errors", "Errors of runs by kind", meters.errors.clone());
        registry.register("store_writes", "Records written to stores", meters.writes.clone());
        registry.register("source_requests", "Requests made to sources", meters.requests.clone());
        let lag = "Since the last run that ended ok, or since this process began";
        registry.register_with_unit("lag", lag, Unit::Seconds, meters.lag.clone());
        registry.register("held", "Changes the guard holds back", meters.held.clone());
        registry.register("queue_depth", "Follow-up work that waits", meters.queue.clone());
        registry.register("dead_letters", "Follow-up work that was given up", meters.dead.clone());
        let failed = "Operations of stores that failed, retried or not";
        registry.register("store_errors", failed, meters.store_errors.clone());
        meters.replicas.register(&mut registry);
        let took = "How long answers took, by method, route and status";
        registry.register_with_unit("http_request_duration", took, Unit::Seconds, meters.answers.clone());
        Meters { registry, ..meters }
    }
}

/// Runs searched for the last one that was ok.
const RUNS_SEARCHED: usize = 1_000;
/// From a look-up in memory to a run somebody waits for.
const SECONDS: [f64; 11] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0];

/// A replica whose servers do not answer within this is shown as down; whoever reads counters does not wait longer.
const REPLICA_WITHIN: Duration = Duration::from_secs(5);

impl Replicas {
    fn register(&self, registry: &mut Registry) {
        registry.register("replica_up", "Whether somebody keeps the replica in step", self.up.clone());
        let lag = "Since nothing was waiting to be mirrored";
        registry.register_with_unit("replica_lag", lag, Unit::Seconds, self.lag.clone());
        registry.register("replica_pending", "Writes that wait for etcd", self.pending.clone());
        registry.register("replica_conflicts", "Writes that met another", self.conflicts.clone());
        registry.register("replica_held", "Conflicts that wait for a person", self.held.clone());
        registry.register("replica_failed", "Writes that were refused or given up", self.failed.clone());
        let rates = "Changes over the last minute, by direction";
        registry.register("replica_changes_per_second", rates, self.rates.clone());
        let changes = "Changes since the leader began, by direction";
        registry.register("replica_changes", changes, self.changes.clone());
        let retries = "Attempts of writes that came to nothing since the leader began";
        registry.register("replica_retries", retries, self.retries.clone());
    }

    async fn look(&self, house: &House) {
        let all = house.config.replicas.keys().map(|name| async move {
            let asked = async { engine(house, name)?.status().await };
            (name, tokio::time::timeout(REPLICA_WITHIN, asked).await)
        });
        for (name, asked) in futures::future::join_all(all).await {
            let of = ByReplica { replica: name.clone() };
            let status = asked.ok().and_then(Result::ok);
            self.up.get_or_create(&of).set(status.as_ref().is_some_and(|status| status.running).into());
            let numbers = [
                (&self.lag, status.as_ref().and_then(|status| status.lag_seconds)),
                (&self.pending, status.as_ref().map(|status| status.pending as f64)),
                (&self.conflicts, status.as_ref().map(|status| status.conflicts as f64)),
                (&self.held, status.as_ref().map(|status| status.held as f64)),
                (&self.failed, status.as_ref().map(|status| status.failed as f64)),
            ];
            for (gauge, number) in numbers {
                gauge.get_or_create(&of).set(number.unwrap_or(f64::NAN));
            }
            self.pace(name, status.as_ref());
        }
    }

    /// The leader counts, wherever it runs. One that begins anew begins at 0, as counters may.
    fn pace(&self, name: &str, status: Option<&StatusReport>) {
        let retries = self.retries.get_or_create_owned(&ByReplica { replica: name.to_owned() });
        if let Some(status) = status {
            retries.inner().store(status.retries, Ordering::Relaxed);
        }
        let from = status.map(|status| (status.rates.from_etcd, status.counts.events_applied));
        let to = status.map(|status| (status.rates.to_etcd, status.counts.writes_applied));
        for (direction, known) in [("from_etcd", from), ("to_etcd", to)] {
            let of = ByDirection { replica: name.to_owned(), direction };
            self.rates.get_or_create(&of).set(known.map_or(f64::NAN, |(rate, _)| rate));
            let total = self.changes.get_or_create_owned(&of);
            if let Some((_, changes)) = known {
                total.inner().store(changes, Ordering::Relaxed);
            }
        }
    }
}

impl Meters {
    pub fn ran(&self, report: &Report) {
        let pipeline = || report.pipeline.clone();
        self.runs.get_or_create(&ByStatus { pipeline: pipeline(), status: report.status.name() }).inc();
        if let (Status::Ok, Some(finished), Some(oks)) = (report.status, &report.finished, self.oks.get())
            && let Ok(mut oks) = oks.lock()
        {
            oks.insert(pipeline(), finished.clone());
        }
        let counts = &report.counts;
        let outcomes = [
            ("added", counts.added),
            ("updated", counts.updated),
            ("deleted", counts.deleted),
            ("unchanged", counts.unchanged),
            ("skipped", counts.skipped),
            ("failed", counts.failed),
            ("held", counts.held),
        ];
        for (outcome, count) in outcomes {
            self.records.get_or_create(&ByOutcome { pipeline: pipeline(), outcome }).inc_by(count);
        }
        for fault in &report.errors {
            self.errors.get_or_create(&ByKind { pipeline: pipeline(), kind: fault.kind.name() }).inc();
        }
        self.writes.get_or_create(&ByPipeline { pipeline: pipeline() }).inc_by(report.writes);
        self.requests.get_or_create(&ByPipeline { pipeline: pipeline() }).inc_by(report.requests);
    }

    pub fn not_started(&self, pipeline: &str) {
        self.runs.get_or_create(&ByStatus { pipeline: pipeline.to_owned(), status: "not_started" }).inc();
    }

    pub fn answered(&self, method: &Method, path: &'static str, status: StatusCode, took_ms: u64) {
        let labels = ByRoute { method: method.to_string(), path, status: status.as_u16() };
        self.answers.get_or_create(&labels).observe(took_ms as f64 / 1_000.0);
    }

    /// As text; what is a state rather than an event is looked up now.
    pub async fn render(&self, house: &Arc<House>) -> Result<String> {
        self.look(house).await?;
        let mut text = String::new();
        encode(&mut text, &self.registry).map_err(|error| Error::bug("encoding metrics").caused_by(error))?;
        Ok(text)
    }

    async fn look(&self, house: &House) -> Result<()> {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let waiting = queue::waiting(&house.memory.state).await?;
        let letters = dead::all(&house.memory.state).await?;
        for one in overview::all_knowing(&house.config, &house.memory, &house.ended).await?.pipelines {
            let of = ByPipeline { pipeline: one.pipeline.clone() };
            self.held.get_or_create(&of).set(whole(one.held));
            let depth = waiting.iter().filter(|task| task.pipeline == one.pipeline).count();
            self.queue.get_or_create(&of).set(whole(depth as u64));
            let given_up = letters.iter().filter(|letter| letter.pipeline == one.pipeline).count();
            self.dead.get_or_create(&of).set(whole(given_up as u64));
        }
        for (store, failed) in failures::by_store() {
            // Counted where stores are; here is only shown what was counted.
            self.store_errors.get_or_create(&ByStore { store }).inner().store(failed, Ordering::Relaxed);
        }
        self.replicas.look(house).await;
        let oks = self.last_ok(house).await?;
        // One that never was true lags at least since this process began: an alarm on a metric that is not there never rings.
        let begun = i64::try_from(house.clock.elapsed_ms() / 1_000).unwrap_or(i64::MAX);
        let never =
            house.config.pipelines.values().filter(|spec| spec.enabled && !oks.contains_key(&spec.name));
        for pipeline in never.map(|spec| spec.name.clone()) {
            self.lag.get_or_create(&ByPipeline { pipeline }).set(begun);
        }
        for (pipeline, at) in oks {
            self.lag.get_or_create(&ByPipeline { pipeline }).set(since(&at, house.clock.as_ref()));
        }
        Ok(())
    }

    /// When each pipeline was last true; at the first look, as far as the newest runs tell.
    async fn last_ok(&self, house: &House) -> Result<BTreeMap<String, String>> {
        if let Some(known) = self.oks.get() {
            return Ok(known.lock().map(|known| known.clone()).unwrap_or_default());
        }
        let mut found = BTreeMap::new();
        for report in operations::runs(&house.memory, None, RUNS_SEARCHED).await?.runs {
            if let (Status::Ok, Some(finished)) = (report.status, report.finished) {
                found.entry(report.pipeline).or_insert(finished);
            }
        }
        let known = self.oks.get_or_init(|| Mutex::new(found));
        Ok(known.lock().map(|known| known.clone()).unwrap_or_default())
    }
}

fn since(at: &str, clock: &dyn Clock) -> i64 {
    at.parse::<jiff::Timestamp>().map_or(0, |at| (clock.now().as_second() - at.as_second()).max(0))
}
