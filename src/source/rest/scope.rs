//! One scope, page by page: a resource, or what a resource has for one row of its parent.
//!
//! An answer counts only when it is JSON, of a version we know, with the list where the recipe says. Anything else
//! breaks the scope; it is never taken for an empty list.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::header;
use serde_json::Value;
use tokio::sync::mpsc;
use url::Url;

use super::pages::{self, Turned};
use super::row::{Lent, Row};
use super::rows::Summary;
use super::{Api, BODY_BYTES_MAX, PAGES_MAX};
use crate::config::Part;
use crate::error::{Error, Kind, Result};
use crate::http::{Answer, Ask};
use crate::record::Fingerprint;

/// What a scope hangs from: the row of its parent.
#[derive(Debug, Clone)]
pub struct Parent {
    pub external_id: String,
    pub lent: Lent,
}

/// A resource, for one row of its parent if it has one.
pub struct Which {
    pub resource: usize,
    pub parent: Option<Parent>,
    /// What its rows came to when they were last applied.
    pub cursor: Option<String>,
}

/// An item of a page.
pub enum Item {
    Row {
        external_id: String,
        bytes: Vec<u8>,
        print: Fingerprint,
        lent: Lent,
    },
    /// It is there and cannot be used. Without an id nobody knows which row it is.
    Bad {
        external_id: Option<String>,
        error: Error,
        lent: Option<Lent>,
    },
}

pub enum Message {
    Page(Vec<Item>),
    /// All rows of the scope are as they were; what they are called, and what they lend.
    Same(Vec<(String, Lent)>),
    /// The last message of a scope.
    End(Result<()>),
}

/// A page as it came.
struct Page {
    items: Vec<Value>,
    rest: Value,
    link: Option<String>,
}

/// Read the scope and tell everything. Nobody listening any more ends it quietly.
pub async fn read(api: Arc<Api>, which: Which, stop: Arc<AtomicBool>, out: mpsc::Sender<Message>) {
    let ended = pages_of(&api, &which, &stop, &out).await;
    let _ = out.send(Message::End(ended)).await;
}

async fn pages_of(api: &Api, which: &Which, stop: &AtomicBool, out: &mpsc::Sender<Message>) -> Result<()> {
    let (resource, parent) = (which.resource, which.parent.as_ref());
    let spec = &api.spec.resources[resource];
    let base = address(api, &spec.path, parent)?;
    let starts: Vec<Url> = match &spec.each {
        Some((param, values)) => values.iter().map(|value| pages::with_param(&base, param, value)).collect(),
        None => vec![base],
    };
    let alone = starts.len() == 1;
    for start in starts {
        let mut url = pages::first(&spec.pagination, start);
        let mut asked = HashSet::new();
        loop {
            if !asked.insert(url.clone()) {
                return Err(Error::new(Kind::Invalid, "the pages lead back to one that was read already"));
            }
            if asked.len() as u64 > PAGES_MAX {
                return Err(Error::new(Kind::Invalid, format!("the list has more than {PAGES_MAX} pages")));
            }
            let page = ask(api, resource, &url, stop).await?;
            let turned = Turned {
                url: &url,
                pages: asked.len() as u64,
                items: page.items.len(),
                answer: &page.rest,
                link: page.link.as_deref(),
            };
            let next = pages::next(&spec.pagination, &turned)?;
            let whole = alone && asked.len() == 1 && next.is_none();
            let same = if whole { unchanged(api, which, &page.items) } else { None };
            let message = same.map_or_else(
                || Message::Page(page.items.iter().map(|item| pick(api, resource, parent, item)).collect()),
                Message::Same,
            );
            if out.send(message).await.is_err() {
                return Ok(());
            }
            match next {
                Some(next) => url = next,
                None => break,
            }
        }
    }
    Ok(())
}

/// The path with its places filled in.
fn address(api: &Api, path: &[Part], parent: Option<&Parent>) -> Result<Url> {
    let mut text = api.spec.base.as_str().trim_end_matches('/').to_owned();
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
    Url::parse(&text)
        .map_err(|error| Error::new(Kind::Config, "the path of a resource gives no URL").caused_by(error))
}

async fn ask(api: &Api, resource: usize, url: &Url, stop: &AtomicBool) -> Result<Page> {
    let _turn = api.turns.acquire().await.map_err(|_| Error::bug("a closed semaphore"))?;
    if stop.load(Ordering::SeqCst) {
        return Err(Error::new(Kind::Canceled, "stopped by request"));
    }
    if !api.spec.delay.is_zero() {
        api.clock.sleep(api.spec.delay).await;
    }
    let mut ask = Ask::get(url.clone(), api.spec.timeout, BODY_BYTES_MAX).patience(api.patience());
    ask.headers = api.headers.clone();
    api.http.read(&ask, |answer| page(api, resource, &answer)).await
}

/// Judge an answer. What may be better next time is `Unavailable`, and asked for again.
fn page(api: &Api, resource: usize, answer: &Answer) -> Result<Page> {
    let kind = answer.header(header::CONTENT_TYPE).unwrap_or_default();
    let media = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !media.is_empty() && !media.ends_with("/json") && !media.ends_with("+json") {
        let message = format!("the answer ({}) is {media}, not JSON", answer.status);
        return Err(Error::new(Kind::Unavailable, message));
    }
    let mut rest: Value = serde_json::from_slice(&answer.body).map_err(|error| {
        let kind = if error.is_eof() { Kind::Unavailable } else { Kind::Invalid };
        Error::new(kind, format!("the answer is not whole JSON: {error}"))
    })?;
    api.check_version(&rest)?;
    let path = &api.spec.resources[resource].items;
    let items = path.0.iter().try_fold(&mut rest, |value, part| value.get_mut(part));
    match items {
        Some(Value::Array(items)) => {
            let items = std::mem::take(items);
            let link = answer.headers.get_all(header::LINK).iter().filter_map(|link| link.to_str().ok());
            let link: Vec<&str> = link.collect();
            Ok(Page { items, rest, link: (!link.is_empty()).then(|| link.join(", ")) })
        }
        _ => {
            let place = if path.0.is_empty() { "the answer".to_owned() } else { format!("`{path}`") };
            Err(Error::new(Kind::Invalid, format!("{place} is not a list"))
                .remedy_is("Look at the answer; the recipe says where the list is (`items`)."))
        }
    }
}

/// The rows of a scope that is all on one page, if they come to what they came to before. They are not kept: a scope
/// that changed is picked again.
fn unchanged(api: &Api, which: &Which, items: &[Value]) -> Option<Vec<(String, Lent)>> {
    let cursor = which.cursor.as_ref()?;
    let picker = &api.pickers[which.resource];
    let none = Lent::new();
    let lent = which.parent.as_ref().map_or(&none, |parent| &parent.lent);
    let mut rows = Vec::with_capacity(items.len());
    let (mut summary, mut row, mut unknown) = (Summary::default(), Row::default(), Vec::new());
    for item in items {
        let external_id = picker.external_id(item, lent).ok()?;
        row.bytes.clear();
        picker.row_into(&mut row, item, lent).ok()?;
        summary.add(&external_id, &Fingerprint::of(&row.bytes));
        unknown.append(&mut row.unknown);
        rows.push((external_id, picker.lend(item, lent, &api.lent[which.resource])));
    }
    if summary.finish() != *cursor {
        return None;
    }
    note_unknown(api, which.resource, &unknown);
    Some(rows)
}

fn note_unknown(api: &Api, resource: usize, unknown: &[(String, i64)]) {
    for (column, number) in unknown {
        let table = &api.spec.resources[resource].table.name;
        api.note(format!("{table}.{column}: {number} stands for no known word"));
    }
}

fn pick(api: &Api, resource: usize, parent: Option<&Parent>, item: &Value) -> Item {
    let picker = &api.pickers[resource];
    let none = Lent::new();
    let from_parent = parent.map_or(&none, |parent| &parent.lent);
    let external_id = match picker.external_id(item, from_parent) {
        Ok(id) => id,
        Err(error) => return Item::Bad { external_id: None, error, lent: None },
    };
    let lent = picker.lend(item, from_parent, &api.lent[resource]);
    match picker.row(item, from_parent) {
        Ok(row) => {
            note_unknown(api, resource, &row.unknown);
            let print = Fingerprint::of(&row.bytes);
            Item::Row { external_id, bytes: row.bytes, print, lent }
        }
        Err(error) => Item::Bad { external_id: Some(external_id), error, lent: Some(lent) },
    }
}
