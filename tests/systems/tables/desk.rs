//! Lists of any shape behind a real HTTP server, and a stage that mirrors them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::kit::{Ran, Stage, json_reply};
use crate::support::http::{Reply, Request, Server};

/// Cases, and votes for each of them.
pub const CASES: &str = r#"
[[resources]]
name = "cases"
path = "/cases"
key  = "id"
[resources.columns]
id = "text"
t  = "text?"

[[resources]]
name = "votes"
path = "/cases/{cases.id}/votes"
key  = "n"
[resources.columns]
n       = "text"
case_id = { type = "text", parent = "id" }
v       = "text?"
"#;

/// One flat list.
pub const THINGS: &str = r#"
[[resources]]
name = "things"
path = "/things"
key  = "id"
[resources.columns]
id = "text"
t  = "text?"
n  = "integer?"
"#;

pub struct Desk {
    pub stage: Stage,
    pub server: Server,
    answers: Arc<Mutex<BTreeMap<String, Reply>>>,
}

impl Desk {
    pub fn new(mut stage: Stage, resources: &str) -> Self {
        let answers: Arc<Mutex<BTreeMap<String, Reply>>> = Arc::default();
        let theirs = answers.clone();
        let reply = move |request: &Request| {
            let known = theirs.lock().unwrap().get(&request.path).cloned();
            known.unwrap_or_else(|| Reply::status(404))
        };
        let server = Server::start(reply);
        stage.recipe = "desk.toml".into();
        let desk = Desk { stage, server, answers };
        desk.recipe(resources);
        desk
    }

    /// Put another recipe in the place of this one.
    pub fn recipe(&self, resources: &str) {
        let recipe = format!("base = \"{}\"\nattempts = 1\n{resources}", self.server.url(""));
        std::fs::write(self.stage.folder.path().join("desk.toml"), recipe).unwrap();
    }

    pub fn says(&self, path: &str, answer: &Value) {
        self.replies(path, json_reply(answer));
    }

    pub fn replies(&self, path: &str, reply: Reply) {
        self.answers.lock().unwrap().insert(path.to_owned(), reply);
    }

    pub fn fails(&self, path: &str) {
        self.replies(path, Reply::status(500));
    }

    pub fn sync(&self) -> Ran {
        self.stage.sync()
    }

    pub fn trueup(&self, arguments: &[&str]) -> Ran {
        self.stage.trueup(arguments)
    }

    pub fn query(&self, sql: &str) -> String {
        self.stage.query(sql)
    }

    /// Nothing is left to be done, and nothing is wrong.
    #[track_caller]
    pub fn is_calm(&self) {
        self.sync().is(0, &[("writes", 0)]);
        let audit = self.trueup(&["audit"]);
        assert_eq!(audit.code, 0, "{:#}", audit.json);
    }
}
