//! The audit: source, state and store compared, key by key, in bounded memory. What it finds it names; what it may
//! it repairs, by an ordinary pass that is told where to look.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::lines::Lines;
use super::plan::{Action, Step, Why};
use super::reading::Reading;
use super::scopes::Absence;
use super::stock::Informed;
use super::strays::Wholes;
use super::{Ask, Pipeline, Silent, Stop, orphans, read};
use crate::config::{Drift, Heal};
use crate::error::{Fault, Result};
use crate::record::Fingerprint;
use crate::shape::Absent;
use crate::source::Cursors;
use crate::state::journal::Change;
use crate::state::{Base, Report, decode, decode_line, keys};
use crate::store::limited::{Limited, Profile};
use crate::store::{StoreExt, What};

#[derive(Debug, Default, Serialize)]
pub struct Audit {
    pub pipeline: String,
    pub drift: Vec<Drifted>,
    /// Drift beyond what is listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted: u64,
    pub repaired: u64,
    pub counts: BTreeMap<&'static str, u64>,
    /// The pass that repaired, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Report>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drifted {
    pub key: String,
    pub class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

/// Drift listed key by key; the counts go on. A list nobody can read helps nobody.
const LISTED_MAX: usize = 100_000;

/// Records looked up together.
const COMPARED_AT_ONCE: usize = 1_000;

/// How much of the store is looked at, and how fast.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Look at values of one key in this many (1 = all).
    pub one_in: u64,
    /// Requests to the store per second, so that others are served meanwhile.
    pub requests_per_second: Option<usize>,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { one_in: 1, requests_per_second: None }
    }
}

impl Audit {
    fn note(&mut self, key: &str, class: &'static str) {
        *self.counts.entry(class).or_default() += 1;
        if self.drift.len() < LISTED_MAX {
            self.drift.push(Drifted { key: key.to_owned(), class, error: None });
        } else {
            self.omitted += 1;
        }
    }

    /// Drift that a person or a repair must see to; what is foreign is somebody else's and in order.
    pub fn is_clean(&self) -> bool {
        self.counts.iter().all(|(class, count)| matches!(*class, "intact" | "foreign") || *count == 0)
    }
}

impl Pipeline {
    /// Compare, and repair if asked: every class but foreign and unproven, whatever `drift` says.
    pub async fn audit(&self, budget: Budget, repair: Option<Ask>) -> Result<Audit> {
        let unhurried = self.unhurried(budget);
        let mut found = unhurried.compare(budget).await?;
        let Some(ask) = repair.filter(|_| found.audit.needs_repair()) else { return Ok(found.audit) };
        let before = found.audit.repairable();
        let ask = Ask { full: true, heal: std::mem::take(&mut found.broken), ..ask };
        let report = self.healing().run(&ask).await?;
        let mut after = unhurried.compare(budget).await?.audit;
        after.repaired = before.saturating_sub(after.repairable());
        after.run = Some(report);
        Ok(after)
    }

    /// The same pipeline, asking its store no faster than the budget says.
    fn unhurried(&self, budget: Budget) -> Pipeline {
        let mut line = self.clone();
        if let Some(requests_max) = budget.requests_per_second {
            let profile = Profile { requests_max, window_ms: 1_000, ..Profile::NONE };
            line.store = Arc::new(Limited::new(line.store, profile, line.clock.clone()));
        }
        line
    }

    /// The same pipeline, healing whatever its config says.
    fn healing(&self) -> Pipeline {
        let drift = Drift { edited: Heal::Heal, missing: Heal::Heal, extra: Heal::Heal };
        Pipeline { drift, ..self.clone() }
    }

    async fn compare(&self, budget: Budget) -> Result<Found> {
        let mut found = Found::new(&self.name);
        match self.shape.key_prefix() {
            Some(prefix) => self.compare_in_order(prefix.to_owned(), budget, &mut found).await?,
            None => self.compare_by_key(budget, &mut found).await?,
        }
        self.compare_source(&mut found).await?;
        found.audit.drift.sort_by(|a, b| (&a.key, a.class).cmp(&(&b.key, b.class)));
        Ok(found)
    }

    /// State against store: missing, edited, foreign. Both listings sort alike: walk them side by side.
    async fn compare_in_order(&self, prefix: String, budget: Budget, found: &mut Found) -> Result<()> {
        let mut ours = Lines::of(self.state.store().clone(), keys::bases(&self.name), What::Values);
        let mut theirs = Lines::of(self.store.clone(), prefix.clone(), What::Values);
        loop {
            ours.fill().await?;
            theirs.fill().await?;
            let order = match (ours.peek(), theirs.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(mine), Some(other)) => mine.cmp(other),
            };
            let mine = if order.is_le() { ours.pop().await? } else { None };
            let stored = if order.is_ge() { theirs.pop().await? } else { None };
            match (mine, stored) {
                (Some(mine), stored) => {
                    let identity = keys::below(&keys::bases(&self.name), &mine.key).to_owned();
                    let base: Base = decode_line(&mine)?;
                    match stored {
                        None => found.missing(&identity, &base),
                        Some(stored) => {
                            let value = stored.value.unwrap_or_default();
                            found.compare(&identity, &base, &stored.version, &value, budget);
                        }
                    }
                }
                (None, Some(stored)) => found.foreign(&stored.key),
                (None, None) => {}
            }
        }
    }

    /// Keys sort otherwise than identities: a page of ours at a time is looked up in the store, then a page of the
    /// store's keys at a time in the state. Neither is ever held whole.
    async fn compare_by_key(&self, budget: Budget, found: &mut Found) -> Result<()> {
        let mut ours = Lines::of(self.state.store().clone(), keys::bases(&self.name), What::Values);
        loop {
            let page = ours.some(COMPARED_AT_ONCE).await?;
            if page.is_empty() {
                break;
            }
            let mut known = Vec::with_capacity(page.len());
            for line in &page {
                let identity = keys::below(&keys::bases(&self.name), &line.key).to_owned();
                known.push((identity, decode_line::<Base>(line)?));
            }
            let names: Vec<&str> = known.iter().map(|(identity, base)| base.key(identity)).collect();
            for ((identity, base), stored) in known.iter().zip(self.store.get(&names).await?) {
                match stored {
                    None => found.missing(identity, base),
                    Some(stored) => found.compare(identity, base, &stored.version, &stored.value, budget),
                }
            }
        }
        self.find_foreign(found).await
    }

    /// Keys of the store that no baseline record is about.
    async fn find_foreign(&self, found: &mut Found) -> Result<()> {
        let mut theirs = Lines::of(self.store.clone(), "", What::Keys);
        loop {
            let page = theirs.some(COMPARED_AT_ONCE).await?;
            if page.is_empty() {
                return Ok(());
            }
            let claim = |key: &str| self.shape.claims(key).unwrap_or_else(|| key.to_owned());
            let claimed: Vec<String> = page.iter().map(|line| claim(&line.key)).collect();
            let records: Vec<String> =
                claimed.iter().map(|identity| keys::base(&self.name, identity)).collect();
            let records: Vec<&str> = records.iter().map(String::as_str).collect();
            let known = self.state.store().get(&records).await?;
            for ((line, identity), known) in page.iter().zip(&claimed).zip(known) {
                let base = known.map(|known| decode::<Base>(identity, &known.value)).transpose()?;
                if base.is_none_or(|base| base.key(identity) != line.key) {
                    found.foreign(&line.key);
                }
            }
        }
    }

    /// Source against state: stale (the source moved on), extra (the source has it no more), unproven.
    async fn compare_source(&self, found: &mut Found) -> Result<()> {
        let mut report = Report::start(String::new(), &self.name, "audit", String::new());
        // Only the source is of interest here: the store was compared above, with its values.
        let alone = Pipeline {
            drift: Drift { edited: Heal::Report, missing: Heal::Report, extra: Heal::Report },
            ..self.clone()
        };
        let ask = Ask { stop: Stop::default(), progress: Arc::new(Silent), ..Ask::plain("audit") };
        let past = super::past::past(&alone, &ask, &Informed::of_nothing(&alone)).await?;
        let mut reading = read::read(&alone, &ask, &Cursors::new(), &past, None, &mut report).await?;
        for step in reading.steps.read::<Step>()? {
            let step = step?;
            let is_drift = matches!(step.action, Action::Change(Change::Update, Why::Drift));
            if step.entry.is_none() {
                self.note_absent(&step, found).await?;
            } else if !is_drift
                && !super::weigh::is_over(self, &step)
                && !self.is_in_the_way(&past, &step).await?
                && !self.is_unusable(&past, &step).await
                && self.really_stale(&step).await?
            {
                found.stale(&step.key(self.shape.key_prefix())?);
            }
        }
        let Reading { unseen, scopes, .. } = &mut reading;
        let mut wholes = Wholes::of(&alone, scopes);
        let said_gone = HashSet::new();
        let orphans = orphans::gone_with_their_owner(&alone, unseen, scopes, &mut wholes, &said_gone)?;
        for step in unseen.read::<Step>()? {
            let step = step?;
            if scopes.absence(&step.scope) == Absence::Proven || orphans.contains(&step.identity) {
                self.note_absent(&step, found).await?;
            }
        }
        for (scope, fault) in reading.scopes.broken() {
            *found.audit.counts.entry("unproven").or_default() += 1;
            let drifted = Drifted { key: scope.to_owned(), class: "unproven", error: Some(fault.clone()) };
            found.audit.drift.push(drifted);
        }
        Ok(())
    }

    /// A new record whose key somebody else holds is not ours to be late with: the key is foreign, and said to be.
    async fn is_in_the_way(&self, past: &super::past::Past, step: &Step) -> Result<bool> {
        let new = matches!(step.action, Action::Change(Change::Add, _));
        Ok(new && super::weigh::is_foreign(self, past, step).await?)
    }

    /// Nothing is stored for it, nor could be: runs say so, and no repair would help.
    async fn is_unusable(&self, past: &super::past::Past, step: &Step) -> bool {
        let parked = step.entry.as_ref().is_some_and(|entry| past.parked.contains_key(&entry.id));
        parked
            && super::render::render(self, step)
                .await
                .is_ok_and(|drawn| matches!(drawn.rendered, crate::shape::Rendered::Skip(_)))
    }

    /// Absence means what the shape says: gone, kept with a mark, or kept as it is.
    async fn note_absent(&self, step: &Step, found: &mut Found) -> Result<()> {
        let Some((_, base)) = step.base()? else { return Ok(()) };
        let (prior, now) = (base.prior(&step.identity), self.clock.now());
        match self.shape.absent(&prior, None, now) {
            Absent::Delete => found.extra(&prior.key),
            Absent::Keep => {}
            Absent::Put(_) => {
                let stored = self.store.get_one(&prior.key).await?;
                let marked = stored.is_none_or(|stored| {
                    !matches!(self.shape.absent(&prior, Some(&stored.value), now), Absent::Put(_))
                });
                if !marked {
                    found.stale(&prior.key);
                }
            }
        }
        Ok(())
    }

    /// A new version that is only a hint may be the same content.
    async fn really_stale(&self, step: &Step) -> Result<bool> {
        let hint = self.source.versions() == crate::source::Versions::Hint && !self.source.remote();
        let Some((_, base)) = step.base()?.filter(|_| hint) else { return Ok(true) };
        Ok(match super::render::render(self, step).await.map(|drawn| drawn.rendered) {
            Ok(crate::shape::Rendered::Put(output)) => output.fingerprint != base.fingerprint,
            Ok(_) => false,
            Err(_) => true,
        })
    }
}

/// Findings on the way.
struct Found {
    audit: Audit,
    /// Identities whose stored value is wrong or gone: a repair writes them again.
    broken: HashSet<String>,
}

impl Found {
    fn new(pipeline: &str) -> Self {
        let audit = Audit { pipeline: pipeline.to_owned(), ..Audit::default() };
        Found { audit, broken: HashSet::new() }
    }

    fn missing(&mut self, identity: &str, base: &Base) {
        self.audit.note(base.key(identity), "missing");
        self.broken.insert(identity.to_owned());
    }

    fn compare(
        &mut self,
        identity: &str,
        base: &Base,
        version: &crate::record::Version,
        value: &[u8],
        budget: Budget,
    ) {
        let sampled = budget.one_in <= 1 || chosen(identity, budget.one_in);
        let intact =
            if sampled { Fingerprint::of(value) == base.bytes_hash() } else { *version == base.version };
        if intact {
            *self.audit.counts.entry("intact").or_default() += 1;
        } else {
            self.audit.note(base.key(identity), "edited");
            self.broken.insert(identity.to_owned());
        }
    }

    /// In the store, and not ours: a look, never a touch.
    fn foreign(&mut self, key: &str) {
        self.audit.note(key, "foreign");
    }

    fn stale(&mut self, key: &str) {
        self.audit.note(key, "stale");
    }

    fn extra(&mut self, key: &str) {
        self.audit.note(key, "extra");
    }
}

impl Audit {
    fn needs_repair(&self) -> bool {
        self.repairable() > 0
    }

    fn repairable(&self) -> u64 {
        ["missing", "edited", "stale", "extra"].iter().filter_map(|class| self.counts.get(class)).sum()
    }
}

/// The same keys on every audit of the same sample, spread evenly.
fn chosen(identity: &str, one_in: u64) -> bool {
    let hash = Fingerprint::of(identity.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.0[..8]);
    u64::from_be_bytes(first) % one_in == 0
}
