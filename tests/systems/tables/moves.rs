//! Rows that move between lists, lists that return to what they were, parents with much the same names.

use serde_json::json;

use super::desk::{CASES, Desk, THINGS};
use super::kit::Stage;
use super::on_both;

on_both!(
    a_row_that_moved_and_came_back_is_not_lost,
    a_row_that_moved_hangs_from_its_new_parent,
    a_row_that_two_lists_name_is_an_error_of_the_second_before_and_after_a_failure,
    a_list_that_returns_to_what_it_was_is_read_again,
    a_look_at_one_key_does_not_hide_it_later,
    parents_are_told_apart_whatever_their_keys_begin_with,
    a_row_that_moved_as_one_that_does_not_fit_is_missed_when_it_goes,
);

const VOTES: &str = "select n, case_id, missing_since is null from votes order by n";

/// `1` where SQLite says so and PostgreSQL says `t`.
fn votes(desk: &Desk) -> String {
    let yes = |text: String| text.replace("|t", "|1").replace("|f", "|0");
    yes(desk.query(VOTES))
}

fn two_cases(stage: Stage) -> Desk {
    let desk = Desk::new(stage, CASES);
    desk.says("/cases", &json!([{"id": "1"}, {"id": "3"}]));
    desk.says("/cases/1/votes", &json!([{"n": "a"}, {"n": "b"}]));
    desk.says("/cases/3/votes", &json!([]));
    desk
}

async fn a_row_that_moved_and_came_back_is_not_lost(mut stage: Stage) {
    stage.shape = "{ rows = { on_missing = \"delete\" } }".into();
    let desk = two_cases(stage);
    desk.sync().is(0, &[("added", 4)]);
    desk.fails("/cases/1/votes");
    desk.says("/cases/3/votes", &json!([{"n": "a"}]));
    desk.sync().is(3, &[("updated", 1), ("unproven", 1)]);
    assert_eq!(votes(&desk), "a|3|1\nb|1|1");
    desk.says("/cases/1/votes", &json!([{"n": "a"}, {"n": "b"}]));
    desk.says("/cases/3/votes", &json!([]));
    desk.sync().is(0, &[("updated", 1), ("deleted", 0)]);
    assert_eq!(votes(&desk), "a|1|1\nb|1|1");
    desk.is_calm();
}

/// The list it had left was done with, so nobody looked for it there when it was gone from the other one, too.
async fn a_row_that_moved_as_one_that_does_not_fit_is_missed_when_it_goes(stage: Stage) {
    let desk = two_cases(stage);
    desk.recipe(&CASES.replace("v       = \"text?\"", "v       = \"integer?\""));
    desk.sync().is(0, &[("added", 4)]);
    desk.says("/cases/1/votes", &json!([{"n": "b"}]));
    desk.says("/cases/3/votes", &json!([{"n": "a", "v": "no number"}]));
    desk.sync().is(3, &[("failed", 1), ("missing", 0)]);
    desk.says("/cases/3/votes", &json!([]));
    desk.sync().is(0, &[("missing", 1)]);
    assert_eq!(desk.query("select n from votes where missing_since is not null"), "a");
    desk.is_calm();
}

/// The row itself says nothing of its parent.
async fn a_row_that_moved_hangs_from_its_new_parent(stage: Stage) {
    let desk = two_cases(stage);
    desk.recipe(&CASES.replace("case_id = { type = \"text\", parent = \"id\" }", ""));
    desk.sync().is(0, &[("added", 4)]);
    desk.says("/cases/1/votes", &json!([{"n": "b"}]));
    desk.says("/cases/3/votes", &json!([{"n": "a"}]));
    desk.sync().is(0, &[("unchanged", 4), ("writes", 0)]);
    desk.says("/cases", &json!([{"id": "3"}]));
    desk.sync().is(0, &[("missing", 2), ("unchanged", 2)]);
    let missing = "select n from votes where missing_since is not null";
    assert_eq!(desk.query(missing), "b");
    desk.is_calm();
}

async fn a_row_that_two_lists_name_is_an_error_of_the_second_before_and_after_a_failure(stage: Stage) {
    let desk = two_cases(stage);
    desk.sync().is(0, &[("added", 4)]);
    desk.says("/cases/3/votes", &json!([{"n": "a", "v": "second"}]));
    for _ in 0..2 {
        desk.sync().is(3, &[("failed", 1), ("writes", 0)]);
    }
    desk.fails("/cases/1/votes");
    desk.sync().is(3, &[("updated", 1), ("unproven", 1)]);
    desk.says("/cases/1/votes", &json!([{"n": "a"}, {"n": "b"}]));
    desk.sync().is(3, &[("updated", 1), ("failed", 1)]);
    assert_eq!(votes(&desk), "a|1|1\nb|1|1");
    desk.sync().is(3, &[("failed", 1), ("writes", 0)]);
}

/// An item that fails leaves its list open; what was written of it then must not be forgotten when the list is once more
/// what it was before.
async fn a_list_that_returns_to_what_it_was_is_read_again(stage: Stage) {
    let desk = Desk::new(stage, THINGS);
    let before = json!([{"id": "1", "t": "old"}, {"id": "2"}]);
    desk.says("/things", &before);
    desk.sync().is(0, &[("added", 2)]);
    desk.says("/things", &json!([{"id": "1", "t": "new"}, {"id": "2"}, {"id": "3"}, {"id": "4", "n": "no"}]));
    desk.sync().is(3, &[("added", 1), ("updated", 1), ("failed", 1)]);
    desk.says("/things", &before);
    desk.sync().is(0, &[("updated", 1), ("missing", 1)]);
    let rows = "select id, t from things where missing_since is null order by id";
    assert_eq!(desk.query(rows), "1|old\n2|");
    desk.is_calm();
}

async fn a_look_at_one_key_does_not_hide_it_later(stage: Stage) {
    let desk = Desk::new(stage, THINGS);
    let before = json!([{"id": "1", "t": "old"}, {"id": "2"}]);
    desk.says("/things", &before);
    desk.sync().is(0, &[("added", 2)]);
    desk.says("/things", &json!([{"id": "1", "t": "new"}, {"id": "2"}]));
    desk.trueup(&["sync", "--only", "things/1"]).is(0, &[("updated", 1)]);
    desk.says("/things", &before);
    desk.sync().is(0, &[("updated", 1)]);
    assert_eq!(desk.query("select t from things where id = '1'"), "old");
}

async fn parents_are_told_apart_whatever_their_keys_begin_with(stage: Stage) {
    let desk = Desk::new(stage, CASES);
    let keys = ["1", "1/a", "1/a/b", "1%2Fa"];
    let cases = |keys: &[&str]| keys.iter().map(|id| json!({"id": id})).collect();
    desk.says("/cases", &cases(&keys));
    for (key, path) in keys.iter().zip(["1", "1%2Fa", "1%2Fa%2Fb", "1%252Fa"]) {
        desk.says(&format!("/cases/{path}/votes"), &json!([{"n": format!("of {key}")}]));
    }
    desk.sync().is(0, &[("added", 8)]);
    desk.says("/cases", &cases(&["1", "1%2Fa"]));
    desk.sync().is(0, &[("missing", 4), ("unchanged", 4)]);
    let there = "select n from votes where missing_since is null order by n";
    assert_eq!(desk.query(there), "of 1\nof 1%2Fa");
    // One that fails says nothing about another.
    desk.says("/cases", &cases(&keys));
    desk.fails("/cases/1/votes");
    desk.says("/cases/1%2Fa/votes", &json!([]));
    desk.sync().is(3, &[("missing", 1), ("unproven", 1)]);
    assert_eq!(desk.query(there), "of 1\nof 1%2Fa\nof 1/a/b");
}
