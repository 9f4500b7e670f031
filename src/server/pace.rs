//! How fast one address may ask. A bucket per address refills steadily; the table of addresses is bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use crate::clock::SharedClock;

/// Kinds of requests, each with a bucket of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Read,
    Write,
    /// A wrong token: guessing is slow.
    Refused,
}

impl Kind {
    /// Requests per second in the long run, and at once.
    fn rate(self) -> (f64, f64) {
        match self {
            Kind::Read => (2_000.0, 4_000.0),
            Kind::Write => (100.0, 500.0),
            Kind::Refused => (5.0, 20.0),
        }
    }
}

/// Addresses remembered; when there are more, the table begins anew, which only ever lets more in.
const ADDRESSES_MAX: usize = 10_000;

pub struct Pace {
    clock: SharedClock,
    buckets: Mutex<HashMap<(IpAddr, Kind), Bucket>>,
}

struct Bucket {
    left: f64,
    at_ms: u64,
}

impl Pace {
    pub fn new(clock: SharedClock) -> Self {
        Pace { clock, buckets: Mutex::default() }
    }

    /// Take one; `false` = there is none left.
    pub fn take(&self, from: IpAddr, kind: Kind) -> bool {
        let now = self.clock.elapsed_ms();
        let (per_second, most) = kind.rate();
        let Ok(mut buckets) = self.buckets.lock() else { return true };
        if buckets.len() >= ADDRESSES_MAX {
            buckets.clear();
        }
        let bucket = buckets.entry((from, kind)).or_insert(Bucket { left: most, at_ms: now });
        let passed = now.saturating_sub(bucket.at_ms) as f64 / 1_000.0;
        bucket.left = (bucket.left + passed * per_second).min(most);
        bucket.at_ms = now;
        let may = bucket.left >= 1.0;
        if may {
            bucket.left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[test]
    fn a_bucket_empties_and_refills() {
        let clock = TestClock::at("2026-01-01T00:00:00Z", 1);
        let pace = Pace::new(clock.clone());
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert!((0..20).all(|_| pace.take(one, Kind::Refused)));
        assert!(!pace.take(one, Kind::Refused));
        assert!(pace.take(other, Kind::Refused) && pace.take(one, Kind::Read));
        clock.advance(std::time::Duration::from_secs(1));
        assert!((0..5).all(|_| pace.take(one, Kind::Refused)));
        assert!(!pace.take(one, Kind::Refused));
    }
}
