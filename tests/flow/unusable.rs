//! Entries that are there but cannot be used, are left alone, or lose to another of the same identity.

use std::sync::Arc;

use trueup::state::{Report, Status};

use super::rig::Rig;
use super::scripted::{Say, Script, Told};
use Say::{Complete, Seen, Unchanged};

fn told() -> (Arc<Script>, Rig) {
    let script = Script::new();
    (script.clone(), Rig { shape: Arc::new(Told::default()), ..Rig::over(script) })
}

fn warned(report: &Report, of: &str) -> bool {
    report.warnings.iter().any(|warning| warning.contains(of))
}

#[tokio::test]
async fn of_two_entries_with_one_identity_the_smaller_wins_on_every_run() {
    let (script, rig) = told();
    for lines in [
        [Seen("doc@b", "s", "from b"), Seen("doc@a", "s", "from a"), Complete("s", None)],
        [Seen("doc@a", "s", "from a"), Seen("doc@b", "s", "from b"), Complete("s", None)],
    ] {
        script.say(&lines);
        let report = rig.run().await;
        assert_eq!((report.counts.scanned, report.counts.skipped), (2, 1));
        assert!(warned(&report, "doc@b is shadowed by doc@a"), "{:?}", report.warnings);
        assert_eq!(rig.value("doc").await.as_deref(), Some("from a"));
    }
    script.say(&[Seen("doc@b", "s", "from b"), Complete("s", None)]);
    let report = rig.ran(0, 1, 0, 0).await;
    assert_eq!((report.counts.skipped, rig.value("doc").await.as_deref()), (0, Some("from b")));
}

#[tokio::test]
async fn a_shadowed_entry_is_reported_even_when_its_scope_was_not_read() {
    let (script, rig) = told();
    script.say(&[Seen("doc@a", "s", "1"), Seen("doc@b", "s", "2"), Complete("s", Some("c1"))]);
    let read = rig.run().await;
    script.say(&[Unchanged("s")]);
    for _ in 0..2 {
        let unread = rig.run().await;
        assert_eq!(unread.counts.scanned, read.counts.scanned);
        assert_eq!((unread.counts.skipped, unread.counts.unchanged), (1, 1));
        assert!(warned(&unread, "doc@b"), "{:?}", unread.warnings);
    }
}

#[tokio::test]
async fn an_unusable_entry_is_skipped_and_reported_until_it_can_be_used() {
    let (script, rig) = told();
    script.say(&[Seen("a", "s", "skip no title"), Seen("b", "s", "1"), Complete("s", Some("c1"))]);
    let report = rig.ran(1, 0, 0, 0).await;
    assert_eq!((report.status, report.counts.skipped), (Status::Ok, 1));
    script.say(&[Unchanged("s")]);
    for _ in 0..2 {
        let unread = rig.run().await;
        assert_eq!((unread.counts.scanned, unread.counts.skipped, unread.counts.unchanged), (2, 1, 1));
        assert!(warned(&unread, "no title"), "{:?}", unread.warnings);
    }
    script.say(&[Seen("a", "s", "titled"), Seen("b", "s", "1"), Complete("s", Some("c2"))]);
    assert!(!warned(&rig.ran(1, 0, 0, 1).await, "no title"));
    script.say(&[Unchanged("s")]);
    assert!(!warned(&rig.ran(0, 0, 0, 2).await, "no title"));
}

#[tokio::test]
async fn what_is_stored_stays_when_its_entry_becomes_unusable() {
    let (script, rig) = told();
    script.say(&[Seen("a", "s", "good"), Complete("s", Some("c1"))]);
    rig.run().await;
    script.say(&[Seen("a", "s", "skip broken now"), Complete("s", Some("c2"))]);
    for _ in 0..2 {
        let report = rig.run().await;
        assert_eq!((report.counts.skipped, report.counts.scanned), (1, 1));
    }
    script.say(&[Unchanged("s")]);
    let unread = rig.run().await;
    assert_eq!((unread.counts.skipped, unread.counts.unchanged), (1, 0));
    assert_eq!(rig.value("a").await.as_deref(), Some("good"));
    script.say(&[Complete("s", Some("c3"))]);
    rig.ran(0, 0, 1, 0).await;
    assert!(!warned(&rig.run().await, "broken now"));
}

#[tokio::test]
async fn an_entry_to_be_kept_is_left_as_it_is_and_not_asked_again() {
    let (script, rig) = told();
    script.say(&[Seen("a", "s", "first"), Complete("s", None)]);
    rig.run().await;
    script.say(&[Seen("a", "s", "keep as published"), Complete("s", None)]);
    rig.ran(0, 0, 0, 1).await;
    rig.ran(0, 0, 0, 1).await;
    assert_eq!(rig.value("a").await.as_deref(), Some("first"));
}

/// An unsorted source is sorted on the way.
#[tokio::test]
async fn the_order_of_a_listing_makes_no_difference() {
    let script = Arc::new(Script::default());
    let rig = Rig::over(script.clone());
    script.say(&[Seen("b", "", "1"), Seen("c", "", "1"), Seen("a", "", "1"), Complete("", None)]);
    rig.ran(3, 0, 0, 0).await;
    script.say(&[Seen("c", "", "2"), Complete("", None), Seen("a", "", "1")]);
    rig.ran(0, 1, 1, 1).await;
    rig.at_rest().await;
}
