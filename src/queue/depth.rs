//! How much follow-up work there is, by keys alone.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::state::{State, keys};
use crate::store::Query;

/// Keys counted at most: beyond that the number does not matter, and counting would take long.
const COUNTED_MAX: u64 = 10_000;

/// How much there is, by pipeline.
#[derive(Debug, Default)]
pub struct Depth {
    by: BTreeMap<String, u64>,
    more: bool,
}

impl Depth {
    pub fn of(&self, pipeline: &str) -> u64 {
        self.by.get(pipeline).copied().unwrap_or(0)
    }

    pub fn total(&self) -> u64 {
        self.by.values().sum()
    }

    /// `10000+` when there is more than was counted.
    pub fn shown(&self) -> String {
        format!("{}{}", self.total(), if self.more { "+" } else { "" })
    }
}

/// How much follow-up work waits.
pub async fn of_queue(state: &State) -> Result<Depth> {
    depth(state, keys::QUEUE).await
}

/// How much was given up.
pub async fn of_dead(state: &State) -> Result<Depth> {
    depth(state, keys::DEAD).await
}

/// By keys alone: no task is read.
async fn depth(state: &State, prefix: &str) -> Result<Depth> {
    let mut depth = Depth::default();
    let mut after: Option<String> = None;
    loop {
        let page = state.store().list(Query { after: after.as_deref(), ..Query::keys(prefix) }).await?;
        for line in &page.items {
            let pipeline = keys::below(prefix, &line.key).split('/').next().unwrap_or_default();
            *depth.by.entry(pipeline.to_owned()).or_default() += 1;
        }
        depth.more = page.more;
        if !page.more || depth.total() >= COUNTED_MAX {
            return Ok(depth);
        }
        after = page.items.last().map(|line| line.key.clone());
    }
}
