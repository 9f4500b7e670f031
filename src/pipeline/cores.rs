//! Rendering on every core, where there is enough of it to be worth a thread. Order stays.

use std::num::NonZero;
use std::sync::LazyLock;
use std::thread::{available_parallelism, scope};

/// Below this many bytes one core is done before another has begun, or has more to do elsewhere.
const BYTES_MIN: usize = 512 * 1_024;
/// A batch has a thousand items or so: more hands than this would mostly wait for each other.
const THREADS_MAX: usize = 16;
/// Asked for once: the answer is read from files.
static CORES: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX));

/// `work` for every item, in order. `bytes` is what there is to work on, roughly.
pub fn map<T: Send, R: Send>(items: Vec<T>, bytes: usize, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let cores = *CORES;
    if bytes < BYTES_MIN || cores == 1 || items.len() < 2 {
        return items.into_iter().map(work).collect();
    }
    let each = items.len().div_ceil(cores);
    let mut rest = items.into_iter();
    let shares = std::iter::from_fn(|| {
        let share: Vec<T> = rest.by_ref().take(each).collect();
        (!share.is_empty()).then_some(share)
    });
    let mut shares: Vec<Vec<T>> = shares.collect();
    let mine = shares.remove(0);
    scope(|scope| {
        let work = &work;
        let others: Vec<_> = shares
            .into_iter()
            .map(|share| scope.spawn(move || share.into_iter().map(work).collect::<Vec<R>>()))
            .collect();
        let mut done: Vec<R> = mine.into_iter().map(work).collect();
        for other in others {
            // A panic in a shape is a panic of the pass, wherever it ran.
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_stays_whatever_the_size() {
        for count in [0, 1, 2, 3, 17, 1_000] {
            for bytes in [0, BYTES_MIN] {
                let doubled = map((0..count).collect(), bytes, |number: usize| number * 2);
                assert_eq!(doubled, (0..count).map(|number| number * 2).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    #[should_panic(expected = "in the last share")]
    fn a_panic_is_not_swallowed() {
        let last = |number: usize| assert!(number < 99, "in the last share");
        map((0..100).collect(), BYTES_MIN, last);
    }
}
