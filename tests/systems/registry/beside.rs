//! Queue entries are written with the policies they belong to, and nothing is lost in between.

use trueup::operations::follow;
use trueup::pipeline::Ask;
use trueup::pipeline::open::Memory;
use trueup::queue::outside::{self, Filter};
use trueup::store::{Access, Mode};

use super::desk::{Desk, did};
use super::picky::Picky;
use crate::support::cloudflare::Kv;
use crate::support::{etcd, postgres};

/// Every write of a policy brings its queue entry along, in one atomic write.
async fn travels_together(mut desk: Desk) {
    desk.more = "batch = 20\n".into();
    let (line, picky) = Picky::at(&desk, true).await;
    line.run(&Ask::plain("test")).await.unwrap();
    desk.hub.put("policies/p07.md", "# Revised\n");
    desk.hub.remove("policies/p08.md");
    let report = line.run(&Ask::plain("test")).await.unwrap();
    assert_eq!(did(&report), [0, 1, 1, 58], "{report:#?}");
    let mut seen = 0;
    for (mode, keys) in picky.calls() {
        for name in keys.iter().filter_map(|key| key.strip_prefix("policy:")) {
            seen += 1;
            assert_eq!(mode, Mode::All);
            assert!(keys.contains(&format!("queue:{name}")), "{name} without its entry: {keys:?}");
        }
    }
    assert_eq!(seen, 62);
    let (policies, queue) = (desk.names().await, desk.held("queue:").await);
    assert!(policies.iter().map(|name| format!("queue:{name}")).eq(queue.into_keys()));
    let writes = picky.calls().len();
    line.run(&Ask::plain("test")).await.unwrap();
    assert_eq!(picky.calls().len(), writes + 1, "a run without news writes nothing but its metadata");
}

#[tokio::test]
async fn on_the_embedded_store_policies_and_their_entries_are_one_write() {
    travels_together(Desk::with_policies(60)).await;
}

#[tokio::test]
async fn on_etcd_policies_and_their_entries_are_one_write() {
    let mut desk = Desk::with_policies(60);
    desk.into = format!("\"etcd://{}/beside-{}/\"", etcd().await.endpoints(), std::process::id());
    travels_together(desk).await;
}

#[tokio::test]
async fn on_postgresql_policies_and_their_entries_are_one_write() {
    let mut desk = Desk::with_policies(60);
    desk.into = format!("\"{}\"", postgres().await.fresh_database());
    travels_together(desk).await;
}

/// Cut off in the middle of a write of which only some arrived.
async fn cut(desk: &Desk, arrives: impl Fn(&str) -> bool + Send + Sync + 'static) {
    let (line, picky) = Picky::at(desk, false).await;
    picky.tear(arrives);
    let ask = Ask::plain("test");
    tokio::select! {
        ended = line.run(&ask) => panic!("it ended before the cut: {:?}", ended.map(|report| report.status)),
        () = picky.until_torn() => {}
    }
}

#[tokio::test]
async fn a_crash_between_policies_and_their_entries_is_made_good_by_the_next_run() {
    for kv in [false, true] {
        for (place, policies_first) in [("policy:", true), ("queue:", false)] {
            let mut desk = Desk::with_policies(20);
            let service = Kv::start(None);
            if kv {
                desk.into = service.config(&desk.folder.path().join("cf-token"));
            }
            cut(&desk, move |key| key.starts_with(place)).await;
            let held = (desk.names().await.len(), desk.held("queue:").await.len());
            assert_eq!(held, if policies_first { (20, 0) } else { (0, 20) }, "torn apart");
            let report = desk.run().await;
            assert_eq!(report.exit_code(), 0, "{report:#?}");
            assert_eq!((desk.names().await.len(), desk.held("queue:").await.len()), (20, 20));
            assert_eq!(desk.value("queue:p03").await.unwrap()["operation"], "add");
            desk.ran([0, 0, 0, 20]).await;
        }
    }
}

#[tokio::test]
async fn a_crash_in_the_middle_of_an_update_keeps_what_was_never_worked_on_an_addition() {
    let desk = Desk::with_policies(5);
    desk.ran([5, 0, 0, 0]).await;
    desk.hub.put("policies/p03.md", "# Revised\n");
    cut(&desk, |key| key.starts_with("policy:")).await;
    desk.ran([0, 0, 0, 5]).await;
    let entry = desk.value("queue:p03").await.unwrap();
    assert_eq!((&entry["operation"], &entry["sha"]), (&"add".into(), &desk.policy("p03").await["sha"]));
}

#[tokio::test]
async fn an_entry_that_could_not_be_written_is_named_and_written_by_the_next_run() {
    let mut desk = Desk::with_policies(12);
    let kv = Kv::start(None);
    desk.into = kv.config(&desk.folder.path().join("cf-token"));
    kv.refuse(&["queue:p03"]);
    let report = desk.run().await;
    assert_eq!(did(&report), [12, 0, 0, 0], "{report:#?}");
    assert!(report.errors.iter().any(|fault| fault.message.contains("queue:p03")), "{report:#?}");
    assert_eq!((desk.last_run().await["status"].as_str(), desk.last_commit().await), (Some("partial"), None));
    kv.refuse(&[]);
    desk.ran([0, 0, 0, 12]).await;
    assert_eq!(desk.held("queue:").await.len(), 12);
    assert_eq!(desk.last_commit().await, Some(desk.hub.head()));
}

#[tokio::test]
async fn what_was_worked_on_leaves_the_registry_at_once_and_comes_back_as_an_update() {
    let desk = Desk::with_policies(3);
    desk.ran([3, 0, 0, 0]).await;
    let config = desk.config();
    let memory = Memory::open(&config, Access::Write, desk.clock.clone()).await.unwrap();
    let filter = Filter { pipeline: None, then: None, key: Some("policy:p01".into()) };
    outside::done(&memory.state, &filter, None).await.unwrap();
    follow::refresh(&config, &memory, "policies").await.unwrap();
    assert_eq!(desk.held("queue:").await.len(), 2);
    desk.hub.put("policies/p01.md", "# Revised\n");
    desk.hub.put("policies/p02.md", "# Revised\n");
    desk.ran([0, 2, 0, 1]).await;
    let operation = |entry: Option<serde_json::Value>| entry.unwrap()["operation"].clone();
    assert_eq!(operation(desk.value("queue:p01").await), "update");
    assert_eq!(operation(desk.value("queue:p02").await), "add", "nobody worked on it yet");
}

#[tokio::test]
async fn an_undone_run_takes_its_entries_along() {
    let desk = Desk::with_policies(3);
    desk.ran([3, 0, 0, 0]).await;
    desk.hub.put("policies/p09.md", "# Later\n");
    let run = desk.ran([1, 0, 0, 3]).await;
    let line = desk.line(Access::Write).await;
    let undone = line.undo(&run.id, &Ask::plain("undo"), None).await.unwrap();
    assert_eq!((undone.counts.deleted, undone.exit_code()), (1, 0), "{undone:#?}");
    assert!(!desk.held("queue:").await.contains_key("queue:p09"));
}
