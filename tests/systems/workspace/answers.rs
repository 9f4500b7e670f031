//! What becomes of an analysis when the model answers badly, or not at all.

use serde_json::{Value, json};
use trueup::error::Kind;

use super::desk::{Desk, ENGLISH};
use super::model::{answer, asked_about};
use super::wiki::Paper;
use crate::support::http::Reply;

fn finding(source: &str, title: &str, severity: u64, excerpt: &str) -> Value {
    let quote = json!({ "source": source, "excerpt": excerpt });
    json!({ "title": title, "severity": severity, "description": ["Because.", quote] })
}

fn issues(found: &[Value]) -> Reply {
    answer(&json!({ "issues": found }).to_string())
}

fn titles(issues: &[trueup::workspace::Issue]) -> Vec<&str> {
    issues.iter().map(|issue| issue.title.as_str()).collect()
}

/// A page with two policies.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH), Paper::new("att2", ENGLISH)]);
    desk
}

/// The second policy as it should be answered.
fn second() -> Reply {
    issues(&[finding("att2", "Too few", 2, "at least two supervisors")])
}

#[tokio::test]
async fn an_answer_that_is_no_good_is_the_error_of_its_policy_alone() {
    let desk = desk();
    let workspace = desk.workspace().await;
    desk.model.server.answer(|request| match asked_about(request).as_str() {
        "att1" => answer("I would rather not."),
        _ => second(),
    });
    let analysis = workspace.analyze("p").await.unwrap();
    assert_eq!(titles(&analysis.issues), ["Too few"]);
    let [fault] = &analysis.errors[..] else { panic!("{:?}", analysis.errors) };
    assert_eq!((fault.key.as_deref(), fault.kind), (Some("att1"), Kind::Invalid));
    assert!(workspace.policies("p").await.unwrap().analysis_stale, "it is to be compared again");
    desk.model.server.answer(|_| issues(&[]));
    assert!(workspace.analyze("p").await.unwrap().errors.is_empty());
    assert!(!workspace.policies("p").await.unwrap().analysis_stale);
}

#[tokio::test]
async fn one_bad_finding_does_not_lose_its_siblings() {
    let desk = desk();
    let workspace = desk.workspace().await;
    let sourceless = json!({ "title": "Whose", "severity": 1, "description": [{ "excerpt": "two" }] });
    let found = [
        finding("att1", "Graver than grave", 4, "Every doctoral candidate"),
        sourceless,
        finding("att1", "One supervisor", 3, "at least two supervisors"),
        finding("att1", "Of nothing", 1, " \n"),
    ];
    desk.model.server.answer(move |request| match asked_about(request).as_str() {
        "att1" => issues(&found),
        _ => issues(&[]),
    });
    let analysis = workspace.analyze("p").await.unwrap();
    assert_eq!(titles(&analysis.issues), ["One supervisor"]);
    let said = ["4 is no severity", "`source` and `excerpt`", "an excerpt is empty"];
    assert_eq!(analysis.errors.len(), said.len(), "{:?}", analysis.errors);
    for (fault, said) in analysis.errors.iter().zip(said) {
        assert!(fault.message.contains(said) && fault.key.as_deref() == Some("att1"), "{fault:?}");
    }
}

#[tokio::test]
async fn what_an_analysis_found_before_it_broke_off_is_told_by_the_next() {
    let desk = desk();
    let workspace = desk.workspace().await;
    let first = || issues(&[finding("att1", "One supervisor", 3, "at least two supervisors")]);
    desk.model.server.answer(move |request| match asked_about(request).as_str() {
        "att1" => first(),
        _ => Reply::status(401),
    });
    let error = workspace.analyze("p").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert!(error.to_string().contains("for the next analysis to tell: 1"), "{error}");
    desk.model.server.answer(move |request| match asked_about(request).as_str() {
        "att1" => first(),
        _ => second(),
    });
    let analysis = workspace.analyze("p").await.unwrap();
    assert_eq!(titles(&analysis.issues), ["One supervisor", "Too few"]);
    assert!(workspace.analyze("p").await.unwrap().issues.is_empty(), "told once");
    assert_eq!(workspace.issues("p").await.unwrap().len(), 2);
}

#[tokio::test]
async fn two_findings_of_one_answer_may_quote_the_same_words() {
    let desk = desk();
    let workspace = desk.workspace().await;
    let quote = "at least two supervisors";
    let found = [
        finding("att1", "Not employed here", 1, quote),
        finding("att1", "Too few", 3, quote),
        finding("att1", "Not employed here", 1, quote),
    ];
    desk.model.server.answer(move |request| match asked_about(request).as_str() {
        "att1" => issues(&found),
        _ => issues(&[]),
    });
    let analysis = workspace.analyze("p").await.unwrap();
    assert_eq!(titles(&analysis.issues), ["Not employed here", "Too few"]);
    assert!(workspace.analyze("p").await.unwrap().issues.is_empty(), "known by now");
}
