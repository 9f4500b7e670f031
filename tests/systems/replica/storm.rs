//! Scenario 27: random writes on both sides, with kills and cuts in between. Afterwards a checker that shares nothing
//! with the replica compares what `etcdctl` says happened with what `psql` says was mirrored.
//!
//! `TRUEUP_STORM_SEED` replays a storm; `TRUEUP_SOAK_SECONDS` goes on with further seeds for that long instead of a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use trueup::clock::{Clock, SystemClock, TestClock};
use trueup::etcd::request::{delete, put};
use trueup::replica::ReplicaSpec;

use super::process::Process;
use super::{Held, Stage};
use crate::support::etcd::History;
use crate::support::postgres::query;
use crate::support::proxy::Proxy;
use crate::support::{Etcd, Postgres, eventually, until};

const OPERATIONS: u64 = 5_000;
const KEYS: u64 = 40;
/// One operation in this many is followed by a fault.
const FAULT_EVERY: u64 = 250;
const SEED: u64 = 27;
/// Storms follow each other for this long.
const SECONDS: u64 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn s27_a_storm_on_both_sides_leaves_both_equal() {
    let clock = SystemClock::new();
    let seconds: u64 =
        std::env::var("TRUEUP_SOAK_SECONDS").ok().and_then(|it| it.parse().ok()).unwrap_or(SECONDS);
    let mut seed = std::env::var("TRUEUP_STORM_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(SEED);
    loop {
        println!("storm with TRUEUP_STORM_SEED={seed}");
        storm(seed).await;
        if clock.elapsed_ms() >= seconds * 1_000 {
            return;
        }
        seed += 1;
    }
}

/// Both servers behind proxies, and the replica as a process between them.
struct Storm {
    stage: Stage,
    chance: Arc<TestClock>,
    to_etcd: Proxy,
    to_postgres: Proxy,
    process: Option<Process>,
    /// Slow to notice by nature (keepalives): a few are enough.
    half_opens_left: u32,
    restarts_left: u32,
}

async fn storm(seed: u64) {
    let (etcd, postgres) = tokio::join!(Etcd::start(1), Postgres::start());
    let stage = Stage::on("storm", Held::Own(Box::new(etcd)), Held::Own(Box::new(postgres))).await;
    let server = stage.dsn.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
    let to_etcd = Proxy::before(&stage.etcd.endpoints()).await;
    let to_postgres = Proxy::before(&server).await;
    let chance = TestClock::at("2026-01-01T00:00:00Z", seed);
    let mut storm =
        Storm { stage, chance, to_etcd, to_postgres, process: None, half_opens_left: 1, restarts_left: 2 };
    storm.launch();
    storm.stage.sql_becomes("select applied_revision > 0 from etcd_sync_state", "t").await;
    for number in 0..OPERATIONS {
        storm.operate(number).await;
        if storm.roll(FAULT_EVERY) == 0 {
            storm.misfortune().await;
        }
    }
    if let Err(trouble) = storm.calm().await {
        panic!("TRUEUP_STORM_SEED={seed}: {trouble}\n{}", storm.process.as_mut().unwrap().said());
    }
    check(&storm.stage, seed).await;
    let process = storm.process.take().unwrap();
    assert_eq!(process.terminate(), 0);
}

impl Storm {
    fn roll(&self, below: u64) -> u64 {
        self.chance.random() % below
    }

    fn launch(&mut self) {
        let spec: &ReplicaSpec = &self.stage.spec;
        let etcd = format!("etcd://{}{}", self.to_etcd.address(), self.stage.prefix);
        let server = self.stage.dsn.split('@').nth(1).unwrap().split('/').next().unwrap();
        let dsn = self.stage.dsn.replace(server, self.to_postgres.address());
        self.process = Some(Process::start_with(&etcd, &dsn, &spec.name));
    }

    /// Every value is unique, so that history tells which operation it came from.
    async fn operate(&self, number: u64) {
        let name = format!("{:02}", self.roll(KEYS));
        let key = self.stage.key(&name);
        match self.roll(10) {
            0..=3 => {
                let _ = self.stage.client.put(put(key, format!("e{number}"))).await;
            }
            4 => {
                let _ = self.stage.client.delete_range(delete(key)).await;
            }
            5..=8 => {
                let _ = self.stage.try_sql(&format!("select etcd_set('{key}', 's{number}')")).await;
            }
            _ => {
                let _ = self.stage.try_sql(&format!("select etcd_delete('{key}')")).await;
            }
        }
    }

    /// Who cannot reach a server at its start says so and ends, and whatever watches over it starts it again. There is
    /// no other reason to end.
    fn watch_over(&mut self) {
        let process = self.process.as_mut().unwrap();
        if let Some(code) = process.ended() {
            assert_eq!(code, 5, "{}", process.said());
            self.launch();
        }
    }

    async fn misfortune(&mut self) {
        self.watch_over();
        match self.roll(8) {
            0 | 1 => {
                self.process.take().unwrap().kill();
                self.launch();
            }
            2 => self.to_etcd.cut(),
            3 => self.to_postgres.cut(),
            4 => {
                self.to_etcd.change(|weather| weather.lose_answers = true);
                for number in 0..20 {
                    self.operate(1_000_000 + number + self.chance.random() % 1_000_000).await;
                }
                self.to_etcd.cut_what_lost_answers();
            }
            5 => {
                self.to_postgres.change(|weather| weather.delay = Duration::from_millis(2));
                for number in 0..20 {
                    self.operate(3_000_000 + number + self.chance.random() % 1_000_000).await;
                }
                self.to_postgres.change(|weather| weather.delay = Duration::ZERO);
            }
            6 if self.half_opens_left > 0 => {
                self.half_opens_left -= 1;
                self.to_etcd.change(|weather| weather.half_open = true);
                for number in 0..20 {
                    self.operate(5_000_000 + number + self.chance.random() % 1_000_000).await;
                }
                self.to_etcd.change(|weather| weather.half_open = false);
            }
            7 if self.restarts_left == 2 => {
                self.restarts_left -= 1;
                self.stage.etcd.kill(0);
                self.stage.etcd.restart(0).await;
            }
            7 if self.restarts_left == 1 => {
                self.restarts_left -= 1;
                self.stage.postgres.kill().await;
                self.stage.postgres.restart().await;
            }
            _ => {}
        }
    }

    /// Fair weather: everything queued is decided, everything that happened is mirrored.
    async fn calm(&mut self) -> Result<(), String> {
        self.to_etcd.clear_up();
        self.to_postgres.clear_up();
        self.to_etcd.cut();
        self.to_postgres.cut();
        let last = self.stage.put("last", "end").await;
        let seen = format!("select applied_revision < {last} from etcd_sync_state");
        // A write decided a moment ago may be on its way back.
        let missing = "select count(*) > 0 from etcd_wal w where status = 'applied' and not exists (
                         select 1 from etcd e where e.key = w.key and e.revision = w.result_revision)";
        let pending = "select count(*) > 0 from etcd_wal where status = 'pending'";
        for unrest in [pending, seen.as_str(), missing] {
            let at_rest = eventually(async || {
                self.watch_over();
                self.stage.try_sql(unrest).await.as_deref() == Ok("f")
            });
            if !at_rest.await {
                return Err(format!("still true: {unrest}\n{}", self.state_of_things().await));
            }
        }
        Ok(())
    }
}

impl Storm {
    /// What a person would look at first.
    async fn state_of_things(&self) -> String {
        let mut said = String::new();
        for question in [
            "select row_to_json(s)::text from etcd_sync_state s",
            "select coalesce(json_agg(w)::text, '') from etcd_wal w where status = 'applied' and not exists (
               select 1 from etcd e where e.key = w.key and e.revision = w.result_revision)",
        ] {
            let answer = self.stage.try_sql(question).await;
            said.push_str(&format!("{question}: {answer:?}\n"));
        }
        said + &self.stage.etcd.ctl(&["get", "--prefix", &self.stage.prefix, "-w", "json"])
    }
}

async fn check(stage: &Stage, seed: u64) {
    let (dsn, why) = (&stage.dsn, format!("TRUEUP_STORM_SEED={seed}"));
    let theirs = etcd_history(stage).await;
    let ours = postgres_history(dsn);
    let gaps: Vec<_> = theirs.iter().filter(|(at, value)| ours.get(*at) != Some(*value)).take(5).collect();
    assert!(gaps.is_empty(), "{why}: missing or different in PostgreSQL: {gaps:?}");
    let inventions: Vec<_> = ours.keys().filter(|at| !theirs.contains_key(*at)).take(5).collect();
    assert!(inventions.is_empty(), "{why}: never happened in etcd: {inventions:?}");

    let live: BTreeSet<String> = stage
        .etcd
        .ctl(&["get", "--prefix", &stage.prefix, "--keys-only"])
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    let mirrored: BTreeSet<String> =
        query(dsn, "select key from etcd_live").lines().map(str::to_owned).collect();
    assert_eq!(live, mirrored, "{why}: the live keys");

    let unfinished = query(dsn, "select count(*) from etcd_wal where status in ('pending', 'failed')");
    assert_eq!(unfinished, "0", "{why}: every write has a final status");
    check_writes(&theirs, dsn, &why);
}

/// Every applied write is in history exactly once, at the revision it was told; no other write is there at all.
fn check_writes(history: &History, dsn: &str, why: &str) {
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for value in history.values().flatten() {
        *times.entry(value).or_default() += 1;
    }
    let rows = query(
        dsn,
        "select status, key, coalesce(value, ''), operation, coalesce(result_revision, 0) from etcd_wal",
    );
    let mut applied = 0;
    for row in rows.lines() {
        let cells: Vec<&str> = row.split('|').collect();
        let [status, key, value, operation, revision] = cells[..] else { panic!("{row}") };
        let at = (key.to_owned(), revision.parse::<i64>().unwrap());
        match (status, operation) {
            ("applied", "put") => {
                assert_eq!(history.get(&at), Some(&Some(value.to_owned())), "{why}: {row}");
                assert_eq!(times.get(value), Some(&1), "{why}: written twice: {row}");
                applied += 1;
            }
            ("applied", _) => assert_eq!(history.get(&at), Some(&None), "{why}: {row}"),
            ("conflict", "put") => assert_eq!(times.get(value), None, "{why}: lost, yet written: {row}"),
            _ => {}
        }
    }
    let from_sql = history.values().flatten().filter(|value| value.starts_with('s')).count();
    assert_eq!(from_sql, applied, "{why}: every write of ours in history is known as applied");
    assert!(applied > 100, "{why}: the storm did something");
}

/// All events below the prefix since the beginning, as `etcdctl watch` tells them.
async fn etcd_history(stage: &Stage) -> History {
    let end = stage.put("end of history", "x").await;
    let history = stage.etcd.history(&stage.prefix, end);
    let dsn = &stage.dsn;
    until("the last key is mirrored", || query(dsn, "select count(*) from etcd where value = 'x'") == "1")
        .await;
    stage.client.delete_range(delete(stage.key("end of history"))).await.unwrap();
    until("and gone again", || query(dsn, "select count(*) from etcd_live where value = 'x'") == "0").await;
    history
}

fn postgres_history(dsn: &str) -> History {
    let text =
        "select key, revision, tombstone, coalesce(value, '') from etcd where key not like '%end of history'";
    let mut history = History::new();
    for row in query(dsn, text).lines() {
        let cells: Vec<&str> = row.split('|').collect();
        let [key, revision, tombstone, value] = cells[..] else { panic!("{row}") };
        let value = (tombstone == "f").then(|| value.to_owned());
        let twice = history.insert((key.to_owned(), revision.parse().unwrap()), value);
        assert!(twice.is_none(), "{row}");
    }
    history
}
