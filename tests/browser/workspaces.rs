//! A workspace as a person meets it: issues moved over the board, a policy read in two languages, jobs followed.

use serde_json::{Value, json};

use super::driver::Browser;
use super::looks::{EVERY_SCREEN, fit};
use crate::cli::home::Home;
use crate::server::rig::Serving;
use crate::systems::workspace::model::Model;

const THESIS: &str = "# Regolamento di tesi\n\nOgni dottorando è seguito da almeno due supervisori assunti dall'università.\n\nLa tesi è consegnata entro tre anni dall'inizio del dottorato, e non più tardi.\n\n- una copia per la biblioteca\n- una copia per ogni membro della commissione\n";
const SUPERVISION: &str = "# Supervision\n\nEvery doctoral candidate shall have at least two supervisors employed by the university.\n\nMeetings are held at least once a month, and the candidate shall keep a record of them.\n";
const AGREEMENT: &str = "# Agreement with Anna\n\nAnna is supervised by one professor.\n\nThe thesis is handed in within five years.\n";

pub struct Office {
    pub home: Home,
    pub model: Model,
}

/// Two workspaces, one without a model; a page with issues and a translation, a page nobody looked at yet.
pub fn office() -> Office {
    let model = Model::new();
    let home = Home::new(&format!(
        "[workspaces.agreements]\npages = {{ folder = \"pages\" }}\ninto = \"sqlite:.trueup/agreements.db\"\nllm = {}\n\
         reanalyze = \"mark\"\n\
         [workspaces.drafts]\npages = {{ folder = \"drafts\" }}\ninto = \"sqlite:.trueup/drafts.db\"\n",
        model.llm()
    ));
    home.write("pages/anna/page.md", AGREEMENT);
    home.write("pages/anna/tesi.md", THESIS);
    home.write("pages/anna/supervision.md", SUPERVISION);
    home.write("pages/bert/page.md", "# Agreement with Bert\n\nTo be written.\n");
    home.write("pages/bert/supervision.md", SUPERVISION);
    home.write("drafts/carl/page.md", "# Draft\n");
    home.write("drafts/carl/rules.md", SUPERVISION);
    model.finds(vec![
        finding(
            "One supervisor is too few",
            2,
            "tesi.md",
            "almeno due supervisori",
            "supervised by one professor",
        ),
        finding("The thesis comes too late", 3, "tesi.md", "entro tre anni", "within five years"),
        finding(
            "Nothing is said about meetings",
            1,
            "supervision.md",
            "at least once a month",
            "Anna is supervised",
        ),
    ]);
    let here = ["--workspace", "agreements"];
    home.run(&[&["page", "analyze", "anna"], &here[..]].concat()).ends(0);
    home.run(&[&["page", "policy", "anna", "tesi.md", "--language", "fr"], &here[..]].concat()).ends(0);
    Office { home, model }
}

fn finding(title: &str, severity: u8, source: &str, rule: &str, agreed: &str) -> Value {
    json!({ "title": title, "severity": severity, "description": [
        "The policy asks for something else than the agreement says.",
        { "source": source, "excerpt": rule },
        { "source": "agreement", "excerpt": agreed },
    ] })
}

fn issue(home: &Home, title: &str) -> Value {
    let shown = home.run(&["page", "issues", "anna", "--workspace", "agreements", "--json"]).ends(0).json();
    let all = shown["issues"].as_array().unwrap();
    all.iter().find(|issue| issue["title"] == title).unwrap_or_else(|| panic!("{shown}")).clone()
}

/// Where a card has this button.
fn button(issue: &Value, verb: &str) -> String {
    format!("#issue-{} button[data-post$='/{verb}']", issue["id"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_goes_over_the_board_by_clicking() {
    let Office { home, model: _model } = office();
    let serving = Serving::of(&home).await;
    let browser = Browser::at(&serving.address).await;
    browser.open("/workspaces").await;
    browser.sees("main", "3 issues, grave").await;
    browser.click("a[href='/workspaces/agreements/pages/anna']").await;
    browser.sees("#pending", "The thesis comes too late").await;
    let late = issue(&home, "The thesis comes too late");
    browser.click(&button(&late, "resolve")).await;
    browser.sees("#told", "Resolved.").await;
    browser.sees("#resolved", "The thesis comes too late").await;
    assert!(issue(&home, "The thesis comes too late")["resolved"].is_string());
    browser.click(&button(&late, "reopen")).await;
    browser.sees("#pending", "The thesis comes too late").await;
    assert!(issue(&home, "The thesis comes too late")["resolved"].is_null());
    by_keyboard(&browser, &late).await;
    classify_and_annotate(&browser, &home).await;
    make_one(&browser, &home).await;
    to_the_place(&browser, &late).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Tab reaches every button of a card, and Enter is a click.
async fn by_keyboard(browser: &Browser, issue: &Value) {
    const TAB: &str = "\u{E004}";
    let wanted =
        format!("return document.activeElement === document.querySelector(\"{}\")", button(issue, "resolve"));
    browser.open("/workspaces/agreements/pages/anna").await;
    for _ in 0..40 {
        browser.press(TAB).await;
        if browser.run(&wanted).await == true {
            browser.press("\u{E007}").await;
            browser.sees("#resolved", issue["title"].as_str().unwrap()).await;
            return;
        }
    }
    panic!("Resolve is out of reach for a keyboard");
}

async fn classify_and_annotate(browser: &Browser, home: &Home) {
    let meetings = issue(home, "Nothing is said about meetings");
    let id = meetings["id"].as_str().unwrap();
    browser.click(&format!("#issue-{id} .choice button:nth-child(3)")).await;
    browser.sees("#told", "Now grave.").await;
    assert_eq!(issue(home, "Nothing is said about meetings")["severity"], 3);
    browser.click(&format!("#write-{id} summary")).await;
    browser.write(&format!("#notes-{id}"), "Ask <Anna>.").await;
    // Something else is done meanwhile: what is being written stays.
    browser.click(&format!("#issue-{id} .choice button:nth-child(2)")).await;
    browser.sees("#told", "Now notable.").await;
    browser.click(&format!("#write-{id} form button")).await;
    browser.sees(&format!("#issue-{id} .notes"), "Ask <Anna>.").await;
    let kept = issue(home, "Nothing is said about meetings");
    assert_eq!((&kept["annotations"], &kept["severity"]), (&json!("Ask <Anna>."), &json!(2)));
}

async fn make_one(browser: &Browser, home: &Home) {
    browser.click("#new-issue summary").await;
    browser.write("#new-title", "Who pays for the printing?").await;
    browser.write("#new-description", "Nobody says so.").await;
    browser.click("#new-issue form button").await;
    browser.sees("#pending", "Who pays for the printing?").await;
    assert_eq!(issue(home, "Who pays for the printing?")["description"], json!(["Nobody says so."]));
}

/// A quote leads to its place in the document.
async fn to_the_place(browser: &Browser, issue: &Value) {
    browser.click(&format!("#issue-{} blockquote a", issue["id"].as_str().unwrap())).await;
    browser.sees("mark", "entro tre anni").await;
    browser.picture("excerpt-light").await;
    browser.open("/workspaces/agreements/pages/anna").await;
    browser.click(&format!("#issue-{} blockquote:last-of-type a", issue["id"].as_str().unwrap())).await;
    browser.sees("mark", "within five years").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_read_beside_its_translation_and_translated_on_request() {
    let Office { home, model } = office();
    let serving = Serving::of(&home).await;
    let browser = Browser::at(&serving.address).await;
    browser.open("/workspaces/agreements?page=anna").await;
    browser.sees("#policies", "Italian").await;
    browser.click("#policies a[hreflang=fr]").await;
    browser.sees(".pair [lang=it]", "Regolamento di tesi").await;
    browser.sees(".pair [lang=fr]", "[French] # Regolamento di tesi").await;
    assert_eq!(model.translations(), 1, "looking asks for nothing");
    browser.click("#languages a[hreflang=de]").await;
    browser.sees("#text", "Not translated into German yet").await;
    assert_eq!(model.translations(), 1, "a language is only asked for by the button");
    browser.click("#text button[data-post$='/translate']").await;
    browser.sees(".pair [lang=de]", "[German] # Regolamento di tesi").await;
    browser.sees("#jobs", "Translate tesi.md into German").await;
    browser.sees("#jobs", "done").await;
    assert_eq!(model.translations(), 2);
    browser.click("#languages a:first-child").await;
    browser.sees("#text .prose", "Regolamento di tesi").await;
    assert_eq!(browser.text(".pair").await, "");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_listed_as_they_end_and_a_failed_one_is_asked_for_again() {
    let Office { home, model } = office();
    let serving = Serving::of(&home).await;
    let browser = Browser::at(&serving.address).await;
    browser.open("/workspaces/agreements/pages/bert").await;
    model.finds(vec![finding("No record is kept", 2, "supervision.md", "keep a record", "To be written")]);
    browser.click("button[data-post$='/analyze']").await;
    browser.sees("#jobs", "1 new issue").await;
    browser.sees("#pending", "No record is kept").await;
    // Without a model the page says so, and a job fails with the reason.
    serving.post("/api/workspaces/drafts/pages/carl/analyze", None).await.is(202);
    browser.open("/workspaces/drafts").await;
    browser.sees("#jobs", "failed").await;
    browser.sees("#jobs", "has no model").await;
    browser.sees("#pages", "job failed").await;
    browser.picture("job-failed-light").await;
    browser.click("#jobs button[data-post$='/analyze']").await;
    browser.sees("#told", "Asked for again.").await;
    let twice = "return document.querySelectorAll('#jobs .badge.bad').length";
    let again = crate::support::eventually(async || browser.run(twice).await == 2).await;
    assert!(again, "{}", browser.text("body").await);
    browser.open("/workspaces/drafts/pages/carl").await;
    browser.sees("#state", "need a model").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_workspace_fit_every_screen() {
    let Office { home, model: _model } = office();
    // A policy changes, so the analysis is stale.
    home.write("pages/anna/supervision.md", &format!("{SUPERVISION}\nThe record is signed by both.\n"));
    let serving = Serving::of(&home).await;
    let first = issue(&home, "One supervisor is too few");
    let api = format!("/api/workspaces/agreements/pages/anna/issues/{}", first["id"].as_str().unwrap());
    serving.post(&format!("{api}/annotate"), Some(json!({ "text": "*Asked the faculty.*" }))).await.is(200);
    serving.post(&format!("{api}/resolve"), None).await.is(200);
    serving
        .post(
            "/api/workspaces/agreements/pages/anna/policies/tesi.md/translate",
            Some(json!({ "language": "sv" })),
        )
        .await
        .is(202);
    let browser = Browser::at(&serving.address).await;
    fit(
        &browser,
        &[
            ("workspaces", "/workspaces"),
            ("workspace", "/workspaces/agreements"),
            ("page", "/workspaces/agreements/pages/anna"),
            ("beside", "/workspaces/agreements/pages/anna/policies/tesi.md?language=fr"),
            ("agreement", "/workspaces/agreements/pages/anna/agreement"),
            ("no-model", "/workspaces/drafts/pages/carl"),
            ("untranslated", "/workspaces/agreements/pages/anna/policies/tesi.md?language=de"),
        ],
        &EVERY_SCREEN,
    )
    .await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
