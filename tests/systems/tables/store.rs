//! Tables as a store: conditions, versions, atomic writes, listings in byte order.

use std::collections::BTreeMap;

use trueup::clock::SharedClock;
use trueup::config::{ColumnKind, ColumnSpec, Database as Where, JsonPath, Place, StoreSpec, TableSpec};
use trueup::error::Kind;
use trueup::store::tables::Tables;
use trueup::store::{Access, Expect, Item, Mode, Outcome, Query, Store, StoreExt, What};

use super::kit::{Database, Stage};
use super::on_both;

on_both!(
    conditions_hold_and_repeats_are_already_so,
    an_altered_row_has_another_version,
    all_or_nothing_is_just_that,
    a_listing_is_in_byte_order_and_pages_join,
    what_is_no_row_is_refused_item_by_item,
    who_only_reads_sees_what_others_write_meanwhile,
    a_sum_is_that_of_the_listing,
);

pub fn column(name: &str, kind: ColumnKind) -> ColumnSpec {
    let (path, optional) = (JsonPath::parse(name), name != "id");
    ColumnSpec { name: name.into(), path, kind, optional, index: None, parent: None }
}

fn table(name: &str) -> TableSpec {
    let columns =
        vec![column("id", ColumnKind::Text), column("n", ColumnKind::Real), column("zz", ColumnKind::Json)];
    TableSpec { name: name.into(), key: vec!["id".into()], columns }
}

pub async fn open(stage: &Stage) -> Tables {
    open_with(stage, three()).await
}

fn three() -> Vec<TableSpec> {
    vec![table("b"), table("a_b"), table("a")]
}

pub async fn open_with(stage: &Stage, tables: Vec<TableSpec>) -> Tables {
    open_as(stage, tables, Access::Write).await
}

async fn open_as(stage: &Stage, tables: Vec<TableSpec>, access: Access) -> Tables {
    let place = match &stage.database {
        Database::Sqlite(path) => Where::Sqlite(path.clone()),
        Database::Postgres(dsn) => Where::Postgres(trueup::config::Address::new(dsn)),
    };
    let spec = StoreSpec {
        name: "tables".into(),
        place: Place::Tables(place),
        secrets: BTreeMap::new(),
        options: BTreeMap::new(),
    };
    let clock: SharedClock = stage.clock.clone();
    Tables::open(&spec, tables, access, clock).await.unwrap()
}

pub fn row(key: &str, n: i32) -> Item {
    let id = key.split_once('/').unwrap().1;
    Item::put(key, format!("{{\"id\":\"{id}\",\"n\":{n}}}"))
}

async fn conditions_hold_and_repeats_are_already_so(stage: Stage) {
    let store = open(&stage).await;
    let Outcome::Applied(Some(first)) =
        store.write_one(row("a/x", 1).expecting(Expect::Absent)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(
        store.write_one(row("a/x", 1).expecting(Expect::Absent)).await.unwrap(),
        Outcome::AlreadySo(Some(first.clone()))
    );
    assert_eq!(
        store.write_one(row("a/x", 2).expecting(Expect::Absent)).await.unwrap(),
        Outcome::Conflict(Some(first.clone()))
    );
    stage.clock.advance(std::time::Duration::from_millis(1));
    let Outcome::Applied(Some(second)) =
        store.write_one(row("a/x", 2).expecting(Expect::Exactly(first.clone()))).await.unwrap()
    else {
        panic!()
    };
    assert_ne!(first, second);
    assert_eq!(
        store.write_one(row("a/x", 3).expecting(Expect::Exactly(first))).await.unwrap(),
        Outcome::Conflict(Some(second.clone()))
    );
    let held = store.get_one("a/x").await.unwrap().unwrap();
    assert_eq!((&held.value[..], &held.version), (&b"{\"id\":\"x\",\"n\":2}"[..], &second));
    assert_eq!(held.fingerprint, Some(trueup::record::Fingerprint::of(&held.value)));
    assert_eq!(
        store.write_one(Item::delete("a/x").expecting(Expect::Exactly(second))).await.unwrap(),
        Outcome::Applied(None)
    );
    assert_eq!(store.write_one(Item::delete("a/x")).await.unwrap(), Outcome::AlreadySo(None));
    assert!(store.get(&["a/x", "b/x", "nowhere/x", "a"]).await.unwrap().iter().all(Option::is_none));
    assert_eq!(stage.rows("sync_cache"), 0);
}

async fn an_altered_row_has_another_version(stage: Stage) {
    let store = open(&stage).await;
    store.write_one(row("a/x", 1)).await.unwrap();
    let before = store.get_one("a/x").await.unwrap().unwrap();
    stage.query("update a set n = 7");
    let after = store.get_one("a/x").await.unwrap().unwrap();
    assert_eq!(&after.value[..], b"{\"id\":\"x\",\"n\":7}");
    assert_ne!(after.version, before.version);
    let page = store.list(Query::values("a/")).await.unwrap();
    assert_eq!(page.items[0].version, after.version);
    assert_eq!(
        store.write_one(row("a/x", 1).expecting(Expect::Exactly(before.version.clone()))).await.unwrap(),
        Outcome::Conflict(Some(after.version.clone()))
    );
    assert!(store.write_one(row("a/x", 1).expecting(Expect::Exactly(after.version))).await.unwrap().landed());
    assert_eq!(store.get_one("a/x").await.unwrap().unwrap().value, before.value);
}

async fn all_or_nothing_is_just_that(stage: Stage) {
    let store = open(&stage).await;
    store.write_one(row("a/x", 1)).await.unwrap();
    let items = vec![row("a/y", 1), row("a/x", 2).expecting(Expect::Absent), row("b/z", 1)];
    let outcomes = store.write(items, Mode::All).await.unwrap();
    assert!(
        matches!(
            outcomes[..],
            [Ok(Outcome::Untouched), Ok(Outcome::Conflict(Some(_))), Ok(Outcome::Untouched)]
        ),
        "{outcomes:?}"
    );
    assert_eq!(store.list_all("", What::Keys).await.unwrap().len(), 1);
    store.write_all(vec![row("a/y", 1), row("b/z", 1), Item::delete("a/x")]).await.unwrap();
    assert_eq!(store.list_all("", What::Keys).await.unwrap().len(), 2);
}

async fn a_listing_is_in_byte_order_and_pages_join(stage: Stage) {
    let store = open(&stage).await;
    let mut keys: Vec<String> = ["a", "a_b", "b"]
        .iter()
        .flat_map(|table| ["10", "9", "A", "a", "a b", "å", "ü/x"].map(|id| format!("{table}/{id}")))
        .collect();
    store.write(keys.iter().map(|key| row(key, 1)).collect(), Mode::Each).await.unwrap();
    keys.sort();
    let listed =
        |lines: Vec<trueup::store::Listed>| lines.into_iter().map(|line| line.key).collect::<Vec<_>>();
    assert_eq!(listed(store.list_all("", What::Keys).await.unwrap()), keys);
    let mut paged = Vec::new();
    loop {
        let after = paged.last().cloned();
        let page = store
            .list(Query { prefix: "", after: after.as_deref(), limit: 4, what: What::Values })
            .await
            .unwrap();
        paged.extend(listed(page.items));
        if !page.more {
            break;
        }
    }
    assert_eq!(paged, keys);
    for prefix in ["a", "a/", "a/a", "a_b/9", "b/", "c", "a/ü"] {
        let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
        assert_eq!(listed(store.list_all(prefix, What::Keys).await.unwrap()), expected, "{prefix}");
    }
}

async fn what_is_no_row_is_refused_item_by_item(stage: Stage) {
    let store = open(&stage).await;
    let bad = [
        Item::put("nowhere/x", "{}"),
        Item::put("a/x", "not json"),
        Item::put("a/x", r#"{"id":"y"}"#),
        Item::put("a/x", r#"{"id":"x","other":1}"#),
        Item::put("a/x", r#"{"id":"x","n":"text"}"#),
        Item::put("a/x", r#"{"n":1,"id":"x"}"#),
    ];
    for item in bad {
        let outcomes = store.write(vec![row("b/good", 1), item.clone()], Mode::Each).await.unwrap();
        assert!(outcomes[0].as_ref().unwrap().landed());
        assert_eq!(outcomes[1].as_ref().unwrap_err().kind(), Kind::Invalid, "{item:?}");
    }
}

async fn who_only_reads_sees_what_others_write_meanwhile(stage: Stage) {
    open(&stage).await.write_one(row("a/1", 1)).await.unwrap();
    let reader = open_as(&stage, three(), Access::Read).await;
    for count in 1..4 {
        assert_eq!(reader.list_all("", What::Keys).await.unwrap().len(), count);
        assert_eq!(reader.sum("").await.unwrap().unwrap().count, count as u64);
        let key = format!("a/{}", count + 1);
        assert!(reader.get_one(&key).await.unwrap().is_none());
        let writer = open(&stage).await;
        writer.write_one(row(&key, 1)).await.unwrap();
        assert!(reader.get_one(&key).await.unwrap().is_some(), "beside the writer");
        drop(writer);
        assert!(reader.get_one(&key).await.unwrap().is_some(), "after it");
    }
}

async fn a_sum_is_that_of_the_listing(stage: Stage) {
    let store = open(&stage).await;
    let listed = async || {
        let mut sum = trueup::store::Sum::default();
        for line in store.list_all("", What::Keys).await.unwrap() {
            sum.add(&line.key, &line.version.0);
        }
        sum
    };
    assert_eq!(store.sum("").await.unwrap(), Some(listed().await));
    let keys = ["a/1", "a/2", "a_b/1", "b/ü x", "b/%2F"];
    store.write(keys.map(|key| row(key, 1)).into(), Mode::Each).await.unwrap();
    let whole = store.sum("").await.unwrap().unwrap();
    assert_eq!((whole, whole.count), (listed().await, 5));
    // Two entries that change places leave all numbers as they were, and lead to the rows of other keys: neither is believed.
    stage.query(
        "update sync_cache set internal_id = (select min(internal_id) + max(internal_id) from sync_cache
           where table_name = 'a') - internal_id where table_name = 'a'",
    );
    let moved = store.sum("").await.unwrap().unwrap();
    assert_eq!((moved, moved.count), (listed().await, 3));
    assert_ne!(moved, whole);
    // A row of ours without its entry, an entry without its row, an entry of a table that is not ours.
    stage.query("delete from sync_cache where external_id = '2'");
    stage.query("delete from a_b");
    let entry = "'nowhere', '1', 'x', 1, 1, '2020-01-01T00:00:00.000Z'";
    stage.query(&format!("insert into sync_cache values({entry})"));
    let less = store.sum("").await.unwrap().unwrap();
    assert_eq!((less, less.count), (listed().await, 2));
}
