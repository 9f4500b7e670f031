//! The one HTTP client: every request has a time limit, a size limit and the one retry policy, and every failure
//! becomes an error whose kind says what to do next.
//!
//! Refuses what is no whole answer (202, 204, 206), endless redirects, redirects from https to http, and bodies beyond
//! the caller's limit (reading stops at the first byte too many). Credentials are for the server that was asked: where it sends callers to another one, they
//! stay behind. No error shows a credential: addresses are shown without user names and passwords.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, redirect};
use url::Url;

use crate::clock::SharedClock;
use crate::error::{Error, Kind, Result};
use crate::retry::{self, Patience, Verdict};
use crate::secret::{Secret, may_be_secret, names_a_secret};
use crate::tls::{self, Authorities};

/// Enough for a move to another host and to https; more is a loop.
const REDIRECTS_MAX: usize = 5;
/// How much of an error page is read to quote the server's own words.
const COMPLAINT_BYTES_MAX: usize = 2_000;
/// Room to begin with, or less if less is announced; grows as the body comes, never by what a header claims.
const BODY_BYTES_FIRST: usize = 16 << 10;

/// A client with its clock and its count of requests. One per source or store.
pub struct Http {
    client: reqwest::Client,
    authorities: Arc<Authorities>,
    clock: SharedClock,
    requests: AtomicU64,
}

/// What to ask, and within which limits.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Bytes>,
    /// From the first byte sent to the last byte read, each attempt.
    pub timeout: Duration,
    pub patience: Patience,
    pub body_bytes_max: usize,
    /// What a refusal means to a service with conventions of its own; `None` from it = what it means to everybody.
    pub meaning: Option<fn(&Refusal<'_>) -> Option<Error>>,
}

/// An answer that is no answer, for [`Ask::meaning`].
pub struct Refusal<'a> {
    pub status: StatusCode,
    pub headers: &'a HeaderMap,
    /// The server's own words, as far as they are worth showing.
    pub complaint: &'a str,
    /// All it said, or as much as is read of an error page.
    pub said: &'a [u8],
    /// It is another server's, to which the one that was asked sends callers.
    pub elsewhere: bool,
}

impl Refusal<'_> {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A whole answer, by the rule of `Ask::is_answered_by`.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// A header, if it is there and readable.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Ask {
    pub fn get(url: Url, timeout: Duration, body_bytes_max: usize) -> Self {
        Ask {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: None,
            timeout,
            patience: Patience::REQUEST,
            body_bytes_max,
            meaning: None,
        }
    }

    /// A header whose value is no secret.
    pub fn header(mut self, name: HeaderName, value: &str) -> Result<Self> {
        self.headers.insert(name.clone(), sendable(&name, value)?);
        Ok(self)
    }

    pub fn bearer(mut self, token: &Secret) -> Result<Self> {
        let mut value = sendable(&header::AUTHORIZATION, &format!("Bearer {}", token.expose()))?;
        value.set_sensitive(true);
        self.headers.insert(header::AUTHORIZATION, value);
        Ok(self)
    }

    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    #[must_use]
    pub fn meaning(mut self, meaning: fn(&Refusal<'_>) -> Option<Error>) -> Self {
        self.meaning = Some(meaning);
        self
    }

    /// Part of an answer (206), the promise of one (202) and none at all (204) prove nothing, whatever they bring along.
    fn is_answered_by(&self, status: StatusCode) -> bool {
        match status.as_u16() {
            200 | 203 => true,
            201 => self.method != Method::GET,
            304 => self.is_conditional(),
            _ => false,
        }
    }

    /// It may be answered with «not modified».
    fn is_conditional(&self) -> bool {
        [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE].iter().any(|name| self.headers.contains_key(name))
    }
}

fn sendable(name: &HeaderName, value: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(value).map_err(|_| {
        Error::new(Kind::Config, format!("the value of the header {name} holds characters HTTP forbids"))
    })
}

/// An address for messages: without user name, password and what may be a secret in its query.
pub fn shown(url: &Url) -> String {
    hiding(url, may_be_secret)
}

/// An address as a name: the same whatever its user and its secrets are.
pub fn name_of(url: &Url) -> String {
    hiding(url, names_a_secret)
}

fn hiding(url: &Url, hides: fn(&str) -> bool) -> String {
    let mut url = url.clone();
    // Both only fail on addresses that cannot have a user, which then has none to hide.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    let hidden = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && hides(name) => format!("{name}=***"),
        _ => pair.to_owned(),
    };
    if let Some(query) = url.query() {
        let query: Vec<String> = query.split('&').map(hidden).collect();
        url.set_query(Some(&query.join("&")));
    }
    url.into()
}

/// Parse an address from the config; only http and https are asked.
pub fn parse_url(text: &str) -> Result<Url> {
    let url = Url::parse(text)
        .map_err(|error| Error::new(Kind::Config, format!("«{text}» is not a URL")).caused_by(error))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        other => Err(Error::new(Kind::Config, format!("«{other}:» is not an address HTTP can ask"))),
    }
}

impl Http {
    pub fn new(clock: SharedClock) -> Result<Self> {
        let authorities = Authorities::of_this_machine();
        let client = reqwest::Client::builder()
            .user_agent(concat!("trueup/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::custom(follow))
            .tls_backend_preconfigured(authorities.clone().client()?)
            .build()
            .map_err(|error| Error::bug("no HTTP client").caused_by(innermost(&error)))?;
        Ok(Http { client, authorities, clock, requests: AtomicU64::new(0) })
    }

    /// Requests sent so far, retries included.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Ask until there is an answer or the policy gives up.
    pub async fn send(&self, ask: &Ask) -> Result<Answer> {
        self.read(ask, Ok).await
    }

    /// Ask until there is an answer that can be read, or the policy gives up: some servers say 200 and send a page
    /// of regrets.
    pub async fn read<T>(&self, ask: &Ask, read: impl Fn(Answer) -> Result<T>) -> Result<T> {
        let mut attempt = 1;
        loop {
            let error = match self.once(ask).await.and_then(&read) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // Jitter only lengthens the pause: a server that asked for a second gets a second.
            let chance = f64::midpoint(1.0, self.clock.chance());
            match retry::judge(&ask.patience, attempt, &error, chance) {
                Verdict::GiveUp => return Err(error.while_(format!("{} {}", ask.method, shown(&ask.url)))),
                Verdict::Again { wait_ms } => self.clock.sleep(Duration::from_millis(wait_ms)).await,
            }
            attempt += 1;
        }
    }

    /// Ask once. The error does not name the address, which may itself be a secret.
    pub async fn once(&self, ask: &Ask) -> Result<Answer> {
        let response = self.respond(ask).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !ask.is_answered_by(status) {
            let message = format!("the server answered {status}, which is no whole answer");
            return Err(Error::new(Kind::Unavailable, message).answered(status.as_u16()));
        }
        let body = body(response, ask).await?;
        Ok(Answer { status, headers, body })
    }

    /// Tell somebody something, once. What a consenting answer says besides is of no interest and is not read; a
    /// redirect is no consent, because it may have lost the message on the way.
    pub async fn tell(&self, ask: &Ask) -> Result<()> {
        let response = self.respond(ask).await?;
        if *response.url() == ask.url {
            return Ok(());
        }
        Err(Error::new(Kind::Invalid, "the server sends callers to another address")
            .remedy_is("Name the address it sends callers to, if it is to be trusted."))
    }

    /// A consent (2xx), or 304 where that was asked for; its body is still to be read.
    async fn respond(&self, ask: &Ask) -> Result<reqwest::Response> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut response = self.sent(ask).await?;
        let mut asked = None;
        for hops in 1.. {
            let Some(elsewhere) = elsewhere(asked.as_ref().unwrap_or(ask), &response) else { break };
            if hops > REDIRECTS_MAX {
                return Err(Error::new(Kind::Invalid, format!("more than {REDIRECTS_MAX} redirects")));
            }
            response = self.sent(&elsewhere).await?;
            asked = Some(elsewhere);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let is_same = status == StatusCode::NOT_MODIFIED && ask.is_conditional();
        if !status.is_success() && !is_same {
            let elsewhere = response.url().origin() != ask.url.origin();
            let said = said(response).await;
            let complaint = without_secret(complaint(&said), &ask.headers);
            let refusal =
                Refusal { status, headers: &headers, complaint: &complaint, said: &said, elsewhere };
            let meant = ask.meaning.and_then(|meaning| meaning(&refusal));
            return Err(meant.unwrap_or_else(|| self.refusal(status, &headers, &complaint)));
        }
        Ok(response)
    }

    async fn sent(&self, ask: &Ask) -> Result<reqwest::Response> {
        if ask.url.scheme() == "https" {
            self.authorities.are_there()?;
        }
        let mut request = self
            .client
            .request(ask.method.clone(), ask.url.clone())
            .headers(ask.headers.clone())
            .timeout(ask.timeout);
        if let Some(body) = &ask.body {
            request = request.body(body.clone());
        }
        request.send().await.map_err(|error| failure(error, ask.timeout))
    }

    fn refusal(&self, status: StatusCode, headers: &HeaderMap, complaint: &str) -> Error {
        let kind = match status.as_u16() {
            429 => Kind::Throttled,
            408 | 500..=599 => Kind::Unavailable,
            401 | 403 | 407 => Kind::Unauthorized,
            404 | 410 => Kind::NotFound,
            _ => Kind::Invalid,
        };
        let colon = if complaint.is_empty() { "" } else { ": " };
        let error = Error::new(kind, format!("the server answered {status}{colon}{complaint}"))
            .answered(status.as_u16());
        let asked = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        match asked.and_then(|value| self.wait_ms(value)) {
            Some(wait_ms) => error.retry_after_ms(wait_ms),
            None => error,
        }
    }

    /// `Retry-After`: seconds, or a date.
    fn wait_ms(&self, value: &str) -> Option<u64> {
        if let Ok(seconds) = value.trim().parse::<u64>() {
            return Some(seconds.saturating_mul(1_000));
        }
        let until = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value.trim()).ok()?;
        let wait = until.as_millisecond().saturating_sub(self.clock.now().as_millisecond());
        Some(u64::try_from(wait).unwrap_or(0))
    }
}

fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let downgrade = attempt.url().scheme() == "http"
        && attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if downgrade {
        return attempt.error("a redirect from https to http was refused");
    }
    if attempt.previous().len() > REDIRECTS_MAX {
        return attempt.error(format!("more than {REDIRECTS_MAX} redirects"));
    }
    let leaves = attempt.previous().last().is_some_and(|url| url.origin() != attempt.url().origin());
    if leaves { attempt.stop() } else { attempt.follow() }
}

/// What is asked of another server that the answer sends us to: the same, without anything secret. `None` = it does not.
fn elsewhere(ask: &Ask, answer: &reqwest::Response) -> Option<Ask> {
    let keeps_method = matches!(answer.status().as_u16(), 307 | 308);
    if !keeps_method && !matches!(answer.status().as_u16(), 301..=303) {
        return None;
    }
    let target = answer.headers().get(header::LOCATION)?.to_str().ok()?;
    let url = answer.url().join(target).ok()?;
    if url.origin() == answer.url().origin() {
        return None;
    }
    let mut next = Ask { url, ..ask.clone() };
    let secret = |(name, value): (&HeaderName, &HeaderValue)| {
        let named = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION].contains(name);
        (value.is_sensitive() || named).then(|| name.clone())
    };
    let secrets: Vec<HeaderName> = next.headers.iter().filter_map(secret).collect();
    for name in secrets {
        next.headers.remove(name);
    }
    if !keeps_method && !matches!(next.method, Method::GET | Method::HEAD) {
        (next.method, next.body) = (Method::GET, None);
    }
    Some(next)
}

async fn body(mut response: reqwest::Response, ask: &Ask) -> Result<Bytes> {
    let limit = ask.body_bytes_max;
    let too_large = || Error::new(Kind::Invalid, format!("the answer is larger than {limit} bytes"));
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let announced = response.content_length().and_then(|length| usize::try_from(length).ok());
    let mut body = BytesMut::with_capacity(announced.unwrap_or(usize::MAX).min(BODY_BYTES_FIRST).min(limit));
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(error, ask.timeout))? {
        if body.len() + chunk.len() > limit {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    // Whoever keeps a short answer keeps no more than that.
    Ok(if body.capacity() / 2 > body.len() { Bytes::copy_from_slice(&body) } else { body.freeze() })
}

/// As much of an error page as is worth reading.
async fn said(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(COMPLAINT_BYTES_MAX - body.len())]);
        if body.len() >= COMPLAINT_BYTES_MAX {
            break;
        }
    }
    body
}

/// The first line of an error page, if it is text and not a page.
fn complaint(said: &[u8]) -> String {
    const SHOWN_MAX: usize = 160;
    let text = String::from_utf8_lossy(said);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if line.starts_with('<') { String::new() } else { line.chars().take(SHOWN_MAX).collect() }
}

/// A server may repeat what it was sent.
fn without_secret(complaint: String, sent: &HeaderMap) -> String {
    let secrets = sent.iter().filter(|(name, value)| value.is_sensitive() || *name == header::AUTHORIZATION);
    let tokens = secrets.filter_map(|(_, value)| value.to_str().ok()?.split_whitespace().last());
    tokens.fold(complaint, |complaint, token| complaint.replace(token, "…"))
}

fn failure(error: reqwest::Error, timeout: Duration) -> Error {
    let error = error.without_url();
    if error.is_timeout() {
        return Error::new(Kind::Unavailable, format!("no answer within {} ms", timeout.as_millis()));
    }
    if error.is_redirect() || error.is_builder() {
        return Error::new(Kind::Invalid, innermost(&error));
    }
    tls::distrust(&error).unwrap_or_else(|| Error::new(Kind::Unavailable, innermost(&error)))
}

/// reqwest says "error sending request"; the reason is at the bottom.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
