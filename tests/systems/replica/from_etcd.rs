//! What happens in etcd is seen in PostgreSQL.

use trueup::etcd::request::{delete, put};
use trueup::etcd::{TxnRequest, revision_of};

use super::{Stage, TRIES};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn s01_a_put_becomes_a_row_with_its_revision() {
    let stage = Stage::new("s01").await;
    stage.put("before", "was there").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    let mut in_time = false;
    for _ in 0..TRIES {
        let before = stage.sql("select clock_timestamp()").await;
        let revision = stage.put("a", "1").await;
        let wanted = format!("/s01/a|1|{revision}|f");
        stage.sql_becomes("select key, value, revision, tombstone from etcd_get('$Pa')", &wanted).await;
        let took = format!("select clock_timestamp() - '{before}' < interval '2 seconds'");
        in_time |= stage.sql(&took).await == "t";
    }
    assert!(in_time);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s02_three_puts_are_three_rows_in_order() {
    let stage = Stage::new("s02").await;
    let running = stage.started().await;
    let mut revisions = Vec::new();
    for value in ["1", "2", "3"] {
        revisions.push(stage.put("a", value).await);
    }
    let all = format!("1|{}\n2|{}\n3|{}", revisions[0], revisions[1], revisions[2]);
    stage.sql_becomes("select value, revision from etcd_get_all('$Pa')", &all).await;
    let after = format!("select value from etcd_get_all('$Pa', {})", revisions[0]);
    assert_eq!(stage.sql(&after).await, "2\n3");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s03_a_delete_is_a_tombstone_at_its_revision() {
    let stage = Stage::new("s03").await;
    let running = stage.started().await;
    stage.put("a", "1").await;
    let revision = stage.delete("a").await;
    let query = "select value is null, tombstone, revision from etcd_get('$Pa')";
    stage.sql_becomes(query, &format!("t|t|{revision}")).await;
    assert_eq!(stage.sql("select count(*) from etcd_live").await, "0");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s04_a_transaction_is_three_rows_of_one_revision() {
    let stage = Stage::new("s04").await;
    stage.put("b", "old").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    let success =
        vec![put(stage.key("x"), "1").into(), put(stage.key("y"), "2").into(), delete(stage.key("b")).into()];
    let answer = stage.client.txn(TxnRequest { success, ..Default::default() }).await.unwrap();
    let revision = revision_of(answer.header);
    let query = format!("select key, tombstone from etcd where revision = {revision} order by key");
    stage.sql_becomes(&query, "/s04/b|t\n/s04/x|f\n/s04/y|f").await;
    let checkpoint = stage.sql("select applied_revision from etcd_sync_state").await;
    assert_eq!(checkpoint, revision.to_string(), "one checkpoint covers all three");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s08_large_and_foreign_values_arrive_byte_for_byte() {
    let stage = Stage::new("s08-in").await;
    let running = stage.start();
    let values =
        [("large", "x".repeat(100_000)), ("hangul", "한".repeat(3_000)), ("quotes", "'\"".repeat(5_000))];
    for (name, value) in &values {
        stage.put(name, value.clone()).await;
    }
    for (name, value) in &values {
        let query = format!("select md5(value), octet_length(value), encoding from etcd_get('$P{name}')");
        stage.sql_becomes(&query, &format!("{}|{}|utf8", md5(&stage, value).await, value.len())).await;
    }
    running.stop().await;
}

/// PostgreSQL's own md5 of a literal, so that nothing of ours is in between.
async fn md5(stage: &Stage, value: &str) -> String {
    stage.sql(&format!("select md5('{}')", value.replace('\'', "''"))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s18_a_compaction_while_down_is_bridged_and_recorded() {
    let stage = Stage::with_own_etcd("s18", 1).await;
    for name in ["a", "b", "c", "d"] {
        stage.put(name, "1").await;
    }
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "4").await;
    running.stop().await;
    for name in ["a", "b", "c"] {
        stage.delete(name).await;
    }
    let mut last = 0;
    for name in ["e", "f", "g"] {
        last = stage.put(name, "2").await;
    }
    stage.client.compact(last).await.unwrap();
    let running = stage.start();
    stage
        .sql_becomes("select string_agg(key, ' ' order by key) from etcd_live", "/s18/d /s18/e /s18/f /s18/g")
        .await;
    stage.live_sets_equal().await;
    assert_eq!(stage.sql("select count(*) from etcd where tombstone").await, "3");
    assert_eq!(stage.sql("select count(*) from etcd").await, "10", "what was there stays");
    assert_eq!(
        stage.sql("select count(*), min(to_revision) >= min(from_revision) from etcd_gaps").await,
        "1|t"
    );
    let next = stage.put("h", "3").await;
    stage.sql_becomes("select max(revision) from etcd", &next.to_string()).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s19_two_idle_restarts_write_nothing_anywhere() {
    let stage = Stage::with_own_etcd("s19", 1).await;
    stage.put("a", "1").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    stage.sql("select etcd_set('$Pb', '2')").await;
    stage.sql_becomes("select count(*) from etcd", "2").await;
    running.stop().await;
    let rows = "select count(*), max(ts) from etcd";
    let before = (
        stage.sql(rows).await,
        trueup::etcd::revision_of(stage.client.range(trueup::etcd::request::key("x")).await.unwrap().header),
    );
    for _ in 0..2 {
        let running = stage.start();
        assert!(eventually(async || running.heard("leading")).await);
        running.stop().await;
    }
    let after = (
        stage.sql(rows).await,
        trueup::etcd::revision_of(stage.client.range(trueup::etcd::request::key("x")).await.unwrap().header),
    );
    assert_eq!(before, after, "no row, no put");
}

#[tokio::test(flavor = "multi_thread")]
async fn s20_bytes_that_are_no_text_round_trip() {
    let stage = Stage::new("s20").await;
    let running = stage.start();
    let bytes = b"\xff\x00\xfe".to_vec();
    stage.put("in", bytes.clone()).await;
    let query = "select encoding, encode(etcd_bytes(value, encoding), 'hex') from etcd_get('$Pin')";
    stage.sql_becomes(query, "base64|ff00fe").await;
    stage.sql(r"select etcd_set_bytes('$Pout', '\xff00fe')").await;
    assert!(eventually(async || stage.get("out").await.is_some_and(|pair| pair.value == bytes)).await);
    stage
        .sql_becomes("select encode(etcd_bytes(value, encoding), 'hex') from etcd_get('$Pout')", "ff00fe")
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_cannot_be_text_are_quarantined_with_their_bytes() {
    let stage = Stage::new("quarantine").await;
    let odd = [
        b"/quarantine/\xff".to_vec(),
        b"/quarantine/a\0b".to_vec(),
        format!("/quarantine/{}", "k".repeat(2_100)).into_bytes(),
    ];
    stage.client.put(put(odd[0].clone(), "before")).await.unwrap();
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd_events where kind = 'quarantined'", "1").await;
    for key in &odd[1..] {
        stage.client.put(put(key.clone(), "live")).await.unwrap();
    }
    let last = stage.put("good", "1").await;
    stage.sql_becomes("select applied_revision from etcd_sync_state", &last.to_string()).await;
    let kept = "select convert_from(value, 'UTF8'), octet_length(key) from etcd_events where kind = 'quarantined' order by id";
    assert_eq!(stage.sql(kept).await, "before|13\nlive|15\nlive|2112");
    assert_eq!(stage.sql("select key from etcd").await, "/quarantine/good");
    running.stop().await;
}
