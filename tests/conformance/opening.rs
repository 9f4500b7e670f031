//! From a line in the config to a store.

use std::collections::BTreeMap;

use trueup::clock::SystemClock;
use trueup::config::{Place, StoreSpec};
use trueup::error::Kind;
use trueup::secret::SecretRef;
use trueup::store::open::open;
use trueup::store::{Access, SharedStore};

use super::stores::{held, put};
use crate::support::s3;

fn spec(name: &str, place: Place) -> StoreSpec {
    StoreSpec { name: name.into(), place, secrets: BTreeMap::new(), options: BTreeMap::new() }
}

async fn write_to(spec: &StoreSpec) -> SharedStore {
    open(spec, Access::Write, SystemClock::new()).await.unwrap()
}

#[tokio::test]
async fn stores_in_memory_are_shared_by_name() {
    let [one, same, other] =
        ["memory:shared", "memory:shared", "memory:other"].map(|name| spec(name, Place::Memory));
    put(&*write_to(&one).await, "a", "1").await;
    held(&*write_to(&same).await, "a", Some("1")).await;
    held(&*write_to(&other).await, "a", None).await;
}

#[tokio::test]
async fn files_and_folders_are_opened_as_described() {
    let folder = tempfile::tempdir().unwrap();
    let (file, objects) = (folder.path().join("x/store.db"), folder.path().join("y/objects"));
    for place in [Place::Sqlite(file.clone()), Place::Folder(objects.clone())] {
        let spec = spec("store", place);
        let reader = open(&spec, Access::Read, SystemClock::new()).await.unwrap();
        held(&*reader, "a", None).await;
        put(&*write_to(&spec).await, "a", "1").await;
        held(&*reader, "a", Some("1")).await;
    }
    assert!(file.is_file() && objects.join("a").is_file());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_is_opened_with_its_options_and_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = s3::new_bucket();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "test\n").unwrap();
    let mut spec = spec("bucket", Place::S3 { bucket: bucket.bucket, prefix: "below".into() });
    spec.options.insert("endpoint".into(), bucket.endpoint.unwrap());
    spec.options.insert("region".into(), "us-east-1".into());
    for name in ["access_key", "secret_key"] {
        spec.secrets.insert(name.into(), SecretRef::File(secret.clone()));
    }
    put(&*write_to(&spec).await, "a", "1").await;
    spec.secrets.insert("secret_key".into(), SecretRef::Env("TRUEUP_TEST_NEVER_SET".into()));
    let error = open(&spec, Access::Read, SystemClock::new()).await.err().unwrap();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert!(error.to_string().contains("bucket") && error.remedy().contains("TRUEUP_TEST_NEVER_SET"));
}
