//! Analysis: the agreement compared with each policy, and an issue for each conflict the model finds.
//!
//! An excerpt is looked up in the document it is said to be from; where it is not found the reference stays and is
//! marked. What is known already, open or resolved, is neither made again nor touched.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::findings;
use super::issues::{Finding, Issue, NewIssue, finding};
use super::llm::Llm;
use super::pages::{Attachment, Body};
use super::policies::Asked;
use super::shelf::{Era, Held};
use super::{Activity, Notes, Workspace, instant, keys, translate};
use crate::error::{Error, Fault, Kind, Result};
use crate::retry::{Patience, backoff_ms};
use crate::store::Expect;

/// What references call the page itself.
pub const AGREEMENT: &str = "agreement";
/// Characters of a policy compared at once; the agreement comes on top.
const PIECE_CHARS: usize = 60_000;
/// An analysis costs money and minutes: a model that is away is asked again soon, one that is bad at it once a day.
const AGAIN: Patience =
    Patience { attempts_max: u32::MAX, wait_ms_first: 60_000, wait_ms_max: 24 * 60 * 60 * 1_000 };
/// One page is analysed within this, or by somebody else.
const ANALYSING: Duration = Duration::from_secs(1_800);

/// What came of an analysis.
#[derive(Debug, Clone, Serialize)]
pub struct Analysis {
    /// The new ones, and those of an analysis that broke off before it could tell of them.
    pub issues: Vec<Issue>,
    /// Policies that could not be read or got no usable answer, findings that cannot be kept, and why.
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
    /// How often that was asked for since it was right, and when it may be asked for again.
    #[serde(default)]
    pub attempts: u32,
    #[serde(default, with = "instant::option", skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
}

impl State {
    pub fn is_stale(&self) -> bool {
        self.vanished || !self.changed.is_empty()
    }

    /// The next attempt is due so long after this one.
    pub fn attempted(&mut self, now: Timestamp, chance: f64) {
        let wait = Duration::from_millis(backoff_ms(&AGAIN, self.attempts.max(1), chance));
        self.not_before = Some(instant::to_ms(now.saturating_add(wait).unwrap_or(now)));
    }
}

/// An analysis on its way.
struct Course<'a> {
    page: &'a str,
    era: &'a Era,
    llm: &'a Llm,
    notes: &'a Notes,
    agreement: Body,
    /// Findings there were before.
    known: BTreeSet<Finding>,
    analysis: Analysis,
    /// Policies that could not be read, and those the model gave no usable answer about.
    unread: BTreeSet<String>,
    unanswered: BTreeSet<String>,
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
        self.scan(page, notes).await?;
        let key = keys::system_key("analysis", Some(page))?;
        let before: Option<Held<State>> = self.shelf.read(&key).await?;
        let issues = self.stored_issues(page).await?;
        let known: BTreeSet<Finding> = issues.iter().map(Issue::finding).collect();
        let untold = self.untold(page, issues).await?;
        let analysis = Analysis { issues: untold, errors: Vec::new() };
        let (unread, unanswered) = (BTreeSet::new(), BTreeSet::new());
        let mut course = Course { page, era, llm, notes, agreement, known, analysis, unread, unanswered };
        for attachment in self.pages.attachments(page).await? {
            // What is listed as a policy is read, or is an error.
            if attachment.no_text {
                continue;
            }
            if let Err(error) = self.compare_one(&mut course, &attachment).await {
                let kept = course.analysis.issues.len();
                let doing = format!(
                    "analysing page {page} (new issues kept so far, for the next analysis to tell: {kept})"
                );
                return Err(if kept > 0 { error.while_(doing) } else { error });
            }
        }
        // What changed and could not be read was not compared, nor was what got no answer: the page stays marked for it.
        let changed = before.as_ref().map(|held| held.what.changed.intersection(&course.unread).cloned());
        let changed = changed.into_iter().flatten().chain(course.unanswered).collect();
        let attempts = before.as_ref().map_or(0, |held| held.what.attempts);
        let expect = before.map_or(Expect::Absent, |held| Expect::Exactly(held.version));
        let now = instant::to_ms(self.shelf.clock.now());
        let mut after = State { generation: era.number, analyzed: Some(now), changed, ..State::default() };
        if after.is_stale() {
            after.attempts = attempts;
            after.attempted(now, self.shelf.clock.chance());
        }
        // A policy that changed meanwhile moved the state on: then the page stays marked.
        self.shelf.put(&key, &after, expect).await?;
        self.shelf.remove_anyway(vec![untold_key(page)?]).await?;
        Ok(course.analysis)
    }

    /// Ask the model about one policy, piece by piece, and keep what it finds.
    async fn compare_one(&self, course: &mut Course<'_>, attachment: &Attachment) -> Result<()> {
        let (page, era, notes, source) = (course.page, course.era, course.notes, attachment.source.as_str());
        let policy = match self.original(&Asked { page, source, era, attachment, notes }).await {
            Ok(policy) => policy,
            Err(error) if is_about_one_policy(&error) => {
                course.analysis.errors.push(Fault::of(&error).at_key(source));
                course.unread.insert(source.to_owned());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for piece in translate::pieces(&policy.content, PIECE_CHARS) {
            notes.say(Activity::Analyzing).await?;
            match findings::ask(course.llm, &course.agreement, &policy, piece).await {
                Ok(found) => self.keep_findings(course, source, found).await?,
                // It is this answer that is no good; the others may be.
                Err(error) if error.kind() == Kind::Invalid => {
                    course.analysis.errors.push(Fault::of(&error).at_key(source));
                    course.unanswered.insert(source.to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What one answer has that was not known before it. Two findings of it may quote the same words.
    async fn keep_findings(
        &self,
        course: &mut Course<'_>,
        source: &str,
        found: Vec<Result<NewIssue>>,
    ) -> Result<()> {
        let (mut issues, mut seen) = (Vec::new(), BTreeSet::new());
        for new in found {
            let issue = match new {
                Ok(new) => {
                    let finding = finding(&new.title, &new.description);
                    let title = new.title.trim().to_owned();
                    if course.known.contains(&finding) || !seen.insert((title, finding)) {
                        continue;
                    }
                    self.new_issue(new)
                }
                Err(error) => Err(error),
            };
            match issue {
                Ok(issue) => issues.push(issue),
                Err(error) => {
                    course.analysis.errors.push(Fault::of(&unusable(course.llm, &error)).at_key(source));
                }
            }
        }
        self.note_untold(course.page, &issues).await?;
        for issue in issues {
            self.store_issue(course.era, course.page, &issue).await?;
            course.known.insert(issue.finding());
            course.analysis.issues.push(issue);
        }
        Ok(())
    }

    /// Those of these issues that an analysis kept and, because it broke off, never told anybody of.
    async fn untold(&self, page: &str, issues: Vec<Issue>) -> Result<Vec<Issue>> {
        let untold: Option<Held<Untold>> = self.shelf.read(&untold_key(page)?).await?;
        let untold = untold.map(|held| held.what.issues).unwrap_or_default();
        Ok(issues.into_iter().filter(|issue| untold.contains(&issue.id)).collect())
    }

    /// Written down before they are kept: an analysis may break off at any moment.
    async fn note_untold(&self, page: &str, issues: &[Issue]) -> Result<()> {
        if issues.is_empty() {
            return Ok(());
        }
        self.shelf
            .update(&untold_key(page)?, |held: Option<Untold>| {
                let mut untold = held.unwrap_or_default();
                untold.issues.extend(issues.iter().map(|issue| issue.id.clone()));
                Some(untold)
            })
            .await
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

/// Issues that were kept and not told yet, by id.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Untold {
    issues: BTreeSet<String>,
}

fn untold_key(page: &str) -> Result<String> {
    keys::system_key("untold", Some(page))
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
