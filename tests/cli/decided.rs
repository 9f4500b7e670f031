//! What people decided, and whose keys are whose, through undos, other stores and losses.

use serde_json::Value;

use super::home::Home;

const KV: &str = "sqlite:kv.db";

fn home(settings: &str) -> Home {
    let home = Home::new("");
    into(&home, KV, settings);
    home
}

fn into(home: &Home, store: &str, settings: &str) {
    let config = format!("[pipelines.p]\nfrom = {{ files = \"src\" }}\ninto = \"{store}\"\n{settings}\n");
    home.write("trueup.toml", &config);
}

fn synced(home: &Home, code: i32) -> Value {
    home.run(&["sync", "--json"]).ends(code).run()
}

fn id(run: &Value) -> &str {
    run["id"].as_str().unwrap()
}

fn held_plan(home: &Home) -> String {
    home.run(&["held", "--json"]).ends(0).json()["held"][0]["plan"].as_str().unwrap().to_owned()
}

#[test]
fn a_rejected_deletion_stays_rejected_when_an_older_run_is_undone() {
    let home = home("");
    for number in 1..=12 {
        home.write(&format!("src/k{number}"), "v1");
    }
    synced(&home, 0);
    home.write("src/k1", "v2");
    let update = synced(&home, 0);
    (1..=6).for_each(|number| home.remove(&format!("src/k{number}")));
    synced(&home, 4);
    home.run(&["reject", &held_plan(&home)]).ends(0);
    synced(&home, 0);
    home.run(&["undo", id(&update)]).ends(0);
    let run = synced(&home, 4);
    assert_eq!((&run["deleted"], &run["held"]), (&0.into(), &1.into()), "{run}");
    assert_eq!(home.value(KV, "k1").as_deref(), Some("v1"));
    assert_eq!(home.keys(KV).len(), 12);
}

/// The newest that is known of the source is what is held, or what was rejected.
#[test]
fn what_is_undone_is_not_written_because_an_update_of_it_was_held() {
    for rejected in [true, false] {
        let home = home("guard = { max_update = 0 }");
        home.write("src/l", "other");
        synced(&home, 0);
        home.write("src/k", "v1");
        let added = synced(&home, 0);
        home.write("src/k", "v2");
        synced(&home, 4);
        if rejected {
            home.run(&["reject", &held_plan(&home)]).ends(0);
        }
        home.run(&["undo", id(&added)]).ends(0);
        let run = synced(&home, 4);
        assert_eq!((&run["added"], home.value(KV, "k")), (&0.into(), None), "{run}");
        // Something else than all of that is news.
        home.write("src/k", "v3");
        synced(&home, 0);
        assert_eq!(home.value(KV, "k").as_deref(), Some("v3"));
    }
}

#[test]
fn what_was_in_another_store_before_us_is_not_ours() {
    let home = home("");
    for (key, value) in [("k1", "one"), ("k2", "two"), ("k3", "three"), ("k4", "four")] {
        home.write(&format!("src/{key}"), value);
    }
    synced(&home, 0);
    const B: &str = "sqlite:b.db";
    for (key, value) in [("k2", "somebody else's"), ("k3", "three"), ("k4", "four")] {
        home.run(&["kv", "put", B, key, value]).ends(0);
    }
    home.remove("src/k3");
    into(&home, B, "");
    for _ in 0..3 {
        let run = synced(&home, 4);
        assert_eq!((&run["deleted"], &run["held"]), (&0.into(), &2.into()), "{run}");
        assert_eq!(home.value(B, "k2").as_deref(), Some("somebody else's"));
        assert_eq!(home.value(B, "k3").as_deref(), Some("three"), "the same bytes, and not by us");
        assert_eq!(home.value(B, "k1").as_deref(), Some("one"));
    }
    home.write("src/k1", "one more");
    synced(&home, 4);
    assert_eq!(home.value(B, "k1").as_deref(), Some("one more"), "what we wrote there is ours");
    home.run(&["adopt", "k2"]).ends(0);
    home.run(&["adopt", "k3"]).ends(0);
    synced(&home, 0);
    assert_eq!((home.value(B, "k2").as_deref(), home.value(B, "k3")), (Some("two"), None));
    assert_eq!(synced(&home, 0)["writes"], 0);
    home.run(&["audit"]).ends(0);
}

#[test]
fn another_store_is_filled_whatever_is_to_be_done_about_drift() {
    let settings = "drift = { missing = \"report\", edited = \"report\" }";
    let home = home(settings);
    home.write("src/k1", "one");
    home.write("src/k2", "two");
    synced(&home, 0);
    into(&home, "sqlite:b.db", settings);
    synced(&home, 0);
    assert_eq!(home.keys("sqlite:b.db"), ["k1", "k2"]);
    // From now on it is as the config says.
    home.run(&["kv", "rm", "sqlite:b.db", "k1"]).ends(0);
    synced(&home, 0);
    assert_eq!(home.keys("sqlite:b.db"), ["k2"]);
}

#[test]
fn a_plan_holds_what_the_run_holds_though_something_was_undone() {
    let home = home("");
    home.write("src/k", "v1");
    home.write("src/l", "x");
    synced(&home, 0);
    home.write("src/k", "v2");
    let update = synced(&home, 0);
    home.run(&["undo", id(&update)]).ends(0);
    home.run(&["kv", "put", KV, "k", "mine"]).ends(0);
    home.remove("src/k");
    let plan = home.run(&["plan", "--json"]).json()["plans"][0].clone();
    assert_eq!(
        (plan["delete"].as_array().unwrap().len(), plan["held"][0]["key"].as_str()),
        (0, Some("k")),
        "{plan}"
    );
    assert_eq!(synced(&home, 4)["held"], 1);
    assert_eq!(home.value(KV, "k").as_deref(), Some("mine"));
}

#[test]
fn what_neither_source_nor_store_has_is_nothing_to_decide_about() {
    let home = home("guard = { max_delete = 0 }");
    home.write("src/k1", "1");
    home.write("src/k2", "2");
    synced(&home, 0);
    home.remove("src/k1");
    synced(&home, 4);
    home.run(&["reject", &held_plan(&home)]).ends(0);
    home.run(&["kv", "rm", KV, "k1"]).ends(0);
    synced(&home, 0);
    home.run(&["audit"]).ends(0);
    home.write("src/k1", "again");
    assert_eq!(synced(&home, 0)["added"], 1);
}

/// A decision nobody can ask about any more had everything read again by every run.
#[test]
fn an_undone_record_that_leaves_the_source_is_forgotten() {
    let home = home("");
    home.write("src/a", "1");
    let first = synced(&home, 0);
    home.run(&["undo", id(&first)]).ends(0);
    synced(&home, 4);
    home.remove("src/a");
    home.write("src/b", "2");
    synced(&home, 0);
    let decisions = "select count(*) from entries where key like 'decision/%'";
    let counted =
        std::process::Command::new("sqlite3").arg(home.path(".trueup/state.db")).arg(decisions).output();
    assert_eq!(String::from_utf8_lossy(&counted.unwrap().stdout).trim(), "0");
}

#[test]
fn warnings_that_are_not_shown_are_counted() {
    let home =
        Home::new("[pipelines.p]\nfrom = { files = \"src\" }\nas = \"policy\"\ninto = \"sqlite:kv.db\"\n");
    for number in 0..25 {
        home.write(&format!("src/{number}.md"), "");
    }
    home.write("src/good.md", "# good\n");
    let ran = home.run(&["sync"]).ends(0);
    assert!(ran.err.contains("5 more warnings"), "{}", ran.err);
}

#[test]
fn a_plan_says_what_waits_of_an_undo() {
    let home = home("guard = { max_update = 0, max_delete = 0 }");
    home.write("src/a", "1");
    home.write("src/b", "1");
    let first = synced(&home, 0);
    home.write("src/a", "2");
    synced(&home, 4);
    home.write("src/c", "1");
    let run = synced(&home, 4);
    home.run(&["undo", id(&run)]).ends(4);
    home.run(&["undo", id(&first)]).ends(4);
    let plan = home.run(&["plan", "--json"]).json()["plans"][0].clone();
    let held = synced(&home, 4)["held"].as_u64();
    assert_eq!(plan["held"].as_array().map(|held| held.len() as u64), held, "{plan}");
}

#[test]
fn a_plan_knows_what_is_there_already() {
    let home = home("adopt = true");
    home.write("src/a", "1");
    home.write("src/b", "2");
    synced(&home, 0);
    std::fs::remove_dir_all(home.path(".trueup")).unwrap();
    home.run(&["kv", "put", KV, "b", "another"]).ends(0);
    home.write("src/c", "3");
    let plan = home.run(&["plan", "--json"]).json()["plans"][0].clone();
    let named =
        |what: &str| plan[what].as_array().unwrap().iter().map(|one| one["key"].clone()).collect::<Vec<_>>();
    assert_eq!((named("add"), named("update")), (vec!["c".into()], vec!["b".into()]), "{plan}");
    let run = synced(&home, 0);
    for (count, planned) in [("unchanged", &plan["unchanged"]), ("writes", &plan["writes"])] {
        assert_eq!(&run[count], planned, "{count}: {plan} {run}");
    }
    assert_eq!((&run["added"], &run["updated"]), (&1.into(), &1.into()));
}
