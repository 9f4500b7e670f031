//! New rows on their way into the database without a look: every value arrives as it is, and what is already there is
//! found all the same.

use trueup::config::ColumnKind;
use trueup::error::Kind;
use trueup::store::{Expect, Item, Mode, Outcome, Store, StoreExt, What};

use super::kit::{Database, Stage};
use super::on_both;
use super::store::{column, open_with, row};

on_both!(
    every_value_arrives_as_it_is,
    a_row_that_was_there_is_taken_over_and_its_siblings_are_new,
    an_entry_without_its_row_is_no_obstacle,
    a_batch_that_breaks_off_leaves_nothing,
    one_among_a_thousand_stands_in_nobody_elses_way,
    one_that_is_no_row_fails_alone_wherever_it_stands,
    one_that_a_rule_of_somebody_else_keeps_out_fails_alone,
    writers_of_the_same_rows_agree,
);

fn every_kind() -> trueup::config::TableSpec {
    let columns = [
        ("at", ColumnKind::Timestamp),
        ("data", ColumnKind::Json),
        ("flag", ColumnKind::Boolean),
        ("id", ColumnKind::Text),
        ("n", ColumnKind::Integer),
        ("real", ColumnKind::Real),
        ("text", ColumnKind::Text),
    ];
    let columns = columns.into_iter().map(|(name, kind)| column(name, kind)).collect();
    trueup::config::TableSpec { name: "every".into(), key: vec!["id".into()], columns }
}

/// A new row with these members, which come before and after its id.
fn new(id: &str, before: &str, after: &str) -> Item {
    let comma = |members: &str| if members.is_empty() { "" } else { "," };
    let json = format!("{{{before}{}\"id\":\"{id}\"{}{after}}}", comma(before), comma(after));
    Item::put(format!("every/{id}"), json).expecting(Expect::Absent)
}

fn odd_rows() -> Vec<Item> {
    let long = format!("\"text\":\"{}\"", "lang tekst \\\\ ".repeat(50_000));
    vec![
        new("nothing", "", ""),
        new("empty", "", r#""text":"""#),
        new("escapes", "", r#""text":"a\tb\nc\rd\\e\\N \\. \"q\" \u0001 \\u0000""#),
        new("null in a word", "", r#""text":"\\N""#),
        new("end of copy", "", r#""text":"\\.""#),
        new("signs", "", r#""text":"æøå 漢字 🦀""#),
        new("long", "", &long),
        new("true", r#""flag":true"#, ""),
        new("false", r#""flag":false"#, ""),
        new("large", "", r#""n":9007199254740992,"real":1.7976931348623157e+308"#),
        new("small", "", r#""n":-9007199254740992,"real":5e-324"#),
        new("third", "", r#""n":0,"real":0.3333333333333333"#),
        new("first instant", r#""at":"0001-01-01T00:00:00.000Z""#, ""),
        new("before 1970", r#""at":"1969-12-31T23:59:59.999Z""#, ""),
        new("leap day", r#""at":"2000-02-29T12:34:56.789Z""#, ""),
        new("last instant", r#""at":"9999-12-31T23:59:59.999Z""#, ""),
        new("json", r#""data":{"a":[1,null,"\\ \t"],"b":{}}"#, ""),
        new("json text", r#""data":"""#, ""),
        new("marked", "", r#""missing_since":"2026-11-16T00:00:00.000Z""#),
    ]
}

async fn every_value_arrives_as_it_is(stage: Stage) {
    let store = open_with(&stage, vec![every_kind()]).await;
    let rows = odd_rows();
    for outcome in store.write(rows.clone(), Mode::Each).await.unwrap() {
        assert!(matches!(outcome.unwrap(), Outcome::Applied(Some(_))));
    }
    for item in &rows {
        let stored = store.get_one(&item.key).await.unwrap().unwrap_or_else(|| panic!("{}", item.key));
        let trueup::store::Op::Put { value, .. } = &item.op else { panic!() };
        assert!(stored.value == *value, "{}: {:?}", item.key, stored.value);
        assert!(!stored.version.0.contains('~'), "{} is as its checksum says", item.key);
    }
    assert_eq!(stage.query("select count(*) from every where text is null and id = 'nothing'"), "1");
    assert_eq!(stage.query("select count(*) from every where text = '' and id = 'empty'"), "1");
    // The same once more is already so.
    for outcome in store.write(rows, Mode::Each).await.unwrap() {
        assert!(matches!(outcome.unwrap(), Outcome::AlreadySo(Some(_))));
    }
    let nul = vec![new("nul", "", r#""text":"a\u0000b""#), new("sibling", "", "")];
    let outcomes = store.write(nul, Mode::Each).await.unwrap();
    assert!(outcomes[1].as_ref().unwrap().landed());
    match &stage.database {
        Database::Sqlite(_) => assert!(outcomes[0].as_ref().unwrap().landed()),
        Database::Postgres(_) => assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), Kind::Invalid),
    }
}

async fn a_row_that_was_there_is_taken_over_and_its_siblings_are_new(stage: Stage) {
    let store = super::store::open(&stage).await;
    let now = "'2020-01-01T00:00:00.000Z'";
    stage.query(&format!("insert into a(id, n, created_at, updated_at) values('theirs', 7, {now}, {now})"));
    let items: Vec<Item> =
        ["a/one", "a/theirs", "b/two"].map(|key| row(key, 1).expecting(Expect::Absent)).into();
    for mode in [Mode::Each, Mode::All] {
        for outcome in store.write(items.clone(), mode).await.unwrap() {
            assert!(outcome.unwrap().landed());
        }
        assert_eq!(stage.query("select id, n from a order by id"), "one|1\ntheirs|1");
        assert_eq!(store.list_all("", What::Keys).await.unwrap().len(), 3);
    }
    // One that is ours and says something else stands in the way; its siblings do not.
    let items = vec![row("a/one", 2).expecting(Expect::Absent), row("a/three", 3).expecting(Expect::Absent)];
    let outcomes = store.write(items, Mode::Each).await.unwrap();
    assert!(
        matches!(outcomes[..], [Ok(Outcome::Conflict(Some(_))), Ok(Outcome::Applied(Some(_)))]),
        "{outcomes:?}"
    );
}

async fn an_entry_without_its_row_is_no_obstacle(stage: Stage) {
    let store = super::store::open(&stage).await;
    store.write_one(row("a/x", 1).expecting(Expect::Absent)).await.unwrap();
    stage.query("delete from a");
    let items = vec![row("a/x", 2).expecting(Expect::Absent), row("a/y", 2).expecting(Expect::Absent)];
    for outcome in store.write(items, Mode::Each).await.unwrap() {
        assert!(matches!(outcome.unwrap(), Outcome::Applied(Some(_))));
    }
    assert_eq!((stage.rows("a"), stage.rows("sync_cache")), (2, 2));
}

/// Rows are there before their cache entries: what stops the one must undo the other.
async fn a_batch_that_breaks_off_leaves_nothing(stage: Stage) {
    let store = super::store::open(&stage).await;
    let (stop, go_on) = match &stage.database {
        Database::Sqlite(_) => (
            "create trigger stop before insert on sync_cache when new.external_id = 'y'
             begin select raise(abort, 'stopped'); end",
            "drop trigger stop",
        ),
        Database::Postgres(_) => (
            "create function stop() returns trigger language plpgsql as
               $$ begin if new.external_id = 'y' then raise 'stopped'; end if; return new; end $$;
             create trigger stop before insert on sync_cache for each row execute function stop()",
            "drop trigger stop on sync_cache",
        ),
    };
    stage.query(stop);
    let items: Vec<Item> = ["a/x", "a/y", "b/z"].map(|key| row(key, 1).expecting(Expect::Absent)).into();
    let written = store.write(items.clone(), Mode::Each).await;
    let rows = ["a", "b", "sync_cache"].map(|table| stage.rows(table));
    match &stage.database {
        Database::Sqlite(_) => assert!(written.is_err() && rows == [0, 0, 0], "{rows:?}"),
        // There it is told apart which one it is about; its row is not there, either.
        Database::Postgres(_) => {
            let landed: Vec<bool> =
                written.unwrap().into_iter().map(|one| one.is_ok_and(|one| one.landed())).collect();
            assert_eq!((landed, rows), (vec![true, false, true], [1, 1, 2]));
        }
    }
    stage.query(go_on);
    for outcome in store.write(items, Mode::Each).await.unwrap() {
        assert!(outcome.unwrap().landed());
    }
    assert_eq!(["a", "b", "sync_cache"].map(|table| stage.rows(table)), [2, 1, 3]);
}

/// Rows go in by the five hundred, and the next are on their way before those have arrived.
async fn one_among_a_thousand_stands_in_nobody_elses_way(stage: Stage) {
    let store = super::store::open(&stage).await;
    let now = "'2020-01-01T00:00:00.000Z'";
    for (round, at) in [0, 10, 499, 500, 600, 999].into_iter().enumerate() {
        let id = |n: usize| format!("{round}-{n:03}");
        let theirs = id(at);
        stage.query(&format!(
            "insert into a(id, n, created_at, updated_at) values('{theirs}', 7, {now}, {now})"
        ));
        let new = |n| row(&format!("a/{}", id(n)), 1).expecting(Expect::Absent);
        for outcome in store.write((0..1_000).map(new).collect(), Mode::Each).await.unwrap() {
            assert!(outcome.unwrap().landed(), "{theirs}");
        }
        let rows = (round + 1) * 1_000;
        assert_eq!((stage.rows("a"), stage.rows("sync_cache")), (rows, rows), "{theirs}");
        assert_eq!(stage.query("select count(*) from a where n <> 1"), "0");
    }
}

/// New rows go in side by side: two bring the same, in opposite order, and a third changes others meanwhile.
async fn writers_of_the_same_rows_agree(stage: Stage) {
    let (one, other) = (super::store::open(&stage).await, super::store::open(&stage).await);
    let third = super::store::open(&stage).await;
    third.write_one(row("b/known", 0)).await.unwrap();
    for round in 0..10 {
        let new = |n: usize| row(&format!("a/{round}-{n:03}"), 1).expecting(Expect::Absent);
        let changed = row("b/known", round + 1);
        let (ones, others, thirds) = tokio::join!(
            one.write((0..700).map(new).collect(), Mode::Each),
            other.write((0..700).rev().map(new).collect(), Mode::Each),
            third.write(vec![changed], Mode::Each)
        );
        let landed = |outcomes: trueup::error::Result<Vec<trueup::error::Result<Outcome>>>| {
            let applied = |outcome: &Outcome| matches!(outcome, Outcome::Applied(_));
            let outcomes = outcomes.unwrap().into_iter().map(Result::unwrap);
            outcomes.inspect(|outcome| assert!(outcome.landed())).filter(applied).count()
        };
        assert_eq!((landed(ones) + landed(others), landed(thirds)), (700, 1));
        let rows = 700 * (usize::try_from(round).unwrap() + 1);
        assert_eq!((stage.rows("a"), stage.rows("sync_cache")), (rows, rows + 1));
    }
}

async fn one_that_is_no_row_fails_alone_wherever_it_stands(stage: Stage) {
    let store = open_with(&stage, vec![every_kind()]).await;
    for (round, at) in [0, 499, 500, 999].into_iter().enumerate() {
        let item = |n: usize| {
            let id = format!("{round}-{n}");
            if n == at { new(&id, "", r#""text":5"#) } else { new(&id, "", "") }
        };
        let outcomes = store.write((0..1_000).map(item).collect(), Mode::Each).await.unwrap();
        for (n, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(outcome) => assert!(outcome.landed() && n != at, "{n}"),
                Err(error) => assert_eq!((n, error.kind()), (at, Kind::Invalid)),
            }
        }
        assert_eq!(stage.rows("every"), (round + 1) * 999);
    }
}

/// An index of theirs: no two rows of `a` may say the same.
async fn one_that_a_rule_of_somebody_else_keeps_out_fails_alone(stage: Stage) {
    let store = super::store::open(&stage).await;
    stage.query("create unique index theirs on a(n)");
    store.write_one(row("a/0", 0)).await.unwrap();
    let write = async |items: Vec<Item>| -> Vec<bool> {
        let outcomes = store.write(items, Mode::Each).await.unwrap();
        let landed = |outcome: trueup::error::Result<Outcome>| match outcome {
            Ok(outcome) => outcome.landed(),
            Err(error) => {
                assert!(error.remedy().contains("A rule of the table"), "{error}: {}", error.remedy());
                false
            }
        };
        outcomes.into_iter().map(landed).collect()
    };
    // A new row, and a changed one.
    let new = |n: i32| row(&format!("a/{n}"), n % 3).expecting(Expect::Absent);
    assert_eq!(write((1..4).map(new).collect()).await, [true, true, false]);
    assert_eq!(write(vec![row("a/1", 7), row("a/2", 0), row("b/2", 0)]).await, [true, false, true]);
    assert_eq!(stage.query("select id, n from a order by id"), "0|0\n1|7\n2|2");
    assert_eq!(stage.rows("sync_cache"), 4);
    let all = store.write(vec![row("a/5", 5), row("a/6", 0)], Mode::All).await;
    assert!(all.is_err() || all.unwrap().iter().all(|one| !one.as_ref().is_ok_and(Outcome::landed)));
    assert_eq!((stage.rows("a"), stage.rows("sync_cache")), (3, 4));
}
