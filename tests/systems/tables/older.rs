//! An older trueup gave rows another stamp than their hash. What it remembered under that is still about the same rows.

use serde_json::{Value, json};
use trueup::record::Fingerprint;
use trueup::store::{Item, Listed, Query, What};

use super::kit::{FIRST_CASE, ROWS, Stage};
use super::on_both;

on_both!(rows_are_known_by_the_stamps_they_had, what_was_undone_before_stays_undone);

const BASES: &str = "base/stortinget/";
const DECISIONS: &str = "decision/stortinget/";

/// As the shape stamped every entry before: `print` is the row's hash, and so the version of its entry.
fn older(id: &str, print: Fingerprint) -> Fingerprint {
    let version = print.to_string();
    Fingerprint::of_parts(&[b"rows", &1u32.to_be_bytes(), id.as_bytes(), version.as_bytes(), b""])
}

/// What state remembers below a prefix.
async fn remembered(stage: &Stage, below: &str) -> Vec<Listed> {
    let query = Query { limit: 1_000, what: What::Values, ..Query::keys(below) };
    let page = stage.line().await.state.store().list(query).await.unwrap();
    assert!(!page.more && !page.items.is_empty(), "{below}");
    page.items
}

async fn put(stage: &Stage, items: Vec<Item>) {
    stage.line().await.state.commit(items).await.unwrap();
}

/// Every record of the baseline gets the stamp it would have had.
async fn age(stage: &Stage) {
    let aged = remembered(stage, BASES).await.into_iter().map(|record| {
        let stamp = older(&record.key[BASES.len()..], record.fingerprint.unwrap());
        Item::put(record.key, record.value.unwrap()).with_fingerprint(stamp)
    });
    put(stage, aged.collect()).await;
}

async fn stamps(stage: &Stage) -> Vec<(String, Option<Fingerprint>)> {
    remembered(stage, BASES).await.into_iter().map(|record| (record.key, record.fingerprint)).collect()
}

async fn rows_are_known_by_the_stamps_they_had(stage: Stage) {
    stage.sync();
    age(&stage).await;
    let before = stamps(&stage).await;
    let full = || stage.trueup(&["sync", "--full"]);
    full().is(0, &[("unchanged", ROWS), ("updated", 0), ("writes", 0)]);
    assert_eq!(stamps(&stage).await, before, "what did not change is not told anew either");
    stage.api().cases[0]["tittel"] = json!("Ny tittel");
    full().is(0, &[("unchanged", ROWS - 1), ("updated", 1)]);
    full().is(0, &[("unchanged", ROWS), ("writes", 0)]);
    assert_eq!(stage.trueup(&["audit"]).code, 0);
}

async fn what_was_undone_before_stays_undone(stage: Stage) {
    stage.sync();
    let title = format!("select tittel from cases where id = {FIRST_CASE}");
    let before = stage.query(&title);
    stage.api().cases[0]["tittel"] = json!("Ny tittel");
    let run = stage.sync().run()["id"].as_str().unwrap().to_owned();
    assert_eq!(stage.trueup(&["undo", &run]).code, 0);
    for decision in remembered(&stage, DECISIONS).await {
        let mut told: Value = serde_json::from_slice(&decision.value.unwrap()).unwrap();
        let stamp = serde_json::from_value(told["stamp"].take()).unwrap();
        told["stamp"] = json!(older(&decision.key[DECISIONS.len()..], stamp));
        put(&stage, vec![Item::put(decision.key, told.to_string())]).await;
    }
    stage.sync().is(4, &[("held", 1), ("updated", 0)]);
    assert_eq!(stage.query(&title), before);
    stage.api().cases[0]["tittel"] = json!("Enda en tittel");
    stage.sync().is(0, &[("updated", 1)]);
    assert_eq!(stage.query(&title), "Enda en tittel");
}
