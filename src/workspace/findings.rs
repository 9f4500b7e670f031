//! What the model is asked about a policy, and how its answer is read: finding by finding, so that one it said badly costs
//! only itself. Pure but for the question.

use serde::Deserialize;
use serde_json::{Value, json};

use super::analyze::{AGREEMENT, locate};
use super::documents::Document;
use super::issues::{NewIssue, Passage, Reference, Severity};
use super::llm::{Llm, Question};
use super::pages::Body;
use crate::error::{Error, Kind, Result};

/// Findings of one answer; more is noise.
const FINDINGS_MAX: usize = 200;

#[derive(Deserialize)]
struct Answer {
    issues: Vec<Value>,
}

#[derive(Deserialize)]
struct Found {
    title: String,
    severity: Severity,
    description: Description,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a description is a text, or a list of sentences and quotes with `source` and `excerpt`"
)]
enum Description {
    Words(String),
    Passages(Vec<Piece>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Words(String),
    Quote { source: String, excerpt: String },
}

/// What the model finds in a piece of a policy; what it says badly is an error of its own.
pub async fn ask(
    llm: &Llm,
    agreement: &Body,
    policy: &Document,
    piece: &str,
) -> Result<Vec<Result<NewIssue>>> {
    let material = json!({
        "agreement": { "source": AGREEMENT, "title": agreement.title, "content": agreement.markdown },
        "policy": { "source": policy.source, "title": policy.title, "content": piece },
    })
    .to_string();
    let question = Question { name: "issues", schema: schema(), task: TASK, material: &material };
    let answer: Answer = llm.ask(&question).await?;
    if answer.issues.len() > FINDINGS_MAX {
        let message = format!("the model found more than {FINDINGS_MAX} issues in {}", policy.source);
        return Err(Error::new(Kind::Invalid, message));
    }
    let read = |found: Value| {
        let found: Found = serde_json::from_value(found).map_err(|error| {
            Error::new(Kind::Invalid, format!("it does not fit the schema `issues`: {error}"))
        })?;
        Ok(found.with_places(agreement, policy))
    };
    Ok(answer.issues.into_iter().map(read).collect())
}

const TASK: &str = "You compare a doctoral agreement with a university policy. Report every point where the \
agreement contradicts the policy, or leaves out what the policy demands. For each give a short title, a severity \
(1 minor, 2 notable, 3 grave) and a description: sentences, and quotes as objects with the `source` given with the \
document and an `excerpt` copied from it word for word. Report nothing that is in order.";

fn schema() -> Value {
    let quote = json!({
        "type": "object",
        "properties": { "source": { "type": "string" }, "excerpt": { "type": "string" } },
        "required": ["source", "excerpt"],
        "additionalProperties": false,
    });
    let issue = json!({
        "type": "object",
        "properties": {
            "title": { "type": "string" },
            "severity": { "type": "integer", "enum": [1, 2, 3] },
            "description": { "type": "array", "items": { "anyOf": [{ "type": "string" }, quote] } },
        },
        "required": ["title", "severity", "description"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": { "issues": { "type": "array", "items": issue } },
        "required": ["issues"],
        "additionalProperties": false,
    })
}

impl Found {
    fn with_places(self, agreement: &Body, policy: &Document) -> NewIssue {
        let pieces = match self.description {
            Description::Words(text) => vec![Piece::Words(text)],
            Description::Passages(pieces) => pieces,
        };
        let passage = |piece| match piece {
            Piece::Words(text) => Passage::Text(text),
            Piece::Quote { source, excerpt } => {
                // A source the model made up is taken for the policy: that is the document it was shown.
                let (source, title, content) = if source == AGREEMENT {
                    (AGREEMENT, &agreement.title, &agreement.markdown)
                } else {
                    (policy.source.as_str(), &policy.title, &policy.content)
                };
                let place = locate(content, &excerpt);
                Passage::Reference(Reference {
                    source: source.to_owned(),
                    title: title.clone(),
                    offset: place.map(|(offset, _)| offset),
                    length: place.map(|(_, length)| length),
                    excerpt,
                    unresolved: false,
                })
            }
        };
        NewIssue {
            title: self.title,
            severity: self.severity,
            description: pieces.into_iter().map(passage).collect(),
        }
    }
}
