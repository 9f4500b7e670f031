//! What only looks leaves every byte and every file as it was.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::home::{FILES, Home, untouched};
use super::killed::{kill, line_on_stderr};

/// Every command that only looks.
const LOOKS: [&[&str]; 14] = [
    &["plan"],
    &["plan", "--json", "--full"],
    &["plan", "--only", "03.md"],
    &["sync", "--dry-run"],
    &["sync", "--dry-run", "--json"],
    &["check"],
    &["status"],
    &["status", "--json"],
    &["runs"],
    &["held"],
    &["kv", "ls", "registry"],
    &["kv", "get", "registry", "03.md"],
    &["audit"],
    &["why", "03.md"],
];

/// All but `-shm` files: these are memory that processes share, which whoever first reads a log fills anew from it.
fn kept(home: &Home) -> BTreeMap<PathBuf, String> {
    let mut tree = home.tree();
    tree.retain(|path, _| !path.to_str().unwrap().ends_with("-shm"));
    tree
}

fn looks_leave_it(home: &Home) {
    for look in LOOKS {
        let before = kept(home);
        let ran = home.run(look);
        assert_ne!(ran.code, -1, "{look:?}");
        assert!(!ran.err.contains("panicked"), "{look:?}: {}", ran.err);
        untouched(&before, &kept(home), &look.join(" "));
    }
}

#[test]
fn where_nothing_exists_yet() {
    let home = Home::with_notes(5);
    looks_leave_it(&home);
    assert!(!home.path(".trueup").exists());
}

#[test]
fn where_a_run_left_its_state() {
    let home = Home::with_notes(12);
    home.run(&["sync"]).ends(0);
    home.write("notes/03.md", "changed\n");
    for number in 4..12 {
        home.remove(&format!("notes/{number:02}.md"));
    }
    looks_leave_it(&home);
    home.run(&["sync"]).ends(4);
    looks_leave_it(&home);
}

/// A process that was killed leaves a log beside each file; reading it must not fold it in.
#[test]
fn where_a_killed_run_left_its_logs() {
    let home = Home::with_notes(12);
    home.run(&["sync"]).ends(0);
    // Thousands of batches: it is killed long before the last of them.
    home.write("trueup.toml", &format!("{FILES}batch = 1\n"));
    for number in 0..3_000 {
        home.write(&format!("notes/more/{number}.md"), "more\n");
    }
    let mut child = home.start(&["sync"]);
    line_on_stderr(&mut child, "writing");
    kill(child);
    let log = home.path(".trueup/state.db-wal");
    assert!(log.metadata().is_ok_and(|facts| facts.len() > 0), "there is a log");
    looks_leave_it(&home);
    home.write("trueup.toml", FILES);
    home.run(&["sync"]).ends(0);
}
