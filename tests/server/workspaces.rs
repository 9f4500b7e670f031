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

const HTML: [(&str, &str); 1] = [("accept", "text/html")];

#[tokio::test]
async fn pages_of_a_workspace_escape_what_others_wrote() {
    let (home, serving) = serving().await;
    home.write(
        "pages/12/<img src=x>.md",
        "# <script>alert(1)</script>\n\nA doctorate takes three years, and no longer.\n",
    );
    let new = json!({ "title": "<script>alert(2)</script>", "description": "<img src=x>" });
    let issue = serving.post(&format!("{PAGE}/issues"), Some(new)).await.is(201).json();
    let notes = format!("{PAGE}/issues/{}/annotate", issue["id"].as_str().unwrap());
    serving.post(&notes, Some(json!({ "text": "</textarea><script>alert(3)</script>" }))).await.is(200);
    for path in [
        "/workspaces",
        "/workspaces/agreements",
        "/workspaces/agreements/jobs",
        "/workspaces/agreements/pages/12",
        "/workspaces/agreements/pages/12/agreement?at=3&length=4",
        "/workspaces/agreements/pages/12/policies/_img_src_x_.md?language=fr",
    ] {
        let got = serving.ask("GET", path, &HTML, None).await.is(200).text;
        assert!(!got.contains("<img src=x") && !got.contains("<script>"), "{path}: {got}");
    }
}

#[tokio::test]
async fn pages_say_what_is_missing_and_are_not_opened_by_other_sites() {
    let (_home, serving) = serving().await;
    let page = "/workspaces/agreements/pages/12";
    let got = serving.ask("GET", "/workspaces/agreements/pages/13", &HTML, None).await.is(404).text;
    assert!(got.contains("there is no page 13"), "{got}");
    let none = "/workspaces/agreements/pages/12/policies/none.md";
    assert!(serving.ask("GET", none, &HTML, None).await.is(404).text.contains("has no policy none.md"));
    serving.ask("GET", "/workspaces/none", &HTML, None).await.is(404);
    let got = serving.ask("GET", page, &HTML, None).await.is(200).text;
    assert!(got.contains("need a model") && got.contains("trueup page analyze 12"), "{got}");
    // Opening a page lists it where it comes from, which may begin work: a page of another site cannot have that done.
    let elsewhere = [("sec-fetch-site", "cross-site"), HTML[0]];
    serving.ask("GET", page, &elsewhere, None).await.is(403);
    serving.ask("POST", &format!("{PAGE}/clear"), &elsewhere, None).await.refused(403, "unauthorized");
    let home = Home::with_notes(1);
    let serving = Serving::of(&home).await;
    let got = serving.ask("GET", "/workspaces", &HTML, None).await.is(200).text;
    assert!(got.contains("No workspaces yet") && got.contains("trueup init workspace"), "{got}");
}

#[tokio::test]
async fn the_pages_of_a_workspace_are_listed_with_what_is_kept_of_them() {
    let (home, serving) = serving().await;
    home.write("pages/13/page.md", "# Second\n");
    serving.get(&format!("{PAGE}/policies/rules.md")).await.is(200);
    serving
        .post(&format!("{PAGE}/issues"), Some(json!({ "title": "Too long", "severity": 3 })))
        .await
        .is(201);
    let all = "/api/workspaces/agreements/pages";
    let listed = serving.get(all).await.is(200).json();
    let pages = listed["pages"].as_array().unwrap();
    assert_eq!(
        (&pages[0]["page"], &pages[1]["page"], pages.len()),
        (&json!("12"), &json!("13"), 2),
        "{listed}"
    );
    let first = &pages[0];
    assert_eq!((&first["policies"], &first["pending"], &first["gravest"]), (&json!(1), &json!(1), &json!(3)));
    let part = serving.get(&format!("{all}?limit=1")).await.is(200).json();
    assert_eq!((part["pages"].as_array().unwrap().len(), &part["more"]), (1, &json!(true)));
    let rest = serving.get(&format!("{all}?limit=1&after=12")).await.is(200).json();
    assert_eq!((&rest["pages"][0]["page"], &rest["more"]), (&json!("13"), &json!(false)));
    std::fs::remove_dir_all(home.path("pages")).unwrap();
    let kept = serving.get(all).await.is(200).json();
    assert_eq!(
        kept["pages"].as_array().unwrap().len(),
        1,
        "what is kept is known without its source: {kept}"
    );
    assert!(kept["error"]["remedy"].as_str().unwrap().contains("Make the folder"), "{kept}");
}

#[tokio::test]
async fn a_translation_is_a_job() {
    let (_home, serving) = serving().await;
    let ask = format!("{PAGE}/policies/rules.md/translate");
    serving.post(&ask, Some(json!({ "language": "xx" }))).await.refused(400, "invalid");
    let job = serving.post(&ask, Some(json!({ "language": "fr" }))).await.is(202).json();
    assert_eq!((&job["task"], &job["language"]), (&json!("policy"), &json!("fr")), "{job}");
}
