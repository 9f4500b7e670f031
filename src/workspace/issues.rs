//! Issues of a page: made, classified, annotated, resolved, reopened; each verb by itself, each compare-and-set.
//!
//! Refuses severities other than 1, 2 and 3, and ids that are not there. Never deletes: only `clear` and `purge` do.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::analyze::{AGREEMENT, locate};
use super::documents;
use super::pages::Attachment;
use super::shelf::{Held, Shelf, crowded};
use super::{Workspace, instant, keys};
use crate::error::{Error, Kind, Result};
use crate::store::Expect;

/// Longest title, in characters: a line for a list, not a text.
const TITLE_CHARS_MAX: usize = 500;
/// Longest description or annotation, in bytes: far below any store's limit for a value.
const TEXT_BYTES_MAX: usize = 128 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issue {
    /// A UUID.
    pub id: String,
    #[serde(with = "instant")]
    pub created: Timestamp,
    #[serde(default, with = "instant::option", skip_serializing_if = "Option::is_none")]
    pub updated: Option<Timestamp>,
    #[serde(default, with = "instant::option", skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Timestamp>,
    pub severity: Severity,
    pub title: String,
    pub description: Vec<Passage>,
    /// Markdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<String>,
}

/// 1, 2 or 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Severity(u8);

impl Severity {
    pub const LOWEST: Severity = Severity(1);

    pub fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u64> for Severity {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self> {
        match number {
            1..=3 => Ok(Severity(u8::try_from(number).unwrap_or(1))),
            _ => Err(Error::new(Kind::Invalid, format!("{number} is no severity"))
                .remedy_is("Severities are 1, 2 and 3.")),
        }
    }
}

impl From<Severity> for u64 {
    fn from(severity: Severity) -> u64 {
        severity.0.into()
    }
}

/// A piece of a description: words, or a place in a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Passage {
    Text(String),
    Reference(Reference),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    pub source: String,
    pub title: String,
    pub excerpt: String,
    /// Where the excerpt begins in the document's content, in characters; absent when it is not there verbatim.
    pub offset: Option<usize>,
    pub length: Option<usize>,
    /// Said on reading: the document it points to is gone, or the excerpt is not in it, as far as it was read.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unresolved: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for this signature
fn is_false(flag: &bool) -> bool {
    !flag
}

/// What an issue begins with.
#[derive(Debug, Clone)]
pub struct NewIssue {
    pub title: String,
    pub severity: Severity,
    pub description: Vec<Passage>,
}

/// What makes two issues the same finding: the places they point to; without any, their words.
pub type Finding = BTreeSet<(String, String)>;

impl Issue {
    pub fn finding(&self) -> Finding {
        finding(&self.title, &self.description)
    }

    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        self.description.iter().filter_map(|passage| match passage {
            Passage::Reference(reference) => Some(reference),
            Passage::Text(_) => None,
        })
    }
}

pub fn finding(title: &str, description: &[Passage]) -> Finding {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let places: BTreeSet<_> = description
        .iter()
        .filter_map(|passage| match passage {
            Passage::Reference(place) => Some((place.source.clone(), words(&place.excerpt))),
            Passage::Text(_) => None,
        })
        .collect();
    if places.is_empty() { BTreeSet::from([(String::new(), words(title))]) } else { places }
}

impl Workspace {
    /// Every issue of a page, oldest first. References to documents that are gone are marked.
    pub async fn issues(&self, page: &str) -> Result<Vec<Issue>> {
        let mut issues = self.stored_issues(page).await?;
        if issues.is_empty() {
            self.require_page(page).await?;
            return Ok(issues);
        }
        self.mark_unresolved(page, &mut issues).await;
        Ok(issues)
    }

    pub async fn issue(&self, page: &str, id: &str) -> Result<Issue> {
        let held = self.held_issue(page, id).await?;
        let mut issues = vec![held.what];
        self.mark_unresolved(page, &mut issues).await;
        issues.pop().ok_or_else(|| Error::bug("an issue went missing"))
    }

    pub async fn issue_create(&self, page: &str, new: NewIssue) -> Result<Issue> {
        let era = self.shelf.era(page).await?;
        self.require_page(page).await?;
        let issue = self.new_issue(new)?;
        self.store_issue(&era, page, &issue).await?;
        Ok(issue)
    }

    pub async fn issue_classify(&self, page: &str, id: &str, severity: Severity) -> Result<Issue> {
        self.edit(page, id, |issue, _| issue.severity = severity).await
    }

    /// Replace the notes; an empty text removes them.
    pub async fn issue_annotate(&self, page: &str, id: &str, markdown: &str) -> Result<Issue> {
        check_text("an annotation", markdown)?;
        let notes = (!markdown.is_empty()).then(|| markdown.to_owned());
        self.edit(page, id, |issue, _| issue.annotations.clone_from(&notes)).await
    }

    /// The first instant is kept, however often it is resolved.
    pub async fn issue_resolve(&self, page: &str, id: &str) -> Result<Issue> {
        self.edit(page, id, |issue, now| issue.resolved = issue.resolved.or(Some(now))).await
    }

    pub async fn issue_reopen(&self, page: &str, id: &str) -> Result<Issue> {
        self.edit(page, id, |issue, _| issue.resolved = None).await
    }

    pub(super) fn new_issue(&self, new: NewIssue) -> Result<Issue> {
        let title = new.title.trim();
        if title.is_empty() || title.chars().count() > TITLE_CHARS_MAX {
            let message = format!("an issue needs a title of at most {TITLE_CHARS_MAX} characters");
            return Err(Error::new(Kind::Invalid, message).remedy_is("Say in one line what is wrong."));
        }
        for passage in &new.description {
            match passage {
                Passage::Text(text) => check_text("a description", text)?,
                Passage::Reference(reference) => check_excerpt(&reference.excerpt)?,
            }
        }
        Ok(Issue {
            id: self.uuid(),
            created: instant::to_ms(self.shelf.clock.now()),
            updated: None,
            resolved: None,
            severity: new.severity,
            title: title.to_owned(),
            description: new.description,
            annotations: None,
        })
    }

    pub(super) async fn store_issue(&self, era: &super::shelf::Era, page: &str, issue: &Issue) -> Result<()> {
        let key = keys::issue_key(page, &issue.id)?;
        let sealed = self.shelf.seal(issue)?;
        match self.shelf.put_row(era, &key, sealed, Expect::Absent).await? {
            Some(_) => Ok(()),
            None => Err(Error::bug("two issues were given one id")),
        }
    }

    pub(super) async fn stored_issues(&self, page: &str) -> Result<Vec<Issue>> {
        let held = self.shelf.all::<Issue>(&keys::issue_prefix(page)?).await?;
        let mut issues: Vec<Issue> = held.into_iter().map(|(_, held)| held.what).collect();
        issues.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        Ok(issues)
    }

    async fn held_issue(&self, page: &str, id: &str) -> Result<Held<Issue>> {
        self.shelf.read(&keys::issue_key(page, id)?).await?.ok_or_else(|| unknown(page, id))
    }

    /// Read, change, write if nobody else did meanwhile; again until it is done.
    async fn edit(
        &self,
        page: &str,
        id: &str,
        change: impl Fn(&mut Issue, Timestamp) + Send + Sync,
    ) -> Result<Issue> {
        let key = keys::issue_key(page, id)?;
        let _turn = self.turns.local(&key).await;
        for round in Shelf::rounds() {
            let era = self.shelf.era(page).await?;
            let held = self.held_issue(page, id).await?;
            let mut issue = held.what;
            let now = instant::to_ms(self.shelf.clock.now());
            change(&mut issue, now);
            issue.updated = Some(now);
            let sealed = self.shelf.seal(&issue)?;
            match self.shelf.put_row(&era, &key, sealed, Expect::Exactly(held.version)).await {
                Ok(Some(_)) => return Ok(issue),
                Ok(None) => self.shelf.pause(round).await,
                // Cleared in between: the next look finds the issue gone.
                Err(error) if error.kind() == Kind::Conflict => self.shelf.pause(round).await,
                Err(error) => return Err(error),
            }
        }
        Err(crowded(&key))
    }

    /// A look at what the page has now; when that cannot be had, nothing is said of the references.
    async fn mark_unresolved(&self, page: &str, issues: &mut [Issue]) {
        let places = issues.iter_mut().flat_map(|issue| issue.description.iter_mut());
        let mut places: Vec<&mut Reference> = places
            .filter_map(|passage| match passage {
                Passage::Reference(reference) => Some(reference),
                Passage::Text(_) => None,
            })
            .collect();
        if places.is_empty() {
            return;
        }
        let there: Option<Vec<Attachment>> = match self.pages.attachments(page).await {
            Ok(attachments) => Some(attachments),
            Err(error) if error.kind() == Kind::NotFound => Some(Vec::new()),
            Err(_) => None,
        };
        let mut texts: BTreeMap<String, Text> = BTreeMap::new();
        for place in &mut places {
            if let Some(there) = &there
                && place.source != AGREEMENT
            {
                if !texts.contains_key(&place.source) {
                    texts.insert(place.source.clone(), self.text(page, &place.source, there).await);
                }
                place.look_into(&texts[&place.source]);
            }
            place.unresolved |= place.offset.is_none();
        }
    }

    /// What a policy says, as far as it was read.
    async fn text(&self, page: &str, source: &str, there: &[Attachment]) -> Text {
        let Some(attachment) = there.iter().find(|attachment| attachment.source == source) else {
            return Text::Gone;
        };
        let Ok(copies) = documents::copies(&self.shelf, page, source).await else { return Text::Unknown };
        if copies.rows().any(|row| row.is_stale(attachment)) {
            return Text::Changed;
        }
        let Some(original) = copies.original else {
            let changed = self.analysis(page).await.is_ok_and(|state| state.changed.contains(source));
            return if changed { Text::Changed } else { Text::Unknown };
        };
        match documents::whole(&self.shelf, page, &original.what).await {
            Ok(Some(document)) => Text::Says(document.content),
            _ => Text::Unknown,
        }
    }
}

/// A policy that is quoted.
enum Text {
    Gone,
    /// It is another since, and nobody has read that yet.
    Changed,
    Says(String),
    /// Nothing contradicts what was found when it was quoted.
    Unknown,
}

impl Reference {
    /// Where the quote is now.
    fn look_into(&mut self, text: &Text) {
        let place = match text {
            Text::Unknown => return,
            Text::Gone => {
                self.unresolved = true;
                return;
            }
            Text::Changed => None,
            Text::Says(content) => locate(content, &self.excerpt),
        };
        (self.offset, self.length) = (place.map(|it| it.0), place.map(|it| it.1));
    }
}

fn unknown(page: &str, id: &str) -> Error {
    Error::new(Kind::NotFound, format!("page {page} has no issue {}", id.escape_debug()))
        .remedy_is(format!("`trueup page issues {page}` lists the issues there are."))
}

/// A quote of nothing points nowhere, and all such would pass for one finding.
fn check_excerpt(excerpt: &str) -> Result<()> {
    if excerpt.trim().is_empty() {
        return Err(
            Error::new(Kind::Invalid, "an excerpt is empty").remedy_is("Quote the words that are meant.")
        );
    }
    check_text("an excerpt", excerpt)
}

fn check_text(what: &str, text: &str) -> Result<()> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{what} of {} bytes; {TEXT_BYTES_MAX} at most", text.len());
    Err(Error::new(Kind::Invalid, message).remedy_is("Keep long texts elsewhere and link to them."))
}
