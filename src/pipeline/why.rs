//! The whole story of one key: who owns it, what the source said, every write and what came of it, what waits.

use serde::Serialize;

use super::Pipeline;
use super::failing::Failing;
use crate::error::{Fault, Result};
use crate::queue;
use crate::record::{Fingerprint, Version};
use crate::state::held::{Decision, HeldItem};
use crate::state::journal::{Change, Exceptions, Late};
use crate::state::{Base, Pointer, Report, Tombstone, keys, retention};
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
        for identity in self.identities_of(key) {
            let base: Option<Base> = self.state.read(&keys::base(&self.name, &identity)).await?;
            let stone: Option<Tombstone> = self.state.read(&keys::tombstone(&self.name, &identity)).await?;
            let held = self.held_about(&identity).await?;
            let failing: Option<Failing> = self.state.read(&keys::failing(&self.name, &identity)).await?;
            if base.is_some() || stone.is_some() || held.is_some() || failing.is_some() {
                return self.tell(identity, base, stone, held).await.map(Some);
            }
        }
        Ok(None)
    }

    /// What a key may be called in state: by the shape's claim, below its prefix, or itself.
    fn identities_of(&self, key: &str) -> Vec<String> {
        let below = self.shape.key_prefix().and_then(|prefix| key.strip_prefix(prefix)).map(str::to_owned);
        let mut names: Vec<String> = self.shape.claims(key).into_iter().chain(below).collect();
        names.push(key.to_owned());
        names
    }

    async fn tell(
        &self,
        identity: String,
        base: Option<Base>,
        stone: Option<Tombstone>,
        held: Option<HeldItem>,
    ) -> Result<Story> {
        let by_prefix = || self.shape.key_prefix().map(|prefix| format!("{prefix}{identity}"));
        let key = base.as_ref().map(|base| base.key(&identity).to_owned());
        let key = key.or_else(|| stone.as_ref().and_then(|stone| stone.key.clone()));
        let key = key.or_else(by_prefix).unwrap_or_else(|| identity.clone());
        let stored = self.store.get_one(&key).await?;
        let mut history = Vec::new();
        for start in [base.as_ref().map(|base| &base.written), stone.as_ref().map(|stone| &stone.written)] {
            self.walk_back(start.cloned(), &mut history).await?;
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
            source: base.map(|base| self.source_side(base)),
            history,
            held,
            decision: self.state.read(&keys::decision(&self.name, &identity)).await?,
            queue: self.waiting(&identity).await?,
            dead: self.given_up(&identity).await?,
            drift,
            errors: self.troubles(&identity, &key).await?,
            key,
            identity,
        })
    }

    fn source_side(&self, base: Base) -> SourceSide {
        SourceSide {
            name: self.source.name().to_owned(),
            seen: time_of(&base.written.run),
            version: base.body,
            scope: base.scope.to_string(),
            shape: format!("{} {}", self.shape.name(), self.shape.version()),
        }
    }

    async fn held_about(&self, identity: &str) -> Result<Option<HeldItem>> {
        for header in self.state.read_all::<crate::state::held::Header>(&keys::held_of(&self.name)).await? {
            let item = self.state.read(&keys::held_item(&self.name, &header.1.plan, identity)).await?;
            if item.is_some() {
                return Ok(item);
            }
        }
        Ok(None)
    }

    /// From write to the write before it, and on to the key's earlier lives, as far as the journal goes.
    async fn walk_back(&self, start: Option<Pointer>, history: &mut Vec<Event>) -> Result<()> {
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
                at: time_of(&at.run),
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

    /// Known keys near a key nobody knows: those around it in byte order, and those that read alike.
    pub async fn near(&self, key: &str) -> Result<Vec<String>> {
        let prefix = keys::bases(&self.name);
        let start: String = key.chars().take(key.chars().count() / 2).collect();
        let below = format!("{prefix}{start}");
        let mut lines = self.state.store().list(Query { limit: 200, ..Query::keys(&below) }).await?.items;
        if lines.is_empty() {
            lines = self.state.store().list(Query { limit: 200, ..Query::keys(&prefix) }).await?.items;
        }
        let mut names: Vec<String> =
            lines.into_iter().map(|line| keys::below(&prefix, &line.key).to_owned()).collect();
        names.sort_by_key(|name| std::cmp::Reverse(alike(name, key)));
        names.truncate(3);
        Ok(names)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a similarity between 0 and 1, for sorting
fn alike(a: &str, b: &str) -> u32 {
    (strsim::jaro_winkler(a, b) * 1_000_000.0) as u32
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
