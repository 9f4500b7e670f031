//! Rows that were written by trueup and that it no longer knows: the state was lost, or the database restored.

use serde_json::{Value, json};

use super::desk::{CASES, Desk, THINGS};
use super::kit::Stage;
use super::on_both;

on_both!(
    rows_of_a_lost_state_are_marked_when_they_are_gone,
    rows_of_a_lost_state_are_deleted_through_the_guard,
    a_mark_of_a_lost_state_is_known_again,
    a_row_that_a_restored_database_brings_back_goes_again,
    rows_of_a_resource_that_is_put_back_are_marked_when_they_are_gone,
    children_of_a_lost_state_wait_until_all_of_their_table_is_read,
    a_row_whose_item_cannot_be_read_is_at_the_source,
);

const DELETE: &str = "{ rows = { on_missing = \"delete\" } }";
const MARKED: &str = "select id from things where missing_since is not null order by id";

fn things(ids: std::ops::RangeInclusive<u32>) -> Value {
    ids.map(|id| json!({"id": id.to_string(), "t": format!("t{id}")})).collect()
}

fn three(stage: Stage) -> Desk {
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &things(1..=3));
    desk.sync().is(0, &[("added", 3)]);
    desk
}

fn lose_the_state(desk: &Desk) {
    std::fs::remove_dir_all(desk.stage.folder.path().join(".trueup")).unwrap();
}

async fn rows_of_a_lost_state_are_marked_when_they_are_gone(stage: Stage) {
    let desk = three(stage);
    let then = "'2020-01-01T00:00:00.000Z'";
    desk.query(&format!("insert into things(id, created_at, updated_at) values('mine', {then}, {then})"));
    lose_the_state(&desk);
    desk.says("/things", &things(1..=2));
    let run = desk.sync();
    run.is(0, &[("missing", 1), ("unchanged", 2), ("writes", 1)]);
    assert_eq!(desk.query(MARKED), "3", "and not the row nobody wrote");
    desk.sync().is(0, &[("missing", 1), ("unchanged", 2), ("writes", 0)]);
    desk.is_calm();
    assert_eq!(desk.trueup(&["undo", run.run()["id"].as_str().unwrap()]).code, 0);
    assert_eq!(desk.query(MARKED), "");
    desk.sync().is(4, &[("held", 1), ("writes", 0)]);
    desk.says("/things", &things(1..=3));
    desk.sync().is(0, &[("missing", 0), ("held", 0)]);
    desk.is_calm();
}

async fn rows_of_a_lost_state_are_deleted_through_the_guard(mut stage: Stage) {
    stage.shape = DELETE.into();
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &things(1..=20));
    desk.sync().is(0, &[("added", 20)]);
    lose_the_state(&desk);
    desk.says("/things", &things(1..=16));
    let run = desk.sync();
    run.is(0, &[("deleted", 4), ("unchanged", 16)]);
    assert_eq!(desk.trueup(&["undo", run.run()["id"].as_str().unwrap()]).code, 0);
    assert_eq!(desk.stage.rows("things"), 20);
    lose_the_state(&desk);
    desk.says("/things", &things(1..=10));
    let held = desk.sync();
    held.is(4, &[("deleted", 0), ("held", 10)]);
    desk.sync().is(4, &[("held", 10), ("writes", 0)]);
    assert_eq!(desk.stage.rows("things"), 20);
    let approved = desk.trueup(&["approve", held.run()["plan"].as_str().unwrap()]);
    approved.is(0, &[("deleted", 10)]);
    assert_eq!(desk.stage.rows("things"), 10);
    desk.is_calm();
}

async fn a_mark_of_a_lost_state_is_known_again(stage: Stage) {
    let mut desk = three(stage);
    desk.says("/things", &things(1..=2));
    desk.sync().is(0, &[("missing", 1)]);
    let before = desk.query("select id, missing_since, updated_at from things order by id");
    lose_the_state(&desk);
    for _ in 0..3 {
        desk.sync().is(0, &[("missing", 1), ("unchanged", 2), ("writes", 0)]);
    }
    assert_eq!(desk.query("select id, missing_since, updated_at from things order by id"), before);
    desk.is_calm();
    desk.stage.shape = DELETE.into();
    desk.sync().is(0, &[("deleted", 1), ("missing", 0)]);
    desk.is_calm();
}

async fn a_row_that_a_restored_database_brings_back_goes_again(mut stage: Stage) {
    stage.shape = DELETE.into();
    let desk = three(stage);
    for (copy, of, which) in
        [("old_things", "things", "id = '3'"), ("old_cache", "sync_cache", "external_id = '3'")]
    {
        desk.query(&format!("create table {copy} as select * from {of} where {which}"));
    }
    desk.says("/things", &things(1..=2));
    desk.sync().is(0, &[("deleted", 1)]);
    desk.sync().is(0, &[("unchanged", 2)]);
    desk.query("insert into things select * from old_things");
    desk.query("insert into sync_cache select * from old_cache");
    desk.sync().is(0, &[("deleted", 1), ("unchanged", 2)]);
    assert_eq!(desk.stage.rows("things"), 2);
    desk.is_calm();
}

async fn rows_of_a_resource_that_is_put_back_are_marked_when_they_are_gone(stage: Stage) {
    let more =
        "[[resources]]\nname = \"more\"\npath = \"/more\"\nkey = \"id\"\ncolumns = { id = \"text\" }\n";
    let desk = three(stage);
    desk.says("/more", &json!([]));
    desk.recipe(more);
    desk.sync().is(0, &[("missing", 0)]);
    desk.says("/things", &things(1..=2));
    desk.sync().is(0, &[("missing", 0)]);
    assert_eq!(desk.query(MARKED), "", "nobody asks for it");
    desk.recipe(&(more.to_owned() + THINGS));
    desk.sync().is(0, &[("missing", 1), ("unchanged", 2)]);
    assert_eq!(desk.query(MARKED), "3");
    desk.is_calm();
}

async fn children_of_a_lost_state_wait_until_all_of_their_table_is_read(stage: Stage) {
    let mut desk = Desk::new(stage, CASES);
    let votes = "select n from votes where missing_since is not null order by n";
    desk.says("/cases", &json!([{"id": "1"}, {"id": "2"}]));
    desk.says("/cases/1/votes", &json!([{"n": "a"}]));
    desk.says("/cases/2/votes", &json!([{"n": "b"}, {"n": "c"}]));
    desk.sync().is(0, &[("added", 5)]);
    lose_the_state(&desk);
    desk.says("/cases/2/votes", &json!([{"n": "b"}]));
    desk.fails("/cases/1/votes");
    desk.sync().is(3, &[("missing", 0), ("unproven", 1)]);
    assert_eq!(desk.query(votes), "");
    lose_the_state(&desk);
    desk.says("/cases/1/votes", &json!([{"n": "a"}]));
    desk.fails("/cases");
    assert_ne!(desk.sync().code, 0);
    assert_eq!(desk.query(votes), "");
    desk.says("/cases", &json!([{"id": "1"}, {"id": "2"}]));
    desk.sync().is(0, &[("missing", 1), ("unchanged", 4)]);
    assert_eq!(desk.query(votes), "c");
    desk.sync().is(0, &[("missing", 1), ("writes", 0)]);
    desk.is_calm();
    desk.stage.shape = DELETE.into();
    desk.sync().is(0, &[("deleted", 1), ("missing", 0)]);
    lose_the_state(&desk);
    desk.says("/cases", &json!([]));
    desk.sync().is(0, &[("deleted", 4)]);
    assert_eq!([desk.stage.rows("cases"), desk.stage.rows("votes")], [0, 0]);
    desk.is_calm();
}

async fn a_row_whose_item_cannot_be_read_is_at_the_source(stage: Stage) {
    let desk = three(stage);
    lose_the_state(&desk);
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}, {"id": "3", "n": "many"}]));
    desk.sync().is(3, &[("missing", 0), ("failed", 1)]);
    assert_eq!(desk.query(MARKED), "");
}
