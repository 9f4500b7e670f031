//! Rows are found by their natural key: the internal id is a number like any other, and keys are read back from the texts
//! that cache entries have, whatever somebody wrote into those.

use serde_json::{Value, json};

use super::desk::Desk;
use super::kit::{Database, Stage};
use super::on_both;

on_both!(rows_of_every_kind_of_key_are_found, entries_that_name_no_key_are_nobodys);

/// A number, a text, and both of them as one key.
const KEYS: &str = r#"
[[resources]]
name = "numbers"
path = "/numbers"
key  = "id"
[resources.columns]
id = "integer"
t  = "text?"

[[resources]]
name = "words"
path = "/words"
key  = "id"
[resources.columns]
id = "text"
t  = "text?"

[[resources]]
name = "pairs"
path = "/pairs"
key  = ["word", "id"]
[resources.columns]
word = "text"
id   = "integer"
t    = "text?"
"#;

const NUMBERS: [i64; 5] = [0, -7, 26_383, 9_007_199_254_740_991, -9_007_199_254_740_991];
const WORDS: [&str; 6] = ["a", "A/b", "50%", "%2F", "é \"q\" \\", "7"];

fn shop(stage: Stage) -> Desk {
    let desk = Desk::new(stage, KEYS);
    says(&desk, "first", &NUMBERS, &WORDS);
    desk
}

fn says(desk: &Desk, t: &str, numbers: &[i64], words: &[&str]) {
    let numbered = |id: &i64| json!({"id": id, "t": t});
    let pairs =
        words.iter().flat_map(|word| numbers.iter().map(move |id| json!({"word": word, "id": id, "t": t})));
    desk.says("/numbers", &numbers.iter().map(numbered).collect());
    desk.says("/words", &words.iter().map(|word| json!({"id": word, "t": t})).collect());
    desk.says("/pairs", &pairs.collect::<Value>());
}

fn count(desk: &Desk, what: &str) -> u64 {
    let each = ["numbers", "words", "pairs"]
        .map(|table| desk.query(&format!("select count(*) from {table} where {what}")));
    each.iter().map(|count| count.parse::<u64>().unwrap()).sum()
}

/// Added, changed by the source, by hand, deleted by hand, marked, put back, audited and undone.
async fn rows_of_every_kind_of_key_are_found(stage: Stage) {
    let desk = shop(stage);
    let all = (NUMBERS.len() + WORDS.len() + NUMBERS.len() * WORDS.len()) as u64;
    desk.sync().is(0, &[("added", all)]);
    desk.is_calm();
    says(&desk, "second", &NUMBERS, &WORDS);
    let changed = desk.sync();
    changed.is(0, &[("updated", all), ("added", 0)]);
    assert_eq!(count(&desk, "t = 'second'"), all);
    for table in ["numbers", "words", "pairs"] {
        desk.query(&format!("update {table} set t = 'by hand'"));
    }
    assert_eq!(desk.trueup(&["audit"]).code, 3);
    assert_eq!(desk.trueup(&["audit", "--repair"]).code, 0);
    assert_eq!(count(&desk, "t = 'second'"), all);
    for table in ["numbers", "words", "pairs"] {
        desk.query(&format!("delete from {table}"));
    }
    assert_eq!(desk.sync().code, 0);
    assert_eq!(count(&desk, "t = 'second'"), all);
    desk.is_calm();
    let run = changed.run()["id"].as_str().unwrap().to_owned();
    assert_eq!(desk.trueup(&["undo", &run]).code, 0);
    assert_eq!(count(&desk, "t = 'first'"), all);
}

/// Somebody's entries in the cache, which lead to no row.
async fn entries_that_name_no_key_are_nobodys(stage: Stage) {
    let desk = shop(stage);
    assert_eq!(desk.sync().code, 0);
    let long = "9".repeat(30);
    for table in ["numbers", "pairs"] {
        for id in [
            "",
            "-",
            "x",
            "07",
            "+7",
            "1e3",
            "9223372036854775808",
            "-9223372036854775809",
            "a/",
            "a/x/7",
            &long,
        ] {
            desk.query(&format!(
                "insert into sync_cache values('{table}', '{id}', 'x', 1, 1, '2026-11-18T12:00:00.000Z')"
            ));
        }
    }
    desk.is_calm();
    says(&desk, "second", &NUMBERS, &WORDS);
    assert_eq!(desk.sync().code, 0);
    assert_eq!(desk.trueup(&["audit"]).code, 0);
}

/// Made by an older trueup: the internal id is the primary key, and counts by one.
fn as_they_were(desk: &Desk) {
    for table in ["numbers", "words", "pairs"] {
        desk.query(&format!("alter table {table} drop constraint {table}_natural_key"));
        desk.query(&format!("alter table {table} add primary key (row_id)"));
        desk.query(&format!("alter sequence {table}_row_id_seq increment by 1 restart with 100000"));
    }
    desk.query("create unique index numbers_natural_key on numbers(id)");
    desk.query("create unique index words_natural_key on words(id)");
    desk.query("create unique index pairs_natural_key on pairs(word, id)");
}

#[tokio::test(flavor = "multi_thread")]
async fn older_tables_stay_as_they_are_and_grow() {
    let desk = shop(Stage::on_postgres().await);
    assert_eq!(desk.sync().code, 0);
    as_they_were(&desk);
    desk.is_calm();
    let more: Vec<i64> = NUMBERS.into_iter().chain(1_000..1_020).collect();
    says(&desk, "second", &more, &WORDS);
    let pairs = 20 * WORDS.len() as u64;
    desk.sync().is(0, &[("added", 20 + pairs)]);
    let ids = desk.query("select min(row_id), max(row_id) from numbers where id between 1000 and 1019");
    assert_eq!(ids, "100000|100019", "one after the other");
    desk.is_calm();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_natural_key_is_the_primary_key() {
    let desk = shop(Stage::on_postgres().await);
    assert!(matches!(desk.stage.database, Database::Postgres(_)));
    assert_eq!(desk.sync().code, 0);
    let keys = desk.query(
        "select conname, pg_get_constraintdef(oid) from pg_constraint where contype = 'p' and conname like '%natural_key' order by 1",
    );
    let wanted = "numbers_natural_key|PRIMARY KEY (id)\npairs_natural_key|PRIMARY KEY (word, id)\nwords_natural_key|PRIMARY KEY (id)";
    assert_eq!(keys, wanted);
}

/// The first of several tables, of which all have new rows: where something is there, and where nothing is.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_lost_its_numbers_says_so() {
    let desk = shop(Stage::on_postgres().await);
    for (numbers, afresh) in [(&[1, 2, 3][..], false), (&NUMBERS, true)] {
        assert_eq!(desk.sync().code, 0);
        desk.query("alter table numbers alter row_id drop identity");
        if afresh {
            desk.query("truncate numbers, words, pairs, sync_cache");
            std::fs::remove_dir_all(desk.stage.folder.path().join(".trueup")).unwrap();
        }
        says(&desk, "first", numbers, &WORDS);
        let run = desk.sync();
        let said = run.json.to_string();
        assert!(run.code != 0 && said.contains("row_id of numbers has lost the numbers it gives"), "{said}");
        assert!(said.contains("ADD GENERATED"), "{said}");
        desk.query(
            "alter table numbers alter row_id add generated by default as identity (start with 100000)",
        );
    }
    assert_eq!(desk.sync().code, 0);
    desk.is_calm();
}
