//! A source and a shape that do as they are told: scopes with cursors, feeds, owners, entries that cannot be used.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use trueup::error::{Error, Kind, Result};
use trueup::record::{Body, Entry, Fingerprint};
use trueup::shape::{Absent, Existing, Identified, Input, Output, Prior, Rendered, Shape};
use trueup::source::{Cursors, Event, Sink, Source, Versions};

/// What the next listing says, in this order.
#[derive(Clone)]
pub enum Say {
    /// Id, scope, body. The version is the body's hash.
    Seen(&'static str, &'static str, &'static str),
    Bad(&'static str, &'static str),
    Gone(&'static str, &'static str),
    Complete(&'static str, Option<&'static str>),
    Window(&'static str, Option<&'static str>),
    Unchanged(&'static str),
    Broken(&'static str),
    /// The listing as a whole fails here.
    Fail,
}

#[derive(Default)]
pub struct Script {
    pub lines: Mutex<Vec<Say>>,
    pub bodies: Mutex<BTreeMap<String, &'static str>>,
    /// The cursors the last listing was given.
    pub asked: Mutex<Cursors>,
    /// Scope → the entry it hangs from.
    pub owners: BTreeMap<&'static str, &'static str>,
    pub sorted: bool,
}

impl Script {
    pub fn new() -> Arc<Self> {
        Arc::new(Script { sorted: true, ..Script::default() })
    }

    pub fn say(&self, lines: &[Say]) {
        *self.lines.lock().unwrap() = lines.to_vec();
        let mut bodies = self.bodies.lock().unwrap();
        for line in lines {
            if let Say::Seen(id, _, body) = line {
                bodies.insert((*id).to_owned(), body);
            }
        }
    }

    pub fn cursors(&self) -> Cursors {
        self.asked.lock().unwrap().clone()
    }
}

fn entry(id: &str, scope: &str, body: &str) -> Entry {
    Entry::new(id, &scope.into(), Fingerprint::of(body.as_bytes()).short())
}

fn down() -> Error {
    Error::new(Kind::Unavailable, "down")
}

#[async_trait]
impl Source for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn sorted(&self) -> bool {
        self.sorted
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    fn owner(&self, scope: &str) -> Option<String> {
        self.owners.get(scope).map(|owner| (*owner).to_owned())
    }

    fn has_owners(&self) -> bool {
        !self.owners.is_empty()
    }

    async fn list(&self, cursors: &Cursors, out: &mut Sink) -> Result<()> {
        *self.asked.lock().unwrap() = cursors.clone();
        let lines = self.lines.lock().unwrap().clone();
        for line in lines {
            let owned = |cursor: Option<&str>| cursor.map(str::to_owned);
            let event = match line {
                Say::Seen(id, scope, body) => Event::Seen(entry(id, scope, body)),
                Say::Bad(id, scope) => Event::Bad(entry(id, scope, ""), Error::new(Kind::Invalid, "odd")),
                Say::Gone(id, scope) => Event::Gone(entry(id, scope, "")),
                Say::Complete(scope, cursor) => Event::Complete(scope.into(), owned(cursor)),
                Say::Window(scope, cursor) => Event::Window(scope.into(), owned(cursor)),
                Say::Unchanged(scope) => Event::Unchanged(scope.into()),
                Say::Broken(scope) => Event::Broken(scope.into(), down()),
                Say::Fail => return Err(down()),
            };
            out.send(event).await?;
        }
        Ok(())
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        let bodies = self.bodies.lock().unwrap();
        let body = bodies.get(&entry.id).ok_or_else(|| Error::new(Kind::Conflict, "it was removed"))?;
        Ok(Body { bytes: Bytes::from_static(body.as_bytes()), version: entry.version.clone() })
    }

    fn requests(&self) -> u64 {
        0
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// A shape ruled by the body: `skip …` cannot be used, `keep …` is left alone, `key=NAME …` chooses the key. An id
/// `NAME@PLACE` is the identity NAME, and the smallest place wins. What is absent is kept, marked, if so told.
#[derive(Clone, Copy, Default)]
pub struct Told {
    pub marks_absent: bool,
}

fn output(key: &str, value: &str) -> Output {
    Output {
        key: key.to_owned(),
        value: Bytes::from(value.to_owned()),
        fingerprint: Fingerprint::of(value.as_bytes()),
        carry: None,
        retire: Vec::new(),
    }
}

impl Shape for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn version(&self) -> u32 {
        1
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn key_prefix(&self) -> Option<&str> {
        None
    }

    fn existing(&self) -> Existing {
        Existing::Hold
    }

    fn identify(&self, entry: &Entry) -> Result<Identified> {
        let (identity, rank) = entry.id.split_once('@').unwrap_or((&entry.id, ""));
        Ok(Identified { identity: identity.to_owned(), rank: rank.to_owned() })
    }

    fn claims(&self, _key: &str) -> Option<String> {
        None
    }

    fn render(&self, input: &Input<'_>) -> Result<Rendered> {
        let Some(body) = input.body else { return Ok(Rendered::NeedBody) };
        let text = std::str::from_utf8(&body.bytes).unwrap();
        if let Some(why) = text.strip_prefix("skip ") {
            return Ok(Rendered::Skip(why.to_owned()));
        }
        if let Some(why) = text.strip_prefix("keep ") {
            return Ok(Rendered::Keep(why.to_owned()));
        }
        let key = text.strip_prefix("key=").and_then(|rest| rest.split(' ').next());
        Ok(Rendered::Put(output(key.unwrap_or(input.identity), text)))
    }

    fn absent(&self, prior: &Prior, _value: Option<&[u8]>, _now: Timestamp) -> Absent {
        let marked = output(&prior.key, "missing");
        match self.marks_absent {
            false => Absent::Delete,
            true if prior.fingerprint == marked.fingerprint => Absent::Keep,
            true => Absent::Put(marked),
        }
    }
}
