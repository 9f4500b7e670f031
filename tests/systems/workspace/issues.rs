//! Issues: one verb at a time, and many at once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use trueup::clock::Clock;
use trueup::error::Kind;
use trueup::workspace::{Passage, Severity};

use super::desk::{Desk, ENGLISH, issue, keys, severity};
use super::wiki::Paper;

#[tokio::test]
async fn s12_an_issue_lives() {
    let desk = Desk::new();
    desk.wiki.page("p", Vec::new());
    let workspace = desk.workspace().await;
    let made = workspace.issue_create("p", issue("One supervisor")).await.unwrap();
    assert_eq!((made.created, made.updated, made.resolved), (desk.clock.now(), None, None));
    assert_eq!(made.id.len(), 36);
    assert_eq!(&made.id[14..15], "4", "a random UUID");
    desk.clock.advance(Duration::from_secs(1));
    let classified = workspace.issue_classify("p", &made.id, severity(3)).await.unwrap();
    assert_eq!((classified.severity.get(), classified.updated), (3, Some(desk.clock.now())));
    desk.clock.advance(Duration::from_secs(1));
    let annotated = workspace.issue_annotate("p", &made.id, "*ask* the faculty").await.unwrap();
    assert_eq!(annotated.annotations.as_deref(), Some("*ask* the faculty"));
    desk.clock.advance(Duration::from_secs(1));
    let resolved = workspace.issue_resolve("p", &made.id).await.unwrap();
    assert_eq!(resolved.resolved, Some(desk.clock.now()));
    desk.clock.advance(Duration::from_secs(1));
    let reopened = workspace.issue_reopen("p", &made.id).await.unwrap();
    assert_eq!((reopened.resolved, reopened.updated), (None, Some(desk.clock.now())));
    assert_eq!((reopened.severity.get(), reopened.annotations), (3, annotated.annotations), "the rest stays");
    assert_eq!(workspace.issues("p").await.unwrap().len(), 1);
}

#[tokio::test]
async fn s13_verbs_repeat_and_refuse() {
    let desk = Desk::new();
    desk.wiki.page("p", Vec::new());
    let workspace = desk.workspace().await;
    let id = workspace.issue_create("p", issue("One")).await.unwrap().id;
    let first = workspace.issue_resolve("p", &id).await.unwrap().resolved;
    desk.clock.advance(Duration::from_secs(5));
    let again = workspace.issue_resolve("p", &id).await.unwrap();
    assert_eq!((again.resolved, again.updated), (first, Some(desk.clock.now())), "the first time counts");
    workspace.issue_annotate("p", &id, "note").await.unwrap();
    assert_eq!(workspace.issue_annotate("p", &id, "").await.unwrap().annotations, None);
    for number in [0, 4] {
        assert_eq!(Severity::try_from(number).unwrap_err().kind(), Kind::Invalid);
    }
    let nobody = "00000000-0000-4000-8000-000000000000";
    let error = workspace.issue_resolve("p", nobody).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.remedy().contains("trueup page issues p"));
    assert_eq!(workspace.issue_classify("q", &id, severity(2)).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(workspace.issue_create("q", issue("x")).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(workspace.issue_create("p", issue("  ")).await.unwrap_err().kind(), Kind::Invalid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s14_a_hundred_edits_at_once_lose_nothing() {
    for desk in Desk::everywhere("s14").await {
        desk.wiki.page("p", Vec::new());
        let instances = [Arc::new(desk.real().await), Arc::new(desk.real().await)];
        let id = instances[0].issue_create("p", issue("Contended")).await.unwrap().id;
        let edits = (0..100).map(|at| {
            let (workspace, id) = (instances[at % 2].clone(), id.clone());
            tokio::spawn(async move {
                let edited = match at % 4 {
                    0 => workspace.issue_classify("p", &id, severity(3)).await,
                    1 => workspace.issue_annotate("p", &id, "seen").await,
                    2 => workspace.issue_resolve("p", &id).await,
                    _ => workspace.issue_create("p", issue(&format!("Issue {at}"))).await,
                };
                edited.unwrap();
            })
        });
        for edit in futures::future::join_all(edits).await {
            edit.unwrap();
        }
        let name = instances[0].shelf.store.name().to_owned();
        let issues = instances[1].issues("p").await.unwrap();
        assert_eq!(issues.len(), 26, "{name}");
        let contended = issues.iter().find(|one| one.id == id).unwrap();
        let seen = (contended.severity.get(), contended.annotations.as_deref(), contended.resolved.is_some());
        assert_eq!(seen, (3, Some("seen"), true), "{name}");
    }
}

fn finding(title: &str, excerpt: &str) -> serde_json::Value {
    json!({ "title": title, "severity": 3, "description": [
        "The agreement names one supervisor only.",
        { "source": "agreement", "excerpt": "The candidate has one supervisor." },
        { "source": "att1", "excerpt": excerpt },
    ] })
}

#[tokio::test]
async fn an_analysis_finds_places_and_repeats_nothing() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
    desk.model.finds(vec![finding("One supervisor", "at least two supervisors")]);
    let workspace = desk.workspace().await;
    let found = workspace.analyze("p").await.unwrap().issues;
    assert_eq!(found.len(), 1);
    let places: Vec<_> = found[0].references().map(|place| (place.source.as_str(), place.offset)).collect();
    let offset = ENGLISH.find("at least two").unwrap();
    assert_eq!(places, [("agreement", Some(0)), ("att1", Some(offset))]);
    workspace.issue_resolve("p", &found[0].id).await.unwrap();
    // In other words, and with other blanks, but at the same places: the same finding.
    desk.model.finds(vec![
        finding("Too few supervisors", "at  least\ntwo supervisors"),
        finding("Made up", "three dogs"),
    ]);
    let found = workspace.analyze("p").await.unwrap().issues;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].title, "Made up");
    let issues = workspace.issues("p").await.unwrap();
    assert!(issues[0].resolved.is_some(), "what is resolved stays so");
    let unresolved = |at: usize| issues[at].references().map(|place| place.unresolved).collect::<Vec<_>>();
    assert_eq!((unresolved(0), unresolved(1)), (vec![false, false], vec![false, true]));
}

#[tokio::test]
async fn a_reference_to_a_vanished_policy_is_kept_and_marked() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH), Paper::new("att2", ENGLISH)]);
    desk.model.finds(vec![finding("One supervisor", "at least two supervisors")]);
    let workspace = desk.workspace().await;
    let id = workspace.analyze("p").await.unwrap().issues[0].id.clone();
    desk.wiki.change("p", |papers| drop(papers.remove(0)));
    let issue = workspace.issue("p", &id).await.unwrap();
    let marks: Vec<_> = issue.references().map(|place| (place.source.as_str(), place.unresolved)).collect();
    assert_eq!(marks, [("agreement", false), ("att1", true)]);
    assert!(matches!(&issue.description[0], Passage::Text(_)));
    // Not knowing is not the same as knowing that it is gone.
    desk.wiki.break_with(|_| Some(crate::support::http::Reply::status(403)));
    let issue = workspace.issue("p", &id).await.unwrap();
    assert!(issue.references().all(|place| !place.unresolved));
    assert_eq!(keys(&workspace.shelf.store, "p:issue:").await.len(), 1);
}

#[tokio::test]
async fn a_quote_is_looked_for_in_what_the_policy_says_now() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
    desk.model.finds(vec![finding("One supervisor", "at least two supervisors")]);
    let workspace = desk.workspace().await;
    workspace.analyze("p").await.unwrap();
    let place = async || {
        let issue = workspace.issues("p").await.unwrap().remove(0);
        let place = issue.references().nth(1).unwrap().clone();
        (place.offset, place.length, place.unresolved)
    };
    let offset = ENGLISH.find("at least two").unwrap();
    assert_eq!(place().await, (Some(offset), Some(24), false));
    let change = |text: String| {
        desk.clock.advance(Duration::from_secs(1));
        let newer = trueup::clock::rfc3339_ms(desk.clock.now());
        desk.wiki.change("p", |papers| (papers[0].version, papers[0].body) = (newer, text.into_bytes()));
    };
    change(ENGLISH.replace("two supervisors", "three supervisors"));
    assert_eq!(place().await, (None, None, true), "changed, and nobody has read it since");
    workspace.policies("p").await.unwrap();
    assert_eq!(place().await, (None, None, true), "its copy is gone, too");
    workspace.policy("p", "att1", None).await.unwrap();
    assert_eq!(place().await, (None, None, true), "it is not there any more");
    change(format!("As of today: {ENGLISH}"));
    workspace.policy("p", "att1", None).await.unwrap();
    assert_eq!(place().await, (Some(offset + 13), Some(24), false), "it is back, elsewhere");
}

#[tokio::test]
async fn what_a_model_says_badly_costs_nothing_but_itself() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
    let long = "x".repeat(600);
    desk.model.finds(vec![
        finding("  ", "employed by the university"),
        finding("One supervisor", "at least two supervisors"),
        finding(&long, "Every doctoral candidate"),
    ]);
    let workspace = desk.workspace().await;
    let analysis = workspace.analyze("p").await.unwrap();
    let titles: Vec<_> = analysis.issues.iter().map(|issue| issue.title.as_str()).collect();
    assert_eq!((titles, analysis.errors.len()), (vec!["One supervisor"], 2), "{analysis:?}");
    for fault in &analysis.errors {
        assert!(fault.message.contains("stand-in at http") && fault.message.contains("title"), "{fault:?}");
        assert!(fault.remedy.contains("llm.model"), "{fault:?}");
    }
}
