//! Page workspaces: policies attached to a page, read and translated; issues found in them; jobs that do the work.
//!
//! Everything is a key in one compare-and-set store ([`keys`] spells them, [`shelf`] reads and writes them). Pages come
//! from [`pages`]; documents are read by [`extract`], translated and compared by a model ([`llm`]). The command line and
//! whoever else serves people call the verbs of [`Workspace`] and nothing below them.
//!
//! Refuses to believe absence that is not proven: only a complete listing drops a policy, and only a page that is known
//! to be gone loses its keys.

use std::sync::Arc;
use std::time::Duration;

pub mod analyze;
pub mod documents;
pub mod extract;
mod findings;
mod glance;
mod instant;
pub mod issues;
pub mod jobs;
pub mod keys;
pub mod language;
pub mod llm;
pub mod pages;
mod policies;
mod purge;
pub mod shelf;
mod translate;
mod turns;

pub use analyze::Analysis;
pub use documents::Document;
pub use glance::{Glance, Listing};
pub use issues::{Issue, NewIssue, Passage, Reference, Severity};
pub use jobs::{Activity, Job, Status, Task};
pub use language::Language;
pub use policies::{Catalogue, Policy};
pub use purge::{Cleared, Purged};

use jobs::Notes;
use llm::Llm;
use pages::Pages;
use pages::confluence::Confluence;
use pages::folder::Folder;
use shelf::Shelf;
use turns::Turns;

use crate::clock::SharedClock;
use crate::config::{self, PagesSpec, Reanalyze};
use crate::error::{Error, Kind, Result};
use crate::store::{Access, SharedStore, open};

pub struct Workspace {
    pub name: String,
    pub pages: Arc<dyn Pages>,
    pub shelf: Arc<Shelf>,
    pub llm: Option<Llm>,
    reanalyze: Reanalyze,
    purge_every: Duration,
    turns: Turns,
}

impl Workspace {
    /// As the config describes it. Opening writes nothing but what the store needs to exist.
    pub async fn open(spec: &config::Workspace, access: Access, clock: SharedClock) -> Result<Self> {
        let store = open::open(&spec.into, access, clock.clone()).await?;
        Self::over(spec, store, clock)
    }

    /// The same over a store that is open already.
    pub fn over(spec: &config::Workspace, store: SharedStore, clock: SharedClock) -> Result<Self> {
        let pages: Arc<dyn Pages> = match &spec.pages {
            PagesSpec::Folder(root) => Arc::new(Folder::new(root.clone())),
            PagesSpec::Confluence(spec) => Arc::new(Confluence::new(spec, clock.clone())?),
        };
        let llm = match &spec.llm {
            Some(llm) => {
                let token = llm.token.as_ref().map(crate::secret::SecretRef::read).transpose()?.flatten();
                Some(Llm::new(llm, token, clock.clone())?)
            }
            None => None,
        };
        let me = format!("{:016x}", clock.random());
        Ok(Workspace {
            name: spec.name.clone(),
            pages,
            shelf: Arc::new(Shelf::new(store, &spec.name, clock)?),
            llm,
            reanalyze: spec.reanalyze,
            purge_every: spec.purge_every,
            turns: Turns::new(me),
        })
    }

    fn llm(&self) -> Result<&Llm> {
        self.llm.as_ref().ok_or_else(|| {
            let message = format!("workspace {} has no model to translate or analyse with", self.name);
            Error::new(Kind::Config, message).remedy_is(format!(
                "Set `llm = {{ url = \"…/v1\", model = \"…\" }}` in [workspaces.{}].",
                self.name
            ))
        })
    }

    /// A random UUID (version 4).
    fn uuid(&self) -> String {
        let (high, low) = (self.shelf.clock.random(), self.shelf.clock.random());
        let high = (high & !0xF000) | 0x4000;
        let low = (low & !(0b11 << 62)) | (0b10 << 62);
        let hex = format!("{high:016x}{low:016x}");
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}
