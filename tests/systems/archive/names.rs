//! What articles are called: ids and keys that several claim.

use serde_json::Value;
use trueup::pipeline::Ask;

use super::desk::{Desk, NOW, counts, feed, item};
use crate::support::http::Reply;
use crate::support::trueup;

/// An item of an ordinary feed, without a guid.
fn plain(title: &str, day: u8) -> String {
    format!(
        "<item><title>{title}</title><link>https://n.example/</link><pubDate>2025-10-{day}</pubDate>\
         <description>about {title}</description></item>"
    )
}

#[tokio::test]
async fn of_items_that_share_an_id_the_first_counts_and_the_others_are_told() {
    let mut desk = Desk::serving(feed(&[plain("one", 13), plain("two", 12), plain("three", 11)].concat()));
    desk.whole_from = Some(format!("rss = \"{}\"", desk.server.url("/feed")));
    for added in [1, 0] {
        let report = desk.sync().await;
        assert_eq!(counts(&report), (added, 0, 1 - added, 0, 2, 0), "{report:?}");
        assert_eq!((report.status.name(), report.exit_code(), report.warnings.len()), ("partial", 3, 0));
        let said = |title: &str| report.errors.iter().any(|error| error.message.contains(title));
        assert!(said("«two»") && said("«three»") && said("«one»"), "{:?}", report.errors);
    }
    let files = desk.files().await;
    assert_eq!(files.len(), 1);
    assert!(files.values().all(|file| file.contains("about one")), "{files:?}");

    let mut desk =
        Desk::serving(feed(&[item("1", "2025-10-16", "first"), item("1", "2025-10-16", "second")].concat()));
    desk.shape = "on_edit = \"update\"";
    assert_eq!(counts(&desk.sync().await), (1, 0, 0, 0, 1, 0));
    assert!(desk.files().await["rss/25/2025_10_16_1.md"].contains("first"));
}

#[tokio::test]
async fn the_very_same_item_twice_is_one() {
    let twice = item("1", "2025-10-16", "x").repeat(2);
    let desk = Desk::serving(feed(&(twice + &item("2", "2025-10-16", "y"))));
    let report = desk.sync().await;
    assert_eq!((counts(&report), report.exit_code()), ((2, 0, 0, 0, 0, 0), 0), "{report:?}");
    assert!(report.warnings.iter().any(|text| text.contains("has 1 twice")), "{:?}", report.warnings);
}

#[tokio::test]
async fn a_bad_item_does_not_hide_a_good_one_of_the_same_id() {
    let items = [item("7", "soon, we hope", "bad"), item("7", "2025-10-16", "good")];
    for items in [items.concat(), [items[1].as_str(), &items[0]].concat()] {
        let desk = Desk::serving(feed(&items));
        let report = desk.sync().await;
        assert_eq!((counts(&report), report.exit_code()), ((1, 0, 0, 0, 1, 0), 3), "{report:?}");
        assert!(report.errors[0].message.contains("is not a date"), "{:?}", report.errors);
        assert!(desk.files().await["rss/25/2025_10_16_7.md"].contains("good"));
        desk.server.answer(|_| Reply::ok(feed(&item("7", "2025-10-16", "good"))));
        assert_eq!(counts(&desk.sync().await), (0, 0, 1, 0, 0, 0));
    }
}

/// The program itself over the desk's config: how it ends, and what it says.
fn run(desk: &Desk, args: &[&str]) -> (Option<i32>, Value) {
    let config = desk.folder.path().join("trueup.toml");
    std::fs::write(&config, desk.config()).unwrap();
    let mut command = trueup();
    command.args(args).args(["--json", "--now", NOW, "--config"]).arg(&config);
    let output = command.output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[tokio::test]
async fn one_article_is_asked_for_by_its_key_or_its_identity() {
    let items = ["1", "2", "3"].map(|id| item(id, "2025-10-16", "first"));
    let mut desk = Desk::serving(feed(&items.concat()));
    desk.shape = "on_edit = \"update\"";
    let planned = run(&desk, &["plan"]).1;
    let key = planned["plans"][0]["add"][1]["key"].as_str().unwrap().to_owned();
    assert_eq!(key, "rss/25/2025_10_16_2.md", "as a plan calls it");
    for (only, added, there) in [(key.as_str(), 1, 1), ("25/1", 1, 2), (&key, 0, 2), ("25/2", 0, 2)] {
        let (code, said) = run(&desk, &["sync", "--only", only]);
        assert_eq!((code, &said["runs"][0]["added"]), (Some(0), &added.into()), "{only}: {said}");
        assert_eq!(said["runs"][0]["scanned"], 1, "{only}: {said}");
        assert_eq!(desk.keys().await.len(), there, "{only}");
    }
    let edited = feed(&items.concat().replace("first", "second"));
    desk.server.answer(move |_| Reply::ok(edited.clone()));
    let (code, said) = run(&desk, &["sync", "--only", &key]);
    assert_eq!((code, &said["runs"][0]["updated"]), (Some(0), &1.into()), "{said}");
    assert!(desk.files().await[&key].contains("second"));
}

#[tokio::test]
async fn a_key_that_no_article_has_is_no_success() {
    let desk = Desk::serving(feed(&[item("1", "2025-10-16", "x"), item("2", "2025-10-16", "x")].concat()));
    run(&desk, &["sync", "--only", "25/1"]);
    // One nobody has, and other days of one that is saved and of one that is not.
    for key in ["rss/25/2025_10_16_77.md", "rss/25/2020_10_16_1.md", "rss/25/2020_10_16_2.md"] {
        for command in ["sync", "plan"] {
            let (code, said) = run(&desk, &[command, "--only", key]);
            assert_eq!((code, &said["error"]["kind"]), (Some(1), &"not_found".into()), "{key}: {said}");
        }
    }
    assert_eq!(desk.keys().await.len(), 1);
}

/// An item that has nothing but a guid for an id.
fn named(guid: &str, text: &str) -> String {
    format!(
        "<item><title>{text}</title><link>https://n.example/{text}</link><guid>{guid}</guid>\
         <pubDate>2025-10-16</pubDate><description>{text}</description></item>"
    )
}

/// Two boards whose ids run into each other, with these items.
fn boards(desk: &Desk, a: &str, a_b: &str) {
    let (a, a_b) = (feed(a), feed(a_b));
    desk.server
        .answer(move |request| Reply::ok(if request.path.ends_with("=a") { a.clone() } else { a_b.clone() }));
}

#[tokio::test]
async fn two_articles_that_would_share_a_file_are_told() {
    let (one, other) = (named("b-c", "one"), named("c", "other"));
    let (first, second) = ("a/b-c", "a-b/c");
    // Both at once, and each before the other.
    for (before, loser) in
        [(None, None), (Some((&*one, "")), Some(second)), (Some(("", &*other)), Some(first))]
    {
        for on_edit in ["keep", "update"] {
            let mut desk = Desk::new("a,a-b", |_| Reply::status(500));
            desk.shape = match on_edit {
                "keep" => "key = \"{boardId}-{articleId}.md\"",
                _ => "key = \"{boardId}-{articleId}.md\", on_edit = \"update\"",
            };
            if let Some((a, a_b)) = before {
                boards(&desk, a, a_b);
                assert_eq!(counts(&desk.sync().await), (1, 0, 0, 0, 0, 0));
            }
            boards(&desk, &(named("z", "unharmed") + &one), &other);
            let saved = desk.files().await.remove("a-b-c.md");
            for _ in 0..2 {
                let plan = desk.line().await.preview(&Ask::plain("plan")).await.unwrap();
                assert_eq!(plan.failed.len(), 1, "{plan:?}");
                let report = desk.sync().await;
                assert_eq!((report.counts.failed, report.exit_code()), (1, 3), "{report:?}");
                let said = &report.errors[0];
                assert!(said.message.contains(first) && said.message.contains(second), "{said:?}");
                assert!(said.remedy.contains('/'), "{said:?}");
                assert!(loser.is_none_or(|loser| said.key.as_deref() == Some(loser)), "{said:?}");
            }
            assert_eq!(desk.keys().await, ["a-b-c.md", "a-z.md"]);
            let now = desk.files().await.remove("a-b-c.md");
            assert!(saved.is_none() || saved == now, "the file is its first owner's");

            desk.shape = "key = \"{boardId}/{articleId}.md\"";
            assert_eq!(counts(&desk.sync().await), (1, 0, 2, 0, 0, 0), "told apart, both are saved");
        }
    }
}
