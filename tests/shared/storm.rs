//! Three processes at once, again and again, some of them killed: at the end the store is as the source, and nothing
//! was done twice that anybody could see. etcd counts the writes of every key, which is the witness.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trueup::clock::{SharedClock, SystemClock, TestClock};
use trueup::state::keys;

use super::processes::{Fleet, fill, runs};
use super::servers::{holders, stop};
use super::{Server, fresh_prefix, fresh_state};
use crate::server::rig::Serving;
use crate::support::{self, eventually};

const RECORDS: usize = 1_500;
const STORM: Duration = Duration::from_secs(28);
/// On a machine with much else to do it goes on until somebody was killed at work, but not for ever.
const STORM_MAX: Duration = Duration::from_secs(120);
/// A run with nothing to do takes about as long, and is no measure of one that has.
const SHORTEST_WAY_MS: u64 = 200;
/// Records that change once, a few at a time, while the storm lasts: there is always work to be killed in.
const CHANGED: usize = 1_000;
const ROUNDS: usize = 40;

/// One machine: sync, over and over; about every second one is killed on the way.
async fn machine(fleet: &Fleet, chance: SharedClock, clock: SharedClock) -> (u32, u32) {
    let (mut runs, mut kills) = (0, 0);
    // Somewhere on the way, however long the way is on this machine now.
    let mut way = 1_500;
    while goes_on(fleet, &clock).await {
        let mut child = fleet.home.start(&["sync", "--quiet", "--json"]);
        // Nobody reads what it says: it must not wait for that.
        drop((child.stdout.take(), child.stderr.take()));
        runs += 1;
        let doomed = chance.random() % 2 == 0;
        let begun = clock.elapsed_ms();
        let patience = begun + if doomed { 20 + chance.random() % way } else { 25_000 };
        while child.try_wait().unwrap().is_none() {
            if clock.elapsed_ms() > patience {
                child.kill().unwrap();
                kills += 1;
            }
            clock.sleep(Duration::from_millis(10)).await;
        }
        if !doomed {
            way = (clock.elapsed_ms() - begun).max(SHORTEST_WAY_MS);
        }
    }
    (runs, kills)
}

async fn goes_on(fleet: &Fleet, clock: &SharedClock) -> bool {
    let so_far = Duration::from_millis(clock.elapsed_ms());
    so_far < STORM || (so_far < STORM_MAX && killed_at_work(fleet).await == 0)
}

async fn killed_at_work(fleet: &Fleet) -> usize {
    runs(&fleet.look().await).await.iter().filter(|run| run.interrupted).count()
}

/// Where in etcd the keys of a store are.
pub fn prefix_of(url: &str) -> String {
    format!("/{}", url.trim_start_matches("etcd://").split_once('/').unwrap().1)
}

/// How often each key below a prefix was written, as etcd counts.
async fn writes(url: &str) -> BTreeMap<String, i64> {
    let etcd = support::etcd().await;
    let prefix = prefix_of(url);
    let answer = etcd.ctl(&["get", &prefix, "--prefix", "--keys-only", "--write-out=json"]);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let kvs = answer["kvs"].as_array().cloned().unwrap_or_default();
    let line = |kv: serde_json::Value| {
        let key = String::from_utf8(STANDARD.decode(kv["key"].as_str().unwrap()).unwrap()).unwrap();
        (key.trim_start_matches(&prefix).to_owned(), kv["version"].as_i64().unwrap())
    };
    kvs.into_iter().map(line).collect()
}

async fn storm(server: Server) {
    let real = SystemClock::new();
    let seed = real.random();
    println!("storm on {server:?}: seed {seed}");
    let copies = fresh_prefix().await;
    let then = format!("batch = 3\nthen = [{{ export = \"{copies}\" }}]\n");
    let fleet = Fleet::new(&fresh_state(server).await, &then).await;
    fill(fleet.origin(), RECORDS, |number| format!("one {number}")).await;
    let chance = |number| -> SharedClock { TestClock::at("2026-01-01T00:00:00Z", seed ^ number) };
    let change = async {
        for round in 1..=ROUNDS {
            real.sleep(STORM / 50).await;
            let so_far = CHANGED * round / ROUNDS;
            fill(fleet.origin(), so_far, |number| format!("two {number}")).await;
        }
    };
    let (one, two, three, ()) = tokio::join!(
        machine(&fleet, chance(1), real.clone()),
        machine(&fleet, chance(2), real.clone()),
        machine(&fleet, chance(3), real.clone()),
        change,
    );
    println!("runs and kills: {one:?} {two:?} {three:?}");
    // Two passes: what the last killed one left, then its follow-ups.
    for _ in 0..2 {
        let end = || fleet.home.run(&["sync", "--json"]);
        let ran = (0..5).map(|_| end()).find(|ran| ran.code != 7).expect("nobody is at work any more");
        ran.ends(0);
    }
    fleet.in_step().await;
    let exported = super::open_store(&copies).await;
    assert!(
        crate::flow::rig::contents(&exported).await == fleet.lines[0].wanted().await,
        "every change was exported"
    );
    for counted in [writes(&target_of(&fleet)).await, writes(&copies).await] {
        assert_eq!(counted.len(), RECORDS);
        for (key, count) in counted {
            let number: usize = key.rsplit('/').next().unwrap().parse().unwrap();
            let most = if number < CHANGED { 2 } else { 1 };
            assert!(count <= most, "{key} was written {count} times (seed {seed})");
        }
    }
    cleared_away(&fleet).await;
    at_rest(&fleet).await;
    let cut = killed_at_work(&fleet).await;
    println!("{cut} runs were killed on the way (seed {seed})");
    assert!(cut > 0, "some were killed at work (seed {seed})");
}

/// What a worker left that died between two pieces of work is in nobody's way; whoever serves clears it away.
async fn cleared_away(fleet: &Fleet) {
    let state = fleet.look().await;
    let mut servers = [Serving::of(&fleet.home).await];
    let cleared = eventually(async || state.keys(keys::LEASES).await.unwrap().is_empty()).await;
    assert!(cleared, "{:?}", holders(&state).await);
    stop(&mut servers).await;
}

fn target_of(fleet: &Fleet) -> String {
    fleet.lines[0].target.name().to_owned()
}

/// No task, no letter, no lease, no open batch; source, state and store agree.
pub async fn at_rest(fleet: &Fleet) {
    let state = fleet.look().await;
    for prefix in ["queue/", "dead/", "open/", "lease/"] {
        assert!(state.keys(prefix).await.unwrap().is_empty(), "nothing is left below {prefix}");
    }
    fleet.home.run(&["audit", "--json"]).ends(0);
    let fences = state.keys("fence/").await.unwrap();
    let known = |key: &str| fleet.lines.iter().any(|line| key == keys::fence(&line.name));
    assert!(fences.iter().all(|key| known(key) || key.contains("worker-")), "{fences:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_and_random_kills_do_everything_once_on_etcd() {
    storm(Server::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_and_random_kills_do_everything_once_on_postgres() {
    storm(Server::Postgres).await;
}
