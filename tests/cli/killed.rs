//! Real processes, killed in the middle, side by side, and told to stop.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command};

use bytes::Bytes;
use trueup::record::Fingerprint;
use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, Item, Mode, Store, StoreExt, What};

use super::home::{Home, adds_up};
use crate::support;

const RECORDS: usize = 20_000;
/// Small batches: more moments at which to die.
const COPY: &str = r#"
[pipelines.copy]
from = { store = "sqlite:origin.db" }
into = "sqlite:target.db"
batch = 250
guard = { max_delete = "100%", max_update = "100%" }
"#;

async fn fill(path: &Path, text: impl Fn(usize) -> Option<String>) {
    let store = Sqlite::open(path, Access::Write).unwrap();
    for start in (0..RECORDS).step_by(1_000) {
        let items = (start..start + 1_000).map(|number| {
            let key = format!("{:02}/{number:05}", number % 50);
            match text(number) {
                Some(value) => {
                    let print = Fingerprint::of(value.as_bytes());
                    Item::put(key, value).with_fingerprint(print)
                }
                None => Item::delete(key),
            }
        });
        store.write(items.collect(), Mode::Each).await.unwrap();
    }
}

async fn contents(path: &Path) -> BTreeMap<String, Bytes> {
    let store = Sqlite::open(path, Access::Read).unwrap();
    let lines = store.list_all("", What::Values).await.unwrap();
    lines.into_iter().map(|line| (line.key, line.value.unwrap())).collect()
}

/// Read the messages of a process until one holds this word.
pub fn line_on_stderr(child: &mut Child, word: &str) {
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut all = String::new();
    loop {
        let mut line = String::new();
        let length = lines.read_line(&mut line).unwrap();
        assert!(length > 0, "it ended without a word about {word}:\n{all}");
        all.push_str(&line);
        if line.contains(word) {
            // Keep the pipe open: a process whose messages nobody takes would end by itself.
            child.stderr = Some(lines.into_inner());
            return;
        }
    }
}

/// SIGKILL, and wait until it is gone.
pub fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Bytes of a store's file and log.
fn size(home: &Home, name: &str) -> u64 {
    let length = |name: &str| home.path(name).metadata().map_or(0, |facts| facts.len());
    length(name) + length(&format!("{name}-wal"))
}

/// Kill a sync once it has come so far. Says whether it was still at work.
async fn killed_at(home: &Home, moment: usize) -> bool {
    let mut child = home.start(&["sync"]);
    line_on_stderr(&mut child, if moment == 1 { "writing" } else { "reading" });
    if moment > 1 {
        let name = if moment % 2 == 0 { "target.db" } else { ".trueup/state.db" };
        let start = size(home, name);
        let enough = u64::try_from(moment).unwrap() * 60_000;
        let grown = || size(home, name).abs_diff(start) > enough || child.try_wait().unwrap().is_some();
        support::until("the run to make progress", grown).await;
    }
    let at_work = child.try_wait().unwrap().is_none();
    kill(child);
    at_work
}

/// First a sync from nothing, then a mix of adds, updates and deletes, each killed again and again.
#[tokio::test]
async fn a_sync_that_is_killed_again_and_again_loses_nothing() {
    let home = Home::new(COPY);
    let origin = home.path("origin.db");
    let mut kills = 0;
    fill(&origin, |number| Some(format!("record {number} {}", "x".repeat(100)))).await;
    for moment in 0..6 {
        kills += usize::from(killed_at(&home, moment).await);
    }
    home.run(&["sync", "--json"]).ends(0).run();
    assert_eq!(contents(&home.path("target.db")).await, contents(&origin).await);

    let mixed =
        |number: usize| (number % 5 > 0).then(|| format!("record {number} {}", "y".repeat(number % 300)));
    fill(&origin, mixed).await;
    for moment in 0..6 {
        kills += usize::from(killed_at(&home, moment).await);
        let (held, wanted) = (contents(&home.path("target.db")).await, contents(&origin).await);
        let lost: Vec<_> = wanted.keys().filter(|key| !held.contains_key(*key)).collect();
        assert!(lost.is_empty(), "{} keys are lost, like {:?}", lost.len(), lost[0]);
    }
    let last = home.run(&["sync", "--json"]).ends(0).run();
    assert_eq!(last["scanned"], 16_000, "{last}");
    assert_eq!(contents(&home.path("target.db")).await, contents(&origin).await);
    assert!(kills >= 8, "only {kills} runs were still at work when they were killed");
    let still = home.run(&["sync", "--json"]).ends(0).run();
    assert_eq!((&still["writes"], &still["unchanged"]), (&0.into(), &16_000.into()));

    let runs = home.run(&["runs", "--json"]).ends(0).json();
    let runs = runs["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 12 + 3);
    let interrupted = runs.iter().filter(|run| run["interrupted"] == true).count();
    // One that was killed after it had written down its end is not.
    assert!(interrupted <= kills && interrupted * 2 >= kills, "{interrupted} of {kills}");
    assert!(runs.iter().all(|run| run["interrupted"] == true || run["status"] == "ok"), "{runs:#?}");
    runs.iter().filter(|run| run["status"] == "ok").for_each(adds_up);
}

pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Its run is under way for as long as there is a gate.
const GATED: &str = r#"
[pipelines.notes]
from = { files = "notes" }
into = "sqlite:target.db"
then = { command = ["sh", "-c", "touch began; while test -e gate; do sleep 0.05; done"] }
"#;

#[tokio::test]
async fn a_second_process_is_told_that_the_first_is_at_work() {
    let home = Home::new(GATED);
    home.write("notes/a.md", "a\n");
    home.write("gate", "");
    let mut first = home.start(&["sync", "--json"]);
    support::until("the first to be at work", || home.path("began").exists()).await;
    let second = home.run(&["sync", "--json"]).ends(7).says(&["already running"]);
    assert_eq!(second.json()["error"]["kind"], "busy");
    let status = home.run(&["status", "--json"]).ends(0).json();
    assert_eq!(status["pipelines"][0]["running"], true);
    home.remove("gate");
    let mut report = String::new();
    first.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    assert!(first.wait().unwrap().success());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["runs"][0]["added"], 1);
}

/// Whoever asks before the next run is told the same as afterwards.
#[tokio::test]
async fn a_run_whose_process_died_is_not_said_to_be_running() {
    let home = Home::new(&COPY.replace("batch = 250", "batch = 1"));
    fill(&home.path("origin.db"), |number| Some(number.to_string())).await;
    let mut child = home.start(&["sync"]);
    line_on_stderr(&mut child, "writing");
    let first = || home.run(&["runs", "--json"]).ends(0).json()["runs"][0].clone();
    assert_eq!(first()["status"], "running");
    kill(child);
    let (killed, plain) = (first(), home.run(&["runs"]).ends(0));
    assert_eq!((&killed["status"], &killed["interrupted"]), (&"failed".into(), &true.into()), "{killed}");
    assert!(plain.out.contains("interrupted"), "{}", plain.out);
    assert_eq!(home.run(&["status", "--json"]).ends(0).json()["pipelines"][0]["status"], "interrupted");
    home.write("trueup.toml", COPY);
    home.run(&["sync"]).ends(0);
    let runs = home.run(&["runs", "--json"]).ends(0).json();
    assert_eq!(
        (&runs["runs"][1]["interrupted"], &runs["runs"][1]["errors"]),
        (&true.into(), &killed["errors"])
    );
}

#[tokio::test]
async fn a_sync_told_to_stop_ends_in_good_order() {
    // One record at a time: it is told to stop long before the last of them.
    let home = Home::new(&COPY.replace("batch = 250", "batch = 1"));
    fill(&home.path("origin.db"), |number| Some(number.to_string())).await;
    let mut child = home.start(&["sync", "--json"]);
    line_on_stderr(&mut child, "writing");
    signal(&child, "INT");
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["runs"][0]["status"], "canceled");
    home.write("trueup.toml", COPY);
    let next = home.run(&["sync", "--json"]).ends(0).run();
    let added = |run: &serde_json::Value| run["added"].as_u64().unwrap();
    assert_eq!(added(&report["runs"][0]) + added(&next), RECORDS as u64);
}
