//! Starting, ending, standing by.

use std::time::Duration;

use trueup::clock::SystemClock;
use trueup::postgres::{PostgresPlace, Session};

use super::process::Process;
use super::{Stage, TRIES};
use crate::support::eventually;
use crate::support::leash::free_ports;

#[tokio::test(flavor = "multi_thread")]
async fn s23_a_second_instance_stands_by_and_takes_over() {
    let stage = Stage::new("s23").await;
    let (mut writes, mut in_time) = (0, false);
    for round in 0..TRIES {
        let first = Process::start(&stage);
        let epoch = async |wanted: u32| {
            stage.sql_becomes("select epoch from etcd_sync_state", &wanted.to_string()).await;
        };
        epoch(2 * round + 1).await;
        let second = stage.start();
        assert!(eventually(async || second.heard("standby")).await);
        let mut carried = async || {
            writes += 1;
            stage.sql(&format!("select etcd_set('$Pa', '{writes}')")).await;
            let applied = "select count(*) from etcd_wal where status = 'applied'";
            stage.sql_becomes(applied, &writes.to_string()).await;
        };
        carried().await;
        epoch(2 * round + 1).await;
        first.kill();
        carried().await;
        epoch(2 * round + 2).await;
        in_time = stage.last_took_less_than("3 seconds").await;
        second.stop().await;
        if in_time {
            break;
        }
    }
    assert!(in_time);
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_a_dsn_that_is_none_ends_with_2() {
    let (code, said) = Process::start_with("etcd://127.0.0.1:1/x/", "postgres://u:p@:bad/db", "x").ends();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("remedy: Write it as postgres://"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_a_database_without_the_schema_ends_with_2_and_names_init() {
    let stage = Stage::new("s24-schema").await;
    let dsn = stage.postgres.fresh_database();
    let etcd = format!("etcd://{}/s24-schema/", stage.etcd.endpoints());
    let (code, said) = Process::start_with(&etcd, &dsn, "x").ends();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("trueup replica init"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_servers_that_are_down_end_with_5() {
    let stage = Stage::new("s24-down").await;
    let port = free_ports(1)[0];
    let nowhere = format!("postgres://postgres@127.0.0.1:{port}/db");
    let etcd = format!("etcd://{}/s24-down/", stage.etcd.endpoints());
    let (code, said) = Process::start_with(&etcd, &nowhere, "x").ends();
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("remedy: Check that PostgreSQL is up"), "{said}");
    let (code, said) =
        Process::start_with(&format!("etcd://127.0.0.1:{port}/s24-down/"), &stage.dsn, "x").ends();
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("remedy: Check that etcd is up"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_a_role_without_the_grant_ends_with_6() {
    let stage = Stage::with_own_etcd("s24-rbac", 1).await;
    stage.etcd.ask_who_is_there("/s24-rbac/");
    let url = |user: &str, word: &str| format!("etcd://{user}:{word}@{}/s24-rbac/", stage.etcd.endpoints());
    let (code, said) = Process::start_with(&url("weak", "secret"), &stage.dsn, "x").ends();
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("etcdctl role grant-permission") && said.contains("marker"), "{said}");
    let (code, said) = Process::start_with(&url("weak", "wrong"), &stage.dsn, "x").ends();
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("Check the etcd user and password"), "{said}");
    assert!(!said.contains("secret") && !said.contains("wrong"), "no password in {said}");
    let allowed = Process::start_with(&url("root", "secret"), &stage.dsn, "x");
    stage.sql("select etcd_set('$Pa', '1')").await;
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    assert_eq!(allowed.terminate(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_sigterm_drains_and_ends_with_0() {
    let stage = Stage::new("s24-term").await;
    let process = Process::start(&stage);
    stage.sql("select etcd_set('$Pfirst', 'it carries over')").await;
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    stage.sql("select etcd_set('$P' || n, 'v') from generate_series(1, 500) n").await;
    assert_eq!(process.terminate(), 0);
    assert_eq!(stage.sql("select status, count(*) from etcd_wal group by 1").await, "applied|501");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_stops_the_replica_until_a_resync() {
    let mut stage = Stage::with_own_etcd("resync", 1).await;
    stage.put("old", "1").await;
    stage.put("kept", "1").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "2").await;
    running.stop().await;
    stage.sql("select etcd_set('$Plate', 'queued for the old cluster')").await;

    let other = Stage::with_own_etcd("resync", 1).await;
    other.put("kept", "2").await;
    stage.spec.etcd = other.spec.etcd.clone();
    let error = stage.start().fails().await;
    assert!(error.remedy().contains("trueup replica resync resync"), "{error:?}");
    assert_eq!(stage.sql("select count(*) from etcd").await, "2", "nothing was touched");

    let report = stage.replica().resync().await.unwrap();
    assert_eq!((report.replaced, report.archived_rows, report.abandoned_writes), (true, 2, 1));
    assert_eq!(stage.sql("select key, value from etcd_live").await, "/resync/kept|2");
    assert_eq!(stage.sql("select count(*) from etcd_archive").await, "2", "old rows are kept");
    assert_eq!(stage.sql("select status from etcd_wal").await, "conflict");
    let running = stage.start();
    stage.sql("select etcd_set('$Pkept', '3')").await;
    stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", "1").await;
    let busy = stage.replica().resync().await.unwrap_err();
    assert_eq!(busy.kind(), trueup::error::Kind::Busy);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_that_is_ahead_is_noticed_by_a_key_we_hold() {
    let mut stage = Stage::with_own_etcd("restored", 1).await;
    stage.put("a", "ours").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    running.stop().await;
    // A cluster with the same id whose history differs: here the id is made equal by hand.
    let other = Stage::with_own_etcd("restored", 1).await;
    for _ in 0..20 {
        other.put("b", "theirs").await;
    }
    stage.spec.etcd = other.spec.etcd.clone();
    let answer = other.client.range(trueup::etcd::request::key("x")).await.unwrap();
    let id = answer.header.unwrap().cluster_id;
    stage.sql(&format!("update etcd_sync_state set cluster_id = '{id:x}'")).await;
    let error = stage.start().fails().await;
    assert!(error.to_string().contains("/restored/a was not what we saw"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_finds_drift_and_heals_it() {
    let stage = Stage::new("audit").await;
    for name in ["a", "b", "c"] {
        stage.put(name, "1").await;
    }
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "3").await;
    let clean = stage.replica().audit(false).await.unwrap();
    assert!(clean.drift.is_empty());
    assert_eq!((clean.etcd_keys, &clean.etcd_hash), (3, &clean.postgres_hash));
    stage.sql("delete from etcd where key = '$Pa'; insert into etcd (key, value, revision) values ('$Pghost', 'x', 1)").await;
    let found = stage.replica().audit(false).await.unwrap();
    let keys: Vec<&str> = found.drift.iter().map(|drift| drift.key.as_str()).collect();
    assert_eq!(keys, ["/audit/a", "/audit/ghost"]);
    assert_ne!(found.etcd_hash, found.postgres_hash);
    assert_eq!(stage.replica().audit(true).await.unwrap().healed, 2);
    assert!(stage.replica().audit(false).await.unwrap().drift.is_empty());
    stage.live_sets_equal().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_contradicts_history_stops_everything_and_overwrites_nothing() {
    let stage = Stage::with_own_etcd("corrupt", 1).await;
    let running = stage.start();
    let revision = stage.put("a", "1").await;
    stage.sql_becomes("select count(*) from etcd", "1").await;
    let next = stage.sql(&format!("insert into etcd (key, value, revision) select '$Pb', 'forged', {revision} + n from generate_series(1, 200) n returning 1")).await;
    assert!(next.starts_with('1'));
    stage.put("b", "true").await;
    let error = running.fails().await;
    assert_eq!(error.kind(), trueup::error::Kind::Corrupt);
    assert!(error.remedy().contains("resync"), "{error:?}");
    assert_eq!(stage.sql("select distinct value from etcd where key = '$Pb'").await, "forged");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_how_it_is_doing() {
    let stage = Stage::new("status").await;
    let before = stage.replica().status().await.unwrap();
    assert!(!before.running && before.applied_revision == 0 && before.lag_seconds.is_none());
    stage.sql("select etcd_set('$Pa', '1'), etcd_set('/nowhere/x', '1')").await;
    assert_eq!(stage.replica().status().await.unwrap().pending, 1);
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd_wal where status = 'pending'", "0").await;
    let status = stage.replica().status().await.unwrap();
    assert!(status.running && status.lag_seconds.unwrap() < 60.0);
    assert_eq!((status.pending, status.failed, status.conflicts), (0, 1, 0));
    running.stop().await;
    assert!(!stage.replica().status().await.unwrap().running);
}

#[tokio::test(flavor = "multi_thread")]
async fn init_is_idempotent_and_refuses_overlapping_prefixes() {
    let mut stage = Stage::new("init").await;
    let again = stage.replica().init().await.unwrap();
    assert!(again.installed.is_empty() && again.schema_version == 6);
    stage.spec.etcd.prefix = "/init/inner/".to_owned();
    let error = stage.replica().init().await.unwrap_err();
    assert!(error.to_string().contains("overlap"), "{error}");
    stage.spec.schema = "Other \"one\"".to_owned();
    assert_eq!(stage.replica().init().await.unwrap().installed.len(), 6);
    stage.sql("select \"Other \"\"one\"\"\".etcd_set('/init/inner/a', '1')").await;
    let running = stage.start();
    stage.sql_becomes("select status from \"Other \"\"one\"\"\".etcd_wal", "applied").await;
    running.stop().await;
}

/// A database that an older trueup left: what it holds stays, what is queued arrives.
#[tokio::test(flavor = "multi_thread")]
async fn init_upgrades_an_older_schema_and_refuses_a_newer_one() {
    let mut stage = Stage::new("upgrade").await;
    stage.sql("create schema older").await;
    stage
        .sql("create table older.etcd_schema_version (version int primary key, name text not null, installed_at timestamptz not null default now())")
        .await;
    let before = [
        include_str!("../../../src/replica/schema/0001_tables.sql"),
        include_str!("../../../src/replica/schema/0002_functions.sql"),
        include_str!("../../../src/replica/schema/0003_views.sql"),
    ];
    let session = Session::open(&PostgresPlace::parse(&stage.dsn).unwrap(), None).await.unwrap();
    for text in before {
        session.batch_execute(&text.replace("{schema}", "older")).await.unwrap();
    }
    stage.sql("insert into older.etcd_schema_version (version, name) select n, 'as it was' from generate_series(1, 3) n").await;
    stage
        .sql("insert into older.etcd_sync_state (prefix, slot_revision, epoch) values ('/elsewhere/', 7, 3)")
        .await;
    stage.sql("select older.etcd_set('$Pa', 'queued before')").await;

    stage.spec.schema = "older".to_owned();
    assert_eq!(stage.replica().init().await.unwrap().installed, ["0004_drain", "0005_nonce", "0006_live"]);
    let moved = "select slot_revision, epoch from older.etcd_drain_state where prefix = '/elsewhere/'";
    assert_eq!(stage.sql(moved).await, "7|3");
    let running = stage.start();
    stage.sql_becomes("select status from older.etcd_wal", "applied").await;
    assert_eq!(stage.get_text("a").await.as_deref(), Some("queued before"));
    running.stop().await;

    stage.sql("insert into older.etcd_schema_version (version, name) values (99, 'of tomorrow')").await;
    let error = stage.replica().init().await.unwrap_err();
    assert!(error.to_string().contains("version 99") && error.remedy().contains("newer trueup"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_never_takes_the_newest_row_of_a_key() {
    let mut stage = Stage::new("keep").await;
    let running = stage.started().await;
    for value in ["1", "2", "3"] {
        stage.put("a", value).await;
    }
    stage.put("gone", "1").await;
    stage.delete("gone").await;
    stage.sql("select etcd_set('$Pb', '1')").await;
    stage.sql_becomes("select count(*) from etcd", "6").await;
    running.stop().await;
    stage.sql("select etcd_set('$Pc', 'not yet')").await;
    stage.spec.keep_history = Some(std::time::Duration::ZERO);
    stage.spec.keep_wal = Some(std::time::Duration::ZERO);
    stage.replica().prune_now().await.unwrap();
    assert_eq!(
        stage.sql("select key, value from etcd order by key").await,
        "/keep/a|3\n/keep/b|1\n/keep/gone|"
    );
    assert_eq!(stage.sql("select key, status from etcd_wal").await, "/keep/c|pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_no_longer_leads_decides_nothing() {
    let stage = Stage::new("fenced").await;
    let running = stage.draining().await;
    // As if another had taken over while this one was away.
    stage.sql("update etcd_drain_state set epoch = epoch + 1").await;
    stage.sql("insert into etcd_wal (key, value, operation) values ('/elsewhere', 'x', 'put')").await;
    stage.sql_becomes("select status from etcd_wal", "failed").await;
    assert!(running.heard("another instance has taken over"), "it noticed before it decided");
    // Failed once, by the one that leads now, and said with it.
    assert_eq!(stage.sql("select count(*) from etcd_events where kind = 'failed'").await, "1");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_watch_stays_open() {
    let stage = Stage::with_own_etcd("idle", 1).await;
    let running = stage.started().await;
    // etcd looks at how often it is asked whether it is there: a client that asks too often is cut off every 12 s.
    SystemClock::new().sleep(Duration::from_secs(30)).await;
    let reopened = running.notes.lock().unwrap().iter().filter(|note| note.starts_with("watch: ")).count();
    assert!(reopened < 2, "{:?}", running.notes.lock().unwrap());
    running.stop().await;
}
