//! Whatever happens on the way, in the end the store is as the source: random edits, faults, crashes and restarts,
//! each world from one number that replays it.
//!
//! `TRUEUP_SEED=7` lives through world 7 alone; `TRUEUP_SOAK_SECONDS=600` through new ones for ten minutes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trueup::clock::SystemClock;

pub mod seams;
mod world;

use world::World;

/// Worlds in an ordinary run of the tests.
const WORLDS: u64 = 1_500;
/// Lived through side by side.
const THREADS: u64 = 2;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Live through one world on a runtime of its own: what a crash left behind goes with it.
fn live(seed: u64) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(World::new(seed).live()))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        let text = text.unwrap_or_else(|| "a panic without words".into());
        format!("world {seed}: {text}\nreplay it: TRUEUP_SEED={seed} cargo test --test it convergence")
    })
}

#[test]
fn whatever_happens_the_store_ends_as_the_source() {
    if let Some(seed) = setting("TRUEUP_SEED") {
        return live(seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
    let clock = SystemClock::new();
    let soak_ms = setting("TRUEUP_SOAK_SECONDS").map(|seconds| seconds * 1_000);
    let first = if soak_ms.is_some() { clock.random() >> 16 } else { 0 };
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let work = || -> Result<(), String> {
        while !failed.load(Ordering::SeqCst) {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            let over = soak_ms.map_or(seed - first >= WORLDS, |limit| clock.elapsed_ms() >= limit);
            if over {
                break;
            }
            live(seed).inspect_err(|_| failed.store(true, Ordering::SeqCst))?;
        }
        Ok(())
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap().err()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if soak_ms.is_some() {
        println!("{} worlds came to rest", next.load(Ordering::SeqCst) - first);
    }
}
