//! Other publishers' feeds: ordinary RSS 2.0 and Atom.

use std::path::Path;

use trueup::clock::TestClock;
use trueup::config::Config;
use trueup::pipeline::open::Memory;
use trueup::pipeline::{Ask, Pipeline};
use trueup::store::{Access, StoreExt, What};

use super::desk::NOW;
use crate::support::http::{Reply, Server};
use crate::support::temp;

const RSS: &str = include_str!("../../fixtures/archive/news-rss.xml");
const ATOM: &str = include_str!("../../fixtures/archive/news-atom.xml");

async fn archive(feed: &'static str) -> Vec<(String, String)> {
    let folder = temp();
    let server = Server::start(move |_| Reply::ok(feed));
    let text = format!(
        "[state]\nstore = \"sqlite:{0}/s.db\"\n[pipelines.n]\nfrom = {{ rss = [\"{1}\"] }}\nas = \"article\"\n\
         into = \"sqlite:{0}/o.db\"\n",
        folder.path().display(),
        server.url("/feed")
    );
    let config = Config::parse(&text, Path::new("trueup.toml"), &|_| None).unwrap();
    let memory = Memory::open(&config, Access::Write, TestClock::at(NOW, 1)).await.unwrap();
    let line = Pipeline::open(&config.pipelines["n"], &memory, Access::Write).await.unwrap();
    let report = line.run(&Ask::plain("manual")).await.unwrap();
    assert_eq!(report.exit_code(), 0, "{report:?}");
    let all = line.store.list_all("", What::Values).await.unwrap();
    let text = |value: Option<bytes::Bytes>| String::from_utf8(value.unwrap().into()).unwrap();
    // The server's port is part of the board's name.
    let port = server.url("").rsplit(':').next().unwrap().to_owned();
    let board = all[0].key.split('/').nth(1).unwrap().to_owned();
    assert!(board.starts_with(&format!("127.0.0.1-{port}-feed-")), "{board}");
    all.into_iter().map(|line| (line.key.replace(&board, "BOARD"), text(line.value))).collect()
}

#[tokio::test]
async fn ordinary_rss_is_archived_by_guid_and_enclosure() {
    let files = archive(RSS).await;
    let keys: Vec<&str> = files.iter().map(|(key, _)| key.as_str()).collect();
    insta::assert_debug_snapshot!("rss_keys", keys);
    insta::assert_snapshot!("rss_file", files[0].1);
}

#[tokio::test]
async fn atom_is_archived_by_id_and_link() {
    let files = archive(ATOM).await;
    let keys: Vec<&str> = files.iter().map(|(key, _)| key.as_str()).collect();
    insta::assert_debug_snapshot!("atom_keys", keys);
    insta::assert_snapshot!(
        "atom_file",
        files.iter().map(|(_, file)| &**file).collect::<Vec<_>>().join("=====\n")
    );
}
