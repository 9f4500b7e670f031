//! A server with something of everything: true, held, failing and paused pipelines, a history, a dead letter.

use crate::cli::home::Home;
use crate::server::rig::Serving;

const CONFIG: &str = r#"
[stores]
registry = "sqlite:.trueup/registry.db"
objects  = "file:objects"

[pipelines.policies]
from  = { files = "policies" }
into  = "registry"
then  = [{ export = "objects" }, { command = ["sh", "-c", "test ! -e broken"] }]
guard = { max_delete = "30%", above = 10 }
when  = "0 16 * * *"

[pipelines.handbook]
from = { files = "handbook" }
into = "sqlite:.trueup/handbook.db"
when = "0 16 * * *"

[pipelines.notices]
from = { files = "notices" }
into = "sqlite:.trueup/notices.db"
when = "0 */6 * * *"

[pipelines.minutes]
from = { files = "minutes" }
into = "sqlite:.trueup/minutes.db"
when = "0 7 * * MON"

[pipelines.drafts]
from = { files = "handbook" }
into = "sqlite:.trueup/drafts.db"
"#;

pub const NOW: &str = "2026-03-12T12:00:00Z";

pub fn policy(number: usize, text: &str) -> (String, String) {
    let name = format!("policies/regulation-{number:02}.md");
    (name, format!("# Regulation {number}\n\n{text}\n\nIt is read by everybody.\n"))
}

fn write(home: &Home, (name, text): (String, String)) {
    home.write(&name, &text);
}

pub fn set() -> Home {
    let home = Home::new(CONFIG);
    for number in 0..40 {
        write(&home, policy(number, "Everybody may read this."));
    }
    home.write("handbook/start.md", "# Welcome\n");
    home.write("notices/a.md", "a\n");
    home.write("minutes/2026-03.md", "# March\n");
    for day in 1..=9 {
        for chapter in 0..(day * 5) % 13 {
            home.write(
                &format!("handbook/chapter-{chapter:02}.md"),
                &format!("# Chapter {chapter}, day {day}\n"),
            );
        }
        home.run(&["sync", "handbook", "--now", &format!("2026-03-0{day}T16:00:12Z")]).ends(0);
    }
    home.run(&["sync", "policies", "notices", "minutes", "--now", "2026-03-09T16:00:00Z"]).ends(0);
    std::fs::remove_dir_all(home.path("notices")).unwrap();
    // A follow-up that is given up, then thirty policies gone at once.
    home.write("broken", "");
    write(&home, policy(35, "Everybody <should> read this."));
    home.run(&["sync", "policies", "--now", "2026-03-10T16:00:00Z"]);
    for _ in 0..2 {
        home.run(&["queue", "work", "--now", "2026-03-10T17:00:00Z"]);
    }
    for number in 0..30 {
        home.remove(&format!("policies/regulation-{number:02}.md"));
    }
    home.run(&["sync", "policies", "--now", "2026-03-11T16:00:04Z"]);
    home.run(&["sync", "notices", "--now", "2026-03-12T06:00:00Z"]).ends(1);
    write(&home, policy(36, "Nobody may change this."));
    home.write("policies/regulation-40.md", "# Regulation 40\n");
    home
}

/// Served, with the schedule of one pipeline paused.
pub async fn serve(home: &Home) -> Serving {
    let serving = Serving::with(home, &["--now", NOW], &[]).await;
    serving.post("/api/pipelines/minutes/pause", None).await.is(200);
    serving
}
