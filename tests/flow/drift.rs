//! Somebody else writes to the store too.

use std::sync::Arc;

use trueup::config::{Drift, Heal};
use trueup::pipeline::Ask;
use trueup::state::Status;
use trueup::store::faulty::{Faulty, Mishap, Verb};
use trueup::store::{Item, StoreExt as _};

use super::rig::Rig;

#[tokio::test]
async fn a_foreign_key_is_held_and_left_alone() {
    let rig = Rig::new();
    rig.intrude("a", "theirs").await;
    rig.give(&[("a", "ours"), ("b", "x")]).await;
    for added in [1, 0] {
        let report = rig.ran(added, 0, 0, 1 - added).await;
        assert_eq!((report.status, report.counts.held_by.add), (Status::Held, 1));
    }
    assert_eq!(rig.value("a").await.as_deref(), Some("theirs"));
}

/// The same bytes, put by hand, were held as foreign: the store told them apart by the fingerprint that only
/// trueup's own writes carry.
#[tokio::test]
async fn a_key_that_already_holds_the_same_is_taken_over_without_a_write() {
    let rig = Rig::new();
    rig.intrude("a", "same").await;
    rig.give(&[("a", "same")]).await;
    let report = rig.ran(0, 0, 0, 1).await;
    assert_eq!((report.status, report.writes), (Status::Ok, 0));
    rig.in_step().await;
    rig.give(&[("a", "newer")]).await;
    rig.ran(0, 1, 0, 0).await;
    rig.in_step().await;
}

#[tokio::test]
async fn a_key_nobody_gave_is_never_touched() {
    let rig = Rig::new();
    rig.intrude("stranger", "theirs").await;
    rig.give(&[("a", "1")]).await;
    rig.run().await;
    rig.take_away(&["a"]).await;
    rig.run().await;
    assert_eq!(rig.value("stranger").await.as_deref(), Some("theirs"));
}

#[tokio::test]
async fn an_edited_value_is_healed() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b", "2")]).await;
    rig.run().await;
    rig.intrude("a", "edited").await;
    rig.ran(0, 1, 0, 1).await;
    rig.in_step().await;
}

#[tokio::test]
async fn a_missing_value_is_healed() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b", "2")]).await;
    rig.run().await;
    rig.remove("a").await;
    rig.ran(0, 1, 0, 1).await;
    rig.in_step().await;
}

#[tokio::test]
async fn drift_that_shall_only_be_reported_is_reported_and_left() {
    let drift = Drift { edited: Heal::Report, missing: Heal::Report, extra: Heal::Report };
    let rig = Rig { drift, ..Rig::new() };
    rig.give(&[("a", "1"), ("b", "2")]).await;
    rig.run().await;
    rig.intrude("a", "edited").await;
    rig.remove("b").await;
    let report = rig.ran(0, 0, 0, 2).await;
    assert_eq!(report.warnings.len(), 2, "{:?}", report.warnings);
    assert_eq!((rig.value("a").await.as_deref(), rig.value("b").await), (Some("edited"), None));
}

#[tokio::test]
async fn an_edit_that_shall_be_adopted_is_ours_from_then_on() {
    let drift = Drift { edited: Heal::Adopt, ..Drift::default() };
    let rig = Rig { drift, ..Rig::new() };
    rig.give(&[("a", "1")]).await;
    rig.run().await;
    rig.intrude("a", "edited").await;
    rig.ran(0, 0, 0, 1).await;
    let report = rig.ran(0, 0, 0, 1).await;
    assert_eq!((report.warnings.len(), rig.value("a").await.as_deref()), (0, Some("edited")));
}

#[tokio::test]
async fn a_value_somebody_edited_is_not_deleted_with_ours() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b", "2")]).await;
    rig.run().await;
    rig.intrude("a", "theirs now").await;
    rig.take_away(&["a", "b"]).await;
    for deleted in [1, 0] {
        let report = rig.ran(0, 0, deleted, 0).await;
        assert_eq!((report.status, report.counts.held_by.delete), (Status::Held, 1));
    }
    assert_eq!(rig.value("a").await.as_deref(), Some("theirs now"));
}

#[tokio::test]
async fn what_is_gone_on_both_sides_is_simply_forgotten() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b", "2")]).await;
    rig.run().await;
    rig.remove("a").await;
    rig.take_away(&["a"]).await;
    rig.ran(0, 0, 1, 1).await;
    rig.in_step().await;
}

/// A stranger writes after we looked and before we write: their change stands, and ours waits for a person.
#[tokio::test]
async fn a_change_that_comes_between_looking_and_writing_is_never_overwritten() {
    let mut rig = Rig::new();
    rig.give(&[("gone", "1"), ("old", "1")]).await;
    rig.run().await;
    rig.give(&[("old", "2"), ("new", "2")]).await;
    rig.take_away(&["gone"]).await;
    for round in [1, 2] {
        let whole = rig.target.clone();
        let target = Arc::new(Faulty::new(whole.clone(), rig.clock.clone()));
        target.at_verb(Verb::Write, 1, Mishap::Hold);
        rig.target = target.clone();
        let (line, ask) = (rig.line().await, Ask::plain("test"));
        let strangers = async {
            target.until_held().await;
            for key in if round == 1 { &["old", "new"][..] } else { &["gone"] } {
                whole.write_one(Item::put(*key, "theirs")).await.unwrap();
            }
            target.release();
        };
        let (report, ()) = tokio::join!(line.run(&ask), strangers);
        let counts = report.unwrap().counts;
        let held = (counts.held_by.add, counts.held_by.update, counts.held_by.delete);
        assert_eq!(held, if round == 1 { (1, 1, 0) } else { (1, 0, 1) }, "{counts:?}");
        rig.target = whole;
        if round == 1 {
            assert_eq!(rig.value("old").await.as_deref(), Some("theirs"));
            rig.give(&[("gone", "again")]).await;
            rig.run().await;
            rig.take_away(&["gone"]).await;
        }
    }
    assert_eq!(rig.value("new").await.as_deref(), Some("theirs"));
    assert_eq!(rig.value("gone").await.as_deref(), Some("theirs"));
}
