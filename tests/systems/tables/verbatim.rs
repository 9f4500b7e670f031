//! An answer that is byte for byte what it was is not looked into, and nothing that hangs on more than its bytes is lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use trueup::clock::TestClock;
use trueup::config::Config;
use trueup::pipeline::Ask;
use trueup::pipeline::Pipeline;
use trueup::pipeline::open::Memory;
use trueup::state::Report;
use trueup::store::{Access, StoreExt as _};

use super::kit::json_reply;
use crate::support::http::{Reply, Server};
use crate::support::temp;

const RECIPE: &str = r#"
base = "BASE"
[[resources]]
name = "groups"
path = "/groups"
key  = "id"
[resources.columns]
id   = "integer"
name = "text"

[[resources]]
name = "members"
path = "/groups/{groups.id}/members"
key  = "id"
[resources.columns]
id   = "integer"
team = { type = "text", parent = "name" }
rank = { enum = { 1 = "low", 2 = "high" } }
"#;

/// Groups with their members, behind a real server.
struct Club {
    folder: tempfile::TempDir,
    server: Server,
    answers: Arc<Mutex<BTreeMap<String, Value>>>,
    more: &'static str,
}

impl Club {
    fn new() -> Self {
        let answers: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let theirs = answers.clone();
        let server = Server::start(move |request| match theirs.lock().unwrap().get(&request.path) {
            Some(answer) => json_reply(answer),
            None => Reply::status(404),
        });
        let club = Club { folder: temp(), server, answers, more: "" };
        club.groups(&["red", "blue"]);
        club.members(1, &[(11, 1), (12, 2)]);
        club.members(2, &[(21, 1)]);
        club
    }

    fn groups(&self, names: &[&str]) {
        let groups = names.iter().zip(1..).map(|(name, id)| json!({"id": id, "name": name}));
        self.answers.lock().unwrap().insert("/groups".into(), groups.collect());
    }

    fn members(&self, group: u32, members: &[(u32, u32)]) {
        let of = |&(id, rank): &(u32, u32)| json!({"id": id, "rank": rank, "since": 1900 + id});
        let path = format!("/groups/{group}/members");
        self.answers.lock().unwrap().insert(path, members.iter().map(of).collect());
    }

    async fn line(&self) -> Pipeline {
        let recipe = RECIPE.replace("BASE", &self.server.url("")) + self.more;
        std::fs::write(self.folder.path().join("club.toml"), recipe).unwrap();
        let text = "[pipelines.club]\nfrom = { rest = \"club.toml\" }\nas = \"rows\"\ninto = { tables = \"sqlite:club.db\" }\n";
        std::fs::write(self.folder.path().join("trueup.toml"), text).unwrap();
        let config = Config::load(&self.folder.path().join("trueup.toml"), &|_| None).unwrap();
        let clock = TestClock::at("2026-11-15T00:00:00Z", 1);
        let memory = Memory::open(&config, Access::Write, clock).await.unwrap();
        Pipeline::open(&config.pipelines["club"], &memory, Access::Write).await.unwrap()
    }

    async fn run(&self) -> Report {
        self.line().await.run(&Ask::plain("test")).await.unwrap()
    }

    /// Added, updated, unchanged and failed.
    async fn did(&self, expected: [u64; 4]) -> Report {
        let report = self.run().await;
        let counts = &report.counts;
        assert_eq!([counts.added, counts.updated, counts.unchanged, counts.failed], expected, "{report:#?}");
        report
    }

    fn row(&self, columns: &str, id: u32) -> String {
        let path: &Path = &self.folder.path().join("club.db");
        let database = rusqlite::Connection::open(path).unwrap();
        database
            .query_row(&format!("select {columns} from members where id = {id}"), [], |row| row.get(0))
            .unwrap()
    }
}

#[tokio::test]
async fn the_mark_of_an_answer_is_kept_where_nothing_hangs_from_its_rows() {
    let club = Club::new();
    club.did([5, 0, 0, 0]).await;
    let state = club.line().await.state;
    for (scope, marked) in [("groups", false), ("members/1", true), ("members/2", true)] {
        let cursor = state.store().get_one(&format!("cursor/club/{scope}")).await.unwrap();
        let cursor = String::from_utf8(cursor.expect(scope).value.to_vec()).unwrap();
        assert_eq!(cursor.contains(' '), marked, "{scope}: {cursor}");
    }
    club.did([0, 0, 5, 0]).await;
    club.members(2, &[(21, 2), (22, 1)]);
    club.did([1, 1, 4, 0]).await;
    club.did([0, 0, 6, 0]).await;
}

#[tokio::test]
async fn what_a_parent_lends_is_noticed_although_the_answer_is_the_same() {
    let club = Club::new();
    club.did([5, 0, 0, 0]).await;
    club.groups(&["crimson", "blue"]);
    club.did([0, 3, 2, 0]).await;
    assert_eq!(club.row("team", 12), "crimson");
    club.did([0, 0, 5, 0]).await;
}

#[tokio::test]
async fn an_id_that_another_group_lists_now_is_an_error_wherever_nothing_changed() {
    let club = Club::new();
    club.did([5, 0, 0, 0]).await;
    club.members(2, &[(21, 1), (11, 2)]);
    let report = club.did([0, 0, 5, 1]).await;
    assert!(report.errors[0].message.contains("listed already"), "{report:#?}");
    assert_eq!(club.row("team", 11), "red", "the first one counts");
    club.members(2, &[(21, 1)]);
    club.did([0, 0, 5, 0]).await;
    // The other way round: the first group changed, the second one is as it was.
    club.members(1, &[(11, 1), (12, 2), (21, 2)]);
    let report = club.run().await;
    assert_eq!((report.counts.updated, report.counts.failed), (1, 1), "{report:#?}");
    assert_eq!(club.row("team", 21), "red", "the first one counts");
}

#[tokio::test]
async fn what_is_worth_a_word_is_said_on_every_run() {
    let club = Club::new();
    club.members(2, &[(21, 7)]);
    for _ in 0..3 {
        let report = club.run().await;
        let said = report.warnings.iter().any(|text| text.contains("7 stands for no known word"));
        assert!(said, "{report:#?}");
    }
}

#[tokio::test]
async fn another_recipe_reads_the_same_answer_anew() {
    let mut club = Club::new();
    club.did([5, 0, 0, 0]).await;
    club.more = "since = \"integer?\"\n";
    club.did([0, 3, 2, 0]).await;
    assert_eq!(club.row("cast(since as text)", 12), "1912");
}

/// Newest first, three on a page: what was all of the list is its second page now.
#[tokio::test]
async fn a_later_page_that_is_what_all_of_the_list_was_hides_nothing() {
    let mut club = Club::new();
    club.more = "[[resources]]\nname = \"news\"\npath = \"/news\"\nkey = \"id\"\n\
                 pagination = { page = \"p\", size = \"n\", per = 3 }\ncolumns = { id = \"integer\" }\n";
    let page = |number: u32, ids: &[u32]| {
        let items = ids.iter().map(|id| json!({"id": id})).collect();
        club.answers.lock().unwrap().insert(format!("/news?n=3&p={number}"), items);
    };
    page(1, &[2, 1]);
    club.did([7, 0, 0, 0]).await;
    page(1, &[5, 4, 3]);
    page(2, &[2, 1]);
    club.did([3, 0, 7, 0]).await;
    club.did([0, 0, 10, 0]).await;
}
