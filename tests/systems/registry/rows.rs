//! Rows that were there before: written by others, of the first layout, or by us before the state was lost.

use std::time::Duration;

use serde_json::json;
use trueup::pipeline::Ask;
use trueup::store::Access;

use super::desk::{Desk, did, policy};
use crate::support::cloudflare::Kv;
use crate::support::github::sha;

fn theirs(number: usize) -> serde_json::Value {
    json!({"policyName": format!("p{number:02}"), "title": format!("Policy {number}"), "status": "active",
        "lastUpdated": "2024-01-01T00:00:00Z", "sha": sha(policy(number).as_bytes()),
        "path": format!("policies/p{number:02}.md")})
}

#[tokio::test]
async fn a_registry_filled_by_others_is_adopted_without_a_write_or_a_blob() {
    let desk = Desk::with_policies(20);
    for number in 0..20 {
        desk.intrude(&format!("policy:p{number:02}"), &theirs(number)).await;
    }
    desk.intrude(
        "policy:gone",
        &json!({"policyName": "gone", "title": "Gone", "status": "active",
        "lastUpdated": "2024-01-01T00:00:00Z", "sha": "0".repeat(40), "path": "gone.md"}),
    )
    .await;
    let before = desk.held("policy:p").await;
    let report = desk.ran([0, 0, 1, 20]).await;
    assert_eq!((report.writes, desk.hub.asked()), (1, [1, 1, 0]));
    assert_eq!(desk.held("policy:").await, before, "rows that say the same are not written again");
}

#[tokio::test]
async fn a_lost_state_is_rebuilt_from_the_registry() {
    let desk = Desk::with_policies(40);
    desk.ran([40, 0, 0, 0]).await;
    let before = desk.held("policy:").await;
    for end in ["state.db", "state.db-wal", "state.db-shm"] {
        drop(std::fs::remove_file(desk.folder.path().join(end)));
    }
    desk.hub.asked();
    desk.hub.remove("policies/p00.md");
    let preview = desk.line(Access::Read).await.preview(&Ask::plain("plan")).await;
    drop(preview); // a state that is not there yet cannot be looked at; the run makes it
    let report = desk.ran([0, 0, 1, 39]).await;
    assert_eq!((report.writes, desk.hub.asked()[2]), (1, 0));
    assert!(desk.held("policy:").await.iter().all(|(key, value)| before[key] == *value));
}

#[tokio::test]
async fn a_mass_deletion_on_first_contact_is_held() {
    let desk = Desk::with_policies(2);
    for number in 0..20 {
        desk.intrude(&format!("policy:p{number:02}"), &theirs(number)).await;
    }
    let report = desk.run().await;
    assert_eq!((report.counts.held_by.delete, report.exit_code()), (18, 4), "{report:#?}");
    assert_eq!(desk.names().await.len(), 20);
}

#[tokio::test]
async fn an_archived_row_becomes_active_when_its_document_changes() {
    let desk = Desk::with_policies(3);
    desk.ran([3, 0, 0, 0]).await;
    let mut row = desk.policy("p01").await;
    row["status"] = "archived".into();
    desk.intrude("policy:p01", &row).await;
    desk.ran([0, 0, 0, 3]).await;
    assert_eq!(desk.policy("p01").await["status"], "archived", "the document did not change");
    desk.hub.put("policies/p01.md", "# Revised\n");
    let report = desk.ran([0, 1, 0, 2]).await;
    assert_eq!(desk.policy("p01").await["status"], "active");
    assert!(report.warnings.iter().any(|text| text.contains("active again")), "{:?}", report.warnings);
}

#[tokio::test]
async fn scenario_19_rows_of_the_first_layout_hand_their_fields_over_and_go_in_time() {
    let desk = Desk::new();
    desk.hub.put("규정/학칙.md", "# 한국교원대학교 학칙\n");
    let fields = json!({"title": "한국교원대학교 학칙", "status": "active", "fileNo": "868",
        "previewUrl": "https://example.org/p?fileNo=868", "downloadUrl": "https://example.org/d?fileNo=868"});
    desk.intrude("policy:한국교원대학교 학칙", &fields).await;
    desk.intrude("policy:폐지된 규정", &json!({"title": "폐지된 규정", "fileNo": "1"})).await;
    let report = desk.run().await;
    assert_eq!((did(&report), report.exit_code()), ([1, 0, 0, 0], 0), "{report:#?}");
    let row = desk.policy("학칙").await;
    assert_eq!((&row["fileNo"], &row["previewUrl"]), (&fields["fileNo"], &fields["previewUrl"]));
    assert_eq!(desk.names().await, ["폐지된 규정", "학칙"], "the matched row is gone, the other one waits");

    desk.clock.advance(Duration::from_secs(89 * 24 * 3600));
    desk.hub.put("규정/학칙.md", "# 학칙\n");
    desk.ran([0, 1, 0, 0]).await;
    assert_eq!(desk.policy("학칙").await["fileNo"], "868", "fields survive an update");
    assert_eq!(desk.names().await.len(), 2);

    desk.clock.advance(Duration::from_secs(2 * 24 * 3600));
    let report = desk.run().await;
    assert_eq!((report.counts.deleted, report.exit_code()), (1, 0), "{report:#?}");
    assert_eq!(desk.names().await, ["학칙"]);
    desk.hub.put("규정/학칙.md", "# 학칙 개정\n");
    desk.ran([0, 1, 0, 0]).await;
    assert_eq!(desk.policy("학칙").await.get("fileNo"), None, "and end with the transition");
}

#[tokio::test]
async fn a_row_of_each_layout_for_one_policy_becomes_one() {
    let desk = Desk::with_policies(2);
    desk.intrude("policy:p00", &theirs(0)).await;
    desk.intrude("policy:Policy 0", &json!({"title": "Policy 0", "fileNo": 7})).await;
    let report = desk.run().await;
    assert_eq!((did(&report), desk.hub.asked()[2], report.exit_code()), ([1, 1, 0, 0], 1, 0), "{report:#?}");
    assert_eq!(desk.policy("p00").await["fileNo"], 7);
    assert_eq!(desk.names().await, ["p00", "p01"]);
}

/// A row of the first layout appears after the first contact: a plain run on an unchanged commit moves its fields.
async fn appears_later(desk: &Desk) {
    desk.ran([3, 0, 0, 0]).await;
    desk.intrude("policy:Policy 0", &json!({"title": "Policy 0", "fileNo": 7})).await;
    desk.intrude("policy:unknown", &json!({"title": "Unknown", "fileNo": 8})).await;
    let preview = desk.line(Access::Read).await.preview(&Ask::plain("plan")).await.unwrap();
    assert_eq!(preview.update.len(), 1, "a plan shows it, too: {preview:#?}");
    desk.hub.asked();
    let report = desk.ran([0, 1, 0, 2]).await;
    assert_eq!((report.counts.scanned, desk.hub.asked()[2]), (3, 0), "no blob is needed: {report:#?}");
    assert_eq!(desk.policy("p00").await["fileNo"], 7);
    assert_eq!(
        desk.names().await,
        ["p00", "p01", "p02", "unknown"],
        "the matched row is gone, the other waits"
    );
    desk.hub.asked();
    desk.ran([0, 0, 0, 3]).await;
    assert_eq!(desk.hub.asked(), [1, 0, 0], "known rows cost nothing");
    desk.clock.advance(Duration::from_secs(91 * 24 * 3600));
    let report = desk.run().await;
    assert_eq!((report.counts.deleted, report.exit_code()), (1, 0), "{report:#?}");
    assert_eq!(desk.names().await, ["p00", "p01", "p02"]);
}

#[tokio::test]
async fn scenario_19_a_row_of_the_first_layout_that_appears_later_is_met_by_a_plain_run() {
    appears_later(&Desk::with_policies(3)).await;
}

#[tokio::test]
async fn scenario_19_on_cloudflare_rows_that_appear_later_are_met_by_listing_keys() {
    let mut desk = Desk::with_policies(3);
    let kv = Kv::start(Some(desk.clock.clone()));
    desk.into = kv.config(&desk.folder.path().join("cf-token"));
    appears_later(&desk).await;
    desk.ran([0, 0, 0, 3]).await;
    kv.server.forget();
    desk.ran([0, 0, 0, 3]).await;
    assert_eq!(kv.server.count("/values/"), 0, "of known keys no value is read");
}

#[tokio::test]
async fn scenario_19_titles_are_matched_as_people_read_them() {
    let desk = Desk::new();
    desk.hub.put("café.md", "# Règles du café\n");
    // Decomposed, with a space too many.
    desk.intrude("policy:x", &json!({"title": "Re\u{300}gles du cafe\u{301} ", "fileNo": 9})).await;
    desk.run().await;
    assert_eq!((desk.policy("café").await["fileNo"].clone(), desk.names().await.len()), (json!(9), 1));
}
