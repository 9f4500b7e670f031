//! Trouble in the middle of a run, one kind at a time. (Every place at which trouble may come: `faults`.)

use std::sync::Arc;

use trueup::error::Kind;
use trueup::state::Status;
use trueup::store::SharedStore;
use trueup::store::faulty::{Faulty, Mishap, Verb};

use super::rig::Rig;
use super::scripted::{Say, Script};

fn faulty(rig: &Rig, inner: &SharedStore) -> Arc<Faulty> {
    Arc::new(Faulty::new(inner.clone(), rig.clock.clone()))
}

#[tokio::test]
async fn an_answer_that_got_lost_is_asked_for_again() {
    let mut rig = Rig::new();
    rig.give_many(3, "x").await;
    let target = faulty(&rig, &rig.target);
    target.at_verb(Verb::Write, 1, Mishap::FailAfterWrite);
    rig.target = target;
    let report = rig.ran(3, 0, 0, 0).await;
    assert_eq!(report.writes, 3, "they were written, by the first attempt");
    assert!(rig.clock.slept_ms() > 0);
    rig.in_step().await;
}

/// Writing went wrong in the middle, and the cursor moved all the same: what had not been written was never read again.
#[tokio::test]
async fn a_cursor_stays_when_the_run_broke_off() {
    for (name, verb, call) in [("state", Verb::Write, 3), ("target", Verb::Get, 1)] {
        let script = Script::new();
        let mut rig = Rig { batch: Some(1), ..Rig::over(script.clone()) };
        script.say(&[Say::Seen("a", "s", "1"), Say::Seen("b", "s", "1"), Say::Complete("s", None)]);
        rig.run().await;
        script.say(&[Say::Seen("a", "s", "2"), Say::Seen("b", "s", "2"), Say::Complete("s", Some("c1"))]);
        let (whole_target, whole_state) = (rig.target.clone(), rig.memory.clone());
        if name == "state" {
            let state = faulty(&rig, &whole_state);
            state.at_verb(verb, call, Mishap::Reject);
            rig.memory = state;
        } else {
            let target = faulty(&rig, &whole_target);
            target.at_verb(verb, call, Mishap::Reject);
            rig.target = target;
        }
        let report = rig.line().await.run(&trueup::pipeline::Ask::plain("test")).await.unwrap();
        assert!(report.cause.is_some(), "{name}: {report:#?}");
        (rig.target, rig.memory) = (whole_target, whole_state);
        rig.run().await;
        assert_eq!(script.cursors().get("s"), None, "{name}");
        assert_eq!(rig.value("b").await.as_deref(), Some("2"), "{name}");
        rig.at_rest().await;
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_written_ends_the_run_and_loses_nothing() {
    let mut rig = Rig { batch: Some(2), ..Rig::new() };
    rig.give_many(6, "x").await;
    let whole = rig.target.clone();
    let target = faulty(&rig, &whole);
    target.from(3, Mishap::Reject);
    rig.target = target;
    let report = rig.run().await;
    assert_eq!((report.status, report.cause), (Status::Partial, Some(Kind::Unavailable)));
    assert_eq!(report.exit_code(), 5);
    rig.target = whole;
    let report = rig.run().await;
    assert_eq!((report.status, report.counts.added + report.counts.unchanged), (Status::Ok, 6));
    rig.in_step().await;
}

/// The disk was full, so the run could not even be written down; the report was lost with it, and the command said
/// that no run had started.
#[tokio::test]
async fn a_run_that_cannot_be_recorded_is_reported_all_the_same() {
    let mut rig = Rig::new();
    rig.give_many(2, "x").await;
    let whole = rig.memory.clone();
    let state = faulty(&rig, &whole);
    state.from(11, Mishap::Reject);
    rig.memory = state;
    let report = rig.line().await.run(&trueup::pipeline::Ask::plain("test")).await.unwrap();
    assert!(report.cause.is_some(), "{report:#?}");
    assert_ne!(report.status, Status::Running);
    rig.memory = whole;
    rig.run().await;
    rig.in_step().await;
}
