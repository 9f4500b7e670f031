//! Runs that overlap, die, are stopped or grow old: scenarios 18 and 20 to 24.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

use super::kit::{CASES, Database, FIRST_CASE, PARTIES, PROPOSALS, ROWS, Ran, Stage, VOTES, case};
use super::on_both;
use crate::support;

on_both!(
    scenario_18_batches_are_as_large_as_the_recipe_says,
    scenario_18_killed_between_batches_each_is_whole,
    scenario_20_of_two_starts_one_runs,
    scenario_21_a_killed_run_is_marked_and_the_next_one_converges,
    scenario_22_a_canceled_run_leaves_consistent_data,
    scenario_23_old_runs_are_forgotten,
    scenario_24_requests_in_flight_never_exceed_the_limit,
);

/// A parliament with nothing but cases.
fn only_cases(stage: &Stage, count: usize) {
    let mut api = stage.api();
    api.parties.clear();
    api.votes.clear();
    api.proposals.clear();
    api.cases = (0..count).map(|n| case(FIRST_CASE + n as i64)).collect();
}

/// The journal has one record per batch.
fn batches(stage: &Stage, run: &Value) -> usize {
    let state = rusqlite::Connection::open(stage.folder.path().join(".trueup/state.db")).unwrap();
    let prefix = format!("journal/stortinget/{}/", run["id"].as_str().unwrap());
    let sql = "select count(*) from kv where substr(key, 1, length(?1)) = ?1";
    let count: i64 = state.query_row(sql, [&prefix], |row| row.get(0)).unwrap();
    usize::try_from(count).unwrap()
}

async fn scenario_18_batches_are_as_large_as_the_recipe_says(stage: Stage) {
    let mut known = 0;
    for (rows, expected) in [(51, 2), (151, 2), (252, 3)] {
        only_cases(&stage, rows);
        let run = stage.sync();
        run.is(0, &[("added", (rows - known) as u64)]);
        assert_eq!(batches(&stage, run.run()), expected, "{} new rows", rows - known);
        known = rows;
    }
}

/// Killed when it is let go, and so with the test, whatever happens.
struct Running(Child);

impl Running {
    fn start(stage: &Stage) -> Self {
        Running(stage.command(&["sync"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let sent =
            std::process::Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Wait until the program has said this on stderr.
    fn says(&mut self, words: &str) {
        let mut lines = BufReader::new(self.0.stderr.as_mut().unwrap()).lines();
        let heard = lines.by_ref().map_while(Result::ok).any(|line| line.contains(words));
        assert!(heard, "the program ended without saying: {words}");
    }

    fn finish(mut self) -> Ran {
        let mut out = String::new();
        std::io::Read::read_to_string(&mut self.0.stdout.take().unwrap(), &mut out).unwrap();
        let code = self.0.wait().unwrap().code().unwrap_or(-1);
        Ran { code, json: serde_json::from_str(&out).unwrap_or(Value::Null) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The database is never done with inserting this case, until it is let in.
fn hold_case(stage: &Stage, id: i64) {
    let trigger = "create trigger held before insert on cases";
    match stage.database {
        Database::Sqlite(_) => {
            let endless = "with recursive n(n) as (select 1 union all select n + 1 from n) select n from n";
            stage.query(&format!("create view endless as {endless}"));
            stage.query(&format!("{trigger} when new.id = {id} begin select count(*) from endless; end"));
        }
        Database::Postgres(_) => {
            let body = "begin perform pg_sleep(3600); return new; end";
            stage.query(&format!("create function endless() returns trigger language plpgsql as '{body}'"));
            stage.query(&format!("{trigger} for each row when (new.id = {id}) execute function endless()"));
        }
    }
}

fn let_case_in(stage: &Stage) {
    match stage.database {
        Database::Sqlite(_) => stage.query("drop trigger held"),
        Database::Postgres(_) => stage.query("drop trigger held on cases"),
    };
}

/// A server goes on for a while with what a killed client asked for, a commit included.
async fn nobody_is_connected(stage: &Stage) {
    if let Database::Postgres(_) = stage.database {
        let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                   where application_name = 'trueup' and datname = current_database()";
        support::until("the killed run's connections are gone", || stage.query(sql) == "0").await;
    }
}

async fn scenario_18_killed_between_batches_each_is_whole(stage: Stage) {
    let total = 2_000;
    stage.edit_recipe(|recipe| recipe.split("[[resources]]\nname  = \"votes\"").next().unwrap().to_owned());
    only_cases(&stage, 0);
    stage.sync().is(0, &[("added", 0)]);
    only_cases(&stage, total);
    // However late the kill comes, the last batch is not there yet.
    hold_case(&stage, FIRST_CASE + total as i64 - 1);
    let running = Running::start(&stage);
    support::until("a few batches have arrived", || stage.rows("cases") >= 100).await;
    drop(running);
    nobody_is_connected(&stage).await;
    let_case_in(&stage);
    let arrived = stage.rows("cases");
    assert!(arrived < total, "it was killed in the middle");
    assert_eq!(arrived % 50, 0, "a batch arrives as a whole");
    let entries = "select count(*) from sync_cache where table_name = 'cases'";
    assert_eq!(stage.query(entries), arrived.to_string());
    let next = stage.sync();
    assert_eq!(next.code, 0, "{:#}", next.json);
    assert_eq!(stage.rows("cases"), total);
    assert_eq!(stage.query(entries), total.to_string());
    stage.sync().is(0, &[("unchanged", total as u64), ("writes", 0)]);
}

/// A gate in the API: whoever asks waits before it until it opens.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// The list of cases waits at the gate.
fn gated(stage: &Stage) -> Arc<Gate> {
    let gate = Arc::new(Gate::default());
    let theirs = gate.clone();
    stage.api().trouble = Box::new(move |request| {
        if request.path.contains("/saker") {
            theirs.pass();
        }
        None
    });
    gate
}

async fn scenario_20_of_two_starts_one_runs(stage: Stage) {
    let gate = gated(&stage);
    let first = Running::start(&stage);
    support::until("the first run is reading", || gate.waiting.load(Ordering::SeqCst) > 0).await;
    let second = stage.sync();
    assert_eq!(second.code, 7, "{:#}", second.json);
    assert_eq!(second.json["error"]["kind"], json!("busy"));
    gate.open();
    first.finish().is(0, &[("added", ROWS)]);
    assert_eq!(stage.table_counts(), [PARTIES, CASES, VOTES, PROPOSALS]);
}

async fn scenario_21_a_killed_run_is_marked_and_the_next_one_converges(stage: Stage) {
    let gate = gated(&stage);
    let first = Running::start(&stage);
    support::until("the first run is reading", || gate.waiting.load(Ordering::SeqCst) > 0).await;
    drop(first);
    gate.open();
    stage.sync().is(0, &[("added", ROWS)]);
    let runs = stage.trueup(&["runs"]);
    let killed = &runs.json["runs"][1];
    assert_eq!(
        (&killed["status"], &killed["interrupted"]),
        (&json!("failed"), &json!(true)),
        "{:#}",
        runs.json
    );
    stage.cache_fits();
}

async fn scenario_22_a_canceled_run_leaves_consistent_data(stage: Stage) {
    stage.sync();
    let before = stage.everything();
    stage.api().cases[0]["tittel"] = json!("Ny tittel");
    let gate = gated(&stage);
    stage.server.forget();
    let mut running = Running::start(&stage);
    support::until("the run is reading", || gate.waiting.load(Ordering::SeqCst) > 0).await;
    running.signal("INT");
    running.says("Stopping after what is in flight");
    gate.open();
    let canceled = running.finish();
    assert_eq!(canceled.code, 130, "{:#}", canceled.json);
    assert_eq!(canceled.run()["status"], json!("canceled"));
    assert_eq!(stage.everything(), before, "nothing of half a reading is written");
    stage.api().trouble = Box::new(|_| None);
    stage.sync().is(0, &[("updated", 1), ("unchanged", ROWS - 1)]);
}

async fn scenario_23_old_runs_are_forgotten(mut stage: Stage) {
    stage.settings = "keep_runs = \"10d\"".into();
    let at = |day: u32| format!("2026-11-{day:02}T00:00:00Z");
    for day in [1, 5, 12] {
        assert_eq!(stage.trueup(&["--now", &at(day), "sync"]).code, 0);
    }
    let runs = stage.trueup(&["runs"]);
    let started: Vec<&str> =
        runs.json["runs"].as_array().unwrap().iter().filter_map(|run| run["started"].as_str()).collect();
    assert_eq!(started, ["2026-11-12T00:00:00.000Z", "2026-11-05T00:00:00.000Z"]);
    stage.settings = "keep_runs = \"0d\"".into();
    assert_eq!(stage.sync().code, 2, "a history of nothing is refused");
}

/// A server that answers when as many requests are waiting as may ever be, and remembers how many there were.
struct Crowd {
    now: Mutex<usize>,
    most: AtomicUsize,
    changed: Condvar,
}

fn crowded(limit: usize) -> (String, Arc<Crowd>) {
    let crowd = Arc::new(Crowd { now: Mutex::new(0), most: AtomicUsize::new(0), changed: Condvar::new() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let theirs = crowd.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let crowd = theirs.clone();
            std::thread::spawn(move || drop(attend(stream, &crowd, limit)));
        }
    });
    (address, crowd)
}

fn attend(mut stream: TcpStream, crowd: &Crowd, limit: usize) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let path = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let body = if path.contains("/allepartier") {
        json!({"partier_liste": []})
    } else if path.contains("/saker") {
        json!({"saker_liste": (0..60).map(|n| case(FIRST_CASE + n)).collect::<Vec<_>>()})
    } else {
        let mut now = crowd.now.lock().unwrap();
        *now += 1;
        crowd.most.fetch_max(*now, Ordering::SeqCst);
        crowd.changed.notify_all();
        // Nobody is answered before the house was full once; then it empties as it likes.
        while crowd.most.load(Ordering::SeqCst) < limit {
            now = crowd.changed.wait(now).unwrap();
        }
        *now -= 1;
        json!({"sak_votering_liste": []})
    };
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n";
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
}

async fn scenario_24_requests_in_flight_never_exceed_the_limit(stage: Stage) {
    let (address, crowd) = crowded(4);
    let mut command = stage.command(&["sync"]);
    let run = Ran::of(&command.env("STORTINGET_BASE_URL", address).output().unwrap());
    run.is(0, &[("added", 60), ("requests", 62)]);
    assert_eq!(crowd.most.load(Ordering::SeqCst), 4, "as many as allowed, and never more");
}
