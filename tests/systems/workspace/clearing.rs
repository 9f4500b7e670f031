//! Clear: everything of a page and nothing else, whoever is writing.

use std::sync::Arc;

use trueup::error::Kind;
use trueup::store::{Item, Mode, StoreExt};

use super::desk::{Desk, ENGLISH, issue, keys, severity};
use super::wiki::Paper;

const KEYS: usize = 5_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s22_five_thousand_keys_go_and_no_writer_brings_any_back() {
    for desk in Desk::everywhere("s22").await {
        desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
        desk.wiki.page("pq", vec![Paper::new("att1", ENGLISH)]);
        let workspace = Arc::new(desk.real().await);
        let name = workspace.shelf.store.name().to_owned();
        let edited = workspace.issue_create("p", issue("Edited all along")).await.unwrap();
        workspace.issue_create("pq", issue("A neighbour")).await.unwrap();
        fill(&workspace).await;
        // A writer that began before the clear: it has read the page's counter and waits for the attachment.
        let download = desk.wiki.hold("/download");
        let writer = tokio::spawn({
            let workspace = workspace.clone();
            async move { workspace.policy("p", "att1", None).await }
        });
        download.arrived().await;
        // And one that edits an issue again and again until it is gone.
        let editor = tokio::spawn({
            let (workspace, id) = (workspace.clone(), edited.id.clone());
            async move {
                loop {
                    if let Err(error) = workspace.issue_classify("p", &id, severity(2)).await {
                        return error;
                    }
                }
            }
        });
        let cleared = workspace.clear("p").await.unwrap();
        download.release();
        assert_eq!(writer.await.unwrap().unwrap_err().kind(), Kind::Conflict, "{name}");
        assert!(cleared.removed >= KEYS, "{name}: {cleared:?}");
        assert_eq!(editor.await.unwrap().kind(), Kind::NotFound, "{name}");
        assert!(keys(&workspace.shelf.store, "p:").await.is_empty(), "{name}");
        assert_eq!(keys(&workspace.shelf.store, "pq:").await.len(), 1, "{name}");
        assert!(
            workspace.policy("p", "att1", None).await.is_ok(),
            "{name}: a writer that begins now may write"
        );
    }
}

async fn fill(workspace: &trueup::workspace::Workspace) {
    let store = &workspace.shelf.store;
    let row = store.get_one(&keys(store, "p:issue:").await[0]).await.unwrap().unwrap().value;
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(500) {
        let items = chunk.iter().map(|at| Item::put(format!("p:issue:{at:05}"), row.clone())).collect();
        for outcome in store.write(items, Mode::Each).await.unwrap() {
            assert!(outcome.unwrap().landed());
        }
    }
}

#[tokio::test]
async fn after_a_clear_nothing_is_stale() {
    let desk = Desk::new();
    desk.file("p/policy.md", ENGLISH);
    let workspace = desk.over_folder().await;
    workspace.policy("p", "policy.md", None).await.unwrap();
    std::fs::remove_file(desk.pages().join("p/policy.md")).unwrap();
    assert!(workspace.policies("p").await.unwrap().analysis_stale);
    workspace.clear("p").await.unwrap();
    assert!(!workspace.policies("p").await.unwrap().analysis_stale);
}
