//! Audits after etcd has compacted past the checkpoint, as it does by itself in a busy cluster whose prefix is quiet.

use trueup::etcd::request::put;
use trueup::etcd::revision_of;
use trueup::postgres::{PostgresPlace, Session};
use trueup::replica::Drift;

use super::Stage;

/// Others write elsewhere, and all before that is compacted.
async fn compacted_by_others(stage: &Stage) {
    let answer = stage.client.put(put("/other/1", "x")).await.unwrap();
    stage.client.compact(revision_of(answer.header)).await.unwrap();
}

fn keys(drift: &[Drift]) -> Vec<&str> {
    drift.iter().map(|it| it.key.as_str()).collect()
}

/// A replica that has seen a key die.
async fn with_a_dead_key(name: &str) -> (Stage, super::Running) {
    let stage = Stage::with_own_etcd(name, 1).await;
    let running = stage.started().await;
    for name in ["live", "dead"] {
        stage.put(name, "1").await;
    }
    stage.delete("dead").await;
    stage.sql_becomes("select count(*) from etcd", "3").await;
    (stage, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_key_that_the_mirror_shows_is_drift_also_past_a_compaction() {
    let (stage, running) = with_a_dead_key("audit-dead").await;
    stage.sql("delete from etcd where key = '$Pdead' and tombstone").await;
    compacted_by_others(&stage).await;
    let found = stage.replica().audit(false).await.unwrap();
    assert_eq!((keys(&found.drift), found.unproven.len()), (vec!["/audit-dead/dead"], 0));
    assert!(!found.is_clean());
    let healed = stage.replica().audit(true).await.unwrap();
    assert!(healed.healed == 1 && healed.is_clean(), "{healed:?}");
    assert_eq!(stage.sql("select key from etcd_live").await, "/audit-dead/live");
    let clean = stage.replica().audit(false).await.unwrap();
    assert!(clean.is_clean() && clean.etcd_hash == clean.postgres_hash, "{clean:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_brings_is_unproven_past_a_compaction_until_the_replica_has_caught_up() {
    let (stage, running) = with_a_dead_key("audit-behind").await;
    running.stop().await;
    stage.delete("live").await;
    stage.put("new", "1").await;
    compacted_by_others(&stage).await;
    for repair in [false, true] {
        let found = stage.replica().audit(repair).await.unwrap();
        assert_eq!(keys(&found.unproven), ["/audit-behind/live", "/audit-behind/new"]);
        assert!(found.drift.is_empty() && !found.is_clean(), "{found:?}");
    }
    let running = stage.start();
    stage.live_sets_equal().await;
    assert!(stage.replica().audit(false).await.unwrap().is_clean());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_its_way_is_waited_for_and_is_no_drift() {
    let (stage, running) = with_a_dead_key("audit-coming").await;
    let lock = Session::open(&PostgresPlace::parse(&stage.dsn).unwrap(), None).await.unwrap();
    lock.batch_execute("BEGIN; SELECT * FROM etcd_sync_state FOR UPDATE").await.unwrap();
    stage.delete("live").await;
    stage.put("new", "1").await;
    compacted_by_others(&stage).await;
    let replica = stage.replica();
    let audit = tokio::spawn(async move { replica.audit(false).await });
    let waits = "select count(*) from pg_stat_activity where datname = current_database()
                 and pid <> pg_backend_pid() and query like '%key = ANY($1) AND revision <= $2%'";
    stage.sql_becomes(waits, "1").await;
    lock.batch_execute("ROLLBACK").await.unwrap();
    let found = audit.await.unwrap().unwrap();
    assert!(found.is_clean() && found.etcd_hash == found.postgres_hash, "{found:?}");
    running.stop().await;
}
