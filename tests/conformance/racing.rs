//! What a store promises when several write at the same time.

use futures::future::join_all;
use trueup::store::{Expect, Item, Mode, Outcome, Query, Store, StoreExt, What};

use super::stores::{exactly, held, key, put, settled};

pub async fn of_two_creators_exactly_one_wins(store: &dyn Store) {
    const CREATORS: usize = 8;
    if !store.caps().create {
        return;
    }
    for round in 0..5 {
        let name = key(&format!("creators/{round}"));
        let create = |who: usize| {
            let item = Item::put(name.as_str(), format!("creator {who}")).expecting(Expect::Absent);
            store.write_one(item)
        };
        let outcomes = join_all((0..CREATORS).map(create)).await;
        let mut winners = Vec::new();
        for (who, outcome) in outcomes.into_iter().enumerate() {
            match outcome.unwrap() {
                Outcome::Applied(Some(_)) => winners.push(who),
                Outcome::Conflict(_) => {}
                other => panic!("a creator was told {other:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "exactly one is told that it created the key: {winners:?}");
        held(store, &name, Some(&format!("creator {}", winners[0]))).await;
    }
}

pub async fn concurrent_increments_lose_nothing(store: &dyn Store) {
    const WRITERS: usize = 8;
    const EACH: usize = 10;
    if !store.caps().cas {
        return;
    }
    let name = key("counter");
    put(store, &name, "0").await;
    let increment = async || {
        for _ in 0..EACH {
            loop {
                let now = store.get_one(&name).await.unwrap().unwrap();
                let number: usize = std::str::from_utf8(&now.value).unwrap().parse().unwrap();
                let next =
                    Item::put(name.as_str(), (number + 1).to_string()).expecting(exactly(&now.version));
                match store.write_one(next).await.unwrap() {
                    Outcome::Applied(_) => break,
                    // Somebody else wrote the same number: that one counts for them, not for us.
                    Outcome::Conflict(_) | Outcome::AlreadySo(_) => {}
                    Outcome::Untouched => panic!("a lone item is never untouched"),
                }
            }
        }
    };
    join_all((0..WRITERS).map(|_| increment())).await;
    held(store, &name, Some(&(WRITERS * EACH).to_string())).await;
}

pub async fn a_listing_beside_writes_shows_what_was_there_all_along(store: &dyn Store) {
    const COUNT: usize = 40;
    let prefix = key("beside/");
    let names: Vec<String> = (0..COUNT).map(|at| format!("{prefix}{at:02}-stays")).collect();
    for name in &names {
        put(store, name, "x").await;
    }
    settled(async || store.list_all(&prefix, What::Keys).await.unwrap().len(), store, |n| *n == COUNT).await;
    let list = async || {
        let mut seen: Vec<String> = Vec::new();
        loop {
            let after = seen.last().cloned();
            let query = Query { limit: 3, after: after.as_deref(), ..Query::keys(&prefix) };
            let page = store.list(query).await.unwrap();
            seen.extend(page.items.into_iter().map(|line| line.key));
            if !page.more {
                return seen;
            }
        }
    };
    let disturb = async || {
        for at in 0..COUNT {
            let name = format!("{prefix}{at:02}-comes-and-goes");
            let put = vec![Item::put(name.as_str(), "x")];
            store.write(put, Mode::Each).await.unwrap().pop().unwrap().unwrap();
            store.write_one(Item::delete(name)).await.unwrap();
        }
    };
    let (seen, ()) = futures::join!(list(), disturb());
    assert!(seen.is_sorted(), "in order, each key once");
    let stayed: Vec<&String> = seen.iter().filter(|key| key.ends_with("stays")).collect();
    assert_eq!(stayed, names.iter().collect::<Vec<_>>());
}
