//! Repositories, APIs and feeds as sources, each behind a real server or a real repository.

use std::path::Path;

use serde_json::json;
use trueup::clock::SystemClock;
use trueup::config::Config;
use trueup::pipeline::Pipeline;
use trueup::pipeline::open::Memory;
use trueup::store::Access;

use super::{Holding, holding, list, seen, source_conforms};
use crate::support::github::Hub;
use crate::support::http::{Reply, Server};
use crate::support::{git, temp};

/// More documents than are asked for at a time while nothing is known of their size.
fn documents() -> Holding {
    let mut files = holding(&[("a/ä b.md", "# one\n"), ("a/two.md", "two\n"), ("three.md", "\n")]);
    files.extend((0..40).map(|number| (format!("many/{number:02}.md"), vec![b'm'; 1_000 + number])));
    files
}

/// The source of a pipeline with this sentence.
async fn conforms(folder: &Path, sentence: &str, files: &Holding) {
    let text = format!("[pipelines.p]\n{sentence}\n");
    let config = Config::parse(&text, &folder.join("trueup.toml"), &|_| None).unwrap();
    let memory = Memory::open(&config, Access::Write, SystemClock::new()).await.unwrap();
    let line = Pipeline::open(&config.pipelines["p"], &memory, Access::Write).await.unwrap();
    source_conforms(&*line.source, files).await;
}

fn repository(at: &Path, files: &Holding) {
    let git = |arguments: &[&str]| drop(git(at, arguments));
    std::fs::create_dir_all(at).unwrap();
    git(&["init", "--quiet", "--initial-branch=main"]);
    for (path, body) in files {
        std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
        std::fs::write(at.join(path), body).unwrap();
    }
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_repository_conforms_at_hand_and_fetched() {
    let folder = temp();
    let at = folder.path().join("repository");
    repository(&at, &documents());
    for address in [at.display().to_string(), format!("file://{}", at.display())] {
        let from = format!("from = {{ git = \"{address}\", branch = \"main\" }}\ninto = \"memory:\"");
        conforms(folder.path(), &from, &documents()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_github_repository_conforms() {
    let folder = temp();
    let hub = Hub::start();
    for (path, body) in documents() {
        hub.put(&path, body);
    }
    let api = hub.server.url("");
    let from = format!(
        "from = {{ github = \"knue/policies\", branch = \"main\", api = \"{api}\" }}\ninto = \"memory:\""
    );
    conforms(folder.path(), &from, &documents()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rest_api_conforms() {
    let folder = temp();
    let server = Server::start(|request| {
        let body = match request.path.as_str() {
            "/cases" => json!([{"id": 1, "title": "one"}, {"id": 2, "title": "two"}]),
            "/votes/1" => json!([{"id": 7, "for": 1}]),
            _ => json!([]),
        };
        Reply::ok(body.to_string()).header("content-type", "application/json")
    });
    let recipe = format!(
        "base = \"{}\"\n[[resources]]\nname = \"cases\"\npath = \"/cases\"\nkey = \"id\"\n\
         columns = {{ id = \"integer\", title = \"text\" }}\n[[resources]]\nname = \"votes\"\n\
         path = \"/votes/{{cases.id}}\"\nkey = \"id\"\ncolumns = {{ id = \"integer\", for = \"integer\" }}\n",
        server.url("")
    );
    std::fs::write(folder.path().join("recipe.toml"), recipe).unwrap();
    let rows = holding(&[
        ("cases/1", r#"{"id":1,"title":"one"}"#),
        ("cases/2", r#"{"id":2,"title":"two"}"#),
        ("votes/7", r#"{"for":1,"id":7}"#),
    ]);
    let from = "from = { rest = \"recipe.toml\" }\nas = \"rows\"\ninto = { tables = \"sqlite:rows.db\" }";
    conforms(folder.path(), from, &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_conforms_and_its_bodies_are_what_it_lists() {
    let folder = temp();
    let item = |number: u32| {
        format!(
            "<item><title>T{number}</title><link>http://h/view.do?nttNo={number}</link>\
             <pubDate>2025-10-16</pubDate><description>D{number}</description></item>"
        )
    };
    let feed =
        format!("<rss version=\"2.0\"><channel><title>b</title>{}{}</channel></rss>", item(1), item(2));
    let server =
        Server::start(move |_| Reply::ok(feed.clone()).header("content-type", "application/rss+xml"));
    let text = format!(
        "[pipelines.p]\nfrom = {{ rss = \"{}?bbsNo={{board}}\", boards = \"25\" }}\nas = \"article\"\ninto = \"memory:\"\n",
        server.url("/rss")
    );
    let config = Config::parse(&text, &folder.path().join("trueup.toml"), &|_| None).unwrap();
    let memory = Memory::open(&config, Access::Write, SystemClock::new()).await.unwrap();
    let line = Pipeline::open(&config.pipelines["p"], &memory, Access::Write).await.unwrap();
    // What an article is as bytes is the source's own business; that a listing brings it is not.
    let listed = seen(&list(&*line.source).await.unwrap());
    let bodies = listed.iter().map(|entry| (entry.id.clone(), entry.inline.as_ref().unwrap().to_vec()));
    let bodies: Holding = bodies.collect();
    assert_eq!(bodies.len(), 2);
    source_conforms(&*line.source, &bodies).await;
}
