//! What an item means: its id, its day, its attachments. An item that cannot be named or dated is an error of its
//! own; its siblings go on.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};

use super::feed::{Feed, Item};
use crate::error::{Error, Kind, Result};
use crate::record::Fingerprint;
use crate::shape::article::{Article, Attachment, Head, SEOUL};

/// Where an article's id may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// A board by number: the link's `nttNo`; guids only where no item has one.
    Board,
    /// Any publisher's feed: `nttNo`, else guid, else the link itself.
    Feed,
}

/// An item that cannot be used: what to call it in reports, and why.
#[derive(Debug)]
pub struct BadItem {
    pub name: String,
    pub error: Error,
}

/// The items of a feed, in its order, and what is to be said of them.
pub struct Items {
    pub articles: Vec<Result<Article, BadItem>>,
    pub notes: Vec<String>,
}

/// Every item of a feed once. Of several with one id the first that can be used counts: feeds put the newest first.
pub fn articles(feed: Feed, board: &str, ids: Ids) -> Items {
    let numbered = feed.items.iter().any(|item| parameter(&item.link, "nttNo").is_some());
    let read = |item| {
        let print = print(&item);
        (article(item, board, &feed.head, ids, numbered), print)
    };
    let read: Vec<_> = feed.items.into_iter().map(read).collect();
    let mut named: HashMap<String, (Fingerprint, String)> = HashMap::new();
    for (article, print) in &read {
        if let Ok(article) = article {
            named.entry(article.id.clone()).or_insert_with(|| (*print, article.title.clone()));
        }
    }
    let (mut told, mut items) = (HashSet::new(), Items { articles: Vec::new(), notes: Vec::new() });
    for (article, print) in read {
        let id = article.as_ref().map_or_else(|bad| &bad.name, |article| &article.id);
        if !told.insert((id.clone(), print)) {
            items.notes.push(format!("board {board}: the feed has {id} twice, word for word"));
            continue;
        }
        let first = named.entry(id.clone()).or_insert_with(|| (print, String::new()));
        items.articles.push(if first.0 == print { article } else { Err(second(article, print, &first.1)) });
    }
    items
}

/// Everything an item says: two that differ in nothing are one.
fn print(item: &Item) -> Fingerprint {
    let files = format!("{:?}{:?}", item.numbered, item.enclosures);
    let texts = [&item.title, &item.link, &item.guid, &item.date, &item.department, &item.html, &files];
    Fingerprint::of_parts(&texts.map(String::as_bytes))
}

/// An item whose id is another's is told under a name of its own.
fn second(article: Result<Article, BadItem>, print: Fingerprint, first: &str) -> BadItem {
    let (id, error) = match article {
        Err(BadItem { name, error }) => (name, error),
        Ok(Article { id, title, .. }) => {
            let (own, before) = (shown(&title), shown(first));
            let message = format!("the item «{own}» has the id {id}, as «{before}»; the first one counts");
            let remedy = "Ask the publisher for a `guid` or a link of its own for every item.";
            let error = Error::new(Kind::Invalid, message).remedy_is(remedy);
            (id, error)
        }
    };
    BadItem { name: format!("{id}#{}", print.short()), error }
}

fn article(item: Item, board: &str, head: &Head, ids: Ids, numbered: bool) -> Result<Article, BadItem> {
    let Some(id) = article_id(&item, ids, numbered) else {
        let print =
            Fingerprint::of_parts(&[item.link.as_bytes(), item.title.as_bytes(), item.date.as_bytes()]);
        let name = format!("no-id-{}", print.short());
        let message = format!("the item «{}» has no id (link: {})", shown(&item.title), shown(&item.link));
        return Err(BadItem { name, error: Error::new(Kind::Invalid, message) });
    };
    let published = match day(&item.date) {
        Ok(published) => published,
        Err(error) => return Err(BadItem { name: id, error }),
    };
    Ok(Article {
        board: board.to_owned(),
        id,
        published,
        attachments: attachments(&item),
        title: item.title,
        link: item.link,
        department: item.department,
        html: item.html,
        feed: head.clone(),
        previews: None,
    })
}

/// Enough of a text for a person to find it.
fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 80;
    if text.chars().count() <= SHOWN_MAX {
        return text.to_owned();
    }
    text.chars().take(SHOWN_MAX).chain(['…']).collect()
}

fn article_id(item: &Item, ids: Ids, numbered: bool) -> Option<String> {
    if let Some(number) = parameter(&item.link, "nttNo") {
        return Some(number.to_owned());
    }
    match ids {
        Ids::Board if numbered => None,
        Ids::Board => guid(item),
        Ids::Feed => guid(item).or_else(|| key_part(&item.link)),
    }
}

/// What publishers put where they have no id; two articles must not share it.
const NO_ID: &str = "unknown";

fn guid(item: &Item) -> Option<String> {
    key_part(&item.guid).filter(|_| !item.guid.eq_ignore_ascii_case(NO_ID))
}

/// The query parameter of exactly this name, if it is a number.
pub fn parameter<'a>(url: &'a str, name: &str) -> Option<&'a str> {
    let query = url.split('#').next()?.split_once('?')?.1;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, value)| *key == name && is_number(value)).map(|(_, value)| value)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= ID_MAX && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Longest readable part of an id in a key.
const ID_MAX: usize = 64;

/// An id as part of a key: readable, and told apart by a hash where characters had to go.
pub fn key_part(id: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.is_empty() {
        return None;
    }
    if id.len() <= ID_MAX && id.chars().all(fits) && !id.starts_with('.') {
        return Some(id.to_owned());
    }
    let bare = id.split_once("://").map_or(id, |(_, rest)| rest);
    let mut slug = String::new();
    for c in bare.chars().map(|c| if fits(c) { c } else { '-' }) {
        if slug.len() < ID_MAX && !(c == '-' && slug.ends_with('-')) {
            slug.push(c);
        }
    }
    let slug = slug.trim_matches(['-', '.']);
    Some(format!(
        "{slug}{}{}",
        if slug.is_empty() { "" } else { "-" },
        Fingerprint::of(id.as_bytes()).short()
    ))
}

/// The day in Asia/Seoul: `2025-10-16`, `2025-10-16 09:30[:00]`, RFC 2822 or RFC 3339.
pub fn day(text: &str) -> Result<Date> {
    let wrong = || {
        let message = match text {
            "" => "the item has no date".to_owned(),
            _ => format!("«{}» is not a date", shown(text)),
        };
        Error::new(Kind::Invalid, message)
    };
    if text.len() < 10 {
        return Err(wrong());
    }
    if is_board_date(text) {
        return text.parse::<DateTime>().map(DateTime::date).map_err(|_| wrong());
    }
    let instant = text.parse::<Timestamp>().ok().or_else(|| {
        let parser = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
        parser.parse_timestamp(text).ok()
    });
    instant.map(|at| SEOUL.to_datetime(at).date()).ok_or_else(wrong)
}

/// `YYYY-MM-DD`, with or without a time, without an offset.
fn is_board_date(text: &str) -> bool {
    let shape = |text: &str, shape: &str| {
        text.len() == shape.len()
            && text
                .bytes()
                .zip(shape.bytes())
                .all(|(c, s)| if s == b'0' { c.is_ascii_digit() } else { c == s })
    };
    ["0000-00-00", "0000-00-00 00:00", "0000-00-00 00:00:00", "0000-00-00 00:00:00.0"]
        .iter()
        .any(|s| shape(text, s))
}

fn attachments(item: &Item) -> Vec<Attachment> {
    let numbered = item.numbered.values().map(|file| attachment(&file.name, &file.url, &file.preview));
    let enclosed = item.enclosures.iter().map(|file| {
        let name = if file.name.is_empty() { last_segment(&file.url) } else { file.name.clone() };
        attachment(&name, &file.url, "")
    });
    numbered.chain(enclosed).collect()
}

fn attachment(name: &str, url: &str, preview_url: &str) -> Attachment {
    let stripped = name.trim_start_matches(['-', ' ', '\u{a0}']);
    let fallback = if url.is_empty() { preview_url } else { url };
    let id = parameter(preview_url, PREVIEW_ID).or_else(|| parameter(url, PREVIEW_ID));
    Attachment {
        name: if stripped.is_empty() { fallback } else { stripped }.to_owned(),
        url: url.to_owned(),
        preview_url: preview_url.to_owned(),
        preview_id: id.map(ToOwned::to_owned),
    }
}

/// The query parameter that numbers an attachment.
pub const PREVIEW_ID: &str = "atchmnflNo";

fn last_segment(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_the_parameter_of_exactly_that_name() {
        let cases = [
            ("https://x/a?nttNo=34", Some("34")),
            ("https://x/a?a=1&xnttNo=12&nttNo=34", Some("34")),
            ("https://x/a?nttNo=&nttNo=7", Some("7")),
            ("https://x/a?nttNo=34a", None),
            ("https://x/a?b=1#nttNo=34", None),
            ("https://x/nttNo=34", None),
            ("", None),
        ];
        for (url, id) in cases {
            assert_eq!(parameter(url, "nttNo"), id, "{url}");
        }
    }

    #[test]
    fn only_real_days_are_days() {
        let cases = [
            ("2025-10-16", Some("2025-10-16")),
            ("2025-10-16 23:59", Some("2025-10-16")),
            ("2025-10-16 23:59:59", Some("2025-10-16")),
            ("2025-10-16 23:59:59.0", Some("2025-10-16")),
            ("2025-02-30", None),
            ("2024-02-29", Some("2024-02-29")),
            ("2025-02-29", None),
            ("2025-13-01", None),
            ("2025-10-16 25:00", None),
            ("2025-10-16 24:00", None),
            ("2025/10/16", None),
            ("25-10-16", None),
            ("", None),
            ("yesterday evening", None),
            ("Thu, 16 Oct 2025 16:00:00 GMT", Some("2025-10-17")),
            ("Thu, 16 Oct 2025 14:59:00 +0000", Some("2025-10-16")),
            ("Fri, 17 Oct 2025 01:00:00 +0900", Some("2025-10-17")),
            ("2025-10-16T15:00:00Z", Some("2025-10-17")),
            ("2025-10-17T00:00:00+09:00", Some("2025-10-17")),
        ];
        for (text, expected) in cases {
            assert_eq!(day(text).ok().map(|day| day.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_says_that_there_is_no_id_is_none() {
        let of = |guid: &str, link: &str, ids| {
            let mut item = Item::default();
            (item.guid, item.link) = (guid.to_owned(), link.to_owned());
            article_id(&item, ids, false)
        };
        for guid in ["unknown", "Unknown", "UNKNOWN"] {
            assert_eq!(of(guid, "https://x/1", Ids::Board), None, "{guid}");
            assert!(of(guid, "https://x/1", Ids::Feed).unwrap().starts_with("x-1-"), "{guid}");
            assert_eq!(of(guid, "", Ids::Feed), None, "{guid}");
        }
        assert_eq!(of("unknown-1", "", Ids::Feed).as_deref(), Some("unknown-1"));
    }

    #[test]
    fn ids_fit_into_keys_and_stay_apart() {
        assert_eq!(key_part("2025-abc.1").unwrap(), "2025-abc.1");
        let url = key_part("https://news.example/2025/?p=12").unwrap();
        assert!(url.starts_with("news.example-2025-p-12-"), "{url}");
        assert_ne!(key_part("a/b"), key_part("a?b"));
        assert_ne!(key_part("가"), key_part("나"));
        assert!(!key_part("../../etc").unwrap().contains('/'));
        assert_eq!(key_part(""), None);
        assert!(key_part(&"x".repeat(5_000)).unwrap().len() <= 80);
    }
}
