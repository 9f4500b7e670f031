//! etcd came up without its data: a volume that was not mounted, a folder that was removed. It has the ids it had, and
//! nothing else. Nothing may be written to it, and nothing learnt from it, before a person says so.

use trueup::error::Kind;

use super::{Running, Stage};

/// A replica that has mirrored a few keys, of an etcd that can be emptied by restoring it.
async fn mirrored(name: &str) -> (Stage, Running) {
    let stage = Stage::with_own_etcd(name, 1).await;
    stage.etcd.back_up().await;
    let running = stage.start();
    for n in 1..=3 {
        stage.put(&format!("k{n}"), "v").await;
    }
    stage.sql_becomes("select count(*) from etcd_live", "3").await;
    (stage, running)
}

/// Others go on with it, further than we have seen.
async fn used_by_others(stage: &Stage) -> i64 {
    let mut revision = 0;
    for n in 1..=30 {
        let put = trueup::etcd::request::put(format!("/other/{n}"), "1");
        revision = trueup::etcd::revision_of(stage.client.put(put).await.unwrap().header);
    }
    revision
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_to_an_etcd_that_came_up_empty() {
    let (stage, running) = mirrored("emptied").await;
    stage.etcd.kill(0);
    stage.sql("select etcd_set('$Porder-' || n, 'paid') from generate_series(1, 5) n").await;
    stage.sql("select etcd_set('$Pk1', 'edited')").await;
    stage.etcd.restore().await;
    let error = running.fails().await;
    assert_eq!(error.kind(), Kind::Corrupt, "{error:?}");
    assert!(error.remedy().contains("trueup replica resync"), "{error:?}");
    assert_eq!(stage.sql("select status, count(*) from etcd_wal group by 1").await, "pending|6");
    assert_eq!(stage.get("order-1").await, None);
}

/// What could tell is compacted away, except that our marker was there.
#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_etcd_is_noticed_although_its_history_is_compacted() {
    let (stage, running) = mirrored("emptied-compacted").await;
    running.stop().await;
    stage.etcd.restore().await;
    let revision = used_by_others(&stage).await;
    stage.client.compact(revision).await.unwrap();
    stage.sql("select etcd_set('$Pk1', 'edited')").await;
    let error = stage.start().fails().await;
    assert_eq!(error.kind(), Kind::Corrupt, "{error:?}");
    assert!(error.to_string().contains("our marker is gone"), "{error:?}");
    assert_eq!(stage.sql("select count(*) from etcd_live").await, "3");
    assert_eq!(stage.sql("select status from etcd_wal").await, "pending");
    assert!(stage.replica().resync().await.unwrap().replaced);
    stage.live_sets_equal().await;
}

/// A marker that somebody removed is laid again where what we mirrored is still there.
#[tokio::test(flavor = "multi_thread")]
async fn a_marker_that_was_removed_is_no_other_history() {
    let (stage, running) = mirrored("unmarked").await;
    running.stop().await;
    stage.etcd.ctl(&["del", &stage.spec.marker]);
    stage.sql("select etcd_set('$Pk1', 'edited')").await;
    let running = stage.start();
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_learns_nothing_from_an_etcd_of_another_history() {
    let (stage, running) = mirrored("emptied-audit").await;
    running.stop().await;
    stage.etcd.restore().await;
    used_by_others(&stage).await;
    for repair in [false, true] {
        let error = stage.replica().audit(repair).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error:?}");
    }
    assert_eq!(stage.sql("select count(*) from etcd_live").await, "3");
}

/// Rows of revisions that never were hide what etcd has. Nobody but a person can have written them.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_etcd_never_had_are_drift_until_a_resync() {
    let (stage, running) = mirrored("ghosts").await;
    running.stop().await;
    let rows = "('$Pghost', 'x', 999999, false), ('$Pk1', null, 999998, true)";
    stage.sql(&format!("insert into etcd(key, value, revision, tombstone) values {rows}")).await;
    let report = stage.replica().audit(false).await.unwrap();
    let keys: Vec<&str> = report.drift.iter().map(|it| it.key.as_str()).collect();
    assert_eq!((keys, report.healed), (vec!["/ghosts/ghost", "/ghosts/k1"], 0));
    let error = stage.replica().audit(true).await.unwrap_err();
    assert!(error.remedy().contains("trueup replica resync"), "{error:?}");
    let resync = stage.replica().resync().await.unwrap();
    assert!(!resync.replaced && resync.archived_rows > 0, "{resync:?}");
    stage.live_sets_equal().await;
    assert!(stage.replica().audit(false).await.unwrap().drift.is_empty());
}
