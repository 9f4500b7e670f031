//! The contract of a store, sentence by sentence. Every store and every wrapper is handed to [`conforms`].
//!
//! The suite asks the caps and holds a store to exactly what they promise: a weaker store is checked for the
//! weaker promise. It leaves nothing behind, and it minds nothing that is already there.

use std::time::Duration;

use bytes::Bytes;
use trueup::clock::SystemClock;
use trueup::record::{Fingerprint, Version};
use trueup::store::{Expect, Item, Listed, Mode, Outcome, Query, Store, StoreExt, Stored, What};

use super::{racing, reading, writing};

/// Every key of the suite starts with this.
pub const ROOM: &str = "conformance/";

/// Check every promise of the trait on this store.
pub async fn conforms(store: &dyn Store) {
    clear(store).await;
    reading::answers_come_in_the_order_of_the_keys(store).await;
    reading::a_listing_is_in_byte_order(store).await;
    reading::a_prefix_lists_what_starts_with_it_and_nothing_else(store).await;
    reading::a_sum_is_that_of_a_listing(store).await;
    reading::pages_join_without_gap_or_overlap(store).await;
    reading::values_of_any_size_come_back_as_they_were(store).await;
    reading::fingerprints_come_back_where_promised(store).await;
    writing::a_change_changes_the_version_and_a_repeat_does_not(store).await;
    writing::already_so_is_judged_before_the_condition(store).await;
    writing::a_condition_that_fails_writes_nothing_and_says_what_is_there(store).await;
    writing::a_condition_that_holds_lets_the_write_through(store).await;
    writing::a_key_made_again_has_a_new_version(store).await;
    writing::items_written_each_are_independent(store).await;
    writing::many_at_once_are_judged_one_by_one(store).await;
    writing::what_exceeds_the_limits_is_refused_item_by_item(store).await;
    writing::a_lone_check_is_refused(store).await;
    writing::all_or_nothing_is_just_that(store).await;
    writing::checks_guard_an_atomic_write(store).await;
    writing::a_refused_item_stops_an_atomic_write(store).await;
    writing::too_many_items_at_once_are_refused_whole(store).await;
    racing::of_two_creators_exactly_one_wins(store).await;
    racing::concurrent_increments_lose_nothing(store).await;
    racing::a_listing_beside_writes_shows_what_was_there_all_along(store).await;
    clear(store).await;
}

/// A key of this suite.
pub fn key(rest: &str) -> String {
    format!("{ROOM}{rest}")
}

pub fn print(text: &str) -> Fingerprint {
    Fingerprint::of(text.as_bytes())
}

/// Take away everything the suite ever wrote.
pub async fn clear(store: &dyn Store) {
    let lines = store.list_all(ROOM, What::Keys).await.unwrap();
    for chunk in lines.chunks(store.caps().bulk_max.max(1)) {
        let items = chunk.iter().map(|line| Item::delete(line.key.clone())).collect();
        for outcome in store.write(items, Mode::Each).await.unwrap() {
            assert!(outcome.unwrap().landed());
        }
    }
    settled(async || store.list_all(ROOM, What::Keys).await.unwrap(), store, Vec::is_empty).await;
}

/// Write one item and say what became of it.
pub async fn one(store: &dyn Store, item: Item) -> Outcome {
    store.write_one(item).await.unwrap()
}

/// Write one item that must be applied; the version it has now.
pub async fn applied(store: &dyn Store, item: Item) -> Option<Version> {
    match one(store, item.clone()).await {
        Outcome::Applied(version) => version,
        other => panic!("{}: {other:?} instead of Applied", item.key),
    }
}

/// Put and remember the version.
pub async fn put(store: &dyn Store, key: &str, value: &str) -> Version {
    applied(store, Item::put(key, value.to_owned())).await.expect("a put gives a version")
}

pub fn exactly(version: &Version) -> Expect {
    Expect::Exactly(version.clone())
}

/// What a key holds, once the store shows it: at once where reads are strong, after a while elsewhere.
pub async fn held(store: &dyn Store, key: &str, value: Option<&str>) -> Option<Stored> {
    let read = async || store.get_one(key).await.unwrap();
    let wanted = value.map(|value| Bytes::from(value.to_owned()));
    settled(read, store, |got| got.as_ref().map(|got| &got.value) == wanted.as_ref()).await
}

/// Keys below a prefix, the suite's own prefix cut off.
pub async fn keys_below(store: &dyn Store, prefix: &str) -> Vec<String> {
    let lines = store.list_all(prefix, What::Keys).await.unwrap();
    lines.into_iter().map(|line| line.key[ROOM.len()..].to_owned()).collect()
}

/// The first page of a listing.
pub async fn page(store: &dyn Store, query: Query<'_>) -> (Vec<Listed>, bool) {
    let page = store.list(query).await.unwrap();
    (page.items, page.more)
}

/// Longest wait for a store with weak reads to show a write, in tries of [`PAUSE`].
const TRIES: usize = 2_400;
const PAUSE: Duration = Duration::from_millis(50);

/// Read until it is as expected. A store that reads strongly has one try.
pub async fn settled<T: std::fmt::Debug>(
    read: impl AsyncFn() -> T,
    store: &dyn Store,
    expected: impl Fn(&T) -> bool,
) -> T {
    let clock = SystemClock::new();
    let tries = if store.caps().strong_read { 1 } else { TRIES };
    for attempt in 1.. {
        let got = read().await;
        if expected(&got) {
            return got;
        }
        assert!(attempt < tries, "{}: not what was written: {got:?}", store.name());
        clock.sleep(PAUSE).await;
    }
    unreachable!("the loop ends by itself")
}
