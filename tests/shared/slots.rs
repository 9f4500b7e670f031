//! Schedules of three servers that share a state: a slot is one server's, and runs once; if that one dies, another's.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use trueup::state::{State, Status, keys};

use super::processes::{Fleet, fill, runs};
use super::servers::{holders, killed, next_run, stop, three};
use super::{Server, fresh_state};
use crate::server::rig::Serving;
use crate::support::proxy::Proxy;
use crate::support::{self, eventually, until};

/// It came up long ago, and will not again while a test runs.
const YEARLY: &str = "when = \"0 0 1 1 *\"\n";
const LONG_AGO: &str = "2020-06-01T00:00:00Z";
const SLOTS: usize = 6;

async fn fleet(server: Server, names: &[&str], records: usize, settings: &str) -> Fleet {
    fleet_beyond(&support::etcd().await.endpoints(), server, names, records, settings).await
}

/// Whose stores are reached at this address.
async fn fleet_beyond(
    address: &str,
    server: Server,
    names: &[&str],
    records: usize,
    settings: &str,
) -> Fleet {
    let all: Vec<(&str, String)> = names.iter().map(|name| (*name, settings.to_owned())).collect();
    let fleet = Fleet::beyond(address, &fresh_state(server).await, &all).await;
    for line in &fleet.lines {
        fill(&line.origin, records, |number| number.to_string()).await;
    }
    fleet
}

/// Somebody served these pipelines long ago: all of them have missed a slot since.
async fn served_long_ago(fleet: &Fleet) {
    drop(Serving::with(&fleet.home, &["--now", LONG_AGO], &[]).await);
}

/// Every pipeline has run to its end, and every slot is known to have.
async fn all_finished(fleet: &Fleet, state: &State) -> bool {
    let runs = runs(state).await;
    let ended = |name: &str| runs.iter().any(|run| run.pipeline == name && run.status == Status::Ok);
    let slots = state.read_all::<Value>(keys::SLOTS).await.unwrap();
    fleet.lines.iter().all(|line| ended(&line.name)) && slots.iter().all(|(_, slot)| slot["finished"] == true)
}

async fn missed_by_all(server: Server) {
    let names = ["one", "two", "three", "four", "five", "six"];
    let fleet = fleet(server, &names, 5, YEARLY).await;
    served_long_ago(&fleet).await;
    let mut servers = three(&fleet.home, &[]).await;
    let state = fleet.look().await;
    assert!(eventually(async || all_finished(&fleet, &state).await).await);
    stop(&mut servers).await;
    fleet.in_step().await;
    let mut ran: Vec<String> = runs(&state).await.into_iter().map(|run| run.pipeline).collect();
    ran.sort();
    assert_eq!(ran, BTreeSet::from(names).into_iter().collect::<Vec<_>>(), "once each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_three_servers_missed_runs_once_on_etcd() {
    missed_by_all(Server::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_three_servers_missed_runs_once_on_postgres() {
    missed_by_all(Server::Postgres).await;
}

/// What the logs say about a pipeline: the slots somebody took, and how many of them found it running.
fn taken(servers: &[Serving], pipeline: &str) -> (Vec<String>, usize) {
    let said: String = servers.iter().map(Serving::said).collect();
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines: Vec<Value> = lines.filter(|line| line["pipeline"] == pipeline).collect();
    let due = lines.iter().filter(|line| line["message"] == "due");
    let due = due.map(|line| line["slot"].as_str().unwrap().to_owned()).collect();
    let busy = lines.iter().filter(|line| line["message"].as_str().unwrap().starts_with("run not started"));
    (due, busy.count())
}

async fn every_second(server: Server) {
    let names = ["one", "two"];
    let fleet = fleet(server, &names, 3, "when = \"* * * * * *\"\n").await;
    let mut servers = three(&fleet.home, &["--log-format", "json"]).await;
    for name in names {
        until("slots to come up", || taken(&servers, name).0.len() >= SLOTS).await;
        servers[0].post(&format!("/api/pipelines/{name}/pause"), None).await.is(200);
    }
    let state = fleet.look().await;
    assert!(eventually(async || holders(&state).await.is_empty()).await);
    stop(&mut servers).await;
    let runs = runs(&state).await;
    for name in names {
        let (due, busy) = taken(&servers, name);
        let by: Vec<usize> =
            servers.iter().map(|one| taken(std::slice::from_ref(one), name).0.len()).collect();
        println!("{server:?}: {} slots of {name}, taken by {by:?}, {busy} while it ran", due.len());
        let ran = runs.iter().filter(|run| run.pipeline == name && run.trigger == "schedule").count();
        assert_eq!(ran, due.len() - busy, "whoever takes a slot runs it, unless it runs already: {due:?}");
        // One that found the pipeline running may be taken again, to be run.
        let slots: BTreeSet<&String> = due.iter().collect();
        assert!(slots.len() >= due.len() - busy, "a slot ran twice: {due:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_comes_up_on_three_servers_runs_once_on_etcd() {
    every_second(Server::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_comes_up_on_three_servers_runs_once_on_postgres() {
    every_second(Server::Postgres).await;
}

async fn runner_killed(server: Server) {
    let names = ["one", "two", "three"];
    // Too slow to be done before somebody was killed, however long servers take to start.
    let network = Proxy::before(&support::etcd().await.endpoints()).await;
    network.change(|weather| weather.delay = Duration::from_millis(50));
    let fleet = fleet_beyond(network.address(), server, &names, 600, &format!("{YEARLY}batch = 2\n")).await;
    served_long_ago(&fleet).await;
    let mut servers = three(&fleet.home, &[]).await;
    let state = fleet.look().await;
    let target = fleet.lines[0].target.clone();
    let some = async || target.list(trueup::store::Query::keys("")).await.unwrap().items.len() > 30;
    assert!(eventually(some).await, "it writes");
    let holder = holders(&state).await["one"];
    let victim = servers.iter().position(|server| server.id() == holder).unwrap();
    let (orphans, at) = killed(&mut servers[victim], &state).await;
    servers.remove(victim);
    network.clear_up();
    assert!(orphans.contains(&"one".to_owned()), "it was still at work");
    assert!(eventually(async || all_finished(&fleet, &state).await).await);
    stop(&mut servers).await;
    fleet.in_step().await;
    let runs = runs(&state).await;
    for name in &orphans {
        let waited = next_run(&runs, name, at).unwrap().duration_since(at).as_secs_f64();
        println!("{server:?}: another server took up the slot of {name} after {waited:.1} s");
    }
    for name in names {
        let of: Vec<_> = runs.iter().filter(|run| run.pipeline == name).collect();
        let (cut, ended): (Vec<_>, Vec<_>) = of.into_iter().partition(|run| run.interrupted);
        assert_eq!(ended.len(), 1, "{name} ran to its end once: {ended:#?}");
        assert!(cut.len() <= usize::from(orphans.iter().any(|orphan| orphan == name)), "{name}: {cut:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_server_was_killed_is_taken_up_by_another_on_etcd() {
    runner_killed(Server::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_server_was_killed_is_taken_up_by_another_on_postgres() {
    runner_killed(Server::Postgres).await;
}
