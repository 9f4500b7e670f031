//! Purge: only what is known to be gone, once a day, by one at a time.

use std::sync::Arc;
use std::time::Duration;

use trueup::store::{Item, StoreExt};
use trueup::workspace::Language;

use super::desk::{Desk, ENGLISH, issue, keys};
use super::wiki::Paper;
use crate::support::http::Reply;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A login page in between knows no page of Confluence.
#[tokio::test]
async fn a_page_that_another_server_does_not_have_is_not_gone() {
    let desk = Desk::new();
    let workspace = desk.workspace().await;
    desk.wiki.page("A", vec![Paper::new("att1", ENGLISH)]);
    workspace.issue_create("A", issue("x")).await.unwrap();
    let login = crate::support::http::Server::start(|_| Reply::status(404));
    let there = login.url("/login");
    desk.wiki.break_with(move |_| Some(Reply::status(302).header("Location", there.clone())));
    let purged = workspace.purge(true).await.unwrap();
    assert_eq!((purged.gone.len(), purged.removed, purged.unknown.len()), (0, 0, 1), "{purged:?}");
    assert_eq!(login.requests().len(), 1);
    assert_eq!(workspace.issues("A").await.unwrap().len(), 1);
}

/// So say proxies while Confluence is being started.
#[tokio::test]
async fn a_page_of_html_says_of_no_page_that_it_is_gone() {
    let desk = Desk::new();
    let workspace = desk.workspace().await;
    desk.wiki.page("A", vec![Paper::new("att1", ENGLISH)]);
    workspace.issue_create("A", issue("x")).await.unwrap();
    let html = "\n<html><body><h1>404 Not Found</h1></body></html>";
    desk.wiki.break_with(move |_| Some(Reply::status(404).header("content-type", "text/html").body(html)));
    let purged = workspace.purge(true).await.unwrap();
    assert_eq!((purged.gone.len(), purged.removed, purged.unknown.len()), (0, 0, 1), "{purged:?}");
    assert_eq!(workspace.issues("A").await.unwrap().len(), 1);
}

#[tokio::test]
async fn s19_only_a_page_that_is_gone_loses_its_keys() {
    let mut desk = Desk::new();
    desk.wiki.timeout = "2s";
    let workspace = desk.workspace().await;
    for page in ["A", "B", "C", "D"] {
        desk.wiki.page(page, vec![Paper::new("att1", ENGLISH)]);
        workspace.policy(page, "att1", Some(Language::Fr)).await.unwrap();
        workspace.issue_create(page, issue("x")).await.unwrap();
    }
    let store = workspace.shelf.store.clone();
    // What somebody else put beside ours, under pages that are gone: not ours to judge.
    let foreign = ["B:policy:theirs", "B:notes", "E:issue:theirs", "job:B", "plain", "system:B.issue"];
    for key in foreign {
        store.write_one(Item::put(key, "theirs")).await.unwrap();
    }
    let before = keys(&store, "").await.len();
    desk.wiki.remove("B");
    desk.wiki.break_with(|request| match request.path.rsplit('/').next() {
        Some("C") => Some(Reply::status(500)),
        Some("D") => Some(Reply::silence()),
        _ => None,
    });
    let purged = workspace.purge(true).await.unwrap();
    assert_eq!(purged.gone, ["B", "E"], "{purged:?}");
    let unknown: Vec<_> = purged.unknown.iter().map(|fault| fault.scope.as_deref().unwrap()).collect();
    assert_eq!(unknown, ["C", "D"]);
    assert_eq!(purged.removed, 3);
    assert_eq!(keys(&store, "B:").await, ["B:notes", "B:policy:theirs"]);
    for page in ["A", "C", "D"] {
        assert_eq!(keys(&store, &format!("{page}:")).await.len(), 3, "{page}");
    }
    for key in foreign {
        assert!(store.get_one(key).await.unwrap().is_some(), "{key}");
    }
    // One counter for the page that was purged, and the date.
    assert_eq!(keys(&store, "").await.len(), before - 3 + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s20_once_a_day_by_one_of_many_and_again_after_a_crash() {
    for desk in Desk::everywhere("s20").await {
        desk.wiki.page("A", Vec::new());
        let one = Arc::new(desk.workspace().await);
        let two = Arc::new(desk.workspace().await);
        one.issue_create("A", issue("x")).await.unwrap();
        assert!(one.purge(false).await.unwrap().ran, "never purged is due");
        desk.clock.advance(24 * HOUR - MINUTE);
        assert!(!two.purge(false).await.unwrap().ran, "23 h 59");
        desk.clock.advance(2 * MINUTE);
        let both = futures::future::join_all([&one, &two].map(|workspace| workspace.purge(false))).await;
        let ran = both.into_iter().filter(|purged| purged.as_ref().unwrap().ran).count();
        assert_eq!(ran, 1, "24 h 01, two at once: {}", one.shelf.store.name());
        // Crash inside the next one.
        desk.clock.advance(24 * HOUR);
        let asked = desk.wiki.hold("/pages/A");
        let crashing = tokio::spawn({
            let one = one.clone();
            async move { one.purge(false).await }
        });
        asked.arrived().await;
        crashing.abort();
        assert!(crashing.await.unwrap_err().is_cancelled());
        asked.release();
        assert!(!two.purge(false).await.unwrap().ran, "as far as anybody knows it is running");
        desk.clock.advance(59 * MINUTE);
        assert!(!two.purge(false).await.unwrap().ran);
        desk.clock.advance(MINUTE);
        assert!(two.purge(false).await.unwrap().ran, "within the hour");
        desk.clock.advance(HOUR);
        assert!(!two.purge(false).await.unwrap().ran, "and that one counted");
    }
}

#[tokio::test]
async fn s21_garbage_for_a_date_means_due() {
    let desk = Desk::new();
    desk.wiki.page("A", Vec::new());
    let workspace = desk.workspace().await;
    let far_ahead = "2999-01-01T00:00:00Z";
    for garbage in ["", "yesterday", "{}", "\"\"", "\u{0}", far_ahead] {
        let item = Item::put("system:purged", garbage);
        workspace.shelf.store.write_one(item).await.unwrap();
        assert!(workspace.purge(false).await.unwrap().ran, "{garbage:?}");
        assert!(!workspace.purge(false).await.unwrap().ran, "{garbage:?}");
    }
}

#[tokio::test]
async fn a_missing_root_proves_nothing_and_a_missing_folder_does() {
    let desk = Desk::new();
    desk.file("A/policy.md", ENGLISH);
    desk.file("B/policy.md", ENGLISH);
    let workspace = desk.over_folder().await;
    for page in ["A", "B"] {
        workspace.policy(page, "policy.md", None).await.unwrap();
    }
    let aside = desk.folder.path().join("aside");
    std::fs::rename(desk.pages(), &aside).unwrap();
    let purged = workspace.purge(true).await.unwrap();
    assert_eq!((purged.removed, purged.unknown.len()), (0, 2));
    std::fs::rename(&aside, desk.pages()).unwrap();
    std::fs::remove_dir_all(desk.pages().join("B")).unwrap();
    assert_eq!(workspace.purge(true).await.unwrap().gone, ["B"]);
    assert_eq!(keys(&workspace.shelf.store, "A:").await, ["A:policy:policy.md"]);
    assert!(keys(&workspace.shelf.store, "B:").await.is_empty());
}
