//! Several pipelines, one of which cannot be opened: the others are told of all the same.

use std::fs;

use serde_json::{Value, json};

use super::home::Home;
use crate::support::leash::free_ports;

/// One that can be opened between two that cannot.
fn home() -> Home {
    let away = format!("etcd://127.0.0.1:{}/x/", free_ports(1)[0]);
    let home = Home::new(&format!(
        "[pipelines.away]\nfrom = {{ files = \"notes\" }}\ninto = \"{away}\"\n\
         [pipelines.good]\nfrom = {{ files = \"notes\" }}\ninto = \"sqlite:good.db\"\n\
         [pipelines.lost]\nfrom = {{ files = \"lost\" }}\ninto = \"sqlite:lost.db\"\n"
    ));
    home.write("notes/a", "1");
    home
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["pipeline"].as_str().unwrap()).collect()
}

#[test]
fn plan_and_audit_go_on_with_the_others() {
    let home = home();
    home.run(&["sync", "good"]).ends(0);
    for (verb, field) in [("plan", "plans"), ("audit", "audits")] {
        // A missing folder (1) is graver than a server that is away (5).
        let json = home.run(&[verb, "--json"]).ends(1).says(&["away", "lost does not exist"]).json();
        assert_eq!(names(&json[field]), ["good"], "{json}");
        assert_eq!(names(&json["not_started"]), ["away", "lost"], "{json}");
        assert_eq!(json["not_started"][0]["kind"], "unavailable", "{json}");
        let ran = home.run(&[verb, "away", "good", "--quiet"]).ends(5).says(&["error away:"]);
        assert!(ran.out.contains("good"), "{}", ran.out);
        // None at all is an error, as ever.
        let json = home.run(&[verb, "away", "--json"]).ends(5).json();
        assert_eq!(json["error"]["kind"], "unavailable", "{json}");
        let json = home.run(&[verb, "good", "--json"]).ends(0).json();
        assert_eq!(json.get("not_started"), None, "{json}");
    }
}

#[test]
fn a_damaged_state_hides_nothing_from_a_check() {
    let home = Home::with_notes(1);
    home.run(&["sync"]).ends(0);
    let whole = what(&home, 0);
    let state = home.path(".trueup/state.db");
    let mut bytes = fs::read(&state).unwrap();
    bytes[..200].fill(b'?');
    fs::write(&state, &bytes).unwrap();
    let damaged = what(&home, 1);
    let failed = |name: &str| json!([name, false]);
    assert_eq!(whole.len(), damaged.len(), "{damaged:?}");
    assert!(damaged.contains(&failed("state")), "{damaged:?}");
    for name in ["notes from", "notes into"] {
        assert!(damaged.contains(&json!([name, true])), "{damaged:?}");
    }
    assert_eq!(fs::read(&state).unwrap(), bytes, "it is left as it is");
}

/// What was looked at, and whether it was fine.
fn what(home: &Home, code: i32) -> Vec<Value> {
    let json = home.run(&["check", "--json"]).ends(code).json();
    json["checks"].as_array().unwrap().iter().map(|check| json!([check["what"], check["ok"]])).collect()
}
