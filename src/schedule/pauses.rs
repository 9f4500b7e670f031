//! Schedules a person stopped for a while. A run that is asked for by name is none of its business.

use serde::{Deserialize, Serialize};

use super::{Rhythm, Slots};
use crate::clock::{Clock, rfc3339_ms};
use crate::config;
use crate::error::Result;
use crate::state::{State, keys};
use crate::store::Item;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pause {
    pub since: String,
}

pub async fn of(state: &State, pipeline: &str) -> Result<Option<Pause>> {
    state.read(&keys::pause(pipeline)).await
}

pub async fn pause(state: &State, clock: &dyn Clock, pipeline: &str) -> Result<()> {
    if of(state, pipeline).await?.is_some() {
        return Ok(());
    }
    state.put(&keys::pause(pipeline), &Pause { since: rfc3339_ms(clock.now()) }).await
}

/// Go on with the next slot: what came up during the pause was not wanted.
pub async fn resume(state: &State, slots: &Slots, spec: &config::Pipeline) -> Result<()> {
    if of(state, &spec.name).await?.is_none() {
        return Ok(());
    }
    if let Some(rhythm) = Rhythm::of(spec)? {
        slots.pass_over(&spec.name, &rhythm).await?;
    }
    state.commit(vec![Item::delete(keys::pause(&spec.name))]).await
}
