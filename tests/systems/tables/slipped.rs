//! Rows that are removed while a list is read page by page: those behind them move up, and one slips through between two pages.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::desk::{CASES, Desk, THINGS};
use super::kit::{Stage, json_reply};
use super::on_both;
use crate::support::http::{Reply, Request};

on_both!(
    one_that_slips_through_by_page_is_not_gone,
    one_that_slips_through_by_offset_is_not_gone,
    one_that_slips_through_by_links_that_are_numbers_is_not_gone,
    a_second_look_that_fails_proves_nothing,
    children_of_one_that_slips_through_stay,
);

const PER: usize = 3;

/// A list that changes while it is read.
#[derive(Default)]
struct Live {
    ids: Vec<u32>,
    /// Removed after the first page was given.
    goes: Option<u32>,
    /// Answers until it fails.
    answers: Option<usize>,
}

impl Live {
    fn answer(&mut self, request: &Request) -> Reply {
        if let Some(left) = &mut self.answers {
            let Some(fewer) = left.checked_sub(1) else { return Reply::status(500) };
            *left = fewer;
        }
        let number = |name: &str| {
            let (_, query) = request.path.split_once('?')?;
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.parse::<usize>().ok())
        };
        let from = number("p=").map(|page| (page - 1) * PER).or_else(|| number("from=")).unwrap_or(0);
        let page: Value =
            self.ids.iter().skip(from).take(PER).map(|id| json!({"id": id.to_string()})).collect();
        if let Some(gone) = self.goes.take() {
            self.ids.retain(|id| *id != gone);
        }
        let reply = json_reply(&page);
        let next = from / PER + 2;
        match (next - 1) * PER < self.ids.len() {
            true => reply.header("Link", format!("</things?p={next}>; rel=\"next\"")),
            false => reply,
        }
    }
}

/// Nine rows by pages of three, mirrored once.
fn nine(stage: Stage, resources: &str, style: &str) -> (Desk, Arc<Mutex<Live>>) {
    let paged = match style {
        "link" => "pagination = \"link\"\nkey ".to_owned(),
        _ => format!("pagination = {{ {style}, size = \"n\", per = {PER} }}\nkey "),
    };
    let desk = Desk::new(stage, &resources.replacen("key ", &paged, 1));
    let live = Arc::new(Mutex::new(Live { ids: (0..9).collect(), ..Live::default() }));
    let theirs = live.clone();
    desk.server.answer(move |request| match request.path.ends_with("/votes") {
        true => json_reply(&json!([{"n": format!("of {}", request.path)}])),
        false => theirs.lock().unwrap().answer(request),
    });
    (desk, live)
}

async fn one_slips_through(stage: Stage, style: &str) {
    let (mut desk, live) = nine(stage, THINGS, style);
    // Only an empty page ends a list that is counted.
    let answers = if style == "link" { 3 } else { 4 };
    desk.stage.shape = "{ rows = { on_missing = \"delete\" } }".into();
    desk.sync().is(0, &[("added", 9), ("requests", answers)]);
    let before = desk.query("select row_id, created_at from things where id = '3'");

    live.lock().unwrap().goes = Some(1);
    let run = desk.sync();
    run.is(3, &[("deleted", 0), ("unproven", 1), ("unchanged", 8)]);
    assert!(run.run()["errors"].to_string().contains("moved while it was read"), "{:#}", run.json);
    assert_eq!(desk.query("select row_id, created_at from things where id = '3'"), before);

    // What is missing twice is gone, in one run.
    desk.sync().is(0, &[("deleted", 1), ("unchanged", 8), ("requests", 2 * answers)]);
    assert_eq!(desk.query("select count(*) from things"), "8");
    assert_eq!(desk.query("select row_id, created_at from things where id = '3'"), before);
    desk.sync().is(0, &[("writes", 0), ("requests", answers)]);
    desk.is_calm();
}

async fn one_that_slips_through_by_page_is_not_gone(stage: Stage) {
    one_slips_through(stage, "page = \"p\"").await;
}

async fn one_that_slips_through_by_offset_is_not_gone(stage: Stage) {
    one_slips_through(stage, "offset = \"from\"").await;
}

async fn one_that_slips_through_by_links_that_are_numbers_is_not_gone(stage: Stage) {
    one_slips_through(stage, "link").await;
}

async fn a_second_look_that_fails_proves_nothing(stage: Stage) {
    let (desk, live) = nine(stage, THINGS, "page = \"p\"");
    desk.sync().is(0, &[("added", 9)]);
    live.lock().unwrap().ids.retain(|id| *id != 5);
    live.lock().unwrap().answers = Some(5);
    desk.sync().is(3, &[("missing", 0), ("unproven", 1)]);
    live.lock().unwrap().answers = None;
    desk.sync().is(0, &[("missing", 1), ("requests", 8)]);
    // It is looked for once: that it is still gone is no news.
    live.lock().unwrap().ids.push(9);
    desk.sync().is(0, &[("missing", 1), ("added", 1), ("requests", 4)]);
}

/// Nobody asked for them, because their parent was not on any page.
async fn children_of_one_that_slips_through_stay(stage: Stage) {
    let (mut desk, live) = nine(stage, CASES, "page = \"p\"");
    desk.stage.shape = "{ rows = { on_missing = \"delete\" } }".into();
    desk.sync().is(0, &[("added", 18)]);
    live.lock().unwrap().goes = Some(1);
    desk.sync().is(3, &[("deleted", 0), ("unproven", 1)]);
    assert_eq!(desk.query("select count(*) from votes"), "9");
    desk.sync().is(0, &[("deleted", 2)]);
    desk.is_calm();
}
