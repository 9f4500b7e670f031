//! Lists on pages: where they end, and what is no end.

use serde_json::{Value, json};

use super::desk::{Desk, THINGS};
use super::kit::Stage;
use super::on_both;
use crate::support::http::Reply;

on_both!(
    an_api_that_overlooks_the_page_is_noticed,
    a_page_that_is_shorter_than_asked_for_is_not_the_end,
    a_short_page_in_the_middle_hides_nothing,
    every_list_may_have_pages_of_its_own_length,
    the_same_short_page_again_is_all_there_is,
    a_cursor_that_brings_the_same_rows_for_ever_is_noticed,
    of_two_lists_of_one_name_neither_counts,
);

async fn an_api_that_overlooks_the_page_is_noticed(stage: Stage) {
    let desk = Desk::new(
        stage,
        &THINGS.replace("key ", "pagination = { page = \"p\", size = \"n\", per = 2 }\nkey "),
    );
    for page in 1..9 {
        desk.says(&format!("/things?n=2&p={page}"), &json!([{"id": "1"}, {"id": "2"}]));
    }
    let run = desk.sync();
    assert_eq!((run.code, run.count("unproven")), (3, 1), "{:#}", run.json);
    assert_eq!(desk.server.requests().len(), 2, "one repetition is enough");
}

/// Five rows on request, and never more than two on a page, whatever is asked for.
async fn a_page_that_is_shorter_than_asked_for_is_not_the_end(stage: Stage) {
    let rows = |ids: &[&str]| ids.iter().map(|id| json!({"id": id})).collect::<Value>();
    let recipe = |style: &str| {
        THINGS.replace("key ", &format!("pagination = {{ {style}, size = \"n\", per = 5 }}\nkey "))
    };
    let desk = Desk::new(stage, &recipe("page = \"p\""));
    for (page, ids) in [["1", "2"].as_slice(), &["3", "4"], &["5"]].into_iter().enumerate() {
        desk.says(&format!("/things?n=5&p={}", page + 1), &rows(ids));
        desk.says(&format!("/things?n=5&from={}", page * 2), &rows(ids));
    }
    desk.sync().is(0, &[("added", 5), ("requests", 4)]);
    desk.recipe(&recipe("offset = \"from\""));
    desk.sync().is(0, &[("unchanged", 5), ("missing", 0), ("requests", 4)]);
    // What is behind the last page is an empty one …
    desk.says("/things?n=5&from=4", &rows(&["5", "6"]));
    desk.says("/things?n=5&from=6", &rows(&[]));
    desk.sync().is(0, &[("added", 1), ("unchanged", 5), ("requests", 4)]);
    // … or none; but what fails proves nothing.
    for (status, code, missing) in [(500, 3, 0), (403, 3, 0), (404, 0, 4), (422, 0, 4)] {
        desk.replies("/things?n=5&from=2", Reply::status(status));
        let run = desk.sync();
        assert_eq!((run.code, run.count("missing")), (code, missing), "{status}: {:#}", run.json);
    }
}

/// A list that is not on pages, though the recipe says so.
async fn the_same_short_page_again_is_all_there_is(stage: Stage) {
    let recipe = THINGS.replace("key ", "pagination = { page = \"p\", size = \"n\", per = 5 }\nkey ");
    let desk = Desk::new(stage, &recipe);
    for page in 1..4 {
        desk.says(&format!("/things?n=5&p={page}"), &json!([{"id": "1"}, {"id": "2"}]));
    }
    let run = desk.sync();
    run.is(0, &[("added", 2), ("requests", 2)]);
    assert!(run.run()["warnings"].to_string().contains("whichever page"), "{:#}", run.json);
    desk.sync().is(0, &[("unchanged", 2)]);
}

fn rows(ids: std::ops::Range<u32>) -> Value {
    ids.map(|id| json!({"id": id.to_string()})).collect()
}

/// What we may not see was left out after the page was cut.
async fn a_short_page_in_the_middle_hides_nothing(stage: Stage) {
    let desk = Desk::new(
        stage,
        &THINGS.replace("key ", "pagination = { page = \"p\", size = \"n\", per = 3 }\nkey "),
    );
    for page in 0..3 {
        desk.says(&format!("/things?n=3&p={}", page + 1), &rows(page * 3..page * 3 + 3));
    }
    desk.says("/things?n=3&p=4", &json!([]));
    desk.sync().is(0, &[("added", 9)]);
    desk.says("/things?n=3&p=2", &rows(3..5));
    desk.sync().is(0, &[("unchanged", 8), ("missing", 1)]);
}

const KINDS: &str = r#"
[[resources]]
name = "kinds"
path = "/kinds"
key = "id"
columns = { id = "text" }

[[resources]]
name = "things"
path = "/kinds/{kinds.id}/things"
pagination = { page = "p", size = "n", per = 9 }
key = "id"
columns = { id = "text" }
"#;

/// One gives two to a page, the other four: neither says anything of the other.
async fn every_list_may_have_pages_of_its_own_length(stage: Stage) {
    let desk = Desk::new(stage, KINDS);
    desk.says("/kinds", &json!([{"id": "a"}, {"id": "b"}]));
    for (kind, per, from) in [("a", 2, 0), ("b", 4, 100)] {
        for page in 0..3 {
            let url = format!("/kinds/{kind}/things?n=9&p={}", page + 1);
            desk.says(&url, &rows(from + page * per..from + page * per + per));
        }
        desk.says(&format!("/kinds/{kind}/things?n=9&p=4"), &json!([]));
    }
    desk.sync().is(0, &[("added", 2 + 6 + 12)]);
    desk.sync().is(0, &[("unchanged", 2 + 6 + 12), ("missing", 0)]);
}

async fn a_cursor_that_brings_the_same_rows_for_ever_is_noticed(stage: Stage) {
    let recipe = THINGS
        .replace("key ", "items = \"rows\"\npagination = { cursor = \"next\", param = \"after\" }\nkey ");
    let desk = Desk::new(stage, &recipe);
    desk.says("/things", &json!({"rows": rows(0..2), "next": 1}));
    for after in 1..9 {
        desk.says(&format!("/things?after={after}"), &json!({"rows": rows(0..2), "next": after + 1}));
    }
    let run = desk.sync();
    assert_eq!((run.code, run.count("unproven")), (3, 1), "{:#}", run.json);
    assert_eq!(desk.server.requests().len(), 2, "one repetition is enough");
}

async fn of_two_lists_of_one_name_neither_counts(stage: Stage) {
    let desk = Desk::new(stage, &THINGS.replace("key ", "items = \"rows\"\nkey "));
    desk.says("/things", &json!({"rows": rows(0..2)}));
    desk.sync().is(0, &[("added", 2)]);
    let twice = r#"{"rows": [{"id": "0"}, {"id": "1"}], "rows": []}"#;
    desk.replies("/things", Reply::ok(twice).header("Content-Type", "application/json"));
    desk.sync().is(1, &[("unproven", 1), ("missing", 0)]);
}
