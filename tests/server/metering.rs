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
    home.write(
        "trueup.toml",
        &format!(
            "{}\n[replicas.far]\netcd = \"etcd://127.0.0.1:9/far/\"\npostgres = \"postgres://user@127.0.0.1:9/app\"\n",
            crate::cli::home::FILES
        ),
    );
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
        .collect();
    assert_eq!(shown, documented, "{text}");
    for line in [
        "trueup_runs_total{pipeline=\"notes\",status=\"ok\"} 1",
        "trueup_records_total{pipeline=\"notes\",outcome=\"added\"} 3",
        "trueup_queue_depth{pipeline=\"notes\"} 0",
        "trueup_store_errors_total{store=\"registry\"} 0",
        "trueup_replica_up{replica=\"far\"} 0",
        "# EOF",
    ] {
        assert!(text.contains(line), "no {line} in:\n{text}");
    }
}

#[tokio::test]
async fn a_pipeline_that_never_ended_ok_has_a_lag() {
    let home = Home::new(
        "[pipelines.never]\nfrom = { files = \"nowhere\" }\ninto = \"sqlite:a.db\"\n\
         [pipelines.off]\nfrom = { files = \"nowhere\" }\ninto = \"sqlite:b.db\"\nenabled = false\n",
    );
    let serving = Serving::of(&home).await;
    serving.post("/api/pipelines/never/run", None).await;
    let text = serving.get("/metrics").await.is(200).text;
    assert!(text.contains("trueup_lag_seconds{pipeline=\"never\"} "), "{text}");
    assert!(!text.contains("trueup_lag_seconds{pipeline=\"off\"}"), "{text}");
}

#[tokio::test]
async fn operations_of_a_store_that_fail_are_counted_by_store() {
    let home = Home::new(
        "[stores]\nfar = \"postgres://user@127.0.0.1:9/app\"\nnear = \"sqlite:.trueup/near.db\"\n\
         [pipelines.far]\nfrom = { files = \"notes\" }\ninto = \"far\"\n\
         [pipelines.near]\nfrom = { files = \"notes\" }\ninto = \"near\"\n",
    );
    home.write("notes/a.md", "a\n");
    let serving = Serving::of(&home).await;
    for pipeline in ["far", "near"] {
        serving.post(&format!("/api/pipelines/{pipeline}/run"), None).await;
    }
    let text = serving.get("/metrics").await.is(200).text;
    let of = |store: &str| -> u64 {
        let line = format!("trueup_store_errors_total{{store=\"{store}\"}} ");
        text.lines()
            .find_map(|shown| shown.strip_prefix(&line))
            .unwrap_or_else(|| panic!("{text}"))
            .parse()
            .unwrap()
    };
    assert!(of("far") >= 1, "{text}");
    assert_eq!(of("near"), 0, "{text}");
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
    assert_eq!(steps, ["reading and writing"]);
    let end = lines.iter().find(|line| line["message"] == "run ended").unwrap();
    assert_eq!((&end["added"], &end["status"]), (&Value::from(3), &Value::from("ok")), "{end}");
    assert!(end["timestamp"].as_str().unwrap().ends_with('Z') && end["level"] == "INFO");
}
