//! What SQL writes arrives in etcd, once.

use trueup::etcd::request::put;
use trueup::etcd::{PutRequest, RangeRequest};

use super::{Stage, TRIES};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn s05_a_set_arrives_once_and_does_not_echo() {
    let stage = Stage::new("s05").await;
    let running = stage.start();
    stage.sql_becomes("select applied_revision > 0 from etcd_sync_state", "t").await;
    stage.sql("select etcd_set('$Pa', 'one')").await;
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    let pair = stage.get("a").await.unwrap();
    assert_eq!((pair.value.as_ref(), pair.version), (&b"one"[..], 1));
    let wanted = format!("one|{}", pair.mod_revision);
    stage.sql_becomes("select value, revision from etcd", &wanted).await;
    assert_eq!(stage.sql("select result_revision from etcd_wal").await, pair.mod_revision.to_string());
    // Anything that came back as a write would be queued, or show as a second version, before this next one.
    stage.sql("select etcd_set('$Pb', 'two')").await;
    stage.sql_becomes("select count(*) from etcd", "2").await;
    assert_eq!(stage.get("a").await.unwrap().version, 1);
    assert_eq!(stage.sql("select count(*) from etcd_wal").await, "2");
    let mut in_time = false;
    for write in 3..3 + TRIES {
        stage.sql(&format!("select etcd_set('$Pc', '{write}')")).await;
        stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", &write.to_string()).await;
        in_time |= stage.last_took_less_than("1 second").await;
    }
    assert!(in_time, "it is told, and does not wait to look by itself");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s06_two_sets_in_one_transaction_are_both_applied_in_order() {
    let stage = Stage::new("s06").await;
    let running = stage.start();
    stage.sql("begin; select etcd_set('$Pa', '1'); select etcd_set('$Pa', '2'); commit").await;
    stage.sql_becomes("select string_agg(status, ' ') from etcd_wal", "applied applied").await;
    stage
        .sql_becomes("select string_agg(value, ' ' order by revision) from etcd_get_all('$Pa')", "1 2")
        .await;
    assert_eq!(stage.get_text("a").await.as_deref(), Some("2"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_two_sets_while_down_do_not_conflict_with_each_other() {
    let stage = Stage::new("s07").await;
    stage.put("a", "0").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    running.stop().await;
    stage.sql("select etcd_set('$Pa', '1')").await;
    stage.sql("select etcd_set('$Pa', '2')").await;
    stage.sql("select etcd_delete('$Pa')").await;
    stage.sql("select etcd_set('$Pa', '3')").await;
    let running = stage.start();
    stage
        .sql_becomes(
            "select string_agg(status, ' ' order by id) from etcd_wal",
            "applied applied applied applied",
        )
        .await;
    stage
        .sql_becomes("select string_agg(coalesce(value, '-'), ' ' order by revision) from etcd", "0 1 2 - 3")
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s08_large_and_foreign_values_leave_byte_for_byte() {
    let stage = Stage::new("s08-out").await;
    let running = stage.start();
    let values =
        [("large", "x".repeat(100_000)), ("hangul", "한".repeat(3_000)), ("quotes", "'\"".repeat(5_000))];
    for (name, value) in &values {
        stage.sql(&format!("select etcd_set('$P{name}', '{}')", value.replace('\'', "''"))).await;
    }
    for (name, value) in &values {
        assert!(eventually(async || stage.get_text(name).await.as_ref() == Some(value)).await, "{name}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_set_after_a_tombstone_makes_the_key_again() {
    let stage = Stage::new("s12").await;
    stage.put("a", "1").await;
    let running = stage.started().await;
    stage.delete("a").await;
    stage.sql_becomes("select tombstone from etcd_get('$Pa')", "t").await;
    stage.sql("select etcd_set('$Pa', 'again')").await;
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    assert_eq!(stage.get_text("a").await.as_deref(), Some("again"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s13_deleting_what_never_was_is_a_noop() {
    let stage = Stage::with_own_etcd("s13", 1).await;
    // Its marker is laid by then.
    let running = stage.draining().await;
    let before = trueup::etcd::revision_of(
        stage.client.range(RangeRequest { key: "x".into(), ..Default::default() }).await.unwrap().header,
    );
    stage.sql("select etcd_delete('$Pnever')").await;
    stage.sql_becomes("select status, result_revision is null from etcd_wal", "noop|t").await;
    let after = trueup::etcd::revision_of(
        stage.client.range(RangeRequest { key: "x".into(), ..Default::default() }).await.unwrap().header,
    );
    assert_eq!(before, after, "no revision moves");
    assert_eq!(stage.sql("select count(*) from etcd").await, "0", "no tombstone row");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s14_what_was_queued_while_down_is_applied_at_the_start() {
    let stage = Stage::new("s14").await;
    stage.sql("select etcd_set('$P' || n, 'v' || n) from generate_series(1, 50) n").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", "50").await;
    stage.sql_becomes("select count(*) from etcd_list('$P')", "50").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s21_a_lease_stays_attached() {
    let stage = Stage::new("s21").await;
    let lease = stage.client.grant_lease(600).await.unwrap().id;
    stage.client.put(PutRequest { lease, ..put(stage.key("a"), "1") }).await.unwrap();
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    stage.sql("select etcd_set('$Pa', '2')").await;
    stage.sql("select etcd_set('$Pnew', 'no lease')").await;
    stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", "2").await;
    let pair = stage.get("a").await.unwrap();
    assert_eq!((pair.value.as_ref(), pair.lease), (&b"2"[..], lease));
    assert_eq!(stage.get("new").await.unwrap().lease, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s22_a_key_outside_the_prefix_fails_and_etcd_is_not_touched() {
    let stage = Stage::new("s22").await;
    let running = stage.start();
    stage.sql("select etcd_set('/elsewhere-s22/a', '1')").await;
    stage.sql("select etcd_set('$Pinside', '1')").await;
    stage.sql_becomes("select status from etcd_wal order by id", "failed\napplied").await;
    let reason = stage.sql("select last_error from etcd_wal where status = 'failed'").await;
    assert!(reason.contains("outside the prefix /s22/"), "{reason}");
    assert_eq!(stage.sql("select revision from etcd_wal_seed order by ts limit 1").await, "-1");
    let there = stage.client.range(trueup::etcd::request::key("/elsewhere-s22/a")).await.unwrap();
    assert!(there.kvs.is_empty());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_etcd_refuses_fails_alone() {
    let stage = Stage::new("too-large").await;
    stage.sql("select etcd_set('$P' || n, case when n = 7 then repeat('x', 2000000) else 'v' end) from generate_series(1, 20) n").await;
    let running = stage.start();
    stage
        .sql_becomes("select status, count(*) from etcd_wal group by 1 order by 1", "applied|19\nfailed|1")
        .await;
    let reason = stage.sql("select key, last_error from etcd_wal where status = 'failed'").await;
    assert!(reason.starts_with("/too-large/7|") && reason.contains("too large"), "{reason}");
    running.stop().await;
}
