//! Other publishers' feeds: ordinary RSS 2.0 and Atom.

use std::path::Path;

use trueup::clock::TestClock;
use trueup::config::Config;
use trueup::pipeline::open::Memory;
use trueup::pipeline::{Ask, Pipeline};
use trueup::store::{Access, StoreExt, What};

use super::desk::{Desk, NOW, feed, item};
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

/// What a desk over this feed saves, with the port of its server left out.
async fn saved(desk: &mut Desk, path: &str) -> Vec<String> {
    let url = desk.server.url(path);
    desk.whole_from = Some(format!("rss = \"{url}\""));
    let report = desk.sync().await;
    assert!(!format!("{report:?}").contains("canary"), "{report:?}");
    desk.keys().await
}

#[tokio::test]
async fn a_secret_in_an_address_is_part_of_no_key() {
    let mut desk = Desk::serving(feed(&item("1", "2025-10-16", "x")));
    let first = saved(&mut desk, "/feed?token=canary-1&lang=ko").await;
    assert!(first.len() == 1 && first[0].contains("-feed-token-lang-ko-"), "{first:?}");
    assert_eq!(saved(&mut desk, "/feed?token=canary-2&lang=ko").await, first, "nor do keys change with it");
    let other = saved(&mut desk, "/feed?token=canary-2&lang=en").await;
    assert_eq!(other.len(), 2, "everything else tells feeds apart: {other:?}");

    desk.server.answer(|_| Reply::status(404));
    saved(&mut desk, "/feed?token=canary-3").await;
}

/// Archives that are there keep their names.
#[test]
fn an_address_without_a_secret_is_named_as_it_is() {
    for text in
        ["https://h/feed", "https://h/a?b=%20c&d=e;f&g=#top", "https://h/?", "https://h/f?key=sports&x"]
    {
        let url = url::Url::parse(text).unwrap();
        assert_eq!(trueup::http::name_of(&url), text);
    }
}

#[test]
fn feeds_that_differ_in_a_secret_alone_are_refused() {
    let config = |feeds: &str| {
        let text =
            format!("[pipelines.n]\nfrom = {{ rss = [{feeds}] }}\nas = \"article\"\ninto = \"memory:\"\n");
        Config::parse(&text, Path::new("trueup.toml"), &|_| None).map(drop)
    };
    let refused = config("\"https://h/f?token=canary-1\", \"https://h/f?token=canary-2\"").unwrap_err();
    let said = format!("{refused} {refused:?}");
    assert!(said.contains("nothing but a secret") && !said.contains("canary"), "{said}");
    config("\"https://h/f?page=1\", \"https://h/f?page=2\"").unwrap();
}
