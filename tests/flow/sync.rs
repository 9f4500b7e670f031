//! The plain course of things: first sync, nothing to do, an update, a delete.

use std::fs;
use std::sync::Arc;

use trueup::clock::SystemClock;
use trueup::source::files::Files;
use trueup::state::{Status, keys};

use super::rig::{LINE, Rig, did};
use crate::support::{self, counted::Counted};

#[tokio::test]
async fn a_first_sync_brings_everything() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b/c", "2"), ("키", "값")]).await;
    let report = rig.ran(3, 0, 0, 0).await;
    assert_eq!((report.status, report.writes, report.counts.scanned), (Status::Ok, 3, 3));
    rig.in_step().await;
}

#[tokio::test]
async fn an_empty_source_is_in_step_with_an_empty_store() {
    let rig = Rig::new();
    assert_eq!(rig.ran(0, 0, 0, 0).await.status, Status::Ok);
    rig.in_step().await;
}

#[tokio::test]
async fn a_sync_with_nothing_to_do_writes_nothing_but_its_own_record() {
    let mut rig = Rig::new();
    rig.give_many(50, "x").await;
    rig.run().await;
    let counted = Arc::new(Counted::new(rig.target.clone()));
    rig.target = counted.clone();
    let before = rig.state_bytes().await;
    let report = rig.ran(0, 0, 0, 50).await;
    assert_eq!(report.writes, 0);
    let counts = counted.counts();
    assert_eq!((counts.writes, counts.gets), (0, 0), "the store was listed, nothing else");

    let mut after = rig.state_bytes().await;
    assert!(after.remove(&keys::run(&report.id)).is_some());
    let own = [keys::last(LINE), keys::NEWEST_RUN.to_owned()];
    let changed: Vec<_> =
        after.iter().filter(|(key, value)| before.get(*key) != Some(value)).map(|(key, _)| key).collect();
    assert!(changed.iter().all(|key| own.contains(key)), "{changed:?}");
    assert_eq!(after.len(), before.len());
}

#[tokio::test]
async fn what_changed_is_updated_and_nothing_else() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b", "2"), ("c", "3")]).await;
    rig.run().await;
    rig.give(&[("b", "two")]).await;
    let report = rig.ran(0, 1, 0, 2).await;
    assert_eq!(report.writes, 1);
    rig.in_step().await;
}

#[tokio::test]
async fn what_is_gone_is_deleted_and_comes_back_as_new() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b", "2")]).await;
    rig.run().await;
    rig.take_away(&["a"]).await;
    rig.ran(0, 0, 1, 1).await;
    rig.in_step().await;
    rig.give(&[("a", "again")]).await;
    rig.ran(1, 0, 0, 1).await;
    rig.in_step().await;
}

#[tokio::test]
async fn batches_of_every_size_bring_the_same() {
    for batch in [1, 2, 3, 7, 19, 20, 21] {
        let rig = Rig { batch: Some(batch), ..Rig::new() };
        rig.give_many(20, "one").await;
        rig.ran(20, 0, 0, 0).await;
        rig.give_many(10, "two").await;
        rig.take_away(&["k15", "k16", "k19"]).await;
        rig.give(&[("new", "x")]).await;
        rig.ran(1, 10, 3, 7).await;
        rig.in_step().await;
        rig.ran(0, 0, 0, 18).await;
    }
}

#[tokio::test]
async fn a_value_put_without_a_fingerprint_is_compared_before_it_is_written_again() {
    let rig = Rig::new();
    for value in ["1", "2", "1"] {
        use trueup::store::{Item, StoreExt};
        rig.origin.write_one(Item::put("bare", value)).await.unwrap();
        rig.run().await;
        rig.in_step().await;
    }
    // Put again with the same bytes: another version, the same content.
    rig.take_away(&["bare"]).await;
    rig.intrude_at_the_source("bare", "1").await;
    let report = rig.run().await;
    assert_eq!((did(&report), report.writes), ([0, 0, 0, 1], 0));
    rig.ran(0, 0, 0, 1).await;
}

impl Rig {
    async fn intrude_at_the_source(&self, key: &str, value: &str) {
        use trueup::store::{Item, StoreExt};
        self.origin.write_one(Item::put(key, value.to_owned())).await.unwrap();
    }
}

#[tokio::test]
async fn a_folder_is_followed_through_edits_touches_and_removals() {
    let folder = support::temp();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    write("a.md", "1");
    write("sub/b.md", "2");
    let files = Files::new(folder.path().to_owned(), &[], &[], SystemClock::new()).unwrap();
    let rig = Rig::over(Arc::new(files));
    rig.ran(2, 0, 0, 0).await;
    write("a.md", "1"); // touched, not changed
    rig.ran(0, 0, 0, 2).await;
    write("a.md", "one");
    rig.ran(0, 1, 0, 1).await;
    fs::remove_dir_all(folder.path().join("sub")).unwrap();
    rig.ran(0, 0, 1, 1).await;
    assert_eq!((rig.value("a.md").await.as_deref(), rig.value("sub/b.md").await), (Some("one"), None));
    rig.at_rest().await;
}
