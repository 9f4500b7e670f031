//! Ctrl-C, or a supervisor's SIGTERM, in the middle of follow-up work: what is in flight ends, the rest waits for the next time.

use std::fs;
use std::io::Read as _;
use std::process::Child;

use serde_json::Value;

use super::home::{Home, Ran};
use super::killed::{line_on_stderr, signal};
use crate::support;

const FILES: usize = 120;
/// Commands that are under way at once.
const AT_ONCE: usize = 8;

/// Its commands are under way for as long as there is a gate.
const GATED: &str = r#"
[pipelines.notes]
from = { files = "notes" }
into = "sqlite:target.db"
then = { command = ["sh", "-c", "echo $TRUEUP_KEY >> began; while test -e gate; do sleep 0.05; done"] }
"#;

fn gated() -> Home {
    let home = Home::new(GATED);
    for number in 0..FILES {
        home.write(&format!("notes/{number:03}"), "a note\n");
    }
    home.write("gate", "");
    home
}

/// Keys whose command was begun, as often as it was.
fn begun(home: &Home) -> Vec<String> {
    let text = fs::read_to_string(home.path("began")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Start it, and ask it once to stop, by this signal, when its first commands are under way.
async fn asked_to_stop(home: &Home, args: &[&str], by: &str) -> Child {
    let before = begun(home).len();
    let mut child = home.start(args);
    support::until("commands to be under way", || begun(home).len() == before + AT_ONCE).await;
    signal(&child, by);
    line_on_stderr(&mut child, "Stopping after what is in flight");
    child
}

fn ended(mut child: Child) -> Ran {
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    Ran { code: child.wait().unwrap().code().unwrap(), out, err }
}

fn waiting(home: &Home) -> Vec<Value> {
    home.run(&["queue", "ls", "--json"]).ends(0).json()["queue"].as_array().unwrap().clone()
}

#[tokio::test]
async fn what_was_not_begun_stays_in_the_queue() {
    let home = gated();
    let child = asked_to_stop(&home, &["sync", "--json"], "INT").await;
    home.remove("gate");
    let run = ended(child).ends(130).run();
    assert_eq!((&run["status"], &run["added"]), (&"canceled".into(), &FILES.into()), "{run}");
    assert_eq!(begun(&home).len(), AT_ONCE);
    let left = waiting(&home);
    assert_eq!(left.len(), FILES - AT_ONCE);
    assert!(left.iter().all(|task| task["state"] == "open" && task["attempts"] == 0), "{left:?}");
    assert!(left.iter().all(|task| task["error"].is_null()), "{left:?}");

    home.write("gate", "");
    let child = asked_to_stop(&home, &["queue", "work", "--json"], "INT").await;
    home.remove("gate");
    let worked = ended(child).ends(130).json();
    assert_eq!((&worked["done"], &worked["stopped"]), (&AT_ONCE.into(), &true.into()), "{worked}");
    assert_eq!(waiting(&home).len(), FILES - 2 * AT_ONCE);

    home.run(&["sync", "--json"]).ends(0).run();
    let mut all = begun(&home);
    all.sort();
    all.dedup();
    assert_eq!((all.len(), begun(&home).len()), (FILES, FILES), "each was done, and done once");
    assert!(waiting(&home).is_empty());
}

#[tokio::test]
async fn a_supervisor_that_ends_it_is_told_how_far_it_came() {
    let home = gated();
    let child = asked_to_stop(&home, &["sync", "--json"], "TERM").await;
    home.remove("gate");
    let run = ended(child).ends(130).run();
    assert_eq!((&run["status"], &run["added"]), (&"canceled".into(), &FILES.into()), "{run}");
    let runs = home.run(&["runs", "--json"]).ends(0).json();
    assert_eq!(
        (&runs["runs"][0]["id"], &runs["runs"][0]["status"]),
        (&run["id"], &"canceled".into()),
        "{runs}"
    );
    assert_eq!(waiting(&home).len(), FILES - AT_ONCE);
}

#[tokio::test]
async fn asked_twice_it_ends_at_once() {
    for by in ["INT", "TERM"] {
        let home = gated();
        let mut child = asked_to_stop(&home, &["sync"], by).await;
        signal(&child, by);
        assert_eq!(child.wait().unwrap().code(), Some(130), "the gate is still there");
        home.remove("gate");
        home.run(&["sync", "--json"]).ends(0).run();
        assert!(waiting(&home).is_empty());
    }
}

/// Of several pipelines those that were not begun make it no success.
#[tokio::test]
async fn pipelines_that_were_not_begun_are_not_called_a_success() {
    let more = "[pipelines.other]\nfrom = { files = \"notes\" }\ninto = \"sqlite:other.db\"\n";
    let home = Home::new(&format!("{GATED}{more}"));
    home.write("notes/one", "a note\n");
    home.write("gate", "");
    let mut child = home.start(&["sync", "--json"]);
    support::until("the command to be under way", || begun(&home).len() == 1).await;
    signal(&child, "INT");
    line_on_stderr(&mut child, "Stopping after what is in flight");
    home.remove("gate");
    let json = ended(child).ends(130).json();
    assert_eq!(json["runs"][0]["status"], "ok", "it had come to its end: {json}");
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(1), "{json}");
}
