//! The API answers what the command line answers.

use serde_json::{Value, json};

use super::rig::Serving;
use crate::cli::home::Home;
use crate::support;

/// Twelve notes in the store, eight of them gone from the source.
async fn held() -> (Home, Serving) {
    let home = Home::with_notes(12);
    let serving = Serving::of(&home).await;
    let run = serving.post("/api/pipelines/notes/run", None).await.is(200).json();
    assert_eq!((&run["runs"][0]["added"], &run["runs"][0]["trigger"]), (&json!(12), &json!("api")));
    for number in 0..8 {
        home.remove(&format!("notes/{number:02}.md"));
    }
    (home, serving)
}

/// The API and the command line say the same.
async fn same(serving: &Serving, home: &Home, path: &str, args: &[&str]) -> Value {
    let api = serving.get(path).await.is(200).json();
    let mut args = args.to_vec();
    args.push("--json");
    assert_eq!(api, home.run(&args).ends(0).json(), "{path} and {args:?}");
    api
}

#[tokio::test]
async fn a_key_that_nobody_knows_is_no_success() {
    let home = Home::with_notes(2);
    let serving = Serving::of(&home).await;
    for path in ["plan", "run", "start"].map(|what| format!("/api/pipelines/notes/{what}")) {
        serving.post(&path, Some(json!({ "only": "77.md" }))).await.refused(404, "not_found");
    }
    let run = serving.post("/api/pipelines/notes/run", Some(json!({ "only": "01.md" }))).await.is(200).json();
    assert_eq!(run["runs"][0]["added"], 1, "{run}");
    assert_eq!(home.keys("registry"), ["01.md"]);
}

#[tokio::test]
async fn what_is_planned_held_approved_and_undone_is_what_the_command_line_shows() {
    let (home, serving) = held().await;
    let plan = serving.post("/api/pipelines/notes/plan", None).await.is(200).json();
    let planned = home.run(&["plan", "notes", "--json"]).ends(0).json();
    assert_eq!(plan["plans"][0]["held"], planned["plans"][0]["held"]);
    let run = serving.post("/api/pipelines/notes/run", Some(json!({ "full": true }))).await.is(200).json();
    assert_eq!((&run["runs"][0]["status"], &run["runs"][0]["held"]), (&json!("held"), &json!(8)));
    let held = same(&serving, &home, "/api/held", &["held"]).await;
    let plan = held["held"][0]["plan"].as_str().unwrap();
    serving.post("/api/held/000000000000/approve", None).await.refused(409, "conflict");
    let approved = serving.post(&format!("/api/held/{plan}/approve"), None).await.is(200).json();
    assert_eq!(approved["runs"][0]["deleted"], 8, "{approved}");
    assert_eq!(home.keys("registry").len(), 4);
    let run = approved["runs"][0]["id"].as_str().unwrap();
    let undo = serving.post(&format!("/api/runs/{run}/undo/plan"), None).await.is(200).json();
    assert_eq!(undo["plans"][0]["add"].as_array().unwrap().len(), 8, "{undo}");
    serving.post(&format!("/api/runs/{run}/undo"), None).await.is(200);
    assert_eq!(home.keys("registry").len(), 12);
    same(&serving, &home, "/api/runs", &["runs"]).await;
    same(&serving, &home, "/api/pipelines", &["status"]).await;
    same(&serving, &home, "/api/why?key=01.md", &["why", "01.md"]).await;
    let one = serving.get(&format!("/api/runs/{run}")).await.is(200).json();
    assert_eq!(one, approved["runs"][0]);
}

#[tokio::test]
async fn what_is_rejected_is_dropped() {
    let (home, serving) = held().await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    let held = serving.get("/api/held").await.json();
    let plan = held["held"][0]["plan"].as_str().unwrap();
    serving.post(&format!("/api/held/{plan}/reject"), None).await.is(200);
    assert_eq!(serving.get("/api/held").await.json(), json!({ "held": [] }));
    assert_eq!(home.keys("registry").len(), 12);
}

#[tokio::test]
async fn stores_are_browsed_page_by_page() {
    let home = Home::with_notes(5);
    let serving = Serving::of(&home).await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    let stores = serving.get("/api/stores").await.is(200).json();
    assert_eq!(stores["stores"], json!([{ "name": "registry", "kind": "sqlite", "pipelines": ["notes"] }]));
    let mut keys = Vec::new();
    let mut after = String::new();
    loop {
        let page =
            serving.get(&format!("/api/stores/registry/keys?prefix=0&limit=2{after}")).await.is(200).json();
        let found = page["keys"].as_array().unwrap();
        assert!(found.len() <= 2);
        keys.extend(found.iter().map(|key| key["key"].as_str().unwrap().to_owned()));
        if page["more"] == false {
            break;
        }
        after = format!("&after={}", keys.last().unwrap());
    }
    assert_eq!(keys, home.keys("registry"));
    let value = serving.get("/api/stores/registry/value?key=03.md").await.is(200).json();
    assert_eq!(value, home.run(&["kv", "get", "registry", "03.md", "--json"]).ends(0).json());
    serving.get("/api/stores/registry/value?key=none").await.refused(404, "not_found");
    serving.get("/api/stores/.trueup/keys").await.refused(404, "not_found");
}

#[tokio::test]
async fn drift_is_found_and_repaired() {
    let home = Home::with_notes(3);
    let serving = Serving::of(&home).await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    home.run(&["kv", "put", "registry", "01.md", "meddled"]).ends(0);
    let audit = serving.post("/api/pipelines/notes/audit", None).await.is(200).json();
    assert_eq!(audit["audits"][0]["drift"], json!([{ "key": "01.md", "class": "edited" }]));
    let repaired =
        serving.post("/api/pipelines/notes/audit", Some(json!({ "repair": true }))).await.is(200).json();
    assert_eq!(repaired["audits"][0]["repaired"], 1, "{repaired}");
    assert_eq!(home.value("registry", "01.md").unwrap(), "note 1\n");
}

/// A pipeline whose follow-up fails as long as `broken` is there, and writes down what it has done.
fn followed() -> Home {
    let home = Home::new(
        "[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"sqlite:.trueup/r.db\"\n\
         then = { command = [\"sh\", \"-c\", \"test ! -e broken && echo $TRUEUP_KEY >> done\"] }\n",
    );
    home.write("notes/a.md", "a\n");
    home.write("broken", "");
    home
}

#[tokio::test]
async fn follow_up_work_is_retried_buried_and_brought_back() {
    let home = followed();
    let serving = Serving::of(&home).await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    let queue = serving.get("/api/queue").await.is(200).json();
    assert_eq!((&queue["total"], &queue["queue"][0]["key"]), (&json!(1), &json!("a.md")), "{queue}");
    let buried = async || {
        serving.post("/api/queue/work", None).await.is(200);
        serving.get("/api/dead").await.json()["total"] == 1
    };
    assert!(support::eventually(buried).await);
    let dead = serving.get("/api/dead/show?key=a.md").await.is(200).json();
    assert_eq!(dead["dead"], home.run(&["dead", "show", "a.md", "--json"]).ends(0).json()["dead"]);
    serving.post("/api/dead/retry", Some(json!({}))).await.refused(400, "config");
    home.remove("broken");
    let retried = serving.post("/api/dead/retry", Some(json!({ "keys": ["a.md"] }))).await.is(200).json();
    // Whoever comes first does it: this request, or a worker of the server.
    assert_eq!((&retried["retried"], &retried["failed"]), (&json!(1), &json!(0)), "{retried}");
    let settled = async || {
        let queue = serving.get("/api/queue").await.is(200).json();
        let dead = serving.get("/api/dead").await.is(200).json();
        queue["total"] == 0 && dead["total"] == 0
    };
    assert!(support::eventually(settled).await, "{}", serving.said());
    assert_eq!(std::fs::read_to_string(home.path("done")).unwrap(), "a.md\n", "it was done once");
    serving.post("/api/dead/drop", Some(json!({ "all": true }))).await.is(200);
}

#[tokio::test]
async fn the_workers_of_the_server_wait_out_the_back_off_and_then_do_the_work() {
    let home = followed();
    home.run(&["sync"]).ends(0);
    home.remove("broken");
    let serving = Serving::of(&home).await;
    let done = async || serving.get("/api/queue").await.json()["total"] == 0;
    // The back-off alone may take most of the usual patience.
    let did = support::eventually(&done).await || support::eventually(&done).await;
    assert!(did, "{}", serving.said());
}

#[tokio::test]
async fn what_goes_on_is_told_as_it_goes_on() {
    let home = Home::with_notes(3);
    let serving = Serving::of(&home).await;
    let url = format!("http://{}/api/events", serving.address);
    let mut events = serving.client().get(url).send().await.unwrap();
    let mut told = String::from_utf8(events.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    serving.post("/api/pipelines/notes/start", None).await.is(202);
    while !told.contains("event: run") {
        told.push_str(std::str::from_utf8(&events.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert!(told.contains("event: step") && told.contains("\"step\":\"reading and writing\""), "{told}");
    assert!(told.contains("\"added\":3"), "{told}");
}

#[tokio::test]
async fn one_run_of_a_pipeline_at_a_time() {
    let home = Home::with_notes(1);
    home.write(
        "trueup.toml",
        "[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"sqlite:.trueup/r.db\"\n\
         then = { command = [\"sh\", \"-c\", \"touch began; while test -e gate; do sleep 0.05; done\"] }\n",
    );
    home.write("gate", "");
    let serving = Serving::of(&home).await;
    serving.post("/api/pipelines/notes/start", None).await.is(202);
    support::until("it to be under way", || home.path("began").exists()).await;
    serving.post("/api/pipelines/notes/run", None).await.refused(409, "busy");
    serving.post("/api/pipelines/notes/start", None).await.refused(409, "busy");
    home.run(&["sync"]).ends(7);
    home.remove("gate");
}
