//! Rows that are marked as missing, and what people do to them.

use serde_json::json;

use super::desk::{CASES, Desk, THINGS};
use super::kit::Stage;
use super::on_both;

on_both!(
    a_marked_row_that_somebody_deletes_is_forgotten,
    a_marked_row_that_somebody_edits_is_restored,
    a_marked_row_goes_when_the_config_says_so,
    what_is_missing_is_said_also_while_nobody_knows,
    a_mark_that_was_undone_stays_undone,
    what_is_held_of_a_resource_goes_with_it,
);

/// Three things, and the third is marked.
fn marked(stage: Stage) -> Desk {
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}, {"id": "3", "t": "x"}]));
    desk.sync().is(0, &[("added", 3)]);
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}]));
    desk.sync().is(0, &[("missing", 1)]);
    desk
}

async fn a_marked_row_that_somebody_deletes_is_forgotten(stage: Stage) {
    let desk = marked(stage);
    desk.query("delete from things where id = '3'");
    desk.sync().is(0, &[("missing", 0), ("unchanged", 2), ("writes", 0)]);
    desk.sync().is(0, &[("missing", 0), ("requests", 1)]);
    desk.is_calm();
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}, {"id": "3", "t": "x"}]));
    desk.sync().is(0, &[("added", 1)]);
}

async fn a_marked_row_that_somebody_edits_is_restored(stage: Stage) {
    let desk = marked(stage);
    let before = desk.query("select id, t, missing_since from things order by id");
    for edit in ["missing_since = null", "t = 'tampered'", "t = null, missing_since = null"] {
        desk.query(&format!("update things set {edit} where id = '3'"));
        assert_eq!(desk.trueup(&["audit"]).code, 3, "{edit}");
        let repaired = desk.trueup(&["audit", "--repair"]);
        assert_eq!(repaired.code, 0, "{edit}: {:#}", repaired.json);
        assert_eq!(repaired.json["audits"][0]["repaired"], json!(1), "{edit}");
        assert_eq!(desk.query("select id, t, missing_since from things order by id"), before, "{edit}");
        desk.sync().is(0, &[("missing", 1), ("unchanged", 2), ("writes", 0)]);
    }
}

async fn a_marked_row_goes_when_the_config_says_so(stage: Stage) {
    let mut desk = marked(stage);
    desk.stage.shape = "{ rows = { on_missing = \"delete\" } }".into();
    desk.sync().is(0, &[("deleted", 1), ("missing", 0)]);
    assert_eq!(desk.query("select id from things order by id"), "1\n2");
    desk.is_calm();
}

async fn what_is_missing_is_said_also_while_nobody_knows(stage: Stage) {
    let desk = marked(stage);
    let with_more = THINGS.to_owned()
        + "[[resources]]\nname = \"more\"\npath = \"/more\"\nkey = \"id\"\ncolumns = { id = \"text\" }\n";
    desk.recipe(&with_more);
    desk.says("/more", &json!([{"id": "1"}]));
    desk.fails("/things");
    desk.sync().is(3, &[("missing", 1), ("unproven", 1), ("added", 1)]);
}

async fn a_mark_that_was_undone_stays_undone(stage: Stage) {
    let desk = Desk::new(stage, THINGS);
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}, {"id": "3", "t": "x"}]));
    desk.sync().is(0, &[("added", 3)]);
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}]));
    let run = desk.sync().run()["id"].as_str().unwrap().to_owned();
    assert_eq!(desk.trueup(&["undo", &run]).code, 0);
    for _ in 0..3 {
        desk.sync().is(4, &[("held", 1), ("missing", 0), ("writes", 0)]);
        assert_eq!(desk.query("select count(*) from things where missing_since is null"), "3");
    }
    desk.says("/things", &json!([{"id": "1"}, {"id": "2"}, {"id": "3", "t": "x"}]));
    desk.sync().is(0, &[("held", 0), ("unchanged", 3)]);
}

/// Nobody asked for its lists any more, so it stayed held for ever, and approving it did nothing.
async fn what_is_held_of_a_resource_goes_with_it(stage: Stage) {
    let mut desk = Desk::new(stage, CASES);
    desk.stage.shape = "{ rows = { on_missing = \"delete\" } }".into();
    desk.stage.settings = "guard = { max_delete = 1 }".into();
    desk.says("/cases", &json!([{"id": "a"}]));
    desk.says("/cases/a/votes", &json!([{"n": "1"}, {"n": "2"}, {"n": "3"}]));
    desk.sync().is(0, &[("added", 4)]);
    desk.says("/cases/a/votes", &json!([{"n": "3"}]));
    desk.sync().is(4, &[("held", 2)]);
    desk.recipe(CASES.split("[[resources]]\nname = \"votes\"").next().unwrap());
    desk.sync();
    desk.sync().is(0, &[("held", 0), ("unchanged", 1)]);
    assert_eq!(desk.query("select count(*) from votes"), "3");
}
