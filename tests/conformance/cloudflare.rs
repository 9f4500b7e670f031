//! Cloudflare KV keeps the contract as far as its caps promise it, against a server with the real limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use trueup::clock::{SystemClock, TestClock};
use trueup::error::Kind;
use trueup::http::Http;
use trueup::secret::Secret;
use trueup::store::cloudflare::{Cloudflare, Namespace, PROFILE};
use trueup::store::limited::Limited;
use trueup::store::{Item, Mode, SharedStore, Store as _, StoreExt, What};

use super::stores::conforms;
use crate::support::cloudflare::{ACCOUNT, Kv, NAMESPACE, TITLE, TOKEN, refusal};
use crate::support::http::Reply;

fn namespace(kv: &Kv, name: &str, token: &str) -> Namespace {
    Namespace {
        account: ACCOUNT.into(),
        name: name.into(),
        api: kv.server.url("/client/v4"),
        token: Secret::new(token),
    }
}

async fn limited(kv: &Kv, clock: &Arc<TestClock>) -> SharedStore {
    let http = Http::new(clock.clone()).unwrap();
    let store = Cloudflare::connect("kv".into(), namespace(kv, NAMESPACE, TOKEN), http).await.unwrap();
    Arc::new(Limited::new(Arc::new(store), PROFILE, clock.clone()))
}

#[tokio::test]
async fn cloudflare_keeps_the_contract() {
    let kv = Kv::start(None);
    let http = Http::new(SystemClock::new()).unwrap();
    let store = Cloudflare::connect("kv".into(), namespace(&kv, TITLE, TOKEN), http).await.unwrap();
    conforms(&store).await;
}

#[tokio::test]
async fn behind_its_limits_no_key_is_written_twice_within_a_second() {
    let clock = TestClock::at("2026-01-01T00:00:00Z", 1);
    let kv = Kv::start(Some(clock.clone()));
    let store = limited(&kv, &clock).await;
    for round in 0..5 {
        store.write_one(Item::put("key", format!("{round}"))).await.unwrap();
    }
    assert_eq!(kv.offences(), Vec::<String>::new());
    assert!(clock.slept_ms() >= 4_000, "it waited for its turns");
}

#[tokio::test]
async fn many_pairs_are_few_requests_and_a_listing_brings_the_metadata_along() {
    let clock = TestClock::at("2026-01-01T00:00:00Z", 1);
    let kv = Kv::start(Some(clock.clone()));
    let store = limited(&kv, &clock).await;
    let row = |at: usize| format!(r#"{{"title":"T {at}","sha":"{at}","path":"p{at}.md","lastUpdated":"x"}}"#);
    let items = (0..12_000).map(|at| Item::put(format!("policy:p{at:05}"), row(at))).collect();
    assert!(store.write(items, Mode::Each).await.unwrap().into_iter().all(|one| one.unwrap().landed()));
    assert_eq!(kv.bulk_writes(), [10_000, 2_000]);
    kv.server.forget();
    let query = trueup::store::Query { limit: 2_000, ..trueup::store::Query::values("policy:") };
    let page = store.survey(query).await.unwrap();
    assert_eq!((page.items.len(), page.more), (2_000, true));
    assert!(page.items.iter().all(|line| line.value.is_some()));
    assert_eq!((kv.server.count("/values/"), kv.server.count("/keys")), (0, 2), "no value is read");
}

#[tokio::test]
async fn keys_the_service_did_not_take_are_failures_in_an_answer_that_says_200() {
    let clock = TestClock::at("2026-01-01T00:00:00Z", 1);
    let kv = Kv::start(None);
    let store = limited(&kv, &clock).await;
    kv.refuse(&["b"]);
    let items = ["a", "b", "c"].map(|key| Item::put(key, "x")).to_vec();
    let outcomes = store.write(items, Mode::Each).await.unwrap();
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind(), Kind::Unavailable);
    let keys: Vec<String> =
        store.list_all("", What::Keys).await.unwrap().into_iter().map(|line| line.key).collect();
    assert_eq!(keys, ["a", "c"]);
}

#[tokio::test]
async fn too_many_requests_are_waited_out_as_asked() {
    let clock = TestClock::at("2026-01-01T00:00:00Z", 1);
    let kv = Kv::start(None);
    let store = limited(&kv, &clock).await;
    kv.throttle(2);
    store.write_one(Item::put("a", "x")).await.unwrap();
    assert!(clock.slept_ms() >= 4_000);
}

#[tokio::test]
async fn a_wrong_token_or_namespace_says_what_to_do() {
    let kv = Kv::start(None);
    let http = || Http::new(SystemClock::new()).unwrap();
    let refused =
        Cloudflare::connect("kv".into(), namespace(&kv, TITLE, "wrong"), http()).await.err().unwrap();
    assert_eq!(refused.kind(), Kind::Unauthorized);
    assert!(!format!("{refused:?}").contains("wrong"));
    let missing =
        Cloudflare::connect("kv".into(), namespace(&kv, "nope", TOKEN), http()).await.err().unwrap();
    assert!(missing.kind() == Kind::NotFound && missing.to_string().contains("nope"));
}

/// A namespace with `a`, `b` and `c` in it, whose server says something else whenever `lie` does.
async fn lying(lie: impl Fn(&str) -> Option<Reply> + Send + 'static) -> (Kv, Cloudflare) {
    let kv = Kv::start(None);
    let http = Http::new(TestClock::at("2026-01-01T00:00:00Z", 1)).unwrap();
    let store = Cloudflare::connect("kv".into(), namespace(&kv, NAMESPACE, TOKEN), http).await.unwrap();
    for key in ["a", "b", "c"] {
        store.write_one(Item::put(key, "x")).await.unwrap();
    }
    kv.lie(lie);
    (kv, store)
}

fn listing(status: u16, keys: &[&str], info: serde_json::Value) -> Reply {
    let keys: Vec<serde_json::Value> = keys.iter().map(|key| json!({"name": key})).collect();
    let body = json!({"success": true, "errors": [], "result": keys, "result_info": info});
    Reply::status(status).body(body.to_string()).header("Content-Type", "application/json")
}

#[tokio::test]
async fn a_listing_that_is_not_whole_is_none() {
    let whole = json!({"count": 1, "cursor": ""});
    for (status, info, says) in [
        (202, whole.clone(), "no whole answer"),
        (206, whole.clone(), "no whole answer"),
        (200, json!(null), "whether it goes on"),
        (200, json!({"count": 1}), "whether it goes on"),
        (200, json!({"count": 3, "cursor": ""}), "has 3 keys, and has 1"),
    ] {
        let part = listing(status, &["a"], info);
        let (_kv, store) = lying(move |path| path.contains("/keys").then(|| part.clone())).await;
        let error = store.list_all("", What::Names).await.unwrap_err();
        assert!(error.kind() == Kind::Unavailable && error.to_string().contains(says), "{error}");
    }
    let one = listing(200, &["a"], whole);
    let (_kv, store) = lying(move |path| path.contains("/keys").then(|| one.clone())).await;
    assert_eq!(store.list_all("", What::Names).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_is_absent_when_cloudflare_says_so_and_no_other_404_does() {
    let reply = |body: &str| Reply::status(404).body(body.to_owned());
    for (other, kind) in [
        (reply("<html>"), Kind::Unavailable),
        (reply(""), Kind::Unavailable),
        (reply("{}"), Kind::Unavailable),
        (refusal(404, 10_013, "namespace not found"), Kind::Invalid),
    ] {
        let (_kv, store) = lying(move |path| path.contains("/values/").then(|| other.clone())).await;
        assert_eq!(store.get(&["a"]).await.unwrap_err().kind(), kind);
    }
    let absent = || refusal(404, 10_009, "get: 'key not found'");
    let (_kv, store) = lying(move |path| path.contains("/values/").then(absent)).await;
    assert_eq!(store.get(&["a"]).await.unwrap(), [None]);
}

#[tokio::test]
async fn a_key_that_is_listed_is_not_absent_because_its_value_lags() {
    let absent = || refusal(404, 10_009, "get: 'key not found'");
    let (_kv, store) = lying(move |path| path.ends_with("/values/b").then(absent)).await;
    let error = store.list_all("", What::Values).await.unwrap_err();
    assert!(error.kind() == Kind::Unavailable && error.to_string().contains("lists the key b"), "{error}");
    assert_eq!(store.list_all("", What::Keys).await.unwrap().len(), 3, "no value is needed");
}

#[tokio::test]
async fn a_listing_that_never_ends_or_has_no_order_is_an_error_that_says_so() {
    let more = || json!({"cursor": "again"});
    for (reply, says) in [
        (listing(200, &[], more()), "does not end"),
        (listing(200, &["a", "b", "c"], more()), "does not end"),
        (listing(200, &["c", "a", "b"], json!({"cursor": ""})), "order of the keys: a comes too late"),
        (listing(200, &["a", "a"], json!({"cursor": ""})), "order of the keys: a comes too late, or twice"),
    ] {
        let (kv, store) = lying(move |path| path.contains("/keys").then(|| reply.clone())).await;
        kv.server.forget();
        let error = store.list_all("", What::Names).await.unwrap_err();
        assert!(error.kind() == Kind::Unavailable && error.to_string().contains(says), "{error}");
        assert!(kv.server.count("/keys") <= 2, "it is noticed at once");
    }
    let other = listing(200, &["a"], json!({"cursor": ""}));
    let (_kv, store) = lying(move |path| path.contains("/keys").then(|| other.clone())).await;
    let error = store.list_all("b", What::Names).await.unwrap_err();
    assert!(error.to_string().contains("a does not begin with b"), "{error}");
}

/// Whoever names another page every time, and the same keys or none.
#[tokio::test]
async fn new_cursors_do_not_make_a_listing_endless() {
    for (keys, says) in [(&["a"][..], "order of the keys"), (&[], "does not end")] {
        let count = AtomicU32::new(0);
        let cursor = move || json!({"cursor": count.fetch_add(1, Ordering::SeqCst).to_string()});
        let (_kv, store) =
            lying(move |path| path.contains("/keys").then(|| listing(200, keys, cursor()))).await;
        let error = store.list_all("", What::Names).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn empty_pages_in_the_middle_of_a_listing_are_passed_over() {
    let page = |path: &str| match path.split_once("cursor=").map(|(_, cursor)| cursor) {
        None => listing(200, &["a"], json!({"count": 1, "cursor": "1"})),
        Some("1") => listing(200, &[], json!({"count": 0, "cursor": "2"})),
        Some("2") => listing(200, &[], json!({"count": 0, "cursor": "3"})),
        Some(_) => listing(200, &["b"], json!({"count": 1, "cursor": ""})),
    };
    let (_kv, store) = lying(move |path| path.contains("/keys").then(|| page(path))).await;
    let keys: Vec<String> =
        store.list_all("", What::Names).await.unwrap().into_iter().map(|line| line.key).collect();
    assert_eq!(keys, ["a", "b"]);
}
