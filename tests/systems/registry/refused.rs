//! Policies the registry's store refuses, run after run.

use serde_json::{Value, json};
use trueup::operations::follow::{self, Which};
use trueup::pipeline::open::Memory;
use trueup::pipeline::{Ask, Stop};
use trueup::queue::dead;
use trueup::state::Status;
use trueup::store::Access;

use super::desk::{Desk, T1, did, policy};
use super::picky::Picky;
use crate::support::cloudflare::Kv;

/// A registry on Cloudflare that does not take `policy:p03`.
fn refusing(count: usize) -> (Desk, Kv) {
    let mut desk = Desk::with_policies(count);
    let kv = Kv::start(Some(desk.clock.clone()));
    desk.into = kv.config(&desk.folder.path().join("cf-token"));
    kv.refuse(&["policy:p03"]);
    (desk, kv)
}

async fn letters(desk: &Desk) -> Vec<(String, String, u32)> {
    let memory = Memory::open(&desk.config(), Access::Read, desk.clock.clone()).await.unwrap();
    let all = dead::all(&memory.state).await.unwrap();
    all.into_iter().map(|one| (one.what.task.key, one.then, one.what.task.attempts)).collect()
}

async fn retry(desk: &Desk) -> follow::Retried {
    let config = desk.config();
    let memory = Memory::open(&config, Access::Write, desk.clock.clone()).await.unwrap();
    let which = Which { keys: vec!["policy:p03".into()], all: false };
    follow::retry(&config, &memory, which, &Stop::default()).await.unwrap()
}

/// Three runs, the third of which gives up.
async fn give_up(desk: &Desk) {
    for run in 1..=3 {
        let report = desk.run().await;
        assert_eq!((report.counts.failed, report.status), (1, Status::Partial), "run {run}: {report:#?}");
        assert_eq!((report.dead, report.exit_code()), (u64::from(run == 3), 3), "run {run}");
        let here = (run == 3).then(|| desk.hub.head());
        assert_eq!(desk.last_commit().await, here, "run {run}: held back until it is parked");
    }
}

#[tokio::test]
async fn a_policy_refused_in_three_runs_is_a_dead_letter_and_holds_nothing_back() {
    let (desk, _kv) = refusing(12);
    give_up(&desk).await;
    assert_eq!(desk.last_run().await["errorCount"], 1);
    let letter = desk.value("dead-letter:p03").await.unwrap();
    assert_eq!((&letter["operation"], &letter["retryCount"]), (&json!("add"), &json!(3)), "{letter}");
    let [created, moved] = ["createdAt", "movedAt"].map(|name| letter[name].as_str().unwrap());
    assert!(T1 <= created && created < moved, "{letter}");
    assert!(letter["errorMessage"].as_str().unwrap().contains("did not take"), "{letter}");
    assert_eq!(letter["sha"].as_str().map(str::len), Some(40));
    assert_eq!(desk.value("queue:p03").await, None);
    assert_eq!(letters(&desk).await, [("policy:p03".to_owned(), "write".to_owned(), 3)]);
    let story = desk.line(Access::Read).await.why("policy:p03").await.unwrap().expect("a story");
    assert_eq!((story.dead.len(), story.dead[0].attempts), (1, 3));
}

#[tokio::test]
async fn what_was_given_up_is_left_alone_and_said_on_every_run() {
    let (desk, kv) = refusing(12);
    give_up(&desk).await;
    // What the last failure left in doubt is looked into once.
    desk.run().await;
    desk.hub.asked();
    let bulks = kv.bulk_writes().len();
    let report = desk.run().await;
    assert_eq!((did(&report), report.counts.skipped), ([0, 0, 0, 11], 1), "{report:#?}");
    assert_eq!((report.exit_code(), desk.hub.asked()), (0, [1, 0, 0]));
    assert!(report.warnings.iter().any(|text| text.contains("dead retry policy:p03")), "{report:#?}");
    assert_eq!(kv.bulk_writes()[bulks..], [1], "nothing but the metadata");
    // Another commit: the tree is read, and what was given up is still left alone.
    desk.hub.put("policies/p05.md", "# Revised\n");
    let report = desk.run().await;
    assert_eq!((did(&report), report.counts.skipped), ([0, 1, 0, 10], 1), "{report:#?}");
    assert_eq!((report.exit_code(), desk.hub.asked()), (0, [1, 1, 1]), "its blob is not asked for");
    assert_eq!(desk.last_commit().await, Some(desk.hub.head()));
    assert_eq!(letters(&desk).await.len(), 1);
}

#[tokio::test]
async fn a_dead_letter_of_a_write_can_be_retried() {
    let (desk, kv) = refusing(12);
    give_up(&desk).await;
    assert_eq!(retry(&desk).await.failed, 1, "the store still refuses it");
    assert_eq!(letters(&desk).await, [], "which counts anew");
    let report = desk.run().await;
    assert_eq!((report.counts.failed, report.dead), (1, 0), "{report:#?}");
    kv.refuse(&[]);
    desk.run().await;
    assert_eq!(desk.policy("p03").await["title"], "Policy 3");
    assert_eq!((desk.value("dead-letter:p03").await, letters(&desk).await), (None, vec![]));
    desk.ran([0, 0, 0, 12]).await;
}

#[tokio::test]
async fn a_retry_that_goes_well_leaves_no_trace() {
    let (desk, kv) = refusing(12);
    give_up(&desk).await;
    kv.refuse(&[]);
    let retried = retry(&desk).await;
    assert_eq!((retried.retried, retried.done, retried.failed), (1, 1, 0));
    assert_eq!(desk.policy("p03").await["title"], "Policy 3");
    assert_eq!(desk.value("dead-letter:p03").await, None, "gone with the write");
    assert_eq!(desk.value("queue:p03").await.unwrap()["operation"], "add");
    desk.ran([0, 0, 0, 12]).await;
}

#[tokio::test]
async fn a_newer_version_takes_the_place_of_a_dead_letter() {
    let (desk, kv) = refusing(12);
    give_up(&desk).await;
    desk.hub.put("policies/p03.md", "# Revised\n");
    let before = desk.last_commit().await;
    let report = desk.run().await;
    assert_eq!((report.counts.failed, report.dead), (1, 0), "it is tried again: {report:#?}");
    assert_eq!((desk.last_commit().await, letters(&desk).await), (before, vec![]));
    assert_eq!(desk.value("dead-letter:p03").await, None);
    kv.refuse(&[]);
    desk.ran([1, 0, 0, 11]).await;
    assert_eq!(desk.policy("p03").await["title"], "Revised");
}

#[tokio::test]
async fn a_dead_letter_whose_policy_went_away_goes_too() {
    let (desk, _kv) = refusing(12);
    give_up(&desk).await;
    desk.hub.remove("policies/p03.md");
    desk.ran([0, 0, 0, 11]).await;
    assert_eq!((desk.value("dead-letter:p03").await, letters(&desk).await), (None, vec![]));
}

#[tokio::test]
async fn a_deletion_refused_in_three_runs_is_given_up_and_can_be_retried() {
    let (desk, kv) = refusing(12);
    kv.refuse(&[]);
    desk.ran([12, 0, 0, 0]).await;
    kv.refuse(&["policy:p03"]);
    desk.hub.remove("policies/p03.md");
    for run in 1..=3 {
        let report = desk.run().await;
        assert_eq!((report.counts.failed, report.dead), (1, u64::from(run == 3)), "run {run}: {report:#?}");
        assert_eq!(desk.last_run().await["totalProcessed"], 11);
    }
    assert_eq!(desk.last_commit().await, Some(desk.hub.head()));
    assert_eq!(letters(&desk).await.len(), 1);
    kv.refuse(&[]);
    assert_eq!(retry(&desk).await.done, 1);
    assert_eq!((desk.names().await.len(), letters(&desk).await), (11, vec![]));
}

#[tokio::test]
async fn a_store_that_takes_nothing_is_down_which_is_no_policys_fault() {
    let desk = Desk::with_policies(12);
    let (line, picky) = Picky::at(&desk, false).await;
    picky.refuse(|_| true);
    for _ in 0..4 {
        let report = line.run(&Ask::plain("test")).await.unwrap();
        assert_eq!((report.counts.failed, report.dead), (12, 0), "{report:#?}");
    }
    assert_eq!(letters(&desk).await, []);
    picky.refuse(|_| false);
    let report = line.run(&Ask::plain("test")).await.unwrap();
    assert_eq!((did(&report), report.exit_code()), ([12, 0, 0, 0], 0), "{report:#?}");
    assert_eq!(desk.value("dead-letter:p03").await, None::<Value>);
}

/// A file's time says less than a commit: it is the document that counts.
#[tokio::test]
async fn of_a_folder_too_the_third_run_gives_up() {
    let (mut desk, _kv) = refusing(0);
    let at = desk.folder.path().join("policies");
    std::fs::create_dir(&at).unwrap();
    for number in 0..5 {
        std::fs::write(at.join(format!("p{number:02}.md")), policy(number)).unwrap();
    }
    desk.from = format!("{{ files = \"{}\" }}", at.display());
    for run in 1..=3 {
        assert_eq!(desk.run().await.dead, u64::from(run == 3), "run {run}");
    }
    assert_eq!(letters(&desk).await.len(), 1);
}
