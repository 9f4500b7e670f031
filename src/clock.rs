//! The only place that reads time or chance. Everything else is handed a `Clock`, so tests own both.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{Timestamp, civil};

#[async_trait]
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
    /// The machine's own time, even under `--now`: only for comparing with times the machine gave, as file times.
    fn machine_now(&self) -> Timestamp {
        self.now()
    }
    /// Milliseconds that only grow, for measuring; unrelated to `now`.
    fn elapsed_ms(&self) -> u64;
    async fn sleep(&self, wait: Duration);
    /// 64 random bits.
    fn random(&self) -> u64;

    /// A number in [0, 1).
    fn chance(&self) -> f64 {
        (self.random() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock, or a fixed instant for `--now` (waiting and chance stay real).
pub struct SystemClock {
    fixed: Option<Timestamp>,
    start: std::time::Instant,
}

impl SystemClock {
    #[allow(clippy::new_ret_no_self)] // nobody needs the concrete clock
    pub fn new() -> SharedClock {
        Self::fixed_at(None)
    }

    #[allow(clippy::disallowed_methods)] // this is the place the rule points to
    pub fn fixed_at(fixed: Option<Timestamp>) -> SharedClock {
        Arc::new(SystemClock { fixed, start: std::time::Instant::now() })
    }
}

#[async_trait]
#[allow(clippy::disallowed_methods)] // this is the place the rule points to
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.fixed.unwrap_or_else(Timestamp::now)
    }

    fn machine_now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn sleep(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}

/// A clock for tests: time stands still until somebody sleeps or moves it, chance follows a seed.
pub struct TestClock {
    now_ms: AtomicI64,
    slept_ms: AtomicU64,
    seed: AtomicU64,
}

impl TestClock {
    pub fn at(now: &str, seed: u64) -> Arc<Self> {
        let now: Timestamp = now.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        Arc::new(TestClock {
            now_ms: AtomicI64::new(now.as_millisecond()),
            slept_ms: AtomicU64::new(0),
            seed: AtomicU64::new(seed),
        })
    }

    pub fn advance(&self, by: Duration) {
        let ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// How long everybody slept so far, in milliseconds of this clock.
    pub fn slept_ms(&self) -> u64 {
        self.slept_ms.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now_ms.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.now_ms.load(Ordering::SeqCst)).unwrap_or(0)
    }

    async fn sleep(&self, wait: Duration) {
        self.advance(wait);
        self.slept_ms.fetch_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
        tokio::task::yield_now().await;
    }

    /// SplitMix64: small, well spread, and the same for the same seed.
    fn random(&self) -> u64 {
        let mut z = self.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Microseconds since 1970, whatever clock a run is given: for numbers that must not come twice, and for no decision.
#[allow(clippy::disallowed_methods)] // the one place that may
pub fn mark_us() -> i64 {
    Timestamp::now().as_microsecond()
}

/// `2025-10-16T16:00:00.000Z`: the one way instants are written.
pub fn rfc3339_ms(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Milliseconds since 1970 of `2025-10-23T22:00:00.000Z`, and of nothing that is written in another way.
pub fn read_rfc3339_ms(text: &str) -> Option<i64> {
    let bytes: &[u8; 24] = text.as_bytes().try_into().ok()?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (23, b'Z')];
    if marks.iter().any(|(at, mark)| bytes[*at] != *mark) {
        return None;
    }
    let number = |from: usize, until: usize| {
        bytes[from..until].iter().try_fold(0i64, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second, ms) = (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 23)?);
    if year < 1 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // The calendar says which dates there are, arithmetic how far they are.
    civil::Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    Some((((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + ms)
}

/// Days from 1970 to a date of the Gregorian calendar, in years that begin with March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let since_march = (month + 9) % 12;
    365 * year + year / 4 - year / 100 + year / 400 + (153 * since_march + 2) / 5 + day - 719_469
}

/// An instant further ahead than anybody would have put it was told by a clock that was ahead. To wait for it would be to do
/// nothing, for years perhaps, and to say nothing of it.
pub fn is_absurd(at: Timestamp, now: Timestamp, furthest: Duration) -> bool {
    now.checked_add(furthest).is_ok_and(|furthest| at > furthest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_clock_stands_still_and_still_knows_the_machines_time() {
        let fixed = Timestamp::UNIX_EPOCH;
        let clock = SystemClock::fixed_at(Some(fixed));
        assert_eq!((clock.now(), clock.now()), (fixed, fixed));
        assert!(clock.machine_now() > fixed, "file times are compared with it");
    }

    #[test]
    fn instants_are_read_in_one_form_only() {
        for text in [
            "1970-01-01T00:00:00.000Z",
            "2000-02-29T23:59:59.999Z",
            "1969-12-31T23:59:59.999Z",
            "0001-01-01T00:00:00.000Z",
            "9999-12-31T23:59:59.999Z",
            "2026-11-16T07:20:43.123Z",
        ] {
            let at: civil::DateTime = text.trim_end_matches('Z').parse().unwrap();
            let epoch = civil::date(1970, 1, 1).at(0, 0, 0, 0);
            let expected = at.duration_since(epoch).as_millis();
            assert_eq!(read_rfc3339_ms(text).map(i128::from), Some(expected), "{text}");
        }
        for text in [
            "",
            "2026-11-16",
            "2026-11-16T07:20:43Z",
            "2026-11-16 07:20:43.123Z",
            "2026-11-16T07:20:43.123z",
            "2026-02-30T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "0000-01-01T00:00:00.000Z",
            "2026-11-16T24:00:00.000Z",
            "2026-11-16T23:59:60.000Z",
            "+026-11-16T23:59:59.000Z",
            "2026-11-16T07:20:43.12éZ",
        ] {
            assert_eq!(read_rfc3339_ms(text), None, "{text}");
        }
    }
}
