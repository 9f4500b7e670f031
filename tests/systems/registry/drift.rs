//! What happens to the registry behind our back is noticed although the repository did not move.

use serde_json::json;
use trueup::pipeline::Ask;
use trueup::store::{Access, Item, StoreExt as _};

use super::desk::{Desk, did, policy};

#[tokio::test]
async fn a_row_lost_or_edited_at_the_same_commit_is_put_right() {
    let desk = Desk::with_policies(20);
    desk.ran([20, 0, 0, 0]).await;
    let before = desk.held("policy:").await;
    desk.store().await.write_one(Item::delete("policy:p03")).await.unwrap();
    desk.intrude("policy:p04", &json!({ "title": "somebody else's" })).await;
    desk.hub.asked();
    desk.ran([0, 2, 0, 18]).await;
    assert_eq!(desk.hub.asked(), [2, 1, 0], "the tree; what the rows say is known");
    let after = desk.held("policy:").await;
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert_eq!(desk.policy("p04").await["title"], "Policy 4");
    desk.ran([0, 0, 0, 20]).await;
    assert_eq!(desk.hub.asked(), [1, 0, 0], "and then it costs one request again");
}

#[tokio::test]
async fn what_was_undone_is_held_although_the_commit_is_the_same() {
    let desk = Desk::with_policies(20);
    desk.ran([20, 0, 0, 0]).await;
    desk.hub.put("policies/p03.md", "# Amended\n\nOtherwise.\n");
    desk.hub.put("policies/p20.md", policy(20));
    let run = desk.ran([1, 1, 0, 19]).await.id;
    let line = desk.line(Access::Write).await;
    line.undo(&run, &Ask::plain("undo"), None).await.unwrap();
    assert_eq!(desk.policy("p03").await["title"], "Policy 3");
    for _ in 0..2 {
        let report = desk.run().await;
        assert_eq!((did(&report), report.counts.held), ([0, 0, 0, 19], 2), "{report:#?}");
        assert_eq!(report.exit_code(), 4);
    }
    assert!(!desk.names().await.contains(&"p20".to_owned()), "it stays undone");
}
