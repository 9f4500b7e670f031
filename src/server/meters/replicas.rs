//! What both servers of a replica tell about it, whichever process runs it. Asked anew for every answer, all replicas
//! at once: one that does not answer in time is `up 0` and has no other figure, since an old one would lie.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::error::Result;
use crate::operations::replicas;
use crate::replica::StatusReport;
use crate::server::House;

/// Prometheus gives up after ten seconds; a server that is away must not cost the other figures.
const LOOK_MAX: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReplica {
    replica: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDirection {
    replica: String,
    direction: &'static str,
}

type Number = Gauge<f64, AtomicU64>;

#[derive(Default)]
pub struct ReplicaMeters {
    up: Family<ByReplica, Gauge>,
    running: Family<ByReplica, Gauge>,
    lag: Family<ByReplica, Number>,
    lag_revisions: Family<ByReplica, Gauge>,
    rates: Family<ByDirection, Number>,
    changes: Family<ByDirection, Counter>,
    retries: Family<ByReplica, Counter>,
    queue: Family<ByReplica, Gauge>,
    conflicts: Family<ByReplica, Gauge>,
    failed: Family<ByReplica, Gauge>,
}

impl ReplicaMeters {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("replica_up", "Whether both servers answer", self.up.clone());
        registry.register("replica_running", "Whether an instance leads", self.running.clone());
        let lag = "Since nothing was waiting to be mirrored";
        registry.register_with_unit("replica_lag", lag, Unit::Seconds, self.lag.clone());
        let behind = "Revisions of etcd since the last one mirrored";
        registry.register("replica_lag_revisions", behind, self.lag_revisions.clone());
        let rates = "Changes per second over the last minute";
        registry.register("replica_changes_per_second", rates, self.rates.clone());
        registry.register("replica_changes", "Changes since the leader began", self.changes.clone());
        let retries = "Attempts of writes that came to nothing since the leader began";
        registry.register("replica_retries", retries, self.retries.clone());
        registry.register("replica_queue_depth", "Writes that wait for etcd", self.queue.clone());
        registry.register("replica_conflicts", "Writes that met another", self.conflicts.clone());
        registry.register("replica_failed", "Writes that were refused or given up", self.failed.clone());
    }

    pub async fn look(&self, house: &House) {
        let all = house.config.replicas.keys().map(async |name| {
            let asked = async { replicas::replica(&house.config, name, house.clock.clone())?.status().await };
            let answer: Option<Result<StatusReport>> = tokio::time::timeout(LOOK_MAX, asked).await.ok();
            match answer {
                Some(Ok(status)) => self.show(&status),
                Some(Err(_)) | None => self.forget(name),
            }
        });
        futures::future::join_all(all).await;
    }

    fn show(&self, status: &StatusReport) {
        let of = ByReplica { replica: status.replica.clone() };
        self.up.get_or_create(&of).set(1);
        self.running.get_or_create(&of).set(status.running.into());
        if let Some(lag) = status.lag_seconds {
            self.lag.get_or_create(&of).set(lag);
        }
        self.lag_revisions.get_or_create(&of).set(status.lag_revisions);
        self.queue.get_or_create(&of).set(status.pending);
        self.conflicts.get_or_create(&of).set(status.conflicts);
        self.failed.get_or_create(&of).set(status.failed);
        // The leader counts, wherever it runs; one that begins anew begins at 0, as counters may.
        let count = |counter: &Counter, to: u64| counter.inner().store(to, Ordering::Relaxed);
        count(&self.retries.get_or_create(&of), status.retries);
        let each = [
            ("from_etcd", status.rates.from_etcd, status.counts.events_applied),
            ("to_etcd", status.rates.to_etcd, status.counts.writes_applied),
        ];
        for (direction, rate, total) in each {
            let of = ByDirection { replica: status.replica.clone(), direction };
            self.rates.get_or_create(&of).set(rate);
            count(&self.changes.get_or_create(&of), total);
        }
    }

    fn forget(&self, replica: &str) {
        let of = ByReplica { replica: replica.to_owned() };
        self.up.get_or_create(&of).set(0);
        for gauge in [&self.running, &self.lag_revisions, &self.queue, &self.conflicts, &self.failed] {
            gauge.remove(&of);
        }
        self.lag.remove(&of);
        self.retries.remove(&of);
        for direction in ["from_etcd", "to_etcd"] {
            let of = ByDirection { replica: replica.to_owned(), direction };
            self.rates.remove(&of);
            self.changes.remove(&of);
        }
    }
}
