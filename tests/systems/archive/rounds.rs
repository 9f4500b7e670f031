//! Several runs: changed dates, two at once, and what is old.

use std::collections::BTreeSet;

use trueup::pipeline::Ask;
use trueup::pipeline::audit::Budget;

use super::desk::{Desk, counts, feed, item};
use crate::support::http::Reply;
use crate::support::trueup;

#[tokio::test]
async fn s20_another_date_makes_no_second_file() {
    let desk = Desk::serving(feed(&item("7", "2025-10-16", "x")));
    desk.sync().await;
    let before = desk.files().await;
    let moved = feed(&item("7", "2025-10-17", "x"));
    desk.server.answer(move |_| Reply::ok(moved.clone()));
    desk.a_day_later();
    let report = desk.sync().await;
    assert_eq!((counts(&report), report.exit_code()), ((0, 0, 1, 0, 0, 0), 0));
    assert!(report.warnings.iter().any(|text| text.contains("date changed")), "{:?}", report.warnings);
    assert_eq!(desk.files().await, before);
}

#[test]
fn s21_two_processes_at_once_create_each_key_once() {
    let items: String = (1..=40).map(|n| item(&n.to_string(), "2025-10-16", "<p>x</p>")).collect();
    let desk = Desk::serving(feed(&items));
    let start = |n: u32| {
        // Two machines: each has its own memory, the store is one.
        let state = desk.config().replace("state.db", &format!("state-{n}.db"));
        let config = desk.folder.path().join(format!("{n}.toml"));
        std::fs::write(&config, state).unwrap();
        let now = format!("2025-10-16T16:00:0{n}Z");
        let mut command = trueup();
        command.args(["sync", "--json", "--now", &now, "--config", config.to_str().unwrap()]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (1..=2).map(start).collect();
    let mut added = 0;
    let mut there = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        let run = &serde_json::from_str::<serde_json::Value>(&said).unwrap()["runs"][0];
        let number = |name: &str| run[name].as_u64().unwrap();
        added += number("added");
        there += number("unchanged") + number("skipped");
    }
    assert_eq!((added, there), (40, 40));
}

#[tokio::test]
async fn s23_what_is_older_than_kept_goes_and_stays_away() {
    let mut desk =
        Desk::serving(feed(&[item("1", "2022-02-27", "a"), item("2", "2022-02-28", "b")].concat()));
    desk.clock = trueup::clock::TestClock::at("2024-02-28T16:00:00Z", 1); // the leap day, in Seoul
    desk.sync().await;
    assert_eq!(desk.keys().await.len(), 2);
    desk.shape = "keep = \"2y\"";
    let report = desk.sync().await;
    assert_eq!((report.counts.deleted, report.counts.skipped, report.exit_code()), (1, 0, 0), "{report:?}");
    assert_eq!(desk.keys().await, ["rss/25/2022_02_28_2.md"]);
    let again = desk.sync().await;
    assert_eq!((again.counts.deleted, again.counts.skipped, again.exit_code()), (0, 1, 0), "{again:?}");
    assert_eq!(desk.keys().await, ["rss/25/2022_02_28_2.md"]);
}

#[tokio::test]
async fn what_is_too_old_is_no_news_to_a_plan_nor_stale_to_an_audit() {
    let old = item("1", "2020-01-01", "old");
    let mut desk = Desk::serving(feed(&[old.clone(), item("2", "2025-10-16", "new")].concat()));
    desk.shape = "keep = \"1y\", on_edit = \"update\"";
    for added in [1, 0] {
        let plan = desk.line().await.preview(&Ask::plain("plan")).await.unwrap();
        assert_eq!((plan.add.len() as u64, plan.writes, plan.skipped), (added, added, 1), "{plan:?}");
        let report = desk.sync().await;
        assert_eq!((counts(&report), report.exit_code()), ((added, 0, 1 - added, 1, 0, 0), 0), "{report:?}");
        let audit = desk.line().await.audit(Budget::default(), None).await.unwrap();
        assert!(audit.is_clean(), "{audit:?}");
    }
    // One that is saved gets a day, and a text, of long ago: its file stays as it is.
    let moved = feed(&[old, item("2", "2020-01-01", "edited")].concat());
    desk.server.answer(move |_| Reply::ok(moved.clone()));
    let plan = desk.line().await.preview(&Ask::plain("plan")).await.unwrap();
    assert_eq!((plan.writes, plan.unchanged, plan.skipped), (0, 1, 1), "{plan:?}");
    assert!(desk.line().await.audit(Budget::default(), None).await.unwrap().is_clean());
    assert_eq!(counts(&desk.sync().await), (0, 0, 1, 1, 0, 0));
}

#[tokio::test]
async fn s23_thousands_of_old_files_go_at_once_and_foreign_ones_stay() {
    let mut desk = Desk::serving(feed(&item("1", "2025-10-16", "a")));
    desk.shape = "keep = \"2y\"";
    let old = |n: u32| format!("rss/25/2020_{:02}_{:02}_{n}.md", n % 12 + 1, n % 28 + 1);
    let foreign =
        ["rss/25/notes.md", "rss/25/2020_02_31_5.md", "else/2020_01_01_1.md", "rss/25/2020_01_01_1.txt"];
    desk.put((0..2_500).map(old)).await;
    desk.put(foreign.map(str::to_owned)).await;
    let report = desk.sync().await;
    assert_eq!(
        (report.counts.added, report.counts.deleted, report.counts.held, report.exit_code()),
        (1, 2_500, 0, 0)
    );
    let left: BTreeSet<String> = desk.keys().await.into_iter().collect();
    let expected = foreign.into_iter().chain(["rss/25/2025_10_16_1.md"]).map(str::to_owned).collect();
    assert_eq!(left, expected);
}

/// A board that answers 304 for as long as it says the same.
fn with_etag(desk: &Desk, etag: &'static str, said: String) {
    desk.server.answer(move |request| match request.headers.get("if-none-match") {
        Some(known) if known == etag => Reply::status(304),
        _ => Reply::ok(said.clone()).header("ETag", etag),
    });
}

#[tokio::test]
async fn what_the_feed_dates_anew_is_kept_by_its_new_date() {
    let mut desk = Desk::serving(feed(&item("7", "2025-10-16", "x")));
    desk.shape = "keep = \"30d\"";
    desk.sync().await;
    with_etag(&desk, "\"v2\"", feed(&item("7", "2025-11-10", "x")));
    desk.clock = trueup::clock::TestClock::at("2025-11-10T16:00:00Z", 2);
    desk.sync().await;
    for (day, there) in [("2025-11-30", 1), ("2025-12-10", 1), ("2025-12-12", 0)] {
        desk.clock = trueup::clock::TestClock::at(&format!("{day}T00:00:00Z"), 3);
        let report = desk.sync().await;
        assert_eq!((desk.keys().await.len(), report.exit_code()), (there, 0), "{day}: {report:?}");
    }
}

/// The day its file would go is the day the feed gives it another.
#[tokio::test]
async fn what_is_dated_anew_when_its_time_is_over_stays() {
    let mut desk = Desk::serving(feed(&item("7", "2025-10-16", "x")));
    desk.shape = "keep = \"30d\"";
    desk.sync().await;
    with_etag(&desk, "\"v2\"", feed(&item("7", "2025-12-01", "x")));
    for day in ["2025-12-01", "2025-12-02"] {
        desk.clock = trueup::clock::TestClock::at(&format!("{day}T16:00:00Z"), 2);
        let report = desk.sync().await;
        assert_eq!((report.counts.deleted, report.exit_code()), (0, 0), "{day}: {report:?}");
        assert_eq!(desk.keys().await, ["rss/25/2025_10_16_7.md"]);
    }
}

#[tokio::test]
async fn other_settings_count_although_the_feed_did_not_change() {
    let items = [item("1", "2022-01-01", "old"), item("2", "2025-10-16", "first")].concat();
    let mut desk = Desk::serving("");
    with_etag(&desk, "\"v1\"", feed(&items));
    desk.shape = "keep = \"1y\"";
    desk.sync().await;
    assert_eq!(desk.keys().await, ["rss/25/2025_10_16_2.md"]);
    desk.shape = "keep = \"10y\"";
    assert_eq!(desk.sync().await.counts.added, 1, "what was too old is not any more");
    with_etag(&desk, "\"v2\"", feed(&items.replace("first", "second")));
    desk.sync().await;
    assert!(desk.files().await["rss/25/2025_10_16_2.md"].contains("first"), "edited, and kept");
    desk.shape = "keep = \"10y\", on_edit = \"update\"";
    let report = desk.sync().await;
    assert_eq!((report.counts.updated, report.counts.unchanged), (1, 1), "{report:?}");
    assert!(desk.files().await["rss/25/2025_10_16_2.md"].contains("second"));
    let before = desk.server.requests().len();
    assert_eq!(desk.sync().await.counts.unchanged, 2);
    let asked = &desk.server.requests()[before];
    assert_eq!(asked.headers.get("if-none-match").map(String::as_str), Some("\"v2\""), "as before");
}

fn forget_everything(desk: &Desk) {
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(desk.folder.path().join(format!("state.db{end}")));
    }
}

#[tokio::test]
async fn another_date_makes_no_second_file_after_the_state_was_lost() {
    for on_edit in ["keep", "update"] {
        let mut desk = Desk::serving(feed(&item("7", "2025-10-16", "first")));
        desk.shape = if on_edit == "keep" { "" } else { "on_edit = \"update\"" };
        desk.sync().await;
        forget_everything(&desk);
        // It comes back into the feed some runs later.
        let other = feed(&item("8", "2025-10-17", "x"));
        desk.server.answer(move |_| Reply::ok(other.clone()));
        desk.a_day_later();
        desk.sync().await;
        let moved = feed(&item("7", "2025-10-18", "second"));
        desk.server.answer(move |_| Reply::ok(moved.clone()));
        let report = desk.sync().await;
        assert_eq!((report.counts.added, report.exit_code()), (0, 0), "{report:?}");
        let files = desk.files().await;
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(names, ["rss/25/2025_10_16_7.md", "rss/25/2025_10_17_8.md"]);
        let said = if on_edit == "keep" { "first" } else { "second" };
        assert!(files["rss/25/2025_10_16_7.md"].contains(said), "{on_edit}");
        let again = desk.sync().await;
        assert_eq!((again.counts.unchanged, again.warnings.len()), (1, 0), "{again:?}");
    }
}

/// A file that was taken over as it was is not what the article says.
#[tokio::test]
async fn an_edit_that_was_kept_after_the_state_was_lost_is_made_up_for() {
    let mut desk = Desk::serving(feed(&item("7", "2025-10-16", "first")));
    desk.sync().await;
    forget_everything(&desk);
    let edited = feed(&item("7", "2025-10-16", "second"));
    desk.server.answer(move |_| Reply::ok(edited.clone()));
    let says = async |desk: &Desk| desk.files().await["rss/25/2025_10_16_7.md"].contains("second");
    for _ in 0..3 {
        desk.a_day_later();
        let report = desk.sync().await;
        assert_eq!((report.counts.unchanged, report.writes), (1, 0), "{report:?}");
        assert!(!says(&desk).await, "it is to be kept");
    }
    desk.shape = "on_edit = \"update\"";
    desk.a_day_later();
    assert_eq!(desk.sync().await.counts.updated, 1);
    assert!(says(&desk).await);
    desk.a_day_later();
    assert_eq!(desk.sync().await.writes, 0);
}

#[tokio::test]
async fn a_bucket_from_before_is_recognised_by_ids() {
    let mut desk = Desk::serving(feed(
        &[item("7", "2025-10-15", "x"), item("8", "2025-10-16", "x"), item("9", "2025-10-16", "x")].concat(),
    ));
    desk.shape = "keep = \"30d\"";
    // One under another day, one under this, and one whose time is over.
    desk.put(
        ["rss/25/2025_10_14_7.md", "rss/25/2025_10_16_8.md", "rss/25/2025_01_01_9.md"].map(str::to_owned),
    )
    .await;
    let report = desk.sync().await;
    assert_eq!((counts(&report), report.counts.deleted), ((1, 0, 2, 0, 0, 0), 1), "{report:?}");
    assert_eq!(desk.sync().await.counts.unchanged, 3);
    let names = ["rss/25/2025_10_14_7.md", "rss/25/2025_10_16_8.md", "rss/25/2025_10_16_9.md"];
    assert_eq!(desk.keys().await, names);
    let theirs = desk.files().await.into_values().filter(|file| file == "by somebody else").count();
    assert_eq!(theirs, 2, "what is there stays as it is");
}
