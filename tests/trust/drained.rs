//! Many follow-ups, several worker processes, some of them killed at work: none is lost, and each export is written
//! exactly once.

use std::process::Child;
use std::sync::Arc;

use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, SharedStore, StoreExt, What};

use super::place::Home;
use crate::flow::rig::fill;
use crate::support;

const WORKERS: usize = 4;
const KILLS: usize = 8;
const ITEMS: usize = 50_000;

/// Everything is synced, and every export waits, because its target is in the way of itself.
async fn backlog(count: usize) -> Home {
    let home = Home::new(
        "[stores]\norigin = \"sqlite:origin.db\"\n\n[pipelines.all]\nfrom = { store = \"origin\" }\ninto = \"sqlite:out.db\"\nthen = { export = \"sqlite:copy/store.db\" }\n",
    );
    let origin: SharedStore = Arc::new(Sqlite::open(&home.path("origin.db"), Access::Write).unwrap());
    fill(&origin, (0..count).map(|at| (format!("k{at:06}"), format!("value {at}")))).await;
    drop(origin);
    home.write("copy", "in the way");
    let run = home.ends(&["sync"], 0);
    assert_eq!(run["runs"][0]["added"], count);
    home.remove("copy");
    std::fs::create_dir(home.path("copy")).unwrap();
    home
}

fn exported(home: &Home) -> Option<SharedStore> {
    let store = Sqlite::open(&home.path("copy/store.db"), Access::Read).ok()?;
    Some(Arc::new(store))
}

async fn count_exported(home: &Home) -> usize {
    match exported(home) {
        Some(store) => store.list_all("", What::Keys).await.map_or(0, |lines| lines.len()),
        None => 0,
    }
}

fn worker(home: &Home) -> Child {
    home.command(&["queue", "work"]).spawn().unwrap()
}

/// Start the ended ones anew; kill the first one that is at work, if asked to.
fn tend(home: &Home, workers: &mut [Child], kill: bool) -> usize {
    let mut killed = 0;
    for worker_process in workers {
        if kill && killed == 0 && worker_process.try_wait().unwrap().is_none() {
            worker_process.kill().unwrap();
            worker_process.wait().unwrap();
            killed = 1;
        }
        if worker_process.try_wait().unwrap().is_some() {
            *worker_process = worker(home);
        }
    }
    killed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_are_killed_lose_nothing_and_export_each_record_once() {
    let count = ITEMS;
    let home = backlog(count).await;
    let mut workers: Vec<Child> = (0..WORKERS).map(|_| worker(&home)).collect();
    let mut killed = 0;
    loop {
        let done = count_exported(&home).await;
        if done == count {
            break;
        }
        // A kill after every so many exports: wherever the worker then is.
        let due = done * (KILLS + 1) / count > killed;
        killed += tend(&home, &mut workers, due);
        workers.rotate_left(1);
    }
    for mut worker in workers {
        worker.wait().unwrap();
    }
    assert!(killed >= KILLS / 2, "only {killed} were killed");
    // What killed workers had claimed is theirs no more.
    home.ends(&["queue", "work"], 0);
    assert!(home.ends(&["queue", "ls"], 0)["queue"].as_array().unwrap().is_empty());
    assert!(home.ends(&["dead", "ls"], 0)["dead"].as_array().unwrap().is_empty());
    let copy = exported(&home).unwrap();
    let lines = copy.list_all("", What::Values).await.unwrap();
    assert_eq!(lines.len(), count);
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line.value.as_deref(), Some(format!("value {at}").as_bytes()), "{}", line.key);
    }
    // The store counts its writes, and gives each the next number.
    let newest = lines.iter().map(|line| line.version.0.parse::<usize>().unwrap()).max();
    assert_eq!(newest, Some(count), "each was written once");
}

/// Commands have no compare-and-set: at least once is what they get.
#[tokio::test]
async fn a_killed_workers_claims_are_taken_over_at_once() {
    let home = Home::new(
        "[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"file:out\"\nthen = { command = [\"./effect\"] }\n",
    );
    home.write("notes/a", "1");
    // Not a program yet: the task waits.
    home.ends(&["sync"], 0);
    home.write(
        "effect",
        "#!/bin/sh\necho start >> log\nwhile [ ! -e go ]; do sleep 0.05; done\necho end >> log\n",
    );
    let program = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.path("effect"), program).unwrap();
    let mut first = worker(&home);
    support::until("the effect has begun", || home.read("log").is_some()).await;
    let listed = home.ends(&["queue", "ls"], 0);
    assert_eq!(listed["queue"][0]["state"], "taken");
    assert_eq!(home.ends(&["queue", "work"], 0)["done"], 0, "a live worker's claim is respected");
    first.kill().unwrap();
    first.wait().unwrap();
    home.write("go", "");
    assert_eq!(home.ends(&["queue", "work"], 0)["done"], 1, "a dead one's is not");
    assert!(home.read("log").unwrap().matches("start").count() == 2);
    assert!(home.ends(&["queue", "ls"], 0)["queue"].as_array().unwrap().is_empty());
}
