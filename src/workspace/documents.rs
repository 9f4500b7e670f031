//! Documents as they are kept: one row each, large ones in parts.
//!
//! A part is named by the hash of its bytes and written before the row that needs it, so a row never points to another
//! version's parts; a row whose parts are not all there is as good as no row, and is made again.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::instant;
use super::keys;
use super::language::Language;
use super::pages::Attachment;
use super::shelf::{Era, Held, Shelf};
use crate::error::{Error, Kind, Result};
use crate::record::Fingerprint;
use crate::store::{Expect, Item, Mode};

/// A row up to this size is one value: it fits every store that a workspace can live in, several times over.
pub const ROW_BYTES_MAX: usize = 240 << 10;
/// Hex digits of a part's name: 128 bits tell parts of one document apart for ever.
const PART_NAME: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// As it was extracted; else a translation.
    pub original: bool,
    pub language: Language,
    pub source: String,
    #[serde(with = "instant")]
    pub created: Timestamp,
    pub title: String,
    /// Markdown.
    pub content: String,
    /// Of a translation: the hash of the content it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<String>,
}

impl Document {
    pub fn content_hash(&self) -> String {
        Fingerprint::of(self.content.as_bytes()).to_string()
    }

    /// The language its key ends in: an original's has none.
    fn key_language(&self) -> Option<Language> {
        (!self.original).then_some(self.language)
    }
}

/// A document as a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub document: Document,
    /// The attachment's mark when it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Names of the parts that hold the content, in order; empty when the row holds it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
}

impl Row {
    /// Made before the attachment changed, or from another file under the same name.
    pub fn is_stale(&self, attachment: &Attachment) -> bool {
        let another = matches!((&self.mark, &attachment.mark), (Some(a), Some(b)) if a != b);
        another || self.document.created < attachment.changed()
    }
}

/// Everything kept of one source.
#[derive(Debug, Default)]
pub struct Copies {
    pub original: Option<Held<Row>>,
    pub translations: Vec<Held<Row>>,
}

impl Copies {
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.original.iter().chain(&self.translations).map(|held| &held.what)
    }

    pub fn is_empty(&self) -> bool {
        self.original.is_none() && self.translations.is_empty()
    }

    /// The language of the original, then of its translations.
    pub fn languages(&self) -> Vec<Language> {
        self.rows().map(|row| row.document.language).collect()
    }

    pub fn take(&mut self, row: Held<Row>) {
        if row.what.document.original {
            self.original = Some(row);
        } else {
            self.translations.push(row);
        }
    }
}

/// What is kept of one source, without the contents that are in parts.
pub async fn copies(shelf: &Shelf, page: &str, source: &str) -> Result<Copies> {
    let mut names = vec![keys::policy_key(page, source, None)?];
    for language in Language::ALL {
        names.push(keys::policy_key(page, source, Some(language))?);
    }
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut copies = Copies::default();
    for (key, stored) in names.iter().zip(shelf.store.get(&asked).await?) {
        let Some(stored) = stored else { continue };
        let Some(row) = shelf.open::<Row>(&stored.value) else {
            let message = format!("{key} holds something this workspace did not write");
            return Err(Error::new(Kind::Conflict, message).remedy_is("Move it away: `trueup kv rm`."));
        };
        copies.take(Held { what: row, version: stored.version });
    }
    Ok(copies)
}

/// The whole document of a row; `None` when parts of it are missing.
pub async fn whole(shelf: &Shelf, page: &str, row: &Row) -> Result<Option<Document>> {
    let mut document = row.document.clone();
    if row.parts.is_empty() {
        return Ok(Some(document));
    }
    let language = document.key_language();
    let names: Vec<String> = row
        .parts
        .iter()
        .map(|hash| keys::part_key(page, &document.source, language, hash))
        .collect::<Result<_>>()?;
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut content = Vec::new();
    for (hash, stored) in row.parts.iter().zip(shelf.store.get(&asked).await?) {
        match stored {
            Some(part) if part_name(&part.value) == *hash => content.extend_from_slice(&part.value),
            _ => return Ok(None),
        }
    }
    match String::from_utf8(content) {
        Ok(content) => {
            document.content = content;
            Ok(Some(document))
        }
        Err(_) => Ok(None),
    }
}

fn part_name(part: &[u8]) -> String {
    Fingerprint::of(part).to_string()[..PART_NAME].to_owned()
}

/// Whether these bytes are what a part's key says they are.
pub fn is_part(hash: &str, value: &[u8]) -> bool {
    part_name(value) == hash
}

/// Keep a document. `false` when somebody else wrote the row first.
pub async fn keep(shelf: &Shelf, era: &Era, page: &str, row: Row, expect: Expect) -> Result<bool> {
    let language = row.document.key_language();
    let key = keys::policy_key(page, &row.document.source, language)?;
    let sealed = shelf.seal(&row)?;
    let limit = ROW_BYTES_MAX.min(usize::try_from(shelf.store.caps().value_max).unwrap_or(ROW_BYTES_MAX));
    if sealed.len() <= limit {
        return Ok(shelf.put_row(era, &key, sealed, expect).await?.is_some());
    }
    let mut slim = row;
    let content = Bytes::from(std::mem::take(&mut slim.document.content));
    let parts: Vec<Bytes> = (0..content.len())
        .step_by(limit)
        .map(|at| content.slice(at..content.len().min(at + limit)))
        .collect();
    for part in parts {
        let hash = part_name(&part);
        let key = keys::part_key(page, &slim.document.source, language, &hash)?;
        // A part that is there already is the same part: its name says so.
        shelf.put_row(era, &key, part.to_vec(), Expect::Anything).await?;
        slim.parts.push(hash);
    }
    Ok(shelf.put_row(era, &key, shelf.seal(&slim)?, expect).await?.is_some())
}

/// Remove stale rows of one source by the versions that were seen, and the parts only they used.
pub async fn drop_copies(shelf: &Shelf, page: &str, source: &str, copies: &Copies) -> Result<()> {
    let mut items = Vec::new();
    for held in copies.original.iter().chain(&copies.translations) {
        let document = &held.what.document;
        let language = document.key_language();
        for hash in &held.what.parts {
            items.push(Item::delete(keys::part_key(page, source, language, hash)?));
        }
        let key = keys::policy_key(page, source, language)?;
        items.push(Item::delete(key).expecting(Expect::Exactly(held.version.clone())));
    }
    if items.is_empty() {
        return Ok(());
    }
    for outcome in shelf.store.write(items, Mode::Each).await? {
        outcome?;
    }
    Ok(())
}
