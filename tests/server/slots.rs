//! The schedule of a real process: slots, catching up, pauses, and `/__scheduled`.

use serde_json::Value;

use super::rig::Serving;
use crate::cli::home::Home;
use crate::support;

fn notes(when: &str) -> Home {
    let home = Home::new(&format!(
        "[stores]\nregistry = \"sqlite:.trueup/registry.db\"\n[pipelines.notes]\nfrom = {{ files = \"notes\" }}\ninto = \"registry\"\n{when}\n"
    ));
    home.write("notes/a.md", "a\n");
    home
}

async fn runs(serving: &Serving) -> Vec<Value> {
    serving.get("/api/runs").await.is(200).json()["runs"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_slot_that_comes_up_is_run() {
    let home = notes("when = \"* * * * * *\"");
    let serving = Serving::of(&home).await;
    let ran = support::eventually(async || runs(&serving).await.len() >= 2).await;
    assert!(ran, "{}", serving.said());
    assert!(runs(&serving).await.iter().all(|run| run["trigger"] == "schedule"));
    assert_eq!(home.keys("registry"), ["a.md"]);
}

#[tokio::test]
async fn a_slot_missed_while_nobody_was_there_is_run_once_at_the_start() {
    let home = notes("when = \"0 16 * * *\"");
    drop(Serving::with(&home, &["--now", "2026-01-10T12:00:00Z"], &[]).await);
    let serving = Serving::with(&home, &["--now", "2026-01-12T12:00:00Z"], &[]).await;
    // It began and came to its end: one that is cut off is taken up again.
    let ended = async || runs(&serving).await.first().is_some_and(|run| run["status"] == "ok");
    assert!(support::eventually(ended).await, "{}", serving.said());
    drop(serving);
    let serving = Serving::with(&home, &["--now", "2026-01-12T12:30:00Z"], &[]).await;
    let next = serving.get("/api/pipelines/notes").await.is(200).json();
    assert_eq!(next["next"], "2026-01-12T16:00:00.000Z", "{next}");
    assert_eq!(runs(&serving).await.len(), 1, "the slot was run before");
}

#[tokio::test]
async fn without_catch_up_a_missed_slot_is_gone() {
    let home = notes("when = \"0 16 * * *\"\ncatch_up = false");
    drop(Serving::with(&home, &["--now", "2026-01-10T12:00:00Z"], &[]).await);
    let serving = Serving::with(&home, &["--now", "2026-01-12T12:00:00Z"], &[]).await;
    // The run a person asks for comes after everything the start would have done.
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    let triggers: Vec<Value> = runs(&serving).await.iter().map(|run| run["trigger"].clone()).collect();
    assert_eq!(triggers, ["api"]);
}

#[tokio::test]
async fn a_paused_pipeline_waits_and_a_resumed_one_does_not_make_up() {
    let home = notes("when = \"* * * * * *\"");
    let serving = Serving::of(&home).await;
    let paused = serving.post("/api/pipelines/notes/pause", None).await.is(200).json();
    assert!(paused["paused"].is_string() && paused["next"].is_null(), "{paused}");
    support::until("a slot to be passed over", || serving.said().contains("slot passed over")).await;
    let before = runs(&serving).await.len();
    let mark = serving.said().matches("slot passed over").count();
    support::until("more of them", || serving.said().matches("slot passed over").count() > mark + 1).await;
    assert_eq!(runs(&serving).await.len(), before);
    let status = home.run(&["status"]).ends(0).out;
    assert!(status.contains("paused"), "{status}");
    let resumed = serving.post("/api/pipelines/notes/resume", None).await.is(200).json();
    assert!(resumed["paused"].is_null() && resumed["next"].is_string(), "{resumed}");
    assert!(support::eventually(async || runs(&serving).await.len() > before).await);
}

#[tokio::test]
async fn the_expression_of_a_pipeline_triggers_it() {
    let home = notes("when = \"0 16 * * *\"");
    let serving = Serving::of(&home).await;
    let ran = serving.get("/__scheduled?cron=0+16+*+*+*").await.is(200).json();
    assert_eq!(ran["runs"][0]["added"], 1, "{ran}");
    serving.get("/__scheduled?cron=0+17+*+*+*").await.refused(404, "not_found");
    serving.get("/__scheduled").await.refused(400, "config");
    let cross = [("sec-fetch-site", "cross-site")];
    serving.ask("GET", "/__scheduled?cron=0+16+*+*+*", &cross, None).await.refused(403, "unauthorized");
    assert_eq!(runs(&serving).await.len(), 1);
}

#[tokio::test]
async fn a_disabled_pipeline_is_never_due() {
    let home = notes("when = \"* * * * * *\"\nenabled = false");
    let serving = Serving::of(&home).await;
    let one = serving.get("/api/pipelines/notes").await.is(200).json();
    assert!(one["next"].is_null() && one["enabled"] == false, "{one}");
    serving.get("/__scheduled?cron=*+*+*+*+*+*").await.refused(404, "not_found");
}
