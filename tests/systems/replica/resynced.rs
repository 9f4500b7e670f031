//! A resync where etcd is the one we know: somebody wrote to the mirror, and nothing else is wrong.

use super::Stage;
use super::in_flight::{Blocked, SETTLING, arrives};
use super::process::Process;

/// What a person wrote into the mirror, of a revision that never was.
const GHOST: &str = "insert into etcd(key, value, revision) values ('$Pghost', 'boo', 99999999)";

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_write_outlives_a_resync_of_the_same_etcd() {
    let stage = Stage::new("resync-queued").await;
    stage.put("a", "1").await;
    let running = stage.started().await;
    stage.sql_becomes("select count(*) from etcd", "1").await;
    running.stop().await;
    stage.sql("select etcd_set('$Pq', 'must not be lost')").await;
    stage.sql(GHOST).await;
    let report = stage.replica().resync().await.unwrap();
    assert_eq!((report.replaced, report.archived_rows, report.abandoned_writes), (false, 1, 0));
    assert_eq!(stage.sql("select key from etcd_archive").await, "/resync-queued/ghost");
    assert_eq!(stage.sql("select status from etcd_wal").await, "pending");
    let running = stage.start();
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    assert_eq!(stage.get_text("q").await.as_deref(), Some("must not be lost"));
    stage.live_sets_equal().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_in_etcd_already_is_found_there_after_a_resync() {
    let stage = Stage::new("resync-carried").await;
    stage.put("a", "1").await;
    let process = Process::start(&stage);
    stage.sql_becomes("select count(*) from etcd", "1").await;
    let blocked = Blocked::new(&stage).await;
    stage.sql("select etcd_set('$Pq', 'once')").await;
    arrives(&stage, "q", "once").await;
    blocked.is_waited_for(&stage).await;
    process.kill();
    // Its last statement must not be carried out after all.
    stage.sql_becomes(SETTLING, "0").await;
    blocked.release().await;
    stage.sql(GHOST).await;
    let report = stage.replica().resync().await.unwrap();
    assert_eq!((report.replaced, report.abandoned_writes), (false, 0));
    assert_eq!(stage.sql("select status from etcd_wal").await, "pending");
    let running = stage.start();
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    assert_eq!(stage.get("q").await.unwrap().version, 1, "it was carried over once");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_etcd_contradicts_is_moved_aside() {
    let stage = Stage::new("resync-forged").await;
    for (name, value) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1"), ("gone", "1")] {
        stage.put(name, value).await;
    }
    stage.delete("gone").await;
    let running = stage.start();
    stage.live_sets_equal().await;
    stage.put("a", "3").await;
    let last = stage.put("d", "1").await;
    stage.sql_becomes("select count(*) from etcd where value = '1'", "3").await;
    running.stop().await;
    stage
        .sql(&format!(
            "update etcd set value = 'forged' where key = '$Pb';
             insert into etcd(key, revision, tombstone) values ('$Pc', {last}, true);
             insert into etcd(key, value, revision) values ('$Pgone', 'forged', {last} - 1), ('$Pnever', 'forged', 1)"
        ))
        .await;
    let report = stage.replica().resync().await.unwrap();
    assert_eq!((report.replaced, report.abandoned_writes), (false, 0));
    stage.live_sets_equal().await;
    let aside = "select string_agg(split_part(key, '/', 3), ' ' order by key) from etcd_archive";
    assert_eq!(stage.sql(aside).await, "b c");
    assert_eq!(
        stage.sql("select string_agg(value, ' ' order by revision) from etcd where key = '$Pa'").await,
        "2 3"
    );
    assert!(stage.replica().audit(false).await.unwrap().is_clean());
}
