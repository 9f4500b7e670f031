//! Runs as they are remembered: interrupted ones, old ones, two at once, and their ids.

use std::sync::Arc;
use std::time::Duration;

use trueup::config::Journal;
use trueup::error::Kind;
use trueup::pipeline::Ask;
use trueup::state::{Report, Status, keys};
use trueup::store::SharedStore;
use trueup::store::faulty::{Faulty, Mishap, Verb};

use super::rig::{LINE, Rig};

async fn runs(rig: &Rig) -> Vec<Report> {
    let all = rig.state().await.read_all::<Report>(keys::RUNS).await.unwrap();
    all.into_iter().map(|(_, report)| report).collect()
}

/// A run that is dropped, as by a crash, once the store was asked for its `write`th write.
async fn cut_off(rig: &mut Rig, write: u64) {
    let whole: SharedStore = rig.target.clone();
    let target = Arc::new(Faulty::new(whole.clone(), rig.clock.clone()));
    target.at_verb(Verb::Write, write, Mishap::Hold);
    rig.target = target.clone();
    let line = rig.line().await;
    let ask = Ask::plain("test");
    tokio::select! {
        _ = line.run(&ask) => panic!("the run was to be held up"),
        () = target.until_held() => {}
    }
    rig.target = whole;
}

#[tokio::test]
async fn a_run_that_was_cut_off_is_marked_and_what_arrived_is_settled() {
    let mut rig = Rig { batch: Some(2), ..Rig::new() };
    rig.give_many(8, "x").await;
    cut_off(&mut rig, 3).await;
    assert_eq!(runs(&rig).await[0].status, Status::Running);
    let open = rig.state().await.keys(&keys::open_batches(LINE)).await.unwrap();
    assert!(!open.is_empty(), "something was under way");
    let report = rig.run().await;
    assert_eq!((report.counts.added, report.counts.unchanged), (4, 4), "{report:#?}");
    let runs = runs(&rig).await;
    assert_eq!((runs[0].status, runs[0].interrupted, runs[1].status), (Status::Failed, true, Status::Ok));
    assert!(runs[0].finished.is_some() && !runs[0].errors.is_empty());
    rig.in_step().await;
}

#[tokio::test]
async fn a_second_run_of_the_same_pipeline_is_refused_while_one_is_at_work() {
    let mut rig = Rig::new();
    rig.give_many(2, "x").await;
    let target = Arc::new(Faulty::new(rig.target.clone(), rig.clock.clone()));
    target.at_verb(Verb::Write, 1, Mishap::Hold);
    rig.target = target.clone();
    let (first, second) = (rig.line().await, rig.line().await);
    let ask = Ask::plain("test");
    let meanwhile = async {
        target.until_held().await;
        let error = second.run(&ask).await.unwrap_err();
        assert_eq!((error.kind(), error.kind().exit_code()), (Kind::Busy, 7));
        target.release();
    };
    let (report, ()) = tokio::join!(first.run(&ask), meanwhile);
    assert_eq!(report.unwrap().status, Status::Ok);
    second.run(&ask).await.unwrap();
    assert_eq!(runs(&rig).await.len(), 2, "the refused one left no trace");
}

#[tokio::test]
async fn run_ids_grow_even_if_the_clock_stands_still_or_is_set_back() {
    let mut rig = Rig::new();
    let mut ids = Vec::new();
    for round in 0..20 {
        if round == 10 {
            rig.clock = trueup::clock::TestClock::at("2020-01-01T00:00:00Z", 9);
        }
        ids.push(rig.run().await.id);
    }
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:#?}");
}

#[tokio::test]
async fn old_runs_are_forgotten_and_the_newest_stays() {
    let day = Duration::from_secs(24 * 3600);
    let mut rig = Rig { keep_runs: 3 * day, ..Rig::new() };
    for _ in 0..10 {
        rig.run().await;
        rig.clock.advance(day);
    }
    assert_eq!(runs(&rig).await.len(), 4);
    rig.clock.advance(100 * day);
    rig.keep_runs = Duration::ZERO;
    rig.run().await;
    assert_eq!(runs(&rig).await.len(), 1);
}

/// Keys of state that belong to the journal.
async fn journal(rig: &Rig) -> Vec<String> {
    let mut all = Vec::new();
    for prefix in ["journal/", "outcome/", "blob/", "weight/"] {
        all.extend(rig.state().await.keys(prefix).await.unwrap());
    }
    all
}

#[tokio::test]
async fn the_journal_is_forgotten_by_age() {
    let day = Duration::from_secs(24 * 3600);
    let rig = Rig { journal: Journal { keep: day, ..Journal::default() }, ..Rig::new() };
    rig.give(&[("a", &"large".repeat(10_000))]).await;
    rig.run().await;
    rig.give(&[("a", "2")]).await;
    let old = rig.run().await;
    assert!(journal(&rig).await.iter().any(|key| key.starts_with("blob/")), "the prior value was large");
    rig.clock.advance(2 * day);
    rig.give(&[("a", "3")]).await;
    let new = rig.run().await;
    let kept = journal(&rig).await;
    assert!(kept.iter().all(|key| key.contains(&new.id)), "{kept:?} after {}", old.id);
    assert_eq!(kept.len(), 2, "{kept:?}");
    rig.in_step().await;
}

#[tokio::test]
async fn the_journal_is_forgotten_by_size_oldest_first() {
    let rig = Rig { journal: Journal { max_bytes: 5_000, ..Journal::default() }, ..Rig::new() };
    let mut ids = Vec::new();
    for number in 0..6_u8 {
        rig.give(&[("a", &char::from(b'a' + number).to_string().repeat(1_500))]).await;
        ids.push(rig.run().await.id);
    }
    let kept = journal(&rig).await;
    assert!(ids[4..].iter().all(|id| kept.iter().any(|key| key.contains(id))), "{kept:?}");
    assert!(!ids[..2].iter().any(|id| kept.iter().any(|key| key.contains(id))), "{kept:?}");
}

/// The mark by which retention finds a run's journal was written with the first batch only, and not at all when that
/// batch had nothing to write: such a journal was never forgotten if the run was then cut off.
#[tokio::test]
async fn the_journal_of_a_run_that_was_cut_off_is_forgotten_too() {
    use trueup::store::{Item, StoreExt};
    let mut rig = Rig { batch: Some(1), ..Rig::new() };
    rig.origin.write_one(Item::put("a", "1")).await.unwrap();
    rig.run().await;
    rig.take_away(&["a"]).await;
    rig.origin.write_one(Item::put("a", "1")).await.unwrap(); // another version, the same content
    rig.give(&[("b", "1"), ("c", "1")]).await;
    cut_off(&mut rig, 2).await;
    let cut = runs(&rig).await.pop().unwrap().id;
    rig.run().await;
    rig.clock.advance(Duration::from_secs(90 * 24 * 3600));
    rig.run().await;
    let kept = journal(&rig).await;
    assert!(!kept.iter().any(|key| key.contains(&cut)), "{kept:?}");
    rig.in_step().await;
}

/// Every key that was ever deleted left a record behind, for good.
#[tokio::test]
async fn what_is_left_of_a_deleted_key_is_forgotten_with_its_story() {
    let rig = Rig::new();
    rig.give_many(3, "x").await;
    rig.run().await;
    rig.take_away(&["k00", "k01"]).await;
    rig.run().await;
    let stones = async || rig.state().await.keys(&keys::tombstones(LINE)).await.unwrap().len();
    assert_eq!(stones().await, 2);
    rig.clock.advance(Duration::from_secs(90 * 24 * 3600));
    rig.run().await;
    assert_eq!(stones().await, 0);
    rig.in_step().await;
}
