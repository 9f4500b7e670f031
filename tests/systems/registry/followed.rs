//! Documents as objects, and the queue as others read it.

use serde_json::Value;
use trueup::operations::follow::{self, Which};
use trueup::pipeline::Ask;
use trueup::pipeline::open::Memory;
use trueup::store::Access;

use super::desk::{Desk, T1, policy};

/// A folder in the object's place: that one export cannot succeed, the others can.
fn block(desk: &Desk, name: &str) {
    std::fs::create_dir_all(desk.folder.path().join(format!("objects/policies/{name}/policy.md/x"))).unwrap();
}

fn unblock(desk: &Desk, name: &str) {
    std::fs::remove_dir_all(desk.folder.path().join(format!("objects/policies/{name}/policy.md"))).unwrap();
}

#[tokio::test]
async fn scenario_22_an_export_that_fails_in_three_runs_is_a_dead_letter_and_the_others_are_done() {
    let desk = Desk::with_policies(12).exporting();
    block(&desk, "p03");
    let report = desk.run().await;
    assert_eq!((report.counts.added, desk.objects()), (12, 11), "{report:#?}");
    let queue = desk.held("queue:").await;
    assert_eq!(queue.keys().collect::<Vec<_>>(), ["queue:p03"]);
    let entry: Value = serde_json::from_str(&queue["queue:p03"]).unwrap();
    assert_eq!((&entry["policyName"], &entry["operation"]), (&"p03".into(), &"add".into()));
    assert_eq!((&entry["retryCount"], &entry["createdAt"]), (&1.into(), &T1.into()));
    assert!(entry["errorMessage"].is_string() && entry["sha"] == desk.policy("p03").await["sha"], "{entry}");
    desk.hub.asked();
    desk.run().await;
    let last = desk.run().await;
    assert_eq!((last.dead, desk.hub.asked()), (1, [2, 0, 0]), "retried although nothing changed");
    assert!(desk.held("queue:").await.is_empty());
    let letter: Value = desk.value("dead-letter:p03").await.unwrap();
    assert_eq!((&letter["retryCount"], &letter["movedAt"]), (&3.into(), &T1.into()));
}

#[tokio::test]
async fn scenario_22_a_new_version_replaces_what_was_queued_and_stays_an_addition() {
    let desk = Desk::with_policies(12).exporting();
    block(&desk, "p03");
    desk.run().await;
    desk.hub.put("policies/p03.md", "# Revised\n");
    desk.run().await;
    let entry = desk.value("queue:p03").await.unwrap();
    assert_eq!((&entry["operation"], &entry["retryCount"]), (&"add".into(), &1.into()));
    assert_eq!(entry["sha"], desk.policy("p03").await["sha"]);
    unblock(&desk, "p03");
    desk.hub.asked();
    desk.run().await;
    assert_eq!(desk.hub.asked(), [1, 0, 0], "the document waited in the state");
    assert!(desk.object("p03").unwrap().ends_with("# Revised\n"));
    assert!(desk.held("queue:").await.is_empty());
}

#[tokio::test]
async fn scenario_23_what_is_deleted_while_queued_or_dead_leaves_nothing_behind() {
    let desk = Desk::with_policies(12).exporting();
    block(&desk, "p03");
    block(&desk, "p04");
    for _ in 0..3 {
        desk.run().await;
    }
    assert_eq!(desk.held("dead-letter:").await.len(), 2);
    desk.hub.put("policies/p04.md", "# Queued again\n");
    desk.run().await;
    assert_eq!((desk.held("dead-letter:").await.len(), desk.held("queue:").await.len()), (1, 1));
    unblock(&desk, "p03");
    unblock(&desk, "p04");
    desk.hub.remove("policies/p03.md");
    desk.hub.remove("policies/p04.md");
    desk.run().await;
    for prefix in ["policy:p03", "policy:p04", "queue:", "dead-letter:"] {
        assert!(desk.held(prefix).await.is_empty(), "{prefix}");
    }
    assert_eq!((desk.object("p03"), desk.object("p04"), desk.objects()), (None, None, 10));
}

#[tokio::test]
async fn without_an_object_store_the_queue_waits_for_somebody_outside() {
    let desk = Desk::with_policies(3);
    desk.ran([3, 0, 0, 0]).await;
    let entry = desk.value("queue:p01").await.unwrap();
    assert_eq!(
        (&entry["operation"], &entry["retryCount"], &entry["errorMessage"]),
        (&"add".into(), &0.into(), &Value::Null)
    );
    let line = desk.line(trueup::store::Access::Write).await;
    let filter =
        trueup::queue::outside::Filter { pipeline: None, then: None, key: Some("policy:p01".into()) };
    trueup::queue::outside::done(&line.state, &filter, None).await.unwrap();
    desk.ran([0, 0, 0, 3]).await;
    assert_eq!(desk.held("queue:").await.len(), 2);
}

#[tokio::test]
async fn a_dead_letter_that_is_dropped_goes_from_the_registry_too() {
    let desk = Desk::with_policies(12).exporting();
    block(&desk, "p03");
    for _ in 0..3 {
        desk.run().await;
    }
    assert!(desk.value("dead-letter:p03").await.is_some());
    let config = desk.config();
    let memory = Memory::open(&config, Access::Write, desk.clock.clone()).await.unwrap();
    let which = Which { keys: vec!["policy:p03".into()], all: false };
    let done = follow::drop_letters(&config, &memory, which).await.unwrap();
    assert_eq!((done.dropped, done.untold.len()), (1, 0));
    assert_eq!(desk.value("dead-letter:p03").await, None);
    assert_eq!(desk.policy("p03").await["title"], "Policy 3", "the policy stays");
}

#[tokio::test]
async fn an_export_that_is_added_later_gets_every_document() {
    let desk = Desk::with_policies(12);
    desk.ran([12, 0, 0, 0]).await;
    let desk = desk.exporting();
    desk.ran([0, 0, 0, 12]).await;
    assert_eq!((desk.objects(), desk.held("queue:").await.len()), (12, 0));
    assert!(desk.object("p07").unwrap().ends_with(&policy(7)));
    desk.hub.asked();
    desk.ran([0, 0, 0, 12]).await;
    assert_eq!(desk.hub.asked(), [1, 0, 0]);
}

#[tokio::test]
async fn a_full_run_brings_back_the_objects_that_are_gone_and_leaves_the_others() {
    let desk = Desk::with_policies(12).exporting();
    desk.ran([12, 0, 0, 0]).await;
    let (kept, gone) = (desk.object("p04").unwrap(), desk.object("p03").unwrap());
    std::fs::remove_dir_all(desk.folder.path().join("objects/policies/p03")).unwrap();
    desk.clock.advance(std::time::Duration::from_secs(3600));
    desk.hub.asked();
    let line = desk.line(Access::Write).await;
    let report = line.run(&Ask { full: true, exports: true, ..Ask::plain("test") }).await.unwrap();
    assert_eq!((report.exit_code(), report.requests, desk.hub.asked()), (0, 3, [1, 1, 1]), "{report:#?}");
    assert_eq!(desk.object("p04").unwrap(), kept, "saved when it was");
    let back = desk.object("p03").unwrap();
    assert!(back.ends_with(&policy(3)) && back != gone, "{back}");
}
