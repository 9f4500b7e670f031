//! An API as a source: resources in the order of the recipe, children for every row of their parent.
//!
//! Every row the API knows is visited on every run; rows come inline, so nothing is fetched twice. Scopes are a
//! resource (`cases`) or what it has for one row of its parent (`votes/105116`), and hang from that row. Reading is
//! concurrent and bounded; what it says is in the order of the parents, so that two runs say the same.
//!
//! It refuses to guess: an answer that is not what the recipe says breaks its scope, and an item that does not fit its
//! columns is an error of that item alone.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::silence::Silence;
use super::{Cursors, Event, Sink, Source, Versions};
use crate::clock::SharedClock;
use crate::config::{Auth, Part, ResourceSpec, RestSpec};
use crate::error::{Error, Kind, Result};
use crate::http::{self, Http};
use crate::record::{Body, Entry, Fingerprint, Scope};
use crate::retry::Patience;

mod dates;
mod item;
mod mend;
mod met;
mod moved;
mod pages;
mod row;
mod rows;
mod scope;

use met::Met;
use moved::Paged;
use row::{Lent, Picker};
use rows::{Rows, Told};
use scope::{Message, Parent, Picked, Verbatim, Which};

/// An answer of hundreds of thousands of rows; more belongs on pages.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Pages of one list: a list that never ends is a mistake of the recipe or the server.
const PAGES_MAX: u64 = 100_000;
/// Scopes begun for every request that may be in flight: the others wait for their turn, so that one slow answer does
/// not keep them all.
const SCOPES_PER_REQUEST: usize = 8;
/// Pages a scope reads ahead of its turn to be told.
const PAGES_AHEAD: usize = 2;
/// Answers that did not change are kept, in case others did, up to this.
const UNREAD_BYTES_MAX: usize = 32 << 20;
/// A retry waits no longer than this, whatever the server asks.
const WAIT_MS_MAX: u64 = 60_000;
const WAIT_MS_FIRST: u64 = 1_000;

/// What a scope hangs from; `None` = from nothing.
type Root = Option<Arc<Parent>>;

pub struct Rest {
    name: String,
    api: Arc<Api>,
}

/// What every request needs.
struct Api {
    spec: RestSpec,
    http: Http,
    headers: HeaderMap,
    clock: SharedClock,
    turns: Semaphore,
    concurrency: usize,
    pickers: Vec<Picker>,
    /// By resource: the columns its children refer to.
    lent: Vec<Vec<Arc<str>>>,
    /// By resource: everything the config says about its rows.
    forms: Vec<Fingerprint>,
    /// How it has been answering in this listing.
    silence: Silence,
    /// Lists of this listing that may have moved.
    paged: Paged,
    /// Warnings of this listing, and how often each was met.
    notes: Mutex<BTreeMap<String, u64>>,
}

impl Rest {
    pub fn new(spec: &RestSpec, concurrency: usize, clock: SharedClock) -> Result<Self> {
        let picker = |resource: &ResourceSpec| Picker::new(&resource.table, &spec.strip);
        let api = Api {
            http: Http::new(clock.clone())?,
            headers: headers(spec)?,
            clock,
            turns: Semaphore::new(concurrency.max(1)),
            concurrency: concurrency.max(1),
            pickers: spec.resources.iter().map(picker).collect::<Result<_>>()?,
            lent: lent(spec),
            forms: forms(spec),
            silence: Silence::default(),
            paged: Paged::default(),
            notes: Mutex::default(),
            spec: spec.clone(),
        };
        Ok(Rest { name: format!("rest {}", http::shown(&spec.base)), api: Arc::new(api) })
    }

    /// One resource for every parent, several scopes at a time, told in the order of the parents. What its own
    /// children hang from comes back.
    async fn stage(
        &self,
        resource: usize,
        parents: Vec<Root>,
        cursors: &Cursors,
        out: &mut Sink,
    ) -> Result<Vec<Root>> {
        // This resource may be well where the one before it was not.
        self.api.silence.try_again();
        let (seen, children) = (Met::default(), Vec::new());
        let nameless = false;
        let same = Unread::default();
        let mut telling = Telling { api: &self.api, resource, cursors, seen, children, nameless, same };
        let mut waiting = parents.into_iter();
        let mut open = VecDeque::new();
        // Scopes end with their set: nothing goes on asking after an error here.
        let mut scopes = JoinSet::new();
        loop {
            while open.len() < self.api.concurrency * SCOPES_PER_REQUEST && !out.is_stopped() {
                let Some(parent) = waiting.next() else { break };
                let (sender, messages) = mpsc::channel(PAGES_AHEAD);
                let scope = self.api.scope(resource, parent.as_deref());
                let cursor = cursors.get(&*scope).cloned();
                scopes.spawn(scope::read(
                    self.api.clone(),
                    Which { resource, parent, cursor },
                    out.stop_flag(),
                    sender,
                ));
                open.push_back((scope, messages));
            }
            let Some((scope, mut messages)) = open.pop_front() else { break };
            telling.scope_of(&scope, &mut messages, out).await?;
            // What is over is let go of: there may be a scope for every row.
            while scopes.try_join_next().is_some() {}
        }
        Ok(telling.children)
    }
}

/// The columns of each resource that children refer to, in paths or as their own.
fn lent(spec: &RestSpec) -> Vec<Vec<Arc<str>>> {
    let mut lent: Vec<Vec<Arc<str>>> = vec![Vec::new(); spec.resources.len()];
    for child in &spec.resources {
        let Some(parent) = child.parent else { continue };
        let in_path = child.path.iter().filter_map(|part| match part {
            Part::Parent(column) => Some(column),
            Part::Text(_) => None,
        });
        let wanted = in_path.chain(child.table.columns.iter().filter_map(|column| column.parent.as_ref()));
        for column in wanted {
            if !lent[parent].iter().any(|known| **known == **column) {
                lent[parent].push(column.as_str().into());
            }
        }
    }
    lent
}

fn forms(spec: &RestSpec) -> Vec<Fingerprint> {
    let form = |resource| Fingerprint::of(format!("{resource:?} {:?}", spec.strip).as_bytes());
    spec.resources.iter().map(form).collect()
}

fn headers(spec: &RestSpec) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let (name, value) = match &spec.auth {
        None => return Ok(headers),
        Some(Auth::Bearer(token)) => (header::AUTHORIZATION, format!("Bearer {}", token.require()?.expose())),
        Some(Auth::Header { name, value }) => {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| Error::new(Kind::Config, format!("«{name}» is no name of a header")))?;
            (name, value.require()?.expose().to_owned())
        }
        Some(Auth::Basic { user, password }) => {
            let pair = format!("{user}:{}", password.require()?.expose());
            (header::AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)))
        }
    };
    let mut value = HeaderValue::from_str(&value).map_err(|_| {
        Error::new(Kind::Config, format!("the secret for {name} holds characters HTTP forbids"))
    })?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(headers)
}

impl Api {
    fn patience(&self) -> Patience {
        Patience { attempts_max: self.spec.attempts, wait_ms_first: WAIT_MS_FIRST, wait_ms_max: WAIT_MS_MAX }
    }

    fn note(&self, text: String) {
        *self.notes.lock().unwrap_or_else(PoisonError::into_inner).entry(text).or_default() += 1;
    }

    /// What a resource is called, or what it has for a row of its parent.
    fn scope(&self, resource: usize, parent: Option<&Parent>) -> Scope {
        let table = &*self.spec.resources[resource].table.name;
        match parent {
            Some(parent) => format!("{table}/{}", scope::below(&parent.external_id)).into(),
            None => table.into(),
        }
    }

    fn has_children(&self, resource: usize) -> bool {
        self.spec.resources.iter().any(|other| other.parent == Some(resource))
    }

    /// Another minor version is worth a word, another major one is another API. `true` = it is the one we know.
    fn check_version(&self, answer: &Value) -> Result<bool> {
        let Some(wanted) = &self.spec.version else { return Ok(true) };
        let found = match wanted.field.find(answer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => return Ok(true),
        };
        if found == wanted.known {
            return Ok(true);
        }
        let major = |version: &str| version.split('.').next().unwrap_or_default().to_owned();
        if major(&found) != major(&wanted.known) {
            let message = format!("the API says {} {found}, the recipe knows {}", wanted.field, wanted.known);
            return Err(Error::new(Kind::Invalid, message)
                .remedy_is("Compare the recipe with the new version of the API."));
        }
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.insert(format!("the API says {} {found}, the recipe knows {}", wanted.field, wanted.known), 1);
        Ok(false)
    }
}

/// Turns the messages of scopes into events.
struct Telling<'a> {
    api: &'a Api,
    resource: usize,
    cursors: &'a Cursors,
    seen: Met,
    children: Vec<Root>,
    /// The scope has an item without a key: any known row might be it.
    nameless: bool,
    /// Answers that are as they were.
    same: Unread,
}

/// Answers nobody looked into. What their rows are called matters only when others of the resource changed: an id counts
/// once.
#[derive(Default)]
struct Unread {
    kept: Vec<Verbatim>,
    bytes: usize,
    /// They were looked into, and so is everything from now on.
    over: bool,
}

impl Telling<'_> {
    async fn scope_of(
        &mut self,
        scope: &Scope,
        messages: &mut mpsc::Receiver<Message>,
        out: &mut Sink,
    ) -> Result<()> {
        self.nameless = false;
        let api = self.api;
        let mut rows = Rows::of(&api.pickers[self.resource], scope);
        let mut position = 0;
        loop {
            let message = messages.recv().await;
            if matches!(message, Some(Message::Page(_) | Message::Same(_))) {
                self.look_into_same()?;
            }
            match message {
                None => return Err(Error::bug(format!("reading {scope} broke off"))),
                Some(Message::Page(items)) => {
                    for item in items {
                        position += 1;
                        if rows.add(self.item(scope, position, item)) {
                            rows.flow(out).await?;
                        }
                    }
                }
                Some(Message::Same(rows)) => return self.same(scope, rows, out).await,
                Some(Message::Verbatim(same)) => return self.verbatim(scope, same, out).await,
                Some(Message::End(Ok(_))) if self.nameless => {
                    return rows.tell(Event::Window(scope.clone(), None), out).await;
                }
                Some(Message::End(Ok(mark))) => {
                    let digest = rows.digest();
                    let before = self.cursors.get(&**scope).map(|cursor| scope::rows_in(cursor));
                    if rows.are_whole() && digest.is_some() && before == digest.as_deref() {
                        return out.send(Event::Unchanged(scope.clone())).await;
                    }
                    let cursor = digest.map(|digest| scope::cursor(digest, mark));
                    return rows.tell(Event::Complete(scope.clone(), cursor), out).await;
                }
                Some(Message::End(Err(error))) => {
                    return rows.tell(Event::Broken(scope.clone(), error), out).await;
                }
            }
        }
    }

    /// A scope in which nothing changed. What another scope has listed before is an error here, as always.
    async fn same(&mut self, scope: &Scope, rows: Vec<(String, Lent)>, out: &mut Sink) -> Result<()> {
        for (at, (id, lent)) in rows.into_iter().enumerate() {
            if !self.meet(&id, Some(lent)) {
                out.send(self.twice(scope, at + 1, &id)).await?;
            }
        }
        out.send(Event::Unchanged(scope.clone())).await
    }

    /// A scope whose answer did not change.
    async fn verbatim(&mut self, scope: &Scope, same: Verbatim, out: &mut Sink) -> Result<()> {
        if self.same.bytes + same.body.len() > UNREAD_BYTES_MAX {
            self.look_into_same()?;
        }
        if self.same.over {
            let names = scope::names(self.api, self.resource, &same)?;
            let rows = names.into_iter().map(|id| (id, Lent::default())).collect();
            return self.same(scope, rows, out).await;
        }
        self.same.bytes += same.body.len();
        self.same.kept.push(same);
        out.send(Event::Unchanged(scope.clone())).await
    }

    /// Others of the resource changed: whose ids they may not use is to be known.
    fn look_into_same(&mut self) -> Result<()> {
        self.same.over = true;
        self.same.bytes = 0;
        for same in std::mem::take(&mut self.same.kept) {
            for id in scope::names(self.api, self.resource, &same)? {
                self.seen.is_first(&id);
            }
        }
        Ok(())
    }

    /// Whether an id is met for the first time: each counts once.
    fn meet(&mut self, id: &str, lent: Option<Lent>) -> bool {
        if !self.seen.is_first(id) {
            return false;
        }
        if let Some(lent) = lent.filter(|_| !self.api.lent[self.resource].is_empty()) {
            let external_id = self.api.pickers[self.resource].external_id(id).to_owned();
            self.children.push(Some(Arc::new(Parent { external_id, lent })));
        }
        true
    }

    fn twice(&self, scope: &Scope, position: usize, id: &str) -> Event {
        let error = Error::new(Kind::Invalid, format!("{id} was listed already; the first one counts"));
        Event::Bad(Entry::new(format!("{id}#{position}"), scope, ""), error)
    }

    fn item(&mut self, scope: &Scope, position: usize, item: Picked) -> Told {
        let bad = |id: String, error| Told::Bad(Box::new(Event::Bad(Entry::new(id, scope, ""), error)));
        let (id, lent, row) = match item {
            Picked::Bad { id: None, error, .. } => {
                self.nameless = true;
                return bad(format!("{scope}#{position}"), error);
            }
            Picked::Bad { id: Some(id), error, lent } => (id, lent, Err(error)),
            Picked::Row { id, bytes, print, lent } => (id, Some(lent), Ok((bytes, print))),
        };
        if !self.meet(&id, lent) {
            return Told::Bad(Box::new(self.twice(scope, position, &id)));
        }
        match row {
            Ok((bytes, print)) => Told::Row { id, bytes, print },
            Err(error) => bad(id, error),
        }
    }
}

#[async_trait]
impl Source for Rest {
    fn name(&self) -> &str {
        &self.name
    }

    fn sorted(&self) -> bool {
        false
    }

    /// One that is listed again is an error under a name of its own.
    fn names_once(&self) -> bool {
        true
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    fn owner(&self, scope: &str) -> Option<String> {
        let (name, parent_id) = scope.split_once('/')?;
        let child = self.api.spec.resources.iter().find(|resource| resource.table.name == name)?;
        let parent = &self.api.spec.resources[child.parent?].table.name;
        Some(format!("{parent}/{}", scope::above(parent_id)))
    }

    fn has_scope(&self, scope: &str) -> bool {
        let name = scope.split('/').next().unwrap_or_default();
        self.api.spec.resources.iter().any(|resource| resource.table.name == name)
    }

    fn has_owners(&self) -> bool {
        self.api.spec.resources.iter().any(|resource| resource.parent.is_some())
    }

    fn comes_to_all(&self) -> bool {
        true
    }

    fn skips_unchanged(&self) -> bool {
        true
    }

    fn may_have_moved(&self, scope: &str) -> bool {
        self.api.paged.has(scope)
    }

    async fn names_now(&self, scope: &str, stop: &Arc<AtomicBool>) -> Result<HashSet<String>> {
        moved::names_now(&self.api, scope, stop).await
    }

    async fn list(&self, cursors: &Cursors, out: &mut Sink) -> Result<()> {
        self.api.notes.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.api.silence.forget();
        self.api.paged.forget();
        let mut rows: Vec<Vec<Root>> = Vec::new();
        for (at, resource) in self.api.spec.resources.iter().enumerate() {
            let parents = match resource.parent {
                None => vec![None],
                Some(parent) => rows[parent].clone(),
            };
            rows.push(self.stage(at, parents, cursors, out).await?);
            if out.is_stopped() {
                return Err(Error::new(Kind::Canceled, "stopped by request"));
            }
        }
        let notes = std::mem::take(&mut *self.api.notes.lock().unwrap_or_else(PoisonError::into_inner));
        for (text, times) in notes {
            let text = if times > 1 { format!("{text} ({times} rows)") } else { text };
            out.send(Event::Note(text)).await?;
        }
        Ok(())
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        let bytes = entry.inline.clone();
        let bytes =
            bytes.ok_or_else(|| Error::bug(format!("{} lost the row its listing brought", entry.id)))?;
        Ok(Body { bytes, version: entry.version.clone() })
    }

    fn requests(&self) -> u64 {
        self.api.http.requests()
    }

    /// Ask for the first resource, once.
    async fn check(&self) -> Result<Vec<String>> {
        let (sender, mut messages) = mpsc::channel(PAGES_AHEAD);
        let mut scopes = JoinSet::new();
        let which = Which { resource: 0, parent: None, cursor: None };
        scopes.spawn(scope::read(self.api.clone(), which, Arc::default(), sender));
        let table = &self.api.spec.resources[0].table.name;
        match messages.recv().await {
            Some(Message::Page(items)) => Ok(vec![format!("{table}: {} on the first page", items.len())]),
            Some(Message::End(Err(error))) => Err(error.while_(table.clone())),
            Some(Message::Same(_) | Message::Verbatim(_) | Message::End(Ok(_))) | None => Ok(Vec::new()),
        }
    }
}
