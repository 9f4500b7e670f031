//! Workspaces over HTTP: the same verbs as `trueup page`, and jobs that the server does by itself.

use serde_json::json;

use super::rig::Serving;
use crate::cli::home::Home;
use crate::support;

const PAGE: &str = "/api/workspaces/agreements/pages/12";

async fn serving() -> (Home, Serving) {
    let home = Home::with_notes(1);
    home.write(
        "trueup.toml",
        "[workspaces.agreements]\npages = { folder = \"pages\" }\ninto = \"sqlite:agreements.db\"\n",
    );
    home.write("pages/12/page.md", "# Agreement\n\nThe candidate works for three years.\n");
    home.write("pages/12/rules.md", "# Rules\n\nA doctorate takes three years, and no longer than four.\n");
    let serving = Serving::of(&home).await;
    (home, serving)
}

#[tokio::test]
async fn policies_and_issues_of_a_page_are_what_the_command_line_shows() {
    let (home, serving) = serving().await;
    assert_eq!(
        serving.get("/api/workspaces").await.is(200).json()["workspaces"][0]["workspace"],
        "agreements"
    );
    let policies = serving.get(&format!("{PAGE}/policies")).await.is(200).json();
    assert_eq!(policies, home.run(&["page", "policies", "12", "--json"]).ends(0).json());
    let document = serving.get(&format!("{PAGE}/policies/rules.md")).await.is(200).json();
    assert_eq!((&document["language"], &document["title"]), (&json!("en"), &json!("rules.md")), "{document}");
    serving.get(&format!("{PAGE}/policies/rules.md?language=xx")).await.refused(400, "invalid");
    serving.get(&format!("{PAGE}/policies/none.md")).await.refused(404, "not_found");
    serving.get("/api/workspaces/none/jobs").await.refused(404, "not_found");

    let new = json!({ "title": "Too long", "severity": 2, "description": "Four years are asked for." });
    let issue = serving.post(&format!("{PAGE}/issues"), Some(new)).await.is(201).json();
    let one = format!("{PAGE}/issues/{}", issue["id"].as_str().unwrap());
    serving.post(&format!("{one}/classify"), Some(json!({ "severity": 4 }))).await.refused(400, "invalid");
    let graver =
        serving.post(&format!("{one}/classify"), Some(json!({ "severity": 3 }))).await.is(200).json();
    assert_eq!(graver["severity"], 3);
    serving.post(&format!("{one}/annotate"), Some(json!({ "text": "*Asked.*" }))).await.is(200);
    assert!(serving.post(&format!("{one}/resolve"), None).await.is(200).json()["resolved"].is_string());
    assert!(serving.post(&format!("{one}/reopen"), None).await.is(200).json()["resolved"].is_null());
    let issues = serving.get(&format!("{PAGE}/issues")).await.is(200).json();
    assert_eq!(issues, home.run(&["page", "issues", "12", "--json"]).ends(0).json());
    let unknown = format!("{PAGE}/issues/{}/resolve", "00000000-0000-4000-8000-000000000000");
    serving.post(&unknown, None).await.refused(404, "not_found");
    serving.post(&format!("{PAGE}/clear"), None).await.is(200);
    assert_eq!(serving.get(&format!("{PAGE}/issues")).await.json()["issues"], json!([]));
}

#[tokio::test]
async fn a_job_is_accepted_done_by_the_server_and_says_how_it_ended() {
    let (_home, serving) = serving().await;
    let job = serving.post(&format!("{PAGE}/analyze"), None).await.is(202).json();
    assert_eq!(job["kind"], "activity");
    let path = format!("/api/workspaces/agreements/jobs/{}", job["id"].as_str().unwrap());
    let ended =
        support::eventually(async || serving.get(&path).await.is(200).json()["kind"] != "activity").await;
    assert!(ended, "{}", serving.said());
    let job = serving.get(&path).await.json();
    // There is no model to ask.
    assert_eq!((&job["kind"], &job["code"]), (&json!("error"), &json!(400)), "{job}");
    assert!(serving.get("/api/workspaces/agreements/jobs").await.is(200).json()["jobs"].is_array());
}
