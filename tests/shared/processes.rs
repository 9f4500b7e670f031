//! Real processes on one state: side by side, killed, stopped for longer than their lease, cut off.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use trueup::clock::SystemClock;
use trueup::record::Fingerprint;
use trueup::state::{Report, State, keys};
use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, Item, Mode, SharedStore, Store};

use super::{Server, fresh_prefix, fresh_state, open_state, open_store};
use crate::cli::home::Home;
use crate::cli::killed::{kill, line_on_stderr};
use crate::flow::rig::contents;
use crate::support::proxy::Proxy;
use crate::support::{self, eventually};

const RECORDS: usize = 5_000;
/// More moments at which to be killed.
const SMALL: &str = "batch = 10\n";
/// What a store is late by, each way: a run of hundreds of batches takes the better part of a minute.
const DELAY: Duration = Duration::from_millis(50);
/// A machine that stands still for seconds makes a takeover late; it does not do so again and again.
const TAKEOVERS_MAX: usize = 3;

/// Pipelines whose sources, stores and state everybody shares.
pub struct Fleet {
    pub home: Home,
    pub state: String,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub name: String,
    pub origin: PathBuf,
    pub target: SharedStore,
}

impl Line {
    /// What its store is to hold.
    pub async fn wanted(&self) -> BTreeMap<String, Bytes> {
        let store: SharedStore = std::sync::Arc::new(Sqlite::open(&self.origin, Access::Read).unwrap());
        contents(&store).await
    }

    pub async fn is_in_step(&self) -> bool {
        contents(&self.target).await == self.wanted().await
    }
}

impl Fleet {
    /// One pipeline.
    pub async fn new(state: &str, settings: &str) -> Self {
        Self::of(state, &[("copy", settings.to_owned())]).await
    }

    /// One whose store answers so late that no run ends before the weather clears up.
    async fn slow(state: &str, settings: &str) -> (Proxy, Self) {
        let network = Proxy::before(&support::etcd().await.endpoints()).await;
        network.change(|weather| weather.delay = DELAY);
        let fleet = Self::beyond(network.address(), state, &[("copy", settings.to_owned())]).await;
        (network, fleet)
    }

    /// Several, each with settings of its own.
    pub async fn of(state: &str, all: &[(&str, String)]) -> Self {
        Self::beyond(support::etcd().await.endpoints().as_str(), state, all).await
    }

    /// Processes reach the stores at this address.
    pub async fn beyond(address: &str, state: &str, all: &[(&str, String)]) -> Self {
        let home = Home::new("");
        let mut config = format!("[state]\nstore = \"{state}\"\n");
        let mut lines = Vec::new();
        for (name, settings) in all {
            let target = fresh_prefix().await;
            let reached = target.replace(&support::etcd().await.endpoints(), address);
            config.push_str(&format!(
                "\n[pipelines.{name}]\nfrom = {{ store = \"sqlite:{name}-origin.db\" }}\n\
                 into = \"{reached}\"\nguard = {{ max_delete = \"100%\", max_update = \"100%\" }}\n{settings}"
            ));
            let origin = home.path(&format!("{name}-origin.db"));
            lines.push(Line { name: (*name).to_owned(), origin, target: open_store(&target).await });
        }
        home.write("trueup.toml", &config);
        Fleet { home, state: state.to_owned(), lines }
    }

    /// Of the only pipeline.
    pub fn origin(&self) -> &Path {
        &self.lines[0].origin
    }

    pub async fn in_step(&self) {
        for line in &self.lines {
            assert!(line.is_in_step().await, "the store of {} is as the source", line.name);
        }
    }

    pub async fn look(&self) -> State {
        State::look(open_state(&self.state).await).await.unwrap()
    }

    /// A sync that has come so far that it writes.
    async fn under_way(&self) -> Child {
        let mut child = self.home.start(&["sync", "--json"]);
        line_on_stderr(&mut child, "writing");
        let target = self.lines[0].target.clone();
        let some = async || target.list(trueup::store::Query::keys("")).await.unwrap().items.len() > 30;
        assert!(eventually(some).await, "it writes");
        assert!(child.try_wait().unwrap().is_none(), "it is still at work");
        child
    }
}

/// Every run anybody has begun.
pub async fn runs(state: &State) -> Vec<Report> {
    state.read_all(keys::RUNS).await.unwrap().into_iter().map(|(_, run)| run).collect()
}

pub async fn fill(path: &Path, records: usize, text: impl Fn(usize) -> String) {
    let store = Sqlite::open(path, Access::Write).unwrap();
    let items: Vec<Item> = (0..records)
        .map(|number| {
            let value = text(number);
            let print = Fingerprint::of(value.as_bytes());
            Item::put(format!("{:02}/{number:05}", number % 50), value).with_fingerprint(print)
        })
        .collect();
    for part in items.chunks(1_000) {
        store.write(part.to_vec(), Mode::Each).await.unwrap();
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn ended(mut child: Child) -> (Option<i32>, Value, String) {
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (child.wait().unwrap().code(), serde_json::from_str(&out).unwrap_or_default(), err)
}

/// `sync` until one is let in; its report.
fn taken_over(home: &Home) -> Value {
    loop {
        let ran = home.run(&["sync", "--json"]);
        if ran.code != 7 {
            return ran.ends(0).run();
        }
    }
}

async fn a_second_process(server: Server) {
    let (network, fleet) = Fleet::slow(&fresh_state(server).await, "batch = 4\n").await;
    fill(fleet.origin(), RECORDS, |number| number.to_string()).await;
    let first = fleet.under_way().await;
    let second = fleet.home.run(&["sync", "--json"]).ends(7).says(&["already running", "process", "since"]);
    assert!(second.err.contains(&first.id().to_string()), "{}", second.err);
    let status = fleet.home.run(&["status", "--json"]).ends(0).json();
    assert_eq!(status["pipelines"][0]["running"], true);
    assert_eq!(status["pipelines"][0]["holder"]["pid"], first.id());
    network.clear_up();
    let (code, report, err) = ended(first);
    assert_eq!((code, &report["runs"][0]["added"]), (Some(0), &RECORDS.into()), "{err}");
    let status = fleet.home.run(&["status", "--json"]).ends(0).json();
    assert_eq!(status["pipelines"][0]["running"], false, "a lease is given back at the end");
    fleet.home.run(&["sync", "--json"]).ends(0);
    fleet.in_step().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_told_who_is_at_work_on_etcd() {
    a_second_process(Server::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_told_who_is_at_work_on_postgres() {
    a_second_process(Server::Postgres).await;
}

/// How long it took another process to take over.
async fn killed_in_the_middle(server: Server) -> f64 {
    let (network, fleet) = Fleet::slow(&fresh_state(server).await, SMALL).await;
    fill(fleet.origin(), RECORDS, |number| format!("record {number}")).await;
    let first = fleet.under_way().await;
    let at = SystemClock::new().now();
    kill(first);
    network.clear_up();
    let report = taken_over(&fleet.home);
    let began: Timestamp = report["started"].as_str().unwrap().parse().unwrap();
    let waited = began.duration_since(at).as_secs_f64();
    println!("{server:?}: another process took over after {waited:.1} s");
    fleet.in_step().await;
    let state = fleet.look().await;
    assert!(state.keys(&keys::open_batches("copy")).await.unwrap().is_empty(), "nothing is left open");
    let again = fleet.home.run(&["sync", "--json"]).ends(0).run();
    assert_eq!((&again["writes"], &again["unchanged"]), (&0.into(), &RECORDS.into()));
    assert_eq!(runs(&state).await.iter().filter(|run| run.interrupted).count(), 1);
    waited
}

async fn replaced_in_time(server: Server) {
    let mut waits = Vec::new();
    for _ in 0..TAKEOVERS_MAX {
        waits.push(killed_in_the_middle(server).await);
        if waits.iter().any(|waited| *waited < 10.0) {
            return;
        }
    }
    panic!("nobody took over within ten seconds: {waits:.1?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_is_replaced_within_ten_seconds_on_etcd() {
    replaced_in_time(Server::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_is_replaced_within_ten_seconds_on_postgres() {
    replaced_in_time(Server::Postgres).await;
}

async fn stopped_for_too_long(server: Server) {
    let (network, fleet) = Fleet::slow(&fresh_state(server).await, SMALL).await;
    fill(fleet.origin(), RECORDS, |number| format!("one {number}")).await;
    let zombie = fleet.under_way().await;
    signal(&zombie, "STOP");
    network.clear_up();
    taken_over(&fleet.home);
    fill(fleet.origin(), RECORDS, |number| format!("two {number}")).await;
    fleet.home.run(&["sync", "--json"]).ends(0);
    fleet.in_step().await;
    let state = open_state(&fleet.state).await;
    let before = contents(&state).await;
    signal(&zombie, "CONT");
    let (code, report, err) = ended(zombie);
    assert_eq!(code, Some(1), "{err}");
    assert_eq!(report["runs"][0]["cause"], "conflict", "{report}");
    assert!(err.contains("lost the lease"), "{err}");
    fleet.in_step().await;
    assert!(before == contents(&state).await, "it wrote nothing into the state");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_slept_through_its_lease_writes_nothing_on_etcd() {
    stopped_for_too_long(Server::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_slept_through_its_lease_writes_nothing_on_postgres() {
    stopped_for_too_long(Server::Postgres).await;
}

/// The state's server in reach only through a proxy.
async fn through_a_proxy(server: Server) -> (Proxy, String) {
    let url = fresh_state(server).await;
    let address = match server {
        Server::Etcd => support::etcd().await.endpoints(),
        Server::Postgres => url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned(),
    };
    let proxy = Proxy::before(&address).await;
    let url = url.replace(&address, proxy.address());
    (proxy, url)
}

async fn cut_off(server: Server, half_open: bool) {
    let (proxy, url) = through_a_proxy(server).await;
    let (network, fleet) = Fleet::slow(&url, SMALL).await;
    fill(fleet.origin(), RECORDS, |number| format!("record {number}")).await;
    let child = fleet.under_way().await;
    if half_open {
        proxy.change(|weather| weather.half_open = true);
    } else {
        proxy.change(|weather| weather.refuse = true);
        proxy.cut();
    }
    let (code, report, err) = tokio::task::spawn_blocking(|| ended(child)).await.unwrap();
    assert_eq!(code, Some(5), "{err}");
    assert_ne!(report["runs"][0]["status"], "ok");
    proxy.change(|weather| (weather.half_open, weather.refuse) = (false, false));
    network.clear_up();
    let home = &fleet.home;
    let after = tokio::task::block_in_place(|| taken_over(home));
    assert_eq!(after["status"], "ok");
    fleet.in_step().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_cut_off_ends_the_run_and_loses_nothing() {
    cut_off(Server::Etcd, false).await;
    cut_off(Server::Postgres, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_no_longer_answers_ends_the_run_and_loses_nothing() {
    cut_off(Server::Etcd, true).await;
    cut_off(Server::Postgres, true).await;
}

/// A look is a look: no table, no key, no lease.
#[tokio::test]
async fn plan_and_dry_run_leave_nothing_in_a_shared_state() {
    for server in [Server::Etcd, Server::Postgres] {
        let url = fresh_state(server).await;
        let fleet = Fleet::new(&url, "").await;
        fill(fleet.origin(), 10, |number| number.to_string()).await;
        for look in
            [&["plan"][..], &["sync", "--dry-run"], &["status"], &["runs"], &["held"], &["queue", "ls"]]
        {
            fleet.home.run(look).ends(0);
        }
        match server {
            Server::Etcd => assert!(contents(&open_store(&url).await).await.is_empty()),
            Server::Postgres => {
                let tables = "select count(*) from pg_class where relname like 'trueup%'";
                assert_eq!(support::postgres::query(&url, tables), "0");
            }
        }
        fleet.home.run(&["state", "backup", "copy.db"]).ends(2).says(&["not a file"]);
    }
}
