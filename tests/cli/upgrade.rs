//! A state written by an older version opens, or says why not; and every key of the state is in its documentation.
//!
//! `tests/fixtures/state-v1` was made by the first version: `notes/` of three files synced, one edited, one removed,
//! synced again. It is never made anew: a later format gets a fixture of its own beside it, as `state-v2` and `state-v3` are.

use std::fs;

use trueup::state::{FORMAT, keys};
use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, Item, StoreExt as _};

use super::home::{FILES, Home};

fn old_home() -> Home {
    home_of(1)
}

fn home_of(format: u32) -> Home {
    let home = Home::new(FILES);
    let fixture = format!("{}/tests/fixtures/state-v{format}", env!("CARGO_MANIFEST_DIR"));
    for name in ["state.db", "registry.db"] {
        fs::create_dir_all(home.path(".trueup")).unwrap();
        fs::copy(format!("{fixture}/{name}"), home.path(".trueup").join(name)).unwrap();
    }
    home.write("notes/a.md", "first\n");
    home.write("notes/b.md", "second, edited\n");
    home
}

#[test]
fn a_state_of_every_version_opens_and_a_sync_on_it_has_nothing_to_do() {
    for format in 1..=FORMAT {
        let home = home_of(format);
        let plan = home.run(&["plan", "--json"]).ends(0).json();
        assert_eq!(plan["plans"][0]["unchanged"], 2, "{plan}");
        let run = home.run(&["sync", "--json", "--now", "2026-01-03T00:00:00Z"]).ends(0).run();
        assert_eq!((&run["unchanged"], &run["writes"]), (&2.into(), &0.into()), "{run}");
        let runs = home.run(&["runs", "--json"]).ends(0).json();
        assert_eq!(
            runs["runs"].as_array().unwrap().len(),
            3,
            "old runs are still there, and newer ones come first"
        );
        assert_eq!(runs["runs"][2]["added"], 3);
        home.run(&["status"]).ends(0);
    }
}

#[test]
fn what_any_version_wrote_is_explained_and_undone_by_this_one() {
    for format in 1..=FORMAT {
        let home = home_of(format);
        let runs = home.run(&["runs", "--json"]).ends(0).json();
        let newest = runs["runs"][0]["id"].as_str().unwrap();
        home.run(&["undo", newest, "--now", "2026-01-03T00:00:00Z"]).ends(0);
        for (key, text) in [("a.md", "first\n"), ("b.md", "second\n"), ("c.md", "third\n")] {
            assert_eq!(home.run(&["kv", "get", "registry", key, "--json"]).ends(0).json()["value"], text);
        }
        let why = home.run(&["why", "b.md", "--json"]).ends(0).json();
        let changes: Vec<_> =
            why["history"].as_array().unwrap().iter().map(|event| &event["change"]).collect();
        assert_eq!(changes.len(), 3, "added, updated and put back again: {why}");
        // What was undone stays so.
        home.run(&["sync"]).ends(4);
    }
}

#[tokio::test]
async fn a_state_that_was_written_by_this_version_is_marked_as_such() {
    let home = old_home();
    home.run(&["plan"]).ends(0);
    let mark = async || {
        let store = Sqlite::open(&home.path(".trueup/state.db"), Access::Read).unwrap();
        store.get_one(keys::FORMAT).await.unwrap().unwrap().value
    };
    assert_eq!(mark().await, r#"{"format":1}"#, "looking leaves it as it is");
    home.run(&["sync"]).ends(0);
    assert_eq!(mark().await, format!("{{\"format\":{FORMAT}}}"));
}

#[tokio::test]
async fn a_state_of_a_newer_version_is_refused_with_the_reason() {
    let home = old_home();
    let path = home.path(".trueup/state.db");
    {
        let store = Sqlite::open(&path, Access::Write).unwrap();
        let newer = format!("{{\"format\":{}}}", FORMAT + 1);
        store.write_one(Item::put(keys::FORMAT, newer)).await.unwrap();
    }
    let before = fs::read(&path).unwrap();
    let says = format!("has format {}", FORMAT + 1);
    for args in [&["sync"][..], &["plan"], &["status"]] {
        home.run(args).ends(2).says(&[&says, "newer trueup"]);
    }
    assert_eq!(fs::read(&path).unwrap(), before, "it is left as it is");
}

/// Every prefix that `src/state/keys.rs` spells, found in its own text.
fn prefixes() -> Vec<String> {
    let code = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/state/keys.rs")).unwrap();
    let mut found: Vec<String> = code
        .split('"')
        .skip(1)
        .step_by(2)
        .filter_map(|text| {
            text.split_once('/').map(|(first, rest)| {
                if first == "meta" { format!("{first}/{rest}") } else { format!("{first}/") }
            })
        })
        .filter(|prefix| prefix.chars().all(|letter| letter.is_ascii_lowercase() || "-/".contains(letter)))
        .collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn every_key_of_the_state_is_documented() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/state-format.md")).unwrap();
    let prefixes = prefixes();
    assert!(prefixes.len() >= 14, "{prefixes:?}");
    let missing: Vec<_> = prefixes.iter().filter(|prefix| !page.contains(&format!("`{prefix}"))).collect();
    assert!(missing.is_empty(), "docs/state-format.md says nothing about {missing:?}");
}
