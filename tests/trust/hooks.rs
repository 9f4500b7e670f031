//! Web hooks and commands: what they are told, what counts against a record, and what only pauses the work.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::place::Home;
use crate::support::http::{Reply, Request, Server};

/// Longer than any server of ours takes to answer.
const LONG: &str = "30s";

fn config(then: &str) -> String {
    format!("[pipelines.notes]\nfrom = {{ files = \"notes\" }}\ninto = \"file:out\"\nthen = {then}\n")
}

fn pipeline(then: &str) -> Home {
    let home = Home::new(&config(then));
    home.write("notes/a", "one");
    home
}

fn webhook(server: &Server, timeout: &str) -> String {
    format!("{{ webhook = \"{}\", timeout = \"{timeout}\" }}", server.url("/hook?token=canary"))
}

fn hook(server: &Server, timeout: &str) -> Home {
    pipeline(&webhook(server, timeout))
}

fn told(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

fn queue(home: &Home) -> Vec<Value> {
    home.ends(&["queue", "ls"], 0)["queue"].as_array().unwrap().clone()
}

fn dead(home: &Home) -> Vec<Value> {
    home.ends(&["dead", "ls"], 0)["dead"].as_array().unwrap().clone()
}

#[test]
fn a_web_hook_is_told_what_changed_and_can_check_who_says_so() {
    let server = Server::start(|_| Reply::status(204));
    let home = pipeline(&format!("{{ webhook = \"{}\", secret_file = \"secret\" }}", server.url("/hook")));
    home.write("secret", "s3cret\n");
    let run = home.ends(&["sync"], 0);
    home.write("notes/a", "two, longer");
    home.ends(&["sync"], 0);
    home.remove("notes/a");
    home.ends(&["sync"], 0);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let sha = trueup::record::Fingerprint::of(b"one").to_string();
    let first = told(&requests[0]);
    assert_eq!(first["pipeline"], "notes");
    assert_eq!(
        (&first["key"], &first["change"], &first["value"]),
        (&json!("a"), &json!("add"), &json!("one"))
    );
    assert_eq!((&first["sha256"], &first["run"]), (&json!(sha), &run["runs"][0]["id"]));
    assert!(first["at"].as_str().unwrap().ends_with('Z'));
    let changes: Vec<Value> = requests.iter().map(|request| told(request)["change"].clone()).collect();
    assert_eq!(changes, ["add", "update", "delete"]);
    assert_eq!(told(&requests[2])["value"], Value::Null);
    let mut names = Vec::new();
    for request in &requests {
        assert_eq!(request.headers["content-type"], "application/json");
        let mut mac = Hmac::<Sha256>::new_from_slice(b"s3cret").unwrap();
        mac.update(&request.body);
        let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
        assert_eq!(request.headers["x-trueup-signature"], signature);
        names.push(request.headers["idempotency-key"].clone());
    }
    names.dedup();
    assert_eq!(names.len(), 3, "another write, another idempotency key");
    assert!(queue(&home).is_empty());
}

#[test]
fn an_answer_that_refuses_counts_and_the_third_parks_the_record() {
    for (status, kind) in [(500, "unavailable"), (404, "not_found"), (429, "throttled"), (422, "invalid")] {
        let server = Server::start(move |_| Reply::status(status));
        let home = hook(&server, LONG);
        let first = home.ends(&["sync"], 0);
        assert!(first["runs"][0]["warnings"][0].as_str().unwrap().contains("trueup queue ls"), "{first}");
        assert_eq!((&queue(&home)[0]["attempts"], &queue(&home)[0]["state"]), (&json!(1), &json!("open")));
        assert_eq!(home.ends(&["queue", "work"], 3)["failed"], 1);
        let third = home.ends(&["sync"], 3);
        assert_eq!((&third["runs"][0]["dead"], &third["runs"][0]["status"]), (&json!(1), &json!("partial")));
        home.ends(&["sync"], 0);
        assert!(queue(&home).is_empty());
        let letter = &dead(&home)[0];
        assert_eq!((&letter["key"], &letter["attempts"]), (&json!("a"), &json!(3)));
        assert_eq!(letter["kind"].as_str().unwrap().replace('-', "_").to_lowercase(), kind, "{letter}");
        assert!(letter["message"].as_str().unwrap().contains(&status.to_string()), "{letter}");
        assert!(!letter["remedy"].as_str().unwrap().is_empty());
        assert!(!letter.to_string().contains("canary"), "the address may be a secret: {letter}");
        let requests = server.requests();
        assert_eq!(requests.len(), 3);
        let same =
            |request: &Request| request.headers["idempotency-key"] == requests[0].headers["idempotency-key"];
        assert!(requests.iter().all(same), "one write, one idempotency key");

        server.answer(|_| Reply::status(200));
        assert_eq!(home.ends(&["dead", "retry", "--all"], 0)["done"], 1);
        assert!(dead(&home).is_empty() && queue(&home).is_empty());
        assert!(server.requests().iter().all(same), "a retry of the same write keeps its key");
    }
}

#[test]
fn what_was_given_up_is_pointed_to_where_it_is_and_shown_until_it_is_settled() {
    let server = Server::start(|_| Reply::status(500));
    let home = hook(&server, LONG);
    let status = || home.ends(&["status"], 0)["pipelines"][0]["dead"].clone();
    for code in [0, 0] {
        home.ends(&["sync"], code);
    }
    assert_eq!(status(), 0);
    let third = home.ends(&["sync"], 3)["runs"][0]["warnings"].to_string();
    assert!(third.contains("trueup dead ls") && !third.contains("trueup queue ls"), "{third}");
    home.ends(&["sync"], 0);
    assert_eq!(status(), 1, "also after a run that went well");
    server.answer(|_| Reply::status(200));
    home.ends(&["dead", "retry", "--all"], 0);
    assert_eq!(status(), 0);
}

#[test]
fn a_newer_version_settles_a_dead_letter() {
    let server = Server::start(|_| Reply::status(500));
    let home = hook(&server, LONG);
    for code in [0, 0, 3] {
        home.ends(&["sync"], code);
    }
    assert_eq!(dead(&home).len(), 1);
    server.answer(|_| Reply::status(200));
    home.write("notes/a", "newer");
    home.ends(&["sync"], 0);
    assert!(dead(&home).is_empty() && queue(&home).is_empty());
    assert_eq!(told(server.requests().last().unwrap())["value"], "newer");
}

#[test]
fn silence_and_refused_connections_pause_the_hook_and_count_nothing() {
    let server = Server::start(|_| Reply::silence());
    let home = hook(&server, "400ms");
    home.write("notes/b", "b");
    for _ in 0..4 {
        let run = home.ends(&["sync"], 0);
        assert!(run["runs"][0]["warnings"][0].as_str().unwrap().contains("waits"), "{run}");
    }
    assert!(
        queue(&home).iter().all(|task| task["attempts"] == 0 && task["state"] == "open"),
        "{:?}",
        queue(&home)
    );
    assert!(dead(&home).is_empty());
    assert_eq!(home.ends(&["queue", "work"], 3)["paused"].as_array().unwrap().len(), 1);
    server.answer(|_| Reply::status(200));
    // The same hook by its address, now with time enough to be heard.
    home.write("trueup.toml", config(&webhook(&server, LONG)));
    assert_eq!(home.ends(&["queue", "work"], 0)["done"], 2);
}

/// An answer longer than what is kept of an answer was taken for a failure, though the hook had been told.
#[test]
fn a_long_answer_is_consent_and_a_redirect_is_none() {
    let server = Server::start(|_| Reply::ok("x".repeat(100_000)));
    let home = hook(&server, LONG);
    home.ends(&["sync"], 0);
    assert!(queue(&home).is_empty(), "{:?}", queue(&home));

    let elsewhere = server.url("/elsewhere");
    server.answer(move |request| {
        if request.path.starts_with("/hook") {
            Reply::status(302).header("Location", elsewhere.clone())
        } else {
            Reply::status(200)
        }
    });
    home.write("notes/a", "again, longer");
    home.ends(&["sync"], 0);
    assert_eq!(queue(&home)[0]["attempts"], 1, "a redirect loses the message on the way");
}

#[test]
fn a_secret_that_is_not_set_pauses_the_hook() {
    let server = Server::start(|_| Reply::status(200));
    let home = pipeline(&format!("{{ webhook = \"{}\", secret_env = \"NEVER_SET_7\" }}", server.url("/")));
    for _ in 0..4 {
        home.ends(&["sync"], 0);
    }
    assert_eq!((queue(&home).len(), dead(&home).len(), server.requests().len()), (1, 0, 0));
}

#[test]
fn a_command_is_given_json_and_its_exit_code_decides() {
    let home = pipeline(
        r#"{ command = ["sh", "-c", "cat > told-$TRUEUP_KEY.json; echo $TRUEUP_CHANGE >> changes"] }"#,
    );
    home.ends(&["sync"], 0);
    let told: Value = serde_json::from_str(&home.read("told-a.json").unwrap()).unwrap();
    assert_eq!((&told["key"], &told["change"], &told["value"]), (&json!("a"), &json!("add"), &json!("one")));
    home.remove("notes/a");
    home.ends(&["sync"], 0);
    assert_eq!(home.read("changes").as_deref(), Some("add\ndelete\n"));
    assert!(queue(&home).is_empty());
}

#[test]
fn what_a_failed_command_said_is_kept_with_its_dead_letter() {
    let home = pipeline(r#"{ command = ["sh", "-c", "echo out; echo the disk is full >&2; exit 7"] }"#);
    for code in [0, 0, 3] {
        home.ends(&["sync"], code);
    }
    let letter = &dead(&home)[0];
    let message = letter["message"].as_str().unwrap();
    assert!(message.contains("the disk is full") && message.contains('7'), "{letter}");
    assert!(letter["remedy"].as_str().unwrap().contains("dead retry"), "{letter}");
}

#[test]
fn a_command_that_does_not_end_is_killed_and_counts() {
    let home = pipeline(r#"{ command = ["sh", "-c", "echo started; exec sleep 600"], timeout = "3s" }"#);
    home.ends(&["sync"], 0);
    let task = &queue(&home)[0];
    let error = task["error"].as_str().unwrap();
    assert!(task["attempts"] == 1 && error.contains("did not end") && error.contains("started"), "{task}");
}

#[tokio::test]
async fn what_a_command_started_ends_with_it() {
    let script = "sleep 600 & echo $! > started; wait";
    let home = pipeline(&format!(r#"{{ command = ["sh", "-c", "{script}"], timeout = "5s" }}"#));
    home.ends(&["sync"], 0);
    assert_eq!(queue(&home)[0]["attempts"], 1);
    let process: u32 = home.read("started").unwrap().trim().parse().unwrap();
    let stat = format!("/proc/{process}/stat");
    // Killed, it is gone or waits for somebody to take note of its end.
    let runs = || std::fs::read_to_string(&stat).is_ok_and(|line| !line.contains(") Z "));
    crate::support::until("the end of what it started", || !runs()).await;
}

/// A program that talked before it listened, or never listened, waited for us while we waited for it.
#[test]
fn a_command_that_talks_much_and_does_not_listen_is_no_trouble() {
    let home =
        pipeline(r#"{ command = ["sh", "-c", "head -c 3000000 /dev/zero; exit 0"], timeout = "20s" }"#);
    home.write("notes/a", "long ".repeat(13_000));
    home.ends(&["sync"], 0);
    assert!(queue(&home).is_empty(), "{:?}", queue(&home));
}

#[test]
fn what_a_command_leaves_running_does_not_hold_it_up() {
    let home = pipeline(r#"{ command = ["sh", "-c", "sleep 30 & exit 0"], timeout = "10s" }"#);
    home.ends(&["sync"], 0);
    assert!(queue(&home).is_empty(), "{:?}", queue(&home));
}

#[test]
fn work_for_a_follow_up_that_left_the_config_is_said_to_wait_and_can_be_ended() {
    let home = pipeline(r#"{ command = ["/no/such/program"] }"#);
    home.ends(&["sync"], 0);
    let then = queue(&home)[0]["then"].as_str().unwrap().to_owned();
    home.write("trueup.toml", "[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"file:out\"\n");
    let said = |run: serde_json::Value| run["runs"][0]["warnings"].to_string();
    let warned = said(home.ends(&["sync"], 0));
    assert!(warned.contains(&format!("waits for {then}")) && warned.contains("queue done KEY"), "{warned}");
    assert_eq!(queue(&home).len(), 1, "nothing is dropped");
    home.ends(&["queue", "done", "a", "--then", &then], 0);
    assert!(queue(&home).is_empty());
    assert!(!said(home.ends(&["sync"], 0)).contains("waits for"));
}

#[test]
fn a_program_that_cannot_be_started_pauses_the_work() {
    let home = pipeline(r#"{ command = ["/no/such/program"] }"#);
    for _ in 0..4 {
        let run = home.ends(&["sync"], 0);
        assert!(run["runs"][0]["warnings"][0].as_str().unwrap().contains("/no/such/program"), "{run}");
    }
    assert_eq!((queue(&home).len(), dead(&home).len()), (1, 0));
}

#[test]
fn several_follow_ups_are_each_done_and_fail_alone() {
    let server = Server::start(|_| Reply::status(500));
    let home = pipeline(&format!(
        "[{{ export = \"file:copy\" }}, {{ webhook = \"{}\" }}, {{ command = [\"sh\", \"-c\", \"cat > told\"] }}]",
        server.url("/")
    ));
    home.ends(&["sync"], 0);
    assert_eq!(home.read("copy/a").as_deref(), Some("one"));
    assert!(home.read("told").is_some());
    assert_eq!(queue(&home).len(), 1);
}
