//! One key: runs for it alone, its story, who may take it over, and names that were mistyped.

use std::fs;

use serde_json::{Value, json};

use super::home::Home;

/// Two pipelines over folders of their own.
const TWO: &str = r#"
[pipelines.first]
from = { files = "a" }
into = "sqlite:first.db"

[pipelines.second]
from = { files = "b" }
into = "sqlite:second.db"
"#;

fn two() -> Home {
    let home = Home::new(TWO);
    for (name, text) in [("a/shared", "1"), ("a/apple", "1"), ("b/shared", "2"), ("b/zebra", "2")] {
        home.write(name, text);
    }
    home
}

#[test]
fn a_key_that_nobody_knows_is_no_success() {
    let home = two();
    for args in [&["sync", "--only", "aple", "--json"][..], &["plan", "--only", "aple", "--json"]] {
        let ran = home.run(args).ends(1).says(&["no pipeline knows the key aple", "apple"]);
        assert_eq!(ran.json()["error"]["kind"], "not_found");
    }
    assert!(home.run(&["runs", "--json"]).json()["runs"].as_array().unwrap().is_empty(), "no run was begun");

    home.run(&["sync", "--only", "apple", "--json"]).ends(0);
    assert_eq!(home.keys("sqlite:first.db"), ["apple"], "the source knows it");
    home.run(&["sync"]).ends(0);
    home.run(&["sync", "--only", "zebar"]).ends(1).says(&["zebra"]);
    home.run(&["sync", "first", "--only", "zebra"]).ends(1);
    home.remove("b/zebra");
    home.run(&["sync", "--only", "zebra"]).ends(0);
    assert_eq!(home.keys("sqlite:second.db"), ["shared"], "what is remembered knows it");
    home.run(&["sync", "--only", "zebra"]).ends(0);
    home.run(&["kv", "put", "sqlite:second.db", "theirs", "x"]).ends(0);
    home.run(&["sync", "--only", "theirs"]).ends(0);
}

/// A policy is known by its name, not by the file it is read from: another file may have the same.
#[test]
fn a_policy_is_asked_for_by_its_key_or_its_name() {
    let home = Home::new(
        "[pipelines.rules]\nfrom = { files = \"docs\" }\nas = \"policy\"\ninto = \"sqlite:r.db\"\n",
    );
    for name in ["docs/one.md", "docs/two.md", "docs/three.md"] {
        home.write(name, "# A rule\n");
    }
    for (only, code, added) in [("policy:one", 0, 1), ("two", 0, 1), ("two.md", 1, 0), ("policy:four", 1, 0)]
    {
        let ran = home.run(&["sync", "--only", only, "--json"]).ends(code);
        let count = if code == 0 { ran.run()["added"].clone() } else { 0.into() };
        assert_eq!(count, added, "{only}");
    }
}

/// Nobody can say what a source holds that cannot be read.
#[test]
fn a_source_that_cannot_be_read_is_told_and_not_the_key() {
    let home = two();
    fs::remove_dir_all(home.path("b")).unwrap();
    home.run(&["sync", "second", "--only", "zebra"]).ends(1).says(&["does not exist"]);
}

#[test]
fn the_story_of_a_key_names_the_other_pipelines_that_know_it() {
    let home = two();
    home.run(&["sync"]).ends(0);
    let why = |args: &[&str]| home.run(&[&["why", "shared", "--json"], args].concat()).ends(0).json();
    let told = why(&[]);
    assert_eq!((&told["pipeline"], &told["also"]), (&json!("first"), &json!(["second"])), "{told}");
    let told = why(&["--pipeline", "second"]);
    assert_eq!((&told["pipeline"], &told["also"]), (&json!("second"), &json!(["first"])), "{told}");
    let text = home.run(&["why", "shared"]).ends(0).out;
    assert!(text.contains("also") && text.contains("second (`--pipeline NAME`"), "{text}");
    let alone = home.run(&["why", "apple", "--json"]).ends(0).json();
    assert_eq!(alone.get("also"), None, "{alone}");

    home.run(&["why", "apple", "--pipeline", "second"]).ends(1).says(&["second does not know", "first"]);
    home.run(&["why", "apple", "--pipeline", "secnd"]).ends(2).says(&["did you mean `second`?"]);
    // The other need not be within reach.
    home.remove("second.db");
    fs::create_dir(home.path("second.db")).unwrap();
    assert_eq!(why(&[])["also"], json!(["second"]));
}

#[test]
fn near_keys_are_named_once() {
    let home = two();
    fs::write(home.path("b/apple"), "2").unwrap();
    home.run(&["sync"]).ends(0);
    let error = home.run(&["why", "aple", "--json"]).ends(1).json();
    let remedy = error["error"]["remedy"].as_str().unwrap();
    assert_eq!(remedy.matches("apple").count(), 1, "{remedy}");
}

#[test]
fn a_foreign_key_is_adopted_for_one_pipeline() {
    let home = Home::new(TWO);
    home.write("a/x", "1");
    home.write("b/x", "2");
    for store in ["sqlite:first.db", "sqlite:second.db"] {
        home.run(&["kv", "put", store, "x", "theirs"]).ends(0);
    }
    home.run(&["sync"]).ends(4);
    home.run(&["adopt", "x", "--pipeline", "none"]).ends(2);
    home.run(&["adopt", "x", "--pipeline", "second"]).ends(0);
    home.run(&["sync"]).ends(4);
    assert_eq!(home.value("sqlite:first.db", "x").as_deref(), Some("theirs"));
    assert_eq!(home.value("sqlite:second.db", "x").as_deref(), Some("2"));
}

/// Ids of runs only ever grow; what a clock once showed must not be told of every later change.
#[test]
fn a_change_is_told_with_the_time_of_its_own_run() {
    let home = Home::with_notes(1);
    home.run(&["sync", "--now", "2030-01-01T00:00:00Z"]).ends(0);
    home.write("notes/00.md", "changed\n");
    home.run(&["sync", "--now", "2026-03-01T12:00:00Z"]).ends(0);
    let told = home.run(&["why", "00.md", "--json"]).ends(0).json();
    let times: Vec<&Value> = told["history"].as_array().unwrap().iter().map(|event| &event["at"]).collect();
    assert_eq!(times, ["2026-03-01T12:00:00.000Z", "2030-01-01T00:00:00.000Z"], "{told}");
    assert_eq!(told["source"]["seen"], "2026-03-01T12:00:00.000Z");
}

#[test]
fn a_pipeline_that_is_not_there_has_no_history() {
    let home = two();
    home.run(&["sync"]).ends(0);
    home.run(&["runs", "--pipeline", "frst"]).ends(2).says(&["there is no pipeline frst", "`first`"]);
    // One that left the config has.
    home.write("trueup.toml", &TWO.replace("[pipelines.second]", "[pipelines.third]"));
    let runs = home.run(&["runs", "--pipeline", "second", "--json"]).ends(0).json();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1));
    home.run(&["runs", "--pipeline", "third"]).ends(0);
}
