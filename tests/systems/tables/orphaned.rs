//! Children whose parent is not known: a run was cut off between the two, or never got as far as the parent.

use serde_json::json;

use super::desk::{CASES, Desk};
use super::kit::Stage;
use super::on_both;

on_both!(
    children_go_although_their_parent_went_before_them,
    children_whose_parent_never_fitted_go_with_it,
    children_of_a_marked_parent_that_somebody_deleted_go_when_rows_are_to_go,
    a_held_addition_ends_with_its_parent,
    children_stay_as_long_as_their_parent_may_be_there,
);

const DELETE: &str = "{ rows = { on_missing = \"delete\" } }";

/// Two cases, of which the second has two votes.
fn desk(stage: Stage) -> Desk {
    let desk = Desk::new(stage, CASES);
    desk.says("/cases", &json!([{"id": "1"}, {"id": "3"}]));
    desk.says("/cases/1/votes", &json!([]));
    desk.says("/cases/3/votes", &json!([{"n": "b"}, {"n": "c"}]));
    desk
}

async fn children_go_although_their_parent_went_before_them(mut stage: Stage) {
    stage.shape = DELETE.into();
    let desk = desk(stage);
    desk.sync().is(0, &[("added", 4)]);
    desk.says("/cases", &json!([{"id": "1"}]));
    desk.trueup(&["sync", "--only", "cases/3"]).is(0, &[("deleted", 1)]);
    assert_eq!(desk.trueup(&["audit"]).code, 3, "they are not true to the source");
    desk.sync().is(0, &[("deleted", 2)]);
    assert_eq!(desk.query("select count(*) from votes"), "0");
    desk.is_calm();
}

async fn children_whose_parent_never_fitted_go_with_it(stage: Stage) {
    let desk = desk(stage);
    desk.recipe(&CASES.replace("t  = \"text?\"", "t  = \"integer?\""));
    desk.says("/cases", &json!([{"id": "1"}, {"id": "3", "t": "no number"}]));
    desk.sync().is(3, &[("added", 3), ("failed", 1)]);
    desk.says("/cases", &json!([{"id": "1"}]));
    desk.sync().is(0, &[("missing", 2)]);
    assert_eq!(desk.query("select count(*) from votes where missing_since is not null"), "2");
    desk.is_calm();
}

async fn children_of_a_marked_parent_that_somebody_deleted_go_when_rows_are_to_go(stage: Stage) {
    let mut desk = desk(stage);
    desk.sync().is(0, &[("added", 4)]);
    desk.says("/cases", &json!([{"id": "1"}]));
    desk.sync().is(0, &[("missing", 3)]);
    desk.query("delete from cases where id = '3'");
    desk.sync().is(0, &[("missing", 2)]);
    desk.stage.shape = DELETE.into();
    desk.sync().is(0, &[("deleted", 2)]);
    desk.is_calm();
}

async fn a_held_addition_ends_with_its_parent(stage: Stage) {
    let desk = desk(stage);
    desk.sync().is(0, &[("added", 4)]);
    desk.says("/cases/3/votes", &json!([{"n": "b"}, {"n": "c"}, {"n": "d"}]));
    let run = desk.sync();
    run.is(0, &[("added", 1)]);
    desk.trueup(&["undo", run.run()["id"].as_str().unwrap()]);
    desk.sync().is(4, &[("held", 1), ("scanned", 5)]);
    desk.says("/cases", &json!([{"id": "1"}]));
    desk.sync().is(0, &[("held", 0), ("scanned", 1), ("missing", 3)]);
    desk.is_calm();
}

/// The list of parents fails, or one of them has no readable key: it may be the one.
async fn children_stay_as_long_as_their_parent_may_be_there(mut stage: Stage) {
    stage.shape = DELETE.into();
    let desk = desk(stage);
    desk.sync().is(0, &[("added", 4)]);
    desk.query("delete from cases where id = '3'");
    desk.query("delete from sync_cache where external_id = '3' and table_name = 'cases'");
    desk.fails("/cases");
    desk.sync().is(5, &[("deleted", 0), ("unproven", 1)]);
    desk.says("/cases", &json!([{"id": "1"}, {"t": "no key"}]));
    desk.sync().is(3, &[("deleted", 0)]);
    assert_eq!(desk.query("select count(*) from votes"), "2");
}
