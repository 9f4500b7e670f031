//! A server that speaks GitHub's REST API as far as a repository is read: commits, trees, blobs, with the real shapes of
//! the answers. What goes wrong is told to it by the test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use super::http::{Reply, Request, Server};

#[derive(Default)]
struct Repository {
    files: BTreeMap<String, Vec<u8>>,
    /// Trees by their SHA; what is asked for by another name is not there.
    trees: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    trouble: Trouble,
}

/// What goes wrong.
#[derive(Debug, Default, Clone)]
pub struct Trouble {
    /// Blobs of these contents are answered with 502.
    pub broken_blobs: BTreeSet<String>,
    /// Of these all but the last byte is answered, as if that were all.
    pub short_blobs: BTreeSet<String>,
    /// Of these the last byte is another one.
    pub other_blobs: BTreeSet<String>,
    pub broken_trees: bool,
    /// Trees are answered with this status and no entries.
    pub empty_trees: Option<u16>,
    /// Trees are answered with one that was not asked for.
    pub other_trees: bool,
    /// The recursive tree leaves out this many files and says so; with `deep`, every other tree does too.
    pub truncated: Option<usize>,
    pub deep: bool,
    /// Every request is answered with 403 and this reset time.
    pub rate_limited_until: Option<i64>,
    /// This many requests are told that they came too fast, in words alone.
    pub too_fast: usize,
    /// This many requests are taken and not answered.
    pub silent: usize,
}

pub struct Hub {
    pub server: Server,
    repository: Arc<Mutex<Repository>>,
}

impl Hub {
    pub fn start() -> Self {
        let repository = Arc::new(Mutex::new(Repository::default()));
        let theirs = repository.clone();
        let server = Server::start(move |request| theirs.lock().unwrap().answer(request));
        Hub { server, repository }
    }

    pub fn put(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.repository.lock().unwrap().files.insert(path.to_owned(), body.into());
    }

    pub fn remove(&self, path: &str) -> Vec<u8> {
        self.repository.lock().unwrap().files.remove(path).unwrap()
    }

    pub fn rename(&self, from: &str, to: &str) {
        let body = self.remove(from);
        self.put(to, body);
    }

    pub fn paths(&self) -> Vec<String> {
        self.repository.lock().unwrap().files.keys().cloned().collect()
    }

    /// Blobs that no file holds any more are gone.
    pub fn forget_history(&self) {
        self.repository.lock().unwrap().trees.clear();
    }

    pub fn head(&self) -> String {
        self.repository.lock().unwrap().commit()
    }

    pub fn trouble(&self, trouble: Trouble) {
        self.repository.lock().unwrap().trouble = trouble;
    }

    /// Requests since the last call, by what was asked: commits, trees, blobs.
    pub fn asked(&self) -> [usize; 3] {
        let counts = ["/commits/", "/git/trees/", "/git/blobs/"].map(|part| self.server.count(part));
        assert_eq!(counts.iter().sum::<usize>(), self.server.requests().len(), "nothing else is asked");
        self.server.forget();
        counts
    }
}

/// What git calls a blob.
pub fn sha(bytes: &[u8]) -> String {
    let head = format!("blob {}\0", bytes.len());
    hex::encode(Sha1::new().chain_update(head).chain_update(bytes).finalize())
}

impl Repository {
    /// Any name will do for a tree, but for the empty one.
    fn tree_sha(&self) -> String {
        if self.files.is_empty() {
            return "4b825dc642cb6eb9a060e54bf8d69288fbee4904".into();
        }
        let mut all = Vec::new();
        for (path, body) in &self.files {
            all.extend_from_slice(format!("{path}\0{}\n", sha(body)).as_bytes());
        }
        sha(&all)
    }

    fn commit(&self) -> String {
        sha(format!("commit {}", self.tree_sha()).as_bytes())
    }

    fn answer(&mut self, request: &Request) -> Reply {
        if self.trouble.silent > 0 {
            self.trouble.silent -= 1;
            return Reply::silence();
        }
        if let Some(reset) = self.trouble.rate_limited_until {
            return json_reply(403, &json!({"message": "API rate limit exceeded for 127.0.0.1."}))
                .header("X-RateLimit-Limit", "60")
                .header("X-RateLimit-Remaining", "0")
                .header("X-RateLimit-Reset", reset.to_string());
        }
        if self.trouble.too_fast > 0 {
            self.trouble.too_fast -= 1;
            let said = "{\n  \"documentation_url\": \"https://docs.github.com/rest\",\n  \"message\": \"You have \
                        exceeded a secondary rate limit. Please wait a few minutes before you try again.\"\n}";
            return Reply::status(403).body(said).header("X-RateLimit-Remaining", "4000");
        }
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let Some(rest) = path.strip_prefix("/repos/knue/policies/") else { return not_found() };
        match rest.split_once('/') {
            Some(("commits", "main")) => self.head(),
            Some(("git", rest)) => match rest.split_once('/') {
                Some(("trees", sha)) => self.tree(sha, query == "recursive=1"),
                Some(("blobs", sha)) => self.blob(sha),
                _ => not_found(),
            },
            _ => not_found(),
        }
    }

    fn head(&mut self) -> Reply {
        let tree = self.tree_sha();
        self.trees.insert(tree.clone(), self.files.clone());
        let who = json!({"name": "n", "email": "e@example.org", "date": "2025-10-20T00:00:00Z"});
        json_reply(
            200,
            &json!({
                "sha": self.commit(), "node_id": "C_x",
                "commit": {"author": who, "committer": who, "message": "m", "tree": {"sha": tree, "url": "u"}},
                "parents": [], "files": [], "stats": {"total": 0, "additions": 0, "deletions": 0},
            }),
        )
    }

    fn tree(&mut self, wanted: &str, recursive: bool) -> Reply {
        if self.trouble.broken_trees {
            return Reply::status(502);
        }
        if let Some(status) = self.trouble.empty_trees {
            return json_reply(status, &json!({"sha": wanted, "url": "u", "tree": [], "truncated": false}));
        }
        if self.trouble.other_trees {
            let other = sha(b"another tree");
            return json_reply(200, &json!({"sha": other, "url": "u", "tree": [], "truncated": false}));
        }
        let Some(files) = self.trees.get(wanted).cloned() else { return not_found() };
        let mut nodes: Vec<Value> = Vec::new();
        let mut folders: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
        for (path, body) in &files {
            match path.split_once('/') {
                Some((folder, rest)) if !recursive => {
                    folders.entry(folder.to_owned()).or_default().insert(rest.to_owned(), body.clone());
                }
                _ => nodes.push(json!({"path": path, "mode": "100644", "type": "blob", "sha": sha(body),
                    "size": body.len(), "url": "u"})),
            }
        }
        for (folder, inside) in folders {
            let name = sha(format!("{wanted}/{folder}").as_bytes());
            self.trees.insert(name.clone(), inside);
            nodes.push(json!({"path": folder, "mode": "040000", "type": "tree", "sha": name, "url": "u"}));
        }
        let whole = files.len() == self.files.len();
        let cut = self.trouble.truncated.filter(|_| (recursive && whole) || self.trouble.deep);
        if let Some(missing) = cut {
            nodes.truncate(nodes.len().saturating_sub(missing));
        }
        json_reply(200, &json!({"sha": wanted, "url": "u", "tree": nodes, "truncated": cut.is_some()}))
    }

    fn blob(&self, wanted: &str) -> Reply {
        let found = self.trees.values().flat_map(BTreeMap::values).find(|body| sha(body) == wanted);
        let Some(body) = found else { return not_found() };
        if self.trouble.broken_blobs.contains(wanted) {
            return Reply::status(502);
        }
        let left_out = usize::from(self.trouble.short_blobs.contains(wanted));
        let mut body = body[..body.len() - left_out].to_vec();
        if self.trouble.other_blobs.contains(wanted) {
            *body.last_mut().unwrap() ^= 1;
        }
        let mut content = String::new();
        for line in STANDARD.encode(&body).as_bytes().chunks(60) {
            content.push_str(std::str::from_utf8(line).unwrap());
            content.push('\n');
        }
        json_reply(
            200,
            &json!({"sha": wanted, "node_id": "B_x", "size": body.len(), "url": "u", "content": content,
                "encoding": "base64"}),
        )
    }
}

fn json_reply(status: u16, body: &Value) -> Reply {
    Reply::status(status).body(body.to_string()).header("Content-Type", "application/json; charset=utf-8")
}

fn not_found() -> Reply {
    json_reply(404, &json!({"message": "Not Found", "documentation_url": "https://docs.github.com/rest"}))
}
