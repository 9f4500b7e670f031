//! A Confluence on loopback: pages, attachments over several pages of a listing, downloads; each can be broken.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::http::{Reply, Request, Server};

#[derive(Clone)]
pub struct Paper {
    pub id: String,
    pub title: String,
    pub created: String,
    pub version: String,
    pub body: Vec<u8>,
}

impl Paper {
    pub fn new(id: &str, body: &str) -> Self {
        let at = "2025-01-01T00:00:00.000Z".to_owned();
        let body = body.as_bytes().to_vec();
        Paper { id: id.to_owned(), title: format!("{id}.md"), created: at.clone(), version: at, body }
    }
}

type Breakage = Box<dyn FnMut(&Request) -> Option<Reply> + Send>;

struct State {
    pages: BTreeMap<String, Vec<Paper>>,
    /// Attachments in one page of a listing.
    per_page: usize,
    broken: Breakage,
}

pub struct Wiki {
    pub server: Server,
    /// How long an answer is waited for: one that is slow to come is no failure.
    pub timeout: &'static str,
    state: Arc<Mutex<State>>,
}

impl Wiki {
    pub fn new() -> Self {
        let broken: Breakage = Box::new(|_| None);
        let state = Arc::new(Mutex::new(State { pages: BTreeMap::new(), per_page: 100, broken }));
        let theirs = state.clone();
        let server = Server::start(move |request| {
            let broken = (theirs.lock().unwrap().broken)(request);
            broken.unwrap_or_else(|| answer(&theirs.lock().unwrap(), request))
        });
        Wiki { server, timeout: "60s", state }
    }

    pub fn page(&self, page: &str, papers: Vec<Paper>) {
        self.state.lock().unwrap().pages.insert(page.to_owned(), papers);
    }

    pub fn remove(&self, page: &str) {
        self.state.lock().unwrap().pages.remove(page);
    }

    pub fn change(&self, page: &str, change: impl FnOnce(&mut Vec<Paper>)) {
        change(self.state.lock().unwrap().pages.get_mut(page).unwrap());
    }

    /// Some requests get another answer.
    pub fn break_with(&self, broken: impl FnMut(&Request) -> Option<Reply> + Send + 'static) {
        self.state.lock().unwrap().broken = Box::new(broken);
    }

    pub fn mend(&self) {
        self.break_with(|_| None);
    }

    /// The next request whose path has this in it waits until it is let go.
    pub fn hold(&self, part: &'static str) -> Held {
        let (arrive, arrived) = channel();
        let (go, gone) = channel::<()>();
        let mut once = Some((arrive, gone));
        self.break_with(move |request| {
            if request.path.contains(part)
                && let Some((arrive, gone)) = once.take()
            {
                let _ = arrive.send(());
                let _ = gone.recv();
            }
            None
        });
        Held { arrived, go }
    }

    pub fn downloads(&self) -> usize {
        self.server.count("/download")
    }

    /// What stands for `pages` in a config.
    pub fn pages(&self) -> String {
        format!("{{ confluence = \"{}\", timeout = \"{}\" }}", self.server.url("/wiki"), self.timeout)
    }
}

pub struct Held {
    arrived: Receiver<()>,
    go: Sender<()>,
}

impl Held {
    /// Wait until the request is there.
    pub async fn arrived(&self) {
        crate::support::until("the request is there", || self.arrived.try_recv().is_ok()).await;
    }

    pub fn release(self) {
        let _ = self.go.send(());
    }
}

fn answer(state: &State, request: &Request) -> Reply {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let parts: Vec<&str> = path.trim_start_matches("/wiki/").split('/').collect();
    match parts[..] {
        ["api", "v2", "pages", page] => match state.pages.get(page) {
            Some(_) => json_reply(&json!({
                "id": page, "status": "current", "title": format!("Agreement {page}"),
                "body": { "storage": { "value": "<p>The candidate has one supervisor.</p>", "representation": "storage" } },
            })),
            None => Reply::status(404).body(r#"{"errors":[{"status":404,"code":"NOT_FOUND"}]}"#),
        },
        ["api", "v2", "pages", page, "attachments"] => match state.pages.get(page) {
            Some(papers) => listing(state, page, papers, query),
            None => Reply::status(404),
        },
        ["rest", "api", "content", page, "child", "attachment", id, "download"] => {
            let found = state.pages.get(page).and_then(|papers| papers.iter().find(|paper| paper.id == id));
            found.map_or(Reply::status(404), |paper| Reply::ok(paper.body.clone()))
        }
        _ => Reply::status(404),
    }
}

fn listing(state: &State, page: &str, papers: &[Paper], query: &str) -> Reply {
    let cursor = query.split('&').find_map(|pair| pair.strip_prefix("cursor="));
    let from: usize = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let until = (from + state.per_page).min(papers.len());
    let item = |paper: &Paper| {
        json!({
            "id": paper.id, "title": paper.title, "status": "current", "mediaType": "text/markdown",
            "fileSize": paper.body.len(), "createdAt": paper.created, "pageId": page,
            "version": { "number": 1, "createdAt": paper.version },
        })
    };
    let results: Vec<Value> = papers[from..until].iter().map(item).collect();
    let mut links = json!({ "base": "https://example.atlassian.net/wiki" });
    if until < papers.len() {
        links["next"] = json!(format!("/wiki/api/v2/pages/{page}/attachments?limit=100&cursor={until}"));
    }
    json_reply(&json!({ "results": results, "_links": links }))
}

pub fn json_reply(value: &Value) -> Reply {
    Reply::ok(value.to_string()).header("Content-Type", "application/json")
}
