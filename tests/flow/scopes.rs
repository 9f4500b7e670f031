//! Absence needs proof: scopes that break, show only a part, or were not read at all.

use std::fs;
use std::sync::Arc;

use trueup::clock::SystemClock;
use trueup::error::Kind;
use trueup::source::files::Files;
use trueup::state::Status;

use super::rig::Rig;
use super::scripted::{Say, Script};
use crate::support;
use Say::{Broken, Complete, Fail, Gone, Seen, Unchanged, Window};

fn scripted() -> (Arc<Script>, Rig) {
    let script = Script::new();
    (script.clone(), Rig::over(script))
}

#[tokio::test]
async fn absence_in_a_broken_scope_is_not_a_deletion() {
    let (script, rig) = scripted();
    script.say(&[Seen("a/1", "a", "x"), Seen("b/1", "b", "x"), Seen("c", "", "x"), Complete("", None)]);
    rig.run().await;
    script.say(&[Broken("a"), Complete("", None)]);
    let report = rig.ran(0, 0, 2, 0).await;
    assert_eq!((report.status, report.counts.unproven, report.exit_code()), (Status::Partial, 1, 3));
    assert_eq!(rig.value("a/1").await.as_deref(), Some("x"));
    rig.at_rest().await;
}

#[tokio::test]
async fn what_was_seen_before_a_scope_broke_is_written_and_nothing_is_deleted() {
    let (script, rig) = scripted();
    script.say(&[Seen("a", "", "1"), Seen("b", "", "1"), Seen("c", "", "1"), Complete("", None)]);
    rig.run().await;
    script.say(&[Seen("a", "", "2"), Seen("aa", "", "new"), Broken("")]);
    let report = rig.ran(1, 1, 0, 0).await;
    assert_eq!((report.status, report.counts.unproven), (Status::Partial, 1));
    assert_eq!(rig.value("c").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_source_of_which_nothing_can_be_read_fails_the_run() {
    let (script, rig) = scripted();
    script.say(&[Seen("a", "x", "1"), Seen("b", "y", "1"), Complete("x", None), Complete("y", None)]);
    rig.run().await;
    for lines in [&[Broken("x"), Broken("y")][..], &[Broken("")], &[Fail], &[Seen("a", "x", "1"), Fail]] {
        script.say(lines);
        let report = rig.run().await;
        assert_eq!((report.status, report.cause), (Status::Failed, Some(Kind::Unavailable)));
        assert_eq!(report.exit_code(), 5);
    }
    assert_eq!(rig.bases().await.len(), 2);
    rig.at_rest().await;
}

#[tokio::test]
async fn a_folder_that_vanished_is_a_failed_run_and_never_an_empty_source() {
    let folder = support::temp();
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a"), "1").unwrap();
    let rig = Rig::over(Arc::new(Files::new(files.clone(), &[], &[], SystemClock::new()).unwrap()));
    rig.run().await;
    fs::rename(&files, folder.path().join("elsewhere")).unwrap();
    let report = rig.run().await;
    assert_eq!((report.status, report.cause), (Status::Failed, Some(Kind::NotFound)));
    assert_eq!(rig.value("a").await.as_deref(), Some("1"));
    fs::rename(folder.path().join("elsewhere"), &files).unwrap();
    assert_eq!(rig.run().await.status, Status::Ok);
}

#[tokio::test]
async fn a_feed_that_shows_less_deletes_nothing() {
    let (script, rig) = scripted();
    script.say(&[Seen("a", "f", "1"), Seen("b", "f", "1"), Window("f", Some("c1"))]);
    rig.run().await;
    script.say(&[Seen("b", "f", "2"), Window("f", Some("c2"))]);
    let report = rig.ran(0, 1, 0, 0).await;
    assert_eq!(report.status, Status::Ok);
    assert_eq!(rig.value("a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn what_the_source_says_is_gone_needs_no_other_proof() {
    let (script, rig) = scripted();
    script.say(&[Seen("a", "f", "1"), Seen("b", "f", "1"), Window("f", None)]);
    rig.run().await;
    script.say(&[Gone("a", "f"), Gone("never seen", "f"), Window("f", None)]);
    rig.ran(0, 0, 1, 0).await;
    assert_eq!(rig.value("a").await, None);
    rig.at_rest().await;
}

#[tokio::test]
async fn a_scope_that_did_not_change_is_counted_and_keeps_everything() {
    let (script, rig) = scripted();
    script.say(&[Seen("a", "s", "1"), Seen("b", "s", "1"), Complete("s", Some("c1"))]);
    let report = rig.run().await;
    assert_eq!(report.cursor.as_deref(), Some("c1"));
    script.say(&[Unchanged("s")]);
    let report = rig.ran(0, 0, 0, 2).await;
    assert_eq!(report.status, Status::Ok);
    assert_eq!(script.cursors()["s"], "c1", "the cursor was handed back");
    rig.at_rest().await;
}

#[tokio::test]
async fn a_scope_that_did_not_change_still_says_what_is_held_in_it() {
    let script = Script::new();
    let rig = Rig::over(script.clone()).guarded(0, 0);
    rig.intrude("d", "theirs").await;
    script.say(&[Seen("a", "s", "1"), Seen("b", "s", "1"), Seen("c", "s", "1"), Complete("s", None)]);
    rig.run().await;
    script.say(&[Seen("b", "s", "2"), Seen("c", "s", "1"), Seen("d", "s", "1"), Complete("s", Some("c1"))]);
    let read = rig.run().await;
    assert_eq!(script.cursors().len(), 0);
    script.say(&[Unchanged("s")]);
    for _ in 0..2 {
        let unread = rig.run().await;
        assert_eq!(unread.counts.held_by, read.counts.held_by);
        assert_eq!((unread.status, &unread.plan), (Status::Held, &read.plan));
        assert_eq!(script.cursors()["s"], "c1", "held counts as parked, so the cursor moved");
    }
    assert_eq!((read.counts.held_by.add, read.counts.held_by.update, read.counts.held_by.delete), (1, 1, 1));
}

/// A held update that was seen in a scope which then broke was counted twice: once as seen, once as not read.
#[tokio::test]
async fn what_is_held_is_counted_once_even_if_its_scope_broke_after_it_was_seen() {
    let script = Script::new();
    let rig = Rig::over(script.clone()).guarded(0, 0);
    script.say(&[Seen("a", "s", "1"), Seen("b", "s", "1"), Seen("c", "s", "1"), Complete("s", None)]);
    rig.run().await;
    script.say(&[Seen("a", "s", "2"), Seen("b", "s", "2"), Complete("s", None)]);
    let held = rig.run().await;
    assert_eq!((held.counts.held_by.update, held.counts.held_by.delete), (2, 1));
    script.say(&[Seen("a", "s", "2"), Complete("other", None), Broken("s")]);
    let again = rig.run().await;
    assert_eq!((again.counts.held_by.update, again.counts.held_by.delete), (2, 1), "{again:#?}");
    assert_eq!((again.counts.scanned, &again.plan), (2, &held.plan));
    // Seen and as we know it: there is nothing left to hold.
    script.say(&[Seen("a", "s", "1"), Complete("other", None), Broken("s")]);
    let reverted = rig.run().await;
    assert_eq!((reverted.counts.held_by.update, reverted.counts.unchanged), (1, 1), "{reverted:#?}");
}

#[tokio::test]
async fn a_cursor_stays_where_an_item_failed() {
    let (script, rig) = scripted();
    script.say(&[
        Seen("a", "s", "1"),
        Say::Bad("b", "s"),
        Complete("s", Some("c1")),
        Complete("t", Some("c2")),
    ]);
    let report = rig.run().await;
    assert_eq!((report.status, report.counts.failed, report.counts.added), (Status::Partial, 1, 1));
    rig.run().await;
    let cursors = script.cursors();
    assert_eq!((cursors.get("s"), cursors.get("t").map(String::as_str)), (None, Some("c2")));
}

#[tokio::test]
async fn an_entry_that_cannot_be_used_is_never_taken_for_absent() {
    let (script, rig) = scripted();
    script.say(&[Seen("a", "", "1"), Complete("", None)]);
    rig.run().await;
    script.say(&[Say::Bad("a", ""), Complete("", None)]);
    let report = rig.ran(0, 0, 0, 0).await;
    assert_eq!((report.counts.failed, rig.value("a").await.as_deref()), (1, Some("1")));
}
