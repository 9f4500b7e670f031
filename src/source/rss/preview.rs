//! The text of attachments, from a service that turns files into Markdown. Every failure is soft: the article is
//! saved without that preview, and asked for again on the next run.

use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::super::silence::Silence;
use super::item::PREVIEW_ID;
use crate::clock::SharedClock;
use crate::config::PreviewSpec;
use crate::error::Result;
use crate::http::{Ask, Http};
use crate::retry::Patience;
use crate::secret::Secret;
use crate::shape::article::{Article, Preview};

/// Markdown of one attachment; more is not a preview.
const PREVIEW_BYTES_MAX: usize = 4 << 20;
/// The next run asks again, so one run need not insist.
const PATIENCE: Patience = Patience { attempts_max: 2, wait_ms_first: 1_000, wait_ms_max: 10_000 };

pub struct Previews {
    base: Url,
    token: Option<Secret>,
    timeout: Duration,
    clock: SharedClock,
    /// A service that hangs would otherwise be waited for with every attachment of every article.
    silence: Silence,
}

#[derive(Deserialize)]
struct Reply {
    success: bool,
    /// Success without it is none.
    content: Option<String>,
}

impl Previews {
    pub fn new(spec: &PreviewSpec, timeout: Duration, clock: SharedClock) -> Result<Self> {
        let token = spec.token.as_ref().map(crate::secret::SecretRef::require).transpose()?;
        Ok(Previews { base: spec.base.clone(), token, timeout, clock, silence: Silence::default() })
    }

    /// A new pass begins: whatever became of the one before, it asks again.
    pub fn begin(&self) {
        self.silence.forget();
    }

    /// One answer per attachment that can be previewed, in order.
    pub async fn fetch(&self, http: &Http, article: &Article) -> Result<Vec<Preview>> {
        let mut previews = Vec::new();
        for id in article.preview_ids() {
            let content = self.one(http, id).await?;
            previews.push(Preview { id: id.to_owned(), content });
        }
        Ok(previews)
    }

    async fn one(&self, http: &Http, id: &str) -> Result<Option<String>> {
        let mut url = self.base.clone();
        url.query_pairs_mut().append_pair(PREVIEW_ID, id);
        let Ok(patience) = self.silence.patience(PATIENCE, self.clock.now()) else { return Ok(None) };
        let mut ask = Ask::get(url, self.timeout, PREVIEW_BYTES_MAX).patience(patience);
        if let Some(token) = &self.token {
            ask = ask.bearer(token)?;
        }
        let answer = http.send(&ask).await;
        self.silence.heard(&answer, self.clock.now());
        let Ok(answer) = answer else { return Ok(None) };
        let reply = serde_json::from_slice::<Reply>(&answer.body).ok();
        Ok(reply.filter(|reply| reply.success).and_then(|reply| reply.content))
    }
}
