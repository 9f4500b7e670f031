//! A replica between a real etcd and a real PostgreSQL: a conflict that waits, decided by clicking.

use super::driver::Browser;
use super::looks::{EVERY_SCREEN, fit};
use crate::server::replicas::{disagreeing, serving};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn a_held_conflict_is_decided_by_clicking() {
    let stage = disagreeing("clicked").await;
    let (_home, serving) = serving(&stage).await;
    let browser = Browser::at(&serving.address).await;
    browser.open("/").await;
    browser.sees("[data-replica=clicked]", "1 held").await;
    browser.click("[data-replica=clicked] td.name a").await;
    browser.sees("[data-replica-page]", "1 held").await;
    browser.sees("#conflicts", "from sql").await;
    browser.sees("#lag-top", "last").await;
    fit(&browser, &[("replica", "/replicas/clicked")], &EVERY_SCREEN).await;
    browser.sees("[data-replica-page]", "1 held").await;
    let take = "#conflicts button[data-body*=postgres]";
    browser.click(take).await;
    browser.sees("#ask", "Take PostgreSQL's value for 1 key?").await;
    browser.click("#ask [value=no]").await;
    assert_eq!(stage.get_text("a").await.as_deref(), Some("from etcd"));
    browser.click(take).await;
    browser.click("#ask [value=yes]").await;
    browser.sees("#told", "Decided.").await;
    assert!(eventually(async || stage.get_text("a").await.as_deref() == Some("from sql")).await);
    browser.sees("#conflicts", "No conflicts.").await;
    browser.sees("[data-replica-page]", "true").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
