//! The workspaces of the config, each opened once, when it is first needed; and the loop that does their jobs and
//! forgets pages that are gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::House;
use crate::error::{Error, Kind, Result};
use crate::store::Access;
use crate::workspace::Workspace;

/// Between two looks for jobs: somebody waits for them.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks for analyses to be tried again, which are every page's.
const AGAIN_MS: u64 = 30_000;
/// A workspace whose store or pages are out of reach is left alone this long.
const REST_MS: u64 = 30_000;

/// Those that are open. One of each, so that people who ask for the same thing at once share the work.
#[derive(Default)]
pub struct Rooms(Mutex<HashMap<String, Arc<Workspace>>>);

impl House {
    pub async fn workspace(&self, name: &str) -> Result<Arc<Workspace>> {
        let Some(spec) = self.config.workspaces.get(name) else {
            let known: Vec<&str> = self.config.workspaces.keys().map(String::as_str).collect();
            return Err(Error::new(Kind::NotFound, format!("there is no workspace {name}"))
                .remedy_is(format!("Workspaces in the config: {}.", known.join(", "))));
        };
        let mut open = self.rooms.0.lock().await;
        if let Some(workspace) = open.get(name) {
            return Ok(workspace.clone());
        }
        let workspace = Arc::new(Workspace::open(spec, Access::Write, self.clock.clone()).await?);
        open.insert(name.to_owned(), workspace.clone());
        Ok(workspace)
    }
}

pub async fn keep(house: Arc<House>) {
    let mut resting: HashMap<String, u64> = HashMap::new();
    let mut looked = 0;
    while !house.config.workspaces.is_empty() && house.rest(LOOK_EVERY).await {
        let again = house.clock.elapsed_ms() >= looked + AGAIN_MS;
        looked = if again { house.clock.elapsed_ms() } else { looked };
        for name in house.config.workspaces.keys() {
            if resting.get(name).is_some_and(|until| *until > house.clock.elapsed_ms()) {
                continue;
            }
            if let Err(error) = look_after(&house, name, again).await {
                tracing::warn!(workspace = name, kind = error.kind().name(), "workspace: {error}");
                resting.insert(name.clone(), house.clock.elapsed_ms() + REST_MS);
            }
        }
    }
}

/// Jobs that wait, one after the other, and the purge when it is due; now and then, analyses that failed.
async fn look_after(house: &Arc<House>, name: &str, again: bool) -> Result<()> {
    let workspace = house.workspace(name).await?;
    let shared = house.clone();
    house
        .work(move || async move {
            while let Some(job) = workspace.work_one().await? {
                tracing::info!(workspace = workspace.name, job = job.id, "job ended");
                if shared.is_stopping() {
                    return Ok(());
                }
            }
            workspace.purge(false).await?;
            if again { workspace.analyze_all_again().await } else { Ok(()) }
        })
        .await
}
