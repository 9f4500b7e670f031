//! Counters of a running replica. Only ever added to; `pace` makes rates of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::pace::{Beat, Pace};

#[derive(Default)]
pub(super) struct Meters {
    pub events_applied: AtomicU64,
    pub batches_applied: AtomicU64,
    pub writes_applied: AtomicU64,
    pub conflicts: AtomicU64,
    pub failures: AtomicU64,
    pub noops: AtomicU64,
    pub retries: AtomicU64,
    pub quarantined: AtomicU64,
    pub watch_reopened: AtomicU64,
    pub snapshots: AtomicU64,
    /// Writes seen pending at the last look.
    pub queue_depth: AtomicU64,
    /// Revision etcd had when it last told us.
    pub etcd_revision: AtomicU64,
    pub applied_revision: AtomicU64,
    pub pace: Mutex<Pace>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metering {
    pub events_applied: u64,
    pub batches_applied: u64,
    pub writes_applied: u64,
    pub conflicts: u64,
    pub failures: u64,
    pub noops: u64,
    pub retries: u64,
    pub quarantined: u64,
    pub watch_reopened: u64,
    pub snapshots: u64,
    pub queue_depth: u64,
    pub etcd_revision: u64,
    pub applied_revision: u64,
}

impl Meters {
    /// The counters and rates at this moment, which becomes a sample.
    pub fn beat(&self, now_ms: u64) -> Beat {
        let counts = self.read();
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.sample(now_ms, &counts);
        Beat { counts, rates: pace.rates() }
    }

    pub fn read(&self) -> Metering {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metering {
            events_applied: get(&self.events_applied),
            batches_applied: get(&self.batches_applied),
            writes_applied: get(&self.writes_applied),
            conflicts: get(&self.conflicts),
            failures: get(&self.failures),
            noops: get(&self.noops),
            retries: get(&self.retries),
            quarantined: get(&self.quarantined),
            watch_reopened: get(&self.watch_reopened),
            snapshots: get(&self.snapshots),
            queue_depth: get(&self.queue_depth),
            etcd_revision: get(&self.etcd_revision),
            applied_revision: get(&self.applied_revision),
        }
    }
}

pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

pub(super) fn set(gauge: &AtomicU64, value: i64) {
    gauge.store(u64::try_from(value).unwrap_or(0), Ordering::Relaxed);
}
