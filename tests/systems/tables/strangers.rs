//! Rows that are not what their cache entries say: tables made anew, emptied, restored, or older than trueup.

use serde_json::{Value, json};

use super::desk::{CASES, Desk, THINGS};
use super::kit::{Database, Stage};
use super::on_both;

on_both!(
    a_table_that_was_made_anew_gives_no_row_away,
    an_entry_that_points_at_another_row_heals,
    a_deletion_hits_no_other_row,
    rows_that_were_there_before_are_put_back_by_an_undo,
    a_plan_needs_no_cache,
    a_column_that_was_dropped_is_filled_again,
    a_resource_that_is_taken_out_is_let_go_of,
    no_row_is_written_where_the_key_has_no_unique_index,
);

fn cases(ids: &[&str]) -> serde_json::Value {
    ids.iter().map(|id| json!({"id": id, "t": format!("t{id}")})).collect()
}

/// Nothing hangs from any case.
fn court(stage: Stage) -> Desk {
    let desk = Desk::new(stage, CASES);
    desk.says("/cases", &cases(&["0", "1", "2", "3"]));
    for id in 0..4 {
        desk.says(&format!("/cases/{id}/votes"), &json!([]));
    }
    desk
}

const ROWS: &str = "select id, t from cases where missing_since is null order by id";
const ALL: &str = "0|t0\n1|t1\n2|t2\n3|t3";

async fn a_table_that_was_made_anew_gives_no_row_away(stage: Stage) {
    let desk = court(stage);
    desk.sync().is(0, &[("added", 4)]);
    for gone in ["0", "3"] {
        let left: Vec<&str> = ["0", "1", "2", "3"].into_iter().filter(|id| *id != gone).collect();
        desk.says("/cases", &cases(&left));
        desk.sync().is(0, &[("missing", 1)]);
        let anew = match desk.stage.database {
            Database::Sqlite(_) => "drop table cases",
            Database::Postgres(_) => "truncate cases restart identity",
        };
        desk.query(anew);
        desk.sync().is(0, &[("updated", 3), ("missing", 0)]);
        desk.says("/cases", &cases(&["0", "1", "2", "3"]));
        assert_eq!(desk.sync().code, 0);
        assert_eq!(desk.query(ROWS), ALL);
        desk.is_calm();
    }
}

async fn an_entry_that_points_at_another_row_heals(stage: Stage) {
    let desk = court(stage);
    desk.sync().is(0, &[("added", 4)]);
    let other = desk.query("select row_id from cases where id = '1'");
    desk.query(&format!("update sync_cache set internal_id = {other} where external_id = '2'"));
    desk.says("/cases", &json!([{"id": "0"}, {"id": "1"}, {"id": "2", "t": "new"}, {"id": "3"}]));
    assert_eq!(desk.sync().code, 0);
    assert_eq!(desk.query("select id, t from cases order by id"), "0|\n1|\n2|new\n3|");
    desk.is_calm();
}

async fn a_deletion_hits_no_other_row(mut stage: Stage) {
    stage.shape = "{ rows = { on_missing = \"delete\" } }".into();
    let desk = court(stage);
    desk.sync().is(0, &[("added", 4)]);
    let other = desk.query("select row_id from cases where id = '1'");
    desk.query(&format!("update sync_cache set internal_id = {other} where external_id = '2'"));
    desk.says("/cases", &cases(&["0", "1", "3"]));
    assert_eq!(desk.sync().code, 0);
    assert!(desk.query(ROWS).contains("1|t1"), "{}", desk.query(ROWS));
    assert_eq!(desk.query("select count(*) from cases where id = '1'"), "1");
}

async fn rows_that_were_there_before_are_put_back_by_an_undo(stage: Stage) {
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &json!([]));
    desk.sync().is(0, &[("added", 0)]);
    let then = "'2020-01-01T00:00:00.000Z'";
    for (id, text) in [("1", "mine"), ("2", "theirs"), ("9", "alone")] {
        desk.query(&format!(
            "insert into things(id, t, created_at, updated_at) values('{id}', '{text}', {then}, {then})"
        ));
    }
    desk.says("/things", &json!([{"id": "1", "t": "new"}, {"id": "2", "t": "theirs"}, {"id": "3"}]));
    let plan = &desk.trueup(&["plan"]).json["plans"][0];
    assert_eq!(plan["add"], json!([{"key": "things/3"}]), "{plan:#}");
    let updates: Vec<&Value> = plan["update"].as_array().unwrap().iter().map(|step| &step["key"]).collect();
    assert_eq!(updates, [&json!("things/1"), &json!("things/2")], "{plan:#}");
    let run = desk.sync();
    run.is(0, &[("added", 1), ("updated", 2)]);
    assert_eq!(desk.query("select id, t from things order by id"), "1|new\n2|theirs\n3|\n9|alone");
    let id = run.run()["id"].as_str().unwrap().to_owned();
    assert_eq!(desk.trueup(&["undo", &id]).code, 0);
    assert_eq!(desk.query("select id, t from things order by id"), "1|mine\n2|theirs\n9|alone");
    desk.sync().is(4, &[("held", 3)]);
    assert_eq!(desk.query("select id, t from things order by id"), "1|mine\n2|theirs\n9|alone");
}

async fn a_plan_needs_no_cache(stage: Stage) {
    let desk = court(stage);
    desk.sync().is(0, &[("added", 4)]);
    desk.query("drop table sync_cache");
    let plan = desk.trueup(&["plan"]);
    assert_eq!(plan.code, 0, "{:#}", plan.json);
    assert_eq!(desk.sync().code, 0);
    assert_eq!(desk.query(ROWS), ALL);
    desk.is_calm();
}

async fn a_column_that_was_dropped_is_filled_again(stage: Stage) {
    let desk = court(stage);
    desk.sync().is(0, &[("added", 4)]);
    desk.says("/cases", &cases(&["0", "1", "2"]));
    desk.sync().is(0, &[("missing", 1)]);
    desk.query("alter table cases drop column t");
    desk.sync().is(0, &[("updated", 3), ("missing", 1)]);
    assert_eq!(desk.query("select id, t from cases order by id"), ALL);
    desk.is_calm();
}

async fn a_resource_that_is_taken_out_is_let_go_of(stage: Stage) {
    let desk = court(stage);
    desk.says("/cases/1/votes", &json!([{"n": "a"}]));
    desk.sync().is(0, &[("added", 5)]);
    let (only_cases, _) = CASES.split_at(CASES.rfind("[[resources]]").unwrap());
    desk.recipe(only_cases);
    desk.sync().is(0, &[("unchanged", 4), ("writes", 0)]);
    assert_eq!(desk.query("select n from votes"), "a", "the rows stay");
    desk.is_calm();
    desk.recipe(CASES);
    desk.sync().is(0, &[("unchanged", 5), ("writes", 0)]);
    desk.says("/cases/1/votes", &json!([]));
    desk.sync().is(0, &[("missing", 1)]);
    desk.is_calm();
}

async fn no_row_is_written_where_the_key_has_no_unique_index(stage: Stage) {
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &json!([{"id": "1"}]));
    desk.query("create table theirs(n integer)");
    desk.query("create index things_natural_key on theirs(n)");
    let run = desk.sync();
    assert_eq!(run.code, 2, "{:#}", run.json);
    let said = run.json.to_string();
    assert!(said.contains("drop what is called things_natural_key"), "{said}");
    desk.query("drop index things_natural_key");
    desk.sync().is(0, &[("added", 1)]);
    desk.is_calm();
}
