//! Policies: read once, translated once, kept apart by page.

use std::sync::Arc;

use trueup::error::Kind;
use trueup::workspace::Language;

use super::desk::{Desk, ENGLISH, ITALIAN, issue, keys};
use super::wiki::Paper;

#[tokio::test]
async fn s04_original_and_translation_are_two_policies_and_no_issue() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ITALIAN)]);
    let workspace = desk.workspace().await;
    workspace.policy("p", "att1", Some(Language::En)).await.unwrap();
    assert_eq!(keys(&workspace.shelf.store, "p:policy:").await, ["p:policy:att1", "p:policy:att1:en"]);
    assert!(workspace.issues("p").await.unwrap().is_empty());
    let catalogue = workspace.policies("p").await.unwrap();
    assert_eq!(catalogue.policies.len(), 1);
    let policy = &catalogue.policies[0];
    assert_eq!((policy.source.as_str(), policy.title.as_str()), ("att1", "att1.md"));
    assert_eq!(policy.language, Some(Language::It));
    assert_eq!(policy.languages, [Language::It, Language::En]);
    assert!(!policy.stale && !catalogue.analysis_stale);
}

#[tokio::test]
async fn s05_page_12_never_sees_page_123() {
    let desk = Desk::new();
    for page in ["12", "123"] {
        desk.wiki.page(page, vec![Paper::new("att1", ENGLISH)]);
    }
    let workspace = desk.workspace().await;
    for page in ["12", "123"] {
        workspace.policy(page, "att1", None).await.unwrap();
        workspace.issue_create(page, issue(page)).await.unwrap();
    }
    assert_eq!(workspace.issues("12").await.unwrap().len(), 1);
    assert_eq!(workspace.issues("123").await.unwrap()[0].title, "123");
    assert_eq!(workspace.clear("12").await.unwrap().removed, 2);
    assert!(keys(&workspace.shelf.store, "12:").await.is_empty());
    assert_eq!(keys(&workspace.shelf.store, "123:").await.len(), 2);
}

#[tokio::test]
async fn s09_250_attachments_over_three_pages_are_all_listed() {
    let desk = Desk::new();
    desk.wiki.page("p", (0..250).map(|at| Paper::new(&format!("att{at:03}"), ENGLISH)).collect());
    let catalogue = desk.workspace().await.policies("p").await.unwrap();
    assert_eq!(desk.wiki.server.count("/attachments"), 3);
    let sources: Vec<&str> = catalogue.policies.iter().map(|policy| policy.source.as_str()).collect();
    let expected: Vec<String> = (0..250).map(|at| format!("att{at:03}")).collect();
    assert_eq!(sources, expected);
}

#[tokio::test]
async fn s10_a_translation_is_made_once_and_an_original_is_not_translated() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ITALIAN)]);
    let workspace = desk.workspace().await;
    let french = workspace.policy("p", "att1", Some(Language::Fr)).await.unwrap();
    assert_eq!((french.original, french.language), (false, Language::Fr));
    assert_eq!(french.content, format!("[French] {ITALIAN}"));
    assert_eq!((desk.wiki.downloads(), desk.model.translations()), (1, 1));
    assert_eq!(keys(&workspace.shelf.store, "p:").await, ["p:policy:att1", "p:policy:att1:fr"]);
    let again = workspace.policy("p", "att1", Some(Language::Fr)).await.unwrap();
    assert_eq!(again, french);
    let italian = workspace.policy("p", "att1", Some(Language::It)).await.unwrap();
    assert_eq!((italian.original, italian.content.as_str()), (true, ITALIAN));
    assert_eq!(french.derived_from, Some(italian.content_hash()));
    assert_eq!((desk.wiki.downloads(), desk.model.translations()), (1, 1), "nothing is done twice");
    assert_eq!(keys(&workspace.shelf.store, "p:").await.len(), 2, "no row for the original's own language");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s11_ten_at_once_cause_one_extraction_and_one_translation() {
    for desk in Desk::everywhere("s11").await {
        desk.wiki.page("p", vec![Paper::new("att1", ITALIAN)]);
        // Two instances share nothing but the store, as two processes would.
        let instances = [Arc::new(desk.real().await), Arc::new(desk.real().await)];
        let asked = (0..10).map(|at| {
            let workspace = instances[at % 2].clone();
            tokio::spawn(async move { workspace.policy("p", "att1", Some(Language::Fr)).await.unwrap() })
        });
        let answers: Vec<_> =
            futures::future::join_all(asked).await.into_iter().map(Result::unwrap).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]));
        let name = instances[0].shelf.store.name().to_owned();
        assert_eq!((desk.wiki.downloads(), desk.model.translations()), (1, 1), "{name}");
        assert!(keys(&instances[0].shelf.store, "system:working.").await.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_policy_that_is_not_there_is_said_so_with_the_nearest_name() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("supervision", ENGLISH)]);
    let workspace = desk.workspace().await;
    let error = workspace.policy("p", "supervison", None).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("did you mean `supervision`?"), "{error}");
    let error = workspace.policies("q").await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

#[tokio::test]
async fn without_a_model_only_translation_and_analysis_are_refused() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ITALIAN)]);
    let mut workspace = desk.workspace().await;
    workspace.llm = None;
    assert!(workspace.policy("p", "att1", Some(Language::It)).await.is_ok());
    let error = workspace.policy("p", "att1", Some(Language::Fr)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.remedy().contains("llm = "), "{}", error.remedy());
    assert_eq!(workspace.analyze("p").await.unwrap_err().kind(), Kind::Config);
    assert_eq!(desk.model.server.requests().len(), 0);
}
