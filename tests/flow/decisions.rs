//! Approve and reject.

use trueup::config::{Drift, Heal};
use trueup::error::Kind;
use trueup::state::{Report, Status};

use super::rig::{Rig, did};

/// Four records, two of them gone, and no delete allowed.
async fn two_held() -> (Rig, Report) {
    let rig = Rig::new().guarded(0, 100);
    rig.give_many(4, "x").await;
    rig.run().await;
    rig.take_away(&["k00", "k01"]).await;
    let report = rig.run().await;
    (rig, report)
}

#[tokio::test]
async fn an_approved_plan_is_applied_and_nothing_stays_held() {
    let (rig, held) = two_held().await;
    let report = rig.approve(&held.plan.unwrap()).await.unwrap();
    assert_eq!((did(&report), report.status), ([0, 0, 2, 2], Status::Ok));
    assert_eq!(rig.held().await, None);
    rig.in_step().await;
}

#[tokio::test]
async fn approval_covers_what_was_held_and_nothing_that_came_since() {
    let (rig, held) = two_held().await;
    rig.take_away(&["k02"]).await;
    rig.give(&[("k00", "back")]).await;
    let report = rig.approve(&held.plan.unwrap()).await.unwrap();
    assert_eq!(did(&report), [0, 1, 1, 1], "k01 goes, k00 is back, k02 waits");
    assert_eq!(report.counts.held_by.delete, 1);
    assert_eq!(rig.value("k02").await.as_deref(), Some("x"));
}

#[tokio::test]
async fn a_superseded_plan_is_refused() {
    let (rig, first) = two_held().await;
    rig.take_away(&["k02"]).await;
    let second = rig.run().await;
    assert_ne!(first.plan, second.plan);
    let old = first.plan.unwrap();
    for refused in [rig.approve(&old).await, rig.reject(&old).await] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.remedy().contains(second.plan.as_ref().unwrap()), "{}", error.remedy());
    }
    assert_eq!(rig.value("k00").await.as_deref(), Some("x"));
}

#[tokio::test]
async fn a_rejected_plan_is_dropped_until_the_source_changes() {
    let (rig, held) = two_held().await;
    let report = rig.reject(&held.plan.unwrap()).await.unwrap();
    assert_eq!((report.status, report.trigger.as_str()), (Status::Ok, "reject"));
    for _ in 0..2 {
        let quiet = rig.run().await;
        assert_eq!((quiet.status, quiet.counts.held), (Status::Ok, 0));
    }
    assert_eq!(rig.value("k00").await.as_deref(), Some("x"), "a rejected delete keeps the key");
    rig.give(&[("k00", "x")]).await;
    rig.run().await;
    rig.take_away(&["k00"]).await;
    assert_eq!(rig.run().await.counts.held_by.delete, 1, "it came back and went again: a new question");
}

#[tokio::test]
async fn a_rejected_update_is_skipped_until_the_source_has_another() {
    let rig = Rig::new().guarded(100, 0);
    rig.give_many(2, "x").await;
    rig.run().await;
    rig.give(&[("k00", "unwanted")]).await;
    let held = rig.run().await;
    rig.reject(&held.plan.unwrap()).await.unwrap();
    let report = rig.run().await;
    assert_eq!((report.status, report.counts.skipped, report.counts.unchanged), (Status::Ok, 1, 1));
    assert_eq!(rig.value("k00").await.as_deref(), Some("x"));
    rig.give(&[("k00", "better")]).await;
    assert_eq!(rig.run().await.counts.held_by.update, 1);
}

/// A foreign key was rejected along with the plan it was held in. The rejection outlived the stranger: when the key
/// became free, the record was left out silently, for good.
#[tokio::test]
async fn rejecting_does_not_drop_a_record_whose_key_a_stranger_holds() {
    let rig = Rig::new();
    rig.intrude("a", "theirs").await;
    rig.give(&[("a", "ours")]).await;
    let held = rig.run().await;
    assert_eq!(held.counts.held_by.add, 1);
    rig.reject(&held.plan.unwrap()).await.unwrap();
    assert_eq!(rig.run().await.counts.held_by.add, 1, "a foreign key stays reported");
    rig.remove("a").await;
    rig.ran(1, 0, 0, 0).await;
    rig.in_step().await;
}

/// An update held because somebody had edited the value could be approved as often as one liked: it was held again.
#[tokio::test]
async fn an_approved_update_overwrites_what_was_edited_in_the_store() {
    let report_only = Drift { edited: Heal::Report, ..Drift::default() };
    let rig = Rig { drift: report_only, ..Rig::new() };
    rig.give(&[("a", "1")]).await;
    rig.run().await;
    rig.intrude("a", "edited").await;
    rig.give(&[("a", "2")]).await;
    let held = rig.run().await;
    assert_eq!((held.counts.held_by.update, rig.value("a").await.as_deref()), (1, Some("edited")));
    rig.run().await;
    let report = rig.approve(&held.plan.unwrap()).await.unwrap();
    assert_eq!((did(&report), report.status), ([0, 1, 0, 0], Status::Ok));
    rig.in_step().await;
}

#[tokio::test]
async fn approving_reads_everything_whatever_the_cursors_say() {
    use super::scripted::{Say, Script};
    let script = Script::new();
    let rig = Rig { source: script.clone(), ..Rig::new() }.guarded(0, 100);
    script.say(&[Say::Seen("a", "", "1"), Say::Complete("", Some("c1"))]);
    rig.run().await;
    script.say(&[Say::Complete("", Some("c2"))]);
    let held = rig.run().await;
    rig.approve(&held.plan.unwrap()).await.unwrap();
    assert!(script.cursors().is_empty());
    assert_eq!(rig.value("a").await, None);
}
