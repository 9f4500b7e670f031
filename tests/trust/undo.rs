//! Run, undo: the store is what it was, byte for byte, on every kind of store and whatever happens on the way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trueup::config::Journal;
use trueup::error::Kind;
use trueup::pipeline::{Ask, Pipeline};
use trueup::state::{State, Status, keys};
use trueup::store::faulty::{Faulty, Mishap};
use trueup::store::{Item, SharedStore, StoreExt};

use super::place::{every_store, undo, whole};
use crate::flow::rig::{LINE, Rig, contents};
use crate::flow::scripted::{Say, Script, Told};
use crate::support;

const NOT_UTF8: &[u8] = &[0, 159, 146, 150, 255];

async fn give_bytes(rig: &Rig, key: &str, value: &[u8]) {
    rig.origin.write_one(Item::put(key, Bytes::copy_from_slice(value))).await.unwrap();
}

/// Records in place: small, large, not UTF-8, empty.
async fn settled(target: SharedStore) -> Rig {
    let rig = Rig { target, batch: Some(3), ..Rig::new() };
    let large = "large ".repeat(3_000);
    rig.give(&[("kept", "1"), ("dir/small", "1"), ("large", &large), ("gone", "1"), ("gone-large", &large)])
        .await;
    give_bytes(&rig, "bytes", NOT_UTF8).await;
    give_bytes(&rig, "gone-bytes", NOT_UTF8).await;
    give_bytes(&rig, "empty", b"").await;
    rig.run().await;
    rig.in_step().await;
    rig
}

/// Then some of each change: four updates, three deletes, three adds.
async fn changed(target: SharedStore) -> Rig {
    let rig = settled(target).await;
    rig.give(&[("dir/small", "2"), ("large", "small now"), ("empty", "full"), ("new", "1")]).await;
    rig.give(&[("new-large", &"new ".repeat(3_000))]).await;
    give_bytes(&rig, "bytes", &[254, 0]).await;
    give_bytes(&rig, "new-bytes", NOT_UTF8).await;
    rig.take_away(&["gone", "gone-large", "gone-bytes"]).await;
    rig
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undo_leaves_every_store_byte_equal_to_before_and_redo_to_after() {
    let folder = support::temp();
    for store in every_store(&folder, "undo").await {
        let rig = changed(store).await;
        let before = whole(&rig.target).await;
        let run = rig.ran(3, 4, 3, 1).await;
        let after = whole(&rig.target).await;

        let undone = undo(&rig, &run.id).await;
        let counts = &undone.counts;
        assert_eq!((counts.added, counts.updated, counts.deleted), (3, 4, 3), "{}", rig.target.name());
        assert_eq!((undone.status, undone.writes), (Status::Ok, 10));
        assert_eq!(whole(&rig.target).await, before, "{} after undo", rig.target.name());
        rig.at_rest().await;

        let redone = undo(&rig, &undone.id).await;
        assert_eq!(whole(&rig.target).await, after, "{} after redo", rig.target.name());
        rig.in_step().await;
        assert_eq!(rig.run().await.status, Status::Ok, "a redo leaves no pin");

        undo(&rig, &redone.id).await;
        assert_eq!(whole(&rig.target).await, before, "{} after undoing the redo", rig.target.name());
    }
}

#[tokio::test]
async fn undoing_the_first_run_empties_the_store_and_leaves_what_was_there() {
    let rig = Rig::new();
    rig.intrude("theirs", "x").await;
    rig.give_many(5, "x").await;
    let run = rig.ran(5, 0, 0, 0).await;
    undo(&rig, &run.id).await;
    assert_eq!(contents(&rig.target).await.into_keys().collect::<Vec<_>>(), ["theirs"]);
    assert!(rig.bases().await.is_empty());
}

/// What was adopted goes back to the stranger's value, and is a stranger's again.
#[tokio::test]
async fn undoing_an_adoption_gives_the_key_back() {
    let rig = Rig { adopt: true, ..Rig::new() };
    rig.intrude("a", "theirs").await;
    rig.give(&[("a", "ours")]).await;
    let run = rig.ran(0, 1, 0, 0).await;
    undo(&rig, &run.id).await;
    assert_eq!(rig.value("a").await.as_deref(), Some("theirs"));
    assert!(rig.bases().await.is_empty());
    assert_eq!(rig.run().await.status, Status::Held);
    assert_eq!(rig.value("a").await.as_deref(), Some("theirs"));
}

/// A record that moved is found at its old key again, in the version it has there.
#[tokio::test]
async fn undoing_a_move_brings_the_record_back_to_its_old_key() {
    let script = Script::new();
    let rig = Rig { shape: Arc::new(Told::default()), ..Rig::over(script.clone()) };
    script.say(&[Say::Seen("id", "", "key=old 1"), Say::Complete("", None)]);
    rig.run().await;
    let before = contents(&rig.target).await;
    script.say(&[Say::Seen("id", "", "key=new 2"), Say::Complete("", None)]);
    let run = rig.run().await;
    let after = contents(&rig.target).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), ["new"]);
    let undone = undo(&rig, &run.id).await;
    assert_eq!(contents(&rig.target).await, before);
    rig.at_rest().await;
    undo(&rig, &undone.id).await;
    assert_eq!(contents(&rig.target).await, after);
    rig.at_rest().await;
}

#[tokio::test]
async fn what_somebody_else_changed_since_is_held_and_the_rest_is_undone() {
    let rig = changed(Rig::new().target).await;
    let before = contents(&rig.target).await;
    let run = rig.run().await;
    rig.intrude("dir/small", "theirs").await;
    rig.intrude("gone", "theirs").await;
    rig.remove("new").await;
    let undone = undo(&rig, &run.id).await;
    assert_eq!((undone.status, undone.counts.held), (Status::Held, 2), "{undone:#?}");
    assert_eq!(rig.value("dir/small").await.as_deref(), Some("theirs"));
    assert_eq!(rig.value("gone").await.as_deref(), Some("theirs"));
    let mut wanted = before;
    wanted.insert("dir/small".into(), "theirs".into());
    wanted.insert("gone".into(), "theirs".into());
    assert_eq!(contents(&rig.target).await, wanted);
    let header = rig.state().await.find_held(undone.plan.as_ref().unwrap()).await.unwrap();
    let held = rig.state().await.held_items(&header).await.unwrap();
    assert!(held.iter().all(|held| held.foreign && held.rule.starts_with("changed since")), "{held:#?}");
    let again = rig.line().await.undo(&run.id, &Ask::plain("approve"), Some(&header)).await.unwrap();
    assert_eq!((again.counts.held, again.writes), (2, 0), "approving does not overwrite it either");
    assert_eq!(contents(&rig.target).await, wanted);
}

#[tokio::test]
async fn a_preview_shows_what_would_be_undone_and_held_and_writes_nothing() {
    let rig = changed(Rig::new().target).await;
    let run = rig.run().await;
    rig.intrude("large", "theirs").await;
    let (store, state) = (contents(&rig.target).await, rig.state_bytes().await);
    let preview = rig.line().await.preview_undo(&run.id).await.unwrap();
    let counts = (preview.add.len(), preview.update.len(), preview.delete.len(), preview.held.len());
    assert_eq!((counts, preview.writes), ((3, 3, 3, 1), 9));
    assert_eq!((contents(&rig.target).await, rig.state_bytes().await), (store, state));
}

/// What the guard let through was taken for somebody else's change when the rest was approved.
#[tokio::test]
async fn a_guarded_undo_is_held_and_approving_it_undoes_the_rest() {
    let rig = changed(Rig::new().target).await;
    let before = contents(&rig.target).await;
    let run = rig.run().await;
    let rig = rig.guarded(1, 100);
    let held = undo(&rig, &run.id).await;
    assert_eq!((held.status, held.counts.held_by.delete, held.counts.updated), (Status::Held, 3, 4));
    let header = rig.state().await.find_held(held.plan.as_ref().unwrap()).await.unwrap();
    assert_eq!(header.undo.as_ref(), Some(&run.id));
    let approved = rig.line().await.undo(&run.id, &Ask::plain("approve"), Some(&header)).await.unwrap();
    rig.kept_its_promises(&approved).await;
    assert_eq!((approved.status, approved.counts.deleted, approved.counts.updated), (Status::Ok, 3, 0));
    assert_eq!(contents(&rig.target).await, before);
    assert!(rig.state().await.held_headers().await.unwrap().is_empty());
    rig.at_rest().await;
}

/// Two keys that were undone had come back since, by a person's word. They were no part of what was held.
#[tokio::test]
async fn approving_a_held_undo_does_what_is_held_and_nothing_else() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b", "1"), ("c", "1")]).await;
    let run = rig.run().await;
    rig.intrude("c", "theirs").await;
    let held = undo(&rig, &run.id).await;
    assert_eq!((held.counts.deleted, held.counts.held), (2, 1), "{held:#?}");
    let header = rig.state().await.find_held(held.plan.as_ref().unwrap()).await.unwrap();
    let pinned = rig.run().await;
    rig.approve(&pinned.plan.unwrap()).await.unwrap();
    assert_eq!(rig.value("a").await.as_deref(), Some("1"));

    rig.line().await.undo(&run.id, &Ask::plain("approve"), Some(&header)).await.unwrap();
    assert_eq!((rig.value("a").await.as_deref(), rig.value("b").await.as_deref()), (Some("1"), Some("1")));
}

/// What a later run of our own made of it is nobody else's, and a person may have it back.
#[tokio::test]
async fn what_a_later_run_changed_is_held_under_its_name_and_undone_when_approved() {
    let rig = Rig::new();
    rig.give(&[("k", "1")]).await;
    rig.run().await;
    rig.give(&[("k", "2")]).await;
    let run = rig.run().await;
    rig.give(&[("k", "3")]).await;
    let later = rig.run().await;
    let held = undo(&rig, &run.id).await;
    assert_eq!(held.counts.held, 1, "{held:#?}");
    let header = rig.state().await.find_held(held.plan.as_ref().unwrap()).await.unwrap();
    let items = rig.state().await.held_items(&header).await.unwrap();
    assert_eq!(items[0].rule, format!("changed since by run {}", later.id));

    let ask = Ask::plain("approve");
    let approved = rig.line().await.undo(&run.id, &ask, Some(&header)).await.unwrap();
    assert_eq!((approved.status, approved.counts.updated), (Status::Ok, 1), "{approved:#?}");
    assert_eq!(rig.value("k").await.as_deref(), Some("1"));
    let report = rig.run().await;
    assert_eq!((report.counts.held, report.writes), (1, 0), "and it stays undone: {report:#?}");
    undo(&rig, &approved.id).await;
    assert_eq!(rig.value("k").await.as_deref(), Some("3"));
    rig.ran(0, 0, 0, 1).await;
}

#[tokio::test]
async fn undoing_twice_does_nothing_the_second_time() {
    let rig = changed(Rig::new().target).await;
    let run = rig.run().await;
    undo(&rig, &run.id).await;
    let once = contents(&rig.target).await;
    let twice = undo(&rig, &run.id).await;
    assert_eq!((twice.status, twice.writes), (Status::Ok, 0), "{twice:#?}");
    assert_eq!(contents(&rig.target).await, once);
}

/// Somebody brought the old value back by hand: then state learns of it, and the key is pinned as if we had.
#[tokio::test]
async fn what_was_put_back_by_hand_is_pinned_too() {
    let rig = Rig::new();
    rig.give(&[("a", "1")]).await;
    rig.run().await;
    rig.give(&[("a", "2")]).await;
    let run = rig.run().await;
    rig.intrude("a", "1").await;
    undo(&rig, &run.id).await;
    assert_eq!(rig.run().await.status, Status::Held);
    assert_eq!(rig.value("a").await.as_deref(), Some("1"));
    rig.at_rest().await;
}

#[tokio::test]
async fn undo_says_when_the_journal_is_no_longer_kept() {
    let rig =
        Rig { journal: Journal { keep: Duration::from_secs(3_600), ..Journal::default() }, ..Rig::new() };
    rig.give_many(3, "x").await;
    let run = rig.run().await;
    rig.clock.advance(Duration::from_secs(7_200));
    rig.run().await;
    let error = rig.line().await.undo(&run.id, &Ask::plain("undo"), None).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("no longer kept") && error.remedy().contains("journal"), "{error}");
    assert_eq!(contents(&rig.target).await.len(), 3);
}

/// A journal whose forgetting was cut off was undone as far as it went, and that was called a success.
#[tokio::test]
async fn a_journal_that_is_partly_gone_is_not_undone_in_part() {
    let rig = Rig { batch: Some(2), ..Rig::new() };
    rig.give_many(6, "x").await;
    let run = rig.run().await;
    rig.memory.write_one(Item::delete(keys::journal(LINE, &run.id, 1))).await.unwrap();
    let report = rig.line().await.undo(&run.id, &Ask::plain("undo"), None).await.unwrap();
    assert_eq!((report.status, report.cause), (Status::Failed, Some(Kind::NotFound)), "{report:#?}");
    assert_eq!(contents(&rig.target).await.len(), 6);
}

#[tokio::test]
async fn a_run_nobody_knows_or_of_another_pipeline_is_refused() {
    let rig = Rig::new();
    rig.give_many(2, "x").await;
    let run = rig.run().await;
    let ask = Ask::plain("undo");
    let unknown = rig.line().await.undo("01K00000000000000000000000", &ask, None).await.unwrap_err();
    assert_eq!(unknown.kind(), Kind::NotFound);
    assert!(unknown.remedy().contains("trueup runs"), "{}", unknown.remedy());
    let other = Pipeline { name: "other".into(), ..rig.line().await };
    assert!(other.undo(&run.id, &ask, None).await.is_err());
    assert_eq!(contents(&rig.target).await.len(), 2);
}

/// How an undo is disturbed.
#[derive(Debug, Clone, Copy)]
enum How {
    Once(Mishap),
    ForGood(Mishap),
    /// The process is gone at this call.
    CutOff,
}

/// `true` = the trouble came.
async fn disturbed(rig: &Rig, run: &str, at_state: bool, how: How, call: u64) -> bool {
    let inner = if at_state { rig.memory.clone() } else { rig.target.clone() };
    let faulty = Arc::new(Faulty::new(inner, rig.clock.clone()));
    match how {
        How::Once(mishap) => faulty.at(call, mishap),
        How::ForGood(mishap) => faulty.from(call, mishap),
        How::CutOff => faulty.at(call, Mishap::Hold),
    }
    let mut line = rig.line().await;
    if at_state {
        tokio::select! {
            biased;
            () = faulty.until_held() => return true,
            opened = State::open(faulty.clone()) => match opened {
                Ok(state) => line.state = state,
                Err(_) => return true,
            },
        }
    } else {
        line.store = faulty.clone();
    }
    let ask = Ask::plain("undo");
    tokio::select! {
        biased;
        _ = line.undo(run, &ask, None) => {}
        () = faulty.until_held() => {}
    }
    faulty.calls() >= call
}

#[tokio::test]
async fn an_undo_disturbed_at_any_step_is_whole_after_the_next() {
    let hows = [
        How::Once(Mishap::Reject),
        How::Once(Mishap::FailAfterWrite),
        How::ForGood(Mishap::Reject),
        How::ForGood(Mishap::FailAfterWrite),
        How::CutOff,
    ];
    let mut steps = 0;
    for at_state in [false, true] {
        for how in hows {
            for call in 1.. {
                let rig = changed(Rig::new().target).await;
                let before = contents(&rig.target).await;
                let run = rig.run().await;
                let came = disturbed(&rig, &run.id, at_state, how, call).await;
                if !came {
                    break;
                }
                steps += 1;
                let what = format!("{how:?} at call {call}, state: {at_state}");
                let report = undo(&rig, &run.id).await;
                assert_eq!(report.status, Status::Ok, "{what}: {report:#?}");
                assert_eq!(contents(&rig.target).await, before, "{what}");
                rig.at_rest().await;
                let next = rig.run().await;
                assert_eq!(
                    (next.status, next.counts.held, next.writes),
                    (Status::Held, 10, 0),
                    "{what}: {next:#?}"
                );
            }
        }
    }
    assert!(steps > 60, "only {steps} steps were tried");
}
