//! What is too much, and what is merely a lot; what servers do wrong.

use std::time::Duration;

use serde_json::{Value, json};
use trueup::error::Kind;
use trueup::store::{Item, StoreExt};
use trueup::workspace::Language;
use trueup::workspace::keys::{KEY_CHARS_MAX, policy_key};
use trueup::workspace::pages::Existence;
use trueup::workspace::shelf::DEPTH_MAX;

use super::desk::{Desk, ENGLISH, ITALIAN, issue, keys};
use super::model::answer;
use super::wiki::Paper;
use crate::support::http::Reply;
use crate::support::until;

fn nested(levels: usize) -> Value {
    (1..levels).fold(json!([]), |inner, _| json!([inner]))
}

#[tokio::test]
async fn s23_limits_are_said_and_a_large_document_is_whole() {
    let page = "p".repeat(KEY_CHARS_MAX - ":policy:s".len());
    assert_eq!(policy_key(&page, "s", None).unwrap().len(), 500);
    let error = policy_key(&page, "ss", None).unwrap_err();
    assert!(error.to_string().contains("501 characters"), "{error}");
    for bad in ["a/b", "é", "a\u{0}", "a%b", "", " "] {
        assert_eq!(policy_key("p", bad, None).unwrap_err().kind(), Kind::Invalid, "{bad:?}");
    }
    for desk in Desk::everywhere("s23").await {
        let workspace = desk.workspace().await;
        let shelf = &workspace.shelf;
        assert!(shelf.seal(&json!({ "v": nested(DEPTH_MAX - 1) })).is_ok());
        let error = shelf.seal(&json!({ "v": nested(DEPTH_MAX) })).unwrap_err();
        assert!(error.to_string().contains("deeper than 32 levels"), "{error}");
        let large: String = (0..4_000).map(|at| format!("{at}. {ENGLISH} € \n\n")).collect();
        assert!(large.len() > 300 << 10);
        desk.wiki.page("p", vec![Paper::new("att1", &large)]);
        let made = workspace.policy("p", "att1", None).await.unwrap();
        let kept = workspace.policy("p", "att1", None).await.unwrap();
        assert_eq!((kept.content.as_str(), &kept), (large.trim_end().replace(" \n", "\n").as_str(), &made));
        assert_eq!(desk.wiki.downloads(), 1);
        assert!(keys(&shelf.store, "p:policy:att1:part:").await.len() > 1);
        assert_eq!(workspace.policies("p").await.unwrap().policies.len(), 1);
        let part = keys(&shelf.store, "p:policy:att1:part:").await.remove(0);
        shelf.store.write_one(Item::delete(part)).await.unwrap();
        assert_eq!(workspace.policy("p", "att1", None).await.unwrap().content, made.content, "made again");
        assert_eq!(desk.wiki.downloads(), 2);
        desk.wiki.remove("p");
        workspace.purge(true).await.unwrap();
        assert!(keys(&shelf.store, "p:").await.is_empty(), "parts go with the page");
    }
}

#[tokio::test]
async fn s24_confluence_pages_refuses_and_asks_to_wait() {
    let mut desk = Desk::new();
    desk.wiki.page("p", (0..250).map(|at| Paper::new(&format!("att{at:03}"), ENGLISH)).collect());
    let workspace = desk.workspace().await;
    let mut refused = 2;
    desk.wiki.break_with(move |request| {
        let hit = request.path.contains("cursor=200") && refused > 0;
        refused -= i32::from(hit);
        hit.then(|| Reply::status(429).header("Retry-After", "7"))
    });
    assert_eq!(workspace.policies("p").await.unwrap().policies.len(), 250);
    assert_eq!(desk.clock.slept_ms(), 14_000, "as long as it asked, twice");
    desk.wiki.break_with(|_| Some(Reply::status(401)));
    let error = workspace.policies("p").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert!(matches!(workspace.pages.exists("p").await, Existence::Unknown(_)), "refused is not gone");
    desk.wiki.break_with(|request| request.path.contains("cursor").then(|| Reply::ok("{\"results\":[{}]}")));
    assert_eq!(workspace.policies("p").await.unwrap_err().kind(), Kind::Unavailable);
    desk.wiki.break_with(|_| Some(Reply::silence()));
    desk.wiki.timeout = "2s";
    let workspace = desk.workspace().await;
    assert_eq!(workspace.policies("p").await.unwrap_err().kind(), Kind::Unavailable, "slow");
    assert!(matches!(workspace.pages.exists("p").await, Existence::Unknown(_)));
}

#[tokio::test]
async fn a_listing_that_leads_elsewhere_or_in_circles_is_refused() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
    let workspace = desk.workspace().await;
    for next in ["https://elsewhere.example/wiki/api/v2/pages/p/attachments?cursor=1", "?cursor=1"] {
        let body = json!({ "results": [], "_links": { "next": next } }).to_string();
        desk.wiki.break_with(move |_| Some(Reply::ok(body.clone())));
        assert_eq!(workspace.policies("p").await.unwrap_err().kind(), Kind::Invalid, "{next}");
    }
    // The same page again and again, with something in it.
    let item = json!({ "id": "att1", "title": "a.md", "createdAt": "2025-01-01T00:00:00Z" });
    let body = json!({ "results": [item], "_links": { "next": "?cursor=1" } }).to_string();
    desk.wiki.break_with(move |_| Some(Reply::ok(body.clone())));
    let before = desk.wiki.server.requests().len();
    let error = workspace.policies("p").await.unwrap_err();
    assert!(error.to_string().contains("does not end"), "{error}");
    assert_eq!(desk.wiki.server.requests().len() - before, 2, "the second answer led back to itself");
}

#[tokio::test]
async fn a_model_that_does_not_keep_to_the_schema_is_quoted() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ITALIAN)]);
    let workspace = desk.workspace().await;
    let french = || workspace.policy("p", "att1", Some(Language::Fr));
    desk.model.server.answer(|_| answer(r#"{"text":"Chaque doctorant"}"#));
    let error = french().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    for said in ["schema `translation`", "missing field `title`", "Chaque doctorant"] {
        assert!(error.to_string().contains(said), "{error}");
    }
    desk.model.server.answer(|_| answer(r#"{"issues":[{"title":"x","severity":9,"description":[]}]}"#));
    let analysis = workspace.analyze("p").await.unwrap();
    let message = &analysis.errors[0].message;
    assert!(message.contains("schema `issues`: 9 is no severity"), "{message}");
    desk.model.server.answer(|_| Reply::status(401));
    assert_eq!(french().await.unwrap_err().kind(), Kind::Unauthorized);
    let mut failing = 2;
    desk.model.server.answer(move |_| {
        failing -= 1;
        if failing >= 0 {
            Reply::status(503)
        } else {
            answer(r#"{"title":"Règle","content":"Chaque doctorant"}"#)
        }
    });
    assert_eq!(french().await.unwrap().title, "Règle", "two outages are waited out");
    assert_eq!(keys(&workspace.shelf.store, "system:working.").await.len(), 0, "nobody holds a claim");
}

#[tokio::test]
async fn a_model_that_asks_to_wait_is_waited_for_and_one_that_talks_nonsense_is_said_so() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ITALIAN)]);
    let workspace = desk.workspace().await;
    let french = || workspace.policy("p", "att1", Some(Language::Fr));
    desk.model.server.answer(|_| Reply::status(404));
    assert_eq!(french().await.unwrap_err().kind(), Kind::NotFound, "there is no such model there");
    for nonsense in ["<html>Back soon!</html>", "{\"choices\":[", "{\"choices\":[]}"] {
        desk.model.server.answer(move |_| Reply::ok(nonsense).header("Content-Type", "application/json"));
        let error = french().await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Invalid | Kind::Unavailable), "{nonsense}: {error}");
    }
    let before = desk.clock.slept_ms();
    let mut refused = 2;
    desk.model.server.answer(move |_| {
        refused -= 1;
        if refused >= 0 {
            return Reply::status(429).header("Retry-After", "7");
        }
        answer(r#"{"title":"Règle","content":"Chaque doctorant"}"#)
    });
    assert_eq!(french().await.unwrap().title, "Règle");
    assert_eq!(desk.clock.slept_ms() - before, 14_000, "as long as it asked, twice");
}

#[tokio::test]
async fn a_model_that_says_nothing_is_given_up_on_in_time_and_holds_nobody_up_afterwards() {
    let mut desk = Desk::new();
    desk.model.timeout = "2s";
    desk.wiki.page("p", vec![Paper::new("att1", ITALIAN)]);
    let workspace = desk.workspace().await;
    desk.model.server.answer(|_| Reply::silence());
    let error = workspace.policy("p", "att1", Some(Language::Fr)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("no answer within 2000 ms"), "{error}");
    // Who gave up may be ahead of the model, which notes a request when it reads it.
    until("every attempt was noted", || desk.model.translations() >= 3).await;
    assert_eq!(desk.model.translations(), 3, "asked again, but not for ever");
    assert_eq!(keys(&workspace.shelf.store, "system:working.").await.len(), 0, "nobody holds a claim");
    assert_eq!(workspace.policy("p", "att1", None).await.unwrap().content, ITALIAN, "the original is there");
}

#[tokio::test]
async fn what_somebody_else_wrote_is_not_overwritten() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
    let workspace = desk.workspace().await;
    let store = &workspace.shelf.store;
    store.write_one(Item::put("p:policy:att1", "theirs")).await.unwrap();
    assert_eq!(workspace.policy("p", "att1", None).await.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(workspace.policies("p").await.unwrap().policies[0].language, None);
    assert_eq!(store.get_one("p:policy:att1").await.unwrap().unwrap().value, "theirs");
    let made = workspace.issue_create("p", issue("x")).await.unwrap();
    desk.clock.advance(Duration::from_secs(1));
    store.write_one(Item::put(format!("p:issue:{}", made.id), "theirs")).await.unwrap();
    assert_eq!(workspace.issue_resolve("p", &made.id).await.unwrap_err().kind(), Kind::Conflict);
}
