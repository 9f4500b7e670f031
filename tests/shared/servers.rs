//! Three servers on one state, two of them killed in quick succession again and again, while sources change and people
//! ask for runs. Afterwards etcd, which has kept every version of every key, is the witness: the stores are as the
//! sources, no version of a record was written or exported twice, none after a newer one.
//!
//! `TRUEUP_STORM_SEED` replays who is struck when, who is asked for what, and what changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use trueup::clock::{SharedClock, SystemClock, TestClock, rfc3339_ms};
use trueup::state::{Report, State, Status, keys};

use super::processes::{Fleet, fill, runs};
use super::storm::{at_rest, prefix_of};
use super::{Server, fresh_prefix, fresh_state, open_store};
use crate::cli::home::Home;
use crate::flow::rig::contents;
use crate::server::rig::Serving;
use crate::support::{self, eventually};

/// Two come up every second, two are run when somebody asks.
const BY_CLOCK: [&str; 2] = ["clock-a", "clock-b"];
const BY_HAND: [&str; 2] = ["hand-a", "hand-b"];
/// Written three at a time: a pass has many moments at which to be killed.
const RECORDS: usize = 120;
const SETTINGS: &str = "batch = 3\n";
/// Each time two servers are killed, and the second may be the one that watched over what the first left.
const STRIKES: usize = 4;
/// Nobody who asks for a run waits longer: a lease is waited for, then a pass of this size.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Three servers that have the same config.
pub async fn three(home: &Home, args: &[&str]) -> Vec<Serving> {
    futures::future::join_all((0..3).map(|_| Serving::with(home, args, &[]))).await
}

/// Ask all of them to stop; they do, in good order.
pub async fn stop(servers: &mut [Serving]) {
    for server in servers.iter() {
        server.signal("TERM");
    }
    for server in servers {
        assert_eq!(server.ended().await, 0, "{}", server.said());
        assert!(!server.said().contains("panicked"), "{}", server.said());
    }
}

/// The process that holds each lease, pipelines' and workers'.
pub async fn holders(state: &State) -> BTreeMap<String, u32> {
    let leases = state.read_all::<Value>(keys::LEASES).await.unwrap().into_iter();
    let pid = |lease: &Value| u32::try_from(lease["pid"].as_u64().unwrap()).unwrap();
    leases.map(|(key, lease)| (keys::below(keys::LEASES, &key).to_owned(), pid(&lease))).collect()
}

/// Kill a server; the pipelines it held at that instant, and the instant.
pub async fn killed(server: &mut Serving, state: &State) -> (Vec<String>, Timestamp) {
    let at = SystemClock::new().now();
    server.signal("KILL");
    server.ended().await;
    assert!(!server.said().contains("panicked"), "{}", server.said());
    let held = holders(state)
        .await
        .into_iter()
        .filter(|(name, pid)| *pid == server.id() && !name.starts_with(trueup::state::lease::WORKER));
    (held.map(|(name, _)| name).collect(), at)
}

/// When a run of this pipeline first began after an instant.
pub fn next_run(runs: &[Report], pipeline: &str, after: Timestamp) -> Option<Timestamp> {
    let begun = runs.iter().filter(|run| run.pipeline == pipeline).map(|run| run.started.parse().unwrap());
    begun.filter(|at| *at > after).min()
}

struct Storm {
    seed: u64,
    fleet: Fleet,
    /// Where each pipeline's follow-up exports go.
    copies: Vec<String>,
    state: State,
    addresses: Mutex<Vec<String>>,
    client: reqwest::Client,
    clock: SharedClock,
    over: AtomicBool,
}

impl Storm {
    async fn on(server: Server, seed: u64) -> Self {
        let (mut copies, mut all) = (Vec::new(), Vec::new());
        for name in BY_CLOCK.into_iter().chain(BY_HAND) {
            let when = if BY_CLOCK.contains(&name) { "when = \"* * * * * *\"\n" } else { "" };
            let copy = fresh_prefix().await;
            all.push((name, format!("{SETTINGS}{when}then = [{{ export = \"{copy}\" }}]\n")));
            copies.push(copy);
        }
        let fleet = Fleet::of(&fresh_state(server).await, &all).await;
        for line in &fleet.lines {
            fill(&line.origin, RECORDS, |number| format!("0001 {number}")).await;
        }
        let state = State::open(super::open_state(&fleet.state).await).await.unwrap();
        trueup::tls::choose();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(ANSWER_MAX);
        let (addresses, client) = (Mutex::default(), client.build().unwrap());
        let over = AtomicBool::new(false);
        Storm { seed, fleet, copies, state, addresses, client, clock: SystemClock::new(), over }
    }

    /// Somebody's own sequence of decisions.
    fn chance(&self, whose: u64) -> Dice {
        Dice(TestClock::at("2026-01-01T00:00:00Z", self.seed ^ whose << 32))
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    async fn pause(&self, ms: u64) {
        self.clock.sleep(Duration::from_millis(ms)).await;
    }

    /// Sources change all the time; each change of a record has a number of its own.
    async fn change(&self) -> u32 {
        let dice = self.chance(1);
        let mut round = 1;
        while !self.is_over() {
            self.pause(200 + dice.below(300)).await;
            round += 1;
            let line = &self.fleet.lines[dice.index(self.fleet.lines.len())];
            fill(&line.origin, 20 + dice.index(RECORDS - 20), |number| format!("{round:04} {number}")).await;
        }
        round
    }

    /// Somebody asks any of the servers for runs of a pipeline, and never stops: like a schedule, that is what a
    /// takeover needs. `(run, busy, not answered)`.
    async fn ask(&self, whose: u64, line: &str) -> (u32, u32, u32) {
        let dice = self.chance(whose);
        let (mut ran, mut busy, mut silent) = (0, 0, 0);
        while !self.is_over() {
            self.pause(100 + dice.below(400)).await;
            match self.ask_for_run(dice.index(3), line).await {
                Some(200) => ran += 1,
                Some(409) => busy += 1,
                Some(status) => panic!("answered with {status} (seed {})", self.seed),
                // It was killed, or is not back yet.
                None => silent += 1,
            }
        }
        (ran, busy, silent)
    }

    async fn ask_for_run(&self, server: usize, line: &str) -> Option<u16> {
        let address = self.addresses.lock().unwrap()[server].clone();
        let url = format!("http://{address}/api/pipelines/{line}/run");
        self.client.post(url).send().await.ok().map(|answer| answer.status().as_u16())
    }

    /// Kill whoever runs some pipeline, a moment after it was seen at it, and start it again.
    async fn strike(&self, servers: &mut [Serving], dice: &Dice) -> (Vec<String>, Timestamp) {
        self.pause(dice.below(1_500)).await;
        let line = &self.fleet.lines[dice.index(self.fleet.lines.len())].name;
        let mut victim = None;
        let seen = eventually(async || {
            let holder = holders(&self.state).await.remove(line);
            victim = servers.iter().position(|server| Some(server.id()) == holder);
            victim.is_some()
        });
        assert!(seen.await, "nobody runs {line} (seed {})", self.seed);
        let victim = victim.unwrap();
        self.pause(dice.below(250)).await;
        let (orphans, at) = killed(&mut servers[victim], &self.state).await;
        servers[victim] = Serving::of(&self.fleet.home).await;
        self.addresses.lock().unwrap()[victim] = servers[victim].address.clone();
        (orphans, at)
    }

    /// Two kills; then everything they left behind is taken over in time. Seconds after the last kill, per pipeline.
    async fn strike_twice(&self, servers: &mut [Serving], dice: &Dice) -> Vec<f64> {
        let first = self.strike(servers, dice).await;
        let second = self.strike(servers, dice).await;
        let kills = [first.1, second.1];
        let orphans: Vec<(String, Timestamp)> = [first, second]
            .into_iter()
            .flat_map(|(names, at)| names.into_iter().map(move |name| (name, at)))
            .collect();
        let mut begun = Vec::new();
        let taken_over = eventually(async || {
            begun = runs(&self.state).await;
            orphans.iter().all(|(name, at)| next_run(&begun, name, *at).is_some())
        });
        assert!(taken_over.await, "{orphans:?} (seed {})", self.seed);
        let mut waits = Vec::new();
        for (name, at) in &orphans {
            let begun = next_run(&begun, name, *at).unwrap();
            // Who watched may have been killed as well: it counts from the last kill on.
            let last = kills.iter().filter(|kill| **kill < begun).max().unwrap();
            let wait = begun.duration_since(*last).as_secs_f64();
            waits.push(wait);
        }
        waits
    }

    async fn rage(&self, mut servers: Vec<Serving>) -> (Vec<Serving>, Vec<f64>) {
        let dice = self.chance(0);
        let mut waits = Vec::new();
        for _ in 0..STRIKES {
            waits.extend(self.strike_twice(&mut servers, &dice).await);
        }
        self.over.store(true, Ordering::SeqCst);
        (servers, waits)
    }

    /// Everything is carried over and exported by those who serve; then they rest, and are stopped. When that was asked.
    async fn calm(&self, servers: &mut [Serving]) -> String {
        for line in BY_HAND {
            let ran = eventually(async || self.ask_for_run(0, line).await == Some(200)).await;
            assert!(ran, "{line} could not be run (seed {})", self.seed);
        }
        for line in &self.fleet.lines {
            assert!(eventually(async || line.is_in_step().await).await, "{} (seed {})", line.name, self.seed);
        }
        for line in BY_CLOCK {
            servers[1].post(&format!("/api/pipelines/{line}/pause"), None).await.is(200);
        }
        let resting = eventually(async || {
            let left = [keys::QUEUE, keys::LEASES].map(|prefix| self.state.keys(prefix));
            let left = futures::future::try_join_all(left).await.unwrap().concat();
            left.is_empty()
        });
        assert!(resting.await, "{:?} (seed {})", holders(&self.state).await, self.seed);
        let asked = rfc3339_ms(self.clock.now());
        stop(servers).await;
        asked
    }

    async fn check(&self, stopped: &str) {
        let why = format!("seed {}", self.seed);
        self.fleet.in_step().await;
        at_rest(&self.fleet).await;
        let runs = runs(&self.state).await;
        for run in &runs {
            // A slot that came up right before its pause may have begun when the stop was asked for.
            let stopped = run.status == Status::Canceled && run.finished.as_deref() >= Some(stopped);
            assert!(run.interrupted || run.status == Status::Ok || stopped, "{why}: {run:#?}");
        }
        let cut = runs.iter().filter(|run| run.interrupted).count();
        assert!(cut > 0, "{why}: some were killed at work");
        let mut count = 0;
        for (line, copies) in self.fleet.lines.iter().zip(&self.copies) {
            let copy = open_store(copies).await;
            assert!(contents(&copy).await == line.wanted().await, "{why}: every change was exported");
            let written = versions(line.target.name(), &why).await;
            let exported = versions(copies, &why).await;
            assert!(exported.is_subset(&written), "{why}: only what was written is exported");
            count += written.len() + exported.len();
        }
        println!("{} runs, {cut} of them cut short, {count} writes and exports ({why})", runs.len());
    }
}

/// What a seed decides.
struct Dice(SharedClock);

impl Dice {
    fn below(&self, most: u64) -> u64 {
        self.0.random() % most
    }

    fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }
}

/// Each version of each record that was ever in this store. None came twice, none after a newer one.
async fn versions(url: &str, why: &str) -> BTreeSet<(String, String)> {
    let etcd = support::etcd().await;
    let prefix = prefix_of(url);
    let end = etcd.ctl(&["put", &format!("{prefix}end of history"), "x", "--write-out=json"]);
    let end: Value = serde_json::from_str(&end).unwrap();
    let mut all = BTreeSet::new();
    let mut newest: BTreeMap<String, String> = BTreeMap::new();
    for ((key, at), value) in etcd.history(&prefix, end["header"]["revision"].as_i64().unwrap()) {
        let value = value.unwrap_or_else(|| panic!("{why}: {key} was deleted at {at}"));
        let key = key.trim_start_matches(&prefix).to_owned();
        if let Some(before) = newest.insert(key.clone(), value.clone()) {
            assert!(before < value, "{why}: {key} was \"{before}\" and then \"{value}\"");
        }
        all.insert((key, value));
    }
    all
}

async fn storm(server: Server) {
    let seed = std::env::var("TRUEUP_STORM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| SystemClock::new().random());
    println!("servers on {server:?}: TRUEUP_STORM_SEED={seed}");
    let storm = Storm::on(server, seed).await;
    let servers = three(&storm.fleet.home, &[]).await;
    *storm.addresses.lock().unwrap() = servers.iter().map(|server| server.address.clone()).collect();
    let ((mut servers, mut waits), rounds, one, two) =
        tokio::join!(storm.rage(servers), storm.change(), storm.ask(2, BY_HAND[0]), storm.ask(3, BY_HAND[1]));
    let stopped = storm.calm(&mut servers).await;
    storm.check(&stopped).await;
    waits.sort_by(f64::total_cmp);
    println!("{rounds} changes; asked for runs (run, busy, not answered): {one:?} {two:?}");
    println!("{server:?}: {} kills; seconds until others took over: {waits:.1?}", 2 * STRIKES);
    println!("it took {:.0} s", storm.clock.elapsed_ms() as f64 / 1_000.0);
    assert!(!waits.is_empty(), "some were killed that held a pipeline (seed {seed})");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_and_random_kills_do_everything_once_on_etcd() {
    storm(Server::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_and_random_kills_do_everything_once_on_postgres() {
    storm(Server::Postgres).await;
}
