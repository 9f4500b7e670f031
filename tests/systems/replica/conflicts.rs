//! Both sides changed a key.

use trueup::postgres::{PostgresPlace, Session};
use trueup::replica::{ConflictRule, Winner};

use super::Stage;
use crate::support::eventually;

/// A key both know at revision `r`, changed in etcd while the replica is down.
/// Both sides changed a key while nobody looked; the revision etcd has it at.
pub async fn moved_meanwhile(stage: &Stage) -> i64 {
    stage.put("a", "common").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    running.stop().await;
    stage.sql("select etcd_set('$Pa', 'from sql')").await;
    stage.put("a", "from etcd").await
}

#[tokio::test(flavor = "multi_thread")]
async fn s09_etcd_moved_so_etcd_stays_and_the_write_is_a_conflict() {
    let stage = Stage::new("s09").await;
    let winning = moved_meanwhile(&stage).await;
    let running = stage.start();
    stage.sql_becomes("select status, result_revision from etcd_wal", &format!("conflict|{winning}")).await;
    assert_eq!(stage.get_text("a").await.as_deref(), Some("from etcd"));
    stage.sql_becomes("select value from etcd_get('$Pa')", "from etcd").await;
    let reason = stage.sql("select last_error from etcd_wal").await;
    assert!(reason.contains(&winning.to_string()), "both revisions are named: {reason}");
    assert!(eventually(async || running.heard("conflict: /s09/a")).await);
    assert_eq!(running.stop().await.counts.conflicts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_an_unknown_key_that_exists_is_a_conflict() {
    let stage = Stage::new("s10").await;
    stage.sql("select etcd_set('$Pa', 'from sql')").await;
    let winning = stage.put("a", "from etcd").await;
    let running = stage.start();
    stage.sql_becomes("select status, result_revision from etcd_wal", &format!("conflict|{winning}")).await;
    assert_eq!(stage.get_text("a").await.as_deref(), Some("from etcd"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_remote_delete_beats_a_local_update() {
    let stage = Stage::new("s11").await;
    stage.put("a", "common").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    running.stop().await;
    stage.sql("select etcd_set('$Pa', 'from sql')").await;
    let winning = stage.delete("a").await;
    for n in 0..9 {
        stage.put("other", n.to_string()).await;
    }
    let running = stage.start();
    stage.sql_becomes("select status, result_revision from etcd_wal", &format!("conflict|{winning}")).await;
    let reason = stage.sql("select last_error from etcd_wal").await;
    assert!(reason.contains(&format!("deleted at {winning}")), "{reason}");
    assert_eq!(stage.get("a").await, None, "it stays deleted");
    stage.sql_becomes("select tombstone from etcd_get('$Pa')", "t").await;
    running.stop().await;
}

/// etcd has forgotten the delete the write lost to, and the mirror has not heard of it: an earlier one is none of its.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_older_than_what_was_expected_is_no_winner() {
    let stage = Stage::with_own_etcd("older-delete", 1).await;
    let running = stage.draining().await;
    stage.put("a", "1").await;
    stage.delete("a").await;
    let expected = stage.put("a", "2").await;
    stage.sql_becomes("select revision from etcd_live", &expected.to_string()).await;
    let mirror = Session::open(&PostgresPlace::parse(&stage.dsn).unwrap(), None).await.unwrap();
    mirror.batch_execute("BEGIN; SELECT * FROM etcd_sync_state FOR UPDATE").await.unwrap();
    stage.delete("a").await;
    let last = stage.put("other", "1").await;
    stage.client.compact(last).await.unwrap();
    stage.sql("select etcd_set('$Pa', 'from sql')").await;
    let decided = "select status, expected_revision, result_revision from etcd_wal";
    stage.sql_becomes(decided, &format!("conflict|{expected}|")).await;
    mirror.batch_execute("ROLLBACK").await.unwrap();
    stage.live_sets_equal().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_conflict_fails_only_its_own_key() {
    let stage = Stage::new("own-key").await;
    stage.sql("select etcd_set('$P' || lpad(n::text, 3, '0'), 'sql') from generate_series(1, 100) n").await;
    stage.put("050", "etcd").await;
    let running = stage.start();
    stage
        .sql_becomes("select status, count(*) from etcd_wal group by 1 order by 1", "applied|99\nconflict|1")
        .await;
    let revisions = "select count(distinct result_revision) from etcd_wal where status = 'applied'";
    assert_eq!(stage.sql(revisions).await, "1", "one transaction carried them all");
    assert_eq!(stage.get_text("050").await.as_deref(), Some("etcd"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_wins_where_the_config_says_so() {
    let mut stage = Stage::new("pg-wins").await;
    stage.spec.conflict = ConflictRule::PostgresWins;
    moved_meanwhile(&stage).await;
    let running = stage.start();
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    assert_eq!(stage.get_text("a").await.as_deref(), Some("from sql"));
    stage
        .sql_becomes(
            "select string_agg(value, ', ' order by revision) from etcd",
            "common, from etcd, from sql",
        )
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_conflict_waits_for_a_person() {
    let mut stage = Stage::new("hold").await;
    stage.spec.conflict = ConflictRule::Hold;
    moved_meanwhile(&stage).await;
    let running = stage.start();
    stage.sql_becomes("select status, held from etcd_wal", "conflict|t").await;
    assert_eq!(stage.replica().status().await.unwrap().held, 1);
    let conflicts = stage.replica().conflicts().await.unwrap();
    assert_eq!((conflicts.len(), conflicts[0].key.as_str(), conflicts[0].held), (1, "/hold/a", true));
    stage.replica().resolve(conflicts[0].id, Winner::Postgres).await.unwrap();
    stage.sql_becomes("select status, held from etcd_wal", "applied|f").await;
    assert!(eventually(async || stage.get_text("a").await.as_deref() == Some("from sql")).await);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_conflict_may_be_given_to_etcd() {
    let mut stage = Stage::new("hold-etcd").await;
    stage.spec.conflict = ConflictRule::Hold;
    moved_meanwhile(&stage).await;
    let running = stage.start();
    stage.sql_becomes("select held from etcd_wal", "t").await;
    let id = stage.replica().conflicts().await.unwrap()[0].id;
    stage.replica().resolve(id, Winner::Etcd).await.unwrap();
    assert_eq!(stage.sql("select status, held from etcd_wal").await, "conflict|f");
    assert_eq!(stage.get_text("a").await.as_deref(), Some("from etcd"));
    assert!(stage.replica().resolve(999, Winner::Etcd).await.is_err());
    // What was decided once is not decided again: etcd may have gone on since.
    let error = stage.replica().resolve(id, Winner::Postgres).await.unwrap_err();
    assert_eq!(error.kind(), trueup::error::Kind::Conflict, "{error:?}");
    assert_eq!(stage.sql("select status from etcd_wal").await, "conflict");
    running.stop().await;
}

/// PostgreSQL wins where it was asked to write, not where it was asked to write on a revision that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn compare_and_set_is_a_condition_also_where_postgres_wins() {
    let mut stage = Stage::new("cas-wins").await;
    stage.spec.conflict = ConflictRule::PostgresWins;
    stage.put("lock", "A").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    stage.sql("select etcd_set('$Plock', 'B', 0)").await;
    stage.sql("select etcd_set('$Pnew', 'C', 0)").await;
    let statuses = "select string_agg(status, ' ' order by id) from etcd_wal";
    stage.sql_becomes(statuses, "conflict applied").await;
    assert_eq!(stage.get_text("lock").await.as_deref(), Some("A"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_and_set_is_applied_only_on_exactly_that_revision() {
    let stage = Stage::new("cas").await;
    let revision = stage.put("a", "1").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "1").await;
    stage.sql(&format!("select etcd_set('$Pa', '2', {revision}), etcd_set('$Pnew', '1', 0)")).await;
    stage.sql(&format!("select etcd_set('$Pa', '3', {revision})")).await;
    stage
        .sql_becomes(
            "select key, status from etcd_wal order by id",
            "/cas/a|applied\n/cas/new|applied\n/cas/a|conflict",
        )
        .await;
    assert_eq!(stage.get_text("a").await.as_deref(), Some("2"));
    running.stop().await;
}
