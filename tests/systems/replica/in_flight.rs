//! The drain goes on while what it did before is being written down. A lock on its row keeps PostgreSQL from taking
//! outcomes, so that several transactions are decided in etcd and unknown here when something happens.

use trueup::postgres::{PostgresPlace, Session};

use super::process::Process;
use super::{Stage, through_proxy};
use crate::support::eventually;

/// Connections that write outcomes down.
pub const SETTLING: &str = "select count(*) from pg_stat_activity where datname = current_database()
                        and pid <> pg_backend_pid() and query like '%slot_revision = coalesce%'";

/// While it lives, no outcome can be written down.
pub struct Blocked(Session);

impl Blocked {
    pub async fn new(stage: &Stage) -> Self {
        // The first outcome is that of the marker, without which nothing is carried over.
        stage.sql_becomes("select slot_revision > 0 from etcd_drain_state", "t").await;
        let session = Session::open(&PostgresPlace::parse(&stage.dsn).unwrap(), None).await.unwrap();
        session.batch_execute("BEGIN; SELECT * FROM etcd_drain_state FOR UPDATE").await.unwrap();
        Blocked(session)
    }

    /// An answer came, and its outcome waits for us.
    pub async fn is_waited_for(&self, stage: &Stage) {
        stage.sql_becomes(&format!("{SETTLING} and wait_event_type = 'Lock'"), "1").await;
    }

    pub async fn release(self) {
        self.0.batch_execute("ROLLBACK").await.unwrap();
    }
}

pub async fn arrives(stage: &Stage, name: &str, value: &str) {
    let there = eventually(async || stage.get_text(name).await.as_deref() == Some(value)).await;
    assert!(there, "{name} never became {value}");
}

/// So many of each, and the one conflict lost to this.
async fn outcomes_are(stage: &Stage, wanted: &str, (name, winning): (&str, i64)) {
    let statuses = "select string_agg(status || ' ' || n, ', ' order by status)
                    from (select status, count(*) n from etcd_wal group by 1) s";
    assert_eq!(stage.sql(statuses).await, wanted);
    let conflict = "select key, result_revision from etcd_wal where status = 'conflict'";
    assert_eq!(stage.sql(conflict).await, format!("{}|{winning}", stage.key(name)));
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_to_one_key_stay_in_order_while_nothing_is_written_down() {
    let stage = Stage::new("in-flight-order").await;
    let running = stage.started().await;
    let blocked = Blocked::new(&stage).await;
    for n in 1..=3 {
        stage.sql(&format!("select etcd_set('$Pa', '{n}'), etcd_set('$Pb{n}', 'v')")).await;
        arrives(&stage, "a", &n.to_string()).await;
    }
    let pending = "select count(*) from etcd_wal where status = 'pending'";
    assert_eq!(stage.sql(pending).await, "6", "the lock holds");
    stage.sql("select etcd_set('$Pa', '4')").await;
    blocked.release().await;
    stage.sql_becomes("select status, count(*) from etcd_wal group by 1", "applied|7").await;
    let ours = "select string_agg(value, ' ' order by result_revision) from etcd_wal where key = '$Pa'";
    assert_eq!(stage.sql(ours).await, "1 2 3 4");
    assert_eq!(stage.get("a").await.unwrap().version, 4);
    stage.live_sets_equal().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_two_transactions_that_are_not_written_down_loses_neither() {
    let stage = Stage::new("in-flight-kill").await;
    stage.put("gone", "1").await;
    stage.put("theirs", "1").await;
    let process = Process::start(&stage);
    stage.sql_becomes("select count(*) from etcd", "2").await;
    let blocked = Blocked::new(&stage).await;
    let theirs = stage.put("theirs", "2").await;
    stage
        .sql(
            "begin; select etcd_set('$Pa', 'once'); select etcd_delete('$Pgone');
              select etcd_set('$Ptheirs', 'late', 1); commit",
        )
        .await;
    arrives(&stage, "a", "once").await;
    blocked.is_waited_for(&stage).await;
    stage.sql("select etcd_set('$Pb', 'once'), etcd_set('$Pa', 'twice')").await;
    arrives(&stage, "a", "twice").await;
    process.kill();
    // Its last statement must not be carried out after all.
    stage.sql_becomes(SETTLING, "0").await;
    // Later writers must not hide what happened.
    for name in ["a", "b", "gone"] {
        stage.put(name, "later").await;
    }
    blocked.release().await;
    let process = Process::start(&stage);
    let statuses = "select string_agg(status, ' ' order by id) from etcd_wal";
    stage.sql_becomes(statuses, "applied applied conflict applied applied").await;
    let winning = stage.sql("select result_revision from etcd_wal where status = 'conflict'").await;
    assert_eq!(winning, theirs.to_string());
    stage.live_sets_equal().await;
    assert_eq!(stage.sql("select count(*) from etcd_get_all('$Pa')").await, "3", "once, twice, later");
    assert_eq!(stage.sql("select count(*) from etcd_get_all('$Pb')").await, "2", "once, later");
    assert_eq!(process.terminate(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_while_an_earlier_one_is_not_written_down_costs_nothing() {
    let (stage, proxy) = through_proxy("in-flight-lost").await;
    let running = stage.started().await;
    let blocked = Blocked::new(&stage).await;
    stage.sql("select etcd_set('$Pa', 'once')").await;
    arrives(&stage, "a", "once").await;
    blocked.is_waited_for(&stage).await;
    proxy.change(|weather| weather.lose_answers = true);
    stage.sql("select etcd_set('$Pb', 'once'), etcd_set('$Pa', 'twice')").await;
    arrives(&stage, "a", "twice").await;
    stage.put("b", "later").await;
    proxy.cut_what_lost_answers();
    blocked.release().await;
    stage.sql_becomes("select status, count(*) from etcd_wal group by 1", "applied|3").await;
    stage.live_sets_equal().await;
    assert_eq!(stage.sql("select count(*) from etcd_get_all('$Pa')").await, "2");
    assert_eq!(stage.get_text("b").await.as_deref(), Some("later"));
    assert!(running.heard("recovered"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_among_hundreds_fails_only_its_own_write() {
    let stage = Stage::new("in-flight-many").await;
    let theirs = stage.put("321", "theirs").await;
    stage.sql("select etcd_set('$P' || n, 'v') from generate_series(1, 1300) n").await;
    let running = stage.started().await;
    stage.sql_becomes("select count(*) from etcd_wal where status = 'pending'", "0").await;
    outcomes_are(&stage, "applied 1299, conflict 1", ("321", theirs)).await;
    // Many to a transaction, and each where it was told.
    let transactions = stage.sql("select count(distinct result_revision) <= 4 from etcd_wal").await;
    assert_eq!(transactions, "t");
    stage.live_sets_equal().await;
    running.stop().await;
}

/// Writes of a branch happen together. One that cannot happen keeps the others back, and when the answer is lost as well,
/// those have not failed: nobody has decided about them.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_whose_answer_was_lost_fails_only_its_own_write() {
    let (stage, proxy) = through_proxy("in-flight-lost-conflict").await;
    let theirs = stage.put("77", "theirs").await;
    let running = stage.draining().await;
    stage.sql_becomes("select count(*) from etcd", "1").await;
    proxy.change(|weather| weather.lose_answers = true);
    // Few enough to be sent while no answer allows more. Deletes of nothing happen, or not, with the rest.
    stage
        .sql(
            "begin; select etcd_set('$P' || n, 'v', 0) from generate_series(1, 160) n where n % 9 > 0;
             select etcd_delete('$P' || n) from generate_series(9, 160, 9) n; commit",
        )
        .await;
    arrives(&stage, "1", "v").await;
    assert_eq!(stage.get_text("78").await, None, "it waits for the conflict beside it");
    proxy.cut_what_lost_answers();
    stage.sql_becomes("select count(*) from etcd_wal where status = 'pending'", "0").await;
    outcomes_are(&stage, "applied 142, conflict 1, noop 17", ("77", theirs)).await;
    stage.sql_becomes("select count(*) from etcd", "143").await;
    stage.live_sets_equal().await;
    assert!(running.heard("recovered"));
    running.stop().await;
}

/// Longer than what is looked at piece by piece before the whole queue is, each key twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_queue_arrives_once_and_in_order_with_what_becomes_visible_late() {
    let stage = Stage::new("in-flight-long").await;
    let late = Session::open(&PostgresPlace::parse(&stage.dsn).unwrap(), None).await.unwrap();
    let first = format!("BEGIN; SELECT etcd_set('{}', 'late')", stage.key("late"));
    late.batch_execute(&first).await.unwrap();
    stage.sql("select count(etcd_set('$P' || n % 12000, n::text)) from generate_series(1, 24000) n").await;
    let running = stage.started().await;
    stage.sql_becomes("select exists (select 1 from etcd_wal where status = 'applied')", "t").await;
    late.batch_execute("COMMIT").await.unwrap();
    stage.sql_becomes("select status, count(*) from etcd_wal group by 1", "applied|24001").await;
    stage.sql_becomes("select count(*) from etcd", "24001").await;
    let turned = "select count(*) from etcd_wal a join etcd_wal b using (key)
                  where a.id < b.id and a.result_revision >= b.result_revision";
    assert_eq!(stage.sql(turned).await, "0");
    stage.live_sets_equal().await;
    running.stop().await;
}

/// A long transaction's writes appear below all that was seen, more than one look takes in. The look after that begins
/// among them and reaches writes that are in etcd and not written down: those must not be carried a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_that_becomes_visible_late_makes_nothing_arrive_twice() {
    // A look takes in 2,000 and a transaction 900: the next look is during the second transaction.
    const FLOOD: usize = 2_500;
    let stage = Stage::new("in-flight-flood").await;
    let open = async || Session::open(&PostgresPlace::parse(&stage.dsn).unwrap(), None).await.unwrap();
    let (late, lock) = (open().await, open().await);
    let flood = format!(
        "BEGIN; SELECT count(etcd_set('{}' || n, 'late')) FROM generate_series(1, {FLOOD}) n",
        stage.key("late/")
    );
    late.batch_execute(&flood).await.unwrap();
    stage.sql("select count(etcd_set('$P' || n, 'v')) from generate_series(1, 100) n").await;
    // One of them cannot be written down, and so none of them is.
    lock.batch_execute("BEGIN; SELECT 1 FROM etcd_wal WHERE status = 'pending' LIMIT 1 FOR UPDATE")
        .await
        .unwrap();
    let running = stage.started().await;
    stage.sql_becomes("select count(*) from etcd", "100").await;
    late.batch_execute("COMMIT").await.unwrap();
    stage.sql_becomes("select count(*) >= 1800 from etcd where key like '$Plate/%'", "t").await;
    assert_eq!(
        stage.sql("select count(*) from etcd_wal where status <> 'pending'").await,
        "0",
        "the lock holds"
    );
    lock.batch_execute("ROLLBACK").await.unwrap();
    stage.sql_becomes("select status, count(*) from etcd_wal group by 1", "applied|2600").await;
    // Then the newest write of every key has come back, and all before it.
    stage.live_sets_equal().await;
    assert_eq!(stage.sql("select count(*) from etcd").await, "2600", "each write once");
    running.stop().await;
}
