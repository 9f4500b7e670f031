//! etcd has compacted what would show whether it is the one we know: a backup that went further than we came has our marker
//! and the ids it had. A snapshot tells, and nothing is written before it has.

use trueup::error::Kind;

use super::{Running, Stage};
use crate::support::proxy::Proxy;

/// Keys both histories have, mirrored, and a backup of etcd of that moment. The replica is stopped.
async fn backed_up(name: &str) -> Stage {
    let stage = Stage::with_own_etcd(name, 1).await;
    for key in ["x", "y", "z"] {
        stage.put(key, "old").await;
    }
    let running = stage.draining().await;
    stage.sql_becomes("select count(*) from etcd", "3").await;
    running.stop().await;
    stage.etcd.back_up().await;
    stage
}

/// What is mirrored after the backup and gone with it. The revision of the first of it.
async fn mirrored_since(stage: &Stage) -> i64 {
    let first = stage.put("y", "lost").await;
    stage.delete("z").await;
    let last = stage.put("x", "lost").await;
    stage.sql_becomes("select applied_revision from etcd_sync_state", &last.to_string()).await;
    first
}

/// etcd goes further than the mirror came, by writes to the key that was seen last, and forgets everything before.
async fn gone_ahead_and_compacted(stage: &Stage) {
    let mut last = 0;
    for n in 1..=5 {
        last = stage.put("x", n.to_string()).await;
    }
    stage.client.compact(last).await.unwrap();
}

async fn stops_and_asks_for_resync(stage: &Stage, running: Running, why: &str) {
    let rows = "select string_agg(concat(key, revision, value), ' ' order by key, revision) from etcd";
    let before = stage.sql(rows).await;
    let error = running.fails().await;
    assert_eq!(error.kind(), Kind::Corrupt, "{error:?}");
    assert!(error.to_string().contains("has another history"), "{error:?}");
    assert!(error.to_string().contains(why), "{error:?}");
    assert!(error.remedy().contains("trueup replica resync"), "{error:?}");
    assert_eq!(stage.sql(rows).await, before);
    assert_eq!(stage.sql("select status, count(*) from etcd_wal group by 1").await, "pending|1");
    let report = stage.replica().resync().await.unwrap();
    assert_eq!((report.replaced, report.abandoned_writes), (true, 1), "{report:?}");
    stage.live_sets_equal().await;
    let running = stage.start();
    stage.sql("select etcd_set('$Pnext', '1')").await;
    stage.sql_becomes("select status from etcd_wal where key = '$Pnext'", "applied").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_by_what_is_older_than_we_saw_it() {
    let stage = backed_up("older").await;
    let running = stage.start();
    mirrored_since(&stage).await;
    running.stop().await;
    stage.sql("select etcd_set('$Py', 'from sql')").await;
    stage.etcd.restore().await;
    gone_ahead_and_compacted(&stage).await;
    stops_and_asks_for_resync(&stage, stage.start(), "/older/y was last changed at revision").await;
    assert_eq!(stage.get_text("y").await.as_deref(), Some("old"));
}

/// The write was queued on a revision that another value has by now.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_by_another_value_of_the_same_revision() {
    let stage = backed_up("same").await;
    let running = stage.start();
    let lost = mirrored_since(&stage).await;
    running.stop().await;
    stage.sql("select etcd_set('$Py', 'from sql')").await;
    stage.etcd.restore().await;
    assert_eq!(stage.put("y", "precious").await, lost);
    gone_ahead_and_compacted(&stage).await;
    stops_and_asks_for_resync(&stage, stage.start(), "/same/y has other content at revision").await;
    assert_eq!(stage.get_text("y").await.as_deref(), Some("precious"));
}

/// All we saw is overwritten; what nobody showed us is older than our checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_by_what_we_should_have_seen() {
    let stage = backed_up("unseen").await;
    let running = stage.start();
    for n in 1..=3 {
        let last = stage.put("x", format!("lost {n}")).await;
        stage.sql_becomes("select applied_revision from etcd_sync_state", &last.to_string()).await;
    }
    running.stop().await;
    stage.sql("select etcd_set('$Px', 'from sql')").await;
    stage.etcd.restore().await;
    stage.put("new", "1").await;
    gone_ahead_and_compacted(&stage).await;
    stops_and_asks_for_resync(&stage, stage.start(), "/unseen/new was last changed at revision").await;
}

/// The replica runs on while etcd is exchanged: writes wait for it, and are tried as soon as it answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_by_a_replica_that_never_stopped() {
    let mut stage = backed_up("running").await;
    let proxy = Proxy::before(&stage.etcd.endpoints()).await;
    stage.spec.etcd.endpoints = vec![proxy.address().to_owned()];
    let running = stage.draining().await;
    let lost = mirrored_since(&stage).await;
    proxy.change(|weather| weather.refuse = true);
    proxy.cut();
    stage.sql("select etcd_set('$Py', 'from sql')").await;
    stage.etcd.restore().await;
    assert_eq!(stage.put("y", "precious").await, lost);
    gone_ahead_and_compacted(&stage).await;
    proxy.clear_up();
    stops_and_asks_for_resync(&stage, running, "/running/y has other content at revision").await;
    assert_eq!(stage.get_text("y").await.as_deref(), Some("precious"));
}

/// Whatever happened to a key while nobody looked, it is the etcd we know.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_compacted_unseen_is_no_other_history() {
    let stage = Stage::with_own_etcd("honest", 1).await;
    let names = ["changed", "deleted", "again", "dead", "reborn", "kept", "unseen"];
    for name in names {
        stage.put(name, "1").await;
    }
    let running = stage.start();
    stage.delete("dead").await;
    let seen = stage.delete("reborn").await;
    stage.sql_becomes("select applied_revision from etcd_sync_state", &seen.to_string()).await;
    running.stop().await;
    stage
        .sql("select etcd_set('$P' || name, 'from sql') from unnest('{kept,changed,deleted}'::text[]) name")
        .await;
    stage.put("changed", "2").await;
    stage.delete("deleted").await;
    stage.delete("again").await;
    for name in ["again", "reborn", "new"] {
        stage.put(name, "2").await;
    }
    let last = stage.delete("unseen").await;
    stage.client.compact(last).await.unwrap();
    let running = stage.start();
    stage
        .sql_becomes("select string_agg(status, ' ' order by id) from etcd_wal", "applied conflict conflict")
        .await;
    stage.live_sets_equal().await;
    running.stop().await;
    assert!(stage.replica().audit(false).await.unwrap().is_clean());
    let report = stage.replica().resync().await.unwrap();
    assert_eq!((report.replaced, report.archived_rows), (false, 0), "{report:?}");
}
