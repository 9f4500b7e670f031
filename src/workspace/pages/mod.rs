//! Where pages and their attachments come from.
//!
//! A page exists, is gone, or nothing is known: only *gone* may ever cause a deletion, and only the source itself can
//! say it. A listing is whole or an error.

use std::ffi::OsString;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use super::extract::Media;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};

pub mod confluence;
pub mod folder;

/// Largest attachment that is read: far beyond any policy, well within memory.
pub const ATTACHMENT_BYTES_MAX: usize = 64 << 20;
/// Most attachments of one page; a listing that goes on is a loop.
pub const ATTACHMENTS_MAX: usize = 10_000;

#[derive(Debug)]
pub enum Existence {
    Exists,
    Gone,
    /// Why it cannot be told.
    Unknown(Error),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its id in keys.
    pub source: String,
    pub title: String,
    /// What it is, if that can be read; `None` = by name and type nothing we read.
    pub media: Option<Media>,
    /// A picture, a sound, a film: no policy, and not taken for one.
    pub no_text: bool,
    pub created: Timestamp,
    /// When the version there is now was made.
    pub version: Timestamp,
    /// Differs when another file took its place, even an older one.
    pub mark: Option<String>,
    /// Where the source finds it: a path, an id. Names of files are not always text.
    pub handle: OsString,
}

impl Attachment {
    /// A document made before this instant is stale.
    pub fn changed(&self) -> Timestamp {
        self.created.max(self.version)
    }
}

/// The text of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    pub title: String,
    pub markdown: String,
}

#[async_trait]
pub trait Pages: Send + Sync {
    /// How messages name it.
    fn name(&self) -> &str;

    /// Now, by the clock that gives attachments their times.
    fn now(&self, clock: &dyn Clock) -> Timestamp;

    /// Pages it can name by itself. None where there are too many to be listed: those are asked for by id.
    async fn names(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn exists(&self, page: &str) -> Existence;

    /// Every attachment, by source id. A listing that breaks off is an error.
    async fn attachments(&self, page: &str) -> Result<Vec<Attachment>>;

    async fn download(&self, page: &str, attachment: &Attachment) -> Result<Bytes>;

    /// The page itself: the agreement that policies are compared with.
    async fn body(&self, page: &str) -> Result<Body>;

    /// Reach it; findings are for people.
    async fn check(&self) -> Result<Vec<String>>;
}

pub(super) fn no_page(page: &str, remedy: impl Into<String>) -> Error {
    Error::new(Kind::NotFound, format!("there is no page {}", page.escape_debug())).remedy_is(remedy)
}
