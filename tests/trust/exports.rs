//! Exports and the queue beneath: no change loses its follow-up, and no slow worker brings an older value back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;
use trueup::config::{Place, StoreSpec, Then};
use trueup::error::Result;
use trueup::pipeline::Ask;
use trueup::queue::{self, FollowUp};
use trueup::record::Fingerprint;
use trueup::source::store::FromStore;
use trueup::state::journal::Change;
use trueup::state::{State, Status, keys};
use trueup::store::faulty::{Faulty, Mishap};
use trueup::store::folder::Folder;
use trueup::store::{Access, Caps, Item, Mode, Outcome, Page, Query, SharedStore, Store, Stored};

use super::place::undo;
use crate::flow::rig::{LINE, Rig, contents};
use crate::flow::scripted::{Say, Script, Told};
use crate::support;

pub fn export_to(folder: &Path) -> FollowUp {
    let place = Place::Folder(folder.to_owned());
    let (secrets, options) = (Default::default(), Default::default());
    FollowUp::of(&Then::Export(StoreSpec { name: "copy".into(), place, secrets, options }))
}

async fn copy(folder: &Path) -> std::collections::BTreeMap<String, bytes::Bytes> {
    let store: SharedStore = Arc::new(Folder::open(folder, Access::Write).unwrap());
    contents(&store).await
}

/// Records in place, their follow-ups done, then some of each change.
async fn mixed(then: FollowUp) -> Rig {
    let rig = Rig { batch: Some(3), then: vec![then], ..Rig::new() };
    rig.give_many(10, "one").await;
    rig.run().await;
    rig.state().await.remove_below(keys::QUEUE).await.unwrap();
    rig.give_many(4, "two").await;
    rig.take_away(&["k07", "k08", "k09"]).await;
    rig.give(&[("new-1", "x"), ("new-2", "x"), ("new-3", "x")]).await;
    rig
}

const CHANGED: [&str; 10] = ["k00", "k01", "k02", "k03", "k07", "k08", "k09", "new-1", "new-2", "new-3"];

/// A pass with trouble at one call; `false` = it never came.
async fn troubled(rig: &Rig, place: usize, mishap: Mishap, lasting: bool, call: u64) -> bool {
    let inner: SharedStore =
        [rig.origin.clone() as SharedStore, rig.target.clone(), rig.memory.clone()][place].clone();
    let faulty = Arc::new(Faulty::new(inner, rig.clock.clone()));
    if lasting {
        faulty.from(call, mishap)
    } else {
        faulty.at(call, mishap)
    }
    let mut line = rig.line().await;
    match place {
        0 => line.source = Arc::new(FromStore::new(faulty.clone(), String::new())),
        1 => line.store = faulty.clone(),
        _ => match State::open(faulty.clone()).await {
            Ok(state) => line.state = state,
            Err(_) => return true,
        },
    }
    drop(line.run(&Ask::plain("test")).await);
    faulty.calls() >= call
}

/// Every way to fail, at every call, on rigs of their own.
async fn at_every_step(make: impl AsyncFn() -> Rig, then: impl AsyncFn(&Rig, &str)) {
    let mut steps = 0;
    for place in 0..3 {
        for mishap in [Mishap::Reject, Mishap::FailAfterWrite] {
            for lasting in [false, true] {
                for call in 1.. {
                    let rig = make().await;
                    if !troubled(&rig, place, mishap, lasting, call).await {
                        break;
                    }
                    steps += 1;
                    then(&rig, &format!("{mishap:?} at call {call} of {place}, lasting: {lasting}")).await;
                }
            }
        }
    }
    assert!(steps > 80, "only {steps} steps were tried");
}

#[tokio::test]
async fn every_change_has_its_task_whatever_fails_between_apply_and_settle() {
    at_every_step(
        async || mixed(FollowUp::outside()).await,
        async |rig, what| {
            rig.run().await;
            rig.in_step().await;
            let waiting = queue::waiting(&rig.state().await).await.unwrap();
            let keys: Vec<&str> = waiting.iter().map(|one| one.what.key.as_str()).collect();
            assert_eq!(keys, CHANGED, "{what}");
            let source: SharedStore = rig.origin.clone();
            let source = contents(&source).await;
            for one in &waiting {
                let bytes = source.get(&one.what.key).map(|value| Fingerprint::of(value));
                assert_eq!(one.what.bytes, bytes, "{}: {what}", one.what.key);
                assert_eq!(one.what.change == Change::Delete, bytes.is_none(), "{}: {what}", one.what.key);
            }
        },
    )
    .await;
}

#[tokio::test]
async fn an_export_is_whole_after_the_next_run_whatever_failed() {
    let folder = support::temp();
    let count = std::sync::atomic::AtomicU32::new(0);
    let at = || folder.path().join(count.load(Ordering::SeqCst).to_string());
    at_every_step(
        async || {
            count.fetch_add(1, Ordering::SeqCst);
            mixed(export_to(&at())).await
        },
        async |rig, what| {
            rig.run().await;
            assert_eq!(copy(&at()).await, contents(&rig.target).await, "{what}");
            assert!(queue::waiting(&rig.state().await).await.unwrap().is_empty(), "{what}");
            assert!(queue::dead::all(&rig.state().await).await.unwrap().is_empty(), "{what}");
        },
    )
    .await;
}

/// A store whose first answer is read, and then kept back until it is old.
struct Stalled {
    inner: SharedStore,
    once: AtomicBool,
    reached: Notify,
    go_on: Notify,
}

#[async_trait]
impl Store for Stalled {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let answer = self.inner.get(keys).await;
        if !self.once.swap(true, Ordering::SeqCst) {
            self.reached.notify_one();
            self.go_on.notified().await;
        }
        answer
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.inner.list(query).await
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        self.inner.write(items, mode).await
    }
}

/// A worker reads the value it is to export and stalls; meanwhile `change` happens and is exported; it goes on.
async fn overtaken(rig: &Rig, change: impl AsyncFn(&Rig)) {
    let (once, reached, go_on) = (AtomicBool::new(false), Notify::new(), Notify::new());
    let stalled = Arc::new(Stalled { inner: rig.target.clone(), once, reached, go_on });
    let mut slow = rig.line().await.worker();
    slow.store = stalled.clone();
    let meanwhile = async {
        stalled.reached.notified().await;
        change(rig).await;
        assert_eq!(rig.run().await.status, Status::Ok);
        stalled.go_on.notify_one();
    };
    let (summary, ()) = tokio::join!(slow.once(), meanwhile);
    let summary = summary.unwrap();
    assert_eq!((summary.failed, summary.dead), (0, 0));
}

/// The tasks of a pass, left for the worker in question.
async fn enqueue(rig: &mut Rig) {
    let then = std::mem::take(&mut rig.then);
    let named = FollowUp { name: then[0].name.clone(), effect: queue::Effect::Outside };
    rig.then = vec![named];
    rig.run().await;
    rig.then = then;
}

#[tokio::test]
async fn a_slow_worker_cannot_export_an_older_value_over_a_newer_one() {
    let folder = support::temp();
    let mut rig = Rig { then: vec![export_to(folder.path())], ..Rig::new() };
    rig.give(&[("a", "1")]).await;
    enqueue(&mut rig).await;
    overtaken(&rig, async |rig| rig.give(&[("a", "2")]).await).await;
    assert_eq!(copy(folder.path()).await, contents(&rig.target).await);
    assert!(queue::waiting(&rig.state().await).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_slow_worker_cannot_delete_the_export_of_a_record_that_came_back() {
    let folder = support::temp();
    let mut rig = Rig { then: vec![export_to(folder.path())], ..Rig::new() };
    rig.give(&[("a", "1")]).await;
    rig.run().await;
    rig.take_away(&["a"]).await;
    enqueue(&mut rig).await;
    assert_eq!(copy(folder.path()).await.len(), 1);
    overtaken(&rig, async |rig| rig.give(&[("a", "3")]).await).await;
    assert_eq!(copy(folder.path()).await, contents(&rig.target).await);
    assert_eq!(copy(folder.path()).await.len(), 1);
}

/// The copy of a record stayed at the key it had moved away from.
#[tokio::test]
async fn the_export_of_a_record_that_moved_moves_along() {
    let folder = support::temp();
    let script = Script::new();
    let then = vec![export_to(folder.path())];
    let rig = Rig { shape: Arc::new(Told::default()), then, ..Rig::over(script.clone()) };
    script.say(&[Say::Seen("id", "", "key=old 1"), Say::Complete("", None)]);
    rig.run().await;
    script.say(&[Say::Seen("id", "", "key=new 2"), Say::Complete("", None)]);
    let run = rig.run().await;
    assert_eq!(copy(folder.path()).await.into_keys().collect::<Vec<_>>(), ["new"]);
    undo(&rig, &run.id).await;
    assert_eq!(copy(folder.path()).await.into_keys().collect::<Vec<_>>(), ["old"]);
}

#[tokio::test]
async fn an_undo_has_its_follow_ups() {
    let folder = support::temp();
    let rig = Rig { then: vec![export_to(folder.path())], ..Rig::new() };
    rig.give(&[("a", "1"), ("b", "1")]).await;
    rig.run().await;
    let before = copy(folder.path()).await;
    rig.give(&[("a", "2"), ("c", "1")]).await;
    rig.take_away(&["b"]).await;
    let run = rig.run().await;
    assert_ne!(copy(folder.path()).await, before);
    undo(&rig, &run.id).await;
    assert_eq!(copy(folder.path()).await, before);
}

/// A target that cannot be opened says nothing about any record: everything waits, nothing is counted.
#[tokio::test]
async fn a_target_out_of_reach_pauses_the_export_and_counts_no_attempt() {
    let folder = support::temp();
    let blocked = folder.path().join("copy");
    std::fs::write(&blocked, "in the way").unwrap();
    let rig = Rig { then: vec![export_to(&blocked)], ..Rig::new() };
    rig.give_many(5, "x").await;
    for _ in 0..5 {
        let report = rig.run().await;
        assert_eq!((report.dead, report.warnings.len()), (0, 1), "{report:#?}");
        let waiting = queue::waiting(&rig.state().await).await.unwrap();
        assert_eq!(waiting.len(), 5);
        assert!(
            waiting.iter().all(|one| one.what.attempts == 0 && one.what.state() == "open"),
            "{waiting:#?}"
        );
    }
    std::fs::remove_file(&blocked).unwrap();
    rig.run().await;
    assert_eq!(copy(&blocked).await.len(), 5);
}

/// The state knew nothing of a record that was in the store already, as one that was restored from before does.
#[tokio::test]
async fn a_record_that_is_right_already_and_was_not_known_is_exported() {
    let folder = support::temp();
    let rig = Rig { then: vec![export_to(folder.path())], ..Rig::new() };
    rig.give(&[("a", "1"), ("b", "1")]).await;
    rig.run().await;
    std::fs::remove_file(folder.path().join("a")).unwrap();
    rig.state().await.remove_below(&keys::base(LINE, "a")).await.unwrap();
    let report = rig.run().await;
    assert_eq!((report.counts.unchanged, report.writes), (2, 0), "{report:#?}");
    assert_eq!(copy(folder.path()).await, contents(&rig.target).await);
}

/// Keys that were there before had no work to do for it, and never got any.
#[tokio::test]
async fn an_export_that_is_new_or_leads_elsewhere_gets_every_key_and_nobody_else_hears_of_it() {
    let (one, other) = (support::temp(), support::temp());
    let mut rig = Rig { then: vec![FollowUp::outside()], ..Rig::new() };
    rig.give_many(1_203, "x").await;
    rig.run().await;
    rig.state().await.remove_below(keys::QUEUE).await.unwrap();
    for folder in [one.path(), other.path(), one.path()] {
        drop(std::fs::remove_dir_all(folder));
        rig.then = vec![FollowUp::outside(), export_to(folder)];
        let report = rig.run().await;
        assert_eq!((report.status, report.writes), (Status::Ok, 0), "{report:#?}");
        assert_eq!(copy(folder).await, contents(&rig.target).await);
        assert!(queue::waiting(&rig.state().await).await.unwrap().is_empty());
    }
    std::fs::remove_file(one.path().join("k00")).unwrap();
    rig.run().await;
    assert_eq!(copy(one.path()).await.len(), 1_202, "once");
}

#[tokio::test]
async fn a_target_that_was_wiped_is_filled_again_when_a_person_asks_for_all() {
    let folder = support::temp();
    let at = folder.path().join("copy");
    let rig = Rig { then: vec![export_to(&at), FollowUp::outside()], ..Rig::new() };
    rig.give_many(10, "x").await;
    rig.run().await;
    rig.state().await.remove_below(keys::QUEUE).await.unwrap();
    std::fs::remove_dir_all(&at).unwrap();
    let line = rig.line().await;
    let asked = line.run(&Ask { full: true, exports: true, ..Ask::plain("test") }).await.unwrap();
    assert_eq!((asked.status, asked.writes), (Status::Ok, 0), "{asked:#?}");
    assert_eq!(copy(&at).await, contents(&rig.target).await);
    assert!(queue::waiting(&rig.state().await).await.unwrap().is_empty(), "nobody outside is told");
}
