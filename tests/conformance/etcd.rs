//! etcd keeps the contract of a store.

use std::sync::Arc;

use trueup::etcd::EtcdPlace;
use trueup::store::etcd::EtcdStore;
use trueup::store::stamped::Stamped;
use trueup::store::{Item, Mode, Store, StoreExt, What};

use super::stores::conforms;
use crate::support;

async fn store(prefix: &str) -> EtcdStore {
    let endpoints = support::etcd().await.endpoints();
    EtcdStore::open(&EtcdPlace::parse(&format!("etcd://{endpoints}{prefix}")).unwrap(), None).unwrap()
}

#[tokio::test]
async fn etcd_keeps_the_contract() {
    conforms(&store("/conformance-etcd/").await).await;
}

#[tokio::test]
async fn etcd_with_room_for_fingerprints_keeps_the_contract() {
    conforms(&Stamped::new(Arc::new(store("/conformance-stamped/").await))).await;
}

#[tokio::test]
async fn a_prefix_keeps_two_stores_apart_and_values_stay_plain() {
    let (one, two) = (store("/apart/one/").await, store("/apart/two/").await);
    one.write_one(Item::put("key", "1")).await.unwrap();
    two.write_one(Item::put("key", "2")).await.unwrap();
    let etcd = support::etcd().await;
    assert_eq!(etcd.ctl(&["get", "/apart/one/key", "--print-value-only"]), "1\n");
    assert_eq!(one.list_all("", What::Keys).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_batch_larger_than_one_request_is_written_whole() {
    let store = store("/large-batch/").await;
    let body = "x".repeat(40_000);
    let items: Vec<Item> = (0..200).map(|at| Item::put(format!("{at:03}"), body.clone())).collect();
    let outcomes = store.write(items, Mode::Each).await.unwrap();
    assert_eq!(outcomes.into_iter().filter(|outcome| outcome.as_ref().unwrap().landed()).count(), 200);
    assert_eq!(store.list_all("", What::Values).await.unwrap().len(), 200);
}
