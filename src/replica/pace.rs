//! How fast a replica works, as the mean of the last minute. The leader takes samples of its counters as it beats and
//! leaves the result in the database, so that any process can tell. Pure: times are given.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Metering;

/// How far back a rate looks: long enough to be calm, short enough to show what happens now.
pub(super) const LOOK_BACK_MS: u64 = 60_000;

/// Changes per second in each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Rows of history written. What SQL wrote comes back as history, and counts here too.
    pub from_etcd: f64,
    /// Queued writes that etcd took.
    pub to_etcd: f64,
}

/// What the leader leaves in the database.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Beat {
    #[serde(flatten)]
    pub counts: Metering,
    pub rates: Rates,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at_ms: u64,
    from_etcd: u64,
    to_etcd: u64,
}

/// Samples of the last minute, oldest first; one per heartbeat, so a few dozen.
#[derive(Debug, Default)]
pub(super) struct Pace(VecDeque<Sample>);

impl Pace {
    /// Take a sample. The one before it stays however old it is: a rate needs two.
    pub fn sample(&mut self, now_ms: u64, counts: &Metering) {
        let old = |sample: &Sample| now_ms.saturating_sub(sample.at_ms) > LOOK_BACK_MS;
        while self.0.len() > 1 && self.0.front().is_some_and(old) {
            self.0.pop_front();
        }
        let (from_etcd, to_etcd) = (counts.events_applied, counts.writes_applied);
        self.0.push_back(Sample { at_ms: now_ms, from_etcd, to_etcd });
    }

    pub fn rates(&self) -> Rates {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else { return Rates::default() };
        let seconds = last.at_ms.saturating_sub(first.at_ms) as f64 / 1_000.0;
        if seconds <= 0.0 {
            return Rates::default();
        }
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        Rates { from_etcd: rate(first.from_etcd, last.from_etcd), to_etcd: rate(first.to_etcd, last.to_etcd) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(events_applied: u64, writes_applied: u64) -> Metering {
        Metering { events_applied, writes_applied, ..Metering::default() }
    }

    fn after(samples: &[(u64, u64, u64)]) -> (f64, f64) {
        let mut pace = Pace::default();
        for (at_ms, from_etcd, to_etcd) in samples {
            pace.sample(*at_ms, &counts(*from_etcd, *to_etcd));
        }
        let Rates { from_etcd, to_etcd } = pace.rates();
        (from_etcd, to_etcd)
    }

    #[test]
    fn a_rate_is_the_mean_since_the_oldest_sample_of_the_last_minute() {
        let minute = LOOK_BACK_MS;
        let cases = [
            ("nothing known", vec![], (0.0, 0.0)),
            ("one sample is no rate", vec![(5, 100, 100)], (0.0, 0.0)),
            ("two at one moment are none", vec![(5, 0, 0), (5, 9, 9)], (0.0, 0.0)),
            ("since it began", vec![(1_000, 10, 0), (3_000, 30, 4)], (10.0, 2.0)),
            ("a minute", vec![(0, 0, 0), (minute, 120, 60)], (2.0, 1.0)),
            (
                "older than a minute is forgotten",
                vec![(0, 0, 0), (2_000, 900, 0), (62_000, 960, 6)],
                (1.0, 0.1),
            ),
            ("quiet for a minute", vec![(0, 0, 0), (1_000, 900, 9), (61_001, 900, 9)], (0.0, 0.0)),
            ("two samples far apart still tell", vec![(0, 0, 0), (120_000, 120, 0)], (1.0, 0.0)),
        ];
        for (what, samples, wanted) in cases {
            assert_eq!(after(&samples), wanted, "{what}");
        }
    }

    #[test]
    fn a_beat_of_an_older_version_is_read() {
        let beat: Beat = serde_json::from_str(r#"{"events_applied": 3, "retries": 2}"#).unwrap();
        assert_eq!((beat.counts.events_applied, beat.counts.retries, beat.rates), (3, 2, Rates::default()));
    }
}
