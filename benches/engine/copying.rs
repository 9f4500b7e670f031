//! Passes that write: a first sync and one that updates everything, with the journal and without.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trueup::pipeline::Pipeline;
use trueup::state::State;

use super::generated::Generated;
use super::line;
use super::unjournaled::Unjournaled;
use crate::harness::{Outcome, timed};

pub fn first(folder: &Path, size: usize) -> Outcome<Duration> {
    sync(folder, size, 1, true)
}

/// In a folder that had its first sync.
pub fn update(folder: &Path, size: usize) -> Outcome<Duration> {
    sync(folder, size, 2, true)
}

pub fn first_unjournaled(folder: &Path, size: usize) -> Outcome<Duration> {
    sync(folder, size, 1, false)
}

pub fn update_unjournaled(folder: &Path, size: usize) -> Outcome<Duration> {
    sync(folder, size, 2, false)
}

fn sync(folder: &Path, count: usize, generation: u32, journal: bool) -> Outcome<Duration> {
    let runtime = line::runtime()?;
    let source = Arc::new(Generated { count, generation });
    let mut pipeline = runtime.block_on(line::open_from(folder, source))?;
    if !journal {
        let state = Arc::new(Unjournaled(pipeline.state.store().clone()));
        pipeline = Pipeline { state: runtime.block_on(State::open(state))?, ..pipeline };
    }
    let ((), took) = timed(|| runtime.block_on(line::pass(&pipeline, count)))?;
    Ok(took)
}
