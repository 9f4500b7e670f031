//! What people do to a PostgreSQL whose tables are ours: other ways to compare keys, other instants, other sequences, other
//! defaults.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::desk::{Desk, THINGS};
use super::kit::Stage;

async fn desk(columns: &str) -> Desk {
    Desk::new(Stage::on_postgres().await, &THINGS.replace("n  = \"integer?\"", columns))
}

fn things(ids: impl Iterator<Item = String>) -> Value {
    ids.map(|id| json!({"id": id, "t": format!("of {id}")})).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_its_bytes_whatever_the_column_takes_for_the_same() {
    let desk = desk("").await;
    desk.says("/things", &things(["k3", "l"].map(str::to_owned).into_iter()));
    desk.sync().is(0, &[("added", 2)]);
    desk.query("create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)");
    desk.query("alter table things alter id type text collate ci");
    desk.query("insert into things(id, t, created_at, updated_at) values ('mine', 'precious', now(), now())");
    desk.is_calm();
    desk.says("/things", &things(["k3", "l", "K3", "MINE"].map(str::to_owned).into_iter()));
    for _ in 0..2 {
        desk.sync().is(3, &[("unchanged", 2), ("failed", 2), ("added", 0), ("updated", 0)]);
        let rows = desk.query("select id, t from things order by id collate \"C\"");
        assert_eq!(rows, "k3|of k3\nl|of l\nmine|precious");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_by_an_index_of_any_order() {
    let desk = desk("").await;
    let all = || (0..500).map(|number| format!("k{number:03}"));
    desk.says("/things", &things(all()));
    desk.sync().is(0, &[("added", 500)]);
    desk.query("alter table things alter id type text collate \"und-x-icu\"");
    let scans = || {
        let scans = desk.query("select seq_scan from pg_stat_user_tables where relname = 'things'");
        scans.parse::<u64>().unwrap()
    };
    let before = scans();
    desk.is_calm();
    desk.says("/things", &all().map(|id| json!({"id": id, "t": "other"})).collect());
    desk.sync().is(0, &[("updated", 500)]);
    desk.is_calm();
    assert!(scans() - before < 50, "{} looks at the whole table", scans() - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instant_that_no_row_can_have_is_an_edit() {
    let desk = desk("at = \"timestamp?\"").await;
    desk.says(
        "/things",
        &json!([{"id": "1"}, {"id": "2", "at": "2024-01-01T00:00:00Z"}, {"id": "3", "at": "2024-01-01T00:00:00Z"}]),
    );
    desk.sync().is(0, &[("added", 3)]);
    for edit in [
        "at = 'infinity' where id = '1'",
        "at = '2024-01-01 00:00:00Z BC' where id = '2'",
        "at = at + interval '900 microseconds' where id = '3'",
        "missing_since = 'infinity' where id = '1'",
    ] {
        desk.query(&format!("update things set {edit}"));
        let audit = desk.trueup(&["audit"]);
        assert_eq!(audit.code, 3, "{edit}: {:#}", audit.json);
        assert_eq!(audit.json["audits"][0]["drift"][0]["class"], json!("edited"), "{:#}", audit.json);
        assert_eq!(desk.trueup(&["audit", "--repair"]).code, 0, "{edit}");
        desk.is_calm();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_entry_that_is_swallowed_takes_its_row_along_and_no_other() {
    let desk = desk("").await;
    desk.says("/things", &json!([]));
    desk.sync().is(0, &[("added", 0)]);
    let mut trigger = String::new();
    write!(
        trigger,
        "create function theirs() returns trigger language plpgsql as $$ begin
           if new.external_id = '2' then return null; end if; return new; end $$;
         create trigger theirs before insert on sync_cache for each row execute function theirs()"
    )
    .unwrap();
    desk.query(&trigger);
    desk.says("/things", &things(["1", "2", "3"].map(str::to_owned).into_iter()));
    let run = desk.sync();
    run.is(3, &[("added", 2), ("unchanged", 0), ("failed", 1)]);
    assert_eq!(desk.query("select string_agg(id, ' ' order by id) from things"), "1 3");
    let undone = desk.trueup(&["undo", run.run()["id"].as_str().unwrap()]);
    assert_eq!(undone.code, 0, "{:#}", undone.json);
    assert_eq!(desk.query("select count(*) from things"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_made_once_whatever_a_transaction_sees_by_default() {
    for isolation in ["repeatable read", "serializable"] {
        let desk = desk("").await;
        desk.says("/things", &things((0..3).map(|number| number.to_string())));
        desk.query(&format!(
            "do $$ begin execute format('alter database %I set default_transaction_isolation = %L',
               current_database(), '{isolation}'); end $$"
        ));
        // Each of them makes the tables, unless another one has.
        futures::future::join_all((0..6).map(|_| desk.stage.line())).await;
        desk.sync().is(0, &[("added", 3)]);
        desk.is_calm();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_may_count_as_somebody_likes() {
    let desk = desk("").await;
    desk.says("/things", &json!([]));
    desk.sync().is(0, &[("added", 0)]);
    for (number, by) in ["1000000000000", "-1", "7"].into_iter().enumerate() {
        desk.query(&format!("alter sequence things_row_id_seq minvalue -1000000 increment by {by}"));
        desk.says("/things", &things((0..=number).flat_map(|n| [format!("{n}a"), format!("{n}b")])));
        desk.sync().is(0, &[("added", 2)]);
        desk.is_calm();
    }
    assert_eq!(desk.query("select count(distinct row_id) from things"), "6");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_entry_of_no_day_ends_nothing() {
    let desk = desk("").await;
    desk.says("/things", &things((0..3).map(|number| number.to_string())));
    desk.sync().is(0, &[("added", 3)]);
    desk.query("update sync_cache set seen_at = 'infinity' where external_id = '1'");
    assert_eq!(desk.trueup(&["plan"]).code, 0);
    let run = desk.sync();
    assert_eq!(run.code, 0, "{:#}", run.json);
    desk.is_calm();
}
