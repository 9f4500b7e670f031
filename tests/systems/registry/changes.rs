//! What changes at the source changes in the registry, and nothing else does.

use std::time::Duration;

use super::desk::{Desk, T1, T2, did, policy};
use crate::support::github::sha;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn scenario_01_an_empty_registry_is_filled() {
    let desk = Desk::with_policies(94).exporting();
    let report = desk.ran([94, 0, 0, 0]).await;
    assert_eq!((report.requests, report.writes), (96, 94));
    assert_eq!(desk.hub.asked(), [1, 1, 94]);
    assert_eq!((desk.names().await.len(), desk.objects()), (94, 94));
    assert_eq!(desk.last_commit().await, Some(desk.hub.head()));
    let row = desk.policy("p07").await;
    assert_eq!(row["sha"], sha(policy(7).as_bytes()));
    assert_eq!((&row["title"], &row["path"]), (&"Policy 7".into(), &"policies/p07.md".into()));
    assert_eq!((&row["status"], &row["lastUpdated"]), (&"active".into(), &T1.into()));
    let run = desk.last_run().await;
    assert_eq!(
        (&run["added"], &run["totalProcessed"], &run["status"]),
        (&94.into(), &94.into(), &"success".into())
    );
    assert_eq!(
        (&run["commitSHA"], &run["previousCommitSHA"]),
        (&desk.hub.head().into(), &serde_json::Value::Null)
    );
    assert!(desk.object("p07").unwrap().ends_with(&format!("---\n\n{}", policy(7))));
}

#[tokio::test]
async fn scenario_02_the_same_commit_costs_one_request_and_no_change() {
    let desk = Desk::with_policies(94);
    desk.ran([94, 0, 0, 0]).await;
    let before = desk.held("policy:").await;
    desk.hub.asked();
    desk.clock.advance(DAY);
    let report = desk.ran([0, 0, 0, 94]).await;
    assert_eq!((report.requests, desk.hub.asked()), (1, [1, 0, 0]));
    assert_eq!(desk.held("policy:").await, before);
    let run = desk.last_run().await;
    assert_eq!((&run["timestamp"], &run["totalProcessed"]), (&T2.into(), &94.into()));
    assert_eq!((&run["added"], &run["updated"], &run["deleted"]), (&0.into(), &0.into(), &0.into()));
}

#[tokio::test]
async fn scenario_03_removed_files_take_everything_of_theirs_along() {
    let desk = Desk::with_policies(94).exporting();
    desk.ran([94, 0, 0, 0]).await;
    let before = desk.held("policy:").await;
    desk.hub.asked();
    for number in 0..5 {
        desk.hub.remove(&format!("policies/p{number:02}.md"));
    }
    let report = desk.ran([0, 0, 5, 89]).await;
    assert_eq!((report.requests, desk.hub.asked()), (2, [1, 1, 0]));
    let after = desk.held("policy:").await;
    assert_eq!(after.len(), 89);
    assert!(after.iter().all(|(key, value)| before[key] == *value), "the others are untouched");
    assert_eq!((desk.objects(), desk.object("p03")), (89, None));
    assert!(desk.held("queue:").await.is_empty() && desk.held("dead-letter:").await.is_empty());
}

#[tokio::test]
async fn scenario_03_queue_items_of_removed_policies_go_with_them() {
    let desk = Desk::with_policies(20);
    desk.ran([20, 0, 0, 0]).await;
    assert_eq!(desk.held("queue:").await.len(), 20, "they wait for somebody outside");
    desk.hub.remove("policies/p03.md");
    desk.ran([0, 0, 1, 19]).await;
    let queue = desk.held("queue:").await;
    assert!(queue.len() == 19 && !queue.contains_key("queue:p03"), "{queue:?}");
}

#[tokio::test]
async fn scenario_04_moved_files_keep_their_identity_and_need_no_blob() {
    let desk = Desk::with_policies(94).exporting();
    desk.ran([94, 0, 0, 0]).await;
    desk.hub.asked();
    desk.clock.advance(DAY);
    for number in 0..6 {
        desk.hub.rename(&format!("policies/p{number:02}.md"), &format!("moved/p{number:02}.md"));
    }
    let report = desk.ran([0, 6, 0, 88]).await;
    assert_eq!((report.requests, desk.hub.asked()), (2, [1, 1, 0]));
    for number in 0..94 {
        let (row, moved) = (desk.policy(&format!("p{number:02}")).await, number < 6);
        let folder = if moved { "moved" } else { "policies" };
        assert_eq!(row["path"], format!("{folder}/p{number:02}.md"));
        assert_eq!(row["lastUpdated"], if moved { T2 } else { T1 });
    }
    let object = desk.object("p03").unwrap();
    assert!(object.contains("path: \"moved/p03.md\"") && object.ends_with(&policy(3)), "{object}");
}

#[tokio::test]
async fn scenario_05_a_renamed_file_is_one_addition_and_one_deletion() {
    let desk = Desk::with_policies(20);
    desk.ran([20, 0, 0, 0]).await;
    desk.hub.rename("policies/p03.md", "policies/renamed.md");
    desk.ran([1, 0, 1, 19]).await;
    let names = desk.names().await;
    assert!(names.contains(&"renamed".to_owned()) && !names.contains(&"p03".to_owned()));
}

#[tokio::test]
async fn scenario_06_a_mass_rename_is_held_and_after_approval_the_names_are_the_trees() {
    let desk = Desk::with_policies(94);
    desk.ran([94, 0, 0, 0]).await;
    for number in 0..92 {
        desk.hub.rename(&format!("policies/p{number:02}.md"), &format!("policies/q{number:02}.md"));
    }
    let held = desk.run().await;
    assert_eq!((did(&held), held.counts.held_by.delete, held.exit_code()), ([92, 0, 0, 2], 92, 4));
    assert_eq!(desk.last_run().await["status"], "partial");
    let approved = desk.approve().await;
    assert_eq!((approved.counts.deleted, approved.exit_code()), (92, 0), "{approved:#?}");
    let stem = |path: String| path["policies/".len()..].trim_end_matches(".md").to_owned();
    assert_eq!(desk.names().await, desk.hub.paths().into_iter().map(stem).collect::<Vec<_>>());
}

#[tokio::test]
async fn scenario_07_one_changed_blob_costs_three_requests_and_changes_one_entry() {
    let desk = Desk::with_policies(94);
    desk.ran([94, 0, 0, 0]).await;
    let before = desk.held("policy:").await;
    desk.hub.asked();
    desk.clock.advance(DAY);
    desk.hub.put("policies/p03.md", "# Revised\n");
    let report = desk.ran([0, 1, 0, 93]).await;
    assert_eq!((report.requests, desk.hub.asked()), (3, [1, 1, 1]));
    let changed: Vec<String> = desk
        .held("policy:")
        .await
        .into_iter()
        .filter(|(key, value)| before[key] != *value)
        .map(|(key, _)| key)
        .collect();
    assert_eq!(changed, ["policy:p03"]);
    let row = desk.policy("p03").await;
    assert_eq!((&row["title"], &row["lastUpdated"]), (&"Revised".into(), &T2.into()));
    assert_eq!(desk.last_run().await["previousCommitSHA"].as_str().map(str::len), Some(40));
}
