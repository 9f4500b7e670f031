//! What a store promises to whoever writes.

use bytes::Bytes;
use trueup::error::Kind;
use trueup::record::Version;
use trueup::store::{Expect, Item, Mode, Op, Outcome, Query, Store, StoreExt};

use super::stores::{applied, exactly, held, key, one, page, print, put};

/// A version no store ever gives.
fn never() -> Version {
    Version("never-given".to_owned())
}

pub async fn a_change_changes_the_version_and_a_repeat_does_not(store: &dyn Store) {
    let name = key("version/a");
    let item = |value: &str| Item::put(name.as_str(), value.to_owned()).with_fingerprint(print(value));
    let first = applied(store, item("1")).await;
    assert!(first.is_some(), "a put gives a version");
    assert_eq!(held(store, &name, Some("1")).await.map(|held| held.version), first);
    if store.caps().strong_read {
        assert_eq!(one(store, item("1")).await, Outcome::AlreadySo(first.clone()));
        assert_eq!(
            held(store, &name, Some("1")).await.map(|held| held.version),
            first,
            "a repeat is no change"
        );
    }
    let second = applied(store, item("2")).await;
    assert_ne!(first, second);
    assert_eq!(held(store, &name, Some("2")).await.map(|held| held.version), second);
    let (lines, _) = page(store, Query::keys(&name)).await;
    assert_eq!(Some(&lines[0].version), second.as_ref(), "a listing shows the same version");
    assert_eq!(one(store, Item::delete(name.as_str())).await, Outcome::Applied(None));
    held(store, &name, None).await;
}

/// Conditions under which a store must notice that there is nothing to do. One whose reads are late need not look when
/// nothing is expected: to write the same again is as good.
fn conditions(store: &dyn Store) -> Vec<Expect> {
    let all = [Expect::Absent, Expect::Exactly(never()), Expect::Anything];
    all.into_iter().take(if store.caps().strong_read { 3 } else { 2 }).collect()
}

pub async fn already_so_is_judged_before_the_condition(store: &dyn Store) {
    let (name, gone) = (key("retry/a"), key("retry/none"));
    let item = Item::put(name.as_str(), "x").with_fingerprint(print("x"));
    let version = applied(store, item.clone()).await;
    held(store, &name, Some("x")).await;
    let so = Outcome::AlreadySo(version);
    for expect in conditions(store) {
        assert_eq!(one(store, item.clone().expecting(expect.clone())).await, so, "put, {expect:?}");
    }
    for expect in conditions(store) {
        let outcome = one(store, Item::delete(gone.as_str()).expecting(expect.clone())).await;
        assert_eq!(outcome, Outcome::AlreadySo(None), "delete, {expect:?}");
    }
}

pub async fn a_condition_that_fails_writes_nothing_and_says_what_is_there(store: &dyn Store) {
    let (name, gone) = (key("condition/a"), key("condition/none"));
    let stale = put(store, &name, "1").await;
    held(store, &name, Some("1")).await;
    let now = put(store, &name, "2").await;
    held(store, &name, Some("2")).await;
    let there = Outcome::Conflict(Some(now.clone()));
    for expect in [Expect::Absent, exactly(&stale), Expect::Exactly(never())] {
        for item in [Item::put(name.as_str(), "3"), Item::delete(name.as_str())] {
            assert_eq!(
                one(store, item.clone().expecting(expect.clone())).await,
                there,
                "{item:?}, {expect:?}"
            );
        }
    }
    assert_eq!(held(store, &name, Some("2")).await.unwrap().version, now);
    let onto_nothing = Item::put(gone.as_str(), "3").expecting(exactly(&now));
    assert_eq!(one(store, onto_nothing).await, Outcome::Conflict(None));
    held(store, &gone, None).await;
}

pub async fn a_condition_that_holds_lets_the_write_through(store: &dyn Store) {
    let name = key("holds/a");
    let first = applied(store, Item::put(name.as_str(), "1").expecting(Expect::Absent)).await.unwrap();
    held(store, &name, Some("1")).await;
    let second = applied(store, Item::put(name.as_str(), "2").expecting(exactly(&first))).await.unwrap();
    held(store, &name, Some("2")).await;
    // Large to small and back: both ways a store may keep a value take conditions.
    let long = "x".repeat(5_000);
    let third = applied(store, Item::put(name.as_str(), long.clone()).expecting(exactly(&second))).await;
    held(store, &name, Some(&long)).await;
    let back = Item::put(name.as_str(), "2").expecting(Expect::Exactly(third.unwrap()));
    let fourth = applied(store, back).await.unwrap();
    held(store, &name, Some("2")).await;
    assert_eq!(applied(store, Item::delete(name.as_str()).expecting(exactly(&fourth))).await, None);
    held(store, &name, None).await;
}

pub async fn a_key_made_again_has_a_new_version(store: &dyn Store) {
    let name = key("again/a");
    let mut seen = vec![put(store, &name, "1").await];
    for round in 0..3 {
        applied(store, Item::delete(name.as_str())).await;
        held(store, &name, None).await;
        // A store without conditions may mark a value by its content alone, or by its length and the time.
        let value = if store.caps().cas { "1".to_owned() } else { format!("other{}", "!".repeat(round)) };
        let version = put(store, &name, &value).await;
        held(store, &name, Some(&value)).await;
        assert!(!seen.contains(&version), "{version} named an earlier state");
        seen.push(version);
    }
    if store.caps().cas {
        let old = Item::put(name.as_str(), "2").expecting(exactly(&seen[0]));
        assert_eq!(one(store, old).await, Outcome::Conflict(seen.last().cloned()));
    }
}

pub async fn items_written_each_are_independent(store: &dyn Store) {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| key(&format!("each/{name}")));
    let version = put(store, &b, "old").await;
    put(store, &d, "old").await;
    held(store, &b, Some("old")).await;
    held(store, &d, Some("old")).await;
    let items = vec![
        Item::put(a.as_str(), "new").expecting(Expect::Absent),
        Item::put(b.as_str(), "new").expecting(Expect::Absent),
        Item::put("", "nothing takes an empty key"),
        Item::delete(c.as_str()),
        Item::delete(d.as_str()),
    ];
    let mut outcomes = store.write(items, Mode::Each).await.unwrap();
    assert_eq!(outcomes.len(), 5, "one outcome per item");
    assert_eq!(outcomes.remove(2).unwrap_err().kind(), Kind::Invalid);
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(Result::unwrap).collect();
    assert!(matches!(outcomes[0], Outcome::Applied(Some(_))));
    let nothing = if store.caps().strong_read { Outcome::AlreadySo(None) } else { Outcome::Applied(None) };
    assert_eq!(outcomes[1..], [Outcome::Conflict(Some(version)), nothing, Outcome::Applied(None)]);
    held(store, &a, Some("new")).await;
    held(store, &b, Some("old")).await;
    held(store, &d, None).await;
    assert!(store.write(Vec::new(), Mode::Each).await.unwrap().is_empty());
}

/// Enough for a store to write many by one statement, in an order that changes from one to the next.
pub async fn many_at_once_are_judged_one_by_one(store: &dyn Store) {
    if !store.caps().cas {
        return;
    }
    let name = |at: usize| key(&format!("crowd/{at:03}"));
    for taken in [|_: usize| false, |at| at >= 120, |at| at % 70 == 3, |at| at % 3 == 0, |_| true] {
        let there = (0..200).filter(|&at| taken(at)).map(|at| Item::put(name(at), "old")).collect();
        store.write(there, Mode::Each).await.unwrap();
        let large = "x".repeat(20_000);
        let value = |at: usize| match at % 90 {
            75 => large.clone(),
            at if at % 4 == 0 => "old".to_owned(),
            _ => "new".to_owned(),
        };
        let expect = |at: usize| if at / 2 % 2 == 0 { Expect::Absent } else { Expect::Anything };
        let items = (0..200).map(|at| Item::put(name(at), value(at)).expecting(expect(at))).collect();
        let outcomes = store.write(items, Mode::Each).await.unwrap();
        for (at, outcome) in outcomes.into_iter().enumerate() {
            let wanted = match (taken(at), value(at) == "old", expect(at)) {
                (false, ..) | (true, false, Expect::Anything) => "applied",
                (true, true, _) => "already so",
                (true, false, _) => "conflict",
            };
            let (was, version) = match outcome.unwrap() {
                Outcome::Applied(version) => ("applied", version),
                Outcome::AlreadySo(version) => ("already so", version),
                Outcome::Conflict(version) => ("conflict", version),
                Outcome::Untouched => ("untouched", None),
            };
            assert_eq!(was, wanted, "{}", name(at));
            let now = if wanted == "conflict" { "old".to_owned() } else { value(at) };
            let held = held(store, &name(at), Some(&now)).await.unwrap();
            assert_eq!(Some(&held.version), version.as_ref(), "{}", name(at));
        }
        let gone = (0..200).map(|at| Item::delete(name(at))).collect();
        store.write(gone, Mode::Each).await.unwrap();
    }
}

pub async fn what_exceeds_the_limits_is_refused_item_by_item(store: &dyn Store) {
    let caps = store.caps();
    let good = key("limits/good");
    let long = key(&"k".repeat(caps.key_max + 1));
    let mut items = vec![Item::put("", "x"), Item::put(long, "x"), Item::put(good.as_str(), "x")];
    if let Ok(size) = usize::try_from(caps.value_max.saturating_add(1)) {
        // Zeroed memory that is refused is never touched, so a huge value costs nothing.
        if size < 1 << 32 {
            items.push(Item::put(key("limits/huge"), Bytes::from(vec![0; size])));
        }
    }
    for (at, outcome) in store.write(items, Mode::Each).await.unwrap().into_iter().enumerate() {
        match outcome {
            Ok(outcome) => assert!(at == 2 && outcome.landed(), "item {at}: {outcome:?}"),
            Err(error) => assert!(at != 2 && error.kind() == Kind::Invalid, "item {at}: {error:?}"),
        }
    }
    held(store, &good, Some("x")).await;
}

pub async fn a_lone_check_is_refused(store: &dyn Store) {
    let check = Item { key: key("lone"), op: Op::Check, expect: Expect::Absent };
    assert_eq!(store.write_one(check).await.unwrap_err().kind(), Kind::Bug);
}

pub async fn all_or_nothing_is_just_that(store: &dyn Store) {
    if store.caps().atomic_max < 4 {
        return;
    }
    let [a, b, c] = ["a", "b", "c"].map(|name| key(&format!("all/{name}")));
    let old = put(store, &b, "old").await;
    let batch = |expect: Expect| {
        vec![
            Item::put(a.as_str(), "new"),
            Item::put(b.as_str(), "new").expecting(expect),
            Item::delete(c.as_str()),
        ]
    };
    let outcomes = store.write(batch(Expect::Absent), Mode::All).await.unwrap();
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [Outcome::Untouched, Outcome::Conflict(Some(old.clone())), Outcome::Untouched]);
    held(store, &a, None).await;
    assert_eq!(held(store, &b, Some("old")).await.unwrap().version, old);

    let outcomes = store.write(batch(exactly(&old)), Mode::All).await.unwrap();
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(Result::unwrap).collect();
    let (a_held, b_held) = (held(store, &a, Some("new")).await, held(store, &b, Some("new")).await);
    assert_eq!(outcomes[0], Outcome::Applied(a_held.map(|held| held.version)));
    assert_eq!(outcomes[1], Outcome::Applied(b_held.map(|held| held.version)));
    assert_eq!(outcomes[2], Outcome::AlreadySo(None));

    let outcomes = store.write(batch(exactly(&old)), Mode::All).await.unwrap();
    let again = outcomes.into_iter().all(|outcome| matches!(outcome.unwrap(), Outcome::AlreadySo(_)));
    assert!(again, "the same batch again is already so, whatever it expects");
    assert!(store.write(Vec::new(), Mode::All).await.unwrap().is_empty());
}

pub async fn checks_guard_an_atomic_write(store: &dyn Store) {
    if store.caps().atomic_max < 4 {
        return;
    }
    let [lease, gone, data] = ["lease", "none", "data"].map(|name| key(&format!("check/{name}")));
    let mine = put(store, &lease, "mine").await;
    let batch = |value: &str, expect: Expect| {
        vec![
            Item { key: lease.clone(), op: Op::Check, expect },
            Item { key: gone.clone(), op: Op::Check, expect: Expect::Absent },
            Item::put(data.as_str(), value.to_owned()),
        ]
    };
    let outcomes = store.write(batch("1", exactly(&mine)), Mode::All).await.unwrap();
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes[..2], [Outcome::AlreadySo(Some(mine.clone())), Outcome::AlreadySo(None)]);
    assert!(matches!(outcomes[2], Outcome::Applied(Some(_))));
    held(store, &data, Some("1")).await;

    let theirs = put(store, &lease, "theirs").await;
    let outcomes = store.write(batch("2", exactly(&mine)), Mode::All).await.unwrap();
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [Outcome::Conflict(Some(theirs)), Outcome::Untouched, Outcome::Untouched]);
    held(store, &data, Some("1")).await;
}

pub async fn a_refused_item_stops_an_atomic_write(store: &dyn Store) {
    if store.caps().atomic_max < 2 {
        return;
    }
    let name = key("refused/a");
    let items = vec![Item::put(name.as_str(), "x"), Item::put("", "x")];
    let mut outcomes = store.write(items, Mode::All).await.unwrap();
    assert_eq!(outcomes.pop().unwrap().unwrap_err().kind(), Kind::Invalid);
    assert_eq!(outcomes.pop().unwrap().unwrap(), Outcome::Untouched);
    held(store, &name, None).await;
}

pub async fn too_many_items_at_once_are_refused_whole(store: &dyn Store) {
    let count = store.caps().atomic_max + 1;
    let items: Vec<Item> = (0..count).map(|at| Item::put(key(&format!("many/{at}")), "x")).collect();
    let first = items[0].key.clone();
    assert_eq!(store.write(items, Mode::All).await.unwrap_err().kind(), Kind::Bug);
    held(store, &first, None).await;
}
