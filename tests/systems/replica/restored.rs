//! A side that went back: PostgreSQL restored from an older backup, or failed over to a standby that lost its last
//! commits. Numbers of the queue come again; what was written under them before must not pass for what is queued now.

use trueup::etcd::TxnRequest;
use trueup::etcd::request::put;
use trueup::etcd::revision_of;
use trueup::postgres::PostgresPlace;

use super::Stage;
use crate::support::postgres::query;

/// The database as it is now, under another name.
fn backup_of(stage: &Stage) -> String {
    drop(stage.sql.lock().unwrap().take());
    let (server, name) = stage.dsn.rsplit_once('/').unwrap();
    let (server, copy) = (format!("{server}/postgres"), format!("{name}_backup"));
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname";
    query(&server, &format!("{end} = '{name}'"));
    query(&server, &format!("create database {copy} template {name}"));
    stage.postgres.dsn(&copy)
}

fn restore(stage: &mut Stage, backup: String) {
    drop(stage.sql.lock().unwrap().take());
    stage.spec.postgres = PostgresPlace::parse(&backup).unwrap();
    stage.dsn = backup;
}

const BY_STATUS: &str = "select left(key, -2), status, count(*) from etcd_wal group by 1, 2 order by 1, 2";

#[tokio::test(flavor = "multi_thread")]
async fn writes_queued_after_a_restore_are_not_taken_for_those_that_had_their_numbers() {
    let mut stage = Stage::new("pg-restored").await;
    stage.started().await.stop().await;
    stage.sql("select etcd_set('$Pkept', 'queued before the backup')").await;
    let backup = backup_of(&stage);
    stage.sql("select etcd_set('$Pw' || n, 'first ' || n) from generate_series(10, 29) n").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", "21").await;
    running.stop().await;
    let carried = stage.get("kept").await.unwrap().mod_revision;

    restore(&mut stage, backup);
    stage.sql("select etcd_set('$Pw' || n, 'second ' || n) from generate_series(10, 19) n").await;
    stage.sql("select etcd_set('$Py' || n, 'second ' || n) from generate_series(20, 29) n").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd_wal where status = 'pending'", "0").await;
    let wanted = "/pg-restored/ke|applied|1\n/pg-restored/w|conflict|10\n/pg-restored/y|applied|10";
    assert_eq!(stage.sql(BY_STATUS).await, wanted, "this database knew nothing of the keys w");
    assert_eq!(stage.get_text("w10").await.as_deref(), Some("first 10"));
    assert_eq!(stage.get_text("y20").await.as_deref(), Some("second 20"));
    let winning = "select distinct result_revision from etcd_wal where status = 'conflict'";
    assert_eq!(stage.sql(winning).await, stage.get("w10").await.unwrap().mod_revision.to_string());
    // The one write both have in common was carried once, and is known to have been.
    let kept = "select result_revision from etcd_wal where key = '$Pkept'";
    assert_eq!(stage.sql(kept).await, carried.to_string());
    assert_eq!(stage.get("kept").await.unwrap().version, 1);
    stage.live_sets_equal().await;
    running.stop().await;
}

/// An older trueup died after etcd's commit; the writes it carried have no nonce, and neither has its marker.
#[tokio::test(flavor = "multi_thread")]
async fn a_marker_of_an_older_trueup_counts_for_writes_queued_before_the_upgrade() {
    let stage = Stage::new("old-marker").await;
    stage.started().await.stop().await;
    stage.sql("select etcd_set('$Pa', 'carried'), etcd_set('$Pb', 'queued since')").await;
    stage.sql("update etcd_wal set nonce = null where key = '$Pa'").await;
    let replica = stage.sql("select replica from etcd_sync_state").await;
    let ids = stage.sql("select string_agg(format('[%s,0,0]', id), ',' order by id) from etcd_wal").await;
    let marker = format!("{{\"replica\":\"{replica}\",\"writes\":[{ids}]}}");
    let success = vec![put(stage.key("a"), "carried").into(), put(stage.spec.marker.clone(), marker).into()];
    let answer = stage.client.txn(TxnRequest { success, ..TxnRequest::default() }).await.unwrap();
    let carried = revision_of(answer.header);
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", "2").await;
    let of_a = "select result_revision from etcd_wal where key = '$Pa'";
    assert_eq!(stage.sql(of_a).await, carried.to_string());
    assert_eq!(stage.get("a").await.unwrap().version, 1, "not written again");
    assert_eq!(stage.get_text("b").await.as_deref(), Some("queued since"));
    running.stop().await;
}
