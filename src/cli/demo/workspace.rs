//! The demo's last chapter: a page, a policy, and a model that is none.

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{Step, Story, loopback};
use crate::cli::page::Verb;
use crate::error::Result;

const AGREEMENT: &str = "# Agreement\n\nThe candidate is supervised by one professor.\n";
const POLICY: &str = "# Policy on supervision\n\nEvery doctoral candidate has at least two supervisors employed by the university.\n";

impl Story<'_> {
    /// Policies of a page: read, translated, compared; and what happens when one changes.
    pub(super) async fn workspace(&mut self) -> Result<()> {
        let model = stand_in().await?;
        let config = format!(
            "[workspaces.agreements]\npages = {{ folder = \"pages\" }}\ninto = \"sqlite:.trueup/agreements.db\"\n\
             llm = {{ url = \"{model}\", model = \"stand-in\" }}\nreanalyze = \"mark\"\n"
        );
        self.write("workspace.toml", &config)?;
        self.write("pages/anna/page.md", AGREEMENT)?;
        self.write("pages/anna/supervision.md", POLICY)?;
        self.with_config("workspace.toml", async |story| story.afternoon().await).await
    }

    async fn afternoon(&mut self) -> Result<()> {
        let anna = || "anna".to_owned();
        self.say(
            "Another system: pages with policies. The model here is a STAND-IN inside this demo, which only pretends \
             to translate and to think.",
        );
        let policy =
            || Verb::Policy { page: anna(), source: "supervision.md".into(), language: Some("fr".into()) };
        self.step("page policy anna supervision.md --language fr", 0, Step::Page(policy())).await?;
        self.step("page policies anna", 0, Step::Page(Verb::Policies { page: anna() })).await?;
        self.step("page analyze anna", 0, Step::Page(Verb::Analyze { page: anna() })).await?;
        self.say("The policy changes: its copies go, and the page says that its analysis is stale.");
        self.write("pages/anna/supervision.md", &format!("{POLICY}\nThey meet four times a year.\n"))?;
        self.step("page policies anna", 0, Step::Page(Verb::Policies { page: anna() })).await
    }
}

/// A server on loopback that speaks as a model's would. Its address.
async fn stand_in() -> Result<String> {
    let answer = async |Json(question): Json<Value>| {
        let content = pretend(&question).to_string();
        Json(json!({ "choices": [{ "finish_reason": "stop", "message": { "content": content } }] }))
    };
    Ok(format!("{}/v1", loopback::serve(Router::new().fallback(post(answer))).await?))
}

fn pretend(question: &Value) -> Value {
    match question["response_format"]["json_schema"]["name"].as_str() {
        Some("translation") => json!({
            "title": "supervision.md (stand-in)",
            "content": "# Règlement sur l'encadrement\n\n*(Traduit par la doublure de la démonstration.)* Chaque \
                        doctorant a au moins deux directeurs employés par l'université.",
        }),
        _ => json!({ "issues": [{
            "title": "One supervisor where the policy asks for two",
            "severity": 2,
            "description": [
                "The stand-in of the demo says:",
                { "source": "agreement", "excerpt": "The candidate is supervised by one professor." },
                { "source": "supervision.md", "excerpt": "at least two supervisors" },
            ],
        }] }),
    }
}
