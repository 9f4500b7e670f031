//! What comes in, what changes, what is lost in the database and found again: scenarios 1 to 9, 13 and 17.

use serde_json::json;

use super::kit::{CASES, FIRST_CASE, FIRST_VOTE, PARTIES, PROPOSALS, ROWS, Stage, VOTES, proposal, vote};
use super::on_both;

on_both!(
    scenario_01_a_first_run_brings_every_row_with_276_requests,
    scenario_02_a_second_run_writes_nothing,
    scenario_03_metadata_changes_nothing_however_deep_it_is,
    scenario_04_one_title_is_one_update,
    scenario_05_an_unchanged_case_gets_its_new_vote_and_proposal,
    scenario_06_proposals_with_one_id_are_told_apart_by_their_vote,
    scenario_07_a_deleted_row_comes_back,
    scenario_08_an_emptied_cache_is_rebuilt_without_a_duplicate,
    scenario_09_an_audit_finds_an_altered_row_and_repairs_it,
    scenario_13_what_is_missing_is_marked_and_cleared_when_it_is_back,
    scenario_13_deletion_is_asked_for_and_guarded,
    scenario_17_null_and_missing_are_the_same,
    a_lost_state_finds_its_rows_again,
    rows_can_be_undone_and_explained,
);

async fn scenario_01_a_first_run_brings_every_row_with_276_requests(stage: Stage) {
    let first = stage.sync();
    first.is(0, &[("scanned", ROWS), ("added", ROWS), ("failed", 0), ("requests", 276), ("writes", ROWS)]);
    assert_eq!(stage.server.requests().len(), 276);
    assert_eq!(stage.table_counts(), [PARTIES, CASES, VOTES, PROPOSALS]);
    let groups = &first.run()["groups"];
    for (group, count) in
        [("parties", PARTIES), ("cases", CASES), ("votes", VOTES), ("vote_proposals", PROPOSALS)]
    {
        assert_eq!(groups[group]["added"], json!(count), "{group}");
        assert_eq!(groups[group]["scanned"], json!(count), "{group}");
    }
    let day = stage.instant("sist_oppdatert_dato");
    let sql =
        format!("select type, status, dokumentgruppe, {day}, henvisning from cases where id = {FIRST_CASE}");
    assert_eq!(stage.query(&sql), "alminneligsak|behandlet|representantforslag|2025-10-23T22:00:00.000Z|");
    stage.cache_fits();
    assert_eq!(stage.query("select count(*) from sync_cache where external_id = '26383/-1'"), "1");
}

async fn scenario_02_a_second_run_writes_nothing(stage: Stage) {
    stage.sync();
    let before = stage.everything();
    let second = stage.sync();
    second.is(0, &[("added", 0), ("updated", 0), ("unchanged", ROWS), ("writes", 0), ("requests", 276)]);
    assert_eq!(stage.everything(), before);
}

async fn scenario_03_metadata_changes_nothing_however_deep_it_is(stage: Stage) {
    stage.sync();
    let before = stage.everything();
    {
        let mut api = stage.api();
        api.answered += 60_000;
        api.cases[0]["emne_liste"][0]["respons_dato_tid"] = json!("/Date(1)/");
    }
    stage.sync().is(0, &[("added", 0), ("updated", 0), ("unchanged", ROWS), ("writes", 0)]);
    assert_eq!(stage.everything(), before);
}

async fn scenario_04_one_title_is_one_update(stage: Stage) {
    stage.sync();
    let created = stage.query(&format!("select created_at from cases where id = {FIRST_CASE}"));
    stage.api().cases[0]["tittel"] = json!("Ny tittel");
    stage.sync().is(0, &[("added", 0), ("updated", 1), ("unchanged", ROWS - 1), ("writes", 1)]);
    assert_eq!(stage.query(&format!("select tittel from cases where id = {FIRST_CASE}")), "Ny tittel");
    assert_eq!(stage.query(&format!("select created_at from cases where id = {FIRST_CASE}")), created);
    assert_eq!(stage.query("select count(*) from cases where updated_at > created_at"), "1");
}

async fn scenario_05_an_unchanged_case_gets_its_new_vote_and_proposal(stage: Stage) {
    stage.sync();
    {
        let mut api = stage.api();
        api.votes.push(vote(99_001, FIRST_CASE));
        api.proposals.push(proposal(99_001, -1));
    }
    let next = stage.sync();
    next.is(0, &[("added", 2), ("updated", 0), ("unchanged", ROWS)]);
    assert_eq!(next.run()["groups"]["votes"]["added"], json!(1));
    assert_eq!(next.run()["groups"]["vote_proposals"]["added"], json!(1));
}

async fn scenario_06_proposals_with_one_id_are_told_apart_by_their_vote(stage: Stage) {
    stage.sync();
    let of =
        |vote: i64| format!("select * from vote_proposals where votering_id = {vote} and forslag_id = -1");
    let untouched = stage.query(&of(26_444));
    assert!(!untouched.is_empty());
    stage.api().proposals[0]["forslag_tekst"] = json!("<p>Endret</p>");
    stage.sync().is(0, &[("updated", 1), ("unchanged", ROWS - 1)]);
    assert!(stage.query(&of(FIRST_VOTE)).contains("Endret"));
    assert_eq!(stage.query(&of(26_444)), untouched);
}

async fn scenario_07_a_deleted_row_comes_back(stage: Stage) {
    stage.sync();
    stage.query(&format!("delete from cases where id = {FIRST_CASE}"));
    stage.sync().is(0, &[("added", 0), ("updated", 1), ("unchanged", ROWS - 1)]);
    assert_eq!(stage.table_counts(), [PARTIES, CASES, VOTES, PROPOSALS]);
    stage.cache_fits();
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
}

async fn scenario_08_an_emptied_cache_is_rebuilt_without_a_duplicate(stage: Stage) {
    stage.sync();
    let before = stage.everything();
    stage.query("delete from sync_cache");
    let next = stage.sync();
    assert_eq!(next.code, 0, "{:#}", next.json);
    assert_eq!(stage.everything(), before);
    stage.cache_fits();
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
}

async fn scenario_09_an_audit_finds_an_altered_row_and_repairs_it(stage: Stage) {
    stage.sync();
    let good = stage.query(&format!("select tittel from cases where id = {FIRST_CASE}"));
    stage.query(&format!("update cases set tittel = 'tull' where id = {FIRST_CASE}"));
    let found = stage.trueup(&["audit"]);
    assert_eq!(found.code, 3, "{:#}", found.json);
    assert_eq!(
        found.json["audits"][0]["drift"],
        json!([{"key": format!("cases/{FIRST_CASE}"), "class": "edited"}])
    );
    let repaired = stage.trueup(&["audit", "--repair"]);
    assert_eq!(repaired.code, 0, "{:#}", repaired.json);
    assert_eq!(repaired.json["audits"][0]["repaired"], json!(1));
    assert_eq!(stage.query(&format!("select tittel from cases where id = {FIRST_CASE}")), good);
    assert_eq!(stage.trueup(&["audit"]).code, 0);
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
}

async fn scenario_13_what_is_missing_is_marked_and_cleared_when_it_is_back(stage: Stage) {
    stage.sync();
    let gone = {
        let mut api = stage.api();
        api.cases.remove(0)
    };
    // The case, its vote, and that vote's six proposals.
    let marked = stage.trueup(&["--now", "2026-11-16T00:00:00Z", "sync"]);
    marked.is(0, &[("missing", 8), ("deleted", 0), ("added", 0), ("updated", 0), ("unchanged", ROWS - 8)]);
    let since = stage.instant("missing_since");
    let sql = format!("select {since} from cases where missing_since is not null");
    assert_eq!(stage.query(&sql), "2026-11-16T00:00:00.000Z");
    assert_eq!(stage.query("select count(*) from votes where missing_since is not null"), "1");
    assert_eq!(stage.query("select count(*) from vote_proposals where missing_since is not null"), "6");
    assert_eq!(stage.trueup(&["audit"]).code, 0, "a row that is marked is as it should be");
    let still = stage.trueup(&["--now", "2026-11-17T00:00:00Z", "sync"]);
    still.is(0, &[("missing", 8), ("writes", 0)]);
    assert_eq!(stage.query(&sql), "2026-11-16T00:00:00.000Z");
    stage.api().cases.push(gone);
    stage.sync().is(0, &[("missing", 0), ("updated", 8), ("unchanged", ROWS - 8)]);
    for table in ["cases", "votes", "vote_proposals"] {
        assert_eq!(
            stage.query(&format!("select count(*) from {table} where missing_since is not null")),
            "0"
        );
        assert_eq!(stage.query(&format!("select count(*) from {table} where updated_at > created_at")), "0");
    }
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
}

async fn scenario_13_deletion_is_asked_for_and_guarded(mut stage: Stage) {
    stage.shape = "{ rows = { on_missing = \"delete\" } }".into();
    stage.sync();
    stage.api().cases.remove(0);
    stage.sync().is(0, &[("deleted", 8), ("missing", 0)]);
    assert_eq!(stage.table_counts(), [PARTIES, CASES - 1, VOTES - 1, PROPOSALS - 6]);
    stage.cache_fits();
    stage.api().cases.clear();
    let held = stage.sync();
    assert_eq!(held.code, 4, "{:#}", held.json);
    assert_eq!(stage.rows("cases"), CASES - 1);
    let plan = held.run()["plan"].as_str().unwrap().to_owned();
    stage.trueup(&["approve", &plan]).is(0, &[("held", 0)]);
    assert_eq!(stage.table_counts(), [PARTIES, 0, 0, 0]);
}

async fn scenario_17_null_and_missing_are_the_same(stage: Stage) {
    stage.sync();
    for case in &mut stage.api().cases {
        case.as_object_mut().unwrap().remove("henvisning");
    }
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
}

async fn a_lost_state_finds_its_rows_again(stage: Stage) {
    stage.sync();
    let before = stage.everything();
    std::fs::remove_dir_all(stage.folder.path().join(".trueup")).unwrap();
    stage.sync().is(0, &[("added", 0), ("updated", 0), ("unchanged", ROWS), ("writes", 0)]);
    assert_eq!(stage.everything(), before);
}

async fn rows_can_be_undone_and_explained(stage: Stage) {
    stage.sync();
    let before = stage.query("select id, tittel, status from cases order by id");
    stage.api().cases[0]["tittel"] = json!("Ny tittel");
    let run = stage.sync().run()["id"].as_str().unwrap().to_owned();
    let why = stage.trueup(&["why", &format!("cases/{FIRST_CASE}")]);
    assert_eq!(why.code, 0, "{:#}", why.json);
    assert_eq!(stage.trueup(&["undo", &run]).code, 0);
    assert_eq!(stage.query("select id, tittel, status from cases order by id"), before);
    stage.sync().is(4, &[("held", 1)]);
}
