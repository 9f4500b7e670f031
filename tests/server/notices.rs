//! Who is told about failures: by `trueup sync` as by the server, through the queue.

use serde_json::{Value, json};

use super::rig::Serving;
use crate::cli::home::Home;
use crate::support;
use crate::support::http::{Reply, Server};

fn home(hook: &Server, after: u32) -> Home {
    let home = Home::new(&format!(
        "[stores]\nregistry = \"sqlite:.trueup/registry.db\"\n[pipelines.notes]\nfrom = {{ files = \"notes\" }}\n\
         into = \"registry\"\nnotify = {{ webhook = \"{}\", after = {after} }}\n",
        hook.url("/told")
    ));
    for number in 0..12 {
        home.write(&format!("notes/{number:02}.md"), "note\n");
    }
    home
}

fn told(hook: &Server) -> Vec<Value> {
    hook.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
}

fn events(hook: &Server) -> Vec<String> {
    told(hook).iter().map(|message| message["event"].as_str().unwrap().to_owned()).collect()
}

fn hide(home: &Home) {
    std::fs::rename(home.path("notes"), home.path("away")).unwrap();
}

fn show(home: &Home) {
    std::fs::rename(home.path("away"), home.path("notes")).unwrap();
}

#[tokio::test]
async fn failures_in_a_row_are_told_once_and_then_the_recovery() {
    let hook = Server::start(|_| Reply::ok(""));
    let home = home(&hook, 2);
    home.run(&["sync"]).ends(0);
    hide(&home);
    home.run(&["sync"]).ends(1);
    assert_eq!(told(&hook), Vec::<Value>::new(), "one failure is not two");
    home.run(&["sync"]).ends(1);
    home.run(&["sync"]).ends(1);
    assert_eq!(events(&hook), ["failed"]);
    let message = &told(&hook)[0];
    assert_eq!((&message["failures"], &message["status"]), (&json!(2), &json!("failed")), "{message}");
    assert!(message["errors"][0]["remedy"].is_string(), "{message}");
    show(&home);
    home.run(&["sync"]).ends(0);
    home.run(&["sync"]).ends(0);
    assert_eq!(events(&hook), ["failed", "recovered"]);
}

#[tokio::test]
async fn what_is_held_is_told_with_its_plan_and_never_as_a_success() {
    let hook = Server::start(|_| Reply::ok(""));
    let home = home(&hook, 1);
    home.run(&["sync"]).ends(0);
    for number in 0..8 {
        home.remove(&format!("notes/{number:02}.md"));
    }
    let run = home.run(&["sync", "--json"]).ends(4).run();
    home.run(&["sync"]).ends(4);
    assert_eq!(events(&hook), ["held"], "the same plan is told once");
    let message = &told(&hook)[0];
    assert_eq!((&message["plan"], &message["held"]), (&run["plan"], &json!(8)), "{message}");
    home.run(&["approve", run["plan"].as_str().unwrap()]).ends(0);
    assert_eq!(events(&hook), ["held", "recovered"]);
}

#[tokio::test]
async fn a_message_nobody_took_waits_in_the_queue_and_is_told_later() {
    let hook = Server::start(|_| Reply::status(500));
    let home = home(&hook, 1);
    hide(&home);
    home.run(&["sync"]).ends(1);
    let waiting = home.run(&["queue", "ls", "--json"]).ends(0).json();
    assert!(waiting["queue"][0]["then"].as_str().unwrap().starts_with("notify-"), "{waiting}");
    show(&home);
    hook.answer(|_| Reply::ok(""));
    let serving = Serving::of(&home).await;
    let again = async || events(&hook).iter().filter(|event| *event == "failed").count() >= 2;
    // The back-off alone may take most of the usual patience.
    let told = support::eventually(&again).await || support::eventually(&again).await;
    assert!(told, "{}", serving.said());
    let keys: Vec<_> =
        hook.requests().iter().map(|request| request.headers["idempotency-key"].clone()).collect();
    assert!(keys.windows(2).all(|pair| pair[0] == pair[1]), "the same message has the same key");
    let empty = async || serving.get("/api/queue").await.json()["total"] == 0;
    assert!(support::eventually(empty).await);
}

#[tokio::test]
async fn a_hook_that_is_never_there_does_not_make_runs_fail() {
    let hook = Server::start(|_| Reply::status(410));
    let home = home(&hook, 1);
    hide(&home);
    home.run(&["sync"]).ends(1);
    show(&home);
    for _ in 0..10 {
        home.run(&["sync"]).ends(0);
    }
    let dead = home.run(&["dead", "ls", "--json"]).ends(0).json();
    assert_eq!(dead["dead"].as_array().unwrap().len(), 2, "the failure and the recovery: {dead}");
}

#[tokio::test]
async fn a_run_that_cannot_start_is_told_as_failed() {
    let hook = Server::start(|_| Reply::ok(""));
    let home = Home::new(&format!(
        "[pipelines.notes]\nfrom = {{ files = \"notes\" }}\ninto = \"postgres://u@127.0.0.1:9/app\"\n\
         notify = {{ webhook = \"{}\", after = 2 }}\n",
        hook.url("/told")
    ));
    home.write("notes/a.md", "a\n");
    home.run(&["sync"]).ends(5);
    home.run(&["sync"]).ends(5);
    assert_eq!(events(&hook), ["failed"]);
}

#[tokio::test]
async fn a_board_that_keeps_failing_is_told_by_name() {
    let feed = Server::start(|request| {
        if request.path.contains("bbsNo=26") {
            return Reply::status(500);
        }
        Reply::ok("<rss version=\"2.0\"><channel><title>b</title></channel></rss>")
            .header("content-type", "application/rss+xml")
    });
    let hook = Server::start(|_| Reply::ok(""));
    let home = Home::new(&format!(
        "[pipelines.boards]\nfrom = {{ rss = \"{}?bbsNo={{board}}\", boards = \"25,26\" }}\nas = \"article\"\n\
         into = \"file:objects\"\nnotify = {{ webhook = \"{}\", after = 2 }}\n",
        feed.url("/rss"),
        hook.url("/told")
    ));
    home.run(&["sync"]).ends(3);
    assert!(told(&hook).is_empty());
    home.run(&["sync"]).ends(3);
    let message = told(&hook).pop().unwrap();
    assert_eq!((&message["event"], &message["scopes"]["26"]), (&json!("partial"), &json!(2)), "{message}");
}
