//! The story of one key, in every situation a key can be in.

use serde_json::Value;
use trueup::pipeline::why::Story;

use super::place::{Home, undo};
use crate::flow::rig::{LINE, Rig};

async fn story(rig: &Rig, key: &str) -> Story {
    rig.line().await.why(key).await.unwrap().unwrap_or_else(|| panic!("nobody knows {key}"))
}

fn changes(story: &Story) -> Vec<&'static str> {
    story.history.iter().map(|event| event.change.name()).collect()
}

/// Undone, approved, undone again: the story went on at the run itself, and what was between was left out.
#[tokio::test]
async fn a_story_with_the_same_undo_twice_is_told_whole() {
    let rig = Rig::new();
    rig.give(&[("k", "1")]).await;
    rig.run().await;
    rig.give(&[("k", "2")]).await;
    let run = rig.run().await.id;
    undo(&rig, &run).await;
    let held = rig.run().await.plan.unwrap();
    rig.approve(&held).await.unwrap();
    undo(&rig, &run).await;
    let told = story(&rig, "k").await;
    assert_eq!(changes(&told), ["update", "update", "update", "update", "add"]);
}

#[tokio::test]
async fn a_fresh_record() {
    let rig = Rig::new();
    rig.give(&[("a", "1")]).await;
    let run = rig.run().await;
    let told = story(&rig, "a").await;
    assert_eq!((told.key.as_str(), told.identity.as_str(), told.pipeline.as_str()), ("a", "a", LINE));
    assert_eq!((told.store.as_str(), told.drift), (rig.target.name(), None));
    assert!(told.version.is_some() && told.held.is_none() && told.decision.is_none());
    assert!(told.queue.is_empty() && told.dead.is_empty() && told.errors.is_empty());
    let print = trueup::record::Fingerprint::of(b"1");
    assert_eq!(told.fingerprint, Some(print));
    let source = told.source.unwrap();
    assert!(source.name.contains("origin") && source.shape.starts_with("raw"), "{source:?}");
    assert!(source.seen.unwrap().starts_with("2026-01-01") && !source.version.is_empty());
    let event = &told.history[0];
    assert_eq!(
        (event.run.as_str(), event.change.name(), event.outcome.as_str()),
        (run.id.as_str(), "add", "applied")
    );
    assert_eq!(event.sha256, Some(print));
}

#[tokio::test]
async fn a_record_with_a_past() {
    let rig = Rig::new();
    let mut runs = Vec::new();
    for value in ["1", "2", "3"] {
        rig.give(&[("a", value)]).await;
        runs.insert(0, rig.run().await.id);
    }
    let told = story(&rig, "a").await;
    assert_eq!(changes(&told), ["update", "update", "add"]);
    assert_eq!(told.history.iter().map(|event| event.run.clone()).collect::<Vec<_>>(), runs);
    rig.take_away(&["a"]).await;
    rig.run().await;
    let told = story(&rig, "a").await;
    assert_eq!(changes(&told), ["delete", "update", "update", "add"]);
    assert!(told.version.is_none() && told.source.is_none() && told.drift.is_none());
    rig.give(&[("a", "4")]).await;
    rig.run().await;
    assert_eq!(changes(&story(&rig, "a").await), ["add", "delete", "update", "update", "add"]);
}

#[tokio::test]
async fn a_record_that_died_more_than_once() {
    let rig = Rig::new();
    for value in ["1", "2", "3"] {
        rig.give(&[("a", value)]).await;
        rig.run().await;
        rig.take_away(&["a"]).await;
        rig.run().await;
    }
    assert_eq!(changes(&story(&rig, "a").await), ["delete", "add", "delete", "add", "delete", "add"]);
    rig.give(&[("a", "4")]).await;
    let run = rig.run().await;
    undo(&rig, &run.id).await;
    let told = changes(&story(&rig, "a").await);
    assert_eq!(told, ["delete", "add", "delete", "add", "delete", "add", "delete", "add"]);
}

#[tokio::test]
async fn a_record_that_is_held() {
    let rig = Rig::new().guarded(0, 100);
    rig.give(&[("a", "1"), ("b", "1")]).await;
    rig.run().await;
    rig.take_away(&["a"]).await;
    rig.run().await;
    let held = story(&rig, "a").await.held.unwrap();
    assert_eq!((held.change.name(), held.rule.as_str()), ("delete", "max_delete 0"));
    assert!(story(&rig, "b").await.held.is_none());
}

#[tokio::test]
async fn a_record_that_was_undone() {
    let rig = Rig::new();
    rig.give(&[("a", "1")]).await;
    rig.run().await;
    rig.give(&[("a", "2"), ("b", "1")]).await;
    let run = rig.run().await;
    undo(&rig, &run.id).await;
    let told = story(&rig, "a").await;
    assert_eq!(changes(&told), ["update", "update", "add"]);
    assert_eq!(told.decision.unwrap().run, run.id);
    assert_eq!(changes(&story(&rig, "b").await), ["delete", "add"]);
    rig.run().await;
    assert_eq!(story(&rig, "a").await.held.unwrap().rule, format!("undone {}", run.id));
}

#[tokio::test]
async fn a_record_that_drifted_and_one_that_is_foreign() {
    let rig = Rig::new();
    rig.give(&[("a", "1"), ("b", "1"), ("c", "1")]).await;
    rig.intrude("c", "theirs").await;
    rig.run().await;
    rig.intrude("a", "edited").await;
    rig.remove("b").await;
    assert_eq!(story(&rig, "a").await.drift, Some("edited"));
    assert_eq!(story(&rig, "b").await.drift, Some("missing"));
    let told = story(&rig, "c").await;
    assert_eq!(told.drift, Some("foreign"));
    let held = told.held.unwrap();
    assert!(held.foreign && held.rule.starts_with("foreign"), "{held:?}");
    assert!(told.history.is_empty() && told.source.is_none());
}

#[tokio::test]
async fn a_key_nobody_knows() {
    let rig = Rig::new();
    rig.give(&[("policies/alpha.md", "1"), ("policies/beta.md", "1"), ("zebra", "1")]).await;
    rig.run().await;
    let line = rig.line().await;
    assert!(line.why("policies/alhpa.md").await.unwrap().is_none());
    assert_eq!(line.near("policies/alhpa.md").await.unwrap()[0], "policies/alpha.md");
    assert_eq!(line.near("zebar").await.unwrap()[0], "zebra");
    assert_eq!(line.near("plicies/beta.md").await.unwrap()[0], "policies/beta.md");
}

#[tokio::test]
async fn looking_changes_nothing() {
    let rig = Rig::new();
    rig.give_many(3, "x").await;
    rig.run().await;
    let before = rig.state_bytes().await;
    story(&rig, "k01").await;
    assert_eq!(rig.state_bytes().await, before);
}

const NOTES: &str = r#"
[pipelines.notes]
from = { files = "notes" }
into = "file:out"
then = { command = ["sh", "-c", "exit 1"] }
"#;

fn why(home: &Home, key: &str) -> Value {
    home.ends(&["why", key], 0)
}

#[test]
fn the_program_tells_who_owns_a_key_and_what_became_of_it() {
    let home = Home::new(NOTES);
    home.write("notes/a", "1");
    for code in [0, 0, 3] {
        home.ends(&["sync", "notes"], code);
    }
    let told = why(&home, "a");
    assert_eq!((&told["pipeline"], &told["key"]), (&"notes".into(), &"a".into()));
    let dead = &told["dead"][0];
    assert_eq!((&dead["state"], &dead["attempts"]), (&"dead".into(), &3.into()));
    assert!(dead["error"]["message"].as_str().unwrap().contains("exit"), "{dead}");
    assert_eq!(told["history"][0]["change"], "add");
    for field in ["store", "version", "fingerprint", "source", "held", "drift", "queue", "errors"] {
        assert!(told.get(field).is_some(), "{field} in {told}");
    }
    let unknown = home.run(&["why", "aa"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("nearest") && unknown.err.contains('a'), "{}", unknown.err);
}
