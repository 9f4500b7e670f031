//! Pipelines: how they are, and what to do with them now.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::error::{Error, Kind};
use crate::operations::{self, NotStarted, Plans, Runs, look};
use crate::pipeline::Ask;
use crate::pipeline::audit::Budget;
use crate::schedule::{Rhythm, overview, pauses, slots};
use crate::server::House;
use crate::server::answer::{self, Answer, Asked, Named, No};

/// What may be said of a run or a plan.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunAsked {
    /// Read everything, whatever the cursors say.
    full: bool,
    /// Only this key.
    only: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditAsked {
    /// Heal every class of drift but foreign and unproven.
    repair: bool,
}

#[derive(Debug, Deserialize)]
pub struct Scheduled {
    cron: String,
}

pub async fn all(State(house): State<Arc<House>>) -> Answer {
    answer::ok(&overview::all_knowing(&house.config, &house.memory, &house.ended).await?)
}

pub async fn one(State(house): State<Arc<House>>, Named(name): Named<String>) -> Answer {
    answer::ok(&overview::one(house.pipeline(&name)?, &house.memory).await?)
}

pub async fn pause(State(house): State<Arc<House>>, Named(name): Named<String>) -> Answer {
    let spec = house.pipeline(&name)?;
    pauses::pause(&house.memory.state, house.clock.as_ref(), &spec.name).await?;
    tracing::info!(pipeline = name, "paused");
    answer::ok(&overview::one(spec, &house.memory).await?)
}

pub async fn resume(State(house): State<Arc<House>>, Named(name): Named<String>) -> Answer {
    let spec = house.pipeline(&name)?;
    pauses::resume(&house.memory.state, &house.slots, spec).await?;
    tracing::info!(pipeline = name, "resumed");
    answer::ok(&overview::one(spec, &house.memory).await?)
}

pub async fn run(State(house): State<Arc<House>>, Named(name): Named<String>, body: Bytes) -> Answer {
    let ask = asked(&house, &name, &body, "api").await?;
    answer::ok(&Runs::of(vec![house.sync(&name, ask).await?]))
}

/// Answers at once; the end of the run is an event, and in the history.
pub async fn start(State(house): State<Arc<House>>, Named(name): Named<String>, body: Bytes) -> Answer {
    let ask = asked(&house, &name, &body, "api").await?;
    let spec = house.pipeline(&name)?;
    if house.memory.locks.is_taken(&spec.name).await {
        return Err(Error::new(Kind::Busy, format!("{name} is already running")).into());
    }
    let begun = json!({ "pipeline": name, "started": true });
    tokio::spawn(async move { house.sync(&name, ask).await });
    answer::with(StatusCode::ACCEPTED, &begun)
}

pub async fn plan(State(house): State<Arc<House>>, Named(name): Named<String>, body: Bytes) -> Answer {
    let ask = asked(&house, &name, &body, "plan").await?;
    let shared = house.clone();
    let plan = house
        .work(move || async move { operations::plan(shared.pipeline(&name)?, &shared.memory, &ask).await });
    answer::ok(&Plans::of(vec![plan.await?]))
}

pub async fn audit(State(house): State<Arc<House>>, Named(name): Named<String>, body: Bytes) -> Answer {
    let AuditAsked { repair } = answer::body(&body)?;
    house.pipeline(&name)?;
    let shared = house.clone();
    let audits = house.work(move || async move {
        let spec = shared.pipeline(&name)?;
        let ask = || repair.then(|| shared.ask("repair"));
        operations::audit(&[spec], &shared.memory, Budget::default(), ask).await
    });
    let audits = audits.await?;
    for run in audits.audits.iter().filter_map(|audit| audit.run.as_ref()) {
        house.ended(run);
    }
    answer::ok(&audits)
}

/// What a clock somewhere else calls: the pipelines an expression owns, run now.
pub async fn scheduled(State(house): State<Arc<House>>, Asked(asked): Asked<Scheduled>) -> Answer {
    let mut runs = Runs::of(Vec::new());
    let mut owned = false;
    for spec in house.config.pipelines.values().filter(|spec| spec.enabled) {
        if !Rhythm::of(spec)?.is_some_and(|rhythm| rhythm.is(&asked.cron)) {
            continue;
        }
        owned = true;
        match house.sync(&spec.name, house.ask(slots::TRIGGER)).await {
            Ok(report) => runs.runs.push(report),
            Err(error) => runs.not_started.push(NotStarted::of(spec, &error)),
        }
    }
    if !owned {
        return Err(Error::new(Kind::NotFound, format!("no pipeline has when = \"{}\"", asked.cron))
            .remedy_is("Write the expression as the config does, with + for a space.")
            .into());
    }
    if runs.runs.is_empty() {
        NotStarted::none_started(&runs.not_started)?;
    }
    answer::ok(&runs)
}

/// What is asked of a pipeline that is there, about a key that it knows.
async fn asked(house: &Arc<House>, name: &str, body: &[u8], trigger: &'static str) -> Result<Ask, No> {
    let RunAsked { full, only } = answer::body(body)?;
    house.pipeline(name)?;
    let ask = Ask { full, exports: full, only, ..house.ask(trigger) };
    if let Some(key) = ask.only.clone() {
        let (shared, name, stop) = (house.clone(), name.to_owned(), ask.stop.clone());
        let known = house.work(move || async move {
            look::is_known(&[shared.pipeline(&name)?], &shared.memory, &key, &stop).await
        });
        known.await?;
    }
    Ok(ask)
}
