//! Follow-up work, done when it is due: unlike `trueup queue work`, a server waits out each item's back-off.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::House;
use crate::error::Result;
use crate::pipeline::notify::Notifier;
use crate::pipeline::open;
use crate::queue::{self, Summary};
use crate::registry;
use crate::store::Access;

/// Between two looks at the queue: a first retry comes seconds after a failure.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Another side that is out of reach is left alone this long.
const REST_MS: u64 = 30_000;

pub async fn keep(house: Arc<House>) {
    // When each pipeline's queue may be worked on again, on the clock that only grows.
    let mut resting: HashMap<String, u64> = HashMap::new();
    while house.rest(LOOK_EVERY).await {
        for (name, spec) in &house.config.pipelines {
            if resting.get(name).is_some_and(|until| *until > house.clock.elapsed_ms()) {
                continue;
            }
            let worked = async {
                let (names, now) = (open::worked_on(spec, &house.memory), house.clock.now());
                if !spec.enabled || !queue::is_any_due(&house.memory.state, name, &names, now).await? {
                    return Ok(None);
                }
                work(&house, name).await.map(Some)
            };
            match worked.await {
                Ok(None) => {}
                Ok(Some(summary)) if summary.paused.is_empty() => {}
                Ok(Some(summary)) => {
                    for fault in summary.paused {
                        tracing::warn!(
                            pipeline = name,
                            scope = fault.scope,
                            "follow-up waits: {}",
                            fault.message
                        );
                    }
                    resting.insert(name.clone(), house.clock.elapsed_ms() + REST_MS);
                }
                Err(error) => {
                    tracing::warn!(pipeline = name, kind = error.kind().name(), "follow-up: {error}");
                    resting.insert(name.clone(), house.clock.elapsed_ms() + REST_MS);
                }
            }
        }
    }
}

async fn work(house: &Arc<House>, name: &str) -> Result<Summary> {
    let (shared, name) = (house.clone(), name.to_owned());
    house
        .work(move || async move {
            let mut summary = match Notifier::of(shared.pipeline(&name)?, &shared.memory) {
                Some(notifier) => notifier.deliver(true).await?,
                None => Summary::default(),
            };
            let line = registry::open(shared.pipeline(&name)?, &shared.memory, Access::Write).await?;
            let worker = queue::Worker { stop: shared.stop().flag(), ..line.worker() };
            summary.add(worker.due().await?);
            if summary != Summary::default() {
                line.refresh_records().await?;
                tracing::info!(
                    pipeline = name,
                    done = summary.done,
                    failed = summary.failed,
                    dead = summary.dead,
                    "follow-up worked on"
                );
            }
            Ok(summary)
        })
        .await
}
