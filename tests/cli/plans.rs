//! Sealed plans in files: what `plan --out` may write over, and what `sync --plan` takes.

use std::fs;
use std::process::Command;

use super::home::{FILES, Home, untouched};

#[test]
fn a_plan_takes_the_place_of_a_plan_and_of_nothing_else() {
    let home = Home::with_notes(2);
    home.run(&["sync"]).ends(0);
    home.write("notes/00.md", "changed\n");
    home.write("empty", "");
    home.write("other.json", "{\"plan\": 1}\n");
    home.write("folder/x", "");
    let before = home.tree();
    for file in [".trueup/state.db", "trueup.toml", "notes/01.md", "empty", "other.json", "folder"] {
        let ran = home.run(&["plan", "--out", file, "--json"]).ends(2);
        let ran = ran.says(&[file, "left as it is", "Name another file"]);
        assert_eq!(ran.json()["error"]["kind"], "config");
        untouched(&before, &home.tree(), file);
    }
    assert!(Command::new("mkfifo").arg(home.path("pipe")).status().unwrap().success());
    home.run(&["plan", "--out", "pipe"]).ends(2).says(&["no regular file"]);

    home.run(&["plan", "--out", "p.json"]).ends(0);
    let first = fs::read_to_string(home.path("p.json")).unwrap();
    home.write("notes/01.md", "changed, too\n");
    home.run(&["plan", "--out", "p.json"]).ends(0);
    assert_ne!(fs::read_to_string(home.path("p.json")).unwrap(), first, "an older plan is replaced");
    home.write("p.json", &first.replace("\"trueup_plan\": 2", "\"trueup_plan\": 1"));
    home.run(&["plan", "--out", "p.json"]).ends(0);
    home.run(&["sync", "--plan", "p.json"]).ends(0);
    assert_eq!(home.value("registry", "01.md").as_deref(), Some("changed, too\n"));
}

#[test]
fn what_is_no_plan_is_refused_with_a_way_out() {
    let home = Home::new(FILES);
    home.write("notes/a.md", "a\n");
    fs::write(home.path("bytes"), b"\xff\xfe\x00").unwrap();
    home.run(&["sync", "--plan", "notes"]).ends(2).says(&["notes is a folder", "trueup plan PIPELINE --out"]);
    home.run(&["sync", "--plan", "none"]).ends(1).says(&["none", "trueup plan PIPELINE --out"]);
    home.run(&["sync", "--plan", "bytes"]).ends(1).says(&["not a sealed plan", "trueup plan --out"]);
    assert!(!home.path(".trueup").exists());
}
