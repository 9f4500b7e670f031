//! What people do to rows and their cache entries between two runs, and what is left of it.

use serde_json::{Value, json};

use super::desk::{Desk, THINGS};
use super::kit::{Ran, Stage};
use super::on_both;

on_both!(
    a_deleted_row_that_somebody_had_edited_comes_back_by_an_undo,
    a_mark_on_a_row_that_somebody_had_edited_is_undone,
    a_row_without_its_cache_entry_is_deleted_when_it_is_gone,
    a_row_without_its_cache_entry_is_marked_when_it_is_gone,
    a_marked_row_without_its_cache_entry_stays_marked,
    rows_without_their_cache_entries_are_undone,
);

const DELETE: &str = "{ rows = { on_missing = \"delete\" } }";
const ROWS: &str = "select id, t from things order by id";
const MARKED: &str = "select id from things where missing_since is not null order by id";

fn things(ids: &[&str]) -> Value {
    ids.iter().map(|id| json!({"id": id, "t": format!("t{id}")})).collect()
}

/// Three things.
fn three(stage: Stage) -> Desk {
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &things(&["1", "2", "3"]));
    desk.sync().is(0, &[("added", 3)]);
    desk
}

/// The third is gone from the source.
#[track_caller]
fn lose_the_third(desk: &Desk, counts: &[(&str, u64)]) -> Ran {
    desk.says("/things", &things(&["1", "2"]));
    let run = desk.sync();
    run.is(0, counts);
    run
}

#[track_caller]
fn undo(desk: &Desk, run: &Ran) {
    let undone = desk.trueup(&["undo", run.run()["id"].as_str().unwrap()]);
    assert_eq!(undone.code, 0, "{:#}", undone.json);
}

async fn a_deleted_row_that_somebody_had_edited_comes_back_by_an_undo(mut stage: Stage) {
    stage.shape = DELETE.into();
    let desk = three(stage);
    desk.query("update things set t = 'theirs' where id = '3'");
    let run = lose_the_third(&desk, &[("deleted", 1)]);
    assert_eq!(desk.query(ROWS), "1|t1\n2|t2");
    undo(&desk, &run);
    assert_eq!(desk.query(ROWS), "1|t1\n2|t2\n3|theirs");
    desk.sync().is(4, &[("held", 1), ("writes", 0)]);
}

async fn a_mark_on_a_row_that_somebody_had_edited_is_undone(stage: Stage) {
    let desk = three(stage);
    desk.query("update things set t = 'theirs' where id = '3'");
    let run = lose_the_third(&desk, &[("missing", 1)]);
    assert_eq!(desk.query(MARKED), "3");
    undo(&desk, &run);
    assert_eq!(desk.query(MARKED), "");
    assert_eq!(desk.query(ROWS), "1|t1\n2|t2\n3|theirs");
}

async fn a_row_without_its_cache_entry_is_deleted_when_it_is_gone(mut stage: Stage) {
    stage.shape = DELETE.into();
    let desk = three(stage);
    desk.query("delete from sync_cache");
    let run = lose_the_third(&desk, &[("deleted", 1), ("updated", 2), ("writes", 3)]);
    assert_eq!(desk.query(ROWS), "1|t1\n2|t2");
    desk.is_calm();
    undo(&desk, &run);
    assert_eq!(desk.query(ROWS), "1|t1\n2|t2\n3|t3");
}

async fn a_row_without_its_cache_entry_is_marked_when_it_is_gone(stage: Stage) {
    let desk = three(stage);
    desk.query("delete from sync_cache");
    let run = lose_the_third(&desk, &[("missing", 1), ("updated", 2)]);
    assert_eq!(desk.query(MARKED), "3");
    desk.sync().is(0, &[("missing", 1), ("writes", 0)]);
    desk.is_calm();
    undo(&desk, &run);
    assert_eq!(desk.query(MARKED), "");
    assert_eq!(desk.query(ROWS), "1|t1\n2|t2\n3|t3");
}

async fn a_marked_row_without_its_cache_entry_stays_marked(stage: Stage) {
    let desk = three(stage);
    lose_the_third(&desk, &[("missing", 1)]);
    let before = desk.query("select id, t, missing_since from things order by id");
    desk.query("delete from sync_cache");
    desk.sync().is(0, &[("missing", 1), ("updated", 2)]);
    assert_eq!(desk.query("select id, t, missing_since from things order by id"), before);
    desk.sync().is(0, &[("missing", 1), ("writes", 0)]);
    desk.is_calm();
}

async fn rows_without_their_cache_entries_are_undone(stage: Stage) {
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &things(&["1", "2", "3"]));
    let first = desk.sync();
    desk.query("delete from sync_cache");
    undo(&desk, &first);
    assert_eq!(desk.query(ROWS), "");
}
