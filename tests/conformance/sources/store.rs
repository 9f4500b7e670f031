//! A store as a source.

use std::sync::Arc;

use bytes::Bytes;
use trueup::clock::TestClock;
use trueup::error::Kind;
use trueup::record::Fingerprint;
use trueup::source::store::FromStore;
use trueup::source::{Event, Source, Versions};
use trueup::store::faulty::{Faulty, Mishap, Verb};
use trueup::store::memory::Memory;
use trueup::store::{Item, Mode, Store};

use super::{Holding, holding, list, seen, source_conforms};

async fn store_of(holding: &Holding, fingerprints: bool) -> Arc<Memory> {
    let store = Arc::new(Memory::new());
    let items = holding.iter().map(|(key, value)| {
        let item = Item::put(key.clone(), Bytes::from(value.clone()));
        if fingerprints { item.with_fingerprint(Fingerprint::of(value)) } else { item }
    });
    for batch in items.collect::<Vec<_>>().chunks(1_000) {
        store.write(batch.to_vec(), Mode::Each).await.unwrap();
    }
    store
}

#[tokio::test]
async fn a_store_conforms_as_a_source() {
    let records = holding(&[("a/1", "x"), ("a-2", "y"), ("b", "z"), ("키", "값")]);
    for fingerprints in [true, false] {
        let source = FromStore::new(store_of(&records, fingerprints).await, String::new());
        source_conforms(&source, &records).await;
    }
}

#[tokio::test]
async fn a_store_of_many_pages_conforms_as_a_source() {
    let records: Holding = (0..4_500).map(|n| (format!("{n:04}"), vec![b'x'])).collect();
    let source = FromStore::new(store_of(&records, true).await, String::new());
    source_conforms(&source, &records).await;
    // Sixteen first, then a thousand at a time; one where nothing else fits; the rest of what fits.
    let together = (1 + 5) + 1 + 1 + 5;
    let wanted = 3 + 4_500 + together + 3 + 1;
    assert_eq!(source.requests(), wanted, "pages of two listings, every body, and bodies together");
}

#[tokio::test]
async fn a_prefix_narrows_a_store_and_keeps_full_keys() {
    let store = store_of(&holding(&[("a/1", "x"), ("ab", "y"), ("b/1", "z")]), true).await;
    let source = FromStore::new(store, "a/".to_owned());
    source_conforms(&source, &holding(&[("a/1", "x")])).await;
}

#[tokio::test]
async fn versions_tell_the_content_only_where_every_value_has_a_fingerprint() {
    let records = holding(&[("a", "x"), ("b", "y")]);
    let store = store_of(&records, true).await;
    let source = FromStore::new(store.clone(), String::new());
    let entries = seen(&list(&source).await.unwrap());
    assert_eq!(source.versions(), Versions::Content);
    assert_eq!(entries[0].version, Fingerprint::of(b"x").to_string());

    store.write(vec![Item::put("c", "by hand")], Mode::Each).await.unwrap();
    list(&source).await.unwrap();
    assert_eq!(source.versions(), Versions::Hint);
}

#[tokio::test]
async fn a_listing_cut_short_proves_nothing() {
    let records: Holding = (0..4_500).map(|n| (format!("{n:04}"), vec![b'x'])).collect();
    let inner = store_of(&records, true).await;
    for pages in 0..4 {
        let store = Faulty::new(inner.clone(), TestClock::at("2026-01-01T00:00:00Z", 1));
        store.at_verb(Verb::List, pages as u64 + 1, Mishap::Reject);
        let source = FromStore::new(Arc::new(store), String::new());
        match (pages, list(&source).await) {
            (0, listed) => assert_eq!(listed.unwrap_err().kind(), Kind::Unavailable),
            (1 | 2, listed) => {
                let events = listed.unwrap();
                assert_eq!(seen(&events).len(), pages * 2_000);
                assert!(matches!(events.last(), Some(Event::Broken(scope, _)) if scope.is_empty()));
            }
            (_, listed) => assert!(matches!(listed.unwrap().last(), Some(Event::Complete(..)))),
        }
    }
}
