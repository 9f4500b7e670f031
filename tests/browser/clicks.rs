//! What a person does, click by click.

use super::driver::Browser;
use super::looks::{EVERY_SCREEN, fit};
use super::scene;
use crate::cli::home::Home;
use crate::server::rig::Serving;
use crate::support;

#[tokio::test(flavor = "multi_thread")]
async fn a_person_decides_undoes_retries_and_pauses() {
    let home = scene::set();
    let serving = scene::serve(&home).await;
    let browser = Browser::at(&serving.address).await;
    pause_and_resume(&browser).await;
    retry(&browser, &home).await;
    approve(&browser, &home).await;
    undo(&browser, &home).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

async fn pause_and_resume(browser: &Browser) {
    browser.open("/?show=paused").await;
    browser.click("a[href='/pipelines/minutes']").await;
    browser.sees(".title", "paused").await;
    browser.click("button[data-post$='/resume']").await;
    browser.sees("#told", "Resumed").await;
    browser.sees(".title", "true").await;
    browser.click("button[data-post$='/pause']").await;
    browser.sees(".title", "paused").await;
}

async fn retry(browser: &Browser, home: &Home) {
    browser.open("/queue").await;
    browser.sees("#dead", "regulation-35.md").await;
    home.remove("broken");
    browser.click("#dead button[data-post='/api/dead/retry']").await;
    browser.sees("#dead", "Nothing was given up.").await;
    browser.sees("#waiting", "No follow-up work is waiting.").await;
}

/// Cancel changes nothing; the question names the count; yes does it.
async fn approve(browser: &Browser, home: &Home) {
    browser.open("/pipelines/policies").await;
    browser.sees(".title", "30 held").await;
    browser.click("button[data-into='#plan']").await;
    browser.sees("#plan", "Nobody may change this.").await;
    browser.sees("#plan", "1 key to add").await;
    home.remove("policies/regulation-40.md");
    home.write("policies/regulation-36.md", &scene::policy(36, "Everybody may read this.").1);
    let approve = "#held button[data-post$='/approve']";
    browser.click(approve).await;
    browser.sees("#ask", "Delete 30 keys?").await;
    browser.picture("dialog-light").await;
    browser.click("#ask [value=no]").await;
    assert_eq!(home.keys("registry").len(), 40);
    browser.click(approve).await;
    browser.click("#ask [value=yes]").await;
    browser.sees("#told", "30 deleted").await;
    assert_eq!(home.keys("registry").len(), 10);
    let nothing_held = async || browser.text("#held").await.is_empty();
    assert!(support::eventually(nothing_held).await, "{}", browser.text("body").await);
}

async fn undo(browser: &Browser, home: &Home) {
    browser.click("#runs tbody tr:first-child button").await;
    browser.sees("#ask", "Undo 30 changes?").await;
    browser.sees("#ask", "30 keys written back").await;
    browser.click("#ask [value=yes]").await;
    browser.sees("#told", "30 added").await;
    assert_eq!(home.keys("registry").len(), 40);
    browser.sees("#runs tbody tr:nth-child(2)", "undone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_looks_at_runs_rejects_what_is_held_and_drops_what_was_given_up() {
    let home = scene::set();
    let serving = scene::serve(&home).await;
    let browser = Browser::at(&serving.address).await;
    look_at_runs(&browser).await;
    drop_a_letter(&browser).await;
    reject(&browser, &home).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// A run has a page: its counts, or what went wrong and what to do about it.
async fn look_at_runs(browser: &Browser) {
    browser.open("/pipelines/notices").await;
    browser.click("#runs tbody tr:first-child a[href^='/runs/']").await;
    browser.sees("h1", "Run").await;
    browser.sees(".title", "failed").await;
    browser.sees("#errors", "1 error").await;
    browser.sees(".note.bad", "What to do:").await;
    fit(browser, &[("run-failed", &path(browser).await)], &EVERY_SCREEN).await;
    browser.click(".crumbs a[href='/pipelines/notices']").await;
    browser.click("#runs tbody tr:last-child a[href^='/runs/']").await;
    browser.sees(".facts", "Scanned").await;
    browser.sees("main", "Undo").await;
}

async fn path(browser: &Browser) -> String {
    browser.run("return location.pathname").await.as_str().unwrap().to_owned()
}

async fn drop_a_letter(browser: &Browser) {
    browser.open("/queue").await;
    let drop = "#dead button[data-post='/api/dead/drop']";
    browser.click(drop).await;
    browser.sees("#ask", "Drop 1 dead letter?").await;
    browser.click("#ask [value=no]").await;
    browser.sees("#dead", "regulation-35.md").await;
    browser.click(drop).await;
    browser.click("#ask [value=yes]").await;
    browser.sees("#told", "Dropped.").await;
    browser.sees("#dead", "Nothing was given up.").await;
}

async fn reject(browser: &Browser, home: &Home) {
    browser.open("/pipelines/policies").await;
    browser.click("#held button[data-post$='/reject']").await;
    browser.sees("#ask", "Reject: do not delete 30 keys?").await;
    browser.click("#ask [value=yes]").await;
    browser.sees("#told", "reject").await;
    let nothing_held = async || browser.text("#held").await.is_empty();
    assert!(support::eventually(nothing_held).await, "{}", browser.text("body").await);
    assert_eq!(home.keys("registry").len(), 40, "what was to be deleted is there");
    assert!(home.run(&["held", "--json"]).json()["held"].as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_opens_the_pages_and_a_wrong_one_does_not() {
    let home = Home::with_notes(2);
    let serving = Serving::with(&home, &[], &[("TRUEUP_TOKEN", "canary-token-of-pages")]).await;
    let browser = Browser::at(&serving.address).await;
    browser.open("/pipelines/notes").await;
    browser.sees("main", "TRUEUP_TOKEN").await;
    browser.picture("login-light").await;
    browser.write("#token", "guess").await;
    browser.click(".login button").await;
    browser.sees("#wrong", "not the token").await;
    browser.write("#token", "canary-token-of-pages").await;
    browser.click(".login button").await;
    browser.sees("h1", "notes").await;
    assert_eq!(browser.run("return document.cookie").await, "", "scripts cannot read the session");
    browser.click("button[data-post$='/start']").await;
    browser.sees("#runs", "+2").await;
    let page = browser.run("return document.documentElement.outerHTML").await.to_string();
    assert!(!page.contains("canary-token"), "{page}");
    browser.click(".foot button").await;
    browser.sees("main", "TRUEUP_TOKEN").await;
}
