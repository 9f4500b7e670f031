//! Pages in a folder: links that lead nowhere, and names that are no text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use serde_json::json;
use trueup::error::Kind;

use super::desk::{Desk, ENGLISH, issue, keys};

#[tokio::test]
async fn a_page_whose_link_leads_nowhere_is_not_gone() {
    let desk = Desk::new();
    let workspace = desk.over_folder().await;
    let elsewhere = desk.folder.path().join("share/anna");
    std::fs::create_dir_all(&elsewhere).unwrap();
    symlink(&elsewhere, desk.pages().join("anna")).unwrap();
    desk.file("anna/rules.md", ENGLISH);
    workspace.policy("anna", "rules.md", None).await.unwrap();
    workspace.issue_create("anna", issue("x")).await.unwrap();
    std::fs::rename(desk.folder.path().join("share"), desk.folder.path().join("unmounted")).unwrap();
    let purged = workspace.purge(true).await.unwrap();
    assert_eq!((purged.gone.len(), purged.removed, purged.unknown.len()), (0, 0, 1), "{purged:?}");
    assert!(purged.unknown[0].message.contains("leads nowhere"), "{purged:?}");
    assert_eq!(keys(&workspace.shelf.store, "anna:").await.len(), 2);
    // What is not even a link any more is gone.
    std::fs::remove_file(desk.pages().join("anna")).unwrap();
    assert_eq!(workspace.purge(true).await.unwrap().gone, ["anna"]);
    assert_eq!(keys(&workspace.shelf.store, "anna:").await.len(), 0);
}

#[tokio::test]
async fn an_attachment_whose_link_leads_nowhere_keeps_its_copy() {
    let desk = Desk::new();
    let workspace = desk.over_folder().await;
    let elsewhere = desk.folder.path().join("rules.md");
    std::fs::write(&elsewhere, ENGLISH).unwrap();
    desk.file("p/page.md", "The candidate has one supervisor.");
    desk.file("p/other.md", ENGLISH);
    symlink(&elsewhere, desk.pages().join("p/rules.md")).unwrap();
    symlink(desk.folder.path().join("never"), desk.pages().join("p/unread.md")).unwrap();
    workspace.policy("p", "rules.md", None).await.unwrap();
    std::fs::remove_file(&elsewhere).unwrap();
    let catalogue = workspace.policies("p").await.unwrap();
    let sources: Vec<_> = catalogue.policies.iter().map(|policy| policy.source.as_str()).collect();
    assert_eq!(sources, ["other.md", "rules.md", "unread.md"]);
    assert!(!catalogue.analysis_stale, "nothing is known to have changed");
    assert_eq!(keys(&workspace.shelf.store, "p:policy:").await, ["p:policy:rules.md"]);
    assert_eq!(workspace.policy("p", "rules.md", None).await.unwrap().content, ENGLISH);
    let error = workspace.policy("p", "unread.md", None).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("leads nowhere"), "{error}");
    // It is the error of that document alone.
    let analysis = workspace.analyze("p").await.unwrap();
    let faults: Vec<_> = analysis.errors.iter().map(|fault| fault.key.as_deref().unwrap()).collect();
    assert_eq!((faults, desk.model.analyses()), (vec!["unread.md"], 2));
}

#[tokio::test]
async fn a_file_whose_name_is_no_text_is_a_policy_like_any_other() {
    let desk = Desk::new();
    let workspace = desk.over_folder().await;
    desk.file("p/page.md", "The candidate has one supervisor.");
    desk.file("p/good.md", ENGLISH);
    std::fs::write(desk.pages().join("p").join(OsStr::from_bytes(b"odd\xff.md")), ENGLISH).unwrap();
    let finding = |source: &str| {
        let quote = json!({ "source": source, "excerpt": "at least two supervisors" });
        json!({ "title": format!("One supervisor, by {source}"), "severity": 2, "description": [quote] })
    };
    desk.model.finds(vec![finding("good.md"), finding("odd_.md")]);
    let analysis = workspace.analyze("p").await.unwrap();
    assert_eq!((analysis.errors.len(), analysis.issues.len()), (0, 2), "{analysis:?}");
    assert_eq!(workspace.policy("p", "odd_.md", None).await.unwrap().content, ENGLISH);
}

#[tokio::test]
async fn a_name_that_is_an_id_already_is_its_own_whoever_comes_along() {
    let desk = Desk::new();
    let workspace = desk.over_folder().await;
    let named = async || {
        let policies = workspace.policies("p").await.unwrap().policies;
        policies.into_iter().map(|policy| (policy.source, policy.title)).collect::<Vec<_>>()
    };
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
    };
    desk.file("p/a_b.txt", ENGLISH);
    assert_eq!(named().await, pairs(&[("a_b.txt", "a_b.txt")]));
    desk.file("p/a b.txt", ENGLISH);
    assert_eq!(named().await, pairs(&[("a_b.txt", "a_b.txt"), ("a_b.txt-2", "a b.txt")]));
    desk.file("p/a_b.txt-2", ENGLISH);
    let all = [("a_b.txt", "a_b.txt"), ("a_b.txt-2", "a_b.txt-2"), ("a_b.txt-3", "a b.txt")];
    assert_eq!(named().await, pairs(&all));
}
