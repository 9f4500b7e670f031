//! A bucket keeps the contract, and says no more about itself than the server proved.

use trueup::clock::SystemClock;
use trueup::error::Kind;
use trueup::secret::Secret;
use trueup::store::objects::{Bucket, Conditions, Objects};
use trueup::store::{Access, Expect, Item, Outcome, Store, StoreExt, What};

use super::stores::{conforms, exactly, held, put};
use crate::support::s3;

async fn connect(to: &Bucket) -> Objects {
    Objects::connect(to, Access::Write, &*SystemClock::new()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_keeps_the_contract() {
    conforms(&connect(&s3::new_bucket()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_in_a_bucket_keeps_the_contract_and_hides_the_rest() {
    let whole = s3::new_bucket();
    let part = Bucket { prefix: "a prefix/규정".into(), ..whole.clone() };
    let store = connect(&part).await;
    conforms(&store).await;
    put(&store, "a.md", "1").await;
    let whole = connect(&whole).await;
    put(&whole, "outside", "1").await;
    held(&whole, "a prefix/규정/a.md", Some("1")).await;
    assert_eq!(store.list_all("", What::Keys).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_are_tried_and_the_probe_leaves_nothing() {
    let bucket = s3::new_bucket();
    let store = connect(&bucket).await;
    assert_eq!(store.conditions(), Conditions { create: true, update: true });
    assert!(store.caps().create && !store.caps().cas);
    assert_eq!(store.check(Access::Write).await.unwrap(), Vec::<String>::new());
    assert!(store.list_all("", What::Keys).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ignores_conditions_is_found_out() {
    let store = connect(&s3::new_bucket_without_conditions()).await;
    assert_eq!(store.conditions(), Conditions::default());
    assert!(!store.caps().create, "the caps promise only what the server does");
    let findings = store.check(Access::Write).await.unwrap();
    assert!(findings.len() == 2 && findings[0].contains("If-None-Match"), "{findings:?}");
    conforms(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_a_bucket_writes_no_probe() {
    let bucket = s3::new_bucket();
    put(&connect(&bucket).await, "a", "1").await;
    let store = Objects::connect(&bucket, Access::Read, &*SystemClock::new()).await.unwrap();
    held(&store, "a", Some("1")).await;
    assert!(!store.caps().create, "what was not tried is not promised");
    assert_eq!(store.write_one(Item::put("a", "2")).await.unwrap_err().kind(), Kind::Bug);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_no_object_names_are_refused_one_by_one() {
    let store = connect(&s3::new_bucket()).await;
    for key in ["/a", "a/", "a//b", "a/../b", ".", "a\nb", "a\0b", ".trueup-probe-1"] {
        assert_eq!(store.write_one(Item::put(key, "x")).await.unwrap_err().kind(), Kind::Invalid, "{key:?}");
        assert!(store.get_one(key).await.unwrap().is_none(), "{key:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_longer_than_one_answer_are_whole() {
    let store = connect(&s3::new_bucket()).await;
    let items: Vec<Item> = (0..1_203).map(|at| Item::put(format!("k/{at:05}"), "x")).collect();
    for chunk in items.chunks(store.caps().bulk_max) {
        let chunk = chunk.iter().cloned().map(|item| item.expecting(Expect::Absent)).collect();
        for outcome in store.write(chunk, trueup::store::Mode::Each).await.unwrap() {
            outcome.unwrap();
        }
    }
    let keys: Vec<String> =
        store.list_all("k/", What::Keys).await.unwrap().into_iter().map(|line| line.key).collect();
    assert_eq!(keys, items.iter().map(|item| item.key.clone()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_that_lost_a_race_is_a_conflict() {
    let store = connect(&s3::new_bucket()).await;
    let old = put(&store, "a", "1").await;
    let writers =
        (0..6).map(|at| store.write_one(Item::put("a", format!("writer {at}")).expecting(exactly(&old))));
    let outcomes = futures::future::join_all(writers).await;
    let won = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Outcome::Applied(_)))).count();
    assert_eq!(won, 1, "`If-Match` lets one through: {outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_bucket_and_a_dead_server_are_errors_that_say_what_to_do() {
    let clock = SystemClock::new();
    let missing = Objects::connect(&s3::no_bucket(), Access::Write, &*clock).await.err().unwrap();
    assert_eq!(missing.kind(), Kind::NotFound, "{missing}");
    assert!(missing.to_string().ends_with("The specified bucket does not exist"), "{missing}");
    assert!(missing.remedy().contains("bucket"), "{}", missing.remedy());
    let dead = Bucket { endpoint: Some("http://127.0.0.1:1".into()), ..s3::new_bucket() };
    let dead = Objects::connect(&dead, Access::Write, &*clock).await.err().unwrap();
    assert_eq!(dead.kind(), Kind::Unavailable, "{dead}");
    assert!(dead.remedy().contains("endpoint"), "{}", dead.remedy());
    let half = Bucket { secret_key: None, ..s3::new_bucket() };
    let half = Objects::connect(&half, Access::Write, &*clock).await.err().unwrap();
    assert_eq!(half.kind(), Kind::Config);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_shows_a_key() {
    let canary = Secret::new("canary-7f3a");
    let to = Bucket {
        endpoint: Some("http://127.0.0.1:1".into()),
        access_key: Some(canary.clone()),
        secret_key: Some(canary.clone()),
        ..s3::new_bucket()
    };
    let error = Objects::connect(&to, Access::Write, &*SystemClock::new()).await.err().unwrap();
    let shown = format!("{error} {error:?} {to:?} {}", error.remedy());
    assert!(!shown.contains(canary.expose()), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markers_of_folders_are_nobodys_keys() {
    let whole = s3::new_bucket();
    let names = ["dir", "dir.txt", "dir/", "dir/x", "p/", "p/dir/", "p/dir/sub/", "p/k"];
    for name in names {
        s3::put_as_is(&whole, name, "");
    }
    let keys = async |store: &Objects, what| {
        let found = store.list_all("", what).await.unwrap();
        found.into_iter().map(|line| line.key).collect::<Vec<_>>()
    };
    let store = connect(&whole).await;
    assert_eq!(keys(&store, What::Keys).await, ["dir", "dir.txt", "dir/x", "p/k"]);
    assert_eq!(keys(&store, What::Values).await, ["dir", "dir.txt", "dir/x", "p/k"]);
    let part = connect(&Bucket { prefix: "p".into(), ..whole }).await;
    assert_eq!(keys(&part, What::Keys).await, ["k"], "not even the folder of the prefix itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_whose_name_is_no_key_is_told_and_never_taken_for_another() {
    for name in ["/k", "a//k", "a/../k"] {
        let bucket = s3::new_bucket();
        s3::put_as_is(&bucket, name, "");
        let error = Objects::connect(&bucket, Access::Read, &*SystemClock::new()).await.err().expect(name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
        assert!(error.remedy().contains("rename"), "{name}: {}", error.remedy());
    }
}
