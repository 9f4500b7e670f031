//! Reports as people and programs read them.
//!
//! New wording is taken over with `INSTA_UPDATE=always cargo test --test it cli::reports`, and read in the diff.

use serde_json::Value;

use super::home::Home;

const NOW: &str = "2026-03-01T12:00:00Z";

/// Replace what differs from run to run: run ids, plan ids, versions, the folder.
fn redacted(home: &Home, text: &str) -> String {
    let text = text.replace(home.path("").to_str().unwrap().trim_end_matches('/'), "FOLDER");
    let mut shown = String::new();
    for part in text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let upper = word.chars().all(|letter| letter.is_ascii_digit() || letter.is_ascii_uppercase());
        let hex = word.chars().all(|letter| letter.is_ascii_digit() || ('a'..='f').contains(&letter));
        let name = match word.len() {
            26 if upper => "RUN",
            12 if hex => "PLAN",
            64 if hex => "SHA256",
            _ => word,
        };
        shown.push_str(name);
        shown.push_str(&part[word.len()..]);
    }
    shown
}

/// Text and JSON of a command, and how it ended.
fn both(home: &Home, args: &[&str], code: i32) -> String {
    let args = [args, &["--now", NOW]].concat();
    let text = home.run(&args).ends(code);
    let json: Value = home.run(&[&args[..], &["--json"]].concat()).json();
    let json = serde_json::to_string_pretty(&json).unwrap();
    let both = format!("---- stdout\n{}---- stderr\n{}---- json\n{json}\n", text.out, text.err);
    redacted(home, &both)
}

/// Twelve notes in the store; then one changed, one new, one unusable and eight gone.
fn eventful() -> Home {
    let home = Home::with_notes(12);
    home.run(&["sync", "--now", NOW]).ends(0);
    home.write("notes/00.md", "note 0, edited\n");
    home.write("notes/new.md", "new\n");
    for number in 4..12 {
        home.remove(&format!("notes/{number:02}.md"));
    }
    std::os::unix::fs::symlink("nowhere", home.path("notes/dangling.md")).unwrap();
    home
}

#[test]
fn a_first_plan() {
    insta::assert_snapshot!("plan_first", both(&Home::with_notes(3), &["plan"], 0));
}

#[test]
fn a_plan_of_everything_at_once() {
    insta::assert_snapshot!("plan_eventful", both(&eventful(), &["plan"], 0));
}

#[test]
fn a_run_of_everything_at_once_and_what_is_shown_of_it_later() {
    let home = eventful();
    let ran = home.run(&["sync", "--now", NOW]).ends(3);
    let text = format!("---- stdout\n{}---- stderr\n{}", ran.out, ran.err);
    insta::assert_snapshot!("sync_eventful", redacted(&home, &text));
    let json = home.run(&["sync", "--now", NOW, "--json"]).ends(3).run();
    insta::assert_snapshot!("sync_json", redacted(&home, &serde_json::to_string_pretty(&json).unwrap()));
    insta::assert_snapshot!("held", both(&home, &["held"], 0));
    insta::assert_snapshot!("status", both(&home, &["status"], 0));
    let runs = home.run(&["runs"]).ends(0).out;
    insta::assert_snapshot!("runs", redacted(&home, &runs));
}

#[test]
fn nothing_yet() {
    let home = Home::with_notes(0);
    for (name, args) in [("held_none", ["held"]), ("runs_none", ["runs"]), ("status_none", ["status"])] {
        insta::assert_snapshot!(name, both(&home, &args, 0));
    }
}

#[test]
fn an_error_before_any_run_is_one_json_document_too() {
    let home = Home::new("[pipelines.x]\nfrom = { files = \"notes\" }\ninto = \"nowhere\"\n");
    insta::assert_snapshot!("config_error", both(&home, &["sync"], 2));
}
