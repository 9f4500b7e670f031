//! Several boards, and what happens when some of them fail.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::desk::{Desk, SAMPLE, counts, feed, item};
use crate::support::http::{Reply, Request, Server};
use crate::support::{trueup, until};

const SIX: &str = "25,26,11,207,28,256";

fn board(request: &Request) -> &str {
    request.path.rsplit_once("bbsNo=").unwrap().1
}

/// One article per board, numbered as the board.
fn article(request: &Request) -> Reply {
    Reply::ok(feed(&item(board(request), "2025-10-16", "<p>글</p>")))
}

#[tokio::test]
async fn s06_a_board_that_times_out_does_not_stop_the_other_five() {
    let mut desk =
        Desk::new(SIX, |request| if board(request) == "11" { Reply::silence() } else { article(request) });
    desk.timeout = "2s";
    let report = desk.sync().await;
    assert_eq!(counts(&report), (5, 0, 0, 0, 0, 1));
    assert_eq!((report.status.name(), report.exit_code()), ("partial", 3));
    // Who gave up may be ahead of the server, which notes a request when it reads it.
    until("every attempt was noted", || desk.server.count("bbsNo=11") >= 4).await;
    assert_eq!(desk.server.count("bbsNo=11"), 4);
    assert_eq!(desk.keys().await.len(), 5);
    let said = &report.errors[0];
    assert_eq!(said.scope.as_deref(), Some("11"));
    let url = desk.server.url("/rss.do?bbsNo=11");
    assert!(said.message.contains("board 11") && said.message.contains(&url), "{}", said.message);
}

#[tokio::test]
async fn s07_when_every_board_is_gone_the_run_fails_after_one_request_each() {
    let desk = Desk::new(SIX, |_| Reply::status(404));
    let report = desk.sync().await;
    assert_eq!((report.status.name(), report.exit_code()), ("failed", 1));
    assert_eq!(report.counts.unproven, 6);
    assert_eq!(desk.server.requests().len(), 6);
    assert!(desk.keys().await.is_empty());
}

#[tokio::test]
async fn s08_one_board_down_and_nothing_new_elsewhere_is_partial() {
    let desk = Desk::new(SIX, article);
    assert_eq!(desk.sync().await.counts.added, 6);
    desk.server.answer(|request| if board(request) == "28" { Reply::status(500) } else { article(request) });
    let report = desk.sync().await;
    assert_eq!(counts(&report), (0, 0, 5, 0, 0, 1));
    assert_eq!((report.status.name(), report.exit_code()), ("partial", 3));
    assert_eq!(desk.keys().await.len(), 6);
}

#[tokio::test]
async fn s09_a_server_that_recovers_is_asked_again_after_one_and_two_seconds() {
    let mut answers = [Reply::status(503), Reply::status(503)].into_iter();
    let desk = Desk::new("25", move |request| answers.next().unwrap_or_else(|| article(request)));
    let report = desk.sync().await;
    assert_eq!((counts(&report), report.exit_code()), ((1, 0, 0, 0, 0, 0), 0));
    assert_eq!((desk.server.requests().len(), report.requests), (3, 3));
    assert!((3_000..=3_750).contains(&desk.clock.slept_ms()), "{}", desk.clock.slept_ms());
}

#[tokio::test]
async fn a_server_that_asks_for_patience_gets_it() {
    let mut answers = [Reply::status(429).header("Retry-After", "30")].into_iter();
    let desk = Desk::new("25", move |request| answers.next().unwrap_or_else(|| article(request)));
    assert_eq!(desk.sync().await.counts.added, 1);
    assert_eq!(desk.clock.slept_ms(), 30_000);
}

#[tokio::test]
async fn other_refusals_are_not_asked_again() {
    for (status, code) in [(400, 1), (401, 6), (403, 6), (410, 1)] {
        let desk = Desk::new("25", move |_| Reply::status(status));
        assert_eq!((desk.sync().await.exit_code(), desk.server.requests().len()), (code, 1), "{status}");
    }
}

#[test]
fn s22_boards_are_trimmed_once_each_and_never_none() {
    let run = |boards: &str, base: &str| {
        let folder = crate::support::temp();
        let init = trueup().args(["init", "boards"]).current_dir(folder.path()).output().unwrap();
        assert!(init.status.success(), "{init:?}");
        // The variable alone, without the recipe's default: an empty one is then empty. And time for an answer.
        let file = folder.path().join("trueup.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.replace("${BOARD_IDS:-25,26,11,207,28,256}\"", "${BOARD_IDS}\", timeout = \"60s\"");
        std::fs::write(&file, text.replace("file:.trueup/objects", "sqlite:.trueup/objects.db")).unwrap();
        trueup()
            .args(["sync", "--json"])
            .env("BOARD_IDS", boards)
            .env("RSS_FEED_BASE_URL", base)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let server = crate::support::http::Server::start(article);
    let ran = run(" 25, ,26,25", &server.url("/rss.do"));
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let asked: Vec<String> = server.requests().iter().map(|request| request.path.clone()).collect();
    assert_eq!(asked, ["/rss.do?bbsNo=25", "/rss.do?bbsNo=26"]);
    for wrong in ["", ",", " ", "25;26", "25/../26"] {
        let refused = run(wrong, &server.url("/rss.do"));
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {refused:?}");
    }
}

#[test]
fn s22_an_empty_list_of_boards_is_a_mistake_in_the_config() {
    for boards in ["\"\"", "[]", "[\"\"]", "\" , \""] {
        let text = format!(
            "[pipelines.b]\nfrom = {{ rss = \"https://h/r\", boards = {boards} }}\nas = \"article\"\ninto = \"memory:\"\n"
        );
        let error =
            trueup::config::Config::parse(&text, std::path::Path::new("trueup.toml"), &|_| None).unwrap_err();
        assert_eq!(error.kind(), trueup::error::Kind::Config, "{boards}");
        assert!(error.to_string().contains("names no board"), "{error}");
    }
}

#[tokio::test]
async fn a_feed_that_did_not_change_is_not_read_again_and_nothing_is_lost() {
    let desk = Desk::new("25", |request| match request.headers.get("if-none-match").map(String::as_str) {
        Some("\"v1\"") => Reply::status(304),
        _ => {
            article(request).header("ETag", "\"v1\"").header("Last-Modified", "Thu, 16 Oct 2025 10:00:00 GMT")
        }
    });
    desk.sync().await;
    let report = desk.sync().await;
    assert_eq!((counts(&report), report.exit_code()), ((0, 0, 1, 0, 0, 0), 0));
    let asked: BTreeMap<String, String> = desk.server.requests().pop().unwrap().headers;
    assert_eq!(asked["if-modified-since"], "Thu, 16 Oct 2025 10:00:00 GMT");
    assert_eq!(desk.keys().await.len(), 1);
}

#[tokio::test]
async fn what_a_feed_no_longer_shows_stays_in_the_archive() {
    let desk = Desk::new("25", article);
    desk.sync().await;
    desk.server.answer(|_| Reply::ok(feed("")));
    let report = desk.sync().await;
    assert_eq!((counts(&report), report.exit_code()), ((0, 0, 0, 0, 0, 0), 0));
    assert_eq!(desk.keys().await.len(), 1);
}

#[tokio::test]
async fn six_boards_of_five_articles_take_no_time_beside_the_network() {
    let five = |request: &Request| {
        let items: String =
            (0..5).map(|n| item(&format!("{}{n}", board(request)), "2025-10-16", "<p>글</p>")).collect();
        Reply::ok(feed(&items))
    };
    let desk = Desk::new(SIX, five);
    assert_eq!(desk.sync().await.counts.added, 30);
    assert_eq!(desk.clock.slept_ms(), Duration::ZERO.as_millis() as u64);
}

/// A host that is down is not waited for with each of its boards; a board of another host is asked as ever.
#[tokio::test]
async fn a_host_that_stops_answering_is_not_waited_for_with_every_board() {
    let mut desk = Desk::new("", |_| Reply::status(503));
    let other = Server::start(|_| Reply::ok(SAMPLE));
    let down: Vec<String> =
        (0..40).map(|board| format!("\"{}\"", desk.server.url(&format!("/{board}")))).collect();
    let from = format!("rss = [{}, \"{}\"], timeout = \"60s\"", down.join(", "), other.url("/rss"));
    desk.whole_from = Some(from);
    let report = desk.sync().await;
    assert_eq!((report.counts.unproven, report.counts.added), (40, 3), "{report:?}");
    assert_eq!(desk.server.requests().len(), 20 * 4 + 20);
}

/// What the hook was told so far, oldest first.
fn told(hook: &Server) -> Vec<Value> {
    hook.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
}

#[test]
fn a_board_that_fails_three_runs_in_a_row_is_told_to_the_hook_once_until_it_is_back() {
    let hook = Server::start(|_| Reply::status(204));
    let desk = Desk::new(SIX, article);
    let config = desk.folder.path().join("trueup.toml");
    let notify = format!("notify = {{ webhook = \"{}\", after = 3 }}\n", hook.url("/notices"));
    std::fs::write(&config, desk.config() + &notify).unwrap();
    let sync = || trueup().arg("sync").arg("--config").arg(&config).output().unwrap().status.code();
    assert_eq!((sync(), told(&hook).len()), (Some(0), 0));
    // Another board fails now and then: that is not in a row.
    for (run, other) in ["26", "11", "26", "11"].into_iter().enumerate() {
        let down = move |request: &Request| ["28", other].contains(&board(request));
        desk.server.answer(move |request| if down(request) { Reply::status(404) } else { article(request) });
        assert_eq!(sync(), Some(3));
        assert_eq!(told(&hook).len(), usize::from(run >= 2), "after the third, once");
    }
    let notice = &told(&hook)[0];
    assert_eq!((&notice["event"], &notice["status"]), (&json!("partial"), &json!("partial")), "{notice}");
    assert_eq!(notice["scopes"], json!({ "26": 1, "28": 3 }), "{notice}");
    assert!(notice["text"].as_str().unwrap().contains("28 3 times"), "{notice}");
    desk.server.answer(article);
    assert_eq!(sync(), Some(0));
    assert_eq!(told(&hook)[1]["event"], "recovered");
}

#[test]
fn a_run_is_summed_up_in_articles_and_boards() {
    let desk = Desk::new(SIX, article);
    let config = desk.folder.path().join("trueup.toml");
    std::fs::write(&config, desk.config()).unwrap();
    let says = || {
        let output = trueup().arg("sync").arg("--config").arg(&config).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = says();
    assert!(said.contains("6 articles saved, 0 skipped, 0 boards failed"), "{said}");
    desk.server.answer(|request| if board(request) == "28" { Reply::status(404) } else { article(request) });
    let said = says();
    assert!(said.contains("0 articles saved, 5 skipped, 1 board failed"), "{said}");
}
