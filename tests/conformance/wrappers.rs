//! A wrapper is a store: each keeps the whole contract, and does the one thing it is for.

use std::sync::Arc;
use std::time::Duration;

use trueup::clock::{Clock as _, TestClock};
use trueup::error::Kind;
use trueup::store::failures::{self, Watched};
use trueup::store::faulty::{Faulty, Mishap, Odds, Verb};
use trueup::store::limited::{Limited, Profile};
use trueup::store::memory::Memory;
use trueup::store::prefixed::Prefixed;
use trueup::store::stamped::Stamped;
use trueup::store::{Item, Mode, Outcome, Query, Store, StoreExt, What};

use super::stores::{conforms, held, put};
use crate::support::counted::{Counted, Counts};

fn clock() -> Arc<TestClock> {
    TestClock::at("2025-10-16T16:00:00Z", 7)
}

fn puts(count: usize) -> Vec<Item> {
    (0..count).map(|at| Item::put(format!("key/{at:04}"), "x")).collect()
}

#[tokio::test]
async fn every_wrapper_keeps_the_contract() {
    let profile = Profile {
        requests_max: 10,
        window_ms: 1_000,
        bulk_items_max: 7,
        bulk_bytes_max: 4_000_000,
        get_max: 2,
        list_max: 3,
        key_max: 300,
        value_max: 3_500_000,
        same_key_ms: 50,
    };
    conforms(&Prefixed::new(Arc::new(Memory::new()), "below/this/")).await;
    conforms(&Prefixed::new(Arc::new(Memory::new()), "no-slash")).await;
    conforms(&Counted::new(Arc::new(Memory::new()))).await;
    conforms(&Stamped::new(Arc::new(Memory::new()))).await;
    conforms(&Watched::opened("contract", Ok(Arc::new(Memory::new()))).unwrap()).await;
    conforms(&Faulty::new(Arc::new(Memory::new()), clock())).await;
    conforms(&Limited::new(Arc::new(Memory::new()), profile, clock())).await;
    conforms(&Limited::new(Arc::new(Memory::new()), Profile::NONE, clock())).await;
    let faulty = Arc::new(Faulty::new(Arc::new(Memory::new()), clock()));
    conforms(&Prefixed::new(Arc::new(Limited::new(faulty, profile, clock())), "all at once/")).await;
}

#[tokio::test]
async fn failures_are_counted_by_store_and_passed_on() {
    let faulty = Arc::new(Faulty::new(Arc::new(Memory::new()), clock()));
    faulty.at_verb(Verb::List, 1, Mishap::Reject);
    let watched = Watched::opened("watched", Ok(faulty)).unwrap();
    assert_eq!(failures::by_store()["watched"], 0);
    assert!(watched.list(Query::keys("")).await.is_err());
    put(&watched, "a", "1").await;
    assert_eq!(failures::by_store()["watched"], 1);
}

#[tokio::test]
async fn a_prefix_hides_everything_outside_it() {
    let whole = Arc::new(Memory::new());
    put(&*whole, "in/a", "1").await;
    put(&*whole, "in", "outside").await;
    put(&*whole, "io", "outside").await;
    let part = Prefixed::new(whole.clone(), "in/");
    let lines = part.list_all("", What::Values).await.unwrap();
    assert_eq!(lines.iter().map(|line| line.key.as_str()).collect::<Vec<_>>(), ["a"]);
    put(&part, "b", "2").await;
    held(&*whole, "in/b", Some("2")).await;
    assert_eq!(part.write_one(Item::put("", "x")).await.unwrap_err().kind(), Kind::Invalid);
}

#[tokio::test]
async fn requests_never_exceed_the_window() {
    let clock = clock();
    let profile = Profile { requests_max: 3, window_ms: 1_000, ..Profile::NONE };
    let store = Limited::new(Arc::new(Memory::new()), profile, clock.clone());
    let start = clock.elapsed_ms();
    let mut starts = Vec::new();
    for _ in 0..10 {
        store.get(&["a"]).await.unwrap();
        starts.push(clock.elapsed_ms() - start);
    }
    assert_eq!(starts, [0, 0, 0, 1_000, 1_000, 1_000, 2_000, 2_000, 2_000, 3_000]);
}

#[tokio::test]
async fn a_key_waits_its_interval_and_others_do_not() {
    let clock = clock();
    let profile = Profile { same_key_ms: 1_000, ..Profile::NONE };
    let store = Limited::new(Arc::new(Memory::new()), profile, clock.clone());
    put(&store, "a", "1").await;
    put(&store, "b", "1").await;
    assert_eq!(clock.slept_ms(), 0);
    put(&store, "a", "2").await;
    assert_eq!(clock.slept_ms(), 1_000);
    clock.advance(Duration::from_secs(5));
    put(&store, "a", "3").await;
    assert_eq!(clock.slept_ms(), 1_000);
}

#[tokio::test]
async fn large_batches_are_split_by_items_and_by_bytes() {
    let counted = Arc::new(Counted::new(Arc::new(Memory::new())));
    let profile = Profile { bulk_items_max: 10, bulk_bytes_max: 1_000, ..Profile::NONE };
    let store = Limited::new(counted.clone(), profile, clock());
    let outcomes = store.write(puts(95), Mode::Each).await.unwrap();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.as_ref().unwrap().landed()).count(), 95);
    assert_eq!((counted.counts().writes, counted.counts().put), (10, 95));
    let large = (0..6).map(|at| Item::put(format!("large/{at}"), "x".repeat(450))).collect();
    store.write(large, Mode::Each).await.unwrap();
    assert_eq!(counted.counts().writes, 13);
}

#[tokio::test]
async fn a_failed_part_of_a_split_batch_leaves_the_others_standing() {
    let faulty = Arc::new(Faulty::new(Arc::new(Memory::new()), clock()));
    faulty.at_verb(Verb::Write, 2, Mishap::Reject);
    let store = Limited::new(faulty, Profile { bulk_items_max: 2, ..Profile::NONE }, clock());
    let outcomes = store.write(puts(6), Mode::Each).await.unwrap();
    let landed: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(landed, [true, true, false, false, true, true]);
}

#[tokio::test]
async fn a_rejected_write_left_nothing_and_a_lost_answer_left_everything() {
    let memory = Arc::new(Memory::new());
    let store = Faulty::new(memory.clone(), clock());
    store.at(1, Mishap::Reject);
    store.at(2, Mishap::FailAfterWrite);
    let item = Item::put("a", "1").expecting(trueup::store::Expect::Absent);
    assert_eq!(store.write_one(item.clone()).await.unwrap_err().kind(), Kind::Unavailable);
    held(&*memory, "a", None).await;
    assert_eq!(store.write_one(item.clone()).await.unwrap_err().kind(), Kind::Unavailable);
    held(&*memory, "a", Some("1")).await;
    assert!(matches!(store.write_one(item).await.unwrap(), Outcome::AlreadySo(_)), "a retry is safe");
    assert_eq!(store.calls(), 3);
}

#[tokio::test]
async fn reads_can_fail_and_a_dead_store_stays_dead_until_healed() {
    let store = Faulty::new(Arc::new(Memory::new()), clock());
    store.at_verb(Verb::List, 1, Mishap::Reject);
    store.get(&["a"]).await.unwrap();
    store.list(Query::keys("")).await.unwrap_err();
    store.list(Query::keys("")).await.unwrap();
    store.from(4, Mishap::Reject);
    for _ in 0..3 {
        store.get(&["a"]).await.unwrap_err();
    }
    store.heal();
    store.get(&["a"]).await.unwrap();
}

#[tokio::test]
async fn a_held_call_waits_to_be_released() {
    let memory = Arc::new(Memory::new());
    let store = Arc::new(Faulty::new(memory.clone(), clock()));
    store.at(1, Mishap::Hold);
    let writer = tokio::spawn({
        let store = store.clone();
        async move { put(&*store, "a", "1").await }
    });
    store.until_held().await;
    held(&*memory, "a", None).await;
    store.release();
    writer.await.unwrap();
    held(&*memory, "a", Some("1")).await;
}

#[tokio::test]
async fn mishaps_by_chance_repeat_with_their_seed() {
    let run = async |seed: u64| {
        let clock = TestClock::at("2025-10-16T16:00:00Z", seed);
        let store = Faulty::new(Arc::new(Memory::new()), clock.clone());
        let slow_by = Duration::from_millis(10);
        store.by_chance(Odds { reject: 0.2, fail_after_write: 0.2, slow: 0.2, slow_by });
        let mut went = Vec::new();
        for at in 0..100 {
            went.push(store.write_one(Item::put(format!("{at}"), "x")).await.is_ok());
        }
        (went, clock.slept_ms())
    };
    let (went, slept) = run(1).await;
    assert_eq!((went.clone(), slept), run(1).await);
    assert_ne!(went, run(2).await.0);
    let failed = went.iter().filter(|went| !**went).count();
    assert!((20..60).contains(&failed) && slept > 0, "{failed} failed, {slept} ms slept");
}

#[tokio::test]
async fn counts_tell_requests_from_changes() {
    let store = Counted::new(Arc::new(Memory::new()));
    store.write(puts(5), Mode::Each).await.unwrap();
    store.write(puts(5), Mode::Each).await.unwrap();
    store.write_one(Item::delete("key/0000")).await.unwrap();
    store.write_one(Item::put("", "x")).await.unwrap_err();
    store.get(&["key/0001", "none"]).await.unwrap();
    store.list(Query::keys("")).await.unwrap();
    let expected = Counts { gets: 1, lists: 1, writes: 4, read: 6, put: 5, deleted: 1, failed: 1 };
    assert_eq!(store.counts(), expected);
    assert_eq!((expected.requests(), expected.changed()), (6, 6));
}
