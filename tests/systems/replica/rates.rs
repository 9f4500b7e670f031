//! How fast it works, told by any process.

use trueup::replica::Rates;

use super::Stage;
use crate::cli::home::Home;
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_the_rate_of_each_direction_and_none_when_nobody_leads() {
    let stage = Stage::new("rates").await;
    assert_eq!(stage.replica().status().await.unwrap().rates, Rates::default());
    let running = stage.started().await;
    for n in 0..50 {
        stage.put(&format!("in/{n}"), "v").await;
    }
    stage.sql("select etcd_set('$Pout/' || n, 'v') from generate_series(1, 20) n").await;
    let mut status = stage.replica().status().await.unwrap();
    // Twenty writes come back as history: seventy changes one way, twenty the other, within the same time.
    let told = eventually(async || {
        status = stage.replica().status().await.unwrap();
        let Rates { from_etcd, to_etcd } = status.rates;
        to_etcd > 0.0 && (from_etcd / to_etcd - 3.5).abs() < 0.001
    });
    assert!(told.await, "{status:?}");
    assert_eq!((status.counts.events_applied, status.counts.writes_applied), (70, 20));
    assert!(status.rates.from_etcd <= 35.0, "seventy changes in two seconds or more: {status:?}");
    running.stop().await;
    let status = stage.replica().status().await.unwrap();
    assert_eq!((status.rates, status.counts.writes_applied), (Rates::default(), 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_retries_and_which_writes_wait_for_another_attempt() {
    let stage = Stage::with_own_etcd("retries", 1).await;
    let running = stage.started().await;
    stage.etcd.kill(0);
    stage.sql("select etcd_set('$P' || n, 'v') from generate_series(1, 3) n").await;
    stage.sql_becomes("select min(attempts) > 1 from etcd_wal", "t").await;
    running.stop().await;
    stage.etcd.restart(0).await;
    let waiting = stage.replica().status().await.unwrap();
    assert_eq!((waiting.pending, waiting.retrying), (3, 3));
    let running = stage.started().await;
    stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", "3").await;
    assert_eq!(stage.replica().status().await.unwrap().retrying, 0);
    stage.etcd.kill(0);
    stage.sql("select etcd_set('$Plate', 'v')").await;
    stage.sql_becomes("select attempts > 1 from etcd_wal where key = '$Plate'", "t").await;
    stage.etcd.restart(0).await;
    let told = eventually(async || stage.replica().status().await.is_ok_and(|status| status.retries > 1));
    assert!(told.await, "{:?}", stage.replica().status().await);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_shows_rates_and_retries_to_people_and_to_programs() {
    let stage = Stage::new("told").await;
    let config = format!(
        "[replicas.told]\netcd = \"etcd://{}/told/\"\npostgres = \"{}\"\n",
        stage.etcd.endpoints(),
        stage.dsn
    );
    let home = Home::new(&config);
    let running = stage.started().await;
    stage.put("a", "1").await;
    let asked = || home.run(&["replica", "status", "told", "--json"]).ends(0).json();
    assert!(eventually(async || asked()["rates"]["from_etcd"].as_f64().unwrap() > 0.0).await, "{}", asked());
    assert_eq!((asked()["retries"].as_u64(), asked()["retrying"].as_i64()), (Some(0), Some(0)));
    let text = home.run(&["replica", "status", "told"]).ends(0).out;
    for part in
        ["told: running\n", "changes/s over the last minute", "writes/s over", "0 retries since it began"]
    {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    running.stop().await;
    assert!(home.run(&["replica", "status", "told"]).ends(0).out.starts_with("told: not running\n"));
}
