//! The start of a run: its id, and the first thing state learns of it. Also of one that came no further, because what the
//! config names could not be opened: it failed, and whoever asks how things stand must hear so.

use super::open::Memory;
use super::{Pipeline, footing};
use crate::clock::{SharedClock, rfc3339_ms};
use crate::error::{Error, Kind, Result};
use crate::state::{Report, State, Status, item, keys, retention};
use crate::store::{Expect, Item};

/// Pipelines that begin at one instant, on as many machines: each lost round means that another began.
const STARTS_MAX: u32 = 100;

impl Pipeline {
    pub(super) async fn begin(&self, trigger: &str) -> Result<Report> {
        let start = |id, now| {
            let mut report = Report::start(id, &self.name, trigger, now);
            report.store = Some(self.place.name.clone());
            report
        };
        begin((&self.state, &self.clock), start, Some(footing::taken_away(self))).await
    }
}

/// Write down that a run failed before it could begin. One that was cut off is left for the next start to find, and one
/// that goes on elsewhere is none of our business.
pub async fn failed(memory: &Memory, pipeline: &str, trigger: &str, error: &Error) -> Result<()> {
    let last: Option<String> = memory.state.read(&keys::last(pipeline)).await?;
    if let Some(last) = last
        && let Some(last) = memory.state.read::<Report>(&keys::run(&last)).await?
        && last.status == Status::Running
    {
        return Ok(());
    }
    let fail = async |_: &State, report: &mut Report| {
        report.fail(error);
        Ok(())
    };
    noted(memory, pipeline, trigger, fail).await.map(drop)
}

/// A run of which nothing is needed but the state.
pub(super) async fn noted(
    memory: &Memory,
    pipeline: &str,
    trigger: &str,
    work: impl AsyncFnOnce(&State, &mut Report) -> Result<()>,
) -> Result<Report> {
    let lock = memory.locks.acquire(pipeline).await?;
    let state = memory.state.fenced(lock.fence());
    let note = Box::pin(async {
        let start = |id, now| Report::start(id, pipeline, trigger, now);
        let mut report = begin((&state, &memory.clock), start, None).await?;
        if let Err(error) = work(&state, &mut report).await {
            report.fail(&error);
        }
        report.conclude();
        report.finished = Some(rfc3339_ms(memory.clock.now()));
        state.put(&keys::run(&report.id), &report).await?;
        Ok(report)
    });
    let noted = lock.guard(note).await;
    lock.release().await;
    noted
}

async fn begin(
    (state, clock): (&State, &SharedClock),
    start: impl Fn(String, String) -> Report,
    beside: Option<Item>,
) -> Result<Report> {
    for _ in 0..STARTS_MAX {
        let newest = state.read_versioned::<String>(keys::NEWEST_RUN).await?;
        let (newest, expect) = match newest {
            Some((run, version)) => (Some(run), Expect::Exactly(version)),
            None => (None, Expect::Absent),
        };
        let chance = u128::from(clock.random()) << 64 | u128::from(clock.random());
        let id = retention::run_id_after(newest.as_deref(), clock.now(), chance)?;
        let report = start(id, rfc3339_ms(clock.now()));
        let mut items = vec![
            item(keys::run(&report.id), &report)?.expecting(Expect::Absent),
            item(keys::last(&report.pipeline), &report.id)?,
            item(keys::NEWEST_RUN, &report.id)?.expecting(expect),
        ];
        items.extend(beside.clone());
        // Another pipeline that began at the same instant must not get the same id. It may have made the same one:
        // then the newest run is already so, and only the run itself tells.
        if state.commit_if(items).await? {
            return Ok(report);
        }
    }
    Err(Error::new(Kind::Throttled, "other pipelines keep starting at the same instant"))
}
