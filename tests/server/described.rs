//! The OpenAPI document is the one that is committed, and the server keeps to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::rig::Serving;
use crate::cli::home::Home;
use crate::support;

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json")
}

#[tokio::test]
async fn the_committed_description_is_the_one_that_is_served() {
    let home = Home::with_notes(1);
    let serving = Serving::of(&home).await;
    let served = serving.get("/api/openapi.json").await.is(200).json();
    let text = serde_json::to_string_pretty(&served).unwrap() + "\n";
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(committed(), &text).unwrap();
    }
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(committed()).unwrap()).unwrap();
    assert_eq!(served, kept, "run this test with UPDATE_EXPECT=1 to write docs/openapi.json anew");
}

#[tokio::test]
async fn schemathesis_finds_no_answer_that_is_not_described() {
    let tool = support::python::with("schemathesis", "schemathesis==4.32.5").join("bin/schemathesis");
    let home = Home::with_notes(3);
    let serving = Serving::of(&home).await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    let ran = Command::new(tool)
        .args(["run", &format!("http://{}/api/openapi.json", serving.address)])
        // A stream of events has no end to wait for.
        .args(["--exclude-path", "/api/events", "--max-examples", "15", "--seed", "7", "--workers", "1"])
        .args(["--phases", "examples,coverage,fuzzing", "--request-timeout", "30", "--no-color"])
        .current_dir(home.path(""))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{text}\n{}\n{}", String::from_utf8_lossy(&ran.stderr), serving.said());
    serving.get("/healthz").await.is(200);
}
