//! A side that went back. PostgreSQL, restored from an older backup or failed over to a standby that lost its last
//! commits: numbers of the queue come again, and what was written under them before must not pass for what is queued now.
//! etcd: a backup keeps its ids and may be ahead of the mirror again, but its history is another.

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

/// One key both histories have, and a backup of etcd of that moment. The replica is stopped.
async fn backed_up(name: &str) -> Stage {
    let stage = Stage::with_own_etcd(name, 1).await;
    stage.put("a", "1").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    running.stop().await;
    stage.etcd.back_up().await;
    stage
}

/// What is mirrored after the backup and gone with it, a delete last. Its revision.
async fn mirrored_since(stage: &Stage) -> i64 {
    let running = stage.start();
    stage.put("t", "1").await;
    stage.put("u", "1").await;
    let deleted = stage.delete("t").await;
    stage.sql_becomes("select applied_revision from etcd_sync_state", &deleted.to_string()).await;
    running.stop().await;
    deleted
}

/// etcd is restored, and goes further than the mirror came.
async fn gone_back_and_ahead(stage: &Stage) {
    stage.etcd.restore().await;
    for n in 1..=5 {
        stage.put(&format!("x{n}"), "other").await;
    }
}

async fn asks_for_resync(stage: &Stage, why: &str) {
    let error = stage.start().fails().await;
    assert_eq!(error.kind(), trueup::error::Kind::Corrupt, "{error:?}");
    assert!(error.to_string().contains(why), "{error:?}");
    assert!(error.remedy().contains("trueup replica resync"), "{error:?}");
    assert!(stage.replica().resync().await.unwrap().replaced);
    stage.live_sets_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_although_the_last_change_was_a_delete() {
    let stage = backed_up("etcd-restored").await;
    mirrored_since(&stage).await;
    gone_back_and_ahead(&stage).await;
    asks_for_resync(&stage, "/etcd-restored/t was not what we saw").await;
}

/// What was before the delete is compacted away; that nothing is there says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_by_what_lives_where_its_history_is_compacted() {
    let stage = backed_up("etcd-compacted").await;
    let deleted = mirrored_since(&stage).await;
    gone_back_and_ahead(&stage).await;
    stage.client.compact(deleted).await.unwrap();
    asks_for_resync(&stage, "/etcd-compacted/u was not what we saw").await;
}

/// Nothing below the prefix is lost with it but our own word that a write met another.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_by_our_own_marker() {
    let stage = backed_up("etcd-marker").await;
    let running = stage.start();
    stage.sql("select etcd_set('$Pb', '1')").await;
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    running.stop().await;
    stage.etcd.kill(0);
    stage.etcd.restart(0).await;
    let running = stage.start();
    assert!(crate::support::eventually(async || running.heard("leading")).await, "a restart is no restore");
    running.stop().await;
    // The mirror never heard of it.
    stage.sql("delete from etcd where key = '$Pb'").await;
    let first = "witness_key = '$Pa', live_key = '$Pa', witness_revision = r, live_revision = r, applied_revision = r";
    let of_a = "(select revision as r from etcd where key = '$Pa') a";
    stage.sql(&format!("update etcd_sync_state set {first} from {of_a}")).await;
    let marker = format!(
        "{{\"replica\":\"{}\",\"writes\":[]}}",
        stage.sql("select replica from etcd_sync_state").await
    );
    stage.etcd.restore().await;
    stage.client.put(put(stage.spec.marker.clone(), marker)).await.unwrap();
    stage.sql("update etcd_drain_state set slot_revision = slot_revision + 1").await;
    for n in 1..=5 {
        stage.put(&format!("x{n}"), "other").await;
    }
    asks_for_resync(&stage, "our marker is of revision").await;
}
