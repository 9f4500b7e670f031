//! Something that takes a look at the whole state, as it was a moment ago.
//!
//! What this process does is seen at once: it says so by [`Sight::changed`]. What other processes do is seen within
//! [`FRESH_MS`]. Those who ask while a look is under way share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::clock::SharedClock;
use crate::error::Result;

/// How old a look may be: shorter than anybody waits for a page, long enough for many who ask at once.
const FRESH_MS: u64 = 1_000;

/// The look, and what it was a look at.
pub struct Sight<T> {
    clock: SharedClock,
    last: Mutex<Option<Look<T>>>,
    changes: AtomicU64,
}

struct Look<T> {
    at_ms: u64,
    changes: u64,
    seen: Arc<T>,
}

impl<T> Sight<T> {
    pub fn new(clock: SharedClock) -> Self {
        Sight { clock, last: Mutex::new(None), changes: AtomicU64::new(0) }
    }

    /// Something happened that a look would show.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The last look, if it still holds, or a new one.
    pub async fn look<F>(&self, take: impl FnOnce() -> F) -> Result<Arc<T>>
    where
        F: Future<Output = Result<T>>,
    {
        let mut last = self.last.lock().await;
        // Read before the look: what happens while it is taken makes it an old one.
        let (changes, now) = (self.changes.load(Ordering::SeqCst), self.clock.elapsed_ms());
        if let Some(look) = &*last
            && look.changes == changes
            && now.saturating_sub(look.at_ms) < FRESH_MS
        {
            return Ok(look.seen.clone());
        }
        let seen = Arc::new(take().await?);
        *last = Some(Look { at_ms: now, changes, seen: seen.clone() });
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::TestClock;

    #[tokio::test]
    async fn a_look_holds_for_a_moment_and_never_past_a_change() {
        let clock = TestClock::at("2026-01-01T00:00:00Z", 1);
        let sight: Sight<u64> = Sight::new(clock.clone());
        let looks = AtomicU64::new(0);
        let look = async || *sight.look(async || Ok(looks.fetch_add(1, Ordering::SeqCst))).await.unwrap();
        assert_eq!((look().await, look().await), (0, 0));
        sight.changed();
        assert_eq!((look().await, look().await), (1, 1));
        clock.advance(Duration::from_millis(FRESH_MS));
        assert_eq!((look().await, look().await), (2, 2));
    }

    #[tokio::test]
    async fn what_happens_during_a_look_makes_it_an_old_one() {
        let sight: Sight<u64> = Sight::new(TestClock::at("2026-01-01T00:00:00Z", 1));
        let during = sight.look(async || {
            sight.changed();
            Ok(1)
        });
        assert_eq!(*during.await.unwrap(), 1);
        assert_eq!(*sight.look(async || Ok(2)).await.unwrap(), 2);
    }
}
