//! Sealed plans: exactly what was looked at is what is applied, or nothing is. The file names every change with its
//! before and after, the store's versions, the config, and carries the hash of all that; it holds no secret.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::plan::{Action, Seen, Step};
use super::steps::Steps;
use super::{Ask, Pipeline, cursors, decide, finish, past, read, render, stock};
use crate::clock::rfc3339_ms;
use crate::error::{Error, Kind, Result};
use crate::record::{Fingerprint, Version};
use crate::shape::Rendered;
use crate::source::Cursors;
use crate::state::Report;
use crate::state::journal::Change;
use crate::store::{SharedStore, StoreExt as _};

/// Older plans are refused: by then nobody remembers what was looked at.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// What two machines' clocks may differ by.
const AHEAD_MAX: Duration = Duration::from_secs(5 * 60);
const FORMAT: u32 = 2;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    pub trueup_plan: u32,
    pub id: String,
    pub pipeline: String,
    pub made: String,
    pub store: String,
    /// Hash of the pipeline's settings.
    pub config: String,
    pub cursors: Cursors,
    /// Made for this key alone.
    #[serde(default)]
    pub only: Option<String>,
    /// Everything was read, whatever the cursors say.
    #[serde(default)]
    pub full: bool,
    /// The store cannot compare and set, or may answer late: what happens between check and write is not seen.
    pub best_effort: bool,
    pub steps: Vec<SealedStep>,
    /// SHA-256 of everything above.
    pub seal: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedStep {
    pub key: String,
    pub identity: String,
    pub change: Change,
    pub why: String,
    pub before: Option<Fingerprint>,
    pub after: Option<Fingerprint>,
    /// What the store holds now; `None` = nothing.
    pub version: Option<Version>,
}

impl Sealed {
    fn hash(&self) -> Result<String> {
        let bare = Sealed { seal: String::new(), ..self.clone() };
        let bytes =
            serde_json::to_vec(&bare).map_err(|error| Error::bug("sealing a plan").caused_by(error))?;
        Ok(Fingerprint::of(&bytes).to_string())
    }

    /// The plan as a file holds it.
    pub fn to_text(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self);
        text.map_err(|error| Error::bug("writing a sealed plan").caused_by(error))
    }

    /// Whether a file that begins so is a plan, be it of another version or altered.
    pub fn begins(start: &[u8]) -> bool {
        let rest = start.trim_ascii_start().strip_prefix(b"{");
        rest.is_some_and(|rest| rest.trim_ascii_start().starts_with(b"\"trueup_plan\""))
    }

    /// Read a plan file; one that was altered, be it by a space, is refused.
    pub fn parse(text: &str) -> Result<Sealed> {
        let refuse = |why: &str| {
            Error::new(Kind::Conflict, format!("the plan is refused: {why}"))
                .remedy_is("Make a new one with `trueup plan --out FILE`.")
        };
        let sealed: Sealed =
            serde_json::from_str(text).map_err(|error| refuse("it is not a sealed plan").caused_by(error))?;
        if sealed.trueup_plan != FORMAT {
            return Err(refuse("another version of trueup made it"));
        }
        if sealed.hash()? != sealed.seal || sealed.to_text()? != text.trim_end_matches(['\r', '\n']) {
            return Err(refuse("the file was altered after it was sealed"));
        }
        Ok(sealed)
    }

    /// What can be said without reading anything: its age, and whether the config is still the same.
    fn check_age_and_config(&self, digest: &str, now: Timestamp) -> Result<()> {
        let made: Timestamp =
            self.made.parse().map_err(|_| self.refuse("it does not say when it was made"))?;
        let age = now.as_millisecond().saturating_sub(made.as_millisecond());
        if i128::from(-age) > AHEAD_MAX.as_millis().cast_signed() {
            return Err(
                self.refuse(&format!("it says it was made at {}, and that is yet to come", self.made))
            );
        }
        if u128::try_from(age).is_ok_and(|age| age > AGE_MAX.as_millis()) {
            return Err(self.refuse(&format!("it was made at {}, more than 24 hours ago", self.made)));
        }
        if self.config != digest {
            return Err(self.refuse(&format!("the config of {} changed since", self.pipeline)));
        }
        Ok(())
    }

    fn refuse(&self, why: &str) -> Error {
        Error::new(Kind::Conflict, format!("the plan {} is refused: {why}", self.id))
            .remedy_is("Look at what changed, and make a new one with `trueup plan --out FILE`.")
    }

    /// Compare with what would be done now; the first difference is named.
    pub(super) async fn compare(&self, store: &SharedStore, now: &[SealedStep]) -> Result<()> {
        let by_key = |steps: &[SealedStep]| -> BTreeMap<String, SealedStep> {
            steps.iter().map(|step| (step.identity.clone(), step.clone())).collect()
        };
        let (then, now) = (by_key(&self.steps), by_key(now));
        for (identity, planned) in &then {
            let key = &planned.key;
            match now.get(identity) {
                None => {
                    let there = store.get_one(key).await?.map(|stored| stored.version);
                    // What somebody edited is held instead of deleted.
                    if planned.change == Change::Delete && there.is_some() && there != planned.version {
                        return Err(self.refuse(&format!("{key} changed in the store since")));
                    }
                    let change = planned.change.name();
                    return Err(self.refuse(&format!("the {change} of {key} is no longer called for")));
                }
                Some(step) if step.change != planned.change || step.after != planned.after => {
                    return Err(self.refuse(&format!("the source of {key} changed since")));
                }
                Some(step) if step.version != planned.version || step.before != planned.before => {
                    return Err(self.refuse(&format!("{key} changed in the store since")));
                }
                Some(_) => {}
            }
        }
        match now.iter().find(|(identity, _)| !then.contains_key(*identity)) {
            Some((_, step)) => {
                Err(self.refuse(&format!("the {} of {} is new since", step.change.name(), step.key)))
            }
            None => Ok(()),
        }
    }
}

impl Pipeline {
    /// Seal what a pass would do now. `digest` is the hash of the pipeline's settings.
    pub async fn seal(&self, ask: &Ask, digest: &str) -> Result<Sealed> {
        let mut report = Report::start(String::new(), &self.name, ask.trigger, String::new());
        let informed = stock::inform(self, ask.full, false).await?;
        if let Some(sealed) = informed.line.seal_informed(ask, digest, &informed, &mut report).await? {
            return Ok(sealed);
        }
        let mut report = Report::start(String::new(), &self.name, ask.trigger, String::new());
        let informed = stock::inform(self, true, false).await?;
        let sealed = informed.line.seal_informed(ask, digest, &informed, &mut report).await?;
        sealed.ok_or_else(|| Error::bug("stock was taken, and older rows were met again"))
    }

    /// `None` = rows of an older layout were met: stock must be taken first.
    async fn seal_informed(
        &self,
        ask: &Ask,
        digest: &str,
        informed: &stock::Informed<'_>,
        report: &mut Report,
    ) -> Result<Option<Sealed>> {
        let past = past::past(self, ask, informed).await?;
        let cursors = if informed.afresh { Cursors::new() } else { cursors::load(self).await? };
        let reading = read::read(self, ask, &cursors, &past, None, report).await?;
        if reading.met_older && !informed.afresh {
            return Ok(None);
        }
        if reading.scopes.all_broken() {
            return Err(finish::nothing_could_be_read(&reading.scopes));
        }
        let mut plan = decide::decide(self, ask, &past, reading, report).await?;
        let caps = self.store.caps();
        let mut sealed = Sealed {
            trueup_plan: FORMAT,
            id: plan.id.clone(),
            pipeline: self.name.clone(),
            made: rfc3339_ms(self.clock.now()),
            store: self.store.name().to_owned(),
            config: digest.to_owned(),
            cursors,
            only: ask.only.clone(),
            full: ask.full,
            best_effort: !(caps.cas && caps.strong_read),
            steps: self.sealed_steps(&mut plan.steps).await?,
            seal: String::new(),
        };
        sealed.seal = sealed.hash()?;
        Ok(Some(sealed))
    }

    /// Apply exactly what was sealed, or refuse. What can be refused is refused before a run is even begun; the run
    /// compares once more, because time passes in between.
    pub async fn run_sealed(&self, sealed: Sealed, ask: Ask, digest: &str) -> Result<Report> {
        sealed.check_age_and_config(digest, self.clock.now())?;
        let ask = Ask { only: sealed.only.clone(), full: sealed.full, ..ask };
        let now = self.seal(&ask, digest).await?;
        sealed.compare(&self.store, &now.steps).await?;
        self.run(&Ask { sealed: Some(Arc::new(sealed)), ..ask }).await
    }

    pub(super) async fn sealed_steps(&self, steps: &mut Steps) -> Result<Vec<SealedStep>> {
        let mut all = Vec::new();
        for step in steps.read::<Step>()? {
            let step = step?;
            if let Action::Change(change, why) = step.action {
                all.push(self.sealed_step(&step, change, why.name()).await?);
            }
        }
        Ok(all)
    }

    async fn sealed_step(&self, step: &Step, change: Change, why: &str) -> Result<SealedStep> {
        let key = step.key(self.shape.key_prefix())?;
        let version = match &step.seen {
            Seen::Nothing => None,
            Seen::At(version) => Some(version.clone()),
            Seen::NotAsked => self.store.get(&[&key]).await?.pop().flatten().map(|stored| stored.version),
        };
        // Where a version tells the content it stands for it; where it is only a hint the body is read.
        let after = match (change, step.after) {
            (Change::Delete, _) => None,
            (_, Some(after)) => Some(after),
            (_, None) if self.compares_content() => match render::render(self, step).await?.rendered {
                Rendered::Put(output) => Some(output.fingerprint),
                _ => step.stamp,
            },
            (_, None) => step.stamp,
        };
        let before = step.base()?.map(|(_, base)| base.fingerprint);
        Ok(SealedStep {
            key,
            identity: step.identity.clone(),
            change,
            why: why.to_owned(),
            before,
            after,
            version,
        })
    }
}
