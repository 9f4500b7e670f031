//! Tables that grow with the recipe, and never lose what they hold: scenario 25.

use serde_json::json;

use super::kit::{CASES, FIRST_CASE, ROWS, Stage};
use super::on_both;

on_both!(
    scenario_25_a_new_column_is_filled_in_for_all_rows,
    a_change_that_would_lose_data_is_refused_with_the_reason,
    columns_of_somebody_else_are_left_alone,
    looking_makes_no_table,
    a_table_that_lost_a_column_of_ours_is_refused_with_what_to_do,
    a_view_in_the_place_of_a_table_is_refused,
);

const TITLE: &str = "tittel              = \"text\"\n";

async fn scenario_25_a_new_column_is_filled_in_for_all_rows(stage: Stage) {
    stage.sync();
    let columns = "id, tittel, korttittel, status, created_at, row_id";
    let before = stage.query(&format!("select {columns} from cases order by id"));
    let version = stage.query("select max(schema_version) from sync_cache where table_name = 'cases'");
    for (n, case) in stage.api().cases.iter_mut().enumerate().skip(1) {
        case["innstilling_id"] = json!(n);
        case["komite"] = json!({"navn": "Finans", "versjon": "1.6"});
    }
    let more = "innstilling_id = \"integer?\"\nkomite = \"json?\"\n";
    stage.edit_recipe(|recipe| recipe.replace(TITLE, &format!("{TITLE}{more}")));
    let plan = stage.trueup(&["plan"]);
    assert_eq!(plan.json["plans"][0]["update"].as_array().map(Vec::len), Some(CASES - 1), "{:#}", plan.json);
    stage
        .sync()
        .is(0, &[("updated", CASES as u64 - 1), ("added", 0), ("unchanged", ROWS - CASES as u64 + 1)]);
    assert_eq!(stage.query(&format!("select {columns} from cases order by id")), before);
    assert_eq!(stage.query(&format!("select innstilling_id from cases where id = {}", FIRST_CASE + 5)), "5");
    let komite = stage.query(&format!("select komite from cases where id = {}", FIRST_CASE + 5));
    assert_eq!(komite.replace(' ', ""), r#"{"navn":"Finans"}"#);
    let after = stage.query("select max(schema_version) from sync_cache where table_name = 'cases'");
    assert_ne!(after, version);
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
    assert_eq!(stage.trueup(&["audit"]).code, 0);
}

async fn a_change_that_would_lose_data_is_refused_with_the_reason(stage: Stage) {
    stage.sync();
    let before = stage.everything();
    for (edit, reason) in [("", "no longer in the recipe"), ("tittel = \"integer\"\n", "tittel")] {
        stage.edit_recipe(|recipe| recipe.replace(TITLE, edit));
        let refused = stage.sync();
        assert_eq!(refused.code, 2, "{:#}", refused.json);
        let message = refused.json["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("cases") && message.contains(reason), "{message}");
        assert_eq!(stage.trueup(&["plan"]).code, 2);
        let put_back = |recipe: &str| match edit {
            "" => recipe.replace("korttittel ", &format!("{TITLE}korttittel ")),
            edit => recipe.replace(edit, TITLE),
        };
        stage.edit_recipe(put_back);
    }
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
    assert_eq!(stage.everything(), before);
    // The remedy works: a column that a person dropped may go from the recipe.
    stage.query("alter table cases drop column korttittel");
    stage.edit_recipe(|recipe| recipe.replace("korttittel          = \"text\"\n", ""));
    assert_eq!(stage.sync().code, 0);
}

async fn columns_of_somebody_else_are_left_alone(stage: Stage) {
    stage.sync();
    stage.query("alter table cases add column my_note text");
    stage.query("update cases set my_note = 'mine'");
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
    stage.api().cases[0]["tittel"] = json!("Ny");
    stage.sync().is(0, &[("updated", 1)]);
    assert_eq!(stage.query("select count(*) from cases where my_note = 'mine'"), CASES.to_string());
}

async fn looking_makes_no_table(stage: Stage) {
    let plan = stage.trueup(&["plan"]);
    assert_eq!(plan.code, 0, "{:#}", plan.json);
    assert_eq!(plan.json["plans"][0]["add"].as_array().map(Vec::len), usize::try_from(ROWS).ok());
    match &stage.database {
        super::kit::Database::Sqlite(path) => assert!(!path.exists()),
        super::kit::Database::Postgres(_) => {
            let sql = "select count(*) from pg_tables where schemaname = 'public'";
            assert_eq!(stage.query(sql), "0");
        }
    }
}

async fn a_table_that_lost_a_column_of_ours_is_refused_with_what_to_do(stage: Stage) {
    for column in ["missing_since", "updated_at"] {
        assert_eq!(stage.sync().code, 0);
        stage.query(&format!("alter table cases drop column {column}"));
        for command in ["sync", "plan"] {
            let run = stage.trueup(&[command]);
            let said = run.json.to_string();
            assert_eq!(run.code, 2, "{command}: {said}");
            assert!(said.contains(&format!("the table cases has lost its column `{column}`")), "{said}");
            assert!(said.contains("Put the column back, or drop the table"), "{said}");
        }
        stage.query("drop table cases");
    }
    assert_eq!(stage.sync().code, 0);
    assert_eq!(stage.rows("cases"), CASES);
}

async fn a_view_in_the_place_of_a_table_is_refused(stage: Stage) {
    stage.sync();
    stage.query("alter table cases rename to real_cases");
    stage.query("create view cases as select * from real_cases");
    for command in ["sync", "plan"] {
        let run = stage.trueup(&[command]);
        let said = run.json.to_string();
        assert_eq!(run.code, 2, "{command}: {said}");
        assert!(said.contains("what is called cases in the database is no table"), "{said}");
    }
    stage.query("drop view cases");
    stage.query("alter table real_cases rename to cases");
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
}

async fn with_setting(setting: &str) -> Stage {
    let stage = Stage::on_postgres().await;
    let database = stage.query("select current_database()");
    stage.query(&format!("alter database {database} set {setting}"));
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_quotes_all_names_has_the_same_types() {
    let stage = with_setting("quote_all_identifiers = on").await;
    stage.sync().is(0, &[("added", ROWS)]);
    stage.sync().is(0, &[("unchanged", ROWS), ("writes", 0)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_there_is_no_schema_the_remedy_is_one() {
    let stage = with_setting("search_path = nowhere").await;
    let refused = stage.sync();
    assert_eq!(refused.code, 2, "{:#}", refused.json);
    let remedy = refused.json["error"]["remedy"].as_str().unwrap();
    assert!(remedy.contains("search_path") && !remedy.contains("replica"), "{remedy}");
}
