//! A look at one key, and a run that a person stops.

use std::sync::Arc;

use trueup::pipeline::{Ask, Progress, Stop};
use trueup::state::Status;

use super::rig::{Rig, did};

#[tokio::test]
async fn only_one_key_is_touched_when_only_one_is_asked_for() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b", "1"), ("c", "1")]).await;
    rig.run().await;
    rig.give(&[("a", "2"), ("b", "2"), ("d", "2")]).await;
    rig.take_away(&["c"]).await;
    let report = rig.run_only("b").await;
    assert_eq!((did(&report), report.counts.scanned), ([0, 1, 0, 0], 1));
    assert_eq!(did(&rig.run_only("c").await), [0, 0, 1, 0]);
    assert_eq!(did(&rig.run_only("no such key").await), [0; 4]);
    assert_eq!((rig.value("a").await.as_deref(), rig.value("d").await), (Some("1"), None));
    rig.ran(1, 1, 0, 1).await;
    rig.in_step().await;
}

#[tokio::test]
async fn a_look_at_one_key_leaves_what_is_held_as_it_is() {
    let rig = Rig::new().guarded(1, 100);
    rig.give_many(4, "x").await;
    rig.run().await;
    rig.take_away(&["k00", "k01"]).await;
    rig.run().await;
    let held = rig.held().await;
    assert!(held.is_some());
    rig.run_only("k03").await;
    assert_eq!(rig.held().await, held);
}

/// Stops the run when writing begins, or after some items.
struct StopAt {
    stop: Stop,
    step: &'static str,
}

impl Progress for StopAt {
    fn step(&self, _pipeline: &str, name: &'static str, _items: Option<u64>) {
        if name == self.step {
            self.stop.set();
        }
    }

    fn advance(&self, _items: u64) {
        if self.step == "advance" {
            self.stop.set();
        }
    }
}

/// A first run writes while it reads, any other reads first.
#[tokio::test]
async fn a_stopped_run_finishes_what_is_in_flight_and_the_next_goes_on() {
    // A stop before anything is in flight finds nothing to finish.
    let stops = [
        ("advance", true, 5),
        ("reading and writing", true, 0),
        ("advance", false, 5),
        ("writing", false, 0),
        ("reading", false, 0),
    ];
    for (step, first, added) in stops {
        let rig = Rig { batch: Some(5), ..Rig::new() };
        let known = if first { 0 } else { 1 };
        if !first {
            rig.give(&[("a", "1")]).await;
            rig.run().await;
        }
        rig.give_many(30, "x").await;
        let stop = Stop::default();
        let progress = Arc::new(StopAt { stop: stop.clone(), step });
        let report = rig.ask(Ask { stop, progress, ..Ask::plain("test") }).await.unwrap();
        assert_eq!((report.status, report.exit_code()), (Status::Canceled, 130));
        assert_eq!((report.counts.added, report.writes), (added, added), "{step}");
        rig.at_rest().await;
        rig.ran(30 - added, 0, 0, known + added).await;
        rig.in_step().await;
    }
}
