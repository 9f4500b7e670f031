//! Previews of attachments: asked for with a token, missed softly, added once when they can be had.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trueup::store::{Item, Mode};

use super::desk::{Desk, SAMPLE, counts, feed, item};
use crate::support::http::{Reply, Request};

const KEY: &str = "rss/25/2025_10_15_77560.md";

fn answer(request: &Request, second_works: bool) -> Reply {
    let Some((_, id)) = request.path.split_once("/preview?atchmnflNo=") else { return Reply::ok(SAMPLE) };
    match id {
        "91002" if !second_works => Reply::status(500),
        _ => Reply::ok(
            serde_json::json!({"success": true, "content": format!("**파일 {id}**\n\n| 가 |\n| --- |")})
                .to_string(),
        ),
    }
}

fn desk() -> (Desk, Arc<AtomicBool>) {
    let works = Arc::new(AtomicBool::new(false));
    let switch = works.clone();
    let mut desk = Desk::new("25", move |request| answer(request, switch.load(Ordering::SeqCst)));
    let token = desk.folder.path().join("token");
    std::fs::write(&token, "canary-token\n").unwrap();
    desk.from = format!(
        ", preview = {{ base = \"{}\", token_file = \"{}\" }}",
        desk.server.url("/preview"),
        token.display()
    );
    (desk, works)
}

#[tokio::test]
async fn s19_a_preview_that_failed_is_added_once_when_it_can_be_had() {
    let (desk, works) = desk();
    let first = desk.sync().await;
    assert_eq!((counts(&first), first.exit_code()), ((3, 0, 0, 0, 0, 0), 0));
    let file = desk.files().await[KEY].clone();
    assert!(file.ends_with("\n\n### 미리보기\n**파일 91001**\n\n| 가 |\n| --- |\n\n---\n"), "{file}");
    assert!(!file.contains("91002**"));

    let still = desk.sync().await;
    assert_eq!(counts(&still), (0, 0, 3, 0, 0, 0), "{:?}", still.warnings);
    assert_eq!(desk.files().await[KEY], file);

    works.store(true, Ordering::SeqCst);
    desk.a_day_later();
    let second = desk.sync().await;
    assert_eq!((counts(&second), second.exit_code()), ((0, 1, 2, 0, 0, 0), 0));
    let file = desk.files().await[KEY].clone();
    assert!(file.contains("**파일 91001**") && file.contains("**파일 91002**"), "{file}");

    desk.server.forget();
    desk.a_day_later();
    let third = desk.sync().await;
    assert_eq!((counts(&third), third.writes), ((0, 0, 3, 0, 0, 0), 0));
    assert_eq!((desk.server.count("/preview"), &desk.files().await[KEY]), (0, &file));
}

#[tokio::test]
async fn the_token_goes_to_the_preview_service_and_nowhere_else() {
    let (desk, _) = desk();
    desk.server.answer(|request| {
        if request.path.contains("/preview") {
            Reply::status(403).header("X-Echo", "canary-token")
        } else {
            Reply::ok(SAMPLE)
        }
    });
    let report = desk.sync().await;
    for request in desk.server.requests() {
        let sent = request.headers.get("authorization").map(String::as_str);
        assert_eq!(sent, request.path.contains("/preview").then_some("Bearer canary-token"));
    }
    let said = format!("{report:?} {} {:?}", serde_json::to_string(&report).unwrap(), desk.files().await);
    assert!(!said.contains("canary-token"));
}

#[tokio::test]
async fn a_preview_that_is_no_success_is_none() {
    let (desk, _) = desk();
    desk.server.answer(|request| {
        let no = ["{\"success\": false, \"content\": \"x\"}", "not json", "[]"];
        let at = desk_turn();
        if request.path.contains("/preview") { Reply::ok(no[at % no.len()]) } else { Reply::ok(SAMPLE) }
    });
    let report = desk.sync().await;
    assert_eq!(report.counts.added, 3);
    assert!(desk.files().await.values().all(|file| !file.contains("미리보기")));
}

/// Thirty articles, and a service that is out of order: it is not waited for with each of them.
#[tokio::test]
async fn a_service_that_stops_answering_is_not_waited_for_with_every_attachment() {
    let (desk, _) = desk();
    let entry = |id: usize| {
        let item = item(&id.to_string(), "Wed, 15 Oct 2025 10:00:00 +0900", "text");
        let file = format!(
            "<filename1>{id}.pdf</filename1><url1>https://b.example/f?atchmnflNo={id}</url1>\
                            <preview1>https://b.example/p?atchmnflNo={id}</preview1></item>"
        );
        item.replace("</item>", &file)
    };
    let board = feed(&(1..=30).map(entry).collect::<String>());
    let broken = board.clone();
    desk.server.answer(move |request| {
        if request.path.contains("/preview") { Reply::status(503) } else { Reply::ok(broken.clone()) }
    });
    assert_eq!(counts(&desk.sync().await), (30, 0, 0, 0, 0, 0));
    // Twenty have two attempts each, and those that are asked for meanwhile; the rest has one.
    let asked = desk.server.count("/preview");
    assert!((30 + 20..30 + 30).contains(&asked), "{asked} requests");
    // Nothing of that is left in the next run.
    desk.server.answer(move |request| {
        let preview = request.path.contains("/preview");
        Reply::ok(if preview {
            "{\"success\": true, \"content\": \"text\"}".to_owned()
        } else {
            board.clone()
        })
    });
    desk.a_day_later();
    assert_eq!(counts(&desk.sync().await), (0, 30, 0, 0, 0, 0));
}

/// One article with an attachment, beside a service that answers as told.
fn with_attachment(desk: &Desk, html: &str, preview: impl Fn() -> Reply + Send + 'static) {
    let file = "<filename1>f</filename1><url1>https://b.example/f?atchmnflNo=9</url1></item>";
    let board = feed(&item("1", "2025-10-16", html).replace("</item>", file));
    desk.server.answer(
        move |request| {
            if request.path.contains("/preview") { preview() } else { Reply::ok(board.clone()) }
        },
    );
}

const ONE: &str = "rss/25/2025_10_16_1.md";

#[tokio::test]
async fn an_edit_is_written_although_a_preview_still_fails() {
    for (shape, edited) in [("on_edit = \"update\"", 1), ("", 0)] {
        let mut desk = desk().0;
        desk.shape = shape;
        let broken = || Reply::status(404);
        with_attachment(&desk, "first", broken);
        assert_eq!(counts(&desk.sync().await), (1, 0, 0, 0, 0, 0));
        assert_eq!(counts(&desk.sync().await), (0, 0, 1, 0, 0, 0), "{shape}: nothing is new");
        with_attachment(&desk, "second", broken);
        assert_eq!(counts(&desk.sync().await), (0, edited, 1 - edited, 0, 0, 0), "{shape}");
        assert_eq!(desk.files().await[ONE].contains("second"), edited == 1, "{shape}");
        assert_eq!(counts(&desk.sync().await), (0, 0, 1, 0, 0, 0), "{shape}: nothing is new");
        with_attachment(&desk, "second", || Reply::ok("{\"success\": true, \"content\": \"text of it\"}"));
        assert_eq!(counts(&desk.sync().await), (0, 1, 0, 0, 0, 0), "{shape}: it can be had");
        assert!(desk.files().await[ONE].contains("text of it"), "{shape}");
        assert_eq!(counts(&desk.sync().await), (0, 0, 1, 0, 0, 0), "{shape}: once");
    }
}

#[tokio::test]
async fn a_file_that_lacks_a_preview_comes_back_when_somebody_deletes_it() {
    for shape in ["on_edit = \"update\"", ""] {
        let mut desk = desk().0;
        desk.shape = shape;
        with_attachment(&desk, "first", || Reply::status(404));
        desk.sync().await;
        let delete = vec![Item::delete(ONE)];
        desk.line().await.store.write(delete, Mode::Each).await.unwrap();
        desk.sync().await;
        assert_eq!(desk.keys().await, [ONE], "{shape}");
    }
}

#[tokio::test]
async fn a_preview_without_content_is_asked_for_again() {
    for nothing in ["{\"success\": true}", "{\"success\": true, \"content\": null}"] {
        let desk = desk().0;
        with_attachment(&desk, "first", move || Reply::ok(nothing));
        assert_eq!(counts(&desk.sync().await), (1, 0, 0, 0, 0, 0));
        assert!(!desk.files().await[ONE].contains("미리보기"), "{nothing}");
        with_attachment(&desk, "first", || Reply::ok("{\"success\": true, \"content\": \"text of it\"}"));
        assert_eq!(counts(&desk.sync().await), (0, 1, 0, 0, 0, 0), "{nothing}");
        assert!(desk.files().await[ONE].contains("미리보기\ntext of it\n"), "{nothing}");
    }
}

fn desk_turn() -> usize {
    static TURN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    TURN.fetch_add(1, Ordering::SeqCst)
}
