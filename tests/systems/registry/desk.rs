//! A registry fed by a GitHub of the test's own, with a clock of its own, on whatever store the test names.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use trueup::clock::TestClock;
use trueup::config::Config;
use trueup::pipeline::open::Memory;
use trueup::pipeline::{Ask, Pipeline};
use trueup::registry;
use trueup::state::Report;
use trueup::store::{Access, Item, SharedStore, StoreExt, What, open};

use crate::support::github::Hub;
use crate::support::temp;

pub const T1: &str = "2025-10-20T16:00:00.000Z";
pub const T2: &str = "2025-10-21T16:00:00.000Z";

pub struct Desk {
    pub folder: tempfile::TempDir,
    pub hub: Hub,
    pub clock: Arc<TestClock>,
    pub from: String,
    /// The store, as TOML; a database in the test's own folder unless a test says otherwise.
    pub into: String,
    /// More lines of the pipeline.
    pub more: String,
}

impl Desk {
    pub fn new() -> Self {
        let (folder, hub) = (temp(), Hub::start());
        let from =
            format!("{{ github = \"knue/policies\", branch = \"main\", api = \"{}\" }}", hub.server.url(""));
        let into = format!("\"sqlite:{}/registry.db\"", folder.path().display());
        Desk { folder, hub, clock: TestClock::at(T1, 7), from, into, more: String::new() }
    }

    /// Policies `p00`, `p01`, … below `policies/`.
    pub fn with_policies(count: usize) -> Self {
        let desk = Desk::new();
        for number in 0..count {
            desk.hub.put(&format!("policies/p{number:02}.md"), policy(number));
        }
        desk
    }

    /// Documents go into a folder too.
    pub fn exporting(mut self) -> Self {
        self.more
            .push_str(&format!("then = {{ export = \"file:{}/objects\" }}\n", self.folder.path().display()));
        self
    }

    pub fn config(&self) -> Config {
        let text = format!(
            "[state]\nstore = \"sqlite:{}/state.db\"\n[pipelines.policies]\nfrom = {}\nas = \"policy\"\ninto = {}\n{}",
            self.folder.path().display(),
            self.from,
            self.into,
            self.more
        );
        Config::parse(&text, Path::new("trueup.toml"), &|_| None)
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// Opened anew for every run, as a process would.
    pub async fn line(&self, access: Access) -> Pipeline {
        let config = self.config();
        let memory = Memory::open(&config, access, self.clock.clone()).await.unwrap();
        registry::open(&config.pipelines["policies"], &memory, access).await.unwrap()
    }

    pub async fn run(&self) -> Report {
        self.line(Access::Write).await.run(&Ask::plain("test")).await.unwrap()
    }

    /// Run, and expect added, updated, deleted, unchanged, and that all is well.
    pub async fn ran(&self, expected: [u64; 4]) -> Report {
        let report = self.run().await;
        assert_eq!(did(&report), expected, "{report:#?}");
        assert_eq!(report.exit_code(), 0, "{report:#?}");
        report
    }

    pub async fn approve(&self) -> Report {
        let line = self.line(Access::Write).await;
        let header = line.state.held_headers().await.unwrap().pop().expect("something is held");
        line.approve(&header, Ask::plain("approve")).await.unwrap()
    }

    pub async fn store(&self) -> SharedStore {
        open::open(&self.config().pipelines["policies"].into, Access::Write, self.clock.clone())
            .await
            .unwrap()
    }

    /// What the registry holds below a prefix, as an outsider reads it.
    pub async fn held(&self, prefix: &str) -> BTreeMap<String, String> {
        let lines = self.store().await.list_all(prefix, What::Values).await.unwrap();
        let text = |value: Option<bytes::Bytes>| String::from_utf8(value.unwrap().to_vec()).unwrap();
        lines.into_iter().map(|line| (line.key, text(line.value))).collect()
    }

    pub async fn value(&self, key: &str) -> Option<Value> {
        let held = self.store().await.get_one(key).await.unwrap()?;
        Some(serde_json::from_slice(&held.value).unwrap())
    }

    pub async fn policy(&self, name: &str) -> Value {
        self.value(&format!("policy:{name}")).await.unwrap_or_else(|| panic!("no policy {name}"))
    }

    pub async fn names(&self) -> Vec<String> {
        self.held("policy:").await.into_keys().map(|key| key["policy:".len()..].to_owned()).collect()
    }

    pub async fn last_run(&self) -> Value {
        self.value("metadata:sync:lastRun").await.unwrap()
    }

    pub async fn last_commit(&self) -> Option<String> {
        self.held("metadata:sync:lastCommit").await.into_values().next()
    }

    pub async fn intrude(&self, key: &str, value: &Value) {
        self.store().await.write_one(Item::put(key, value.to_string())).await.unwrap();
    }

    /// Objects below the export's folder, by their path.
    pub fn object(&self, name: &str) -> Option<String> {
        let path = self.folder.path().join(format!("objects/policies/{name}/policy.md"));
        std::fs::read_to_string(path).ok()
    }

    pub fn objects(&self) -> usize {
        let folder = std::fs::read_dir(self.folder.path().join("objects/policies"));
        folder.map_or(0, |folder| {
            folder.filter(|one| one.as_ref().unwrap().path().join("policy.md").is_file()).count()
        })
    }
}

pub fn policy(number: usize) -> String {
    format!("# Policy {number}\n\nArticle 1.\n")
}

pub fn did(report: &Report) -> [u64; 4] {
    let counts = &report.counts;
    [counts.added, counts.updated, counts.deleted, counts.unchanged]
}
