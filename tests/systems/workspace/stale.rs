//! When a copy no longer holds.

use std::time::Duration;

use jiff::Timestamp;
use trueup::clock::{Clock, rfc3339_ms};
use trueup::error::Kind;
use trueup::workspace::{Language, Status};

use super::desk::{Desk, ENGLISH, ITALIAN, keys};
use super::model::answer;
use super::wiki::Paper;
use crate::support::http::Reply;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

#[tokio::test]
async fn s06_a_millisecond_decides_and_notation_does_not() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
    let workspace = desk.workspace().await;
    let made = workspace.policy("p", "att1", None).await.unwrap().created;
    assert_eq!(made, desk.clock.now());
    let made = made.as_millisecond();
    let elsewhere = at(made).to_zoned(jiff::tz::TimeZone::get("Europe/Helsinki").unwrap());
    let elsewhere = elsewhere.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    assert!(elsewhere.ends_with("+03:00"), "{elsewhere}");
    desk.clock.advance(Duration::from_secs(60));
    for (created, version, downloads) in [
        (rfc3339_ms(at(made - 1)), rfc3339_ms(at(made - 1)), 1),
        (elsewhere.clone(), elsewhere, 1),
        (rfc3339_ms(at(made - 1)), rfc3339_ms(at(made + 1)), 2),
    ] {
        desk.wiki.change("p", |papers| (papers[0].created, papers[0].version) = (created, version.clone()));
        workspace.policy("p", "att1", None).await.unwrap();
        assert_eq!(desk.wiki.downloads(), downloads, "{version}");
    }
}

#[tokio::test]
async fn s07_a_new_version_drops_the_original_and_every_translation() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ITALIAN), Paper::new("att2", ENGLISH)]);
    let workspace = desk.workspace().await;
    for language in [Language::Fr, Language::De] {
        workspace.policy("p", "att1", Some(language)).await.unwrap();
    }
    workspace.policy("p", "att2", None).await.unwrap();
    desk.clock.advance(Duration::from_secs(1));
    let newer = rfc3339_ms(desk.clock.now());
    desk.wiki.change("p", |papers| papers[0].version = newer);
    let catalogue = workspace.policies("p").await.unwrap();
    assert!(catalogue.analysis_stale);
    assert_eq!(catalogue.policies.iter().map(|policy| policy.stale).collect::<Vec<_>>(), [true, false]);
    assert_eq!(keys(&workspace.shelf.store, "p:").await, ["p:policy:att2"]);
    workspace.policy("p", "att1", Some(Language::Fr)).await.unwrap();
    let catalogue = workspace.policies("p").await.unwrap();
    assert!(catalogue.analysis_stale, "until it is analysed");
    assert!(!catalogue.policies[0].stale, "it was read again");
    workspace.analyze("p").await.unwrap();
    assert!(!workspace.policies("p").await.unwrap().analysis_stale);
}

#[tokio::test]
async fn s08_what_is_gone_is_dropped_and_what_could_not_be_listed_is_not() {
    let desk = Desk::new();
    desk.wiki.page("p", (0..150).map(|at| Paper::new(&format!("att{at:03}"), ENGLISH)).collect());
    let workspace = desk.workspace().await;
    for source in ["att000", "att149"] {
        workspace.policy("p", source, Some(Language::Fr)).await.unwrap();
    }
    let before = keys(&workspace.shelf.store, "p:").await;
    assert_eq!(before.len(), 4);
    // The last attachment goes, but the second page of the listing does not come.
    desk.wiki.change("p", |papers| drop(papers.pop()));
    let failing = [
        Reply::status(500),
        Reply::ok("{\"results\": ["),
        Reply::ok("<html>Log in</html>"),
        Reply::status(401),
    ];
    for reply in failing {
        desk.wiki.break_with(move |request| request.path.contains("cursor=").then(|| reply.clone()));
        workspace.policies("p").await.unwrap_err();
        workspace.policy("p", "att149", None).await.unwrap_err();
        assert_eq!(keys(&workspace.shelf.store, "p:").await, before);
    }
    desk.wiki.mend();
    let catalogue = workspace.policies("p").await.unwrap();
    assert_eq!(keys(&workspace.shelf.store, "p:").await, ["p:policy:att000", "p:policy:att000:fr"]);
    assert!(catalogue.analysis_stale);
    assert_eq!(workspace.policy("p", "att149", None).await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_file_moved_over_another_is_noticed_though_it_is_older() {
    let desk = Desk::new();
    desk.file("p/policy.md", ENGLISH);
    let older = desk.folder.path().join("older.md");
    std::fs::write(&older, ITALIAN).unwrap();
    let times =
        std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000));
    std::fs::File::options().write(true).open(&older).unwrap().set_times(times).unwrap();
    let workspace = desk.over_folder().await;
    assert_eq!(workspace.policy("p", "policy.md", None).await.unwrap().language, Language::En);
    std::fs::rename(&older, desk.pages().join("p/policy.md")).unwrap();
    assert_eq!(workspace.policy("p", "policy.md", None).await.unwrap().language, Language::It);
}

#[tokio::test]
async fn a_changed_policy_is_analysed_again_by_itself_and_once() {
    let mut desk = Desk::new();
    desk.reanalyze = "auto";
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH), Paper::new("att2", ENGLISH)]);
    let workspace = desk.workspace().await;
    for source in ["att1", "att2"] {
        workspace.policy("p", source, None).await.unwrap();
    }
    desk.clock.advance(Duration::from_secs(1));
    let newer = rfc3339_ms(desk.clock.now());
    desk.wiki.change("p", |papers| papers.iter_mut().for_each(|paper| paper.version = newer.clone()));
    assert!(workspace.policies("p").await.unwrap().analysis_stale);
    assert_eq!(workspace.jobs().await.unwrap().len(), 1, "two changes, one analysis");
    let done = workspace.work().await.unwrap();
    assert!(done[0].status.is_final(), "{done:?}");
    assert_eq!(desk.model.analyses(), 2, "one question per policy");
    assert!(!workspace.policies("p").await.unwrap().analysis_stale);
    assert_eq!(workspace.work().await.unwrap().len(), 0);
}

#[tokio::test]
async fn an_analysis_that_met_an_outage_is_tried_again_later_and_later() {
    let mut desk = Desk::new();
    desk.reanalyze = "auto";
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH)]);
    let workspace = desk.workspace().await;
    workspace.policy("p", "att1", None).await.unwrap();
    desk.clock.advance(Duration::from_secs(1));
    let newer = rfc3339_ms(desk.clock.now());
    desk.wiki.change("p", |papers| papers[0].version = newer);
    let open = async || {
        assert!(workspace.policies("p").await.unwrap().analysis_stale);
        workspace.jobs().await.unwrap().iter().filter(|job| !job.status.is_final()).count()
    };
    desk.model.server.answer(|_| Reply::status(503));
    assert_eq!(open().await, 1);
    assert!(matches!(workspace.work().await.unwrap()[0].status, Status::Error { code: 503, .. }));
    assert_eq!(open().await, 0, "not at once");
    desk.clock.advance(Duration::from_secs(90));
    assert_eq!(open().await, 1, "whoever looks at the page queues it again");
    assert_eq!(open().await, 1, "once");
    workspace.work().await.unwrap();
    desk.clock.advance(Duration::from_secs(75));
    assert_eq!(
        (workspace.work().await.unwrap().len(), open().await),
        (0, 0),
        "the second time it takes longer"
    );
    desk.model.server.answer(|_| answer(r#"{"issues":[]}"#));
    desk.clock.advance(Duration::from_secs(90));
    assert_eq!(workspace.work().await.unwrap().len(), 1, "and so does a worker");
    assert!(!workspace.policies("p").await.unwrap().analysis_stale);
}

/// What could not be read was not compared with anything.
#[tokio::test]
async fn a_changed_policy_that_cannot_be_read_keeps_the_page_stale() {
    let desk = Desk::new();
    desk.wiki.page("p", vec![Paper::new("att1", ENGLISH), Paper::new("att2", ENGLISH)]);
    let workspace = desk.workspace().await;
    workspace.analyze("p").await.unwrap();
    desk.clock.advance(Duration::from_secs(1));
    let newer = rfc3339_ms(desk.clock.now());
    desk.wiki.change("p", |papers| (papers[0].version, papers[0].body) = (newer, Vec::new()));
    assert!(workspace.policies("p").await.unwrap().analysis_stale);
    let analysis = workspace.analyze("p").await.unwrap();
    assert_eq!(analysis.errors.len(), 1, "{:?}", analysis.errors);
    assert!(workspace.policies("p").await.unwrap().analysis_stale);
    desk.clock.advance(Duration::from_secs(1));
    let newer = rfc3339_ms(desk.clock.now());
    desk.wiki.change("p", |papers| {
        (papers[0].version, papers[0].body) = (newer, ENGLISH.as_bytes().to_vec());
    });
    workspace.analyze("p").await.unwrap();
    assert!(!workspace.policies("p").await.unwrap().analysis_stale);
}
