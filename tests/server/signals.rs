//! How it ends: asked to, and killed.

use super::rig::Serving;
use crate::cli::home::Home;
use crate::support;

/// Writes slowly, so that there is something in flight: one follow-up command per note.
fn slow(when: &str) -> Home {
    let home = Home::new(&format!(
        "[pipelines.notes]\nfrom = {{ files = \"notes\" }}\ninto = \"sqlite:.trueup/r.db\"\n\
         then = {{ command = [\"sh\", \"-c\", \"echo $TRUEUP_KEY >> done; while test -e gate; do sleep 0.05; done\"] }}\n{when}\n"
    ));
    for number in 0..4 {
        home.write(&format!("notes/{number}.md"), "x\n");
    }
    home
}

#[tokio::test]
async fn sigterm_ends_it_with_0_and_lets_go_of_listeners() {
    let home = Home::with_notes(1);
    let mut serving = Serving::of(&home).await;
    let events = serving.client().get(format!("http://{}/api/events", serving.address)).send().await.unwrap();
    assert_eq!(events.status(), 200);
    serving.signal("TERM");
    assert_eq!(serving.ended().await, 0, "{}", serving.said());
    assert!(events.text().await.unwrap().contains("listening"), "the stream ended as streams end");
}

/// A server that was asked to stop while a follow-up of its is under way; the gate keeps that from ending.
async fn stopped_at_work() -> (Home, Serving) {
    let home = slow("");
    home.write("gate", "");
    let serving = Serving::of(&home).await;
    serving.post("/api/pipelines/notes/start", None).await.is(202);
    support::until("a follow-up to be under way", || home.path("done").exists()).await;
    serving.signal("TERM");
    support::until("the stop to be heard", || serving.said().contains("stopping")).await;
    (home, serving)
}

#[tokio::test]
async fn work_in_flight_finishes_before_it_ends() {
    let (home, mut serving) = stopped_at_work().await;
    home.remove("gate");
    assert_eq!(serving.ended().await, 0, "{}", serving.said());
    let runs = home.run(&["runs", "--json"]).ends(0).json();
    assert_ne!(runs["runs"][0]["status"], "running", "{runs}");
    assert!(home.run(&["status", "--json"]).ends(0).json()["pipelines"][0]["running"] == false);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let (home, mut serving) = stopped_at_work().await;
    serving.signal("TERM");
    assert_eq!(serving.ended().await, 130);
    home.remove("gate");
}

#[tokio::test]
async fn a_slot_whose_process_was_killed_is_taken_up_by_the_next() {
    let home = slow("when = \"0 16 * * *\"");
    drop(Serving::with(&home, &["--now", "2026-01-10T12:00:00Z"], &[]).await);
    home.write("gate", "");
    let mut serving = Serving::with(&home, &["--now", "2026-01-10T16:30:00Z"], &[]).await;
    support::until("the missed slot to be under way", || home.path("done").exists()).await;
    serving.signal("KILL");
    serving.ended().await;
    home.remove("gate");
    let serving = Serving::with(&home, &["--now", "2026-01-10T16:31:00Z"], &[]).await;
    let finished = async || {
        let runs = serving.get("/api/runs").await.is(200).json();
        runs["runs"][0]["status"] == "ok" && runs["runs"].as_array().unwrap().len() == 2
    };
    assert!(support::eventually(finished).await, "{}", serving.said());
    drop(serving);
    // Finished is finished.
    let serving = Serving::with(&home, &["--now", "2026-01-10T16:40:00Z"], &[]).await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    assert_eq!(serving.get("/api/runs").await.json()["runs"].as_array().unwrap().len(), 3);
}
