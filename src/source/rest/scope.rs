//! One scope, page by page: a resource, or what a resource has for one row of its parent.
//!
//! An answer that is byte for byte what it was when its rows were last applied is not even parsed, unless children hang
//! from its rows or it had something to be said about.
//!
//! An answer counts only when it is JSON, of a version we know, with the list where the recipe says. Anything else
//! breaks the scope; it is never taken for an empty list.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use reqwest::header;
use serde_json::Value;
use tokio::sync::mpsc;
use url::Url;

use super::item::{self, Item};
use super::mend;
use super::pages::{self, Next, Turned};
use super::row::{Lent, Row};
use super::rows::{Blocks, Summary};
use super::{Api, BODY_BYTES_MAX, PAGES_MAX};
use crate::config::{Pagination, Part};
use crate::error::{Error, Kind, Result};
use crate::http::{Answer, Ask};
use crate::record::Fingerprint;

/// What a scope hangs from: the row of its parent.
#[derive(Debug)]
pub struct Parent {
    pub external_id: String,
    pub lent: Lent,
}

/// A resource, for one row of its parent if it has one.
pub struct Which {
    pub resource: usize,
    pub parent: Option<Arc<Parent>>,
    /// What its rows came to when they were last applied.
    pub cursor: Option<String>,
}

/// What becomes of an item.
pub enum Picked {
    Row {
        id: String,
        bytes: Bytes,
        print: Fingerprint,
        lent: Lent,
    },
    /// It is there and cannot be used. Without an id nobody knows which row it is.
    Bad {
        id: Option<String>,
        error: Error,
        lent: Option<Lent>,
    },
}

pub enum Message {
    Page(Vec<Picked>),
    /// All rows of the scope are as they were; what they are called, and what they lend.
    Same(Vec<(String, Lent)>),
    /// The answer itself is as it was. Nobody looked into it.
    Verbatim(Verbatim),
    /// The last message of a scope; with the mark of its answer, if that is all there is to it.
    End(Result<Option<String>>),
}

/// An answer that is the same as when its rows were last applied.
pub struct Verbatim {
    parent: Option<Arc<Parent>>,
    pub body: Bytes,
}

/// The page a scope has come to.
struct Turn<'a> {
    url: &'a Url,
    /// Pages read so far, this one included.
    pages: u64,
    /// Items on the pages before it.
    items_before: u64,
    /// The scope has no other list.
    alone: bool,
}

impl Turn<'_> {
    /// This page may be all there is to the scope.
    fn is_only(&self) -> bool {
        self.alone && self.pages == 1
    }
}

/// A page as it came.
struct Page<'a> {
    items: Vec<Item<'a>>,
    rest: Value,
    /// Nothing about it is worth a word.
    quiet: bool,
}

enum Read {
    Page {
        says: Message,
        /// What its rows come to, where an API that overlooks the page it is asked for would give the same for ever.
        rows: Option<String>,
        /// `None` = there is more to know of this resource than whether it changed.
        mark: Option<String>,
        items: usize,
        next: Next,
    },
    Verbatim(Verbatim),
    /// A good answer that leads nowhere; asking again will not help.
    Astray(Error),
}

/// Some servers begin with it; it is no part of what they say.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Part of every mark: changes when the same answer would become other rows.
const FORM: &[u8] = b"an answer, 2";

/// Where a scope was left off: what its rows came to and, behind a blank, the mark of the answer they came in.
pub fn cursor(rows: String, mark: Option<String>) -> String {
    match mark {
        Some(mark) => format!("{rows} {mark}"),
        None => rows,
    }
}

/// What the rows came to.
pub fn rows_in(cursor: &str) -> &str {
    cursor.split(' ').next().unwrap_or_default()
}

fn mark_in(cursor: &str) -> Option<&str> {
    cursor.split_once(' ').map(|(_, mark)| mark)
}

/// A parent's key as one step of a scope's name: a scope covers what is below it, and `1` is not above `1/a`.
pub fn below(external_id: &str) -> Cow<'_, str> {
    if external_id.contains(['/', '%']) {
        return external_id.replace('%', "%25").replace('/', "%2F").into();
    }
    external_id.into()
}

/// The key again.
pub fn above(step: &str) -> String {
    step.replace("%2F", "/").replace("%25", "%")
}

/// Read the scope and tell everything. Nobody listening any more ends it quietly.
pub async fn read(api: Arc<Api>, which: Which, stop: Arc<AtomicBool>, out: mpsc::Sender<Message>) {
    let ended = pages_of(&api, &which, &stop, &out).await;
    let _ = out.send(Message::End(ended)).await;
}

async fn pages_of(
    api: &Api,
    which: &Which,
    stop: &AtomicBool,
    out: &mpsc::Sender<Message>,
) -> Result<Option<String>> {
    let spec = &api.spec.resources[which.resource];
    let base = address(api, &spec.path, which.parent.as_deref())?;
    let mut mark = None;
    let starts: Vec<Url> = match &spec.each {
        Some((param, values)) => values.iter().map(|value| pages::with_param(&base, param, value)).collect(),
        None => vec![base],
    };
    let alone = starts.len() == 1;
    for start in starts {
        let url = pages::first(&spec.pagination, start);
        match list_of(api, which, (url, alone), stop, out).await? {
            Listed::Whole(found, answers) => {
                api.paged.note(api, which, answers);
                mark = found;
            }
            Listed::Over => return Ok(None),
        }
    }
    Ok(mark)
}

/// How a list ended.
enum Listed {
    /// With the mark of its last page, and so many answers.
    Whole(Option<String>, usize),
    /// There is nothing more to say, or nobody listens any more.
    Over,
}

/// One list of a scope, to its end.
async fn list_of(
    api: &Api,
    which: &Which,
    (mut url, alone): (Url, bool),
    stop: &AtomicBool,
    out: &mpsc::Sender<Message>,
) -> Result<Listed> {
    let (mut asked, mut before, mut items_before) = (HashSet::new(), None, 0);
    // Whether there is such a page is what is asked.
    let mut doubtful = false;
    loop {
        turn_to(&url, &mut asked)?;
        let turn = Turn { url: &url, pages: asked.len() as u64, items_before, alone };
        let (says, mark, next) = match ask(api, which, &turn, stop).await {
            Ok(Read::Page { rows, .. }) if rows.is_some() && rows == before => {
                if !doubtful {
                    return Err(repeated());
                }
                let table = &api.spec.resources[which.resource].table.name;
                api.note(format!("{table}: the API gives the same rows, whichever page it is asked for"));
                return Ok(Listed::Whole(None, asked.len()));
            }
            Ok(Read::Page { says, rows, mark, items, next }) => {
                before = rows;
                items_before += items as u64;
                (says, mark, next)
            }
            Ok(Read::Verbatim(same)) => {
                // Nobody listening any more is no reason to complain.
                let _ = out.send(Message::Verbatim(same)).await;
                return Ok(Listed::Over);
            }
            Ok(Read::Astray(error)) => return Err(error),
            Err(error) if doubtful && is_no_such_page(&error) => return Ok(Listed::Whole(None, asked.len())),
            Err(error) => return Err(error),
        };
        if out.send(says).await.is_err() {
            return Ok(Listed::Over);
        }
        doubtful = matches!(next, Next::Doubtful(_));
        match next {
            Next::Page(next) | Next::Doubtful(next) => url = next,
            Next::End => return Ok(Listed::Whole(mark, asked.len())),
        }
    }
}

/// What APIs say of a page behind the last one.
fn is_no_such_page(error: &Error) -> bool {
    matches!(error.http_status(), Some(400 | 404 | 410 | 416 | 422))
}

fn repeated() -> Error {
    Error::new(Kind::Invalid, "this page has the same rows as the one before it").remedy_is(
        "The API seems to overlook the page it is asked for; compare `pagination` with its documentation.",
    )
}

/// Another page of a list, which must end some day.
fn turn_to(url: &Url, asked: &mut HashSet<Url>) -> Result<()> {
    if !asked.insert(url.clone()) {
        return Err(Error::new(Kind::Invalid, "the pages lead back to one that was read already"));
    }
    if asked.len() as u64 > PAGES_MAX {
        return Err(Error::new(Kind::Invalid, format!("the list has more than {PAGES_MAX} pages")));
    }
    Ok(())
}

/// The path with its places filled in.
fn address(api: &Api, path: &[Part], parent: Option<&Parent>) -> Result<Url> {
    let mut text = api.spec.base.as_str().trim_end_matches('/').to_owned();
    // Without a slash a path would become part of the host, and our credentials would go there.
    let begins = |plain: &str| plain.starts_with(['/', '?']);
    let is_joined = match path {
        [] => true,
        [Part::Text(only)] => only.is_empty() || begins(only),
        [first, ..] => matches!(first, Part::Text(plain) if begins(plain)),
    };
    if !is_joined {
        text.push('/');
    }
    for part in path {
        match part {
            Part::Text(plain) => text.push_str(plain),
            Part::Parent(column) => {
                let value = parent.and_then(|parent| parent.lent.get(column));
                let value = match value {
                    Some(Value::String(value)) => value.clone(),
                    Some(Value::Number(value)) => value.to_string(),
                    _ => return Err(Error::new(Kind::Invalid, format!("its parent has no `{column}`"))),
                };
                // Within a path a `+` is a plus and not a blank.
                text.extend(
                    url::form_urlencoded::byte_serialize(value.as_bytes())
                        .map(|piece| piece.replace('+', "%20")),
                );
            }
        }
    }
    let path = text.split(['?', '#']).next().unwrap_or_default();
    if path.split('/').any(|step| matches!(step, "." | "..")) {
        // However they are written, addresses take them for a step back.
        return Err(Error::new(Kind::Invalid, "a key that is `.` or `..` cannot be a step of a path"));
    }
    Url::parse(&text)
        .map_err(|error| Error::new(Kind::Config, "the path of a resource gives no URL").caused_by(error))
}

async fn ask(api: &Api, which: &Which, turn: &Turn<'_>, stop: &AtomicBool) -> Result<Read> {
    let _turn = api.turns.acquire().await.map_err(|_| Error::bug("a closed semaphore"))?;
    if stop.load(Ordering::SeqCst) {
        return Err(Error::new(Kind::Canceled, "stopped by request"));
    }
    if !api.spec.delay.is_zero() {
        api.clock.sleep(api.spec.delay).await;
    }
    let patience = api.silence.patience(api.patience(), api.clock.now())?;
    let mut ask = Ask::get(turn.url.clone(), api.spec.timeout, BODY_BYTES_MAX).patience(patience);
    ask.headers = api.headers.clone();
    let read = api.http.read(&ask, |answer| judge(api, which, turn, &answer)).await;
    api.silence.heard(&read, api.clock.now());
    read
}

/// It says that it is JSON.
fn check_kind(answer: &Answer) -> Result<()> {
    let kind = answer.header(header::CONTENT_TYPE).unwrap_or_default();
    let media = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = media.is_empty() || media.ends_with("/json") || media.ends_with("+json");
    // That is how an API says what went wrong, with whatever status.
    if !is_json || media == "application/problem+json" {
        let message = format!("the answer ({}) is {media}, not JSON with rows", answer.status);
        return Err(Error::new(Kind::Unavailable, message));
    }
    Ok(())
}

/// Judge an answer. What may be better next time is `Unavailable`, and asked for again.
fn judge(api: &Api, which: &Which, turn: &Turn<'_>, answer: &Answer) -> Result<Read> {
    check_kind(answer)?;
    let link = answer.headers.get_all(header::LINK).iter();
    let link: Vec<_> = link.map(|link| String::from_utf8_lossy(link.as_bytes())).collect();
    let link = (!link.is_empty()).then(|| link.join(", "));
    // What children hang from must be read anyway, and a later page that is what all of the scope once was is not.
    let marked = turn.is_only() && !api.has_children(which.resource);
    let mark = marked.then(|| mark(api, which, link.as_deref(), &answer.body)).transpose()?;
    if mark.is_some() && mark.as_deref() == which.cursor.as_deref().and_then(mark_in) {
        return Ok(Read::Verbatim(Verbatim { parent: which.parent.clone(), body: answer.body.clone() }));
    }
    let mended;
    let page = match page(api, which.resource, &answer.body) {
        Err(error) if error.kind() == Kind::Invalid => {
            mended = mend::mended(&answer.body).ok_or(error)?;
            Page { quiet: false, ..page(api, which.resource, &mended)? }
        }
        page => page?,
    };
    let (items, rest) = (page.items.len(), &page.rest);
    let turned = Turned {
        url: turn.url,
        pages: turn.pages,
        items,
        items_before: turn.items_before,
        answer: rest,
        link: link.as_deref(),
    };
    let next = match pages::next(&api.spec.resources[which.resource].pagination, &turned) {
        Ok(next) => next,
        Err(error) => return Ok(Read::Astray(error)),
    };
    let whole = turn.is_only() && next == Next::End;
    let (picked, quiet) = pick_all(api, which, &page);
    let has_pages = api.spec.resources[which.resource].pagination != Pagination::None;
    let rows = (has_pages && !whole && !picked.is_empty()).then(|| summed(api, which, &picked));
    let says = if whole && are_unchanged(api, which, &picked) {
        Message::Same(named(picked))
    } else {
        Message::Page(picked)
    };
    Ok(Read::Page { says, rows, mark: mark.filter(|_| whole && quiet), items, next })
}

/// The answer as one hash, with everything else its rows depend on.
fn mark(api: &Api, which: &Which, link: Option<&str>, body: &[u8]) -> Result<String> {
    let lent = which.parent.as_ref().map(|parent| serde_json::to_vec(&parent.lent)).transpose();
    let lent = lent.map_err(|error| Error::bug("a row that is no JSON").caused_by(error))?;
    let parts: [&[u8]; 5] = [
        FORM,
        &api.forms[which.resource].0,
        lent.as_deref().unwrap_or_default(),
        link.unwrap_or_default().as_bytes(),
        body,
    ];
    Ok(Fingerprint::of_parts(&parts).to_string())
}

fn page<'a>(api: &Api, resource: usize, body: &'a [u8]) -> Result<Page<'a>> {
    let path = &api.spec.resources[resource].items;
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let (items, rest) = item::read(body, path, &api.pickers[resource].wanted).map_err(|error| {
        let kind = if error.is_eof() { Kind::Unavailable } else { Kind::Invalid };
        Error::new(kind, format!("the answer is not whole JSON: {error}"))
    })?;
    let quiet = api.check_version(&rest)?;
    match items {
        Some(items) => Ok(Page { items, rest, quiet }),
        None => {
            let place = if path.0.is_empty() { "the answer".to_owned() } else { format!("`{path}`") };
            Err(Error::new(Kind::Invalid, format!("{place} is not a list"))
                .remedy_is("Look at the answer; the recipe says where the list is (`items`)."))
        }
    }
}

/// What the rows of an answer that did not change are called.
pub fn names(api: &Api, resource: usize, same: &Verbatim) -> Result<Vec<String>> {
    let none = Lent::default();
    let lent = same.parent.as_ref().map_or(&none, |parent| &parent.lent);
    let items = page(api, resource, &same.body)?.items;
    items.iter().map(|item| api.pickers[resource].id(item, lent)).collect()
}

/// Whether the rows of a scope that is all on one page come to what they came to before.
fn are_unchanged(api: &Api, which: &Which, picked: &[Picked]) -> bool {
    let Some(cursor) = &which.cursor else { return false };
    let mut summary = Summary::default();
    for item in picked {
        let Picked::Row { id, print, .. } = item else { return false };
        summary.add(api.pickers[which.resource].external_id(id), print);
    }
    summary.finish() == rows_in(cursor)
}

/// What a page comes to, usable or not.
fn summed(api: &Api, which: &Which, picked: &[Picked]) -> String {
    let mut summary = Summary::default();
    for item in picked {
        let (id, print) = match item {
            Picked::Row { id, print, .. } => (id.as_str(), *print),
            Picked::Bad { id, error, .. } => {
                (id.as_deref().unwrap_or_default(), Fingerprint::of(error.to_string().as_bytes()))
            }
        };
        summary.add(api.pickers[which.resource].external_id(id), &print);
    }
    summary.finish()
}

/// What rows are called, and what they lend.
fn named(picked: Vec<Picked>) -> Vec<(String, Lent)> {
    let named = picked.into_iter().filter_map(|item| match item {
        Picked::Row { id, lent, .. } => Some((id, lent)),
        Picked::Bad { .. } => None,
    });
    named.collect()
}

/// The items of a page as rows, and whether nothing about them is worth a word.
fn pick_all(api: &Api, which: &Which, page: &Page<'_>) -> (Vec<Picked>, bool) {
    let mut quiet = page.quiet;
    let (mut row, mut blocks) = (Row::default(), Blocks::of(page.items.len()));
    let picked = page.items.iter().map(|item| {
        let picked = pick(api, which, item, &mut row, &mut blocks);
        quiet &= row.unknown.is_empty() && matches!(picked, Picked::Row { .. });
        picked
    });
    (picked.collect(), quiet)
}

/// An item as a row.
fn pick(api: &Api, which: &Which, item: &Item<'_>, row: &mut Row, blocks: &mut Blocks) -> Picked {
    let picker = &api.pickers[which.resource];
    let none = Lent::default();
    let from_parent = which.parent.as_ref().map_or(&none, |parent| &parent.lent);
    let id = match picker.id(item, from_parent) {
        Ok(id) => id,
        Err(error) => return Picked::Bad { id: None, error, lent: None },
    };
    let lent = picker.lend(item, from_parent, &api.lent[which.resource]);
    if let Err(error) = picker.row(row, item, from_parent) {
        return Picked::Bad { id: Some(id), error, lent: Some(lent) };
    }
    for (column, number) in &row.unknown {
        let table = &api.spec.resources[which.resource].table.name;
        api.note(format!("{table}.{column}: {number} stands for no known word"));
    }
    Picked::Row { id, bytes: blocks.keep(&row.bytes), print: Fingerprint::of(&row.bytes), lent }
}
