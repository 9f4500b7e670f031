//! Pages of Confluence, by its REST API.
//!
//! Asks three things and changes none: whether a page is there, what is attached to it (to the last page of the
//! listing), and an attachment's bytes. Only 404 means gone; a token that was refused, a server that is slow or says
//! something else means that nothing is known. The token goes to the server it is for and nowhere else.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::{ATTACHMENT_BYTES_MAX, ATTACHMENTS_MAX, Attachment, Body, Existence, Pages, no_page};
use crate::clock::{Clock, SharedClock};
use crate::config::ConfluenceSpec;
use crate::error::{Context, Error, Kind, Result};
use crate::http::{Answer, Ask, Http, Refusal, parse_url, shown};
use crate::retry::Patience;
use crate::secret::Secret;
use crate::workspace::extract::{self, Media};
use crate::workspace::instant;

/// Attachments asked for at once.
const LIMIT: usize = 100;
/// One answer of the API: a hundred attachments, or the text of a page.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// An attachment may take this many times as long as any other answer.
const DOWNLOAD_TIMES: u32 = 4;
/// Whether a page is there is asked once: not knowing costs nothing.
const ONCE: Patience = Patience { attempts_max: 1, wait_ms_first: 0, wait_ms_max: 0 };

pub struct Confluence {
    http: Http,
    /// With `/wiki/` at its end.
    base: Url,
    shown: String,
    user: Option<String>,
    token: Option<Secret>,
    timeout: Duration,
}

#[derive(Deserialize)]
struct Page {
    title: Option<String>,
    body: Option<Bodies>,
}

#[derive(Deserialize)]
struct Bodies {
    storage: Option<Storage>,
}

#[derive(Deserialize)]
struct Storage {
    value: String,
}

#[derive(Deserialize)]
struct Listing {
    results: Vec<Item>,
    #[serde(rename = "_links")]
    links: Option<Links>,
}

#[derive(Deserialize)]
struct Links {
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    id: String,
    title: String,
    media_type: Option<String>,
    created_at: Option<Timestamp>,
    version: Option<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    created_at: Option<Timestamp>,
}

impl Confluence {
    pub fn new(spec: &ConfluenceSpec, clock: SharedClock) -> Result<Self> {
        let mut base = parse_url(&spec.url)?;
        let path = base.path().trim_end_matches('/');
        let path = if path.ends_with("/wiki") { format!("{path}/") } else { format!("{path}/wiki/") };
        base.set_path(&path);
        Ok(Confluence {
            http: Http::new(clock)?,
            shown: format!("confluence {}", shown(&base)),
            base,
            user: spec.user.clone(),
            token: spec.token.as_ref().map(crate::secret::SecretRef::read).transpose()?.flatten(),
            timeout: spec.timeout,
        })
    }

    /// A path below `/wiki/`; ids are put in as they are, whatever they hold.
    fn url(&self, segments: &[&str]) -> Result<Url> {
        let mut url = self.base.clone();
        let added = url.path_segments_mut().map(|mut path| {
            path.pop_if_empty().extend(segments);
        });
        added.map_err(|()| Error::new(Kind::Config, "the address of Confluence takes no path"))?;
        Ok(url)
    }

    fn ask(&self, url: Url) -> Result<Ask> {
        let ask = Ask::get(url, self.timeout, ANSWER_BYTES_MAX).header(ACCEPT, "application/json")?;
        match (&self.user, &self.token) {
            (_, None) => Ok(ask),
            (None, Some(token)) => ask.bearer(token),
            (Some(user), Some(token)) => basic(ask, user, token),
        }
    }

    async fn json<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T> {
        self.http.read(ask, parsed).await
    }

    async fn page(&self, page: &str) -> Result<Page> {
        let mut url = self.url(&["api", "v2", "pages", page])?;
        url.query_pairs_mut().append_pair("body-format", "storage");
        self.json(&self.ask(url)?).await.map_err(|error| missing(error, page))
    }

    /// The next page of a listing, on the same server.
    fn next(&self, from: &Url, link: &str) -> Result<Url> {
        let next = from.join(link).map_err(|error| {
            Error::new(Kind::Invalid, "the listing's next page has no address").caused_by(error)
        })?;
        if next.origin() != self.base.origin() {
            return Err(Error::new(Kind::Invalid, "the listing's next page is on another server"));
        }
        Ok(next)
    }

    async fn list(&self, page: &str) -> Result<Vec<Attachment>> {
        let mut url = self.url(&["api", "v2", "pages", page, "attachments"])?;
        url.query_pairs_mut().append_pair("status", "current").append_pair("limit", &LIMIT.to_string());
        let mut attachments: Vec<Attachment> = Vec::new();
        let mut asked = HashSet::new();
        loop {
            // A page that leads back to one before it would be followed round and round.
            if !asked.insert(url.clone()) {
                return Err(endless());
            }
            let listing: Listing =
                self.json(&self.ask(url.clone())?).await.map_err(|error| missing(error, page))?;
            let empty = listing.results.is_empty();
            for item in listing.results {
                attachments.push(item.attachment()?);
            }
            let next = listing.links.and_then(|links| links.next);
            let Some(next) = next else { break };
            if empty || attachments.len() > ATTACHMENTS_MAX {
                return Err(endless());
            }
            url = self.next(&url, &next)?;
        }
        attachments.sort_by(|a, b| a.source.cmp(&b.source));
        attachments.dedup_by(|a, b| a.source == b.source);
        Ok(attachments)
    }
}

impl Item {
    fn attachment(self) -> Result<Attachment> {
        let version = self.version.and_then(|version| version.created_at);
        let created = self.created_at.or(version).ok_or_else(|| {
            Error::new(Kind::Invalid, format!("attachment {} has no `createdAt`", self.id.escape_debug()))
        })?;
        Ok(Attachment {
            media: Media::of(&self.title, self.media_type.as_deref()),
            no_text: extract::is_no_text(&self.title, self.media_type.as_deref()),
            title: self.title,
            created: instant::to_ms(created),
            version: instant::to_ms(version.unwrap_or(created)),
            mark: None,
            handle: self.id.clone().into(),
            source: self.id,
        })
    }
}

fn basic(mut ask: Ask, user: &str, token: &Secret) -> Result<Ask> {
    use base64::Engine;
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{}", token.expose()));
    let mut value = HeaderValue::from_str(&format!("Basic {pair}"))
        .map_err(|error| Error::new(Kind::Config, "the user name cannot be sent").caused_by(error))?;
    value.set_sensitive(true);
    ask.headers.insert(AUTHORIZATION, value);
    Ok(ask)
}

/// A login page instead of JSON proves nothing, and may pass.
fn parsed<T: DeserializeOwned>(answer: Answer) -> Result<T> {
    serde_json::from_slice(&answer.body).map_err(|error| {
        Error::new(Kind::Unavailable, "Confluence answered with something else").caused_by(error)
    })
}

fn endless() -> Error {
    Error::new(Kind::Invalid, "the listing of attachments does not end").remedy_is(
        "What Confluence names as the next page was asked for before: see what is between it and trueup.",
    )
}

fn missing(error: Error, page: &str) -> Error {
    match error.http_status() {
        Some(404) => no_page(page, "Check the page's id, and that the token may read the page."),
        _ => error,
    }
}

/// That another server has no such page, a login for instance, says nothing about Confluence. Nor does a page for people:
/// that is what something in between answers while Confluence is away, or to a wrong address.
fn not_theirs(refusal: &Refusal<'_>) -> Option<Error> {
    if refusal.elsewhere {
        let message = format!("Confluence sends callers elsewhere, where the answer is {}", refusal.status);
        return Some(Error::new(Kind::Unauthorized, message));
    }
    let is_html = refusal.said.trim_ascii_start().starts_with(b"<");
    (refusal.status == StatusCode::NOT_FOUND && is_html).then(|| {
        Error::new(Kind::Unavailable, "the answer is 404 with a page of HTML, and not from Confluence's API")
            .remedy_is("Check the address, and see what is between Confluence and trueup.")
    })
}

#[async_trait]
impl Pages for Confluence {
    fn name(&self) -> &str {
        &self.shown
    }

    fn now(&self, clock: &dyn Clock) -> Timestamp {
        clock.now()
    }

    async fn exists(&self, page: &str) -> Existence {
        let asked = async {
            let ask = self.ask(self.url(&["api", "v2", "pages", page])?)?.patience(ONCE).meaning(not_theirs);
            self.json::<Page>(&ask).await
        };
        match asked.await {
            Ok(_) => Existence::Exists,
            Err(error) if error.http_status() == Some(404) => Existence::Gone,
            Err(error) => Existence::Unknown(error),
        }
    }

    async fn attachments(&self, page: &str) -> Result<Vec<Attachment>> {
        self.list(page).await.context(|| format!("attachments of page {page}"))
    }

    async fn download(&self, page: &str, attachment: &Attachment) -> Result<Bytes> {
        let id = attachment.source.as_str();
        let url = self.url(&["rest", "api", "content", page, "child", "attachment", id, "download"])?;
        let mut ask = self.ask(url)?;
        ask.headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        ask.timeout = self.timeout.saturating_mul(DOWNLOAD_TIMES);
        ask.body_bytes_max = ATTACHMENT_BYTES_MAX;
        Ok(self.http.send(&ask).await?.body)
    }

    async fn body(&self, page: &str) -> Result<Body> {
        let found = self.page(page).await?;
        let html = found.body.and_then(|body| body.storage).map(|storage| storage.value).unwrap_or_default();
        let title = found.title.unwrap_or_else(|| page.to_owned());
        let markdown =
            extract::markdown(Media::Html, Bytes::from(html)).await.context(|| format!("page {page}"))?;
        Ok(Body { title, markdown })
    }

    async fn check(&self) -> Result<Vec<String>> {
        let mut url = self.url(&["api", "v2", "pages"])?;
        url.query_pairs_mut().append_pair("limit", "1");
        match self.http.send(&self.ask(url)?).await {
            Ok(_) => Ok(Vec::new()),
            // It is there and lets us in; it only lists nothing.
            Err(error) if error.http_status() == Some(404) => Ok(vec!["it lists no pages".to_owned()]),
            Err(error) => Err(error),
        }
    }
}
