//! Exit codes a script can trust.

use super::home::Home;

#[test]
fn every_ending_has_its_code() {
    let home = Home::with_notes(12);
    home.run(&["sync"]).ends(0);
    home.run(&["sync"]).ends(0);
    for number in 0..8 {
        home.remove(&format!("notes/{number:02}.md"));
    }
    home.run(&["plan"]).ends(0);
    let held = home.run(&["sync", "--json"]).ends(4).run();
    home.run(&["sync", "--json"]).ends(4).run();
    home.run(&["status"]).ends(0);
    std::os::unix::fs::symlink("nowhere", home.path("notes/dangling")).unwrap();
    home.run(&["sync", "--json"]).ends(3).run();
    home.remove("notes/dangling");
    let plan = held["plan"].as_str().unwrap();
    home.run(&["approve", "000000000000", "--json"]).ends(1).says(&["nothing is held under"]);
    home.run(&["approve", plan, "--json"]).ends(0).run();
    home.run(&["approve", plan]).ends(1).says(&["nothing is held"]);
    std::fs::rename(home.path("notes"), home.path("elsewhere")).unwrap();
    home.run(&["sync"]).ends(1).says(&["does not exist"]);
    home.run(&["sync", "no-such-pipeline"]).ends(2).says(&["no pipeline no-such-pipeline"]);
    home.run(&["kv", "get", "registry", "no such key"]).ends(1).says(&["holds no key"]);
    home.run(&["--config", "missing.toml", "sync"]).ends(2);
    assert_eq!(home.keys("registry").len(), 4);
}

/// Of several pipelines the gravest ending counts, and each is reported.
#[test]
fn of_several_runs_the_gravest_ending_counts() {
    let config = r#"
        [pipelines.good]
        from = { files = "good" }
        into = "sqlite:good.db"
        [pipelines.lost]
        from = { files = "lost" }
        into = "sqlite:lost.db"
    "#;
    let home = Home::new(config);
    home.write("good/a", "1");
    let json = home.run(&["sync", "--json"]).ends(1).json();
    let statuses: Vec<_> =
        json["runs"].as_array().unwrap().iter().map(|run| run["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["ok", "failed"], "{json}");
    assert_eq!(home.value("sqlite:good.db", "a").as_deref(), Some("1"));
}

/// Nothing to do is no success while nobody can say what the store holds.
#[test]
fn a_store_that_is_away_is_never_in_step_even_with_an_empty_source() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for store in [format!("etcd://{free}/kv/"), format!("postgres://somebody@{free}/db")] {
        let home =
            Home::new(&format!("[pipelines.notes]\nfrom = {{ files = \"notes\" }}\ninto = \"{store}\"\n"));
        std::fs::create_dir(home.path("notes")).unwrap();
        for verb in ["plan", "sync"] {
            let said = home.run(&[verb]).ends(5).says(&["what to do", &free.to_string()]);
            let named = said.err.matches(store.as_str()).count();
            assert!(named <= 1, "{store} is named {named} times: {}", said.err);
        }
    }
}

#[test]
fn reject_keeps_what_was_to_be_deleted_and_is_quiet_from_then_on() {
    let home = Home::with_notes(12);
    home.run(&["sync"]).ends(0);
    for number in 0..8 {
        home.remove(&format!("notes/{number:02}.md"));
    }
    let held = home.run(&["sync", "--json"]).ends(4).run();
    home.run(&["reject", held["plan"].as_str().unwrap(), "--json"]).ends(0).run();
    home.run(&["sync", "--json"]).ends(0).run();
    assert_eq!(home.keys("registry").len(), 12);
}

#[test]
fn init_writes_a_config_that_runs_and_never_overwrites_one() {
    let home = Home::with_notes(2);
    home.run(&["init"]).ends(2).says(&["exists already"]);
    home.remove("trueup.toml");
    home.run(&["init"]).ends(0);
    home.run(&["check"]).ends(0);
    home.run(&["sync"]).ends(0);
    assert_eq!(home.keys("registry"), ["notes/00.md", "notes/01.md"]);
    home.run(&["init", "no-such-recipe"]).ends(2);
}

#[test]
fn a_backup_of_the_state_is_a_state() {
    let home = Home::with_notes(2);
    home.run(&["state", "backup", "copy.db"]).ends(1).says(&["no state yet"]);
    home.run(&["sync"]).ends(0);
    home.run(&["state", "backup", "copy.db"]).ends(0);
    home.run(&["state", "backup", "copy.db"]).ends(1).says(&["already there"]);
    std::fs::rename(home.path("copy.db"), home.path(".trueup/state.db")).unwrap();
    let run = home.run(&["sync", "--json"]).ends(0).run();
    assert_eq!((&run["unchanged"], &run["writes"]), (&2.into(), &0.into()));
}
