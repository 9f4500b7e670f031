//! The schedule of a real process: slots, catching up, pauses, and `/__scheduled`.

use jiff::Timestamp;
use serde_json::Value;
use trueup::clock::{SystemClock, rfc3339_ms};

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

/// The slots that were taken to be run, as its log (in JSON) has them.
fn due(serving: &Serving) -> Vec<Timestamp> {
    let said = serving.said();
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["message"] == "due")
        .map(|line| line["slot"].as_str().unwrap().parse().unwrap())
        .collect()
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

/// Its slot was years ahead, and until then there was none.
#[tokio::test]
async fn a_clock_that_was_ahead_once_does_not_stop_the_schedule() {
    let home = notes("when = \"* * * * * *\"");
    drop(Serving::with(&home, &["--now", "2031-01-01T00:00:00Z"], &[]).await);
    let serving = Serving::of(&home).await;
    let ran = support::eventually(async || !runs(&serving).await.is_empty()).await;
    assert!(ran, "{}", serving.said());
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

/// Nobody else would run it: the next one is a day away.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_comes_up_while_the_state_is_away_is_run_when_it_is_back() {
    let state = support::postgres().await.fresh_database();
    let (before, after) = state.split_once('@').unwrap();
    let (server, database) = after.split_once('/').unwrap();
    let proxy = support::proxy::Proxy::before(server).await;
    let store = format!("{before}@{}/{database}", proxy.address());
    let soon = SystemClock::new().now().to_zoned(jiff::tz::TimeZone::UTC) + jiff::Span::new().seconds(12);
    let home = notes(&format!(
        "when = \"{} {} {} * * *\"\n[state]\nstore = \"{store}\"",
        soon.second(),
        soon.minute(),
        soon.hour()
    ));
    let serving = Serving::of(&home).await;
    proxy.change(|weather| weather.refuse = true);
    proxy.cut();
    support::until("the slot to come up", || serving.said().contains("run not started")).await;
    proxy.clear_up();
    let ran = support::eventually(async || !runs(&serving).await.is_empty()).await;
    assert!(ran, "{}", serving.said());
}

#[tokio::test]
async fn a_paused_pipeline_waits_and_a_resumed_one_does_not_make_up() {
    let home = notes("when = \"* * * * * *\"");
    let serving = Serving::with(&home, &["--log-format", "json"], &[]).await;
    let paused = serving.post("/api/pipelines/notes/pause", None).await.is(200).json();
    assert!(paused["paused"].is_string() && paused["next"].is_null(), "{paused}");
    // A slot that came up before this instant may still be run, however late.
    let paused = SystemClock::new().now();
    support::until("slots to be passed over", || serving.said().matches("slot passed over").count() > 2)
        .await;
    let status = home.run(&["status"]).ends(0).out;
    assert!(status.contains("paused"), "{status}");
    let asked = SystemClock::new().now();
    let resumed = serving.post("/api/pipelines/notes/resume", None).await.is(200).json();
    assert!(resumed["paused"].is_null() && resumed["next"].is_string(), "{resumed}");
    support::until("a slot to be taken again", || due(&serving).iter().any(|slot| *slot > asked)).await;
    let since = rfc3339_ms(asked);
    let ran = async || runs(&serving).await.iter().any(|run| run["started"].as_str() > Some(since.as_str()));
    assert!(support::eventually(ran).await, "{}", serving.said());
    let unwanted: Vec<_> =
        due(&serving).into_iter().filter(|slot| *slot > paused && *slot <= asked).collect();
    assert!(unwanted.is_empty(), "slots of the pause were run: {unwanted:?}");
}

#[tokio::test]
async fn the_expression_of_a_pipeline_triggers_it() {
    let home = notes("when = \"0 16 * * *\"");
    // At an instant at which nothing is due.
    let serving = Serving::with(&home, &["--now", "2026-01-10T12:00:00Z"], &[]).await;
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
