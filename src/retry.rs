//! The one retry policy. Pure: it is told the attempt and a number in [0, 1), it never waits or rolls dice.

use crate::error::{Error, Kind};

/// What to do after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Try again after this pause.
    Again { wait_ms: u64 },
    /// Give up; the error goes to a count, a dead letter or an exit code.
    GiveUp,
}

/// How often, and how patiently. Values are per source or store, the rule is the same.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Attempts in all, the first included.
    pub attempts_max: u32,
    /// Pause after the first failure; doubles each time.
    pub wait_ms_first: u64,
    /// No pause is longer, whatever `Retry-After` asks: a person would rather see the error.
    pub wait_ms_max: u64,
}

impl Patience {
    /// One try and three more after 1, 2 and 4 seconds: long enough for a restart, short enough for a person.
    pub const REQUEST: Patience = Patience { attempts_max: 4, wait_ms_first: 1_000, wait_ms_max: 60_000 };
    /// Local writes: a lock or a busy disk clears in milliseconds.
    pub const LOCAL: Patience = Patience { attempts_max: 4, wait_ms_first: 50, wait_ms_max: 2_000 };
    /// Follow-up work: three attempts, then the dead letters.
    pub const FOLLOW_UP: Patience =
        Patience { attempts_max: 3, wait_ms_first: 30_000, wait_ms_max: 3_600_000 };
}

/// Judge a failed attempt (`attempt` counts from 1). `chance` spreads the pause over 75–125 %.
pub fn judge(patience: &Patience, attempt: u32, error: &Error, chance: f64) -> Verdict {
    match error.kind() {
        Kind::Unavailable | Kind::Throttled => {}
        Kind::CursorLost
        | Kind::Unauthorized
        | Kind::Invalid
        | Kind::NotFound
        | Kind::Config
        | Kind::Conflict
        | Kind::Busy
        | Kind::Canceled
        | Kind::Corrupt
        | Kind::Full
        | Kind::Bug => return Verdict::GiveUp,
    }
    if attempt >= patience.attempts_max || error.is_lasting() {
        return Verdict::GiveUp;
    }
    match error.asked_wait_ms() {
        Some(asked) if asked > patience.wait_ms_max => Verdict::GiveUp,
        Some(asked) => Verdict::Again { wait_ms: asked },
        None => Verdict::Again { wait_ms: backoff_ms(patience, attempt, chance) },
    }
}

/// The pause after `attempt` failures, with jitter, never above the maximum.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded by wait_ms_max
pub fn backoff_ms(patience: &Patience, attempt: u32, chance: f64) -> u64 {
    let doubled = patience.wait_ms_first.saturating_mul(1_u64 << attempt.saturating_sub(1).min(20));
    let spread = doubled as f64 * (0.75 + 0.5 * chance.clamp(0.0, 1.0));
    (spread as u64).min(patience.wait_ms_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_passing_troubles_are_retried() {
        for kind in Kind::ALL {
            let verdict = judge(&Patience::REQUEST, 1, &Error::new(kind, "x"), 0.5);
            let retried = matches!(kind, Kind::Unavailable | Kind::Throttled);
            assert_eq!(verdict != Verdict::GiveUp, retried, "{kind}");
        }
    }

    #[test]
    fn pauses_double_and_end() {
        let error = Error::new(Kind::Unavailable, "down");
        let waits: Vec<_> = (1..=4).map(|n| judge(&Patience::REQUEST, n, &error, 0.5)).collect();
        assert_eq!(
            waits,
            [
                Verdict::Again { wait_ms: 1_000 },
                Verdict::Again { wait_ms: 2_000 },
                Verdict::Again { wait_ms: 4_000 },
                Verdict::GiveUp
            ]
        );
    }

    #[test]
    fn a_long_retry_after_is_reported_instead_of_waited_out() {
        let asked = |ms| Error::new(Kind::Throttled, "slow down").retry_after_ms(ms);
        assert_eq!(judge(&Patience::REQUEST, 1, &asked(5_000), 0.0), Verdict::Again { wait_ms: 5_000 });
        assert_eq!(judge(&Patience::REQUEST, 1, &asked(3_600_000), 0.0), Verdict::GiveUp);
    }
}
