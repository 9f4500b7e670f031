//! Fail at step 1, 2, 3 … of a whole pass until it runs clean; after each, run again and compare.
//!
//! Every call to the source, the store and the state is a step. A step fails alone or for good, before anything
//! happened or after all of it did. Whatever failed: nothing is lost, nothing is deleted that the source still has,
//! and the next run makes store and source equal.

use std::sync::Arc;

use trueup::error::Result;
use trueup::pipeline::Ask;
use trueup::source::store::FromStore;
use trueup::state::{Report, State};
use trueup::store::faulty::{Faulty, Mishap};
use trueup::store::{SharedStore, StoreExt};

use crate::flow::rig::{Rig, contents, did};

/// Which store misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Source,
    Target,
    State,
}

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Once,
    ForGood,
}

#[derive(Debug, Clone, Copy)]
struct Trouble {
    place: Place,
    mishap: Mishap,
    length: Length,
    call: u64,
}

const PLACES: [Place; 3] = [Place::Source, Place::Target, Place::State];
const MISHAPS: [Mishap; 2] = [Mishap::Reject, Mishap::FailAfterWrite];

/// A run with trouble on the way. Says how it ended, and whether the trouble came at all.
async fn troubled(rig: &Rig, trouble: Trouble) -> (Result<Report>, bool) {
    let inner: SharedStore = match trouble.place {
        Place::Source => rig.origin.clone(),
        Place::Target => rig.target.clone(),
        Place::State => rig.memory.clone(),
    };
    let faulty = Arc::new(Faulty::new(inner, rig.clock.clone()));
    match trouble.length {
        Length::Once => faulty.at(trouble.call, trouble.mishap),
        Length::ForGood => faulty.from(trouble.call, trouble.mishap),
    }
    let mut line = rig.line().await;
    match trouble.place {
        Place::Source => line.source = Arc::new(FromStore::new(faulty.clone(), String::new())),
        Place::Target => line.store = faulty.clone(),
        Place::State => match State::open(faulty.clone()).await {
            Ok(state) => line.state = state,
            Err(error) => return (Err(error), true),
        },
    }
    let ended = line.run(&Ask::plain("test")).await;
    (ended, faulty.calls() >= trouble.call)
}

/// Records in place, then some of each: kept, changed, gone, new, healed.
async fn mixed(guarded: bool) -> Rig {
    let rig = Rig { batch: Some(3), ..Rig::new() };
    rig.give_many(14, "one").await;
    rig.run().await;
    rig.give_many(5, "two").await;
    rig.take_away(&["k08", "k09", "k10", "k11"]).await;
    rig.give(&[("new-1", "x"), ("new-2", "x"), ("new-3", "x"), ("new-4", "x")]).await;
    rig.remove("k06").await;
    rig.intrude("k07", "edited").await;
    if guarded { rig.guarded(2, 100) } else { rig }
}

async fn first() -> Rig {
    let rig = Rig { batch: Some(3), ..Rig::new() };
    rig.give_many(10, "one").await;
    rig
}

/// Nothing the source has was taken from the store.
async fn nothing_was_lost(rig: &Rig, before: &[String], what: &dyn std::fmt::Debug) {
    let origin: SharedStore = rig.origin.clone();
    let held = contents(&rig.target).await;
    let wanted = contents(&origin).await;
    for key in before.iter().filter(|key| wanted.contains_key(*key)) {
        assert!(held.contains_key(key), "{key} was lost by {what:?}");
    }
    for (key, value) in &held {
        let ours = wanted.contains_key(key) || before.contains(key);
        assert!(ours, "{key} = {value:?} came from nowhere by {what:?}");
    }
}

/// A clean run after trouble; with a guard the deletes are held, and approved.
async fn recovers(rig: &Rig, guarded: bool, what: &dyn std::fmt::Debug) {
    let report = rig.run().await;
    assert!(report.cause.is_none(), "{what:?}: {report:#?}");
    if guarded {
        assert_eq!((report.counts.held_by.delete, report.counts.deleted), (4, 0), "{what:?}");
        rig.at_rest().await;
        let approved = rig.approve(report.plan.as_ref().unwrap()).await.unwrap();
        assert_eq!(approved.counts.deleted, 4, "{what:?}");
    }
    rig.in_step().await;
    let still = rig.run().await;
    assert_eq!(did(&still)[..3], [0, 0, 0], "a run after that has nothing to do: {what:?}");
}

/// The first steps need a rig of their own each, because trouble changes it.
pub async fn every_step(make: impl AsyncFn() -> Rig, guarded: bool) {
    let mut steps = 0;
    for place in PLACES {
        for mishap in MISHAPS {
            for length in [Length::Once, Length::ForGood] {
                for call in 1.. {
                    let trouble = Trouble { place, mishap, length, call };
                    let rig = make().await;
                    let before: Vec<String> = contents(&rig.target).await.into_keys().collect();
                    let (ended, came) = troubled(&rig, trouble).await;
                    if !came {
                        assert!(
                            ended.unwrap().cause.is_none(),
                            "a pass without trouble runs clean: {trouble:?}"
                        );
                        break;
                    }
                    steps += 1;
                    told_the_truth(&rig, ended, trouble).await;
                    nothing_was_lost(&rig, &before, &trouble).await;
                    recovers(&rig, guarded, &trouble).await;
                }
            }
        }
    }
    assert!(steps > 100, "only {steps} steps were tried");
}

/// A report says ok only if all is well.
async fn told_the_truth(rig: &Rig, ended: Result<Report>, trouble: Trouble) {
    let Ok(report) = ended else { return };
    assert!(report.cause.is_some() || report.counts.add_up(), "{trouble:?}: {report:#?}");
    if report.exit_code() == 0 {
        rig.in_step().await;
    }
}

#[tokio::test]
async fn a_first_sync_survives_trouble_at_every_step() {
    every_step(first, false).await;
}

#[tokio::test]
async fn adds_updates_and_deletes_survive_trouble_at_every_step() {
    every_step(async || mixed(false).await, false).await;
}

#[tokio::test]
async fn held_deletes_stay_held_through_trouble_at_every_step() {
    every_step(async || mixed(true).await, true).await;
}

/// The run that recovers has troubles of its own.
#[tokio::test]
async fn trouble_while_recovering_from_trouble_is_survived_too() {
    for (place, call) in [(Place::Target, 3), (Place::Target, 5), (Place::State, 12), (Place::State, 15)] {
        let first = Trouble { place, mishap: Mishap::FailAfterWrite, length: Length::ForGood, call };
        for place in PLACES {
            for mishap in MISHAPS {
                for call in 1.. {
                    let second = Trouble { place, mishap, length: Length::ForGood, call };
                    let rig = mixed(false).await;
                    let before: Vec<String> = contents(&rig.target).await.into_keys().collect();
                    drop(troubled(&rig, first).await);
                    let (_, came) = troubled(&rig, second).await;
                    nothing_was_lost(&rig, &before, &(first, second)).await;
                    recovers(&rig, false, &(first, second)).await;
                    if !came {
                        break;
                    }
                }
            }
        }
    }
}

/// A listing that breaks off proves nothing, however often it does.
#[tokio::test]
async fn a_source_that_breaks_again_and_again_deletes_nothing() {
    let rig = Rig::new();
    rig.give_many(20, "x").await;
    rig.run().await;
    for call in 1..=2 {
        let trouble = Trouble { place: Place::Source, mishap: Mishap::Reject, length: Length::ForGood, call };
        for _ in 0..3 {
            drop(troubled(&rig, trouble).await);
        }
    }
    assert!(rig.target.get_one("k00").await.unwrap().is_some());
    rig.in_step().await;
}
