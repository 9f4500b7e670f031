//! An API that stopped answering is not waited for with every request: where there is one for every row or document,
//! attempts and pauses for each would take days.
//!
//! It refuses to guess: what was not asked for is an error like what was not answered.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::error::{Error, Kind, Result};
use crate::retry::Patience;

/// So many requests in a row failed after all their attempts: from then on each has only one, until there is an answer.
const IN_A_ROW: u32 = 20;
/// After so long without an answer nothing is asked any more: an API that hangs takes its time with every refusal.
const SILENT_MAX: SignedDuration = SignedDuration::from_mins(10);

/// How an API has been answering lately.
#[derive(Debug, Default)]
pub struct Silence(Mutex<Lately>);

#[derive(Debug, Default)]
struct Lately {
    failed: u32,
    /// When the first of them failed.
    since: Option<Timestamp>,
    /// The last one was told to come back later.
    sent_away: bool,
}

impl Silence {
    fn lately(&self) -> MutexGuard<'_, Lately> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As if nothing had been asked yet.
    pub fn forget(&self) {
        *self.lately() = Lately::default();
    }

    /// Something else is asked for: it may be answered, so it is asked for as well, though not more patiently.
    pub fn try_again(&self) {
        let mut lately = self.lately();
        *lately = Lately { failed: lately.failed, ..Lately::default() };
    }

    /// How patiently to ask now; an error = not at all.
    pub fn patience(&self, usual: Patience, now: Timestamp) -> Result<Patience> {
        let lately = self.lately();
        if lately.failed < IN_A_ROW {
            return Ok(usual);
        }
        let silent = lately.since.map(|since| now.duration_since(since));
        if lately.sent_away || silent.is_some_and(|silent| silent >= SILENT_MAX) {
            return Err(Error::new(Kind::Unavailable, "not asked: the API had stopped answering by then")
                .remedy_is("Look at the API; the next run reads what this one could not."));
        }
        Ok(Patience { attempts_max: 1, ..usual })
    }

    /// What became of a request.
    pub fn heard<T>(&self, answer: &Result<T>, now: Timestamp) {
        let mut lately = self.lately();
        match answer.as_ref().map_err(Error::kind) {
            Err(kind @ (Kind::Unavailable | Kind::Throttled)) => {
                lately.failed = lately.failed.saturating_add(1);
                lately.since.get_or_insert(now);
                lately.sent_away = kind == Kind::Throttled;
            }
            Err(Kind::Canceled) => {}
            // A refusal is an answer too.
            Ok(_) | Err(_) => *lately = Lately::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn attempts(silence: &Silence, seconds: i64) -> Option<u32> {
        silence.patience(Patience::REQUEST, at(seconds)).ok().map(|patience| patience.attempts_max)
    }

    fn failed(kind: Kind) -> Result<()> {
        Err(Error::new(kind, "no"))
    }

    #[test]
    fn patience_ends_with_many_failures_in_a_row_and_comes_back_with_an_answer() {
        let usual = Some(Patience::REQUEST.attempts_max);
        let silence = Silence::default();
        for _ in 1..IN_A_ROW {
            silence.heard(&failed(Kind::Unavailable), at(0));
        }
        assert_eq!(attempts(&silence, 10_000), usual, "one more may fail");
        silence.heard(&failed(Kind::Canceled), at(0));
        assert_eq!(attempts(&silence, 0), usual, "ours alone");
        silence.heard(&failed(Kind::Unavailable), at(0));
        assert_eq!(attempts(&silence, 0), Some(1));
        assert_eq!(attempts(&silence, 599), Some(1));
        assert_eq!(attempts(&silence, 600), None, "ten minutes without an answer");
        silence.heard(&failed(Kind::NotFound), at(0));
        assert_eq!(attempts(&silence, 600), usual, "it said something");
    }

    #[test]
    fn who_is_sent_away_stays_away() {
        let silence = Silence::default();
        for _ in 0..IN_A_ROW {
            silence.heard(&failed(Kind::Throttled), at(0));
        }
        assert_eq!(attempts(&silence, 0), None);
        silence.try_again();
        assert_eq!(attempts(&silence, 0), Some(1));
        silence.heard(&failed(Kind::Throttled), at(0));
        assert_eq!(attempts(&silence, 0), None);
        silence.forget();
        assert_eq!(attempts(&silence, 0), Some(Patience::REQUEST.attempts_max));
    }
}
