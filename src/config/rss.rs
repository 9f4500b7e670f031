//! `from = { rss = … }`: which feeds are read, and what of them. The address is one URL per board, or a list of URLs.

use std::fmt;
use std::time::Duration;

use url::Url;

use super::document::Value;
use super::model::From;
use super::reader::{Field, Keys, Reader, repeated};
use super::source::Around;
use super::{redact, values};
use crate::http::name_of;
use crate::secret::SecretRef;

pub const RSS_KEYS: Keys = &["rss", "boards", "preview", "timeout"];
pub const PREVIEW_KEYS: Keys = &["base", "token_env", "token_file"];

/// A board that does not answer in this time is tried again, then reported.
pub const FEED_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a board's id goes in the address.
const PLACE: &str = "{board}";
/// The query parameter that takes the id when the address names no place for it.
const PARAMETER: &str = "bbsNo";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RssSpec {
    pub feeds: Vec<FeedSpec>,
    pub preview: Option<PreviewSpec>,
    /// For one request, from the first byte sent to the last byte read.
    pub timeout: Duration,
}

#[derive(Clone, PartialEq, Eq)]
pub struct FeedSpec {
    /// The board's id; `None` for a feed that was given by its URL alone.
    pub board: Option<String>,
    pub url: Url,
}

impl fmt::Debug for FeedSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeedSpec({:?}, {})", self.board, redact::url(self.url.as_str()))
    }
}

/// Where the text of an attachment can be had.
#[derive(Clone, PartialEq, Eq)]
pub struct PreviewSpec {
    pub base: Url,
    pub token: Option<SecretRef>,
}

impl fmt::Debug for PreviewSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreviewSpec({}, {:?})", redact::url(self.base.as_str()), self.token)
    }
}

pub fn read(reader: &Reader<'_>, around: &Around<'_>) -> Option<From> {
    let preview = reader.take("preview").map(|field| preview(&field, around));
    let timeout = reader.take("timeout").and_then(|field| field.interval()).unwrap_or(FEED_TIMEOUT);
    let boards = reader.take("boards").map(|field| boards(&field));
    let address = reader.require("rss", "the URL of a feed")?;
    let feeds = match boards {
        Some(boards) => one_per_board(&address, &boards?)?,
        None => by_url(&address)?,
    };
    let preview = match preview {
        Some(preview) => Some(preview?),
        None => None,
    };
    Some(From::Rss(RssSpec { feeds, preview, timeout }))
}

fn preview(field: &Field<'_>, around: &Around<'_>) -> Option<PreviewSpec> {
    let reader =
        field.table(PREVIEW_KEYS, "a table such as { base = \"https://…\", token_env = \"NAME\" }")?;
    let token = reader.secret("token_env", "token_file", around.base);
    let field = reader.require("base", "a URL")?;
    let base = address(&field, field.text("a URL")?)?;
    Some(PreviewSpec { base, token })
}

/// Board ids: a list of numbers or strings, or a string with commas. Blanks and repetitions fall away.
fn boards(field: &Field<'_>) -> Option<Vec<String>> {
    const EXPECTED: &str = "board ids such as \"25,26\" or [25, 26]";
    let mut ids: Vec<String> = Vec::new();
    for item in field.list_or_one() {
        let found = match &item.node.value {
            Value::Integer(number) if *number >= 0 => vec![number.to_string()],
            Value::Text { text, .. } => values::commas(text),
            _ => return item.unexpected(EXPECTED),
        };
        for id in found {
            if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
                let message = format!("`{}` is no board id: letters, digits, `_` and `-`", repeated(&id));
                item.wrong(message);
                return None;
            }
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }
    if ids.is_empty() {
        field.wrong_with("`boards` names no board", format!("expected {EXPECTED}"));
        return None;
    }
    Some(ids)
}

fn one_per_board(field: &Field<'_>, boards: &[String]) -> Option<Vec<FeedSpec>> {
    let text = field.text("one URL when `boards` are given")?;
    let mut feeds = Vec::with_capacity(boards.len());
    for board in boards {
        let url = if text.contains(PLACE) { text.replace(PLACE, board) } else { with_parameter(text, board) };
        feeds.push(FeedSpec { board: Some(board.clone()), url: address(field, &url)? });
    }
    Some(feeds)
}

fn with_parameter(base: &str, board: &str) -> String {
    let (base, fragment) =
        base.split_once('#').map_or((base, None), |(base, fragment)| (base, Some(fragment)));
    let mark = match base.split_once('?') {
        None => "?",
        Some((_, query)) if query.is_empty() || query.ends_with('&') => "",
        Some(_) => "&",
    };
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    format!("{base}{mark}{PARAMETER}={board}{fragment}")
}

fn by_url(field: &Field<'_>) -> Option<Vec<FeedSpec>> {
    let mut feeds: Vec<FeedSpec> = Vec::new();
    for item in field.list_or_one() {
        let text = item.text("the URL of a feed, or a list of URLs")?;
        if text.contains(PLACE) {
            item.wrong_with(
                format!("the address has a place for {PLACE}"),
                "add `boards`, such as \"25,26\"",
            );
            return None;
        }
        let feed = FeedSpec { board: None, url: address(&item, text)? };
        if feeds.contains(&feed) {
            continue;
        }
        if feeds.iter().any(|other| name_of(&other.url) == name_of(&feed.url)) {
            let message = "this feed and another differ in nothing but a secret, and would share their files";
            item.wrong_with(message, "give each a pipeline of its own, with a `key` of its own");
            return None;
        }
        feeds.push(feed);
    }
    if feeds.is_empty() {
        return field.unexpected("the URL of a feed, or a list of URLs");
    }
    Some(feeds)
}

fn address(field: &Field<'_>, text: &str) -> Option<Url> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Some(url),
        _ => field.unexpected("an http:// or https:// URL"),
    }
}

#[cfg(test)]
mod tests {
    use super::with_parameter;

    #[test]
    fn the_board_goes_into_the_query() {
        let cases = [
            ("https://h/rss.do", "https://h/rss.do?bbsNo=25"),
            ("https://h/rss.do?a=1", "https://h/rss.do?a=1&bbsNo=25"),
            ("https://h/rss.do?", "https://h/rss.do?bbsNo=25"),
            ("https://h/rss.do#top", "https://h/rss.do?bbsNo=25#top"),
        ];
        for (base, url) in cases {
            assert_eq!(with_parameter(base, "25"), url);
        }
    }
}
