//! What is due, running, failing, held, at a glance.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Rhythm;
use super::pauses::Pause;
use super::slots::Memo;
use crate::clock::rfc3339_ms;
use crate::config::{self, Config};
use crate::error::{Error, Result};
use crate::pipeline::open::Memory;
use crate::queue::depth::{self, LeftBehind};
use crate::state::held::Header;
use crate::state::lease::Holder;
use crate::state::{Report, State, Status, decode, keys};
use crate::store::Stored;

/// A slot that has not begun so long after its time is late: beyond any jitter, and a restart.
const LATE_AFTER: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Serialize)]
pub struct Overview {
    pub pipelines: Vec<One>,
    /// What waits for pipelines that are no longer there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<LeftBehind>,
}

#[derive(Debug, Clone, Serialize)]
pub struct One {
    pub pipeline: String,
    pub enabled: bool,
    pub running: bool,
    /// Who runs it, where the state is shared by machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// `never` until the first run.
    pub status: &'static str,
    pub last_run: Option<String>,
    pub finished: Option<String>,
    pub held: u64,
    pub failed: u64,
    pub unproven: u64,
    /// Dead letters, old and new.
    pub dead: u64,
    pub when: Option<String>,
    pub tz: String,
    /// The next slot; none while it is paused or disabled.
    pub next: Option<String>,
    /// Since when a person has paused it.
    pub paused: Option<String>,
    pub plan: Option<String>,
    /// The slot that should have been run by now.
    #[serde(skip)]
    pub late: Option<String>,
    #[serde(skip)]
    pub report: Option<Arc<Report>>,
}

pub async fn all(config: &Config, memory: &Memory) -> Result<Overview> {
    all_knowing(config, memory, &Ended::default()).await
}

/// The same, by somebody who looks again and again.
pub async fn all_knowing(config: &Config, memory: &Memory, ended: &Ended) -> Result<Overview> {
    let specs: Vec<&config::Pipeline> = config.pipelines.values().collect();
    let pipelines = look(&specs, memory, ended).await?;
    let left_behind = depth::left_behind(&memory.state, |name| config.pipelines.contains_key(name)).await?;
    Ok(Overview { pipelines, left_behind })
}

pub async fn one(spec: &config::Pipeline, memory: &Memory) -> Result<One> {
    look(&[spec], memory, &Ended::default()).await?.pop().ok_or_else(|| Error::bug("a pipeline vanished"))
}

/// The last report of each pipeline, once its run ended: it never changes, so it is read once.
#[derive(Default)]
pub struct Ended(Mutex<HashMap<String, Arc<Report>>>);

impl Ended {
    /// Reports of these runs, in their order; only those not known yet are read.
    async fn reports(&self, state: &State, runs: &[Option<String>]) -> Result<Vec<Option<Arc<Report>>>> {
        let mut reports = self.known(runs);
        let new = |(run, report): (&Option<String>, &Option<Arc<Report>>)| {
            run.as_ref().filter(|_| report.is_none()).map(|run| keys::run(run))
        };
        let missing: Vec<String> = runs.iter().zip(&reports).filter_map(new).collect();
        if missing.is_empty() {
            return Ok(reports);
        }
        let mut read = read_many::<Report>(state, missing.into_iter()).await?.into_iter();
        for (run, report) in runs.iter().zip(&mut reports) {
            if run.is_some() && report.is_none() {
                *report = read.next().flatten().map(Arc::new);
            }
        }
        if let Ok(mut kept) = self.0.lock() {
            // Those of before are forgotten: as many are kept as there are pipelines.
            let over = reports.iter().flatten().filter(|report| report.status != Status::Running);
            *kept = over.map(|report| (report.id.clone(), report.clone())).collect();
        }
        Ok(reports)
    }

    fn known(&self, runs: &[Option<String>]) -> Vec<Option<Arc<Report>>> {
        let Ok(known) = self.0.lock() else { return vec![None; runs.len()] };
        runs.iter().map(|run| known.get(run.as_ref()?).cloned()).collect()
    }
}

/// All at once: a handful of questions to the state, however many pipelines there are.
async fn look(specs: &[&config::Pipeline], memory: &Memory, ended: &Ended) -> Result<Vec<One>> {
    let state = &memory.state;
    let lasts: Vec<Option<String>> =
        read_many(state, specs.iter().map(|spec| keys::last(&spec.name))).await?;
    let reports = ended.reports(state, &lasts).await?;
    let mut paused: BTreeMap<String, Pause> = state.read_all(keys::PAUSES).await?.into_iter().collect();
    let mut memos: BTreeMap<String, Memo> = by_key(state, specs, keys::SLOTS, keys::slot).await?;
    let leases = leases(memory).await?;
    let held = state.held_headers().await?;
    let dead = depth::of_dead(state).await?;
    let mut times = Times::at(memory.clock.now());
    let mut all = Vec::with_capacity(specs.len());
    for ((spec, last), report) in specs.iter().zip(lasts).zip(reports) {
        let leased = leases.contains(&keys::lease(&spec.name));
        let holder = if leased { memory.locks.holder(&spec.name).await? } else { None };
        let locked = memory.locks.are_local() && memory.locks.is_taken(&spec.name).await;
        let paused = paused.remove(&keys::pause(&spec.name));
        let mut one = put_together(spec, holder.is_some() || locked, last, report, paused);
        if one.held == 0 {
            one.hold(state, held.iter().filter(|header| header.pipeline == spec.name)).await?;
        }
        if let Some(rhythm) = times.of(spec)?.filter(|_| spec.enabled && one.paused.is_none()) {
            one.next = rhythm.next.map(rfc3339_ms);
            let memo = memos.remove(&keys::slot(&spec.name)).filter(|_| !one.running);
            one.late = memo.and_then(|memo| memo.late(&rhythm.rhythm, rhythm.edge)).map(rfc3339_ms);
        }
        all.push(One { holder, dead: dead.of(&spec.name), ..one });
    }
    Ok(all)
}

impl One {
    /// The last run was about something else (an undo, a rejection): what is held is held all the same.
    async fn hold(&mut self, state: &State, headers: impl Iterator<Item = &Header>) -> Result<()> {
        for header in headers {
            self.held += state.keys(&keys::held_items(&header.pipeline, &header.plan)).await?.len() as u64;
            self.plan.get_or_insert_with(|| header.plan.clone());
        }
        if self.held > 0 && self.status == Status::Ok.name() {
            self.status = Status::Held.name();
        }
        Ok(())
    }
}

/// One key for one pipeline, one listing for many.
async fn by_key<T: DeserializeOwned>(
    state: &State,
    specs: &[&config::Pipeline],
    prefix: &str,
    key: fn(&str) -> String,
) -> Result<BTreeMap<String, T>> {
    let [spec] = specs else { return Ok(state.read_all(prefix).await?.into_iter().collect()) };
    let key = key(&spec.name);
    Ok(state.read(&key).await?.map(|found| (key, found)).into_iter().collect())
}

/// Locks that several machines share, by the keys of those that are taken: only their holders are asked for.
async fn leases(memory: &Memory) -> Result<BTreeSet<String>> {
    if memory.locks.are_local() {
        return Ok(BTreeSet::new());
    }
    Ok(memory.state.keys(keys::LEASES).await?.into_iter().collect())
}

/// What the clock says about each rhythm, asked once for all pipelines that share it.
struct Times {
    now: Timestamp,
    known: HashMap<(String, String), Moment>,
}

struct Moment {
    rhythm: Rhythm,
    next: Option<Timestamp>,
    /// The last slot that should have begun by now.
    edge: Option<Timestamp>,
}

impl Times {
    fn at(now: Timestamp) -> Self {
        Times { now, known: HashMap::new() }
    }

    fn of(&mut self, spec: &config::Pipeline) -> Result<Option<&Moment>> {
        let Some(when) = &spec.when else { return Ok(None) };
        let name = (when.clone(), spec.tz.clone());
        if !self.known.contains_key(&name) {
            let rhythm = Rhythm::new(when, &spec.tz)?;
            let past = self.now.checked_sub(LATE_AFTER).ok();
            let (next, edge) = (rhythm.next(self.now), past.and_then(|past| rhythm.latest(past)));
            self.known.insert(name.clone(), Moment { rhythm, next, edge });
        }
        Ok(self.known.get(&name))
    }
}

async fn read_many<T: DeserializeOwned>(
    state: &State,
    keys: impl Iterator<Item = String>,
) -> Result<Vec<Option<T>>> {
    let keys: Vec<String> = keys.collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let found = state.store().get(&names).await?;
    let read = |(key, stored): (&String, Option<Stored>)| {
        stored.map(|stored| decode(key, &stored.value)).transpose()
    };
    keys.iter().zip(found).map(read).collect()
}

fn put_together(
    spec: &config::Pipeline,
    running: bool,
    last_run: Option<String>,
    report: Option<Arc<Report>>,
    paused: Option<Pause>,
) -> One {
    let status = match &report {
        None => "never",
        // Marked as running, but nobody holds the lock: the next start will settle it.
        Some(report) if report.status == Status::Running && !running => "interrupted",
        Some(report) => report.status.name(),
    };
    let counts = report.as_ref().map(|report| report.counts.clone()).unwrap_or_default();
    One {
        pipeline: spec.name.clone(),
        enabled: spec.enabled,
        running,
        holder: None,
        status,
        last_run,
        finished: report.as_ref().and_then(|report| report.finished.clone()),
        held: counts.held,
        failed: counts.failed,
        unproven: counts.unproven,
        dead: 0,
        when: spec.when.clone(),
        tz: spec.tz.clone(),
        next: None,
        paused: paused.map(|pause| pause.since),
        plan: report.as_ref().and_then(|report| report.plan.clone()).filter(|_| counts.held > 0),
        late: None,
        report,
    }
}
