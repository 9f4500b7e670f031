//! Purge and clear: the only two ways by which what people made goes away.
//!
//! `purge` asks the source about every page there are keys of, and removes the keys of those that are *gone*: only keys
//! that parse as a policy's or an issue's, and only values that name this workspace. One runs at a time, by a claim on
//! `system:purged` that is a date: while a purge runs it lies so that a crash makes the next one due within the hour.
//! `clear` removes what begins with `{page}:` and nothing else.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::documents::is_part;
use super::keys::{self, Key};
use super::pages::Existence;
use super::{Workspace, instant};
use crate::clock::rfc3339_ms;
use crate::error::{Fault, Result};
use crate::record::Version;
use crate::store::{Expect, Item, Listed, Query, StoreExt, What};

/// A purge that crashed is tried again after this.
const RETRY: Duration = Duration::from_secs(3_600);
/// Pages asked about at the same time: enough to be quick, few enough for a server that others use too.
const AT_ONCE: usize = 8;
/// Greater than every character of a key: what follows all keys with a prefix.
const AFTER_ALL: char = '\u{10FFFF}';

#[derive(Debug, Clone, Serialize)]
pub struct Purged {
    /// False: it was not due, or somebody else is at it.
    pub ran: bool,
    /// Pages asked about.
    pub pages: usize,
    /// Pages that are gone.
    pub gone: Vec<String>,
    /// Pages nothing could be found out about; they stay.
    pub unknown: Vec<Fault>,
    /// Keys removed.
    pub removed: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct Cleared {
    pub page: String,
    /// Keys removed.
    pub removed: usize,
}

impl Workspace {
    /// Remove everything of a page. Whoever began to write before this writes nothing any more.
    pub async fn clear(&self, page: &str) -> Result<Cleared> {
        let prefix = keys::page_prefix(page)?;
        self.shelf.end_era(page).await?;
        let mut removed = 0;
        let mut after: Option<String> = None;
        loop {
            let found =
                self.shelf.store.list(Query { after: after.as_deref(), ..Query::keys(&prefix) }).await?;
            after = found.items.last().map(|line| line.key.clone());
            // An edit that came in between went to a row that is to go: it goes with it.
            removed +=
                self.shelf.remove_anyway(found.items.into_iter().map(|line| line.key).collect()).await?;
            if !found.more {
                return Ok(Cleared { page: page.to_owned(), removed });
            }
        }
    }

    /// Remove the keys of pages that are gone, if it is time or `force` says so.
    pub async fn purge(&self, force: bool) -> Result<Purged> {
        let nothing = Purged { ran: false, pages: 0, gone: Vec::new(), unknown: Vec::new(), removed: 0 };
        let Some(claim) = self.claim_purge(force).await? else { return Ok(nothing) };
        let pages = self.pages_with_keys().await?;
        let mut purged = Purged { ran: true, pages: pages.len(), ..nothing };
        let asked = pages.into_iter().map(|page| async move {
            let existence = self.pages.exists(&page).await;
            (page, existence)
        });
        let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE);
        while let Some((page, existence)) = answers.next().await {
            match existence {
                Existence::Exists => {}
                Existence::Gone => {
                    purged.removed += self.remove_gone(&page).await?;
                    purged.gone.push(page);
                }
                Existence::Unknown(error) => purged.unknown.push(Fault::of(&error).at_scope(page)),
            }
        }
        purged.gone.sort();
        purged.unknown.sort_by(|a, b| a.scope.cmp(&b.scope));
        let done = Item::put(PURGED, rfc3339_ms(self.shelf.clock.now())).expecting(Expect::Exactly(claim));
        // Somebody who thought us dead has the claim now; the next date is theirs.
        self.shelf.store.write_one(done).await?;
        Ok(purged)
    }

    /// The claim's version, if it is time for a purge and nobody else has it.
    async fn claim_purge(&self, force: bool) -> Result<Option<Version>> {
        let now = self.shelf.clock.now();
        let held = self.shelf.store.get_one(PURGED).await?;
        let last = held.as_ref().and_then(|stored| date(&stored.value));
        if !force && last.is_some_and(|last| !self.is_due(last, now)) {
            return Ok(None);
        }
        // Dated so that it is due again after `RETRY`, unless a purge that ends says otherwise.
        let back = self.purge_every.saturating_sub(RETRY.min(self.purge_every / 2));
        let dated = now.saturating_sub(back).unwrap_or(now);
        let expect = held.map_or(Expect::Absent, |stored| Expect::Exactly(stored.version));
        // A claim always differs from the one before it, or a second claimant would take it for its own.
        let claim = format!("{} {:016x}", rfc3339_ms(dated), self.shelf.clock.random());
        match self.shelf.store.write_one(Item::put(PURGED, claim).expecting(expect)).await? {
            crate::store::Outcome::Applied(version) => Ok(version),
            _ => Ok(None),
        }
    }

    fn is_due(&self, last: Timestamp, now: Timestamp) -> bool {
        let since = now.duration_since(last);
        let every = SignedDuration::try_from(self.purge_every).unwrap_or(SignedDuration::MAX);
        // A date far ahead is a clock that was wrong, not a purge to come.
        since >= every || since < -SignedDuration::try_from(RETRY).unwrap_or(SignedDuration::MAX)
    }

    /// Every page there are keys of: one look per page, however many keys it has.
    pub(super) async fn pages_with_keys(&self) -> Result<Vec<String>> {
        let mut pages: Vec<String> = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let query = Query { prefix: "", after: after.as_deref(), limit: 1, what: What::Keys };
            let found = self.shelf.store.list(query).await?;
            let Some(line) = found.items.into_iter().next() else { return Ok(pages) };
            let first = line.key.split_once(':').map(|(first, _)| first.to_owned());
            match first {
                Some(first) if keys::check_page(&first).is_ok() => {
                    after = Some(format!("{first}:{AFTER_ALL}"));
                    pages.push(first);
                }
                Some(first) => after = Some(format!("{first}:{AFTER_ALL}")),
                None => after = Some(line.key),
            }
        }
    }

    /// The rows of a page that is gone, as far as this workspace wrote them.
    async fn remove_gone(&self, page: &str) -> Result<usize> {
        let mut lines = self.shelf.store.list_all(&keys::policy_prefix(page)?, What::Values).await?;
        lines.extend(self.shelf.store.list_all(&keys::issue_prefix(page)?, What::Values).await?);
        lines.retain(|line| self.is_ours(line));
        if lines.is_empty() {
            return Ok(0);
        }
        self.shelf.end_era(page).await?;
        self.shelf.remove(lines.into_iter().map(|line| (line.key, line.version)).collect()).await
    }

    fn is_ours(&self, line: &Listed) -> bool {
        let Some(value) = line.value.as_deref() else { return false };
        match Key::parse(&line.key) {
            Some(Key::Policy { .. } | Key::Issue { .. }) => {
                self.shelf.open::<serde_json::Value>(value).is_some()
            }
            Some(Key::Part { hash, .. }) => is_part(hash, value),
            None => false,
        }
    }
}

const PURGED: &str = "system:purged";

/// The date in `system:purged`; what cannot be read is no date.
fn date(value: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok()?.trim().trim_matches('"');
    let date = text.split_whitespace().next()?;
    date.parse().map(instant::to_ms).ok()
}
