//! Triggers of people on our tables that let a change go by and say nothing.

use serde_json::json;

use super::desk::{Desk, THINGS};
use super::kit::{Database, Stage};
use super::on_both;

on_both!(
    a_new_row_that_a_trigger_swallows_fails_alone,
    a_changed_row_that_a_trigger_swallows_fails_alone,
    a_deletion_that_a_trigger_swallows_fails,
);

const ROWS: &str = "select id, t from things order by id";

/// Whatever happens to the second thing does not.
fn swallow(desk: &Desk, event: &str) {
    let row = if event == "delete" { "old" } else { "new" };
    match desk.stage.database {
        Database::Sqlite(_) => drop(desk.query(&format!(
            "create trigger theirs before {event} on things when {row}.id = '2' begin select raise(ignore); end"
        ))),
        Database::Postgres(_) => {
            desk.query(&format!(
                "create function theirs() returns trigger language plpgsql as $$ begin
                   if {row}.id = '2' then return null; end if; return {row}; end $$"
            ));
            desk.query(&format!(
                "create trigger theirs before {event} on things for each row execute function theirs()"
            ));
        }
    }
}

fn let_pass(desk: &Desk) {
    match desk.stage.database {
        Database::Sqlite(_) => desk.query("drop trigger theirs"),
        Database::Postgres(_) => desk.query("drop trigger theirs on things"),
    };
}

async fn a_new_row_that_a_trigger_swallows_fails_alone(stage: Stage) {
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &json!([]));
    desk.sync().is(0, &[("added", 0)]);
    swallow(&desk, "insert");
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}, {"id": "3"}]));
    let run = desk.sync();
    run.is(3, &[("added", 2), ("failed", 1)]);
    assert_eq!(run.run()["errors"][0]["key"], json!("things/2"), "{:#}", run.json);
    assert_eq!(run.run()["errors"][0]["kind"], json!("invalid"), "{:#}", run.json);
    assert_eq!(desk.query(ROWS), "1|\n3|");
    desk.sync().is(3, &[("unchanged", 2), ("failed", 1)]);
    let_pass(&desk);
    desk.sync().is(0, &[("added", 1), ("unchanged", 2)]);
    desk.is_calm();
}

async fn a_changed_row_that_a_trigger_swallows_fails_alone(stage: Stage) {
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}, {"id": "3"}]));
    desk.sync().is(0, &[("added", 3)]);
    swallow(&desk, "update");
    desk.says("/things", &json!([{"id": "1", "t": "a"}, {"id": "2", "t": "b"}, {"id": "3", "t": "c"}]));
    desk.sync().is(3, &[("updated", 2), ("failed", 1)]);
    assert_eq!(desk.query(ROWS), "1|a\n2|\n3|c");
    let_pass(&desk);
    desk.sync().is(0, &[("updated", 1), ("unchanged", 2)]);
    assert_eq!(desk.query(ROWS), "1|a\n2|b\n3|c");
    desk.is_calm();
}

async fn a_deletion_that_a_trigger_swallows_fails(mut stage: Stage) {
    stage.shape = "{ rows = { on_missing = \"delete\" } }".into();
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}, {"id": "3"}]));
    desk.sync().is(0, &[("added", 3)]);
    swallow(&desk, "delete");
    desk.says("/things", &json!([{"id": "1"}]));
    desk.sync().is(3, &[("deleted", 1), ("failed", 1)]);
    assert_eq!(desk.query("select id from things order by id"), "1\n2");
    let_pass(&desk);
    desk.sync().is(0, &[("deleted", 1)]);
    assert_eq!(desk.query("select id from things"), "1");
    desk.is_calm();
}
