//! A registry whose state was lost, or is an older one: what it says is still to be done is done.

use std::path::PathBuf;

use trueup::queue::{self, dead};
use trueup::store::Access;

use super::desk::{Desk, policy};
use crate::support::github::Trouble;

/// Nothing can be exported while this is in the way.
fn shut(desk: &Desk) -> PathBuf {
    let at = desk.folder.path().join("objects");
    std::fs::write(&at, "in the way").unwrap();
    at
}

/// The files of the state, as they are or would be.
fn state_files(desk: &Desk) -> Vec<PathBuf> {
    ["state.db", "state.db-wal", "state.db-shm"].map(|name| desk.folder.path().join(name)).into()
}

fn lose_state(desk: &Desk) {
    for file in state_files(desk) {
        std::fs::remove_file(file).ok();
    }
}

#[tokio::test]
async fn exports_that_waited_are_done_although_the_state_was_lost() {
    let desk = Desk::with_policies(12).exporting();
    let blocked = shut(&desk);
    desk.ran([12, 0, 0, 0]).await;
    assert_eq!(desk.held("queue:").await.len(), 12);
    lose_state(&desk);
    desk.hub.trouble(Trouble { broken_trees: true, ..Trouble::default() });
    desk.run().await;
    assert_eq!(desk.held("queue:").await.len(), 12, "whatever comes before they can be done");
    desk.hub.trouble(Trouble::default());
    std::fs::remove_file(blocked).unwrap();
    desk.hub.asked();
    desk.ran([0, 0, 0, 12]).await;
    assert_eq!((desk.objects(), desk.hub.asked()), (12, [1, 1, 12]));
    assert!(desk.held("queue:").await.is_empty());
    assert!(desk.object("p07").unwrap().ends_with(&policy(7)));
}

#[tokio::test]
async fn entries_for_somebody_outside_stay_although_the_state_was_lost() {
    let desk = Desk::with_policies(3);
    desk.ran([3, 0, 0, 0]).await;
    desk.hub.put("policies/p01.md", "# Revised\n");
    desk.ran([0, 1, 0, 2]).await;
    let before = desk.held("queue:").await;
    lose_state(&desk);
    desk.ran([0, 0, 0, 3]).await;
    assert_eq!(desk.held("queue:").await, before);
    let line = desk.line(Access::Write).await;
    assert_eq!(queue::waiting(&line.state).await.unwrap().len(), 3, "and can be taken");
}

#[tokio::test]
async fn dead_letters_are_still_dead_although_the_state_was_lost() {
    let desk = Desk::with_policies(12).exporting();
    let blocked = desk.folder.path().join("objects/policies/p03/policy.md");
    std::fs::create_dir_all(blocked.join("x")).unwrap();
    for _ in 0..3 {
        desk.run().await;
    }
    let before = desk.held("dead-letter:").await;
    assert_eq!(before.len(), 1);
    lose_state(&desk);
    desk.ran([0, 0, 0, 12]).await;
    assert_eq!(desk.held("dead-letter:").await, before);
    std::fs::remove_dir_all(blocked).unwrap();
    let line = desk.line(Access::Write).await;
    dead::retry(&line.state, &dead::all(&line.state).await.unwrap()).await.unwrap();
    desk.ran([0, 0, 0, 12]).await;
    assert!(desk.held("dead-letter:").await.is_empty() && desk.objects() == 12);
}

#[tokio::test]
async fn entries_without_a_policy_are_nobodys_work() {
    let desk = Desk::with_policies(2).exporting();
    desk.intrude("queue:long-gone", &serde_json::json!({"policyName": "long-gone"})).await;
    desk.intrude("dead-letter:long-gone", &serde_json::json!("odd")).await;
    desk.ran([2, 0, 0, 0]).await;
    assert!(desk.held("queue:").await.is_empty() && desk.held("dead-letter:").await.is_empty());
}

#[tokio::test]
async fn a_state_of_before_exports_what_was_written_since() {
    let desk = Desk::with_policies(12).exporting();
    desk.ran([12, 0, 0, 0]).await;
    let kept: Vec<Option<Vec<u8>>> = state_files(&desk).iter().map(|file| std::fs::read(file).ok()).collect();
    let objects = desk.folder.path().join("objects");
    std::fs::rename(&objects, desk.folder.path().join("aside")).unwrap();
    let blocked = shut(&desk);
    desk.hub.put("policies/new.md", "# New\n");
    desk.hub.put("policies/p03.md", "# Revised\n");
    desk.ran([1, 1, 0, 11]).await;
    lose_state(&desk);
    for (file, bytes) in state_files(&desk).iter().zip(kept) {
        if let Some(bytes) = bytes {
            std::fs::write(file, bytes).unwrap();
        }
    }
    std::fs::remove_file(blocked).unwrap();
    std::fs::rename(desk.folder.path().join("aside"), &objects).unwrap();
    let report = desk.run().await;
    assert_eq!(report.exit_code(), 0, "{report:#?}");
    assert_eq!((desk.objects(), desk.held("queue:").await.len()), (13, 0));
    assert!(desk.object("new").unwrap().ends_with("# New\n"));
    assert!(desk.object("p03").unwrap().ends_with("# Revised\n"));
}
