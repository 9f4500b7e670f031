//! The whole story of one key: who owns it, what the source said, every write and what came of it, what waits.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;

use super::Pipeline;
use super::failing::Failing;
use super::open::{self, Memory};
use crate::config;
use crate::error::{Fault, Result};
use crate::queue;
use crate::record::{Fingerprint, Version};
use crate::shape::Shape;
use crate::state::held::{Decision, Header, HeldItem};
use crate::state::journal::{Change, Exceptions, Late};
use crate::state::{Base, Pointer, Report, State, Tombstone, keys, retention};
use crate::store::{Query, StoreExt};

#[derive(Debug, Serialize)]
pub struct Story {
    pub key: String,
    pub identity: String,
    pub pipeline: String,
    pub store: String,
    /// The store's version now; `None` = the store does not hold it.
    pub version: Option<Version>,
    pub fingerprint: Option<Fingerprint>,
    pub source: Option<SourceSide>,
    /// Newest first.
    pub history: Vec<Event>,
    pub held: Option<HeldItem>,
    pub decision: Option<Decision>,
    pub queue: Vec<Waiting>,
    pub dead: Vec<Waiting>,
    pub drift: Option<&'static str>,
    pub errors: Vec<Trouble>,
    /// Other pipelines that have something to tell about the same key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct SourceSide {
    pub name: String,
    /// The body version the last write was made from.
    pub version: String,
    pub scope: String,
    pub seen: Option<String>,
    /// How the fingerprint is computed.
    pub shape: String,
}

#[derive(Debug, Serialize)]
pub struct Event {
    pub run: String,
    pub change: Change,
    pub outcome: String,
    pub at: Option<String>,
    pub sha256: Option<Fingerprint>,
}

#[derive(Debug, Serialize)]
pub struct Waiting {
    pub then: String,
    pub state: &'static str,
    pub attempts: u32,
    pub error: Option<Fault>,
}

#[derive(Debug, Serialize)]
pub struct Trouble {
    pub run: String,
    #[serde(flatten)]
    pub fault: Fault,
}

/// Steps back through the journal, and runs whose errors are searched: a page for a person, not an archive.
const EVENTS_MAX: usize = 50;
const RUNS_MAX: usize = 30;

impl Pipeline {
    /// The story of a key, if this pipeline has anything to tell about it.
    pub async fn why(&self, key: &str) -> Result<Option<Story>> {
        match remembered(&self.state, &self.name, self.shape.as_ref(), key).await? {
            Some(remembered) => self.tell(remembered).await.map(Some),
            None => Ok(None),
        }
    }

    async fn tell(&self, remembered: Remembered) -> Result<Story> {
        let Remembered { identity, base, stone, held } = remembered;
        let by_prefix = || self.shape.key_prefix().map(|prefix| format!("{prefix}{identity}"));
        let key = base.as_ref().map(|base| base.key(&identity).to_owned());
        let key = key.or_else(|| stone.as_ref().and_then(|stone| stone.key.clone()));
        let key = key.or_else(by_prefix).unwrap_or_else(|| identity.clone());
        let stored = self.store.get_one(&key).await?;
        let mut history = Vec::new();
        let mut times = Times::of(&self.state);
        let seen = match base.as_ref() {
            Some(base) => times.of_run(&base.written.run).await?,
            None => None,
        };
        for start in [base.as_ref().map(|base| &base.written), stone.as_ref().map(|stone| &stone.written)] {
            self.walk_back(start.cloned(), &mut times, &mut history).await?;
        }
        history.sort_by(|a, b| b.run.cmp(&a.run));
        let bytes = stored.as_ref().map(|stored| Fingerprint::of(&stored.value));
        let drift = match (&base, bytes) {
            (Some(_), None) => Some("missing"),
            (Some(base), Some(bytes)) if bytes != base.bytes_hash() => Some("edited"),
            (None, Some(_)) => Some("foreign"),
            _ => None,
        };
        Ok(Story {
            pipeline: self.name.clone(),
            store: self.store.name().to_owned(),
            version: stored.map(|stored| stored.version),
            fingerprint: base.as_ref().map(|base| base.fingerprint),
            source: base.map(|base| self.source_side(base, seen)),
            history,
            held,
            decision: self.state.read(&keys::decision(&self.name, &identity)).await?,
            queue: self.waiting(&identity).await?,
            dead: self.given_up(&identity).await?,
            drift,
            errors: self.troubles(&identity, &key).await?,
            also: Vec::new(),
            key,
            identity,
        })
    }

    fn source_side(&self, base: Base, seen: Option<String>) -> SourceSide {
        SourceSide {
            name: self.source.name().to_owned(),
            seen,
            version: base.body,
            scope: base.scope.to_string(),
            shape: format!("{} {}", self.shape.name(), self.shape.version()),
        }
    }

    /// From write to the write before it, and on to the key's earlier lives, as far as the journal goes.
    async fn walk_back(
        &self,
        start: Option<Pointer>,
        times: &mut Times<'_>,
        history: &mut Vec<Event>,
    ) -> Result<()> {
        let (mut next, mut earlier) = (start, None);
        while let Some(at) = next.take() {
            if history.len() >= EVENTS_MAX {
                return Ok(());
            }
            let intents = self.state.intents(&self.name, &at.run, at.batch).await?;
            let Some(intent) = intents.and_then(|intents| intents.into_iter().nth(at.index as usize)) else {
                return Ok(());
            };
            let late: Option<Exceptions> =
                self.state.read(&keys::outcomes(&self.name, &at.run, at.batch)).await?;
            let late = late.unwrap_or_default().into_iter().find(|(index, _)| *index == at.index);
            history.push(Event {
                at: times.of_run(&at.run).await?,
                change: intent.change,
                outcome: late.map_or_else(|| "applied".to_owned(), |(_, late)| said(&late)),
                sha256: intent.bytes_hash(),
                run: at.run.to_string(),
            });
            earlier = intent.earlier.or(earlier);
            next = intent.prior_base.map(|prior| prior.base.written).or_else(|| earlier.take());
        }
        Ok(())
    }

    async fn waiting(&self, identity: &str) -> Result<Vec<Waiting>> {
        let mut all = Vec::new();
        for then in &self.then {
            let task: Option<queue::Task> =
                self.state.read(&keys::task(&self.name, &then.name, identity)).await?;
            all.extend(task.map(|task| Waiting {
                then: then.name.clone(),
                state: task.state(),
                attempts: task.attempts,
                error: task.error,
            }));
        }
        Ok(all)
    }

    async fn given_up(&self, identity: &str) -> Result<Vec<Waiting>> {
        let mut all = Vec::new();
        let names = self.then.iter().map(|then| then.name.as_str());
        for then in names.chain([queue::WRITE]) {
            let key = keys::dead(&self.name, then, identity);
            let letter: Option<queue::dead::Letter> = self.state.read(&key).await?;
            all.extend(letter.map(|letter| Waiting {
                then: then.to_owned(),
                state: "dead",
                attempts: letter.task.attempts,
                error: Some(letter.cause),
            }));
        }
        Ok(all)
    }

    /// Errors about this key in the latest runs.
    async fn troubles(&self, identity: &str, key: &str) -> Result<Vec<Trouble>> {
        let mut all = Vec::new();
        for run in self.state.keys(keys::RUNS).await?.iter().rev().take(RUNS_MAX) {
            let Some(report) = self.state.read::<Report>(run).await? else { continue };
            let about = |fault: &Fault| fault.key.as_deref().is_some_and(|at| at == key || at == identity);
            if report.pipeline == self.name {
                let run = report.id;
                let faults = report.errors.into_iter().filter(about);
                all.extend(faults.map(|fault| Trouble { run: run.clone(), fault }));
            }
        }
        Ok(all)
    }

    /// Known keys near a key nobody knows.
    pub async fn near(&self, key: &str) -> Result<Vec<String>> {
        near_to(&self.state, &self.name, key).await
    }
}

/// Keys a pipeline knows near one that it does not: those around it in byte order, and those that read alike.
pub async fn near_to(state: &State, pipeline: &str, key: &str) -> Result<Vec<String>> {
    let prefix = keys::bases(pipeline);
    let start: String = key.chars().take(key.chars().count() / 2).collect();
    let below = format!("{prefix}{start}");
    let mut lines = state.store().list(Query { limit: 200, ..Query::keys(&below) }).await?.items;
    if lines.is_empty() {
        lines = state.store().list(Query { limit: 200, ..Query::keys(&prefix) }).await?.items;
    }
    let mut names: Vec<String> =
        lines.into_iter().map(|line| keys::below(&prefix, &line.key).to_owned()).collect();
    names.sort_by_key(|name| Reverse(alike(name, key)));
    names.truncate(NEAR_MAX);
    Ok(names)
}

/// What a pipeline remembers of a key.
pub struct Remembered {
    identity: String,
    base: Option<Base>,
    stone: Option<Tombstone>,
    held: Option<HeldItem>,
}

impl Remembered {
    /// The pipeline wrote what is there.
    pub fn is_owner(&self) -> bool {
        self.base.is_some()
    }

    /// The key is its name or the one it has, or had, in the store. A shape may claim others for it, which it never had.
    pub fn is_called(&self, key: &str) -> bool {
        let stone = self.stone.as_ref().map(|stone| stone.key.as_deref().unwrap_or(&self.identity));
        let base = self.base.as_ref().map(|base| base.key(&self.identity));
        let held = self.held.as_ref().map(|held| held.key.as_str());
        let mut keys = [base, stone, held].into_iter().flatten().peekable();
        self.identity == key || keys.peek().is_none() || keys.any(|own| own == key)
    }
}

/// What a pipeline of the config remembers of a key. The state alone is asked: neither source nor store is opened.
pub async fn memory_of(spec: &config::Pipeline, memory: &Memory, key: &str) -> Result<Option<Remembered>> {
    let shape = open::shape(&spec.shape, &spec.from);
    remembered(&memory.state, &spec.name, shape.as_ref(), key).await
}

async fn remembered(state: &State, name: &str, shape: &dyn Shape, key: &str) -> Result<Option<Remembered>> {
    for identity in identities_of(shape, key) {
        let base: Option<Base> = state.read(&keys::base(name, &identity)).await?;
        let stone: Option<Tombstone> = state.read(&keys::tombstone(name, &identity)).await?;
        let held = held_about(state, name, &identity).await?;
        let failing: Option<Failing> = state.read(&keys::failing(name, &identity)).await?;
        if base.is_some() || stone.is_some() || held.is_some() || failing.is_some() {
            return Ok(Some(Remembered { identity, base, stone, held }));
        }
    }
    Ok(None)
}

/// What a key may be called in state: by the shape's claim, below its prefix, or itself.
fn identities_of(shape: &dyn Shape, key: &str) -> Vec<String> {
    shape.claims(key).into_iter().chain(names_of(shape, key)).collect()
}

/// Whose key it is beyond doubt: below the shape's prefix, or itself.
pub(super) fn names_of(shape: &dyn Shape, key: &str) -> Vec<String> {
    let below = shape.key_prefix().and_then(|prefix| key.strip_prefix(prefix)).map(str::to_owned);
    below.into_iter().chain([key.to_owned()]).collect()
}

async fn held_about(state: &State, name: &str, identity: &str) -> Result<Option<HeldItem>> {
    for header in state.read_all::<Header>(&keys::held_of(name)).await? {
        let item = state.read(&keys::held_item(name, &header.1.plan, identity)).await?;
        if item.is_some() {
            return Ok(item);
        }
    }
    Ok(None)
}

/// Keys that read like one that nobody knows, the nearest first, each once.
pub struct Near<'k> {
    key: &'k str,
    found: Vec<(Reverse<u32>, String)>,
}

/// Near keys that are named: enough to find the one that was meant.
const NEAR_MAX: usize = 3;

impl<'k> Near<'k> {
    pub fn to(key: &'k str) -> Self {
        Near { key, found: Vec::new() }
    }

    pub fn weigh(&mut self, name: &str) {
        if self.found.iter().any(|(_, known)| known == name) {
            return;
        }
        self.found.push((Reverse(alike(name, self.key)), name.to_owned()));
        self.found.sort();
        self.found.truncate(NEAR_MAX);
    }

    pub fn names(&self) -> Vec<&str> {
        self.found.iter().map(|(_, name)| name.as_str()).collect()
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a similarity between 0 and 1, for sorting
fn alike(a: &str, b: &str) -> u32 {
    (strsim::jaro_winkler(a, b) * 1_000_000.0) as u32
}

/// When runs began: as their reports say, and where those are forgotten by their ids. Ids only ever grow, so after a run
/// with a clock that was ahead they tell its time for all that follow.
struct Times<'s> {
    state: &'s State,
    known: HashMap<String, Option<String>>,
}

impl<'s> Times<'s> {
    fn of(state: &'s State) -> Self {
        Times { state, known: HashMap::new() }
    }

    async fn of_run(&mut self, run: &str) -> Result<Option<String>> {
        if let Some(known) = self.known.get(run) {
            return Ok(known.clone());
        }
        let report: Option<Report> = self.state.read(&keys::run(run)).await?;
        let time = report.map(|report| report.started).or_else(|| time_of(run));
        self.known.insert(run.to_owned(), time.clone());
        Ok(time)
    }
}

fn time_of(run: &str) -> Option<String> {
    let ms = i64::try_from(retention::run_time_ms(run)?).ok()?;
    jiff::Timestamp::from_millisecond(ms).ok().map(crate::clock::rfc3339_ms)
}

fn said(late: &Late) -> String {
    match late {
        Late::AlreadySo => "already so".into(),
        Late::Conflict => "conflict: held".into(),
        Late::Failed(fault) => format!("failed: {}", fault.message),
        Late::Dropped => "dropped after a crash, then repeated".into(),
    }
}
