//! A run with nothing to do stands on the sum the last one left, and still notices whatever happened to the database.

use std::sync::Arc;

use trueup::pipeline::Ask;
use trueup::state::Report;
use trueup::store::{Item, StoreExt};

use crate::support::counted::Counted;

use super::kit::{CASES, FIRST_CASE, PARTIES, PROPOSALS, ROWS, Stage, VOTES};
use super::on_both;

on_both!(
    a_run_without_a_change_lists_nothing,
    whatever_happened_to_a_row_or_its_entry_is_noticed,
    what_is_missing_is_counted_as_if_every_row_was_looked_at,
    a_run_that_did_not_go_well_leaves_nothing_to_stand_on,
    other_settings_are_another_footing,
);

const FOOTING: &str = "footing/stortinget";

/// A pass, and how often it listed the tables.
async fn watched(stage: &Stage) -> (Report, u64) {
    let mut line = stage.line().await;
    let counted = Arc::new(Counted::new(line.store.clone()));
    line.store = counted.clone();
    let report = line.run(&Ask::plain("test")).await.unwrap();
    (report, counted.counts().lists)
}

async fn has_footing(stage: &Stage) -> bool {
    stage.line().await.state.store().get_one(FOOTING).await.unwrap().is_some()
}

/// Take it away: the next pass looks at every row.
async fn forget(stage: &Stage) {
    stage.line().await.state.store().write_one(Item::delete(FOOTING)).await.unwrap();
}

async fn a_run_without_a_change_lists_nothing(stage: Stage) {
    let (first, lists) = watched(&stage).await;
    assert!(lists > 0 && first.counts.added == ROWS, "{first:#?}");
    for _ in 0..2 {
        let (next, lists) = watched(&stage).await;
        assert_eq!((lists, next.writes, next.counts.unchanged), (0, 0, ROWS), "{next:#?}");
    }
    let (fast, _) = watched(&stage).await;
    forget(&stage).await;
    let (slow, lists) = watched(&stage).await;
    assert!(lists > 0);
    assert_eq!((fast.counts, fast.groups), (slow.counts, slow.groups));
    // A change at the source is found, and the run after it is quiet again.
    stage.api().cases[0]["tittel"] = "Ny tittel".into();
    assert_eq!(watched(&stage).await.0.counts.updated, 1);
    let (after, lists) = watched(&stage).await;
    assert_eq!((lists, after.counts.unchanged), (0, ROWS));
}

async fn whatever_happened_to_a_row_or_its_entry_is_noticed(stage: Stage) {
    watched(&stage).await;
    assert_eq!(watched(&stage).await.1, 0);
    let entry = format!("table_name = 'cases' and external_id = '{FIRST_CASE}'");
    for harm in [
        format!("delete from cases where id = {FIRST_CASE}"),
        format!("delete from sync_cache where {entry}"),
        format!("update sync_cache set seen_at = '2020-01-01T00:00:00.000Z' where {entry}"),
        format!("update sync_cache set internal_id = internal_id + 1000000 where {entry}"),
        format!("update sync_cache set checksum = 'garbage' where {entry}"),
        format!("update sync_cache set checksum = '{}' where {entry}", "0".repeat(64)),
    ] {
        stage.query(&harm);
        let (report, lists) = watched(&stage).await;
        assert!(lists > 0, "{harm}");
        assert!(report.counts.updated > 0 || report.counts.unchanged == ROWS, "{harm}: {report:#?}");
        assert_eq!(stage.table_counts(), [PARTIES, CASES, VOTES, PROPOSALS], "{harm}");
        stage.cache_fits();
        // What was only learnt anew is looked at once more.
        watched(&stage).await;
        assert_eq!(watched(&stage).await.1, 0, "{harm}");
    }
    let wrong = "checksum = 'garbage' or checksum like '0000000000000000%'";
    assert_eq!(stage.query(&format!("select count(*) from sync_cache where {wrong}")), "0", "healed");
}

async fn what_is_missing_is_counted_as_if_every_row_was_looked_at(stage: Stage) {
    watched(&stage).await;
    let gone = stage.api().cases.remove(0);
    watched(&stage).await;
    let (fast, lists) = watched(&stage).await;
    assert_eq!((lists, fast.counts.missing, fast.counts.unchanged), (0, 8, ROWS - 8), "{fast:#?}");
    forget(&stage).await;
    let (slow, _) = watched(&stage).await;
    assert_eq!((fast.counts, fast.groups), (slow.counts, slow.groups));
    stage.api().cases.push(gone);
    let (back, _) = watched(&stage).await;
    assert_eq!((back.counts.missing, back.counts.updated), (0, 8), "{back:#?}");
    let (quiet, lists) = watched(&stage).await;
    assert_eq!((lists, quiet.counts.unchanged), (0, ROWS));
}

async fn a_run_that_did_not_go_well_leaves_nothing_to_stand_on(stage: Stage) {
    watched(&stage).await;
    assert!(has_footing(&stage).await);
    let title = std::mem::replace(&mut stage.api().cases[0]["status"], "no number".into());
    let (failed, _) = watched(&stage).await;
    assert_eq!(failed.counts.failed, 1, "{failed:#?}");
    assert!(!has_footing(&stage).await);
    stage.api().cases[0]["status"] = title;
    assert!(watched(&stage).await.1 > 0);
    assert_eq!(watched(&stage).await.1, 0);
    // Undoing is a run, too, and what it changed is asked about.
    stage.api().cases[0]["tittel"] = "Ny tittel".into();
    let (changed, _) = watched(&stage).await;
    stage.trueup(&["undo", &changed.id]);
    assert!(!has_footing(&stage).await);
    let (held, _) = watched(&stage).await;
    assert_eq!(held.counts.held, 1, "{held:#?}");
}

async fn other_settings_are_another_footing(mut stage: Stage) {
    watched(&stage).await;
    assert_eq!(watched(&stage).await.1, 0);
    stage.settings = "drift = { edited = \"report\" }".into();
    assert!(watched(&stage).await.1 > 0);
    assert_eq!(watched(&stage).await.1, 0);
}
