//! A pipeline from a feed server on loopback into a fresh store, with a clock of the test's own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trueup::clock::TestClock;
use trueup::config::Config;
use trueup::pipeline::open::Memory;
use trueup::pipeline::{Ask, Pipeline};
use trueup::state::Report;
use trueup::store::{Access, Item, StoreExt, What};

use crate::support::http::{Reply, Request, Server};
use crate::support::temp;

pub const NOW: &str = "2025-10-16T16:00:00Z";
pub const SAMPLE: &str = include_str!("../../fixtures/archive/sample-rss.xml");
pub const SAMPLE_ESCAPED: &str = include_str!("../../fixtures/archive/sample-rss-escaped.xml");

pub struct Desk {
    pub folder: tempfile::TempDir,
    pub server: Server,
    pub clock: Arc<TestClock>,
    pub boards: &'static str,
    /// How long an answer is waited for: a server of ours that is slow to answer is no failure.
    pub timeout: &'static str,
    /// More of `from`, such as `, preview = { … }`.
    pub from: String,
    /// All of it, where there is more than one address.
    pub whole_from: Option<String>,
    /// The settings of the article shape.
    pub shape: &'static str,
}

impl Desk {
    pub fn new(boards: &'static str, script: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        Desk {
            folder: temp(),
            server: Server::start(script),
            clock: TestClock::at(NOW, 7),
            boards,
            timeout: "60s",
            from: String::new(),
            whole_from: None,
            shape: "",
        }
    }

    /// One board, 25, that always says the same.
    pub fn serving(feed: impl Into<Vec<u8>>) -> Self {
        let feed = feed.into();
        Desk::new("25", move |_| Reply::ok(feed.clone()))
    }

    pub fn config(&self) -> String {
        let (folder, url) = (self.folder.path().display(), self.server.url("/rss.do?bbsNo={board}"));
        let boards = || {
            let (boards, timeout, more) = (self.boards, self.timeout, &self.from);
            format!("rss = \"{url}\", boards = \"{boards}\", timeout = \"{timeout}\"{more}")
        };
        format!(
            "[state]\nstore = \"sqlite:{folder}/state.db\"\n\
             [pipelines.boards]\nfrom = {{ {} }}\n\
             as = {{ article = {{ {} }} }}\ninto = \"sqlite:{folder}/objects.db\"\n",
            self.whole_from.clone().unwrap_or_else(boards),
            self.shape
        )
    }

    pub async fn line(&self) -> Pipeline {
        let config = Config::parse(&self.config(), Path::new("trueup.toml"), &|_| None).unwrap();
        let memory = Memory::open(&config, Access::Write, self.clock.clone()).await.unwrap();
        Pipeline::open(&config.pipelines["boards"], &memory, Access::Write).await.unwrap()
    }

    pub async fn sync(&self) -> Report {
        let report = self.line().await.run(&Ask::plain("manual")).await.unwrap();
        assert!(report.counts.add_up(), "{report:?}");
        report
    }

    /// Everything in the store.
    pub async fn files(&self) -> BTreeMap<String, String> {
        let all = self.line().await.store.list_all("", What::Values).await.unwrap();
        let text = |value: Option<bytes::Bytes>| String::from_utf8(value.unwrap().into()).unwrap();
        all.into_iter().map(|line| (line.key, text(line.value))).collect()
    }

    pub async fn keys(&self) -> Vec<String> {
        self.files().await.into_keys().collect()
    }

    pub async fn put(&self, keys: impl IntoIterator<Item = String>) {
        let items = keys.into_iter().map(|key| Item::put(key, "by somebody else")).collect();
        let outcomes = self.line().await.store.write(items, trueup::store::Mode::Each).await.unwrap();
        assert!(outcomes.into_iter().all(|outcome| outcome.unwrap().landed()));
    }

    pub fn a_day_later(&self) {
        self.clock.advance(Duration::from_secs(24 * 3600));
    }
}

/// `(added, updated, unchanged, skipped, failed, unproven)`
pub fn counts(report: &Report) -> (u64, u64, u64, u64, u64, u64) {
    let c = &report.counts;
    (c.added, c.updated, c.unchanged, c.skipped, c.failed, report.counts.unproven)
}

/// A board feed with these items in it.
pub fn feed(items: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<rss version=\"2.0\"><channel><title>공지</title>\
         <link>https://b.example/</link><description>게시판</description>{items}</channel></rss>"
    )
}

/// An item of that feed.
pub fn item(id: &str, date: &str, html: &str) -> String {
    format!(
        "<item><title><![CDATA[글 {id}]]></title><link><![CDATA[https://b.example/view.do?nttNo={id}]]></link>\
         <pubDate>{date}</pubDate><description><![CDATA[{html}]]></description></item>"
    )
}
