//! The requests of Cloudflare's KV API that a store needs, and what their answers mean.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::{Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::metadata;
use crate::error::{Error, Kind, Result};
use crate::http::{Ask, Http, Refusal, parse_url};
use crate::secret::Secret;

pub const API: &str = "https://api.cloudflare.com/client/v4";
/// A bulk write of tens of megabytes over a slow line fits.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest answer is a value; lists and reports are far smaller.
const ANSWER_BYTES_MAX: usize = 26 << 20;
/// Namespaces looked through for a title.
const NAMESPACE_PAGES_MAX: u32 = 100;

/// Which namespace, and how to get in.
pub struct Namespace {
    pub account: String,
    /// Its id, or its title.
    pub name: String,
    pub api: String,
    pub token: Secret,
}

pub struct Api {
    http: Http,
    token: Secret,
    /// `…/accounts/A/storage/kv/namespaces/N`
    base: Url,
}

#[derive(Deserialize)]
struct Envelope<T> {
    success: bool,
    result: Option<T>,
    #[serde(default)]
    errors: Vec<Complaint>,
    #[serde(default)]
    result_info: Option<Info>,
}

#[derive(Deserialize)]
struct Complaint {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

#[derive(Default, Deserialize)]
struct Info {
    #[serde(default)]
    cursor: Option<String>,
    /// Of this page.
    #[serde(default)]
    count: Option<usize>,
    #[serde(default)]
    total_pages: Option<u32>,
}

#[derive(Deserialize)]
struct Titled {
    id: String,
    title: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Line {
    pub name: String,
    #[serde(default)]
    pub metadata: Option<Value>,
}

pub struct Lines {
    pub lines: Vec<Line>,
    /// Where the list goes on; `None` = it ends here.
    pub cursor: Option<String>,
}

/// One pair of a bulk write.
#[derive(Serialize)]
pub struct Pair {
    pub key: String,
    value: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    base64: bool,
    metadata: Value,
}

impl Pair {
    pub fn new(key: String, value: &Bytes) -> Self {
        let (text, base64) = match std::str::from_utf8(value) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (STANDARD.encode(value), true),
        };
        Pair { key, value: text, base64, metadata: metadata::of(value) }
    }
}

#[derive(Default, Deserialize)]
struct Bulk {
    #[serde(default)]
    unsuccessful_keys: Vec<String>,
}

impl Api {
    pub async fn connect(namespace: Namespace, http: Http) -> Result<Self> {
        let mut base = parse_url(&namespace.api)?;
        extend(&mut base, &["accounts", &namespace.account, "storage", "kv", "namespaces"])?;
        let mut api = Api { http, token: namespace.token, base };
        let id = if is_id(&namespace.name) { namespace.name } else { api.id_of(&namespace.name).await? };
        extend(&mut api.base, &[&id])?;
        Ok(api)
    }

    pub fn requests(&self) -> u64 {
        self.http.requests()
    }

    async fn id_of(&self, title: &str) -> Result<String> {
        for page in 1..=NAMESPACE_PAGES_MAX {
            let mut url = self.base.clone();
            url.query_pairs_mut().append_pair("per_page", "100").append_pair("page", &page.to_string());
            let answer: Envelope<Vec<Titled>> = self.ask(Method::GET, url, None).await?;
            if let Some(found) = answer.result.iter().flatten().find(|one| one.title == title) {
                return Ok(found.id.clone());
            }
            if answer.result_info.and_then(|info| info.total_pages).is_none_or(|pages| page >= pages) {
                break;
            }
        }
        Err(Error::new(Kind::NotFound, format!("the account has no KV namespace called {title}"))
            .remedy_is("Name the namespace by its id or its title; `wrangler kv namespace list` shows both."))
    }

    fn url(&self, parts: &[&str]) -> Result<Url> {
        let mut url = self.base.clone();
        extend(&mut url, parts)?;
        Ok(url)
    }

    /// A value, byte for byte; `None` = Cloudflare itself says that there is no such key.
    pub async fn value(&self, key: &str) -> Result<Option<Bytes>> {
        let ask = self.request(Method::GET, self.url(&["values", key])?)?.meaning(only_a_key);
        match self.http.send(&ask).await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A page of keys in byte order.
    pub async fn keys(&self, prefix: &str, cursor: Option<&str>) -> Result<Lines> {
        let mut url = self.url(&["keys"])?;
        url.query_pairs_mut().append_pair("limit", "1000");
        if !prefix.is_empty() {
            url.query_pairs_mut().append_pair("prefix", prefix);
        }
        if let Some(cursor) = cursor {
            url.query_pairs_mut().append_pair("cursor", cursor);
        }
        page(self.ask(Method::GET, url, None).await?)
    }

    /// Write many pairs; the keys that were not taken come back.
    pub async fn put(&self, pairs: impl Iterator<Item = &Pair>) -> Result<Vec<String>> {
        let body = json_body(&pairs.collect::<Vec<_>>())?;
        let answer: Envelope<Bulk> = self.ask(Method::PUT, self.url(&["bulk"])?, Some(body)).await?;
        Ok(answer.result.unwrap_or_default().unsuccessful_keys)
    }

    /// Delete many keys; those that were not come back.
    pub async fn delete(&self, keys: impl Iterator<Item = &str>) -> Result<Vec<String>> {
        let body = json_body(&keys.collect::<Vec<_>>())?;
        let url = self.url(&["bulk", "delete"])?;
        let answer: Envelope<Bulk> = self.ask(Method::POST, url, Some(body)).await?;
        Ok(answer.result.unwrap_or_default().unsuccessful_keys)
    }

    fn request(&self, method: Method, url: Url) -> Result<Ask> {
        let mut ask = Ask::get(url, TIMEOUT, ANSWER_BYTES_MAX).bearer(&self.token)?;
        ask.method = method;
        Ok(ask)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<Bytes>,
    ) -> Result<Envelope<T>> {
        let mut ask = self.request(method, url)?;
        if let Some(body) = body {
            ask = ask.header(header::CONTENT_TYPE, "application/json")?;
            ask.body = Some(body);
        }
        let answer = self.http.send(&ask).await?;
        let envelope: Envelope<T> = serde_json::from_slice(&answer.body).map_err(|error| {
            Error::new(Kind::Invalid, "Cloudflare's answer cannot be read").caused_by(error)
        })?;
        if envelope.success {
            return Ok(envelope);
        }
        Err(refused(&envelope.errors))
    }
}

/// A page of a listing that says whether it is the last one: an empty cursor does, a missing one says nothing.
fn page(answer: Envelope<Vec<Line>>) -> Result<Lines> {
    let lines = answer.result.ok_or_else(|| odd("has no keys"))?;
    let info = answer.result_info.unwrap_or_default();
    let cursor = info.cursor.ok_or_else(|| odd("does not say whether it goes on"))?;
    match info.count {
        Some(count) if count != lines.len() => {
            Err(odd(&format!("says that it has {count} keys, and has {}", lines.len())))
        }
        _ => Ok(Lines { lines, cursor: Some(cursor).filter(|cursor| !cursor.is_empty()) }),
    }
}

/// A listing nobody can go by.
pub fn odd(what: &str) -> Error {
    Error::new(Kind::Unavailable, format!("Cloudflare's listing {what}"))
        .remedy_is("Run again; if it stays so, see what is between Cloudflare and trueup.")
}

/// "Key not found", in Cloudflare's own words.
const NO_SUCH_KEY: i64 = 10_009;

/// That there is no such page, or no such namespace, is not said of a key.
fn only_a_key(refusal: &Refusal<'_>) -> Option<Error> {
    if refusal.status != StatusCode::NOT_FOUND {
        return None;
    }
    let envelope = serde_json::from_slice::<Envelope<Value>>(refusal.said).ok();
    let errors = envelope.filter(|said| !said.success && !refusal.elsewhere).map(|said| said.errors);
    match errors {
        Some(errors) if errors.iter().any(|error| error.code == NO_SUCH_KEY) => None,
        Some(errors) => Some(refused(&errors)),
        None => Some(
            Error::new(Kind::Unavailable, "the answer is 404, and not from Cloudflare's API")
                .remedy_is("Check `endpoint`, and see what is between Cloudflare and trueup."),
        ),
    }
}

fn refused(errors: &[Complaint]) -> Error {
    let said = errors.iter().map(|one| format!("{} ({})", one.message, one.code));
    Error::new(Kind::Invalid, format!("Cloudflare refused: {}", said.collect::<Vec<_>>().join("; ")))
}

/// Ids are 32 hex digits; anything else is a title.
fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn json_body<T: Serialize>(value: &T) -> Result<Bytes> {
    let bytes =
        serde_json::to_vec(value).map_err(|error| Error::bug("encoding a bulk request").caused_by(error))?;
    Ok(Bytes::from(bytes))
}

fn extend(url: &mut Url, parts: &[&str]) -> Result<()> {
    url.path_segments_mut()
        .map_err(|()| Error::new(Kind::Config, "`endpoint` is not an address HTTP can ask"))?
        .pop_if_empty()
        .extend(parts);
    Ok(())
}
