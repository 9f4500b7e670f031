//! The engine's promises with its state in a server.

use trueup::pipeline::Ask;
use trueup::state::Status;

use super::{Server, rig_on};
use crate::faults;
use crate::flow::rig::{Rig, did};

/// Everything a person does with a pipeline, one after the other.
async fn a_whole_story(server: Server) {
    let rig = rig_on(server).await.guarded(2, 100);
    rig.give_many(40, "one").await;
    rig.ran(40, 0, 0, 0).await;
    rig.in_step().await;
    rig.ran(0, 0, 0, 40).await;

    rig.give_many(5, "two").await;
    rig.take_away(&["k30", "k31", "k32"]).await;
    let held = rig.ran(0, 5, 0, 32).await;
    assert_eq!((held.status, held.counts.held_by.delete), (Status::Held, 3));
    let approved = rig.approve(held.plan.as_ref().unwrap()).await.unwrap();
    assert_eq!(did(&approved)[2], 3);
    rig.in_step().await;

    let undone = rig.line().await.undo(&held.id, &Ask::plain("undo"), None).await.unwrap();
    assert_eq!(undone.counts.updated, 5, "{undone:#?}");
    assert_eq!(rig.value("k00").await.as_deref(), Some("one"));
    rig.at_rest().await;
}

#[tokio::test]
async fn sync_hold_approve_and_undo_work_on_etcd() {
    a_whole_story(Server::Etcd).await;
}

#[tokio::test]
async fn sync_hold_approve_and_undo_work_on_postgres() {
    a_whole_story(Server::Postgres).await;
}

async fn first_on(server: Server) -> Rig {
    let rig = rig_on(server).await;
    rig.give_many(7, "one").await;
    rig
}

#[tokio::test]
async fn a_first_sync_survives_trouble_at_every_step_on_etcd() {
    faults::every_step(async || first_on(Server::Etcd).await, false).await;
}

#[tokio::test]
async fn a_first_sync_survives_trouble_at_every_step_on_postgres() {
    faults::every_step(async || first_on(Server::Postgres).await, false).await;
}

/// More than etcd takes in one request, in one value and in one batch; and undo brings all of it back.
async fn large_values(server: Server) {
    let rig = Rig { batch: None, ..rig_on(server).await };
    let huge = "h".repeat(3_500_000);
    let large: Vec<(String, String)> =
        (0..20).map(|n| (format!("l{n:02}"), format!("{n}{}", "x".repeat(200_000)))).collect();
    rig.give(&[("huge", huge.as_str())]).await;
    let borrowed: Vec<(&str, &str)> =
        large.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    rig.give(&borrowed).await;
    rig.ran(21, 0, 0, 0).await;
    rig.give(&[("huge", "small")]).await;
    for (key, _) in &large {
        rig.give(&[(key, "small")]).await;
    }
    let report = rig.ran(0, 21, 0, 0).await;
    rig.in_step().await;
    let undone = rig.line().await.undo(&report.id, &Ask::plain("undo"), None).await.unwrap();
    assert_eq!(undone.counts.updated, 21, "{undone:#?}");
    assert_eq!(rig.value("huge").await, Some(huge));
    assert_eq!(rig.value("l07").await.as_ref(), Some(&large[7].1));
}

#[tokio::test]
async fn prior_values_larger_than_a_request_are_kept_on_etcd() {
    large_values(Server::Etcd).await;
}

#[tokio::test]
async fn prior_values_larger_than_a_request_are_kept_on_postgres() {
    large_values(Server::Postgres).await;
}

/// Two pipelines that begin at one instant, with clocks that stand still, are two runs.
#[tokio::test]
async fn runs_that_begin_at_one_instant_have_ids_of_their_own() {
    let rig = rig_on(Server::Postgres).await;
    rig.run().await;
    let mut lines = Vec::new();
    for number in 0..8 {
        lines.push(trueup::pipeline::Pipeline { name: format!("line-{number}"), ..rig.line().await });
    }
    let ask = Ask::plain("test");
    let runs = futures::future::join_all(lines.iter().map(|line| line.run(&ask))).await;
    let ids: std::collections::BTreeSet<String> = runs.into_iter().map(|run| run.unwrap().id).collect();
    assert_eq!(ids.len(), 8, "{ids:?}");
}
