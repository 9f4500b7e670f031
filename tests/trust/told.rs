//! What is said beforehand is what is done, and what failed is said to have failed.

use std::fs::{self, File};
use std::time::Duration;

use crate::cli::home::{FILES, Home};
use crate::support;

/// Notes that are old enough for their times to be believed, and a rule about drift.
fn notes(drift: &str) -> Home {
    let home = Home::with_notes(3);
    home.write("trueup.toml", &format!("{FILES}drift = {drift}\n"));
    touched(&home, 3_600);
    home.run(&["sync"]).ends(0);
    home
}

/// Times that are earlier by this much, the same content.
fn touched(home: &Home, seconds: u64) {
    for note in fs::read_dir(home.path("notes")).unwrap() {
        let note = File::options().append(true).open(note.unwrap().path()).unwrap();
        let when = note.metadata().unwrap().modified().unwrap() - Duration::from_secs(seconds);
        note.set_modified(when).unwrap();
    }
}

/// Drift is what it is, whether or not somebody touched the source meanwhile.
#[test]
fn a_touched_file_does_not_bring_back_what_is_to_be_left() {
    let home = notes("{ edited = \"report\", missing = \"report\" }");
    home.run(&["kv", "put", "registry", "00.md", "theirs"]).ends(0);
    home.run(&["kv", "rm", "registry", "01.md"]).ends(0);
    touched(&home, 60);
    let plan = home.run(&["plan", "--json"]).ends(0).json();
    assert_eq!(plan["plans"][0]["update"], serde_json::json!([]), "{plan}");
    let run = home.run(&["sync", "--json"]).ends(0).run();
    assert_eq!((&run["unchanged"], &run["held"], &run["writes"]), (&3.into(), &0.into(), &0.into()), "{run}");
    assert_eq!(home.value("registry", "00.md").as_deref(), Some("theirs"));
    assert_eq!(home.value("registry", "01.md"), None);
}

#[test]
fn a_touched_file_whose_value_was_edited_is_healed_or_adopted_as_the_config_says() {
    for (drift, value) in [("{ edited = \"heal\" }", "note 0\n"), ("{ edited = \"adopt\" }", "theirs")] {
        let home = notes(drift);
        home.run(&["kv", "put", "registry", "00.md", "theirs"]).ends(0);
        touched(&home, 60);
        home.run(&["sync"]).ends(0);
        assert_eq!(home.value("registry", "00.md").as_deref(), Some(value), "{drift}");
        let still = home.run(&["sync", "--json"]).ends(0).run();
        assert_eq!((&still["unchanged"], &still["writes"]), (&3.into(), &0.into()), "{drift}");
    }
}

/// Gone from the source, and changed in the store: a plan says that it will be held, as the run does.
#[test]
fn a_plan_says_that_an_edited_value_will_not_be_deleted() {
    let home = notes("{ edited = \"heal\" }");
    home.run(&["kv", "put", "registry", "00.md", "theirs"]).ends(0);
    home.remove("notes/00.md");
    home.remove("notes/01.md");
    let plan = home.run(&["plan", "--json"]).ends(0).json();
    let plan = &plan["plans"][0];
    assert_eq!(
        (&plan["delete"][0]["key"], &plan["held"][0]["key"]),
        (&"01.md".into(), &"00.md".into()),
        "{plan}"
    );
    let run = home.run(&["sync", "--json"]).ends(4).run();
    assert_eq!((&run["deleted"], &run["held_by"]["delete"]), (&1.into(), &1.into()), "{run}");
    assert_eq!(home.value("registry", "00.md").as_deref(), Some("theirs"));
}

/// The store cannot be opened: that is a run that failed, for whoever asks.
#[test]
fn a_run_that_could_not_start_is_a_failed_run() {
    let home = Home::with_notes(2);
    home.run(&["sync"]).ends(0);
    fs::write(home.path(".trueup/registry.db"), "this is no database, and long enough to be sure of it")
        .unwrap();
    let code = home.run(&["sync"]).code;
    assert_ne!(code, 0);
    let status = home.run(&["status", "--json"]).ends(0).json();
    assert_eq!(status["pipelines"][0]["status"], "failed", "{status}");
    let runs = home.run(&["runs", "--json"]).ends(0).json();
    let statuses: Vec<_> = runs["runs"].as_array().unwrap().iter().map(|run| &run["status"]).collect();
    assert_eq!(statuses, ["failed", "ok"], "{runs}");
    assert!(!runs["runs"][0]["errors"][0]["remedy"].as_str().unwrap().is_empty());
    fs::remove_file(home.path(".trueup/registry.db")).unwrap();
    assert_eq!(home.run(&["sync", "--json"]).ends(0).run()["status"], "ok");
}

/// An empty document has no entry, and no repair would give it one.
#[test]
fn a_document_that_cannot_be_used_is_no_drift() {
    let home = Home::new(
        "[pipelines.policies]\nfrom = { files = \"policies\" }\nas = \"policy\"\ninto = \"sqlite:registry.db\"\n",
    );
    home.write("policies/a.md", "# A\n");
    home.write("policies/empty.md", "");
    home.run(&["sync"]).ends(0);
    let audit = home.run(&["audit", "--json"]).ends(0).json();
    assert_eq!(audit["audits"][0]["drift"], serde_json::json!([]), "{audit}");
    home.write("policies/empty.md", "# No longer\n");
    home.run(&["audit"]).ends(3);
}

#[tokio::test]
async fn keys_below_a_prefix_of_etcd_are_a_source() {
    let etcd = format!("etcd://{}/told/", support::etcd().await.endpoints());
    let home = Home::new(&format!(
        "[pipelines.services]\nfrom = {{ etcd = \"{etcd}\" }}\ninto = \"sqlite:services.db\"\n"
    ));
    home.run(&["kv", "put", &etcd, "a", "1"]).ends(0);
    assert_eq!(home.run(&["sync", "--json"]).ends(0).run()["added"], 1);
    home.run(&["check"]).ends(0);
    assert_eq!(home.value("sqlite:services.db", "a").as_deref(), Some("1"));
}
