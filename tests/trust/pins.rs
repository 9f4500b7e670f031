//! What was undone stays undone: run after run, until a person or the source says otherwise.

use std::sync::Arc;

use trueup::pipeline::Ask;
use trueup::state::{Status, keys};
use trueup::store::faulty::{Faulty, Mishap, Verb};

use super::place::{Home, undo};
use crate::flow::rig::{LINE, Rig};

async fn undone() -> (Rig, String) {
    let rig = Rig::new();
    rig.give(&[("changed", "1"), ("gone", "1"), ("kept", "1")]).await;
    rig.run().await;
    rig.give(&[("changed", "2"), ("new", "1")]).await;
    rig.take_away(&["gone"]).await;
    let run = rig.ran(1, 1, 1, 1).await.id;
    undo(&rig, &run).await;
    (rig, run)
}

#[tokio::test]
async fn undone_keys_stay_pinned_over_later_runs_until_approved() {
    let (rig, run) = undone().await;
    let mut plan = None;
    for _ in 0..3 {
        let report = rig.run().await;
        let by = &report.counts.held_by;
        assert_eq!((report.exit_code(), by.add, by.update, by.delete), (4, 1, 1, 1), "{report:#?}");
        assert_eq!(report.writes, 0);
        let header = rig.held().await.unwrap();
        let held = rig.state().await.held_items(&header).await.unwrap();
        assert!(held.iter().all(|held| held.rule == format!("undone {run}")), "{held:#?}");
        plan = report.plan;
    }
    assert_eq!(rig.value("changed").await.as_deref(), Some("1"));
    let approved = rig.approve(&plan.unwrap()).await.unwrap();
    assert_eq!((approved.status, approved.writes), (Status::Ok, 3), "{approved:#?}");
    rig.in_step().await;
    assert!(rig.state().await.keys(&keys::decisions(LINE)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_pin_goes_when_the_source_changes() {
    let (rig, _) = undone().await;
    rig.run().await;
    rig.give(&[("changed", "3"), ("new", "2"), ("gone", "2")]).await;
    let report = rig.ran(1, 2, 0, 1).await;
    assert_eq!(report.status, Status::Ok);
    rig.in_step().await;
    assert!(rig.state().await.keys(&keys::decisions(LINE)).await.unwrap().is_empty());
}

#[tokio::test]
async fn rejecting_what_was_undone_settles_it() {
    let (rig, _) = undone().await;
    let plan = rig.run().await.plan.unwrap();
    rig.reject(&plan).await.unwrap();
    assert_eq!(rig.run().await.status, Status::Ok);
    assert_eq!(rig.value("changed").await.as_deref(), Some("1"));
    assert_eq!(rig.value("gone").await.as_deref(), Some("1"));
    assert_eq!(rig.value("new").await, None);
}

/// The pin was lifted beside the write, not by its intent: a crash in between left it to hold a later heal.
#[tokio::test]
async fn a_redo_that_was_cut_off_before_it_was_settled_leaves_no_pin() {
    let (rig, run) = undone().await;
    let undo_run = rig.state().await.keys(keys::RUNS).await.unwrap().pop().unwrap();
    let undo_run = keys::below(keys::RUNS, &undo_run).to_owned();
    assert_ne!(undo_run, run);
    let memory = Arc::new(Faulty::new(rig.memory.clone(), rig.clock.clone()));
    let mut line = rig.line().await;
    line.state = trueup::state::State::open(memory.clone()).await.unwrap();
    // The run, its intents, its deletes' intents; the settling of the last never comes.
    for call in 3..=12 {
        memory.at_verb(Verb::Write, call, Mishap::Reject);
    }
    drop(line.undo(&undo_run, &Ask::plain("undo"), None).await);
    let decided = rig.state().await.keys(&keys::decisions(LINE)).await.unwrap();
    assert!(!decided.is_empty(), "not everything was settled");
    let report = undo(&rig, &undo_run).await;
    assert_eq!(report.status, Status::Ok, "{report:#?}");
    let decided = rig.state().await.keys(&keys::decisions(LINE)).await.unwrap();
    assert!(decided.is_empty(), "{decided:?}");
    rig.in_step().await;
}

#[test]
fn the_program_undoes_holds_approves_and_redoes() {
    let home = Home::new(
        "[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"file:out\"\nthen = { export = \"file:copy\" }\nguard = { max_delete = 1 }\n",
    );
    for name in ["a", "b", "c"] {
        home.write(&format!("notes/{name}"), "1");
    }
    let run = home.ends(&["sync"], 0)["runs"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(home.read("copy/a").as_deref(), Some("1"));
    home.ends(&["undo", &run, "--dry-run"], 0);
    assert_eq!(home.read("out/a").as_deref(), Some("1"), "a dry run changes nothing");

    let held = home.ends(&["undo", &run], 4);
    let plan = held["runs"][0]["plan"].as_str().unwrap().to_owned();
    assert_eq!(
        (&held["runs"][0]["held_by"]["delete"], &held["runs"][0]["undoes"]),
        (&3.into(), &run.clone().into())
    );
    let shown = home.ends(&["held"], 0);
    assert_eq!(
        (&shown["held"][0]["plan"], &shown["held"][0]["undoes"]),
        (&plan.clone().into(), &run.clone().into())
    );
    let approved = home.ends(&["approve", &plan], 0);
    assert_eq!(approved["runs"][0]["deleted"], 3);
    assert_eq!((home.read("out/a"), home.read("copy/a")), (None, None), "its follow-ups were done");
    home.ends(&["approve", &plan], 1);

    let pinned = home.ends(&["sync"], 4);
    assert_eq!(pinned["runs"][0]["held_by"]["add"], 3);
    let undo_run = approved["runs"][0]["id"].as_str().unwrap().to_owned();
    home.ends(&["undo", &undo_run], 0);
    assert_eq!((home.read("out/a").as_deref(), home.read("copy/a").as_deref()), (Some("1"), Some("1")));
    home.ends(&["sync"], 0);
    home.ends(&["undo", "01K00000000000000000000000"], 1);
}

/// The baseline took what a stranger had written for the source's own value: the next run said that all was well.
#[tokio::test]
async fn an_undone_heal_is_held_like_any_other_undone_change() {
    let rig = Rig::new();
    rig.give(&[("edited", "ours"), ("removed", "ours")]).await;
    rig.run().await;
    rig.intrude("edited", "theirs").await;
    rig.remove("removed").await;
    let healed = rig.ran(0, 2, 0, 0).await;
    undo(&rig, &healed.id).await;
    assert_eq!((rig.value("edited").await.as_deref(), rig.value("removed").await), (Some("theirs"), None));
    let report = rig.run().await;
    assert_eq!((report.exit_code(), report.counts.held, report.writes), (4, 2, 0), "{report:#?}");
    assert_eq!(rig.approve(&report.plan.unwrap()).await.unwrap().status, Status::Ok);
    rig.in_step().await;
}

/// The second undo pinned what the older run had brought, which the source no longer says: the next run did it all again.
#[tokio::test]
async fn of_several_runs_that_are_undone_none_comes_back() {
    for last in [Some("3"), None] {
        let rig = Rig::new();
        rig.give(&[("k", "1"), ("other", "1")]).await;
        rig.run().await;
        rig.give(&[("k", "2")]).await;
        let older = rig.run().await.id;
        match last {
            Some(value) => rig.give(&[("k", value)]).await,
            None => rig.take_away(&["k"]).await,
        }
        let newer = rig.run().await.id;
        undo(&rig, &newer).await;
        let undone = undo(&rig, &older).await;
        assert_eq!(rig.value("k").await.as_deref(), Some("1"));
        let report = rig.run().await;
        assert_eq!((report.counts.held, report.writes), (1, 0), "{last:?}: {report:#?}");
        assert_eq!(rig.value("k").await.as_deref(), Some("1"));

        // Reversing the second undo leaves the newer run undone, and still pinned.
        undo(&rig, &undone.id).await;
        assert_eq!(rig.value("k").await.as_deref(), Some("2"));
        let report = rig.run().await;
        assert_eq!((report.counts.held, report.writes), (1, 0), "{last:?}: {report:#?}");
        rig.approve(&report.plan.unwrap()).await.unwrap();
        assert_eq!(rig.value("k").await.as_deref(), last);
        rig.in_step().await;
    }
}

/// Nobody was left who could drop it.
#[test]
fn what_is_held_of_a_pipeline_that_is_gone_can_be_dropped() {
    let config = |name: &str| {
        format!(
            "[pipelines.{name}]\nfrom = {{ files = \"src\" }}\ninto = \"file:out\"\nguard = {{ max_delete = 0 }}\n"
        )
    };
    let home = Home::new(&config("p"));
    home.write("src/a", "1");
    home.write("src/b", "1");
    home.ends(&["sync"], 0);
    home.remove("src/a");
    let held = home.ends(&["sync"], 4)["runs"][0]["plan"].as_str().unwrap().to_owned();
    home.write("trueup.toml", config("q"));
    let refused = home.ends(&["approve", &held], 2);
    assert!(refused["error"]["remedy"].as_str().unwrap().contains("trueup reject"), "{refused}");
    let dropped = home.ends(&["reject", &held], 0);
    assert_eq!(dropped["runs"][0]["pipeline"], "p", "{dropped}");
    assert_eq!(home.ends(&["held"], 0)["held"], serde_json::json!([]));
    assert_eq!(home.read("out/a").as_deref(), Some("1"));
}

/// It went on in silence, and its work was done by nobody.
#[test]
fn what_a_pipeline_that_is_gone_left_behind_is_said() {
    let config = |name: &str| {
        format!(
            "[pipelines.{name}]\nfrom = {{ files = \"src\" }}\ninto = \"file:out\"\nthen = {{ command = [\"false\"] }}\n"
        )
    };
    let home = Home::new(&config("p"));
    home.write("src/a", "1");
    home.run(&["sync"]);
    assert_eq!(home.ends(&["status"], 0).get("left_behind"), None);
    home.write("trueup.toml", config("q").replace("then", "# then"));
    let left = home.ends(&["status"], 0)["left_behind"].clone();
    assert_eq!(left, serde_json::json!([{"pipeline": "p", "queue": 1, "dead": 0, "held": 0}]));
    for command in [["sync"].as_slice(), &["queue", "work"]] {
        let said = home.run(command).err;
        assert!(said.contains("p is not in the config and left behind: 1 in its queue"), "{said}");
    }
}
