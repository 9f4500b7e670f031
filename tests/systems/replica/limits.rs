//! What an etcd takes at once, keeps and has room for.

use trueup::error::{Error, Kind};
use trueup::etcd::request::put;
use trueup::postgres::{PostgresPlace, Session};
use trueup::replica::ConflictRule;

use super::in_flight::{Blocked, arrives};
use super::process::Process;
use super::{Held, Stage};
use crate::support::proxy::Proxy;
use crate::support::{Etcd, eventually, postgres};

const LARGEST: &str = "select max(n) from (select count(*) as n from etcd_wal group by result_revision) t";

async fn with_flags(name: &str, flags: &[&str]) -> Stage {
    let own = Held::Own(Box::new(Etcd::start_with(1, flags).await));
    Stage::on(name, own, Held::Shared(postgres().await)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_takes_few_operations_gets_smaller_transactions() {
    let stage = with_flags("few", &["--max-txn-ops=8"]).await;
    stage.sql("select etcd_set('$P' || n, 'v') from generate_series(1, 50) n").await;
    stage.sql("select etcd_delete('$Pnever/' || n) from generate_series(1, 50) n").await;
    let running = stage.start();
    stage
        .sql_becomes("select status, count(*) from etcd_wal group by 1 order by 1", "applied|50\nnoop|50")
        .await;
    let largest: usize = stage.sql(&format!("{LARGEST} where n < 50")).await.parse().unwrap();
    assert!((2..=7).contains(&largest), "{largest} writes in one transaction");
    stage.live_sets_equal().await;
    running.stop().await;
}

/// Elsewhere in etcd revisions go on; without notices a quiet prefix would be left ever further behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_prefix_keeps_up_by_progress_notices() {
    let stage = with_flags("notices", &["--experimental-watch-progress-notify-interval=1s"]).await;
    let running = stage.started().await;
    let answer = stage.client.put(put("elsewhere", "x")).await.unwrap();
    let revision = trueup::etcd::revision_of(answer.header);
    stage.sql_becomes(&format!("select applied_revision >= {revision} from etcd_sync_state"), "t").await;
    assert_eq!(stage.sql("select count(*) from etcd").await, "0");
    running.stop().await;
}

/// A base of several pages that was broken off goes on where it stood, at the revision it was begun at.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_was_broken_off_goes_on_at_its_revision() {
    let stage = with_flags("pages", &["--max-txn-ops=3000"]).await;
    let puts = (0..3_000).map(|n| put(stage.key(&format!("{n:04}")), "v").into()).collect();
    let request = trueup::etcd::TxnRequest { success: puts, ..Default::default() };
    let revision = trueup::etcd::revision_of(stage.client.txn(request).await.unwrap().header);
    let running = stage.started().await;
    stage.sql_becomes("select count(*) from etcd", "3000").await;
    running.stop().await;
    // As a kill after the first half would have left it.
    stage.sql("delete from etcd where key >= '$P1500'").await;
    stage
        .sql(&format!(
            "update etcd_sync_state set applied_revision = 0, base_revision = {revision},
               base_next = convert_to('$P1500', 'UTF8'), witness_key = null, witness_revision = null"
        ))
        .await;
    stage.put("0001", "later").await;
    stage.delete("2999").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "3002").await;
    stage.live_sets_equal().await;
    let at_its_revision = format!("select count(*) from etcd where revision = {revision}");
    assert_eq!(stage.sql(&at_its_revision).await, "3000");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_etcd_gets_as_much_as_it_takes_at_once() {
    let stage = Stage::new("many").await;
    stage.sql("select etcd_set('$P' || n, 'v') from generate_series(1, 1000) n").await;
    let running = stage.start();
    stage.sql_becomes("select status, count(*) from etcd_wal group by 1", "applied|1000").await;
    assert_eq!(stage.sql(LARGEST).await, "900");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_found_again_in_an_etcd_that_takes_few_operations() {
    let mut stage = with_flags("few-lost", &["--max-txn-ops=8"]).await;
    let proxy = Proxy::before(&stage.etcd.endpoints()).await;
    stage.spec.etcd.endpoints = vec![proxy.address().to_owned()];
    let running = stage.draining().await;
    proxy.change(|weather| weather.lose_answers = true);
    stage.sql("select etcd_set('$P' || n, 'v') from generate_series(1, 6) n").await;
    assert!(eventually(async || stage.get("6").await.is_some()).await, "the request went through");
    proxy.cut_what_lost_answers();
    stage.sql_becomes("select status, count(*) from etcd_wal group by 1", "applied|6").await;
    assert_eq!(stage.get("6").await.unwrap().version, 1, "written once");
    assert!(running.heard("recovered"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn max_attempts_at_an_etcd_without_room_end_in_failed_with_the_reason() {
    let mut stage = with_flags("full", &["--quota-backend-bytes=1000000"]).await;
    stage.spec.max_attempts = 3;
    let running = stage.started().await;
    let refused = |error: Error| error.kind() == Kind::Full;
    let full = eventually(async || stage.client.put(put("fill", vec![0; 100_000])).await.is_err_and(refused));
    assert!(full.await, "the quota is never reached");
    stage.sql("select etcd_set('$Pa', 'no room')").await;
    stage.sql_becomes("select status, attempts from etcd_wal", "failed|3").await;
    let why = stage.sql("select last_error from etcd_wal").await;
    for part in ["space exceeded", "(3 attempts)", "Compact and defragment etcd"] {
        assert!(why.contains(part), "no {part:?} in {why}");
    }
    assert_eq!(stage.sql("select count(*) from etcd_events where kind = 'failed'").await, "1");
    let status = stage.replica().status().await.unwrap();
    assert_eq!((status.failed, status.pending), (1, 0));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_whose_answer_was_lost_are_decided_even_when_their_revision_was_compacted() {
    let mut stage = with_flags("compacted", &[]).await;
    let proxy = Proxy::before(&stage.etcd.endpoints()).await;
    let direct = stage.spec.etcd.endpoints.clone();
    for name in ["kept", "gone", "theirs"] {
        stage.put(name, "0").await;
    }
    stage.spec.etcd.endpoints = vec![proxy.address().to_owned()];
    let running = stage.draining().await;
    stage.sql_becomes("select count(*) from etcd", "3").await;
    proxy.change(|weather| weather.lose_answers = true);
    let theirs = stage.put("theirs", "1").await;
    stage
        .sql(
            "begin; select etcd_set('$Pkept', 'ours'); select etcd_set('$Pnew', 'ours');
             select etcd_delete('$Pgone'); select etcd_set('$Ptheirs', 'ours'); commit",
        )
        .await;
    assert!(eventually(async || stage.get("new").await.is_some()).await, "the request went through");
    // The process dies, others write, and etcd forgets the moment of our transaction.
    drop(running);
    let last = stage.put("new", "overtaken").await;
    stage.client.compact(last).await.unwrap();
    stage.spec.etcd.endpoints = direct;
    let running = stage.started().await;
    stage.sql_becomes("select status from etcd_wal order by id", "applied\napplied\nnoop\nconflict").await;
    let winning = "select result_revision from etcd_wal where status = 'conflict'";
    assert_eq!(stage.sql(winning).await, theirs.to_string());
    stage.live_sets_equal().await;
    assert_eq!(stage.get_text("kept").await.as_deref(), Some("ours"));
    assert_eq!(stage.get("kept").await.unwrap().version, 2, "written once");
    assert_eq!(stage.get_text("new").await.as_deref(), Some("overtaken"));
    assert_eq!(stage.get("gone").await, None);
    assert_eq!(stage.get_text("theirs").await.as_deref(), Some("1"));
    running.stop().await;
}

/// etcd took these writes of ours and PostgreSQL never heard of it; others wrote on top, and etcd forgot the moment.
async fn overtaken_and_compacted(name: &str, rule: ConflictRule) -> (Stage, i64) {
    let mut stage = with_flags(name, &[]).await;
    stage.spec.conflict = rule;
    for name in ["a", "b", "c"] {
        stage.put(name, "0").await;
    }
    let process = Process::start(&stage);
    stage.sql_becomes("select count(*) from etcd", "3").await;
    let blocked = Blocked::new(&stage).await;
    let mirror = Session::open(&PostgresPlace::parse(&stage.dsn).unwrap(), None).await.unwrap();
    mirror.batch_execute("BEGIN; SELECT * FROM etcd_sync_state FOR UPDATE").await.unwrap();
    stage
        .sql(
            "begin; select etcd_set('$Pa', 'ours'); select etcd_delete('$Pb');
             select etcd_set('$Pc', 'ours'); commit",
        )
        .await;
    arrives(&stage, "a", "ours").await;
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    stage.sql_becomes(waiting, "2").await;
    process.kill();
    // The outcome and the history must not be written down after all.
    stage.sql_becomes(waiting, "0").await;
    drop(mirror);
    blocked.release().await;
    let theirs = stage.put("a", "theirs").await;
    stage.put("b", "theirs").await;
    let last = stage.delete("c").await;
    stage.client.compact(last).await.unwrap();
    (stage, theirs)
}

/// Nobody can tell any more whether they happened. They did: done again, they would undo what came after them.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_happened_is_a_conflict_and_never_sent_again() {
    for (name, rule, held) in [
        ("maybe-postgres", ConflictRule::PostgresWins, false),
        ("maybe-etcd", ConflictRule::EtcdWins, false),
        ("maybe-hold", ConflictRule::Hold, true),
    ] {
        let (stage, theirs) = overtaken_and_compacted(name, rule).await;
        let running = stage.start();
        let statuses = "select string_agg(status || ' ' || held, ', ' order by id) from etcd_wal";
        let wanted = vec![format!("conflict {held}"); 3].join(", ");
        stage.sql_becomes(statuses, &wanted).await;
        assert_eq!(stage.get_text("a").await.as_deref(), Some("theirs"));
        assert_eq!(stage.get_text("b").await.as_deref(), Some("theirs"));
        assert_eq!(stage.get("c").await, None);
        assert_eq!(
            stage.sql("select result_revision from etcd_wal order by id limit 1").await,
            theirs.to_string()
        );
        let unsure = "select count(*) from etcd_wal where last_error like 'it may have happened: %'";
        assert_eq!(stage.sql(unsure).await, "3");
        let told = "select count(*) from etcd_events where kind = 'uncertain' and detail like 'write % to $P_: it may have%'";
        assert_eq!(stage.sql(told).await, "3");
        assert!(eventually(async || running.heard(&format!("uncertain: write 1 to /{name}/a"))).await);
        stage.live_sets_equal().await;
        running.stop().await;
    }
}
