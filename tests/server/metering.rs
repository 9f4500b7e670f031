//! Metrics and logs: names that are documented, lines that a machine can read.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::rig::Serving;
use crate::cli::home::Home;
use crate::support;

fn operations() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md")).unwrap()
}

#[tokio::test]
async fn every_metric_is_documented_and_every_documented_metric_is_there() {
    let home = Home::with_notes(3);
    home.write("broken/a.md", "x");
    let serving = Serving::of(&home).await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    std::fs::remove_dir_all(home.path("notes")).unwrap();
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    serving.get("/metrics").await.is(200);
    let text = serving.get("/metrics").await.is(200).text;
    let named = |line: &str| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned());
    let shown: BTreeSet<String> = text.lines().filter_map(named).collect();
    let documented: BTreeSet<String> = operations()
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `trueup_")?.split('`').next()?.to_owned()))
        .map(|name| format!("trueup_{name}"))
        .filter(|name| !name.starts_with("trueup_replica_"))
        .collect();
    assert_eq!(shown, documented, "{text}");
    for line in [
        "trueup_runs_total{pipeline=\"notes\",status=\"ok\"} 1",
        "trueup_records_total{pipeline=\"notes\",outcome=\"added\"} 3",
        "trueup_queue_depth{pipeline=\"notes\"} 0",
        "# EOF",
    ] {
        assert!(text.contains(line), "no {line} in:\n{text}");
    }
}

#[tokio::test]
async fn a_line_of_the_log_is_a_json_object_with_pipeline_and_step() {
    let home = Home::with_notes(3);
    let serving = Serving::with(&home, &["--log-format", "json"], &[]).await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    support::until("the end of the run", || serving.said().contains("run ended")).await;
    let said = serving.said();
    let lines: Vec<Value> = said
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let steps: Vec<&str> = lines
        .iter()
        .filter(|line| line["pipeline"] == "notes")
        .filter_map(|line| line["step"].as_str())
        .collect();
    assert_eq!(steps, ["reading", "writing"]);
    let end = lines.iter().find(|line| line["message"] == "run ended").unwrap();
    assert_eq!((&end["added"], &end["status"]), (&Value::from(3), &Value::from("ok")), "{end}");
    assert!(end["timestamp"].as_str().unwrap().ends_with('Z') && end["level"] == "INFO");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_has_figures_and_one_that_is_away_has_none_but_that() {
    let (etcd, dsn) = (support::etcd().await.endpoints(), support::postgres().await.fresh_database());
    let nowhere = format!("127.0.0.1:{}", support::leash::free_ports(1)[0]);
    let home = Home::new(&format!(
        "[replicas.here]\netcd = \"etcd://{etcd}/metering/\"\npostgres = \"{dsn}\"\n\
         [replicas.away]\netcd = \"etcd://{nowhere}/away/\"\npostgres = \"{dsn}\"\n"
    ));
    home.run(&["replica", "init", "here"]).ends(0);
    let serving = Serving::of(&home).await;
    support::postgres::query(&dsn, "select etcd_set('/metering/' || n, 'v') from generate_series(1, 30) n");
    let carried = "trueup_replica_changes_total{replica=\"here\",direction=\"to_etcd\"} 30";
    let mut text = String::new();
    let shown = support::eventually(async || {
        text = serving.get("/metrics").await.is(200).text;
        text.contains(carried)
    });
    assert!(shown.await, "no {carried} in:\n{text}");
    for name in
        operations().lines().filter_map(|line| line.strip_prefix("| `trueup_replica_")?.split('`').next())
    {
        assert!(text.contains(&format!("# TYPE trueup_replica_{name} ")), "no {name} in:\n{text}");
    }
    for line in ["trueup_replica_up{replica=\"here\"} 1", "trueup_replica_retries_total{replica=\"here\"} 0"]
    {
        assert!(text.contains(line), "no {line} in:\n{text}");
    }
    let about_away: Vec<&str> = text.lines().filter(|line| line.contains("replica=\"away\"")).collect();
    assert_eq!(about_away, ["trueup_replica_up{replica=\"away\"} 0"]);
    let rate = serving.get("/api/replicas/here").await.is(200).json()["rates"]["to_etcd"].as_f64().unwrap();
    assert!(
        rate > 0.0
            && text.contains("trueup_replica_changes_per_second{replica=\"here\",direction=\"to_etcd\"} ")
    );
}
