//! Many follow-ups, several worker processes, some of them killed at work: none is lost, and each export is written
//! exactly once.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use trueup::clock::SystemClock;
use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, SharedStore};

use super::place::Home;
use crate::flow::rig::fill;
use crate::support;
use crate::support::postgres::query;

const WORKERS: usize = 4;
const KILLS: usize = 8;
const ITEMS: usize = 50_000;
/// Between two looks at how far they are.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Workers may be done before enough of them were killed, if we are held up for long: then all of it once more.
const ATTEMPTS: usize = 4;

/// Everything is synced, and every export waits, because its target is not there yet.
struct Backlog {
    home: Home,
    /// The target: a database that counts what is written to it, whoever does it.
    target: String,
}

impl Backlog {
    async fn of(count: usize) -> Self {
        let admin = support::postgres().await.fresh_database();
        let target = format!("{admin}_copy");
        let home = Home::new(&format!(
            "[stores]\norigin = \"sqlite:origin.db\"\n\n[pipelines.all]\nfrom = {{ store = \"origin\" }}\ninto = \"sqlite:out.db\"\nthen = {{ export = \"{target}\" }}\n",
        ));
        let origin: SharedStore = Arc::new(Sqlite::open(&home.path("origin.db"), Access::Write).unwrap());
        fill(&origin, (0..count).map(|at| (format!("k{at:06}"), format!("value {at}")))).await;
        drop(origin);
        let run = home.ends(&["sync"], 0);
        assert_eq!(run["runs"][0]["added"], count);
        query(&admin, &format!("create database {}", target.rsplit('/').next().unwrap()));
        home.ends(&["kv", "put", &target, "first", "1"], 0);
        home.ends(&["kv", "rm", &target, "first"], 0);
        let counts = "create table written(key text);
            create function count_it() returns trigger language plpgsql as
              $$ begin insert into written values (new.key); return new; end $$;
            create trigger counted after insert or update on trueup_kv for each row execute function count_it()";
        query(&target, counts);
        Backlog { home, target }
    }

    fn count(&self, what: &str) -> usize {
        query(&self.target, &format!("select count(*) from {what}")).parse().unwrap()
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
    let mut most = 0;
    for _ in 0..ATTEMPTS {
        let backlog = Backlog::of(ITEMS).await;
        most = most.max(drained(&backlog, ITEMS).await);
        each_was_exported_once(&backlog, ITEMS);
        if most >= KILLS / 2 {
            return;
        }
    }
    panic!("only {most} were killed");
}

/// Let workers do all of it, killing some on the way; how many were killed.
async fn drained(backlog: &Backlog, count: usize) -> usize {
    let (clock, home) = (SystemClock::new(), &backlog.home);
    let mut workers: Vec<Child> = (0..WORKERS).map(|_| worker(home)).collect();
    let mut killed = 0;
    loop {
        let done = backlog.count("trueup_kv");
        if done == count {
            break;
        }
        // A kill after every so many exports: wherever the worker then is.
        let due = done * (KILLS + 1) / count > killed;
        killed += tend(home, &mut workers, due);
        workers.rotate_left(1);
        clock.sleep(LOOK_EVERY).await;
    }
    for mut worker in workers {
        worker.wait().unwrap();
    }
    killed
}

fn each_was_exported_once(backlog: &Backlog, count: usize) {
    let home = &backlog.home;
    // What killed workers had claimed is theirs no more.
    home.ends(&["queue", "work"], 0);
    assert!(home.ends(&["queue", "ls"], 0)["queue"].as_array().unwrap().is_empty());
    assert!(home.ends(&["dead", "ls"], 0)["dead"].as_array().unwrap().is_empty());
    let right = "trueup_kv where value = ('value ' || substr(key, 2)::int)::bytea";
    assert_eq!((backlog.count("trueup_kv"), backlog.count(right)), (count, count));
    assert_eq!(backlog.count("written"), count, "each was written once");
}

/// Written by a process of its own. A file cannot be run while anybody has it open to write, and what we have open, a
/// process that another test starts just then has as well, for a moment.
fn write_program(home: &Home, name: &str, text: &str) {
    let mut shell = Command::new("sh")
        .args(["-c", r#"cat > "$0" && chmod 755 "$0""#, name])
        .current_dir(home.path(""))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
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
    write_program(
        &home,
        "effect",
        "#!/bin/sh\necho start >> log\nwhile [ ! -e go ] && [ -e log ]; do sleep 0.05; done\necho end >> log\n",
    );
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
