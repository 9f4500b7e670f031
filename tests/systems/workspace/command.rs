//! `trueup page` in a corner: wrong names, missing folders, dead servers, a killed worker.

use std::process::Stdio;

use serde_json::json;

use super::desk::ENGLISH;
use super::model::Model;
use crate::cli::home::Home;
use crate::support;
use crate::support::http::{Reply, Server};

const CONFIG: &str = "[workspaces.w]\npages = { folder = \"pages\" }\ninto = \"sqlite:w.db\"\n";

fn home() -> Home {
    let home = Home::new(CONFIG);
    home.write("pages/anna/policy.md", ENGLISH);
    home
}

#[test]
fn the_recipe_runs_as_it_is() {
    let home = Home::new("");
    home.remove("trueup.toml");
    home.run(&["init", "workspace"]).ends(0);
    home.run(&["check"]).ends(0);
    let listed = home.run(&["page", "policies", "welcome", "--json"]).ends(0).json();
    assert_eq!(listed["policies"][0]["source"], "supervision.md");
    home.run(&["page", "policy", "welcome", "supervision.md"]).ends(0);
}

#[test]
fn wrong_names_are_answered_with_what_there_is() {
    let home = home();
    home.run(&["page", "policies", "ana"]).ends(1).says(&["there is no page ana", "anna"]);
    home.run(&["page", "policy", "anna", "polcy.md"]).ends(1).says(&["did you mean `policy.md`?"]);
    home.run(&["page", "policy", "anna", "policy.md", "--language", "xx"]).ends(1).says(&["de, en, es, fr"]);
    home.run(&["page", "issue", "resolve", "anna", "x"]).ends(1).says(&["no issue x", "page issues anna"]);
    home.run(&["page", "issues", "nobody"]).ends(1).says(&["there is no page nobody"]);
    home.run(&["page", "issue", "create", "nobody", "--title", "x"])
        .ends(1)
        .says(&["there is no page nobody"]);
    home.run(&["page", "policies", "a:b"]).ends(1).says(&["':'"]);
    home.run(&["page", "policies", ".."]).ends(1).says(&["cannot be a page"]);
    home.run(&["page", "policies", "system"]).ends(1).says(&["cannot be a page"]);
    home.run(&["page", "issue", "classify", "anna", "x", "4"]).ends(2);
    home.run(&["page", "policy", "anna", "policy.md", "--language", "fr"]).ends(2).says(&["llm ="]);
    home.run(&["page", "analyze", "anna"]).ends(2).says(&["llm ="]);
    home.run(&["page", "policies", "anna", "--workspace", "x"]).ends(2).says(&["no workspace x", "w"]);
    let error = home.run(&["page", "issue", "resolve", "anna", "x", "--json"]).ends(1).json();
    assert_eq!(error["error"]["kind"], "not_found");
}

#[test]
fn several_workspaces_ask_for_a_name_and_none_for_a_config() {
    let second = CONFIG.replace("workspaces.w", "workspaces.v").replace("w.db", "v.db");
    let home = Home::new(&format!("{CONFIG}{second}"));
    home.write("pages/anna/policy.md", ENGLISH);
    home.run(&["page", "policies", "anna"]).ends(2).says(&["--workspace NAME", "v, w"]);
    home.run(&["page", "--workspace", "v", "policies", "anna"]).ends(0);
    let shared = CONFIG.replace("workspaces.w", "workspaces.v");
    Home::new(&format!("{CONFIG}{shared}")).run(&["check"]).ends(2).says(&["two writers whose keys overlap"]);
    Home::new("").run(&["page", "policies", "anna"]).ends(2).says(&["init workspace"]);
}

#[test]
fn what_cannot_be_reached_is_told_apart() {
    let home = home();
    std::fs::remove_dir_all(home.path("pages")).unwrap();
    home.run(&["page", "policies", "anna"]).ends(1).says(&["the folder of pages"]);
    let checks = home.run(&["check", "--json"]).ends(1).json();
    assert_eq!(checks["checks"][2]["ok"], false, "{checks}");
    let refusing = Server::start(|_| Reply::status(401));
    let dead = "http://127.0.0.1:9";
    let confluence = |url: &str| {
        CONFIG.replace("folder = \"pages\"", &format!("confluence = \"{url}\", token_env = \"WIKI_TOKEN\""))
    };
    home.write("trueup.toml", &confluence(dead));
    home.run(&["page", "policies", "anna"]).ends(5).says(&["attachments of page anna"]);
    home.write("trueup.toml", &confluence(&refusing.url("")));
    let mut command = home.command(&["page", "policies", "anna", "--json"]);
    let ran = command.env("WIKI_TOKEN", "hunter2").output().unwrap();
    assert_eq!(ran.status.code(), Some(6));
    let said = [ran.stdout, ran.stderr].concat();
    assert!(!String::from_utf8_lossy(&said).contains("hunter2"));
    assert_eq!(refusing.requests()[0].headers["authorization"], "Bearer hunter2");
    let model = Model::new();
    home.write("trueup.toml", &format!("{CONFIG}llm = {}\n", model.llm()));
    home.write("pages/anna/policy.md", ENGLISH);
    home.run(&["check"]).ends(0);
    home.write(
        "trueup.toml",
        &format!("{CONFIG}llm = {{ url = \"{}\", model = \"m\" }}\n", refusing.url("/v1")),
    );
    home.run(&["check"]).ends(6);
}

#[tokio::test]
async fn s17_a_worker_killed_in_the_middle_is_found_out() {
    let silent = Server::start(|_| Reply::silence());
    let home = Home::new(&format!("{CONFIG}llm = {{ url = \"{}\", model = \"m\" }}\n", silent.url("/v1")));
    home.write("pages/anna/policy.md", ENGLISH);
    home.write("pages/anna/page.md", "# Agreement\n\nThe candidate has one supervisor.\n");
    home.run(&["page", "policy", "anna", "policy.md"]).ends(0);
    home.write("pages/anna/policy.md", &format!("{ENGLISH}\n\nAs amended."));
    home.run(&["page", "policies", "anna"]).ends(0);
    let mut worker = home.command(&["page", "jobs", "--work"]).stderr(Stdio::null()).spawn().unwrap();
    support::until("the worker asks the model", || silent.count("completions") > 0).await;
    worker.kill().unwrap();
    worker.wait().unwrap();
    let jobs = home.run(&["page", "jobs", "--json"]).ends(0).json();
    assert_eq!(
        (&jobs["jobs"][0]["kind"], &jobs["jobs"][0]["activity"]),
        (&json!("activity"), &json!("analyzing"))
    );
    let later = ["--now", "2099-01-01T00:00:00Z"];
    let jobs = home.run(&[&["page", "jobs", "--json"][..], &later].concat()).ends(0).json();
    assert_eq!(
        (&jobs["jobs"][0]["kind"], &jobs["jobs"][0]["code"]),
        (&json!("error"), &json!(504)),
        "{jobs}"
    );
}

#[test]
fn a_hundred_processes_edit_one_issue_and_lose_nothing() {
    let home = home();
    let created = home.run(&["page", "issue", "create", "anna", "--title", "x", "--json"]).ends(0).json();
    let id = created["id"].as_str().unwrap();
    let edits = [["classify", "3"], ["annotate", "seen"], ["resolve", ""]];
    let start = |at: &usize| {
        let [verb, value] = edits[at % edits.len()];
        let args = ["page", "issue", verb, "anna", id, value];
        let args = if value.is_empty() { &args[..5] } else { &args[..] };
        home.command(args).stdout(Stdio::null()).spawn().unwrap()
    };
    // A few at a time: each waits for the file, but not for ever.
    let all: Vec<usize> = (0..100).collect();
    for few in all.chunks(8) {
        let started: Vec<_> = few.iter().map(start).collect();
        for mut process in started {
            assert!(process.wait().unwrap().success());
        }
    }
    let issues = home.run(&["page", "issues", "anna", "--json"]).ends(0).json();
    let issue = &issues["issues"][0];
    assert_eq!((&issue["severity"], &issue["annotations"]), (&json!(3), &json!("seen")));
    assert!(issue["resolved"].is_string());
}

#[test]
fn pages_that_are_gone_are_purged_on_the_way() {
    let home = home();
    home.write("pages/berta/policy.md", ENGLISH);
    for page in ["anna", "berta"] {
        home.run(&["page", "policy", page, "policy.md"]).ends(0);
    }
    std::fs::remove_dir_all(home.path("pages/berta")).unwrap();
    home.run(&["page", "policies", "anna"]).ends(0);
    assert!(home.keys("sqlite:w.db").contains(&"berta:policy:policy.md".to_owned()), "once a day");
    let purged = home.run(&["page", "purge", "--json"]).ends(0).json();
    assert_eq!(purged["ran"], false);
    let later = home.run(&["page", "policies", "anna", "--now", "2099-01-01T00:00:00Z"]).ends(0);
    assert!(later.out.contains("policy.md"), "{}", later.out);
    assert!(!home.keys("sqlite:w.db").contains(&"berta:policy:policy.md".to_owned()));
}

#[test]
fn the_demo_tells_of_it_and_says_that_its_model_is_a_stand_in() {
    let home = Home::new("");
    let told = home.run(&["demo"]).ends(0);
    for said in ["STAND-IN", "$ trueup page analyze anna", "Policies changed since the page was analysed."] {
        assert!(told.out.contains(said), "nothing about {said} in:\n{}", told.out);
    }
    let steps = home.run(&["demo", "--json"]).ends(0).json();
    assert!(steps["demo"].as_array().unwrap().iter().any(|step| step["command"] == "page analyze anna"));
}
