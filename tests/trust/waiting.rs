//! What the guard held waits for a person: nothing else lets it go, and no run says `ok` meanwhile.

use serde_json::Value;

use super::absence::commit;
use crate::cli::home::Home;

/// Twenty notes, seven of them gone from the source: more than the guard lets go.
fn held() -> (Home, String) {
    let home = Home::with_notes(20);
    home.run(&["sync"]).ends(0);
    for number in 0..7 {
        home.remove(&format!("notes/{number:02}.md"));
    }
    let run = home.run(&["sync", "--json"]).ends(4).run();
    assert_eq!(run["held_by"]["delete"], 7);
    let plan = run["plan"].as_str().unwrap().to_owned();
    (home, plan)
}

fn status(home: &Home) -> Value {
    home.run(&["status", "--json"]).ends(0).json()["pipelines"][0].clone()
}

#[test]
fn more_keys_do_not_let_it_go_and_most_of_it_coming_back_does() {
    let (home, plan) = held();
    for number in 30..35 {
        home.write(&format!("notes/{number}.md"), "new\n");
    }
    for _ in 0..3 {
        let run = home.run(&["sync", "--json"]).ends(4).run();
        assert_eq!((&run["deleted"], &run["held"]), (&0.into(), &7.into()));
        assert_eq!(run["plan"], plan.as_str(), "what is held is the same, and so is its name");
    }
    home.write("notes/00.md", "note 0\n");
    home.run(&["sync"]).ends(0);
    assert_eq!(home.keys("registry").len(), 19);
}

#[test]
fn a_person_may_raise_the_threshold_instead() {
    let (home, _) = held();
    let config = std::fs::read_to_string(home.path("trueup.toml")).unwrap();
    home.write("trueup.toml", &config.replace("30%", "50%"));
    assert_eq!(home.run(&["sync", "--json"]).ends(0).run()["deleted"], 7);
}

#[test]
fn a_look_at_one_key_says_what_else_is_held_and_lets_none_of_it_go() {
    let (home, plan) = held();
    home.write("notes/19.md", "edited\n");
    let run = home.run(&["sync", "--only", "19.md", "--json"]).ends(4).run();
    assert_eq!((&run["updated"], &run["held"], &run["plan"]), (&1.into(), &7.into(), &plan.as_str().into()));
    let run = home.run(&["sync", "--only", "03.md", "--json"]).ends(4).run();
    assert_eq!((&run["deleted"], &run["held"], &run["plan"]), (&0.into(), &7.into(), &plan.as_str().into()));
    assert_eq!(status(&home)["held"], 7);
    home.run(&["approve", &plan]).ends(0);
    assert_eq!(home.keys("registry").len(), 13);
}

#[test]
fn what_a_look_at_one_key_holds_can_be_approved() {
    let home = Home::with_notes(2);
    home.run(&["sync"]).ends(0);
    home.write("notes/00.md", "edited\n");
    let run = home.run(&["sync", "--json"]).ends(0).run();
    home.run(&["undo", run["id"].as_str().unwrap()]).ends(0);
    let run = home.run(&["sync", "--only", "00.md", "--json"]).ends(4).run();
    home.run(&["approve", run["plan"].as_str().unwrap()]).ends(0);
    assert_eq!(home.value("registry", "00.md").as_deref(), Some("edited\n"));
}

#[test]
fn it_is_still_held_after_an_undo_of_something_else() {
    let home = Home::with_notes(20);
    home.run(&["sync"]).ends(0);
    home.write("notes/19.md", "edited\n");
    let edit = home.run(&["sync", "--json"]).ends(0).run();
    for number in 0..7 {
        home.remove(&format!("notes/{number:02}.md"));
    }
    home.run(&["sync"]).ends(4);
    home.run(&["undo", edit["id"].as_str().unwrap()]);
    let status = status(&home);
    assert_eq!((&status["status"], &status["held"]), (&"held".into(), &7.into()), "{status}");
}

#[test]
fn what_an_undo_could_not_do_is_said_until_it_is_decided() {
    let home = Home::with_notes(2);
    home.run(&["sync"]).ends(0);
    home.write("notes/00.md", "once\n");
    let first = home.run(&["sync", "--json"]).ends(0).run();
    home.write("notes/00.md", "twice\n");
    home.run(&["sync"]).ends(0);
    home.run(&["undo", first["id"].as_str().unwrap()]).ends(4);
    let run = home.run(&["sync", "--json"]).ends(4).run();
    assert_eq!((&run["status"], &run["held"]), (&"held".into(), &1.into()));
    home.run(&["reject", run["plan"].as_str().unwrap()]).ends(0);
    home.run(&["sync"]).ends(0);
}

/// A stranger's key is neither approved nor rejected away, and nobody is told to try.
#[test]
fn a_key_of_a_stranger_is_adopted_or_stays_held() {
    let home = Home::with_notes(2);
    home.run(&["sync"]).ends(0);
    home.run(&["kv", "put", "registry", "zz.md", "theirs"]).ends(0);
    home.write("notes/zz.md", "mine\n");
    let ran = home.run(&["sync"]).ends(4);
    assert!(ran.err.contains("`trueup adopt zz.md`"), "{}", ran.err);
    let plan = home.run(&["sync", "--json"]).ends(4).run()["plan"].as_str().unwrap().to_owned();
    for verb in ["approve", "reject"] {
        let ran = home.run(&[verb, &plan]).ends(4);
        assert!(ran.err.contains("`trueup adopt zz.md`"), "{verb}: {}", ran.err);
    }
    home.run(&["adopt", "zz.md"]).ends(0);
    home.run(&["sync"]).ends(0);
    assert_eq!(home.value("registry", "zz.md").as_deref(), Some("mine\n"));
}

/// What is gone from the source was not scanned there, however often it is said to be held.
#[test]
fn what_is_held_is_not_counted_as_read() {
    let home = Home::new(
        "[pipelines.notes]\nfrom = { git = \"repository\" }\ninto = \"sqlite:notes.db\"\nguard = { max_delete = 0 }\n",
    );
    for name in ["a", "b", "c"] {
        home.write(&format!("repository/{name}"), name);
    }
    commit(&home, "one");
    home.run(&["sync"]).ends(0);
    home.remove("repository/a");
    commit(&home, "two");
    for _ in 0..3 {
        let run = home.run(&["sync", "--json"]).ends(4).run();
        assert_eq!((&run["scanned"], &run["unchanged"], &run["held"]), (&2.into(), &2.into(), &1.into()));
    }
    let plan = home.run(&["held", "--json"]).json()["held"][0]["plan"].as_str().unwrap().to_owned();
    home.run(&["reject", &plan]).ends(0);
    for _ in 0..2 {
        let run = home.run(&["sync", "--json"]).ends(0).run();
        assert_eq!(
            (&run["scanned"], &run["unchanged"]),
            (&2.into(), &2.into()),
            "rejected, and not there either"
        );
    }
}
