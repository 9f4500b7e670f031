//! Whose key it is: a pipeline overwrites and deletes only what it wrote, until a person says otherwise.

use std::sync::Arc;

use trueup::pipeline::Pipeline;
use trueup::source::store::FromStore;
use trueup::state::{Status, keys};
use trueup::store::memory::Memory;
use trueup::store::{Item, StoreExt};

use super::place::Home;
use crate::flow::rig::{LINE, Rig};

async fn adopted(rig: &Rig, key: &str) -> Vec<String> {
    rig.line().await.adopt(&[key.to_owned()]).await.unwrap()
}

#[tokio::test]
async fn a_key_that_holds_something_else_is_held_and_left_alone() {
    let rig = Rig::new();
    rig.intrude("a", "theirs").await;
    rig.give(&[("a", "ours"), ("b", "ours")]).await;
    for added in [1, 0] {
        let report = rig.run().await;
        assert_eq!((report.exit_code(), report.counts.held_by.add, report.counts.added), (4, 1, added));
        assert_eq!(rig.value("a").await.as_deref(), Some("theirs"));
    }
    let plan = rig.held().await.unwrap().plan;
    assert_eq!(rig.approve(&plan).await.unwrap().counts.held, 1, "approving is not adopting");
    assert_eq!(rig.value("a").await.as_deref(), Some("theirs"));
}

#[tokio::test]
async fn a_key_that_holds_the_same_bytes_is_ours_without_a_write() {
    let rig = Rig::new();
    rig.give(&[("a", "same")]).await;
    rig.intrude("a", "same").await;
    let report = rig.run().await;
    assert_eq!((report.status, report.writes, report.counts.unchanged), (Status::Ok, 0, 1));
    rig.take_away(&["a"]).await;
    rig.ran(0, 0, 1, 0).await;
    assert_eq!(rig.value("a").await, None, "from then on it is ours to delete");
}

#[tokio::test]
async fn adopt_in_the_config_takes_keys_over() {
    let rig = Rig { adopt: true, ..Rig::new() };
    rig.intrude("a", "theirs").await;
    rig.give(&[("a", "ours")]).await;
    rig.ran(0, 1, 0, 0).await;
    rig.in_step().await;
}

#[tokio::test]
async fn a_person_adopts_one_key_and_only_that_one_and_only_once() {
    let rig = Rig::new();
    rig.intrude("a", "theirs").await;
    rig.intrude("b", "theirs").await;
    rig.give(&[("a", "ours"), ("b", "ours")]).await;
    rig.run().await;
    assert!(adopted(&rig, "never").await.is_empty());
    assert_eq!(adopted(&rig, "a").await, ["a"]);
    let report = rig.ran(0, 1, 0, 0).await;
    assert_eq!(report.counts.held, 1);
    assert_eq!(rig.value("a").await.as_deref(), Some("ours"));
    assert_eq!(rig.value("b").await.as_deref(), Some("theirs"));
    assert!(
        rig.state().await.keys(&keys::decisions(LINE)).await.unwrap().is_empty(),
        "the word was for once"
    );
    rig.take_away(&["a"]).await;
    rig.run().await;
    rig.intrude("a", "theirs again").await;
    rig.give(&[("a", "ours")]).await;
    assert_eq!(rig.run().await.counts.held, 2);
}

#[tokio::test]
async fn an_edited_key_is_not_deleted_with_its_record_until_adopted() {
    let rig = Rig::new();
    rig.give(&[("a", "1")]).await;
    rig.run().await;
    rig.intrude("a", "theirs").await;
    rig.take_away(&["a"]).await;
    let report = rig.run().await;
    assert_eq!((report.exit_code(), report.counts.held_by.delete), (4, 1));
    assert_eq!(rig.value("a").await.as_deref(), Some("theirs"));
    assert_eq!(adopted(&rig, "a").await, ["a"]);
    rig.ran(0, 0, 1, 0).await;
    assert_eq!(rig.value("a").await, None);
}

#[tokio::test]
async fn a_key_of_another_pipeline_is_held_and_never_deleted() {
    let rig = Rig::new();
    rig.give(&[("a", "first")]).await;
    rig.run().await;
    let origin = Arc::new(Memory::named("second"));
    origin.write_one(Item::put("a", "second")).await.unwrap();
    let source = Arc::new(FromStore::new(origin.clone(), String::new()));
    let second = Pipeline { name: "second".into(), source, ..rig.line().await };
    let ask = trueup::pipeline::Ask::plain("test");
    assert_eq!(second.run(&ask).await.unwrap().counts.held_by.add, 1);
    origin.write_one(Item::delete("a")).await.unwrap();
    assert_eq!(second.run(&ask).await.unwrap().counts.deleted, 0);
    assert_eq!(rig.value("a").await.as_deref(), Some("first"));
    rig.in_step().await;
}

#[test]
fn the_program_adopts_and_refuses_what_is_not_foreign() {
    let home = Home::new("[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"file:out\"\n");
    home.write("notes/a", "ours");
    home.write("out/a", "theirs");
    let held = home.ends(&["sync"], 4);
    assert_eq!(held["runs"][0]["held_by"]["add"], 1);
    home.ends(&["adopt", "b"], 1);
    assert_eq!(home.ends(&["adopt", "a"], 0)["adopted"][0], "a");
    home.ends(&["sync"], 0);
    assert_eq!(home.read("out/a").as_deref(), Some("ours"));
    home.ends(&["adopt", "a"], 1);
}

#[test]
fn two_writers_of_one_place_are_an_error_of_the_config() {
    let home = Home::new(
        "[pipelines.one]\nfrom = { files = \"one\" }\ninto = \"file:out\"\n\n[pipelines.two]\nfrom = { files = \"two\" }\ninto = \"file:out\"\n",
    );
    home.write("one/a", "1");
    home.write("two/a", "2");
    let ended = home.run(&["sync"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("one") && ended.err.contains("two"), "{}", ended.err);
}
