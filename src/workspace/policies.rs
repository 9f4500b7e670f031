//! Policies of a page: listed, extracted, kept, translated on demand, and dropped when their attachment changed.
//!
//! A copy is believed only after a complete listing of the page's attachments. A listing that breaks off is an error
//! and drops nothing. The page is marked before anything is dropped, so that no crash hides that its analysis is stale.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::documents::{self, Copies, Document, Row};
use super::keys::{self, Key};
use super::language::Language;
use super::pages::{Attachment, Existence, no_page};
use super::shelf::{Era, Held};
use super::{Activity, Notes, Reanalyze, Workspace, extract, instant};
use crate::error::{Error, Kind, Result};
use crate::store::{Expect, StoreExt as _, What};

/// A document is downloaded and extracted within this, retries included; a claim that lasts longer belongs to the dead.
const EXTRACTING: Duration = Duration::from_secs(180);
/// The same for a translation, which waits for a model.
const TRANSLATING: Duration = Duration::from_secs(600);
/// Looks at a document that changes while it is read; then somebody else shall try.
const LOOKS_MAX: u32 = 5;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Catalogue {
    pub policies: Vec<Policy>,
    /// A policy changed or went since the page was analysed.
    pub analysis_stale: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Policy {
    pub source: String,
    pub title: String,
    /// Of the original; known once it was read.
    pub language: Option<Language>,
    /// Every language there is a copy in.
    pub languages: Vec<Language>,
    /// Its copy was dropped because the attachment changed, and nobody read it since.
    pub stale: bool,
}

impl Workspace {
    /// The catalogue of a page. Copies whose attachment is gone or newer are dropped on the way.
    pub async fn policies(&self, page: &str) -> Result<Catalogue> {
        self.policies_noting(page, &Notes::none()).await
    }

    /// The same; and an analysis that did not come about, because the model was away, say, is queued again when it is due.
    pub(super) async fn policies_noting(&self, page: &str, notes: &Notes) -> Result<Catalogue> {
        let catalogue = self.scan(page, notes).await?;
        if catalogue.analysis_stale {
            self.analyze_again(page).await?;
        }
        Ok(catalogue)
    }

    pub(super) async fn scan(&self, page: &str, notes: &Notes) -> Result<Catalogue> {
        notes.say(Activity::Fetching).await?;
        let attachments = self.pages.attachments(page).await?;
        notes.say(Activity::Scanning).await?;
        let mut kept = self.kept(page).await?;
        let by_source: BTreeMap<&str, &Attachment> =
            attachments.iter().map(|attachment| (attachment.source.as_str(), attachment)).collect();
        let mut doomed = Vec::new();
        for (source, copies) in &kept {
            let attachment = by_source.get(source.as_str());
            if attachment.is_none_or(|attachment| copies.rows().any(|row| row.is_stale(attachment))) {
                doomed.push((source.clone(), attachment.is_some()));
            }
        }
        if !doomed.is_empty() {
            notes.say(Activity::Purging).await?;
        }
        for (source, still_there) in doomed {
            let copies = kept.remove(&source).unwrap_or_default();
            self.invalidate(page, &source, still_there, &copies).await?;
        }
        let analysis = self.analysis(page).await?;
        let entry = |attachment: &Attachment| {
            let copies = kept.get(&attachment.source);
            let original = copies.and_then(|copies| copies.original.as_ref());
            Policy {
                source: attachment.source.clone(),
                title: attachment.title.clone(),
                language: original.map(|held| held.what.document.language),
                languages: copies.map(Copies::languages).unwrap_or_default(),
                stale: original.is_none() && analysis.changed.contains(&attachment.source),
            }
        };
        Ok(Catalogue {
            policies: attachments.iter().filter(|attachment| !attachment.no_text).map(entry).collect(),
            analysis_stale: analysis.is_stale(),
        })
    }

    /// What is kept of a page, by source.
    async fn kept(&self, page: &str) -> Result<BTreeMap<String, Copies>> {
        let lines = self.shelf.store.list_all(&keys::policy_prefix(page)?, What::Keys).await?;
        let names: Vec<&str> = lines
            .iter()
            .map(|line| line.key.as_str())
            .filter(|key| matches!(Key::parse(key), Some(Key::Policy { .. })))
            .collect();
        let mut kept: BTreeMap<String, Copies> = BTreeMap::new();
        for chunk in names.chunks(ROWS_AT_ONCE) {
            for stored in self.shelf.store.get(chunk).await?.into_iter().flatten() {
                // What somebody else put there is not a copy of ours.
                let Some(row) = self.shelf.open::<Row>(&stored.value) else { continue };
                let copies = kept.entry(row.document.source.clone()).or_default();
                copies.take(Held { what: row, version: stored.version });
            }
        }
        Ok(kept)
    }

    /// The copies of a source no longer hold: mark the page, drop them, and analyse again if that is wanted.
    async fn invalidate(&self, page: &str, source: &str, still_there: bool, copies: &Copies) -> Result<()> {
        self.mark_stale(page, source, still_there).await?;
        documents::drop_copies(&self.shelf, page, source, copies).await?;
        if self.reanalyze == Reanalyze::Auto {
            self.submit_analysis(page).await?;
        }
        Ok(())
    }

    /// A policy in a language, or as it was written. Made if need be, once for everybody who asks.
    pub async fn policy(&self, page: &str, source: &str, language: Option<Language>) -> Result<Document> {
        self.policy_noting(page, source, language, &Notes::none()).await
    }

    pub(super) async fn policy_noting(
        &self,
        page: &str,
        source: &str,
        language: Option<Language>,
        notes: &Notes,
    ) -> Result<Document> {
        let era = self.shelf.era(page).await?;
        notes.say(Activity::Fetching).await?;
        let attachment = self.attachment(page, source).await?;
        let asked = Asked { page, source, era: &era, attachment: &attachment, notes };
        let original = self.original(&asked).await?;
        match language {
            Some(language) if language != original.language => {
                self.translation(&asked, &original, language).await
            }
            _ => Ok(original),
        }
    }

    async fn attachment(&self, page: &str, source: &str) -> Result<Attachment> {
        let attachments = self.pages.attachments(page).await?;
        if let Some(found) = attachments.iter().find(|attachment| attachment.source == source) {
            return Ok(found.clone());
        }
        // Complete, and it is not in it: whatever is kept of it goes.
        let copies = documents::copies(&self.shelf, page, source).await?;
        if !copies.is_empty() {
            self.invalidate(page, source, false, &copies).await?;
        }
        let names = attachments.iter().map(|attachment| attachment.source.as_str());
        let hint = crate::config::suggestion(source, names);
        let message = format!("page {page} has no policy {}{hint}", source.escape_debug());
        Err(Error::new(Kind::NotFound, message)
            .remedy_is(format!("`trueup page policies {page}` lists the policies there are.")))
    }

    /// Copies that hold against the attachment; others are dropped.
    async fn valid(&self, asked: &Asked<'_>) -> Result<Copies> {
        let copies = documents::copies(&self.shelf, asked.page, asked.source).await?;
        if copies.rows().any(|row| row.is_stale(asked.attachment)) {
            self.invalidate(asked.page, asked.source, true, &copies).await?;
            return Ok(Copies::default());
        }
        Ok(copies)
    }

    async fn kept_original(&self, asked: &Asked<'_>) -> Result<Option<Document>> {
        match self.valid(asked).await?.original {
            Some(held) => documents::whole(&self.shelf, asked.page, &held.what).await,
            None => Ok(None),
        }
    }

    pub(super) async fn original(&self, asked: &Asked<'_>) -> Result<Document> {
        if let Some(document) = self.kept_original(asked).await? {
            return Ok(document);
        }
        asked.notes.say(Activity::Locking).await?;
        let turn = self.turns.take(&self.shelf, &["extract", asked.page, asked.source], EXTRACTING).await?;
        let made = self.extracted(asked).await;
        self.turns.end(&self.shelf, turn).await?;
        made
    }

    async fn extracted(&self, asked: &Asked<'_>) -> Result<Document> {
        for _ in 0..LOOKS_MAX {
            if let Some(document) = self.kept_original(asked).await? {
                return Ok(document);
            }
            // Read before the download: what changes after this instant is newer than the copy.
            let now = self.pages.now(self.shelf.clock.as_ref());
            let row = self.extract(asked, now.max(asked.attachment.changed())).await?;
            asked.notes.say(Activity::Caching).await?;
            let document = row.document.clone();
            let expect = match documents::copies(&self.shelf, asked.page, asked.source).await?.original {
                // A row whose parts went missing is replaced.
                Some(held) => Expect::Exactly(held.version),
                None => Expect::Absent,
            };
            if documents::keep(&self.shelf, asked.era, asked.page, row, expect).await? {
                return Ok(document);
            }
        }
        Err(super::shelf::crowded(asked.source))
    }

    async fn extract(&self, asked: &Asked<'_>, created: jiff::Timestamp) -> Result<Row> {
        let attachment = asked.attachment;
        let named = |error: Error| error.while_(format!("policy {}", attachment.source));
        let Some(media) = attachment.media else {
            let message = format!("{} is no kind of document trueup reads", attachment.title);
            return Err(Error::new(Kind::Invalid, message)
                .remedy_is("Attach it as PDF, HTML, DOCX, Markdown or plain text."));
        };
        let bytes = self.pages.download(asked.page, attachment).await.map_err(named)?;
        asked.notes.say(Activity::Extracting).await?;
        let content = extract::markdown(media, bytes).await.map_err(named)?;
        let language = Language::of(&content).map_err(named)?;
        let document = Document {
            original: true,
            language,
            source: attachment.source.clone(),
            created: instant::to_ms(created),
            title: attachment.title.clone(),
            content,
            derived_from: None,
        };
        Ok(Row { document, mark: attachment.mark.clone(), parts: Vec::new() })
    }

    async fn kept_translation(
        &self,
        asked: &Asked<'_>,
        original: &Document,
        language: Language,
    ) -> Result<(Option<Document>, Expect)> {
        let copies = self.valid(asked).await?;
        let found = copies.translations.into_iter().find(|held| held.what.document.language == language);
        let Some(held) = found else { return Ok((None, Expect::Absent)) };
        let of_this = held.what.document.derived_from.as_ref() == Some(&original.content_hash());
        let document =
            if of_this { documents::whole(&self.shelf, asked.page, &held.what).await? } else { None };
        Ok((document, Expect::Exactly(held.version)))
    }

    async fn translation(
        &self,
        asked: &Asked<'_>,
        original: &Document,
        language: Language,
    ) -> Result<Document> {
        if let (Some(document), _) = self.kept_translation(asked, original, language).await? {
            return Ok(document);
        }
        let llm = self.llm()?;
        asked.notes.say(Activity::Locking).await?;
        let name = ["translate", asked.page, asked.source, language.code()];
        let turn = self.turns.take(&self.shelf, &name, TRANSLATING).await?;
        let made = self.translated(asked, original, language, llm).await;
        self.turns.end(&self.shelf, turn).await?;
        made
    }

    async fn translated(
        &self,
        asked: &Asked<'_>,
        original: &Document,
        language: Language,
        llm: &super::llm::Llm,
    ) -> Result<Document> {
        for _ in 0..LOOKS_MAX {
            let (kept, expect) = self.kept_translation(asked, original, language).await?;
            if let Some(document) = kept {
                return Ok(document);
            }
            let now = self.pages.now(self.shelf.clock.as_ref());
            let (title, content) = super::translate::translate(llm, original, language, asked.notes).await?;
            let document = Document {
                original: false,
                language,
                source: original.source.clone(),
                created: instant::to_ms(now.max(original.created)),
                title,
                content,
                derived_from: Some(original.content_hash()),
            };
            asked.notes.say(Activity::Caching).await?;
            let row =
                Row { document: document.clone(), mark: asked.attachment.mark.clone(), parts: Vec::new() };
            if documents::keep(&self.shelf, asked.era, asked.page, row, expect).await? {
                return Ok(document);
            }
        }
        Err(super::shelf::crowded(asked.source))
    }

    /// An error when the page is known to be gone. When nothing is known, nobody is stopped.
    pub(super) async fn require_page(&self, page: &str) -> Result<()> {
        keys::check_page(page)?;
        match self.pages.exists(page).await {
            Existence::Exists | Existence::Unknown(_) => Ok(()),
            Existence::Gone => match self.pages.attachments(page).await {
                Err(error) => Err(error),
                Ok(_) => Err(no_page(page, "Check the page's id.")),
            },
        }
    }
}

/// Rows read in one go: a few megabytes at most.
const ROWS_AT_ONCE: usize = 50;

/// One request for a policy.
pub(super) struct Asked<'a> {
    pub page: &'a str,
    pub source: &'a str,
    pub era: &'a Era,
    pub attachment: &'a Attachment,
    pub notes: &'a Notes,
}
