//! One cron expression in one time zone: the slot after an instant, and the slot before it. Pure.
//!
//! Days with 23 and 25 hours are croner's business: a fixed time inside the missing hour comes at its end, one inside
//! the repeated hour comes once; what recurs within hours keeps recurring.

use std::time::Duration;

use croner::Cron;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

use crate::config::{self, values};
use crate::error::{Error, Kind, Result};
use crate::record::Fingerprint;

/// A slot may start this share of the time to the next one late …
const JITTER_SHARE: i64 = 20;
/// … and never more than this: enough to spread a thousand pipelines of one minute, too little to be noticed.
const JITTER_MAX_MS: i64 = 30_000;
/// Steps back when a repeated hour shows an instant that is no slot; there are two of each at most.
const STEPS_BACK_MAX: usize = 4;

#[derive(Debug, Clone)]
pub struct Rhythm {
    cron: Cron,
    zone: TimeZone,
    expression: String,
    zone_name: String,
}

impl Rhythm {
    /// The rhythm of a pipeline; `None` when it has no `when`.
    pub fn of(spec: &config::Pipeline) -> Result<Option<Self>> {
        spec.when.as_ref().map(|when| Rhythm::new(when, &spec.tz)).transpose()
    }

    pub fn new(expression: &str, zone: &str) -> Result<Self> {
        let refused = |why: String| Error::new(Kind::Config, format!("`when = \"{expression}\"`: {why}"));
        Ok(Rhythm {
            cron: values::cron(expression).map_err(refused)?,
            zone: TimeZone::get(zone).map_err(|error| refused(error.to_string()))?,
            expression: expression.to_owned(),
            zone_name: zone.to_owned(),
        })
    }

    /// What it is called in the state: another name is another rhythm.
    pub fn name(&self) -> String {
        format!("{} {}", self.expression, self.zone_name)
    }

    /// Whether this is the expression, whatever the spaces in it.
    pub fn is(&self, expression: &str) -> bool {
        self.expression.split_whitespace().eq(expression.split_whitespace())
    }

    /// The first slot after an instant.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let next = self.cron.find_next_occurrence(&self.local(after), false).ok()?;
        Some(next.timestamp())
    }

    /// The last slot at or before an instant.
    pub fn latest(&self, at: Timestamp) -> Option<Timestamp> {
        let mut found = self.cron.find_previous_occurrence(&self.local(at), true).ok()?.timestamp();
        for _ in 0..STEPS_BACK_MAX {
            // Looking back, a repeated hour shows some instants twice; a slot is what looking ahead shows.
            let before = found.checked_sub(1.second()).ok()?;
            match self.next(before) {
                Some(slot) if slot <= found => return Some(slot),
                _ => found = self.cron.find_previous_occurrence(&self.local(found), false).ok()?.timestamp(),
            }
        }
        None
    }

    /// How late a slot of a pipeline starts: always the same for the same slot, so that every machine agrees.
    pub fn jitter(&self, pipeline: &str, slot: Timestamp) -> Duration {
        let gap = self.next(slot).map_or(0, |next| next.as_millisecond() - slot.as_millisecond());
        let most = (gap / JITTER_SHARE).clamp(0, JITTER_MAX_MS);
        let print = Fingerprint::of_parts(&[pipeline.as_bytes(), &slot.as_second().to_be_bytes()]);
        let chance = print.0.iter().take(4).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let most = u64::try_from(most).unwrap_or(0);
        Duration::from_millis((chance * most) >> 32)
    }

    /// Slots fall on whole seconds.
    fn local(&self, at: Timestamp) -> Zoned {
        let second = Timestamp::from_second(at.as_millisecond().div_euclid(1_000)).unwrap_or(at);
        second.to_zoned(self.zone.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Slots from the first instant (exclusive) to the second (inclusive).
    fn slots(when: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
        let rhythm = Rhythm::new(when, zone).unwrap();
        let all = std::iter::successors(rhythm.next(at(from)), |slot| rhythm.next(*slot));
        all.take_while(|slot| *slot <= at(to)).map(|slot| slot.to_string()).collect()
    }

    #[test]
    fn a_slot_is_in_the_pipelines_own_zone() {
        let day = |zone| slots("0 16 * * *", zone, "2026-01-10T00:00:00Z", "2026-01-11T00:00:00Z");
        assert_eq!(day("UTC"), ["2026-01-10T16:00:00Z"]);
        assert_eq!(day("Asia/Seoul"), ["2026-01-10T07:00:00Z"]);
        assert_eq!(day("America/New_York"), ["2026-01-10T21:00:00Z"]);
    }

    #[test]
    fn a_time_inside_the_missing_hour_comes_once() {
        // Oslo went from 02:00 to 03:00 on 29 March 2026.
        let days = slots("30 2 * * *", "Europe/Oslo", "2026-03-27T23:00:00Z", "2026-03-30T22:00:00Z");
        assert_eq!(days, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    }

    #[test]
    fn a_time_inside_the_repeated_hour_comes_once() {
        // Oslo went from 03:00 back to 02:00 on 25 October 2026.
        let days = slots("30 2 * * *", "Europe/Oslo", "2026-10-23T22:00:00Z", "2026-10-26T22:00:00Z");
        assert_eq!(days, ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn a_quarter_of_an_hour_keeps_its_pace_through_both() {
        let hour = |from, to| slots("*/15 * * * *", "Europe/Oslo", from, to).len();
        assert_eq!(hour("2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z"), 12);
        assert_eq!(hour("2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z"), 12);
    }

    #[test]
    fn looking_back_shows_what_looking_ahead_shows() {
        for (when, zone) in [
            ("30 2 * * *", "Europe/Oslo"),
            ("*/15 * * * *", "Europe/Oslo"),
            ("0 0 * * SUN", "America/Sao_Paulo"),
            ("0 16 * * *", "UTC"),
            ("0 2 29 2 *", "Australia/Lord_Howe"),
        ] {
            let rhythm = Rhythm::new(when, zone).unwrap();
            for (from, to) in [
                ("2026-03-28T20:00:00Z", "2026-03-29T06:00:00Z"),
                ("2026-10-24T20:00:00Z", "2026-10-25T06:00:00Z"),
                ("2026-04-04T10:00:00Z", "2026-04-04T18:00:00Z"),
            ] {
                let mut now = at(from);
                while now < at(to) {
                    let ahead = std::iter::successors(
                        rhythm.next(now.checked_sub((24 * 1_500).hours()).unwrap()),
                        |slot| rhythm.next(*slot),
                    );
                    // Rare slots are looked for from far away, frequent ones from the hour before.
                    let near = rhythm.latest(now).unwrap();
                    assert!(near <= now);
                    assert!(rhythm.next(near).unwrap() > now, "{when} {zone} at {now}: {near}");
                    if when.starts_with("0 2 29") {
                        assert_eq!(ahead.take_while(|slot| *slot <= now).last(), Some(near));
                    }
                    now = now.checked_add(7.minutes()).unwrap();
                }
            }
        }
    }

    #[test]
    fn jitter_is_bounded_and_the_same_each_time() {
        let slot = at("2026-01-10T16:00:00Z");
        let daily = Rhythm::new("0 16 * * *", "UTC").unwrap();
        let spread: std::collections::BTreeSet<Duration> =
            (0..1_000).map(|n| daily.jitter(&format!("p{n}"), slot)).collect();
        assert!(spread.len() > 900 && *spread.last().unwrap() < Duration::from_secs(30));
        assert_eq!(daily.jitter("p1", slot), daily.jitter("p1", slot));
        let each_minute = Rhythm::new("* * * * *", "UTC").unwrap();
        assert!((0..100).all(|n| each_minute.jitter(&format!("p{n}"), slot) < Duration::from_secs(3)));
    }
}
