//! What the API does wrong, and what of it stays whole: scenarios 10 to 12, 14 to 16 and 19.

use std::collections::HashMap;

use serde_json::json;
use trueup::state::{Report, Status};

use super::kit::{CASES, FIRST_CASE, PARTIES, PROPOSALS, ROWS, Stage, VOTES, case, html};
use super::on_both;
use crate::support::http::Reply;

on_both!(
    scenario_10_one_broken_scope_leaves_the_rest_whole,
    scenario_10_a_page_of_html_with_200_is_no_empty_list,
    scenario_11_what_fails_twice_and_then_works_is_there_once,
    scenario_12_a_truncated_list_marks_nothing,
    scenario_14_an_unknown_number_has_a_word_and_a_warning,
    scenario_15_another_minor_version_is_one_warning,
    scenario_15_another_major_version_breaks_its_resource,
    scenario_16_a_date_that_is_none_is_an_error_of_its_row,
    scenario_19_a_long_text_is_kept_whole,
    an_api_that_stops_answering_is_not_waited_for_in_every_scope,
    a_row_listed_twice_counts_once,
    an_item_without_a_key_hides_what_may_be_missing,
);

/// The first waits of five attempts are 1, 2, 4 and 8 seconds, a quarter longer at most.
const WAITED_MS: std::ops::RangeInclusive<u64> = 15_000..=18_750;

#[track_caller]
fn counts(report: &Report, scanned: u64, added: u64, unproven: u64) {
    let counts = &report.counts;
    assert_eq!((counts.scanned, counts.added, counts.unproven), (scanned, added, unproven), "{report:#?}");
}

async fn scenario_10_one_broken_scope_leaves_the_rest_whole(stage: Stage) {
    let sick = format!("sakid={FIRST_CASE}");
    let path = sick.clone();
    stage.api().trouble = Box::new(move |request| request.path.contains(&path).then(|| html(500)));
    let report = stage.pass().await;
    assert_eq!(report.status, Status::Partial);
    // Its vote and the six proposals of that are not there.
    counts(&report, ROWS - 7, ROWS - 7, 1);
    assert_eq!(stage.server.count(&sick), 5);
    assert!(WAITED_MS.contains(&stage.clock.slept_ms()), "{}", stage.clock.slept_ms());
    let [fault] = &report.errors[..] else { panic!("{:#?}", report.errors) };
    assert_eq!(fault.scope.as_deref(), Some(format!("votes/{FIRST_CASE}").as_str()));
    assert!(fault.message.contains(&sick) && fault.message.contains("500"), "{}", fault.message);
    assert_eq!(stage.table_counts(), [PARTIES, CASES, VOTES - 1, PROPOSALS - 6]);
    stage.api().trouble = Box::new(|_| None);
    let healed = stage.pass().await;
    assert_eq!(healed.status, Status::Ok);
    counts(&healed, ROWS, 7, 0);
}

async fn scenario_10_a_page_of_html_with_200_is_no_empty_list(stage: Stage) {
    stage.pass().await;
    let path = format!("sakid={FIRST_CASE}");
    stage.api().trouble = Box::new(move |request| request.path.contains(&path).then(|| html(200)));
    let report = stage.pass().await;
    assert_eq!((report.status, report.counts.unproven, report.counts.missing), (Status::Partial, 1, 0));
    assert_eq!(stage.query("select count(*) from votes where missing_since is not null"), "0");
}

/// Three days and more it would be, were there a hundred thousand cases.
async fn an_api_that_stops_answering_is_not_waited_for_in_every_scope(stage: Stage) {
    stage.api().trouble = Box::new(|request| request.path.contains("sakid=").then(|| html(500)));
    let report = stage.pass().await;
    assert_eq!(report.status, Status::Partial);
    counts(&report, (PARTIES + CASES) as u64, (PARTIES + CASES) as u64, CASES as u64);
    // Each of the first twenty has its five attempts, and those that are asked meanwhile; the others have one.
    let (least, most) = (CASES + 20 * 4, CASES + 24 * 4);
    let asked = stage.server.count("sakid=");
    assert!((least..=most).contains(&asked), "{asked} of {least} to {most}");
    // Every other case is sick: more than twenty, and never in a row. All of them are asked for with patience.
    let sick = |path: &str| path.contains("sakid=") && path.ends_with(['0', '2', '4', '6', '8']);
    stage.api().trouble = Box::new(move |request| sick(&request.path).then(|| html(500)));
    let report = stage.pass().await;
    assert_eq!((report.status, report.counts.unproven), (Status::Partial, CASES as u64 / 2), "{report:#?}");
    assert_eq!(stage.server.count("sakid=") - asked, CASES / 2 * (1 + 5));
}

async fn scenario_11_what_fails_twice_and_then_works_is_there_once(stage: Stage) {
    let mut asked: HashMap<String, u32> = HashMap::new();
    stage.api().trouble = Box::new(move |request| {
        let times = asked.entry(request.path.clone()).or_default();
        *times += 1;
        (request.path.contains("voteringsforslag") && *times <= 2).then(|| match times {
            1 => html(503).header("Retry-After", "1"),
            _ => Reply::cut_short("{\"voteringsforslag_liste\":["),
        })
    });
    let report = stage.pass().await;
    assert_eq!(report.status, Status::Ok, "{report:#?}");
    counts(&report, ROWS, ROWS, 0);
    assert_eq!(report.requests, 276 + 2 * VOTES as u64);
    assert_eq!(stage.table_counts(), [PARTIES, CASES, VOTES, PROPOSALS]);
    stage.cache_fits();
}

async fn scenario_12_a_truncated_list_marks_nothing(stage: Stage) {
    stage.pass().await;
    let before = stage.everything();
    stage.api().parties[0]["navn"] = json!("Nytt navn");
    stage.api().trouble = Box::new(|request| {
        let truncated = "{\"saker_liste\":[{\"id\":105001,\"tit";
        request
            .path
            .contains("/saker")
            .then(|| Reply::ok(truncated).header("Content-Type", "application/json"))
    });
    let report = stage.pass().await;
    assert_eq!((report.status, report.counts.unproven), (Status::Partial, 1), "{report:#?}");
    assert_eq!((report.counts.missing, report.counts.updated), (0, 1));
    assert_eq!(stage.query("select navn from parties where id = 'P0'"), "Nytt navn");
    let after = stage.everything();
    let but_parties = |text: &str| text.split("\n--\n").skip(1).collect::<Vec<_>>().join("\n");
    assert_eq!(but_parties(&after), but_parties(&before));
}

async fn scenario_14_an_unknown_number_has_a_word_and_a_warning(stage: Stage) {
    stage.api().cases[0]["status"] = json!(9);
    let first = stage.sync();
    first.is(0, &[("added", ROWS), ("failed", 0)]);
    assert_eq!(stage.query(&format!("select status from cases where id = {FIRST_CASE}")), "ukjent_9");
    let warnings = first.run()["warnings"].to_string();
    assert!(warnings.contains("cases.status: 9"), "{warnings}");
    let second = stage.sync();
    second.is(0, &[("unchanged", ROWS), ("writes", 0)]);
    assert!(second.run()["warnings"].to_string().contains("cases.status: 9"), "said for as long as it is so");
}

async fn scenario_15_another_minor_version_is_one_warning(stage: Stage) {
    stage.api().version = "1.7".into();
    let run = stage.sync();
    run.is(0, &[("added", ROWS)]);
    let warnings = run.run()["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].as_str().unwrap().contains("1.7"));
}

async fn scenario_15_another_major_version_breaks_its_resource(stage: Stage) {
    stage.sync();
    stage.api().trouble = Box::new(|request| {
        let answer = json!({"versjon": "2.0", "saker_liste": []});
        request.path.contains("/saker").then(|| super::kit::json_reply(&answer))
    });
    let run = stage.sync();
    run.is(3, &[("unproven", 1), ("missing", 0), ("unchanged", PARTIES as u64)]);
    let error = &run.run()["errors"][0];
    assert_eq!(error["scope"], json!("cases"));
    assert!(error["message"].as_str().unwrap().contains("2.0"), "{error}");
    assert_eq!(stage.server.count("/saker"), 2, "the same answer would come again");
}

async fn scenario_16_a_date_that_is_none_is_an_error_of_its_row(stage: Stage) {
    {
        let mut api = stage.api();
        api.cases[1]["sist_oppdatert_dato"] = json!("/Date(-1000+0100)/");
        api.cases[2]["sist_oppdatert_dato"] = json!("i går");
        api.cases[3]["sist_oppdatert_dato"] = json!("/Date(1761256800000)/");
        api.cases[4]["tittel"] = json!(7);
    }
    let run = stage.sync();
    run.is(3, &[("scanned", ROWS), ("added", ROWS - 2), ("failed", 2)]);
    let day = stage.instant("sist_oppdatert_dato");
    let of = |n: i64| stage.query(&format!("select {day} from cases where id = {}", FIRST_CASE + n));
    assert_eq!(of(1), "1969-12-31T23:59:59.000Z");
    assert_eq!(of(2), "");
    assert_eq!(of(3), "2025-10-23T22:00:00.000Z");
    let errors = run.run()["errors"].as_array().unwrap();
    assert_eq!(errors[0]["key"], json!(format!("cases/{}", FIRST_CASE + 2)));
    assert!(errors[0]["message"].as_str().unwrap().contains("sist_oppdatert_dato"), "{errors:?}");
    // The votes of a case that does not fit are still its votes.
    assert_eq!(stage.rows("votes"), VOTES);
}

async fn scenario_19_a_long_text_is_kept_whole(stage: Stage) {
    let text = "«Å\t\\N\n\"'; drop table cases; --\u{1F4DC}".repeat(12_000);
    assert!(text.len() > 368_000);
    stage.api().proposals[0]["forslag_tekst"] = json!(text);
    stage.sync().is(0, &[("added", ROWS)]);
    assert_eq!(
        stage.query("select forslag_tekst from vote_proposals where votering_id = 26383 and forslag_id = -1"),
        text
    );
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
    assert_eq!(stage.trueup(&["audit"]).code, 0);
}

async fn a_row_listed_twice_counts_once(stage: Stage) {
    let mut twin = case(FIRST_CASE);
    twin["tittel"] = json!("Tvilling");
    stage.api().cases.push(twin);
    let run = stage.sync();
    run.is(3, &[("scanned", ROWS + 1), ("added", ROWS), ("failed", 1), ("requests", 276)]);
    assert!(stage.query(&format!("select tittel from cases where id = {FIRST_CASE}")).starts_with("Sak "));
}

async fn an_item_without_a_key_hides_what_may_be_missing(stage: Stage) {
    stage.sync();
    stage.api().cases[0].as_object_mut().unwrap().remove("id");
    stage.sync().is(3, &[("failed", 1), ("missing", 0), ("deleted", 0)]);
}
