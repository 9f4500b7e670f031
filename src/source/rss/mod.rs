//! Feeds as a source: boards one after another, each a scope of its own that ends in a window (what a feed no
//! longer shows was not deleted), unchanged (304) or broken. The listing brings every article along.
//!
//! A failed board never stops the others; an item that cannot be named or dated never stops its siblings. Nothing of
//! a feed counts unless all of it was read and is well-formed.

mod charset;
mod entities;
pub mod feed;
pub mod item;
mod preview;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use serde::{Deserialize, Serialize};
use url::Url;

use self::item::{BadItem, Ids, Items};
use self::preview::Previews;
use super::silence::Silence;
use super::{Cursors, Event, Sink, Source, Versions};
use crate::clock::SharedClock;
use crate::config::RssSpec;
use crate::error::{Context, Error, Kind, Result};
use crate::http::{Answer, Ask, Http, name_of, shown};
use crate::record::{Body, Entry, Fingerprint, Scope};
use crate::retry::Patience;
use crate::shape::article::Article;

/// A thousand long articles; a feed beyond this is a mistake or an attack.
pub const FEED_BYTES_MAX: usize = 16 << 20;

struct Feed {
    /// The board's id, or a name made of the URL: scope and part of keys.
    board: String,
    url: Url,
    ids: Ids,
    /// Shared by all feeds of a host.
    silence: Arc<Silence>,
}

pub struct Rss {
    name: String,
    feeds: Vec<Feed>,
    timeout: Duration,
    previews: Option<Previews>,
    http: Http,
    clock: SharedClock,
}

/// What a scope's cursor holds: the marks of the last answer, and of which address.
#[derive(Serialize, Deserialize)]
struct Marks {
    #[serde(rename = "u")]
    url: String,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

/// A board as it was read.
enum Board {
    Unchanged,
    Read { items: Items, cursor: Option<String> },
}

impl Rss {
    pub fn new(spec: &RssSpec, clock: SharedClock) -> Result<Self> {
        let mut hosts = HashMap::new();
        let feeds: Vec<Feed> = spec
            .feeds
            .iter()
            .map(|feed| {
                let silence: &Arc<Silence> = hosts.entry(feed.url.origin()).or_default();
                Feed::of(feed.board.as_deref(), &feed.url, silence.clone())
            })
            .collect();
        let name = match &feeds[..] {
            [] => return Err(Error::new(Kind::Config, "no feed is named")),
            [only] => shown(&only.url),
            [first, rest @ ..] => format!("{} and {} more", shown(&first.url), rest.len()),
        };
        let previews = spec
            .preview
            .as_ref()
            .map(|preview| Previews::new(preview, spec.timeout, clock.clone()))
            .transpose()?;
        Ok(Rss { name, feeds, timeout: spec.timeout, previews, http: Http::new(clock.clone())?, clock })
    }

    async fn board(&self, feed: &Feed, cursor: Option<&str>) -> Result<Board> {
        let marks = cursor.and_then(|cursor| serde_json::from_str::<Marks>(cursor).ok());
        let marks = marks.filter(|marks| marks.url == feed.mark());
        let patience = feed.silence.patience(Patience::REQUEST, self.clock.now())?;
        let mut ask = Ask::get(feed.url.clone(), self.timeout, FEED_BYTES_MAX).patience(patience);
        if let Some(marks) = &marks {
            if let Some(etag) = &marks.etag {
                ask = ask.header(IF_NONE_MATCH, etag)?;
            }
            if let Some(modified) = &marks.modified {
                ask = ask.header(IF_MODIFIED_SINCE, modified)?;
            }
        }
        let answer = self.http.send(&ask).await;
        feed.silence.heard(&answer, self.clock.now());
        let answer = answer?;
        if answer.status == StatusCode::NOT_MODIFIED {
            return Ok(Board::Unchanged);
        }
        let reading = || format!("reading {}", shown(&feed.url));
        let text = charset::decode(&answer.body, answer.header(CONTENT_TYPE)).context(reading)?;
        let items = item::articles(feed::read(&text).context(reading)?, &feed.board, feed.ids);
        let cursor = self.cursor(feed, &answer, &items.articles);
        Ok(Board::Read { items, cursor })
    }

    /// No cursor where something may still have to be said or fetched next time: bad items, previews.
    fn cursor(&self, feed: &Feed, answer: &Answer, articles: &[Result<Article, BadItem>]) -> Option<String> {
        let may_follow = |article: &Article| self.previews.is_some() && article.wants_previews();
        if articles.iter().any(|article| article.as_ref().map_or(true, may_follow)) {
            return None;
        }
        let header = |name| answer.header(name).map(str::to_owned);
        let marks = Marks { url: feed.mark(), etag: header(ETAG), modified: header(LAST_MODIFIED) };
        if marks.etag.is_none() && marks.modified.is_none() {
            return None;
        }
        serde_json::to_string(&marks).ok()
    }
}

impl Feed {
    fn of(board: Option<&str>, url: &Url, silence: Arc<Silence>) -> Self {
        let (board, ids) = match board {
            Some(board) => (board.to_owned(), Ids::Board),
            // No secret goes into keys, nor do they change with it.
            None => (item::key_part(&name_of(url)).unwrap_or_else(|| "feed".to_owned()), Ids::Feed),
        };
        Feed { board, url: url.clone(), ids, silence }
    }

    fn mark(&self) -> String {
        Fingerprint::of(self.url.as_str().as_bytes()).short()
    }
}

#[async_trait]
impl Source for Rss {
    fn name(&self) -> &str {
        &self.name
    }

    fn sorted(&self) -> bool {
        false
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    async fn list(&self, cursors: &Cursors, out: &mut Sink) -> Result<()> {
        self.feeds.iter().for_each(|feed| feed.silence.forget());
        self.previews.iter().for_each(Previews::begin);
        for feed in &self.feeds {
            let scope: Scope = feed.board.as_str().into();
            match self.board(feed, cursors.get(&feed.board).map(String::as_str)).await {
                Ok(Board::Unchanged) => out.send(Event::Unchanged(scope)).await?,
                Ok(Board::Read { items, cursor }) => {
                    for note in items.notes {
                        out.send(Event::Note(note)).await?;
                    }
                    for article in items.articles {
                        out.send(event(&scope, article)?).await?;
                    }
                    out.send(Event::Window(scope, cursor)).await?;
                }
                Err(error) => {
                    let error = error.while_(format!("board {}", feed.board));
                    out.send(Event::Broken(scope, error)).await?;
                }
            }
        }
        Ok(())
    }

    /// The article with its previews. One that is not there yet leaves a mark on the version, so that the next
    /// run comes back to it.
    async fn open(&self, entry: &Entry) -> Result<Body> {
        let inline = entry.inline.clone().ok_or_else(|| Error::bug("an article without its text"))?;
        let Some(previews) = &self.previews else {
            return Ok(Body { bytes: inline, version: entry.version.clone() });
        };
        let mut article = Article::from_json(&inline)?;
        let fetched = previews.fetch(&self.http, &article).await?;
        let missing = fetched.iter().any(|preview| preview.content.is_none());
        article.previews = Some(fetched);
        let version = if missing { format!("{}{INCOMPLETE}", entry.version) } else { entry.version.clone() };
        Ok(Body { bytes: article.to_json()?.into(), version })
    }

    fn requests(&self) -> u64 {
        self.http.requests()
    }

    fn remote(&self) -> bool {
        self.previews.is_some()
    }

    async fn check(&self) -> Result<Vec<String>> {
        let mut findings = Vec::new();
        let mut failure = None;
        for feed in &self.feeds {
            match self.board(feed, None).await {
                Ok(Board::Read { items: Items { articles, .. }, .. }) => {
                    let bad = articles.iter().filter(|article| article.is_err()).count();
                    let bad = if bad > 0 { format!(", {bad} of them unusable") } else { String::new() };
                    findings.push(format!("board {}: {} items{bad}", feed.board, articles.len()));
                }
                Ok(Board::Unchanged) => {}
                Err(error) => {
                    findings.push(format!("board {}: {error}", feed.board));
                    failure = Some(error.while_(format!("board {}", feed.board)));
                }
            }
        }
        failure.map_or(Ok(findings), Err)
    }
}

/// Marks the version of a body that lacks a preview.
const INCOMPLETE: &str = "+preview-missing";

fn event(scope: &Scope, article: Result<Article, BadItem>) -> Result<Event> {
    let article = match article {
        Ok(article) => article,
        Err(bad) => {
            let entry = Entry::new(format!("{scope}/{}", bad.name), scope, "");
            return Ok(Event::Bad(entry, bad.error.while_(format!("board {scope}"))));
        }
    };
    let bytes = article.to_json()?;
    Ok(Event::Seen(Entry {
        size: Some(bytes.len() as u64),
        facts: Some(serde_json::json!({"published": article.published})),
        inline: Some(bytes.into()),
        ..Entry::new(format!("{scope}/{}", article.id), scope, article.version()?)
    }))
}
