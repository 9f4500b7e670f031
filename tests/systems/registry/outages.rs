//! When the source or the store fails: nothing is lost, nothing is deleted, and the next run makes it good.

use std::collections::BTreeSet;
use std::sync::Arc;

use trueup::error::Kind;
use trueup::pipeline::{Ask, Pipeline};
use trueup::state::Status;
use trueup::store::Access;
use trueup::store::faulty::{Faulty, Mishap, Verb};

use super::desk::{Desk, did, policy};
use super::picky::Picky;
use crate::support::github::{Trouble, sha};

fn broken(numbers: std::ops::Range<usize>) -> Trouble {
    let blobs: BTreeSet<String> = numbers.map(|number| sha(policy(number).as_bytes())).collect();
    Trouble { broken_blobs: blobs, ..Trouble::default() }
}

#[tokio::test]
async fn scenario_08_blobs_that_cannot_be_fetched_are_failed_and_fetched_next_time() {
    let desk = Desk::with_policies(94);
    desk.hub.trouble(broken(0..45));
    let report = desk.run().await;
    assert_eq!((did(&report), report.counts.failed), ([49, 0, 0, 0], 45));
    assert_eq!((report.status, report.exit_code()), (Status::Partial, 3));
    // Twenty in a row have four attempts each, and those that are asked for meanwhile; then patience is over.
    let [_, _, blobs] = desk.hub.asked();
    assert!((94 + 20 * 3..=94 + 24 * 3).contains(&blobs), "{blobs} requests");
    let run = desk.last_run().await;
    assert_eq!(
        (&run["status"], &run["errorCount"], &run["deleted"]),
        (&"partial".into(), &45.into(), &0.into())
    );
    assert_eq!(desk.last_commit().await, None);
    desk.hub.trouble(Trouble::default());
    desk.hub.asked();
    desk.ran([45, 0, 0, 49]).await;
    assert_eq!(desk.hub.asked(), [1, 1, 45]);
    assert_eq!(desk.last_commit().await, Some(desk.hub.head()));
}

#[tokio::test]
async fn a_blob_that_arrives_short_or_as_another_is_not_taken_for_its_document() {
    let third = || BTreeSet::from([sha(policy(3).as_bytes())]);
    let short = Trouble { short_blobs: third(), ..Trouble::default() };
    let other = Trouble { other_blobs: third(), ..Trouble::default() };
    for trouble in [short, other] {
        let desk = Desk::with_policies(12).exporting();
        desk.hub.trouble(trouble.clone());
        let report = desk.run().await;
        assert_eq!(
            (did(&report), report.counts.failed, report.exit_code()),
            ([11, 0, 0, 0], 1, 3),
            "{trouble:?}"
        );
        desk.hub.trouble(Trouble::default());
        desk.ran([1, 0, 0, 11]).await;
        assert!(desk.object("p03").unwrap().ends_with(&policy(3)));
    }
}

#[tokio::test]
async fn scenario_08_the_same_outage_on_a_full_registry_deletes_nothing() {
    let desk = Desk::with_policies(94);
    desk.ran([94, 0, 0, 0]).await;
    let changed = |number: usize| format!("# Policy {number} revised\n");
    let blobs = (0..45).map(|number| sha(changed(number).as_bytes())).collect();
    for number in 0..45 {
        desk.hub.put(&format!("policies/p{number:02}.md"), changed(number));
    }
    desk.hub.trouble(Trouble { broken_blobs: blobs, ..Trouble::default() });
    let before = desk.held("policy:").await;
    let report = desk.run().await;
    assert_eq!((did(&report), report.counts.failed), ([0, 0, 0, 49], 45));
    assert_eq!(desk.held("policy:").await, before);
}

#[tokio::test]
async fn scenario_09_a_tree_that_cannot_be_read_fails_the_run_and_changes_nothing() {
    let desk = Desk::with_policies(30);
    desk.ran([30, 0, 0, 0]).await;
    let (before, commit) = (desk.held("policy:").await, desk.last_commit().await);
    desk.hub.remove("policies/p00.md");
    desk.hub.trouble(Trouble { broken_trees: true, ..Trouble::default() });
    let report = desk.run().await;
    assert_eq!(report.status, Status::Failed);
    assert_ne!(report.exit_code(), 0);
    assert_eq!((desk.held("policy:").await, desk.last_commit().await), (before, commit));
    let run = desk.last_run().await;
    assert_eq!((&run["status"], &run["totalProcessed"]), (&"failed".into(), &30.into()));
}

#[tokio::test]
async fn half_a_tree_the_promise_of_one_and_another_tree_prove_no_absence() {
    let mut desk = Desk::with_policies(12);
    desk.more = "guard = { max_delete = \"100%\" }\n".into();
    desk.ran([12, 0, 0, 0]).await;
    let (before, commit) = (desk.held("policy:").await, desk.last_commit().await);
    desk.hub.put("policies/new.md", "# New\n");
    let empty = |status| Trouble { empty_trees: Some(status), ..Trouble::default() };
    let troubles =
        [empty(200), empty(202), empty(204), empty(206), Trouble { other_trees: true, ..Trouble::default() }];
    for trouble in troubles {
        desk.hub.trouble(trouble.clone());
        let report = desk.run().await;
        assert_eq!(report.exit_code(), 5, "{trouble:?}: {report:#?}");
        assert_eq!((desk.held("policy:").await, desk.last_commit().await), (before.clone(), commit.clone()));
    }
    desk.hub.trouble(Trouble::default());
    desk.ran([1, 0, 0, 12]).await;
    for path in desk.hub.paths() {
        desk.hub.remove(&path);
    }
    desk.ran([0, 0, 13, 0]).await;
}

#[tokio::test]
async fn scenario_10_a_truncated_tree_is_walked_and_proves_no_absence_if_that_fails() {
    let desk = Desk::with_policies(94);
    desk.ran([94, 0, 0, 0]).await;
    desk.hub.put("other/new.md", "# New\n");
    desk.hub.trouble(Trouble { truncated: Some(50), ..Trouble::default() });
    desk.hub.asked();
    desk.ran([1, 0, 0, 94]).await;
    assert_eq!(desk.hub.asked(), [1, 4, 1], "the whole, the root, and each folder by itself");

    desk.hub.put("other/newer.md", "# Newer\n");
    desk.hub.trouble(Trouble { truncated: Some(50), deep: true, ..Trouble::default() });
    let report = desk.run().await;
    assert_eq!(report.counts.deleted + report.counts.held, 0);
    assert_ne!(report.exit_code(), 0);
    assert_eq!(desk.names().await.len(), 95);
}

#[tokio::test]
async fn scenario_11_a_used_up_rate_limit_costs_one_request_and_names_the_reset() {
    let mut desk = Desk::with_policies(5);
    let token = desk.folder.path().join("token");
    std::fs::write(&token, "hunter2\n").unwrap();
    desk.from = desk.from.replace(" }", &format!(", token_file = \"{}\" }}", token.display()));
    desk.hub.trouble(Trouble { rate_limited_until: Some(1_760_979_600), ..Trouble::default() });
    let report = desk.run().await;
    assert_eq!(report.requests, 1);
    let said = serde_json::to_string(&report).unwrap();
    assert!(said.contains("2025-10-20T17:00:00.000Z"), "{said}");
    assert!(!said.contains("hunter2"));
    let sent = desk.hub.server.requests();
    assert_eq!(sent[0].headers["authorization"], "Bearer hunter2");
    assert_eq!(desk.last_run().await["status"], "failed");
}

#[tokio::test]
async fn a_reset_time_that_cannot_be_read_is_not_made_up() {
    let desk = Desk::with_policies(5);
    desk.hub.trouble(Trouble { rate_limited_until: Some(i64::MAX), ..Trouble::default() });
    let error = &desk.run().await.errors[0];
    assert!(error.message.ends_with("is used up; GitHub did not say until when"), "{error:?}");
    assert!(error.remedy.contains("in an hour"), "{error:?}");
}

#[tokio::test]
async fn requests_that_came_too_fast_are_no_lack_of_rights_and_wait_a_minute() {
    let desk = Desk::with_policies(5);
    desk.hub.trouble(Trouble { too_fast: 2, ..Trouble::default() });
    desk.ran([5, 0, 0, 0]).await;
    assert_eq!(desk.clock.slept_ms(), 2 * 60_000);
    desk.hub.trouble(Trouble { too_fast: usize::MAX, ..Trouble::default() });
    let report = desk.run().await;
    assert_eq!((report.exit_code(), report.errors[0].kind), (5, Kind::Throttled), "{report:#?}");
}

#[tokio::test]
async fn scenario_12_a_missing_branch_is_not_asked_for_twice() {
    let mut desk = Desk::with_policies(5);
    desk.from = desk.from.replace("\"main\"", "\"nope\"");
    let report = desk.run().await;
    assert_eq!((report.requests, report.status), (1, Status::Failed));
    let error = &report.errors[0];
    assert!(error.kind == Kind::NotFound && error.message.contains("knue/policies"), "{error:?}");
    assert!(error.message.contains("nope"), "{error:?}");
}

#[tokio::test]
async fn scenario_13_two_timeouts_then_success() {
    let desk = Desk::with_policies(3);
    desk.hub.trouble(Trouble { silent: 2, ..Trouble::default() });
    let report = desk.ran([3, 0, 0, 0]).await;
    assert_eq!(report.requests, 2 + 5);
    assert!(desk.clock.slept_ms() >= 3_000, "one second, then two");
}

#[tokio::test]
async fn scenario_20_two_keys_that_cannot_be_written_are_named_and_written_next_time() {
    let mut desk = Desk::with_policies(120);
    desk.more = "batch = 50\n".into();
    let (line, picky) = Picky::at(&desk, true).await;
    picky.refuse(|key| ["policy:p61", "policy:p77"].contains(&key));
    let report = line.run(&Ask::plain("test")).await.unwrap();
    assert_eq!((report.writes, report.counts.failed, report.status), (118, 2, Status::Partial));
    let mut named: Vec<_> = report.errors.iter().filter_map(|fault| fault.key.clone()).collect();
    named.sort();
    assert_eq!(named, ["policy:p61", "policy:p77"]);
    picky.refuse(|_| false);
    let report = line.run(&Ask::plain("test")).await.unwrap();
    assert_eq!((report.writes, did(&report)), (2, [2, 0, 0, 118]));
    assert_eq!(desk.last_commit().await, Some(desk.hub.head()));
}

#[tokio::test]
async fn scenario_21_a_run_cut_off_between_batches_is_made_good() {
    let mut undisturbed = Desk::with_policies(60);
    undisturbed.more = "batch = 10\n".into();
    undisturbed.ran([60, 0, 0, 0]).await;
    let expected = undisturbed.held("").await;
    for call in 1..=7 {
        let mut desk = Desk::with_policies(60);
        desk.more = "batch = 10\n".into();
        let line = desk.line(Access::Write).await;
        let faulty = Arc::new(Faulty::new(line.store.clone(), desk.clock.clone()));
        faulty.at_verb(Verb::Write, call, Mishap::Hold);
        let line = Pipeline { store: faulty.clone(), ..line };
        let ask = Ask::plain("test");
        // The run is dropped where it is held: that is the cut.
        tokio::select! {
            ended = line.run(&ask) => panic!("it ended before the cut: {:?}", ended.map(|report| report.status)),
            _ = faulty.until_held() => {}
        }
        drop((line, faulty));
        let report = desk.run().await;
        assert_eq!(report.exit_code(), 0, "cut off at write {call}: {report:#?}");
        let held = desk.held("").await;
        let comparable = |key: &&String| !key.starts_with("metadata:sync:lastRun");
        assert!(
            held.keys().filter(comparable).eq(expected.keys().filter(comparable)),
            "cut off at write {call}"
        );
        assert!(
            held.iter()
                .filter(|(key, _)| key.starts_with("policy:"))
                .all(|(key, value)| expected[key] == *value)
        );
    }
}

#[tokio::test]
async fn the_size_of_the_snapshot_is_that_of_the_last_complete_listing() {
    let desk = Desk::with_policies(40);
    desk.ran([40, 0, 0, 0]).await;
    for number in 0..30 {
        desk.hub.remove(&format!("policies/p{number:02}.md"));
    }
    for run in 1..=2 {
        let held = desk.run().await;
        assert_eq!(held.counts.held_by.delete, 30, "run {run}");
        assert_eq!(desk.last_run().await["totalProcessed"], 10, "run {run}: what is held is not in the tree");
    }
}

#[tokio::test]
async fn scenario_25_of_two_runs_at_once_one_works_and_the_other_says_so() {
    let desk = Desk::with_policies(10);
    let line = desk.line(Access::Write).await;
    let faulty = Arc::new(Faulty::new(line.store.clone(), desk.clock.clone()));
    faulty.at_verb(Verb::Write, 1, Mishap::Hold);
    let line = Pipeline { store: faulty.clone(), ..line };
    let running = tokio::task::spawn_blocking(move || {
        tokio::runtime::Handle::current().block_on(async { line.run(&Ask::plain("test")).await })
    });
    faulty.until_held().await;
    let other = desk.line(Access::Write).await.run(&Ask::plain("test")).await.unwrap_err();
    assert_eq!((other.kind(), other.kind().exit_code()), (Kind::Busy, 7));
    faulty.release();
    assert_eq!(did(&running.await.unwrap().unwrap()), [10, 0, 0, 0]);
}
