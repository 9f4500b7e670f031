//! A workspace over a fresh store, with pages in a folder or on a Confluence of the test's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trueup::clock::{SharedClock, SystemClock, TestClock};
use trueup::config::{self, Config};
use trueup::store::{Access, SharedStore, StoreExt, What};
use trueup::workspace::{NewIssue, Passage, Severity, Workspace};

use super::model::Model;
use super::wiki::Wiki;
use crate::support;

pub const NOW: &str = "2025-06-01T12:00:00Z";

pub const ENGLISH: &str =
    "Every doctoral candidate shall have at least two supervisors employed by the university.";
pub const ITALIAN: &str =
    "Ogni dottorando è seguito da almeno due supervisori assunti dall'università degli studi.";

pub struct Desk {
    pub folder: tempfile::TempDir,
    pub clock: Arc<TestClock>,
    pub wiki: Wiki,
    pub model: Model,
    into: String,
    pub reanalyze: &'static str,
}

impl Desk {
    pub fn new() -> Self {
        let folder = support::temp();
        let into = format!("sqlite:{}/workspace.db", folder.path().display());
        Self::into(folder, into)
    }

    fn into(folder: tempfile::TempDir, into: String) -> Self {
        let clock = TestClock::at(NOW, 11);
        Desk { folder, clock, wiki: Wiki::new(), model: Model::new(), into, reanalyze: "mark" }
    }

    /// One over each store that a workspace can live in.
    pub async fn everywhere(name: &str) -> Vec<Desk> {
        let etcd = support::etcd().await.endpoints();
        let dsn = support::postgres().await.fresh_database();
        let etcd = Self::into(support::temp(), format!("etcd://{etcd}/workspace-{name}/"));
        vec![Desk::new(), etcd, Self::into(support::temp(), dsn)]
    }

    pub fn spec(&self, pages: &str) -> config::Workspace {
        let text = format!(
            "[workspaces.w]\npages = {pages}\ninto = \"{}\"\nllm = {}\nreanalyze = \"{}\"\n",
            self.into,
            self.model.llm(),
            self.reanalyze
        );
        let config = Config::parse(&text, Path::new("trueup.toml"), &|_| None).unwrap();
        config.workspaces["w"].clone()
    }

    /// Over the Confluence, by the test's clock.
    pub async fn workspace(&self) -> Workspace {
        self.by_clock(self.clock.clone()).await
    }

    /// The same by the machine's clock: as another process would have it.
    pub async fn real(&self) -> Workspace {
        self.by_clock(SystemClock::new()).await
    }

    async fn by_clock(&self, clock: SharedClock) -> Workspace {
        Workspace::open(&self.spec(&self.wiki.pages()), Access::Write, clock).await.unwrap()
    }

    pub fn pages(&self) -> PathBuf {
        self.folder.path().join("pages")
    }

    /// Over the folder `pages`, which is made.
    pub async fn over_folder(&self) -> Workspace {
        std::fs::create_dir_all(self.pages()).unwrap();
        let spec = self.spec(&format!("{{ folder = \"{}\" }}", self.pages().display()));
        Workspace::open(&spec, Access::Write, self.clock.clone()).await.unwrap()
    }

    /// A file of a page's folder.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.pages().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Keys with this prefix, in order.
pub async fn keys(store: &SharedStore, prefix: &str) -> Vec<String> {
    let lines = store.list_all(prefix, What::Keys).await.unwrap();
    lines.into_iter().map(|line| line.key).collect()
}

pub fn issue(title: &str) -> NewIssue {
    let description = vec![Passage::Text("Because.".into())];
    NewIssue { title: title.to_owned(), severity: severity(1), description }
}

pub fn severity(number: u64) -> Severity {
    Severity::try_from(number).unwrap()
}
