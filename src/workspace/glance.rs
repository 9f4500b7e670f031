//! Pages at a glance: which there are, and what is kept of each.
//!
//! A look at the store alone, so that a list of pages asks nothing of a wiki and changes nothing: whether a policy
//! changed since is only found out by looking at its page.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use super::issues::Severity;
use super::keys::{self, Key};
use super::language::Language;
use super::{Workspace, instant};
use crate::error::{Fault, Result};
use crate::store::{StoreExt as _, What};

/// Some pages of a workspace, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listing {
    pub pages: Vec<Glance>,
    /// There are more after the last of these.
    pub more: bool,
    /// Why pages nothing is kept of may be missing here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

/// What is kept of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Glance {
    pub page: String,
    /// Policies that were read.
    pub policies: usize,
    /// Languages there are translations in.
    pub languages: BTreeSet<Language>,
    /// Issues that wait for somebody.
    pub pending: usize,
    pub resolved: usize,
    /// The gravest of those that wait.
    pub gravest: Option<Severity>,
    #[serde(with = "instant::option", skip_serializing_if = "Option::is_none")]
    pub analyzed: Option<Timestamp>,
    /// A policy changed or went since.
    pub analysis_stale: bool,
}

impl Workspace {
    /// Pages the source can name and pages something is kept of, after a name, so many at most.
    pub async fn listing(&self, after: Option<&str>, limit: usize) -> Result<Listing> {
        let mut names: BTreeSet<String> = self.pages_with_keys().await?.into_iter().collect();
        let error = match self.pages.names().await {
            Ok(known) => {
                names.extend(known.into_iter().filter(|name| keys::check_page(name).is_ok()));
                None
            }
            Err(error) => Some(Fault::of(&error)),
        };
        let mut names = names.into_iter().filter(|name| after.is_none_or(|after| name.as_str() > after));
        let mut pages = Vec::new();
        for name in names.by_ref().take(limit) {
            pages.push(self.glance(&name).await?);
        }
        Ok(Listing { pages, more: names.next().is_some(), error })
    }

    pub async fn glance(&self, page: &str) -> Result<Glance> {
        let (mut policies, mut languages) = (0, BTreeSet::new());
        for line in self.shelf.store.list_all(&keys::policy_prefix(page)?, What::Keys).await? {
            match Key::parse(&line.key) {
                Some(Key::Policy { language: Some(language), .. }) => drop(languages.insert(language)),
                Some(Key::Policy { language: None, .. }) => policies += 1,
                _ => {}
            }
        }
        let issues = self.stored_issues(page).await?;
        let pending: Vec<Severity> =
            issues.iter().filter(|issue| issue.resolved.is_none()).map(|issue| issue.severity).collect();
        let analysis = self.analysis(page).await?;
        Ok(Glance {
            page: page.to_owned(),
            policies,
            languages,
            pending: pending.len(),
            resolved: issues.len() - pending.len(),
            gravest: pending.into_iter().max(),
            analyzed: analysis.analyzed,
            analysis_stale: analysis.is_stale(),
        })
    }
}
