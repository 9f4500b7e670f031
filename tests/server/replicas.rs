//! A replica that the server keeps: it runs, and the API and the metrics tell how it is.

use serde_json::json;

use super::rig::Serving;
use crate::cli::home::Home;
use crate::support::eventually;
use crate::systems::replica::Stage;
use crate::systems::replica::conflicts::moved_meanwhile;

/// Both sides changed `a` while nobody looked.
pub async fn disagreeing(name: &str) -> Stage {
    let stage = Stage::new(name).await;
    moved_meanwhile(&stage).await;
    stage
}

/// A server that keeps the replica of this stage, and leaves conflicts to people.
pub async fn serving(stage: &Stage) -> (Home, Serving) {
    let etcd = format!("etcd://{}{}", stage.etcd.endpoints(), stage.prefix);
    let home = Home::new(&format!(
        "[replicas.{}]\netcd = \"{etcd}\"\npostgres = \"{}\"\nconflict = \"hold\"\npoll = \"1s\"\n",
        stage.spec.name, stage.dsn
    ));
    let serving = Serving::of(&home).await;
    (home, serving)
}

/// The number a metric has for a replica.
async fn metric(serving: &Serving, name: &str, replica: &str) -> Option<f64> {
    let text = serving.get("/metrics").await.is(200).text;
    let line = format!("trueup_replica_{name}{{replica=\"{replica}\"}} ");
    text.lines().find_map(|shown| shown.strip_prefix(&line)?.parse().ok())
}

/// A metric is read anew with every request, and comes to show this.
async fn shows(serving: &Serving, name: &str, replica: &str, wanted: f64) {
    let shown = eventually(async || metric(serving, name, replica).await == Some(wanted)).await;
    assert!(shown, "{name} is not {wanted} in:\n{}", serving.get("/metrics").await.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_kept_in_step_and_the_api_and_metrics_tell_of_it() {
    let stage = disagreeing("served").await;
    let (_home, serving) = serving(&stage).await;
    let held = async || {
        let status = serving.get("/api/replicas/served").await.is(200).json();
        status["running"] == true && status["held"] == 1 && status["lag_seconds"].is_number()
    };
    assert!(eventually(held).await, "{}", serving.said());
    for name in ["up", "held", "conflicts"] {
        shows(&serving, name, "served", 1.0).await;
    }
    let lag = async || metric(&serving, "lag_seconds", "served").await.is_some_and(|lag| lag < 60.0);
    assert!(eventually(lag).await, "{}", serving.get("/metrics").await.text);
    stage.put("b", "seen").await;
    stage.sql_becomes("select value from etcd where key = '$Pb'", "seen").await;

    let conflicts = serving.get("/api/replicas/served/conflicts").await.is(200).json();
    let id = conflicts["conflicts"][0]["id"].as_i64().unwrap();
    let verdict = format!("/api/replicas/served/conflicts/{id}/resolve");
    serving.post(&verdict, Some(json!({ "winner": "nobody" }))).await.refused(400, "config");
    serving.post(&verdict, Some(json!({ "winner": "postgres" }))).await.is(200);
    assert!(eventually(async || stage.get_text("a").await.as_deref() == Some("from sql")).await);
    shows(&serving, "held", "served", 0.0).await;
}

#[tokio::test]
async fn a_replica_whose_servers_are_away_is_down_and_its_numbers_are_unknown() {
    let home = Home::new(
        "[replicas.far]\netcd = \"etcd://127.0.0.1:9/far/\"\npostgres = \"postgres://user@127.0.0.1:9/app\"\n",
    );
    let serving = Serving::of(&home).await;
    assert_eq!(metric(&serving, "up", "far").await, Some(0.0));
    assert!(metric(&serving, "lag_seconds", "far").await.unwrap().is_nan());
    assert!(metric(&serving, "held", "far").await.unwrap().is_nan());
    let all = serving.get("/api/replicas").await.is(200).json();
    assert_eq!(all["replicas"][0]["replica"], "far");
    assert_eq!(all["replicas"][0]["error"]["kind"], "unavailable", "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_and_retries_of_a_replica_are_told_by_the_api_the_page_and_the_metrics() {
    let stage = Stage::new("paced").await;
    let (_home, serving) = serving(&stage).await;
    stage.sql("select etcd_set('$P' || n, 'v') from generate_series(1, 30) n").await;
    let told = async || {
        let status = serving.get("/api/replicas/paced").await.is(200).json();
        status["rates"]["to_etcd"].as_f64().unwrap() > 0.0
            && status["rates"]["from_etcd"].as_f64().unwrap() > 0.0
    };
    assert!(eventually(told).await, "{}", serving.said());
    let counted = async || {
        let text = serving.get("/metrics").await.is(200).text;
        let rate = "trueup_replica_changes_per_second{replica=\"paced\",direction=\"to_etcd\"} ";
        let rate = text.lines().find_map(|line| line.strip_prefix(rate)?.parse::<f64>().ok());
        let totals = ["to_etcd", "from_etcd"].map(|direction| {
            format!("trueup_replica_changes_total{{replica=\"paced\",direction=\"{direction}\"}} 30\n")
        });
        totals.iter().all(|line| text.contains(line)) && rate.is_some_and(|rate| rate > 0.0 && rate <= 15.0)
    };
    assert!(eventually(counted).await, "{}", serving.get("/metrics").await.text);
    // How often etcd was too slow to answer is not known here; whoever tells of it tells the same.
    let same = async || {
        let status = serving.get("/api/replicas/paced").await.is(200).json();
        status["retries"].is_u64()
            && metric(&serving, "retries_total", "paced").await == status["retries"].as_f64()
    };
    assert!(eventually(same).await, "{}", serving.get("/metrics").await.text);
    let page = serving.get("/replicas/paced").await.is(200).text;
    assert!(page.contains("To etcd") && page.contains(" / s</dd>"), "{page}");
}
