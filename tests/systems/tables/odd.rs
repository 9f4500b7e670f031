//! Items no database takes, answers that lead astray, servers that send callers elsewhere.

use serde_json::json;

use super::desk::{CASES, Desk, THINGS};
use super::kit::{Database, Ran, Stage, json_reply};
use super::on_both;
use crate::support::http::{Reply, Server};

on_both!(
    one_bad_item_fails_alone,
    an_index_entry_that_is_too_long_fails_alone,
    what_json_can_write_and_nothing_can_hold_fails_alone,
    a_link_that_cannot_be_read_proves_nothing,
    what_is_no_whole_answer_proves_nothing,
    a_path_is_joined_to_its_base_by_a_slash,
    a_key_of_dots_is_no_way_up,
    an_integer_is_asked_for_as_it_is_stored,
);

async fn one_bad_item_fails_alone(stage: Stage) {
    let desk = Desk::new(stage, &THINGS.replace("n  = \"integer?\"", "at = \"timestamp?\""));
    let bad = [
        json!({"id": "x", "at": "0001-01-01T00:00:00+01:00"}),
        json!({"id": "x", "at": "0000-06-01T00:00:00Z"}),
        json!({"id": "a\0b"}),
    ];
    for (round, bad) in bad.into_iter().enumerate() {
        let good = json!({"id": format!("good {round}"), "at": "0001-01-01T00:00:00Z"});
        desk.says("/things", &json!([good, bad]));
        for _ in 0..2 {
            assert_eq!(desk.sync().count("failed"), 1);
        }
        assert_eq!(desk.query(&format!("select count(*) from things where id = 'good {round}'")), "1");
    }
}

async fn an_index_entry_that_is_too_long_fails_alone(stage: Stage) {
    let desk = Desk::new(
        stage,
        &THINGS.replace("\"text?\"", "{ type = \"text\", optional = true, index = \"by_t\" }"),
    );
    // Nothing that would be compressed.
    let long: String =
        (0u32..9_000).map(|n| char::from(33 + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 90)).collect();
    let mut items: Vec<_> = (0..20).map(|n| json!({"id": format!("{n:02}"), "t": "short"})).collect();
    items[7]["t"] = json!(long);
    desk.says("/things", &json!(items));
    let first = desk.sync();
    let failed = first.count("failed");
    assert_eq!(first.count("added"), 20 - failed, "{:#}", first.json);
    // Only PostgreSQL has a limit.
    let expected = u64::from(matches!(desk.stage.database, Database::Postgres(_)));
    assert_eq!(failed, expected, "{:#}", first.json);
    if failed == 1 {
        assert_eq!(first.run()["errors"][0]["key"], json!("things/07"), "{:#}", first.json);
        items[7]["t"] = json!("short");
        desk.says("/things", &json!(items));
        desk.sync().is(0, &[("added", 1)]);
    }
    desk.is_calm();
}

async fn what_json_can_write_and_nothing_can_hold_fails_alone(stage: Stage) {
    let desk = Desk::new(stage, &THINGS.replace("n  = \"integer?\"", "n = \"real?\"\nj = \"json?\""));
    let says = |bad: &str| {
        let body = format!(r#"[{{"id": "1", "t": "a"}}, {{"id": "2", {bad}}}, {{"id": "3", "n": 2.5}}]"#);
        desk.replies("/things", Reply::ok(body).header("Content-Type", "application/json"));
    };
    says(r#""n": 1e400"#);
    desk.sync().is(3, &[("added", 2), ("failed", 1)]);
    for bad in [r#""t": "cut \ud83d""#, r#""j": {"deep": [1e999]}"#] {
        says(bad);
        let run = desk.sync();
        run.is(3, &[("failed", 1), ("unchanged", 2)]);
        assert_eq!(run.run()["errors"][0]["key"], json!("things/2"));
    }
    says(r#""other": [1e400, "\udc00"]"#);
    desk.sync().is(0, &[("added", 1), ("unchanged", 2)]);
    desk.is_calm();
}

async fn a_link_that_cannot_be_read_proves_nothing(stage: Stage) {
    let desk = Desk::new(stage, &THINGS.replace("key ", "pagination = \"link\"\nkey "));
    let first = |link: &str| desk.replies("/things", json_reply(&json!([{"id": "1"}])).header("Link", link));
    desk.says("/things?p=2&q=e", &json!([{"id": "2"}]));
    first("</things?p=2&q=e>; rel=\"next\"");
    desk.sync().is(0, &[("added", 2)]);
    for link in ["/things?p=2&q=e; rel=\"next\"", "</things?p=2; rel=\"next\"", "<a>; title=\"; rel=\"next\""]
    {
        first(link);
        let run = desk.sync();
        run.is(1, &[("unproven", 1), ("missing", 0)]);
        assert_eq!(desk.query("select count(*) from things where missing_since is null"), "2");
        assert!(run.run()["errors"][0]["message"].as_str().unwrap().contains("Link"), "{:#}", run.json);
    }
}

/// Part of a list, or the promise of one.
async fn what_is_no_whole_answer_proves_nothing(stage: Stage) {
    let desk = Desk::new(stage, THINGS);
    let marked = "\u{feff}[{\"id\": \"1\"}, {\"id\": \"2\"}]";
    desk.replies("/things", Reply::ok(marked).header("Content-Type", "application/json"));
    desk.sync().is(0, &[("added", 2)]);
    for status in [202, 206] {
        let part = Reply::status(status).body(r#"[{"id": "1"}]"#).header("Content-Type", "application/json");
        desk.replies("/things", part);
        desk.sync().is(5, &[("unproven", 1), ("missing", 0)]);
    }
    let problem = Reply::ok("[]").header("Content-Type", "application/problem+json");
    desk.replies("/things", problem);
    desk.sync().is(5, &[("unproven", 1), ("missing", 0)]);
    assert_eq!(desk.query("select count(*) from things where missing_since is null"), "2");
}

/// Glued to the base it would be another host, and that would be shown our credentials.
async fn a_path_is_joined_to_its_base_by_a_slash(stage: Stage) {
    let desk = Desk::new(stage, &THINGS.replace("path = \"/things\"", "path = \"things\""));
    desk.says("/things", &json!([{"id": "1"}]));
    desk.sync().is(0, &[("added", 1)]);
}

async fn a_key_of_dots_is_no_way_up(stage: Stage) {
    let desk = Desk::new(stage, CASES);
    desk.says("/cases", &json!([{"id": ".."}, {"id": "."}, {"id": "..."}]));
    desk.says("/votes", &json!([{"n": "wrong"}]));
    desk.says("/cases/votes", &json!([{"n": "wrong too"}]));
    desk.says("/cases/.../votes", &json!([{"n": "right"}]));
    desk.sync().is(3, &[("added", 4), ("unproven", 2)]);
    assert_eq!(desk.query("select n from votes"), "right");
}

async fn an_integer_is_asked_for_as_it_is_stored(stage: Stage) {
    let desk = Desk::new(
        stage,
        &CASES
            .replace("id = \"text\"", "id = \"integer\"")
            .replace("type = \"text\", parent", "type = \"integer\", parent"),
    );
    desk.replies(
        "/cases",
        Reply::ok(r#"[{"id": 1.0}, {"id": 2e3}]"#).header("Content-Type", "application/json"),
    );
    desk.says("/cases/1/votes", &json!([{"n": "a"}]));
    desk.says("/cases/2000/votes", &json!([{"n": "b"}]));
    desk.sync().is(0, &[("added", 4)]);
    assert_eq!(desk.query("select n, case_id from votes order by n"), "a|1\nb|2000");
}

/// Credentials are for the server the recipe names.
#[tokio::test]
async fn no_secret_goes_to_another_server() {
    for (auth, header) in [
        ("{ bearer_env = \"TOKEN\" }", "authorization"),
        ("{ user = \"me\", password_env = \"TOKEN\" }", "authorization"),
        ("{ header = \"X-Api-Key\", value_env = \"TOKEN\" }", "x-api-key"),
    ] {
        let other = Server::start(|_| json_reply(&json!([{"id": "1"}])));
        let desk = Desk::new(Stage::on_sqlite(), &THINGS.replacen("\n", &format!("auth = {auth}\n"), 1));
        // Within one server they go along, to another they do not, by whatever way.
        desk.replies("/things", Reply::status(302).header("Location", "/moved"));
        desk.replies("/moved", Reply::status(307).header("Location", other.url("/things")));
        let mut command = desk.stage.command(&["sync"]);
        let run = Ran::of(&command.env("TOKEN", "s3cret").output().unwrap());
        run.is(0, &[("added", 1)]);
        let asked = desk.server.requests();
        assert!(asked.iter().all(|request| request.headers.contains_key(header)), "{auth}: {asked:?}");
        let told = other.requests();
        assert_eq!(told.len(), 1, "{auth}");
        assert!(!told[0].headers.contains_key(header), "{auth}: {told:?}");
        let all = format!("{told:?}");
        assert!(!all.contains("s3cret") && !all.contains("bWU6czNjcmV0"), "{auth}: {all}");
    }
}
