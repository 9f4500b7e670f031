//! Articles as Markdown files: one per article, named by board, day and id, written once.
//!
//! What exists stays (`on_edit = "keep"`), with one exception: a file that was saved without a preview gets it when
//! it can be had. The day in a key is the day the article was first seen with; another day makes no second file. How long
//! a file is kept goes by the newest day its feed ever gave.

mod file;
pub mod html;
mod item;
mod text;

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

pub use item::{Article, Attachment, Head, Preview};

use super::{Absent, Existing, Identified, Input, Output, Prior, Rendered, Shape};
use crate::config::{ArticleSpec, Named, OnEdit};
use crate::error::{Error, Result};
use crate::record::{Entry, Fingerprint};

/// Asia/Seoul has had no other offset since 1988; a fixed one needs no time zone database.
pub const SEOUL: jiff::tz::Offset = jiff::tz::offset(9);

pub struct Articles {
    spec: ArticleSpec,
    /// Previews are written only where they are fetched.
    previews: bool,
}

/// The little that is remembered about a file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Carry {
    /// The version of the article that the file shows.
    #[serde(rename = "v")]
    version: String,
    /// Previews that could not be had.
    #[serde(rename = "m", default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// The newest day the feed gave it.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    day: Option<Date>,
}

impl Carry {
    fn of(carry: Option<&serde_json::Value>) -> Self {
        carry.and_then(|carry| Carry::deserialize(carry).ok()).unwrap_or_default()
    }

    fn json(&self) -> Result<serde_json::Value> {
        serde_json::to_value(self).map_err(|error| Error::bug("carry").caused_by(error))
    }
}

impl Articles {
    pub fn new(spec: ArticleSpec, previews: bool) -> Self {
        Articles { spec, previews }
    }

    fn file(&self, input: &Input<'_>, article: &Article, key: String) -> Result<Rendered> {
        if self.previews && article.previews.is_none() && article.wants_previews() {
            return Ok(Rendered::NeedBody);
        }
        let value = file::write(article, input.now)?;
        let before = Carry::of(input.prior.and_then(|prior| prior.carry.as_ref())).day;
        let carry = Carry {
            version: input.entry.version.clone(),
            missing: missing(article),
            day: before.max(Some(article.published)),
        };
        Ok(Rendered::Put(Output {
            key,
            fingerprint: fingerprint(value.as_bytes()),
            value: value.into(),
            carry: Some(carry.json()?),
            retire: Vec::new(),
        }))
    }

    /// There is a file already.
    fn again(&self, input: &Input<'_>, article: &Article, prior: &Prior) -> Result<Rendered> {
        let carry = Carry::of(prior.carry.as_ref());
        if self.previews && !carry.missing.is_empty() {
            if article.previews.is_none() && article.wants_previews() {
                return Ok(Rendered::NeedBody);
            }
            // It is written again for what can be had now; what still cannot is asked for on the next run.
            let missing = missing(article);
            if missing.len() < carry.missing.len() {
                return self.file(input, article, prior.key.clone());
            }
            let edited = carry.version != input.entry.version;
            // What could be had before is not given up because it cannot be had now.
            let stays = if edited { self.spec.on_edit == OnEdit::Keep } else { missing != carry.missing };
            if stays {
                return Ok(Rendered::Keep(String::new()));
            }
        }
        let key = self.key_of(article);
        match self.spec.on_edit {
            OnEdit::Update => self.file(input, article, prior.key.clone()),
            // The same article under the same key: the store decides whether its file is still in place.
            OnEdit::Keep if carry.version == input.entry.version && key == prior.key => {
                self.file(input, article, key)
            }
            OnEdit::Keep if key != prior.key => {
                Ok(Rendered::Keep(format!("date changed to {}; {} stays", article.published, prior.key)))
            }
            OnEdit::Keep => Ok(Rendered::Keep("edited at its source; the saved file stays".to_owned())),
        }
    }

    fn key_of(&self, article: &Article) -> String {
        self.spec.key.key(&article.board, &article.id, article.published)
    }
}

/// As the source calls an article.
fn identity(named: &Named) -> String {
    format!("{}/{}", named.board, named.article)
}

fn missing(article: &Article) -> Vec<String> {
    let previews = article.previews.as_deref().unwrap_or_default();
    previews.iter().filter(|preview| preview.content.is_none()).map(|preview| preview.id.clone()).collect()
}

/// Over the file without its Generated line: the same article written at another time is the same.
pub fn fingerprint(value: &[u8]) -> Fingerprint {
    let start = value.windows(file::GENERATED.len()).position(|window| window == file::GENERATED.as_bytes());
    let Some(start) = start else { return Fingerprint::of(value) };
    let end =
        value[start..].iter().position(|byte| *byte == b'\n').map_or(value.len(), |length| start + length);
    Fingerprint::of_parts(&[&value[..start], &value[end..]])
}

impl Shape for Articles {
    fn name(&self) -> &'static str {
        "article"
    }

    /// 2: the newest day is remembered.
    fn version(&self) -> u32 {
        2
    }

    /// What was left alone under another rule is looked at again.
    fn stamp(&self, entry: &Entry) -> Fingerprint {
        let rule = match self.spec.on_edit {
            OnEdit::Keep => "keep",
            OnEdit::Update => "update",
        };
        let facts = entry.facts.as_ref().map(ToString::to_string).unwrap_or_default();
        Fingerprint::of_parts(&[
            self.name().as_bytes(),
            &self.version().to_be_bytes(),
            rule.as_bytes(),
            entry.id.as_bytes(),
            entry.version.as_bytes(),
            facts.as_bytes(),
        ])
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn key_prefix(&self) -> Option<&str> {
        None
    }

    fn existing(&self) -> Existing {
        match self.spec.on_edit {
            OnEdit::Keep => Existing::Skip,
            OnEdit::Update => Existing::Replace,
        }
    }

    fn identify(&self, entry: &Entry) -> Result<Identified> {
        Ok(Identified { identity: entry.id.clone(), rank: String::new() })
    }

    fn claims(&self, key: &str) -> Option<String> {
        self.spec.key.name(key).map(|named| identity(&named))
    }

    fn namesakes(&self, key: &str) -> Vec<String> {
        self.spec.key.names(key).iter().map(identity).collect()
    }

    fn render(&self, input: &Input<'_>) -> Result<Rendered> {
        let bytes = input.body.map(|body| &body.bytes).or(input.entry.inline.as_ref());
        let Some(bytes) = bytes else { return Ok(Rendered::NeedBody) };
        let article = Article::from_json(bytes)?;
        if self.expired(&self.key_of(&article), None, input.now) {
            return Ok(Rendered::Keep(String::new()));
        }
        match input.prior {
            Some(prior) => self.again(input, &article, prior),
            None => self.file(input, &article, self.key_of(&article)),
        }
    }

    fn key(&self, entry: &Entry) -> Option<String> {
        let article = Article::from_json(entry.inline.as_ref()?).ok()?;
        Some(self.key_of(&article))
    }

    fn expires_below(&self) -> Option<&str> {
        self.spec.keep.map(|_| self.spec.key.head())
    }

    fn dated_below(&self) -> Option<&str> {
        self.spec.key.has_date().then(|| self.spec.key.head())
    }

    fn kept(&self, entry: &Entry, carry: Option<&serde_json::Value>) -> Option<serde_json::Value> {
        let mut carry = Carry::of(carry);
        let published = entry.facts.as_ref().and_then(|facts| Date::deserialize(&facts["published"]).ok());
        carry.day = carry.day.max(published);
        carry.json().ok()
    }

    fn unlike(&self, carry: Option<serde_json::Value>) -> Option<serde_json::Value> {
        Carry { version: String::new(), ..Carry::of(carry.as_ref()) }.json().ok()
    }

    fn expired(&self, key: &str, carry: Option<&serde_json::Value>, now: Timestamp) -> bool {
        let Some(keep) = self.spec.keep else { return false };
        let date = self.spec.key.name(key).and_then(|named| named.date);
        let date = date.map(|date| Carry::of(carry).day.map_or(date, |newest| newest.max(date)));
        date.is_some_and(|date| date < keep.first_day(SEOUL.to_datetime(now).date()))
    }

    /// Feeds never prove absence; if some other source does, an archive keeps what it has.
    fn absent(&self, _prior: &Prior, _value: Option<&[u8]>, _now: Timestamp) -> Absent {
        Absent::Keep
    }
}
