//! Runs what is due. A slot is claimed before its run starts and finished after it; what was claimed and not finished
//! is taken up again, here or by another process.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::House;
use super::house::Seat;
use crate::error::{Error, Kind, Result};
use crate::schedule::agenda::Due;
use crate::schedule::slots::{self, BEAT};
use crate::schedule::{Agenda, Claim, Rhythm, pauses};
use crate::state::Status;

/// The clock is looked at this often at least: it may be set, and machines sleep.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A slot that could not be claimed is tried again after this.
const AGAIN_EVERY: Duration = Duration::from_secs(2);
/// Leases and unfinished slots are looked at this often: a dead runner is replaced a lease's time and two looks later.
/// That leaves 4 of the 10 s promised to machines that are busy.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// What is to come, and what was missed. From here on every slot is known to have been seen.
pub async fn open(house: &House) -> Result<Agenda> {
    let mut rhythms = Vec::new();
    for spec in house.config.pipelines.values().filter(|spec| spec.enabled) {
        rhythms.extend(Rhythm::of(spec)?.map(|rhythm| (spec, rhythm)));
    }
    let now = house.clock.now();
    let named: Vec<(&str, &Rhythm)> =
        rhythms.iter().map(|(spec, rhythm)| (spec.name.as_str(), rhythm)).collect();
    let since = house.slots.since(&named).await?;
    let mut agenda = Agenda::default();
    for ((spec, rhythm), since) in rhythms.into_iter().zip(since) {
        agenda.enter(&spec.name, rhythm, if spec.catch_up { since } else { now }, now);
    }
    Ok(agenda)
}

pub async fn keep(house: Arc<House>, mut agenda: Agenda) {
    let mut swept = None;
    loop {
        let now = house.clock.now();
        for due in agenda.due(now) {
            tokio::spawn(start(house.clone(), due));
        }
        let elapsed = || Duration::from_millis(house.clock.elapsed_ms());
        if swept.is_none_or(|at| elapsed().saturating_sub(at) >= SWEEP_EVERY) {
            sweep(&house).await;
            swept = Some(elapsed());
        }
        let to_sweep = SWEEP_EVERY.saturating_sub(elapsed().saturating_sub(swept.unwrap_or_default()));
        if !house.rest(until(agenda.wakes(), now).min(to_sweep)).await {
            return;
        }
    }
}

fn until(wakes: Option<Timestamp>, now: Timestamp) -> Duration {
    let wait = wakes.map_or(i64::MAX, |at| at.as_millisecond().saturating_sub(now.as_millisecond()));
    Duration::from_millis(u64::try_from(wait).unwrap_or(0)).min(LOOK_EVERY)
}

/// Run a slot that has come up, unless it is paused or somebody else's. While the state is away the slot waits for it, until
/// the next one is due.
async fn start(house: Arc<House>, due: Due) {
    loop {
        // A slot is claimed when it can be run at once: until then any other process may have it.
        let Ok(seat) = house.seats.clone().acquire_owned().await else { return };
        match claim(&house, &due).await {
            Ok(Some(claim)) => return run(&house, claim, seat).await,
            Ok(None) => return,
            Err(error) => {
                house.not_started(&due.pipeline, &error);
                if !is_passing(&error) || is_overtaken(&house, &due) {
                    return;
                }
            }
        }
        drop(seat);
        if !house.rest(AGAIN_EVERY).await {
            return;
        }
    }
}

async fn claim(house: &House, due: &Due) -> Result<Option<Claim>> {
    let Some(rhythm) = Rhythm::of(house.pipeline(&due.pipeline)?)? else { return Ok(None) };
    if pauses::of(&house.memory.state, &due.pipeline).await?.is_some() {
        tracing::info!(pipeline = due.pipeline, slot = %due.slot, "paused: slot passed over");
        return Ok(None);
    }
    house.slots.claim(&due.pipeline, &rhythm, due.slot).await
}

fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unavailable | Kind::Throttled)
}

/// The slot after it has come up, and runs what this one would have.
fn is_overtaken(house: &House, due: &Due) -> bool {
    let rhythm = house.pipeline(&due.pipeline).and_then(Rhythm::of).ok().flatten();
    rhythm.is_none_or(|rhythm| rhythm.next(due.slot).is_some_and(|next| next <= house.clock.now()))
}

async fn run(house: &Arc<House>, mut claim: Claim, seat: Seat) {
    tracing::info!(pipeline = claim.pipeline, slot = %claim.slot, "due");
    let pipeline = claim.pipeline.clone();
    let running = house.sync_seated(&pipeline, house.ask(slots::TRIGGER), seat);
    let mut running = std::pin::pin!(running);
    let ran = loop {
        tokio::select! {
            ran = &mut running => break ran,
            () = house.clock.sleep(BEAT) => match house.slots.beat(&mut claim).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(pipeline, "the slot was taken over by another process"),
                Err(error) => tracing::warn!(pipeline, "the slot cannot be kept: {error}"),
            },
        }
    };
    let unfinished = match &ran {
        Ok(report) => report.status == Status::Canceled,
        Err(error) => matches!(error.kind(), Kind::Busy | Kind::Canceled),
    };
    let settled =
        if unfinished { house.slots.hand_back(&claim).await } else { house.slots.finish(&claim).await };
    if let Err(error) = settled {
        tracing::error!(pipeline = claim.pipeline, "the slot cannot be written down: {error}");
    }
}

/// Slots whose runner died, or who could not run because somebody else did. It waits for nobody: slots of other
/// pipelines may be due. That a runner is dead is known from looking at its lease again and again.
async fn sweep(house: &Arc<House>) {
    let swept = async {
        house.memory.locks.clear().await?;
        let open = house.slots.unfinished().await?;
        if open.is_empty() {
            return Ok(());
        }
        let free = house.memory.locks.free(&open.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        for (name, _) in open.into_iter().zip(free).filter(|(_, free)| *free) {
            let Some(spec) = house.config.pipelines.get(&name).filter(|spec| spec.enabled) else { continue };
            let Some(rhythm) = Rhythm::of(spec)? else { continue };
            if pauses::of(&house.memory.state, &name).await?.is_some() {
                continue;
            }
            let Ok(seat) = house.seats.clone().try_acquire_owned() else { return Ok(()) };
            if let Some(claim) = house.slots.reclaim(&name, &rhythm, &house.memory.locks).await? {
                let house = house.clone();
                tokio::spawn(async move { run(&house, claim, seat).await });
            }
        }
        Ok(())
    };
    let outcome: Result<()> = swept.await;
    if let Err(error) = outcome {
        tracing::error!("the schedule cannot be read: {error}");
    }
}
