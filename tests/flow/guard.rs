//! The guard: over a threshold every change of that kind waits for a person, and the rest goes on.

use trueup::config::Guard;
use trueup::state::Status;

use super::rig::{Rig, did};

#[tokio::test]
async fn a_mass_delete_is_held_whole_and_the_rest_goes_on() {
    let rig = Rig { guard: Guard::default(), ..Rig::new() };
    rig.give_many(20, "x").await;
    rig.run().await;
    for number in 0..7 {
        rig.take_away(&[&format!("k{number:02}")]).await;
    }
    rig.give(&[("k10", "changed"), ("new", "y")]).await;
    let report = rig.ran(1, 1, 0, 12).await;
    assert_eq!((report.status, report.exit_code()), (Status::Held, 4));
    assert_eq!((report.counts.held, report.counts.held_by.delete), (7, 7));
    assert_eq!(rig.value("k00").await.as_deref(), Some("x"), "held, not deleted");
    assert_eq!(
        (rig.value("k10").await.as_deref(), rig.value("new").await.as_deref()),
        (Some("changed"), Some("y"))
    );
    rig.at_rest().await;
}

#[tokio::test]
async fn below_the_threshold_nothing_is_held() {
    let rig = Rig { guard: Guard::default(), ..Rig::new() };
    rig.give_many(20, "x").await;
    rig.run().await;
    rig.take_away(&["k00", "k01", "k02", "k03", "k04", "k05"]).await;
    rig.ran(0, 0, 6, 14).await;
}

#[tokio::test]
async fn a_mass_update_is_held_whole_and_deletes_go_on() {
    let rig = Rig::new().guarded(5, 2);
    rig.give_many(10, "x").await;
    rig.run().await;
    rig.give_many(3, "y").await;
    rig.take_away(&["k09"]).await;
    let report = rig.ran(0, 0, 1, 6).await;
    assert_eq!((report.counts.held, report.counts.held_by.update), (3, 3));
    assert_eq!(rig.value("k00").await.as_deref(), Some("x"));
    rig.at_rest().await;
}

#[tokio::test]
async fn what_is_held_is_said_on_every_run_under_one_name_since_the_first() {
    let rig = Rig::new().guarded(0, 100);
    rig.give_many(4, "x").await;
    rig.run().await;
    rig.take_away(&["k00", "k01"]).await;
    let first = rig.run().await;
    let since = rig.held().await.unwrap();
    rig.clock.advance(std::time::Duration::from_secs(60));
    let second = rig.run().await;
    assert_eq!((first.counts.held, second.counts.held), (2, 2));
    assert_eq!((&first.plan, rig.held().await.as_ref()), (&second.plan, Some(&since)));
}

#[tokio::test]
async fn what_comes_back_to_the_source_is_no_longer_held() {
    let rig = Rig::new().guarded(0, 100);
    rig.give_many(4, "x").await;
    rig.run().await;
    rig.take_away(&["k00"]).await;
    rig.run().await;
    rig.give(&[("k00", "x")]).await;
    let report = rig.ran(0, 0, 0, 4).await;
    assert_eq!((report.status, rig.held().await), (Status::Ok, None));
    rig.in_step().await;
}

#[tokio::test]
async fn a_preview_holds_what_a_run_holds_and_writes_nothing() {
    let rig = Rig::new().guarded(1, 100);
    rig.give_many(4, "x").await;
    rig.run().await;
    rig.take_away(&["k00", "k01"]).await;
    let before = rig.state_bytes().await;
    let line = rig.line().await;
    let preview = line.preview(&trueup::pipeline::Ask::plain("plan")).await.unwrap();
    assert_eq!((preview.held.len(), preview.delete.len(), preview.unchanged), (2, 0, 2));
    assert_eq!(preview.held[0].rule, "max_delete 1");
    assert_eq!(before, rig.state_bytes().await);
    let report = rig.run().await;
    assert_eq!((Some(preview.id), did(&report)), (report.plan, [0, 0, 0, 2]));
}
