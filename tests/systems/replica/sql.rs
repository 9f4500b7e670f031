//! What SQL users call.

use super::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn null_is_no_value_and_the_empty_string_is_one() {
    let stage = Stage::new("sql-null").await;
    let refused = stage.try_sql("select etcd_set('$Pa', null)").await.unwrap_err();
    assert!(refused.contains("etcd_set takes no NULL"), "{refused}");
    assert!(stage.try_sql("select etcd_set('', 'x')").await.is_err());
    assert!(stage.try_sql("select etcd_set(repeat('k', 2049), 'x')").await.is_err());
    let running = stage.start();
    stage.sql("select etcd_set('$Pa', '')").await;
    stage.sql_becomes("select value = '' from etcd_get('$Pa')", "t").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_gives_read_your_writes_and_refuses_to_wait_for_itself() {
    let stage = Stage::new("sql-wait").await;
    let running = stage.start();
    let stamp = stage.sql("select etcd_set('$Pa', 'mine')").await;
    assert_eq!(stage.sql(&format!("select etcd_wait('$Pa', '{stamp}', '60 seconds')")).await, "applied");
    assert_eq!(stage.sql("select value from etcd_get('$Pa')").await, "mine");
    let refused = stage.try_sql("select etcd_wait('$Pb', etcd_set('$Pb', 'x'))").await.unwrap_err();
    assert!(refused.contains("inside the transaction"), "{refused}");
    assert!(stage.try_sql("select etcd_wait('$Pa', '2001-01-01')").await.is_err());
    running.stop().await;
    let stamp = stage.sql("select etcd_set('$Pc', 'nobody runs')").await;
    let timed_out = format!("select etcd_wait('$Pc', '{stamp}', '100 milliseconds')");
    assert_eq!(stage.sql(&timed_out).await, "pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_sessions_on_one_key_all_get_a_stamp_of_their_own() {
    let stage = Stage::new("sql-stamps").await;
    let place = trueup::postgres::PostgresPlace::parse(&stage.dsn).unwrap();
    let writers = (0..16).map(|_| async {
        let session = trueup::postgres::Session::open(&place, None).await.unwrap();
        for _ in 0..50 {
            session.simple_query("select etcd_set('/sql-stamps/a', 'x')").await.unwrap();
        }
    });
    futures::future::join_all(writers).await;
    assert_eq!(stage.sql("select count(*), count(distinct ts) from etcd_wal").await, "800|800");
}

#[tokio::test(flavor = "multi_thread")]
async fn views_tell_the_queue_in_the_four_column_form_and_list_what_lives() {
    let stage = Stage::new("sql-views").await;
    let revision = stage.put("a", "1").await;
    stage.put("ab/c", "2").await;
    let running = stage.start();
    stage.sql_becomes("select count(*) from etcd", "2").await;
    running.stop().await;
    stage.sql("select etcd_set('$Pa', '2')").await;
    assert_eq!(stage.sql("select revision from etcd_wal_seed").await, revision.to_string());
    assert_eq!(stage.sql("select key from etcd_list('$Pab')").await, "/sql-views/ab/c");
    assert_eq!(
        stage.sql("select string_agg(key, ' ' order by key) from etcd_live").await,
        "/sql-views/a /sql-views/ab/c"
    );
    // A payload of any size only wakes: NOTIFY would refuse 8,000 bytes and take the INSERT with it.
    stage.sql("select etcd_set('$Plarge', repeat('x', 100000))").await;
}
