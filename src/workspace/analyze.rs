//! Analysis: the agreement compared with each policy, and an issue for each conflict the model finds.
//!
//! An excerpt is looked up in the document it is said to be from; where it is not found the reference stays and is
//! marked. What is known already, open or resolved, is neither made again nor touched.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::documents::Document;
use super::issues::{Issue, NewIssue, Passage, Reference, Severity, finding};
use super::llm::{Llm, Question};
use super::pages::Body;
use super::policies::Asked;
use super::shelf::{Era, Held};
use super::{Activity, Notes, Workspace, instant, keys, translate};
use crate::error::{Error, Fault, Kind, Result};
use crate::store::Expect;

/// What references call the page itself.
pub const AGREEMENT: &str = "agreement";
/// Characters of a policy compared at once; the agreement comes on top.
const PIECE_CHARS: usize = 60_000;
/// One page is analysed within this, or by somebody else.
const ANALYSING: Duration = Duration::from_secs(1_800);
/// Findings of one answer; more is noise.
const FINDINGS_MAX: usize = 200;

/// What came of an analysis.
#[derive(Debug, Clone, Serialize)]
pub struct Analysis {
    /// The new ones.
    pub issues: Vec<Issue>,
    /// Policies that could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Fault>,
}

/// What is remembered about a page's analysis.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// The page's counter when this was written: what was before a clear counts no more.
    generation: u64,
    #[serde(default, with = "instant::option", skip_serializing_if = "Option::is_none")]
    pub analyzed: Option<Timestamp>,
    /// Policies that changed since, and are there.
    #[serde(default)]
    pub changed: BTreeSet<String>,
    /// A policy went since.
    #[serde(default)]
    vanished: bool,
    /// The job that will put it right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl State {
    pub fn is_stale(&self) -> bool {
        self.vanished || !self.changed.is_empty()
    }
}

#[derive(Deserialize)]
struct Answer {
    issues: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    title: String,
    severity: Severity,
    description: Description,
}

#[derive(Deserialize)]
#[serde(untagged)]
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

impl Workspace {
    /// Compare the page with its policies. Answers with the issues that are new.
    pub async fn analyze(&self, page: &str) -> Result<Analysis> {
        self.analyze_noting(page, &Notes::none()).await
    }

    pub(super) async fn analyze_noting(&self, page: &str, notes: &Notes) -> Result<Analysis> {
        let llm = self.llm()?;
        let era = self.shelf.era(page).await?;
        notes.say(Activity::Locking).await?;
        let turn = self.turns.take(&self.shelf, &["analyze", page], ANALYSING).await?;
        let done = self.compare_all(page, &era, llm, notes).await;
        self.turns.end(&self.shelf, turn).await?;
        done
    }

    async fn compare_all(&self, page: &str, era: &Era, llm: &Llm, notes: &Notes) -> Result<Analysis> {
        let agreement = self.pages.body(page).await?;
        // Listing drops what is stale, so the state read after it knows every change this analysis sees.
        self.policies_noting(page, notes).await?;
        let key = keys::system_key("analysis", Some(page))?;
        let before: Option<Held<State>> = self.shelf.read(&key).await?;
        let mut known: BTreeSet<_> = self.stored_issues(page).await?.iter().map(Issue::finding).collect();
        let mut analysis = Analysis { issues: Vec::new(), errors: Vec::new() };
        let mut unread = BTreeSet::new();
        for attachment in self.pages.attachments(page).await? {
            // What is listed as a policy is read, or is an error.
            if attachment.no_text {
                continue;
            }
            let source = attachment.source.as_str();
            let asked = Asked { page, source, era, attachment: &attachment, notes };
            let policy = match self.original(&asked).await {
                Ok(policy) => policy,
                Err(error) if is_about_one_policy(&error) => {
                    analysis.errors.push(Fault::of(&error).at_key(source));
                    unread.insert(source.to_owned());
                    continue;
                }
                Err(error) => return Err(error),
            };
            for new in compare(llm, &agreement, &policy, notes).await? {
                let finding = finding(&new.title, &new.description);
                if known.contains(&finding) {
                    continue;
                }
                match self.new_issue(new) {
                    Ok(issue) => {
                        self.store_issue(era, page, &issue).await?;
                        known.insert(finding);
                        analysis.issues.push(issue);
                    }
                    Err(error) => analysis.errors.push(Fault::of(&unusable(llm, &error)).at_key(source)),
                }
            }
        }
        // What changed and could not be read was not compared: the page stays marked for it.
        let changed =
            before.as_ref().map(|held| held.what.changed.iter().filter(|source| unread.contains(*source)));
        let changed = changed.into_iter().flatten().cloned().collect();
        let expect = before.map_or(Expect::Absent, |held| Expect::Exactly(held.version));
        let now = instant::to_ms(self.shelf.clock.now());
        let after = State { generation: era.number, analyzed: Some(now), changed, ..State::default() };
        // A policy that changed meanwhile moved the state on: then the page stays marked.
        self.shelf.put(&key, &after, expect).await?;
        Ok(analysis)
    }

    /// What is remembered about a page's analysis; what was before a clear is forgotten.
    pub(super) async fn analysis(&self, page: &str) -> Result<State> {
        let era = self.shelf.era(page).await?;
        let held: Option<Held<State>> = self.shelf.read(&keys::system_key("analysis", Some(page))?).await?;
        let state = held.map(|held| held.what).filter(|state| state.generation == era.number);
        Ok(state.unwrap_or(State { generation: era.number, ..State::default() }))
    }

    /// The analysis of a page no longer holds: a policy changed, or went.
    pub(super) async fn mark_stale(&self, page: &str, source: &str, still_there: bool) -> Result<()> {
        self.note_analysis(page, |state| {
            if still_there {
                state.changed.insert(source.to_owned());
            } else {
                state.changed.remove(source);
                state.vanished = true;
            }
        })
        .await
    }

    pub(super) async fn note_analysis(
        &self,
        page: &str,
        change: impl Fn(&mut State) + Send + Sync,
    ) -> Result<()> {
        let number = self.shelf.era(page).await?.number;
        let key = keys::system_key("analysis", Some(page))?;
        self.shelf
            .update(&key, |held: Option<State>| {
                let fresh = State { generation: number, ..State::default() };
                let before = held.filter(|state| state.generation == number);
                let mut state = before.clone().unwrap_or(fresh);
                change(&mut state);
                (before.as_ref() != Some(&state)).then_some(state)
            })
            .await
    }
}

/// The file itself is at fault, or cannot be had: the other policies can be compared all the same.
fn is_about_one_policy(error: &Error) -> bool {
    matches!(error.kind(), Kind::Invalid | Kind::NotFound | Kind::Unauthorized)
}

/// What the model found cannot be kept; nobody but the model can say it better.
fn unusable(llm: &Llm, error: &Error) -> Error {
    Error::new(Kind::Invalid, format!("{} found an issue that cannot be kept: {error}", llm.name()))
        .remedy_is("The others are kept. Analyse again, or use a model that keeps to what it is asked (`llm.model`).")
}

async fn compare(llm: &Llm, agreement: &Body, policy: &Document, notes: &Notes) -> Result<Vec<NewIssue>> {
    let mut found = Vec::new();
    for piece in translate::pieces(&policy.content, PIECE_CHARS) {
        let material = json!({
            "agreement": { "source": AGREEMENT, "title": agreement.title, "content": agreement.markdown },
            "policy": { "source": policy.source, "title": policy.title, "content": piece },
        })
        .to_string();
        notes.say(Activity::Analyzing).await?;
        let question = Question { name: "issues", schema: schema(), task: TASK, material: &material };
        let answer: Answer = llm.ask(&question).await?;
        if answer.issues.len() > FINDINGS_MAX {
            let message = format!("the model found more than {FINDINGS_MAX} issues in {}", policy.source);
            return Err(Error::new(Kind::Invalid, message));
        }
        found.extend(answer.issues.into_iter().map(|issue| issue.with_places(agreement, policy)));
    }
    Ok(found)
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

/// Where an excerpt is, in characters: as it stands, or with blanks and line ends counted alike.
pub fn locate(content: &str, excerpt: &str) -> Option<(usize, usize)> {
    let excerpt: Vec<&str> = excerpt.split_whitespace().collect();
    let first = excerpt.first()?;
    for (at, _) in content.match_indices(first) {
        if let Some(length) = matched(&content[at..], &excerpt) {
            let offset = content[..at].chars().count();
            return Some((offset, content[at..at + length].chars().count()));
        }
    }
    None
}

/// How many bytes at the beginning of a text are these words, with any blanks between them.
fn matched(text: &str, words: &[&str]) -> Option<usize> {
    let mut rest = text;
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            let trimmed = rest.trim_start();
            if trimmed.len() == rest.len() {
                return None;
            }
            rest = trimmed;
        }
        rest = rest.strip_prefix(word)?;
    }
    Some(text.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_found_whatever_its_line_ends() {
        let content = "Préambule.\n\nEvery candidate has\ntwo   supervisors. Every candidate eats.";
        assert_eq!(locate(content, "Every candidate has two supervisors."), Some((12, 38)));
        assert_eq!(locate(content, "Every candidate eats."), Some((51, 21)));
        assert_eq!(locate(content, "candidate hastwo"), None);
        assert_eq!(locate(content, "nowhere"), None);
        assert_eq!(locate(content, " "), None);
    }
}
