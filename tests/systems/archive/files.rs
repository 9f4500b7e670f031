//! What the files say.

use std::path::PathBuf;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use serde_json::Value;
use trueup::store::objects::Bucket;

use super::desk::{Desk, NOW, SAMPLE, SAMPLE_ESCAPED, counts, feed, item};
use crate::support::{s3, trueup};

/// What a CommonMark parser makes of the second-level heading: its text and its link.
fn heading(file: &str) -> (String, String) {
    let (mut text, mut link, mut inside) = (String::new(), String::new(), false);
    for event in Parser::new(file) {
        match event {
            Event::Start(Tag::Heading { level: pulldown_cmark::HeadingLevel::H2, .. }) => inside = true,
            Event::End(TagEnd::Heading(pulldown_cmark::HeadingLevel::H2)) => return (text, link),
            Event::Start(Tag::Link { dest_url, .. }) if inside => link = dest_url.into_string(),
            Event::Text(part) | Event::Code(part) | Event::InlineHtml(part) if inside => text.push_str(&part),
            _ => {}
        }
    }
    panic!("no heading in\n{file}");
}

#[tokio::test]
async fn s01_a_board_with_three_articles_becomes_three_files() {
    let desk = Desk::serving(SAMPLE);
    let report = desk.sync().await;
    assert_eq!(counts(&report), (3, 0, 0, 0, 0, 0));
    assert_eq!((report.status.name(), report.exit_code()), ("ok", 0));
    let keys = ["rss/25/2025_10_14_77555.md", "rss/25/2025_10_15_77560.md", "rss/25/2025_10_16_77561.md"];
    assert_eq!(desk.keys().await, keys);
    insta::assert_snapshot!("two_attachments", desk.files().await[keys[1]]);
    insta::assert_snapshot!("no_attachment", desk.files().await[keys[2]]);
}

#[tokio::test]
async fn s02_the_second_run_saves_nothing_and_changes_no_byte() {
    let desk = Desk::serving(SAMPLE);
    desk.sync().await;
    let before = desk.files().await;
    desk.a_day_later();
    let report = desk.sync().await;
    assert_eq!(counts(&report), (0, 0, 3, 0, 0, 0));
    assert_eq!((report.writes, report.exit_code()), (0, 0));
    assert_eq!(desk.files().await, before);
}

#[tokio::test]
async fn s02_what_another_run_saved_counts_as_there_although_its_state_is_lost() {
    let desk = Desk::serving(SAMPLE);
    desk.sync().await;
    let before = desk.files().await;
    for file in std::fs::read_dir(desk.folder.path()).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("state.db") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    desk.a_day_later();
    let report = desk.sync().await;
    assert_eq!(counts(&report), (0, 0, 3, 0, 0, 0));
    assert_eq!((report.exit_code(), desk.files().await), (0, before));
}

#[tokio::test]
async fn s03_without_a_department_there_is_no_such_line() {
    let desk = Desk::serving(SAMPLE);
    desk.sync().await;
    let files = desk.files().await;
    assert!(!files["rss/25/2025_10_14_77555.md"].contains("Department"));
    assert!(files["rss/25/2025_10_15_77560.md"].contains("\n**Department:** 재무과\n"));
}

#[tokio::test]
async fn s04_the_entity_escaped_twin_gives_the_same_files() {
    let (plain, escaped) = (Desk::serving(SAMPLE), Desk::serving(SAMPLE_ESCAPED));
    plain.sync().await;
    escaped.sync().await;
    assert_eq!(plain.files().await, escaped.files().await);
}

#[tokio::test]
async fn s05_the_time_of_writing_is_given_in_both_zones() {
    let mut desk = Desk::serving(SAMPLE);
    desk.clock = trueup::clock::TestClock::at("2025-10-16T15:30:00Z", 1);
    desk.sync().await;
    let line = "**Generated:** 2025-10-16T15:30:00Z (2025-10-17T00:30:00+09:00)\n";
    assert!(desk.files().await.values().all(|file| file.contains(line)));
}

#[tokio::test]
async fn s16_title_and_link_come_out_of_a_markdown_parser_as_they_went_in() {
    let cases = [
        ("[공지] a]b", "https://b.example/v.do?f=(1)&nttNo=1", "https://b.example/v.do?f=%281%29&nttNo=1"),
        (
            "*별* _밑줄_ `코드` snake_case_name",
            "https://b.example/a b?nttNo=2",
            "https://b.example/a%20b?nttNo=2",
        ),
        (
            "a <b>c</b> & &amp; AT&T",
            "https://b.example/?x=1&copy;=2&nttNo=3",
            "https://b.example/?x=1&copy;=2&nttNo=3",
        ),
        ("끝에 역슬래시 \\", "https://b.example/\\x?nttNo=4", "https://b.example/%5Cx?nttNo=4"),
        ("!([x](y)) ~~취소~~ \\* \\[", "https://b.example/한글?nttNo=5", "https://b.example/한글?nttNo=5"),
        (
            "https://auto.example/ <https://a.example>",
            "https://b.example/<>?nttNo=6",
            "https://b.example/%3C%3E?nttNo=6",
        ),
    ];
    for (title, link, expected) in cases {
        let xml = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
        let item = format!(
            "<item><title>{}</title><link>{}</link><pubDate>2025-10-16</pubDate><description/></item>",
            xml(title),
            xml(link)
        );
        let desk = Desk::serving(feed(&item));
        assert_eq!(desk.sync().await.counts.added, 1);
        let file = desk.files().await.into_values().next().unwrap();
        assert_eq!(heading(&file), (title.to_owned(), expected.to_owned()), "{file}");
    }
}

#[tokio::test]
async fn s17_a_less_than_sign_eats_nothing() {
    let desk = Desk::serving(feed(&item("1", "2025-10-16", "<p>1 &lt; 2</p>")));
    desk.sync().await;
    let file = desk.files().await.into_values().next().unwrap();
    assert!(file.ends_with("(Asia/Seoul)  \n\n1 < 2\n\n---\n"), "{file}");
}

#[tokio::test]
async fn s18_scripts_vanish_with_their_text() {
    let desk = Desk::serving(feed(&item("1", "2025-10-16", "<script>var a = '<p>no</p>';</script><p>x</p>")));
    desk.sync().await;
    let file = desk.files().await.into_values().next().unwrap();
    assert!(file.ends_with("(Asia/Seoul)  \n\nx\n\n---\n"), "{file}");
}

#[tokio::test]
async fn an_edited_article_replaces_its_file_only_if_asked_to() {
    for (shape, expected) in [("", (0, 0, 1, 0, 0, 0)), ("on_edit = \"update\"", (0, 1, 0, 0, 0, 0))] {
        let mut desk = Desk::serving(feed(&item("1", "2025-10-16", "<p>전</p>")));
        desk.shape = shape;
        desk.sync().await;
        let after = feed(&item("1", "2025-10-16", "<p>후</p>"));
        desk.server.answer(move |_| crate::support::http::Reply::ok(after.clone()));
        desk.a_day_later();
        assert_eq!(counts(&desk.sync().await), expected, "{shape}");
        let file = desk.files().await.into_values().next().unwrap();
        assert_eq!(file.contains("후"), !shape.is_empty(), "{file}");
        desk.a_day_later();
        assert_eq!(counts(&desk.sync().await), (0, 0, 1, 0, 0, 0), "{shape}");
    }
}

#[tokio::test]
async fn a_file_that_went_missing_is_written_again() {
    let desk = Desk::serving(SAMPLE);
    desk.sync().await;
    let before = desk.keys().await;
    desk.line()
        .await
        .store
        .write(vec![trueup::store::Item::delete(&*before[0])], trueup::store::Mode::Each)
        .await
        .unwrap();
    assert_eq!(desk.sync().await.exit_code(), 0);
    assert_eq!(desk.keys().await, before);
}

/// Two pipelines from the desk's feed: into the folder `out`, and into a bucket that is named like that.
fn into_objects(desk: &Desk, bucket: &Bucket) -> PathBuf {
    let (folder, feed) = (desk.folder.path(), desk.server.url("/rss.do?bbsNo={board}"));
    let config = folder.join("objects.toml");
    let line = |name: &str, into: &str| {
        format!(
            "[pipelines.{name}]\nfrom = {{ rss = \"{feed}\", boards = \"25\" }}\nas = \"article\"\ninto = \"{into}\"\n"
        )
    };
    let store = format!(
        "[stores]\nbucket = {{ url = \"s3://{}/archive/\", endpoint = \"{}\", region = \"us-east-1\", \
         access_key_env = \"S3_KEY\", secret_key_env = \"S3_SECRET\" }}\n",
        bucket.bucket,
        bucket.endpoint.as_deref().unwrap()
    );
    std::fs::write(&config, store + &line("folder", "file:out") + &line("bucket", "bucket")).unwrap();
    config
}

/// Object stores are what archives are for: the same files in each, and who fetches one is told that it is Markdown.
#[tokio::test]
async fn a_folder_and_a_bucket_hold_the_same_files_and_a_second_run_writes_none() {
    let (desk, bucket) = (Desk::serving(SAMPLE), s3::new_bucket());
    let config = into_objects(&desk, &bucket);
    let run = |args: &[&str]| {
        let mut command = trueup();
        command.args(args).arg("--config").arg(&config).args(["--now", NOW]);
        let output = command.env("S3_KEY", "test").env("S3_SECRET", "test").output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for line in ["folder", "bucket"] {
        assert!(run(&["sync", line]).contains("3 articles saved, 0 skipped"), "{line}");
        assert!(run(&["sync", line]).contains("0 articles saved, 3 skipped"), "{line}");
    }
    let listed: Value = serde_json::from_str(&run(&["kv", "ls", "bucket", "--json"])).unwrap();
    let keys: Vec<&str> =
        listed["keys"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    trueup::tls::choose();
    for key in keys {
        let url = format!("{}/{}/archive/{key}", bucket.endpoint.as_deref().unwrap(), bucket.bucket);
        let signed = "AWS4-HMAC-SHA256 Credential=test/20250101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00";
        let answer = reqwest::Client::new().get(url).header("Authorization", signed).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "text/markdown; charset=utf-8", "{key}");
        let file = std::fs::read_to_string(desk.folder.path().join("out").join(key)).unwrap();
        assert_eq!(answer.text().await.unwrap(), file, "{key}");
    }
}
