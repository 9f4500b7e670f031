//! A DSN with several hosts: whoever can write is used, and losing it is a reconnect.

use trueup::postgres::PostgresPlace;

use super::{Held, Stage};
use crate::support::leash::free_ports;
use crate::support::postgres::query;
use crate::support::proxy::Proxy;
use crate::support::{Postgres, etcd};

/// `host:port` and database of a stage's DSN.
fn parts(stage: &Stage) -> (String, String) {
    let (host, database) = stage.dsn.split_once('@').unwrap().1.split_once('/').unwrap();
    (host.to_owned(), database.to_owned())
}

fn several(hosts: &[&str], database: &str) -> PostgresPlace {
    let hosts = hosts.join(",");
    let dsn = format!("postgres://postgres@{hosts}/{database}?target_session_attrs=read-write");
    PostgresPlace::parse(&dsn).unwrap()
}

async fn carries_both_ways(stage: &Stage, name: &str) {
    stage.put(&format!("in/{name}"), "v").await;
    stage.sql_becomes(&format!("select count(*) from etcd where key = '$Pin/{name}'"), "1").await;
    stage.sql(&format!("select etcd_set('$Pout/{name}', 'v')")).await;
    stage.sql_becomes(&format!("select status from etcd_wal where key = '$Pout/{name}'"), "applied").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_host_that_can_write_is_used() {
    let mut stage = Stage::new("hosts").await;
    let (here, database) = parts(&stage);
    let down = format!("127.0.0.1:{}", free_ports(1)[0]);
    let standby = Postgres::start_with(&["default_transaction_read_only=on"]).await;
    let made = format!("create database {database}");
    query(&format!("{}?options=-c%20default_transaction_read_only%3Doff", standby.dsn("postgres")), &made);
    let read_only = standby.dsn("x").split(['@', '/']).nth(3).unwrap().to_owned();
    stage.spec.postgres = several(&[&down, &read_only, &here], &database);
    let running = stage.started().await;
    carries_both_ways(&stage, "a").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_another_host_is_a_reconnect() {
    let mut stage = Stage::new("failover").await;
    let (here, database) = parts(&stage);
    let (first, second) = (Proxy::before(&here).await, Proxy::before(&here).await);
    stage.spec.postgres = several(&[first.address(), second.address()], &database);
    let running = stage.started().await;
    carries_both_ways(&stage, "before").await;
    second.change(|weather| weather.refuse = true);
    second.cut();
    carries_both_ways(&stage, "on-the-first").await;
    second.change(|weather| weather.refuse = false);
    first.change(|weather| weather.refuse = true);
    first.cut();
    carries_both_ways(&stage, "on-the-second").await;
    // The first one takes connections and says nothing; the second one must be tried all the same.
    first.change(|weather| (weather.refuse, weather.half_open) = (false, true));
    second.cut();
    carries_both_ways(&stage, "past-a-silent-one").await;
    stage.live_sets_equal().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_under_several_hosts_is_a_reconnect() {
    let own = Held::Own(Box::new(Postgres::start().await));
    let mut stage = Stage::on("restart", Held::Shared(etcd().await), own).await;
    let (here, database) = parts(&stage);
    let down = format!("127.0.0.1:{}", free_ports(1)[0]);
    stage.spec.postgres = several(&[&down, &here], &database);
    let running = stage.started().await;
    carries_both_ways(&stage, "before").await;
    stage.postgres.restart().await;
    carries_both_ways(&stage, "after").await;
    assert!(running.heard("reconnect"));
    running.stop().await;
}
