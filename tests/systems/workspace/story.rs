//! One afternoon of somebody who compares an agreement with policies, told by the program itself.

use std::path::Path;

use serde_json::{Value, json};

use super::desk::{ENGLISH, ITALIAN};
use super::model::Model;
use super::papers;
use crate::cli::home::{Home, Ran};

const SWEDISH: &str = "Varje doktorand ska ha minst två handledare som är anställda vid universitetet. Handledare och doktorand träffas minst fyra gånger per år.";

struct Afternoon {
    home: Home,
    model: Model,
}

impl Afternoon {
    fn begin() -> Self {
        let model = Model::new();
        let config = format!(
            "[workspaces.agreements]\npages = {{ folder = \"pages\" }}\ninto = \"sqlite:.trueup/agreements.db\"\nllm = {}\n",
            model.llm()
        );
        let afternoon = Afternoon { home: Home::new(&config), model };
        for (name, text) in [("supervision", ENGLISH), ("tesi", ITALIAN), ("moten", SWEDISH)] {
            papers::pdf(&afternoon.page(&format!("{name}.pdf")), text);
        }
        afternoon.home.write("pages/anna/page.md", "# Agreement\n\nThe candidate has one supervisor.\n");
        afternoon
    }

    fn page(&self, name: &str) -> std::path::PathBuf {
        self.home.path(&format!("pages/anna/{name}"))
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Ran {
        self.home.run(&[&["page"], args].concat()).ends(0)
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        self.run(&[args, &["--json"]].concat()).json()
    }

    /// By source: the languages there are, and whether the copy was dropped.
    fn policies(&self) -> Value {
        let listed = self.json(&["policies", "anna"]);
        let policies = listed["policies"].as_array().unwrap();
        let one = |policy: &Value| {
            (policy["source"].as_str().unwrap().to_owned(), json!([policy["languages"], policy["stale"]]))
        };
        let mut all: serde_json::Map<String, Value> = policies.iter().map(one).collect();
        all.insert("analysis_stale".into(), listed["analysis_stale"].clone());
        Value::Object(all)
    }
}

#[test]
fn an_afternoon_with_three_policies_and_an_agreement() {
    let day = Afternoon::begin();
    let none = json!([[], false]);
    assert_eq!(
        day.policies(),
        json!({ "supervision.pdf": none, "tesi.pdf": none, "moten.pdf": none, "analysis_stale": false })
    );
    let french = day.json(&["policy", "anna", "tesi.pdf", "--language", "fr"]);
    assert_eq!((&french["language"], &french["original"]), (&json!("fr"), &json!(false)));
    assert_eq!(french["content"], format!("[French] {ITALIAN}"));
    day.json(&["policy", "anna", "tesi.pdf", "--language", "fr"]);
    assert_eq!(day.model.translations(), 1);

    day.model.finds(vec![json!({ "title": "Only one supervisor", "severity": 2, "description": [
        "The policy asks for two.",
        { "source": "agreement", "excerpt": "The candidate has one supervisor." },
        { "source": "supervision.pdf", "excerpt": "at least two supervisors" },
    ] })]);
    let found = day.json(&["analyze", "anna"]);
    let id = found["issues"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(found["issues"].as_array().unwrap().len(), 1);
    assert_eq!(day.json(&["analyze", "anna"])["issues"], json!([]), "known already");
    assert_eq!(day.json(&["issue", "classify", "anna", &id, "3"])["severity"], 3);
    assert_eq!(day.json(&["issue", "annotate", "anna", &id, "*Ask Anna.*"])["annotations"], "*Ask Anna.*");
    assert!(day.json(&["issue", "resolve", "anna", &id])["resolved"].is_string());
    let text = day.run(&["issues", "anna"]).out;
    for said in ["severity 3", "resolved", "Only one supervisor", "> at least two supervisors", "*Ask Anna.*"]
    {
        assert!(text.contains(said), "nothing about {said} in:\n{text}");
    }
    day.replaced_policy(&id);
}

impl Afternoon {
    fn replaced_policy(&self, resolved: &str) {
        papers::pdf(&self.page("tesi.pdf"), &format!("{ITALIAN} Il terzo supervisore è facoltativo."));
        let seen = self.policies();
        assert_eq!((&seen["tesi.pdf"], &seen["analysis_stale"]), (&json!([[], true]), &json!(true)));
        let french = self.json(&["policy", "anna", "tesi.pdf", "--language", "fr"]);
        assert!(french["content"].as_str().unwrap().contains("facoltativo"), "{french}");
        assert_eq!(self.model.translations(), 2, "made again, once");
        let seen = self.policies();
        assert_eq!(
            (&seen["tesi.pdf"], &seen["analysis_stale"]),
            (&json!([["it", "fr"], false]), &json!(true))
        );
        // The model is there, so an analysis was queued; nothing known comes up again.
        let done = self.json(&["jobs", "--work"]);
        assert_eq!(
            (&done["jobs"][0]["task"], &done["jobs"][0]["kind"]),
            (&json!("reanalyze"), &json!("value")),
            "{done}"
        );
        assert_eq!(done["jobs"][0]["value"]["issues"], json!([]));
        assert_eq!(self.policies()["analysis_stale"], json!(false));
        let issues = self.json(&["issues", "anna"]);
        assert_eq!(issues["issues"].as_array().unwrap().len(), 1);
        assert_eq!(issues["issues"][0]["id"], resolved);
        assert!(issues["issues"][0]["resolved"].is_string(), "a resolved issue stays resolved");
        assert!(Path::new(&self.home.path(".trueup/agreements.db")).exists());
    }
}
