//! Scopes that hang from an entry of another scope, and absence that is marked instead of deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use trueup::config::{Guard, Limit};
use trueup::state::Status;

use super::rig::{OPEN, Rig};
use super::scripted::{Say, Script, Told};
use Say::{Broken, Complete, Gone, Seen, Window};

/// `votes/7` hangs from `cases/7`, and `ballots/7` from `votes/7/1`.
fn family() -> (Arc<Script>, Rig) {
    let owners = BTreeMap::from([("votes/7", "cases/7"), ("ballots/7", "votes/7/1")]);
    let script = Arc::new(Script { sorted: true, owners, ..Script::default() });
    (script.clone(), Rig::over(script))
}

const WHOLE: [Say; 7] = [
    Seen("ballots/7/1", "ballots/7", "x"),
    Complete("ballots/7", None),
    Seen("cases/7", "cases", "x"),
    Seen("cases/8", "cases", "x"),
    Complete("cases", None),
    Seen("votes/7/1", "votes/7", "x"),
    Complete("votes/7", None),
];

#[tokio::test]
async fn children_go_with_their_parent_generation_by_generation() {
    let (script, rig) = family();
    script.say(&WHOLE);
    rig.ran(4, 0, 0, 0).await;
    script.say(&[Seen("cases/8", "cases", "x"), Complete("cases", None)]);
    rig.ran(0, 0, 3, 1).await;
    rig.at_rest().await;
}

#[tokio::test]
async fn children_stay_when_nobody_knows_whether_their_parent_is_gone() {
    let (script, rig) = family();
    script.say(&WHOLE);
    rig.run().await;
    script.say(&[Seen("cases/8", "cases", "x"), Broken("cases")]);
    assert_eq!(rig.ran(0, 0, 0, 1).await.counts.unproven, 1);
    script.say(&[Seen("cases/7", "cases", "x"), Seen("cases/8", "cases", "x"), Complete("cases", None)]);
    rig.ran(0, 0, 0, 2).await;
    assert_eq!(rig.bases().await.len(), 4);
}

#[tokio::test]
async fn a_child_scope_that_broke_keeps_its_children_even_if_the_parent_is_gone() {
    let (script, rig) = family();
    script.say(&WHOLE);
    rig.run().await;
    script.say(&[Seen("cases/8", "cases", "x"), Complete("cases", None), Broken("votes/7")]);
    rig.ran(0, 0, 1, 1).await;
    assert_eq!(rig.value("votes/7/1").await.as_deref(), Some("x"));
}

/// A parent that the source itself reports as removed left its children behind for ever.
#[tokio::test]
async fn children_go_with_a_parent_the_source_says_is_gone() {
    let (script, rig) = family();
    script.say(&WHOLE);
    rig.run().await;
    script.say(&[Gone("cases/7", "cases"), Window("cases", None)]);
    rig.ran(0, 0, 3, 0).await;
    rig.at_rest().await;
}

fn marking(guard: Guard) -> (Arc<Script>, Rig) {
    let script = Script::new();
    (script.clone(), Rig { shape: Arc::new(Told { marks_absent: true }), guard, ..Rig::over(script) })
}

#[tokio::test]
async fn what_is_absent_can_be_marked_instead() {
    let (script, rig) = marking(OPEN);
    script.say(&[Seen("a", "", "1"), Seen("b", "", "1"), Complete("", None)]);
    rig.run().await;
    script.say(&[Seen("b", "", "1"), Complete("", None)]);
    let report = rig.ran(0, 0, 0, 1).await;
    assert_eq!((report.counts.missing, report.status), (1, Status::Ok));
    assert_eq!(rig.value("a").await.as_deref(), Some("missing"));
    assert_eq!(rig.ran(0, 0, 0, 1).await.writes, 0, "marked once");
    script.say(&[Seen("a", "", "1"), Seen("b", "", "1"), Complete("", None)]);
    rig.ran(0, 1, 0, 1).await;
    rig.at_rest().await;
}

/// A mark that the guard held was counted as a held update nobody had scanned: the counts did not add up, and a
/// healthy run ended as a fault of trueup.
#[tokio::test]
async fn counts_add_up_when_the_marks_of_absent_records_are_held_or_rejected() {
    let (script, rig) = marking(Guard { max_update: Limit::Count(0), ..OPEN });
    script.say(&[Seen("a", "", "1"), Seen("b", "", "1"), Complete("", None)]);
    rig.run().await;
    script.say(&[Seen("b", "", "1"), Complete("", None)]);
    for _ in 0..2 {
        let held = rig.run().await;
        assert_eq!((held.status, held.counts.held), (Status::Held, 1));
    }
    let plan = rig.held().await.unwrap().plan;
    rig.reject(&plan).await.unwrap();
    assert_eq!(rig.run().await.status, Status::Ok);
    assert_eq!(rig.value("a").await.as_deref(), Some("1"));
}

/// What a source reports as removed was deleted whatever the shape said about absence.
#[tokio::test]
async fn what_the_source_says_is_gone_is_marked_where_absence_is() {
    let (script, rig) = marking(OPEN);
    script.say(&[Seen("a", "", "1"), Seen("b", "", "1"), Window("", None)]);
    rig.run().await;
    script.say(&[Gone("a", ""), Window("", None)]);
    let report = rig.run().await;
    assert_eq!((report.counts.missing, report.counts.deleted), (1, 0));
    assert_eq!(rig.value("a").await.as_deref(), Some("missing"));
}
