//! Servers, connections and processes that go away at the worst moment.

use std::time::Duration;

use serde_json::json;
use trueup::etcd::request::put;

use super::process::Process;
use super::{Held, Stage, TRIES, through_proxy};
use crate::cli::home::Home;
use crate::support::proxy::Proxy;
use crate::support::{Postgres, etcd, eventually, postgres};

#[tokio::test(flavor = "multi_thread")]
async fn s15_a_lost_listener_costs_at_most_a_poll() {
    let stage = Stage::new("s15").await;
    let running = stage.start();
    stage.sql("select etcd_set('$Pa', '1')").await;
    stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", "1").await;
    let listeners = "select count(pg_terminate_backend(l.pid)) from pg_locks l
                     join pg_stat_activity a using (pid)
                     where l.locktype = 'advisory' and a.datname = current_database()";
    let mut in_time = false;
    for round in 2..2 + TRIES {
        stage.sql_becomes(listeners, "1").await;
        stage.sql(&format!("select etcd_set('$Pb', '{round}')")).await;
        let applied = "select count(*) from etcd_wal where status = 'applied'";
        stage.sql_becomes(applied, &round.to_string()).await;
        // The poll interval is a second.
        in_time = stage.last_took_less_than("1500 milliseconds").await;
        if in_time {
            break;
        }
    }
    assert!(in_time);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_an_etcd_outage_is_waited_out() {
    let stage = Stage::with_own_etcd("s16", 1).await;
    let running = stage.start();
    stage.sql("select etcd_set('$Pfirst', '1')").await;
    stage.sql_becomes("select count(*) from etcd where key = '$Pfirst'", "1").await;
    stage.etcd.kill(0);
    stage.sql("select etcd_set('$P' || n, 'v') from generate_series(1, 20) n").await;
    // More failed attempts than `max_attempts`: waiting out an outage never ends in `failed`.
    stage.sql_becomes("select min(attempts) > 5 from etcd_wal where status = 'pending'", "t").await;
    stage.etcd.restart(0).await;
    stage
        .sql_becomes(
            "select count(*), min(attempts) > 5 from etcd_wal where status = 'applied' and id > 1",
            "20|t",
        )
        .await;
    stage.live_sets_equal().await;
    stage.sql_becomes("select count(*) from etcd", "21").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_kill_inside_a_batch_leaves_nothing_half_done() {
    let stage = Stage::new("s17").await;
    let process = Process::start(&stage);
    stage.sql_becomes("select applied_revision > 0 from etcd_sync_state", "t").await;
    stage.sql("select etcd_set('$Pout/' || n, 'v') from generate_series(1, 1000) n").await;
    for n in 0..300 {
        stage.put(&format!("in/{n}"), "v").await;
    }
    stage.sql_becomes("select count(*) > 0 from etcd_wal where status = 'applied'", "t").await;
    process.kill();
    for n in 300..600 {
        stage.put(&format!("in/{n}"), "v").await;
    }
    let process = Process::start(&stage);
    stage.sql_becomes("select status, count(*) from etcd_wal group by 1", "applied|1000").await;
    stage.live_sets_equal().await;
    let twice = stage.sql("select count(*) from etcd where key like '%/out/%'").await;
    assert_eq!(twice, "1000", "every write happened exactly once");
    assert_eq!(process.terminate(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s25_a_killed_leader_of_three_loses_nothing() {
    let stage = Stage::with_own_etcd("s25", 3).await;
    let running = stage.started().await;
    let leader = stage.etcd.leading().await;
    for n in 0..60 {
        stage.sql(&format!("select etcd_set('$Psql/{n}', 'v')")).await;
        if n == 20 {
            stage.etcd.kill(leader);
        }
        // A put whose answer was lost may have happened; either way both sides must agree on it.
        let _ = stage.client.put(put(stage.key(&format!("etcd/{n}")), "v")).await;
    }
    stage.sql_becomes("select status, count(*) from etcd_wal group by 1", "applied|60").await;
    stage.live_sets_equal().await;
    stage.etcd.restart(leader).await;
    let last = stage.put("last", "v").await;
    stage.sql_becomes("select max(revision) from etcd", &last.to_string()).await;
    stage.live_sets_equal().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_a_restarted_postgres_loses_nothing() {
    let own = Held::Own(Box::new(Postgres::start().await));
    let stage = Stage::on("s26", Held::Shared(etcd().await), own).await;
    let running = stage.started().await;
    let mut queued = 0;
    for n in 0..60 {
        stage.put(&format!("etcd/{n}"), "v").await;
        if stage.try_sql(&format!("select etcd_set('$Psql/{n}', 'v')")).await.is_ok() {
            queued += 1;
        }
        if n == 30 {
            stage.postgres.kill().await;
            stage.put("etcd/while-down", "v").await;
            stage.postgres.restart().await;
        }
    }
    assert!(queued > 50);
    stage.sql_becomes("select count(*) from etcd_wal where status <> 'applied'", "0").await;
    stage.live_sets_equal().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_after_the_write_is_neither_written_twice_nor_a_conflict() {
    let (stage, proxy) = through_proxy("lost-answer").await;
    stage.put("gone", "1").await;
    stage.put("theirs", "1").await;
    let running = stage.draining().await;
    stage.sql_becomes("select count(*) from etcd", "2").await;
    proxy.change(|weather| weather.lose_answers = true);
    let theirs = stage.put("theirs", "2").await;
    stage
        .sql(
            "begin; select etcd_set('$Pa', 'once'); select etcd_delete('$Pgone');
              select etcd_set('$Ptheirs', 'late'); commit",
        )
        .await;
    assert!(eventually(async || stage.get("a").await.is_some()).await, "the request went through");
    // Later writers must not hide what happened.
    stage.put("a", "twice").await;
    stage.put("gone", "again").await;
    proxy.cut_what_lost_answers();
    stage.sql_becomes("select status from etcd_wal order by id", "applied\napplied\nconflict").await;
    let winning = stage.sql("select result_revision from etcd_wal where status = 'conflict'").await;
    assert_eq!(winning, theirs.to_string());
    stage.live_sets_equal().await;
    assert_eq!(stage.get_text("a").await.as_deref(), Some("twice"));
    assert_eq!(stage.sql("select count(*) from etcd_get_all('$Pa')").await, "2");
    assert!(running.heard("recovered"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_noticed_and_replaced() {
    let (stage, proxy) = through_proxy("half-open").await;
    let running = stage.start();
    stage.sql("select etcd_set('$Pa', '1')").await;
    stage.sql_becomes("select count(*) from etcd", "1").await;
    proxy.change(|weather| weather.half_open = true);
    stage.sql("select etcd_set('$Pb', '2')").await;
    stage.sql_becomes("select attempts > 0 from etcd_wal where key = '$Pb'", "t").await;
    proxy.change(|weather| weather.half_open = false);
    stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", "2").await;
    stage.live_sets_equal().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_and_delays_on_the_way_to_postgres_lose_nothing() {
    let mut stage = Stage::new("pg-cuts").await;
    let server = stage.dsn.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
    let proxy = Proxy::before(&server).await;
    let dsn = stage.dsn.replace(&server, proxy.address());
    stage.spec.postgres = trueup::postgres::PostgresPlace::parse(&dsn).unwrap();
    let running = stage.started().await;
    for n in 0..40 {
        stage.put(&format!("in/{n}"), "v").await;
        stage.sql(&format!("select etcd_set('$Pout/{n}', 'v')")).await;
        match n {
            10 | 20 | 25 => proxy.cut(),
            15 => proxy.change(|weather| weather.delay = Duration::from_millis(5)),
            _ => {}
        }
    }
    stage.sql_becomes("select status, count(*) from etcd_wal group by 1", "applied|40").await;
    stage.live_sets_equal().await;
    running.stop().await;
    let _ = postgres().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_what_postgres_knows_while_etcd_is_away() {
    let stage = Stage::with_own_etcd("status-away", 1).await;
    let running = stage.started().await;
    let mirrored = stage.put("a", "1").await;
    stage.sql_becomes("select max(revision) from etcd", &mirrored.to_string()).await;
    running.stop().await;
    stage.sql("select etcd_set('$Pb', '2')").await;
    stage.etcd.kill(0);
    let etcd = format!("etcd://{}{}", stage.etcd.endpoints(), stage.prefix);
    let home = Home::new(&format!("[replicas.away]\netcd = \"{etcd}\"\npostgres = \"{}\"\n", stage.dsn));
    let told = home.run(&["replica", "status", "away", "--json"]).ends(5).json();
    assert_eq!((&told["applied_revision"], &told["pending"]), (&json!(mirrored), &json!(1)));
    assert!(told["etcd_revision"].is_null() && told["lag_revisions"].is_null(), "{told}");
    assert!(told["lag_seconds"].is_number() && told["conflicts"] == 0, "{told}");
    assert_eq!(told["error"]["kind"], "unavailable");
    assert!(told["error"]["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{told}");
    let told = home.run(&["replica", "status", "away"]).ends(5).says(&["etcd"]).out;
    assert!(told.contains("unknown revisions") && told.contains("pending    1"), "{told}");
}
