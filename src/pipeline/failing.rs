//! Changes the store refuses, each by itself, while it takes others. They are counted by run; a system may say after how
//! many a change is given up. It is then a dead letter, parked: it no longer holds the cursor back, and is left alone
//! until its source has a newer version or a person asks for another try.
//!
//! A store that is down refuses everything, which says nothing about a change: that is not counted.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::apply::Applied;
use super::decide::Plan;
use super::parked::Parked;
use super::past::Past;
use super::prepare::Write;
use super::{Ask, Pipeline};
use crate::clock::rfc3339_ms;
use crate::error::{Fault, Result};
use crate::queue::dead::Letter;
use crate::queue::{Task, WRITE};
use crate::record::Fingerprint;
use crate::state::journal::{Change, Intent};
use crate::state::{Pointer, Report, State, item, keys};
use crate::store::{Item, StoreExt};

/// What is known of a change that keeps failing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    pub key: String,
    /// The entry it comes from; `None` = a delete.
    pub entry: Option<String>,
    pub scope: String,
    pub change: Change,
    /// The source's version of it; another one begins anew.
    pub stamp: Option<Fingerprint>,
    /// Its content, which stays the same where a version is only a hint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub print: Option<Fingerprint>,
    pub runs: u32,
    /// When it first failed.
    pub since: String,
    pub fault: Fault,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// What the shape wanted remembered of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<Value>,
}

impl Failing {
    pub fn warning(&self) -> String {
        let name = self.entry.as_ref().unwrap_or(&self.key);
        format!("{name}: {}", self.why())
    }

    fn why(&self) -> String {
        let Failing { runs, fault, key, .. } = self;
        format!(
            "the store refused it in {runs} runs ({}); `trueup dead retry {key}` tries again",
            fault.message
        )
    }
}

/// One failure in this run.
pub struct Failure {
    intent: Intent,
    entry: Option<String>,
    scope: String,
    write: Pointer,
    fault: Fault,
}

impl Failure {
    pub fn of(write: &Write, fault: &Fault) -> Self {
        Failure {
            intent: write.intent.clone(),
            entry: write.entry.clone(),
            scope: write.scope.to_string(),
            write: write.pointer.clone(),
            fault: fault.clone(),
        }
    }

    fn counted(&self, before: Option<&Failing>, runs_max: u32, now: &str) -> Failing {
        let next = self.intent.next.as_ref();
        let stamp = next.map(|next| next.stamp);
        let print = next.map(|next| next.base.fingerprint);
        let before = before.filter(|before| before.stamp == stamp || before.print == print);
        let runs = before.map_or(0, |before| before.runs) + 1;
        Failing {
            key: self.intent.key().to_owned(),
            entry: self.entry.clone(),
            scope: self.scope.clone(),
            change: self.intent.change,
            stamp,
            print,
            runs,
            since: before.map_or_else(|| now.to_owned(), |before| before.since.clone()),
            fault: self.fault.clone(),
            given_up: runs >= runs_max,
            carry: next.and_then(|next| next.base.carry.clone()),
        }
    }

    fn letter(&self, failing: &Failing, now: &str) -> Letter {
        let task = Task {
            key: failing.key.clone(),
            change: failing.change,
            bytes: self.intent.bytes_hash(),
            write: self.write.clone(),
            created: failing.since.clone(),
            attempts: failing.runs,
            error: Some(self.fault.clone()),
            not_before: None,
            claim: None,
            fence: 0,
            still_new: self.intent.still_new,
            message: None,
        };
        let remedy = "Find out why the store does not take this key, then `trueup dead retry`.".to_owned();
        let cause = Fault { remedy, ..self.fault.clone() };
        Letter { task, cause, since: now.to_owned() }
    }

    fn parked(&self, failing: &Failing) -> Parked {
        Parked {
            identity: self.intent.identity.clone(),
            scope: self.scope.clone(),
            why: failing.why(),
            shadowed: false,
            unknown: self.intent.prior_base.is_none(),
        }
    }
}

pub async fn load(line: &Pipeline) -> Result<HashMap<String, Failing>> {
    let prefix = keys::failing(&line.name, "");
    let all = line.state.read_all::<Failing>(&prefix).await?;
    Ok(all.into_iter().map(|(key, failing)| (keys::below(&prefix, &key).to_owned(), failing)).collect())
}

/// State items that forget that a change failed.
pub fn forget(pipeline: &str, identity: &str) -> [Item; 2] {
    [Item::delete(keys::failing(pipeline, identity)), Item::delete(keys::dead(pipeline, WRITE, identity))]
}

/// A person asks for another try: forget that it failed, and read the source again, whatever its cursor says.
pub async fn try_again(state: &State, pipeline: &str, identity: &str) -> Result<()> {
    let failing: Option<Failing> = state.read(&keys::failing(pipeline, identity)).await?;
    let mut items = Vec::from(forget(pipeline, identity));
    let entry = failing.and_then(|failing| failing.entry);
    items.extend(entry.map(|entry| Item::delete(keys::parked_item(pipeline, &entry))));
    items.extend(state.keys(&keys::cursors(pipeline)).await?.into_iter().map(Item::delete));
    state.commit_in_parts(items).await
}

/// Count this run's failures, give up what failed too often, forget what failed no longer.
pub async fn settle(
    line: &Pipeline,
    ask: &Ask,
    past: &Past,
    plan: &Plan,
    applied: &mut Applied,
    report: &mut Report,
) -> Result<Vec<Item>> {
    let failures = std::mem::take(&mut applied.failures);
    let aborted = report.cause.is_some() || ask.stop.is_set();
    let runs_max = if aborted || failures.is_empty() { None } else { runs_max(line).await };
    let now = rfc3339_ms(line.clock.now());
    let mut items = Vec::new();
    for failure in &failures {
        let identity = &failure.intent.identity;
        let Some(runs_max) = runs_max else {
            applied.failed_scopes.push(failure.scope.clone());
            continue;
        };
        let failing = failure.counted(past.failing.get(identity), runs_max, &now);
        let letter = keys::dead(&line.name, WRITE, identity);
        items.push(item(keys::failing(&line.name, identity), &failing)?);
        if failing.given_up {
            report.dead += 1;
            items.push(item(letter, &failure.letter(&failing, &now))?);
            if let Some(entry) = &failure.entry {
                items.push(item(keys::parked_item(&line.name, entry), &failure.parked(&failing))?);
                applied.parked.insert(entry.clone());
            }
        } else {
            items.push(Item::delete(letter));
            applied.failed_scopes.push(failure.scope.clone());
        }
    }
    if ask.only.is_none() && !aborted {
        let failed = |identity: &String| failures.iter().any(|one| one.intent.identity == *identity);
        let over = past.failing.iter().filter(|(identity, old)| {
            plan.scopes.was_read(&old.scope) && !plan.given_up.contains(*identity) && !failed(identity)
        });
        items.extend(over.flat_map(|(identity, _)| forget(&line.name, identity)));
    }
    Ok(items)
}

/// After how many runs a change is given up; `None` = never, or the store is down and nothing is counted.
async fn runs_max(line: &Pipeline) -> Option<u32> {
    let records = line.records.as_ref()?;
    let runs_max = records.attempts_max()?;
    line.store.write_one(records.probe()).await.ok().map(|_| runs_max)
}
