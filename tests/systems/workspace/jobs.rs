//! Jobs: what is said of them, and what becomes of them when somebody dies.

use std::sync::Arc;
use std::time::Duration;

use trueup::error::Kind;
use trueup::store::Access;
use trueup::store::faulty::{Faulty, Mishap, Verb};
use trueup::workspace::jobs::{KEPT_AFTER_READING, KEPT_UNREAD, LEASE};
use trueup::workspace::{Activity, Job, Language, Status, Task, Workspace};

use super::desk::{Desk, ENGLISH, ITALIAN, keys};
use super::wiki::Paper;
use crate::support;

fn policy(source: &str, language: Option<Language>) -> Task {
    Task::Policy { page: "p".into(), source: source.into(), language }
}

fn activity(job: &Job) -> Option<Activity> {
    match job.status {
        Status::Activity { activity } => Some(activity),
        _ => None,
    }
}

async fn until_it_is(workspace: &Workspace, id: &str, wanted: Activity) -> Job {
    assert!(support::eventually(async || activity(&workspace.job(id).await.unwrap()) == Some(wanted)).await);
    workspace.job(id).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s15_statuses_come_in_order_and_are_forgotten_in_time() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ITALIAN)]);
    let workspace = Arc::new(desk.workspace().await);
    let job = workspace.submit(policy("att1", Some(Language::Fr))).await.unwrap();
    assert_eq!((activity(&job), job.seq), (Some(Activity::Scheduling), 2));
    let listing = desk.wiki.hold("/attachments");
    let worker = tokio::spawn({
        let workspace = workspace.clone();
        async move { workspace.work_one().await.unwrap().unwrap() }
    });
    listing.arrived().await;
    let fetching = until_it_is(&workspace, &job.id, Activity::Fetching).await;
    assert!(fetching.seq > job.seq);
    listing.release();
    let done = worker.await.unwrap();
    assert!(done.seq > fetching.seq, "{done:?}");
    // Two pollers, both served.
    for _ in 0..2 {
        let seen = workspace.job(&job.id).await.unwrap();
        let Status::Value { value } = &seen.status else { panic!("{seen:?}") };
        assert_eq!((value["language"].as_str(), seen.seq), (Some("fr"), done.seq));
    }
    desk.clock.advance(KEPT_AFTER_READING - Duration::from_millis(1));
    assert!(workspace.job(&job.id).await.is_ok());
    desk.clock.advance(Duration::from_millis(1));
    assert_eq!(workspace.job(&job.id).await.unwrap_err().kind(), Kind::NotFound);
    let unread = workspace.submit(policy("att1", None)).await.unwrap();
    workspace.work().await.unwrap();
    desk.clock.advance(KEPT_UNREAD - Duration::from_millis(1));
    assert_eq!(workspace.jobs().await.unwrap().len(), 1);
    desk.clock.advance(Duration::from_millis(1));
    assert_eq!(workspace.job(&unread.id).await.unwrap_err().kind(), Kind::NotFound);
    let never = workspace.job("01ARZ3NDEKTSV4RRFFQ69G5FAV").await.unwrap_err();
    assert_eq!(never.kind(), Kind::NotFound);
    assert!(keys(&workspace.shelf.store, "job:").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s16_a_worker_faster_than_its_submitter_is_not_overwritten() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
    let worker = desk.workspace().await;
    let faulty = Arc::new(Faulty::new(worker.shelf.store.clone(), desk.clock.clone()));
    // The status, its place in the queue, and then the submitter falls asleep.
    faulty.at_verb(Verb::Write, 3, Mishap::Hold);
    let spec = desk.spec(&desk.wiki.pages());
    let slow = Arc::new(Workspace::over(&spec, faulty.clone(), desk.clock.clone()).unwrap());
    let submitted = tokio::spawn(async move { slow.submit(policy("att1", None)).await.unwrap() });
    assert!(support::eventually(async || !keys(&worker.shelf.store, "system:task.").await.is_empty()).await);
    let done = worker.work_one().await.unwrap().unwrap();
    assert!(matches!(done.status, Status::Value { .. }), "{done:?}");
    faulty.release();
    let seen = submitted.await.unwrap();
    assert_eq!((seen.seq, &seen.status), (done.seq, &done.status));
    assert!(worker.work_one().await.unwrap().is_none(), "done once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s17_a_dead_workers_job_ends_in_504() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
    let workspace = Arc::new(desk.workspace().await);
    let job = workspace.submit(policy("att1", None)).await.unwrap();
    let download = desk.wiki.hold("/download");
    let worker = tokio::spawn({
        let workspace = workspace.clone();
        async move { workspace.work_one().await }
    });
    download.arrived().await;
    worker.abort();
    assert!(worker.await.unwrap_err().is_cancelled());
    download.release();
    assert!(workspace.work_one().await.unwrap().is_none(), "it is somebody's until the lease ends");
    let last = workspace.job(&job.id).await.unwrap();
    assert!(activity(&last).is_some());
    desk.clock.advance(LEASE);
    let ended = workspace.job(&job.id).await.unwrap();
    let Status::Error { code, text } = &ended.status else { panic!("{ended:?}") };
    assert_eq!((*code, ended.seq), (504, last.seq + 1), "{text}");
    assert!(workspace.work_one().await.unwrap().is_none(), "and it is not done again");
    assert!(keys(&workspace.shelf.store, "system:task.").await.is_empty());
}

#[tokio::test]
async fn s18_a_failing_task_says_why() {
    let desk = Desk::new();
    let broken = Paper { title: "att1.pdf".into(), ..Paper::new("att1", "%PDF-1.4 and nothing else") };
    desk.wiki.page("p", vec![broken]);
    let workspace = desk.workspace().await;
    let cases = [
        (policy("att1", None), 400, "PDF"),
        (policy("att2", None), 404, "has no policy att2"),
        (Task::Policies { page: "gone".into() }, 404, "there is no page gone"),
    ];
    for (task, code, word) in cases {
        let id = workspace.submit(task).await.unwrap().id;
        let done = workspace.work_one().await.unwrap().unwrap();
        assert_eq!(done.id, id);
        let Status::Error { code: said, text } = &done.status else { panic!("{done:?}") };
        assert_eq!(*said, code, "{text}");
        assert!(text.contains(word), "{text}");
    }
}

#[tokio::test]
async fn s25_a_restart_keeps_everything() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ITALIAN)]);
    let (document, issue, job) = {
        let workspace = desk.workspace().await;
        let document = workspace.policy("p", "att1", Some(Language::Fr)).await.unwrap();
        let issue = workspace.issue_create("p", super::desk::issue("Kept")).await.unwrap();
        workspace.purge(false).await.unwrap();
        (document, issue, workspace.submit(policy("att1", Some(Language::De))).await.unwrap())
    };
    let workspace = desk.workspace().await;
    assert_eq!(workspace.policy("p", "att1", Some(Language::Fr)).await.unwrap(), document);
    assert_eq!(workspace.issues("p").await.unwrap(), [issue]);
    assert_eq!(workspace.job(&job.id).await.unwrap(), job);
    assert!(!workspace.purge(false).await.unwrap().ran);
    let done = workspace.work().await.unwrap();
    assert_eq!((done.len(), done[0].id.as_str()), (1, job.id.as_str()), "what waited is resumed");
    assert_eq!((desk.wiki.downloads(), desk.model.translations()), (1, 2));
}

/// Whoever serves people runs these on other threads.
#[tokio::test]
async fn every_verb_can_be_run_on_another_thread() {
    fn sendable<T: Send>(_: &T) {}
    let desk = Desk::new();
    let spec = desk.spec(&desk.wiki.pages());
    sendable(&Workspace::open(&spec, Access::Write, desk.clock.clone()));
    let workspace = desk.workspace().await;
    sendable(&workspace.policies("p"));
    sendable(&workspace.policy("p", "s", None));
    sendable(&workspace.issues("p"));
    sendable(&workspace.issue_create("p", super::desk::issue("x")));
    sendable(&workspace.issue_resolve("p", "i"));
    sendable(&workspace.analyze("p"));
    sendable(&workspace.submit(Task::Purge { force: false }));
    sendable(&workspace.job("j"));
    sendable(&workspace.jobs());
    sendable(&workspace.work());
    sendable(&workspace.clear("p"));
    sendable(&workspace.purge(true));
}
