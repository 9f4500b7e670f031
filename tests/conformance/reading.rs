//! What a store promises to whoever reads.

use bytes::Bytes;
use trueup::store::{Item, Mode, PAGE, Query, Store, StoreExt, Sum, What};

use super::stores::{applied, clear, held, key, keys_below, one, page, print, put, settled};

pub async fn answers_come_in_the_order_of_the_keys(store: &dyn Store) {
    let (a, b, gone) = (key("order/a"), key("order/b"), key("order/none"));
    put(store, &a, "1").await;
    put(store, &b, "2").await;
    held(store, &a, Some("1")).await;
    held(store, &b, Some("2")).await;
    let got = store.get(&[&b, &gone, &a, &b]).await.unwrap();
    let values: Vec<_> = got.iter().map(|got| got.as_ref().map(|got| got.value.clone())).collect();
    let [one, two] = ["1", "2"].map(|text| Some(Bytes::from(text)));
    assert_eq!(values, [two.clone(), None, one, two]);
    assert!(store.get(&[]).await.unwrap().is_empty(), "no keys, no answers");
}

/// Names that tempt a store to sort by something else than bytes, or to read them as a pattern.
const TEMPTING: [&str; 22] = [
    "a",
    "a b",
    "a!b",
    "a#c",
    "a%",
    "a%25",
    "a+b",
    "a-b",
    "a.b",
    "a/b",
    "a/b/c",
    "a0",
    "a=&?",
    "aB",
    "a_b",
    "ab",
    "b",
    "~",
    "é",
    "규정/제1조",
    "퉁",
    "😀",
];

pub async fn a_listing_is_in_byte_order(store: &dyn Store) {
    let mut names: Vec<String> = TEMPTING.iter().map(|name| format!("tempting/{name}")).collect();
    // A folder cannot be a file too: stores on file systems refuse "a/b/c" beside "a/b". That is checked there.
    let names_nest = |name: &String| name.ends_with("/a") || name.ends_with("/a/b");
    names.retain(|name| !names_nest(name));
    for name in names.iter().rev() {
        put(store, &key(name), name).await;
    }
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    let list = async || keys_below(store, &key("tempting/")).await;
    settled(list, store, |got| *got == names).await;
    for name in &names {
        let got = held(store, &key(name), Some(name)).await.unwrap();
        let (lines, _) = page(store, Query { limit: 1, ..Query::values(&key(name)) }).await;
        assert_eq!((&lines[0].key, &lines[0].version), (&key(name), &got.version), "listed as it is read");
        assert_eq!(lines[0].value.as_ref(), Some(&got.value));
    }
}

pub async fn a_prefix_lists_what_starts_with_it_and_nothing_else(store: &dyn Store) {
    for name in ["edge/a", "edge/a\u{10FFFF}", "edge/a\u{10FFFF}z", "edge/b", "edge/ab%", "edge/ab_", "edgf"]
    {
        put(store, &key(name), "x").await;
    }
    let below = async |prefix: &str| keys_below(store, &key(prefix)).await;
    settled(async || below("edge/").await.len(), store, |found| *found == 6).await;
    let expect = |names: &[&str]| names.iter().map(|name| format!("edge/{name}")).collect::<Vec<_>>();
    let a = expect(&["a", "ab%", "ab_", "a\u{10FFFF}", "a\u{10FFFF}z"]);
    assert_eq!(below("edge/a").await, a);
    assert_eq!(below("edge/a\u{10FFFF}").await, a[3..]);
    assert_eq!(below("edge/ab").await, a[1..3]);
    assert_eq!(below("edge/ab_").await, a[2..3], "_ is a character, not a wildcard");
    assert_eq!(below("edge/%").await, Vec::<String>::new(), "% is a character, not a wildcard");
    assert_eq!(below("edge/c").await, Vec::<String>::new());
    assert_eq!(below("edg").await.len(), 7, "a prefix may end anywhere");
}

/// Where sums are promised they are over exactly what a listing shows.
pub async fn a_sum_is_that_of_a_listing(store: &dyn Store) {
    for name in ["sum/a", "sum/b", "sum/b\u{10FFFF}", "sum0"] {
        put(store, &key(name), name).await;
    }
    put(store, &key("sum/b"), "another version").await;
    applied(store, Item::delete(key("sum/a"))).await;
    for prefix in ["sum/", "sum/b\u{10FFFF}", "sum", "nothing"] {
        let Some(sum) = store.sum(&key(prefix)).await.unwrap() else {
            assert!(!store.caps().sums, "promised, and not given");
            return;
        };
        let mut listed = Sum::default();
        for line in store.list_all(&key(prefix), What::Keys).await.unwrap() {
            listed.add(&line.key, &line.version.0);
        }
        assert_eq!(sum, listed, "{prefix}");
    }
}

pub async fn pages_join_without_gap_or_overlap(store: &dyn Store) {
    const COUNT: usize = 25;
    let prefix = key("page/");
    let names: Vec<String> = (0..COUNT).map(|number| format!("{prefix}{number:03}")).collect();
    let items: Vec<Item> = names.iter().map(|name| Item::put(name.as_str(), "x")).collect();
    for chunk in items.chunks(store.caps().bulk_max.max(1)) {
        for outcome in store.write(chunk.to_vec(), Mode::Each).await.unwrap() {
            assert!(outcome.unwrap().landed());
        }
    }
    settled(async || store.list_all(&prefix, What::Keys).await.unwrap().len(), store, |n| *n == COUNT).await;
    for limit in [1, 4, 5, COUNT - 1, COUNT, COUNT + 1, PAGE] {
        let (mut all, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
        loop {
            let query = Query { limit, after: after.as_deref(), ..Query::keys(&prefix) };
            let (lines, more) = page(store, query).await;
            assert_eq!(
                lines.len(),
                limit.min(COUNT - all.len()),
                "a page of keys is full while there are more"
            );
            all.extend(lines.into_iter().map(|line| line.key));
            assert_eq!(
                more,
                all.len() < COUNT,
                "`more` says exactly whether anything follows (limit {limit})"
            );
            if !more {
                break;
            }
            after = all.last().cloned();
        }
        assert_eq!(all, names);
    }
    let first = async |after: &str| {
        let query = Query { limit: 1, after: Some(after), ..Query::keys(&prefix) };
        page(store, query).await.0.pop().map(|line| line.key)
    };
    assert_eq!(first("").await.as_ref(), names.first(), "before everything");
    assert_eq!(first(&key("page")).await.as_ref(), names.first(), "before the prefix");
    assert_eq!(first(&prefix).await.as_ref(), names.first(), "the prefix itself");
    assert_eq!(first(&format!("{prefix}000.5")).await.as_ref(), names.get(1), "a key that is not there");
    assert_eq!(first(&key("page0")).await, None, "behind everything");
}

pub async fn values_of_any_size_come_back_as_they_were(store: &dyn Store) {
    let name = key("size/one");
    let sizes = [3_000_000, 0, 1_025, 1, 1_024, 100_000, 1_500_000, 1_023];
    for size in sizes.into_iter().filter(|size| *size as u64 <= store.caps().value_max) {
        let value: Bytes = (0..size).map(|at: usize| u8::try_from(at * 31 % 251).unwrap()).collect();
        let version = applied(store, Item::put(name.as_str(), value.clone())).await;
        let read = async || store.get_one(&name).await.unwrap();
        let got =
            settled(read, store, |got| got.as_ref().is_some_and(|got| got.value == value)).await.unwrap();
        assert_eq!(Some(&got.version), version.as_ref(), "{size} bytes: the version the write reported");
        let (lines, more) = page(store, Query::values(&name)).await;
        assert_eq!((lines.len(), more), (1, false));
        assert_eq!(lines[0].value.as_ref().map(Bytes::len), Some(size));
        assert!(lines[0].value.as_ref() == Some(&value));
        let (lines, _) = page(store, Query::keys(&name)).await;
        assert_eq!(lines[0].value, None, "keys come without values");
    }
    one(store, Item::delete(name.as_str())).await;
    held(store, &name, None).await;
}

pub async fn fingerprints_come_back_where_promised(store: &dyn Store) {
    let name = key("print/a");
    let promised = store.caps().keeps_fingerprint;
    applied(store, Item::put(name.as_str(), "x").with_fingerprint(print("first"))).await;
    let got = held(store, &name, Some("x")).await.unwrap();
    assert_eq!(got.fingerprint, promised.then(|| print("first")));
    let (lines, _) = page(store, Query::keys(&name)).await;
    assert_eq!(lines[0].fingerprint, got.fingerprint);

    let again = one(store, Item::put(name.as_str(), "x").with_fingerprint(print("second"))).await;
    let now = held(store, &name, Some("x")).await.unwrap();
    if promised {
        assert!(matches!(again, trueup::store::Outcome::Applied(_)), "another fingerprint is a change");
        assert_ne!(now.version, got.version);
        assert_eq!(now.fingerprint, Some(print("second")));
        applied(store, Item::put(name.as_str(), "x")).await;
        let bare = held(store, &name, Some("x")).await.unwrap();
        assert_eq!(bare.fingerprint, None, "a put without one takes it away");
    } else {
        assert!(again.landed());
        assert_eq!(now.fingerprint, None);
    }
    clear(store).await;
}
