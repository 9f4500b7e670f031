//! How much follow-up work there is, by keys alone.

use std::collections::BTreeMap;

use serde::Serialize;

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

/// What waits for a pipeline that is no longer in the config, and that nobody will look after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeftBehind {
    pub pipeline: String,
    pub queue: u64,
    pub dead: u64,
    pub held: u64,
}

impl LeftBehind {
    /// For people, with what to do about it.
    pub fn told(&self) -> String {
        let LeftBehind { pipeline, queue, dead, held } = self;
        let mut what = Vec::new();
        if *queue > 0 {
            what.push(format!("{queue} in its queue (`trueup queue ls`)"));
        }
        if *dead > 0 {
            what.push(format!("{dead} dead letters (`trueup dead ls`)"));
        }
        if *held > 0 {
            what.push("a held plan (`trueup held`)".to_owned());
        }
        format!("{pipeline} is not in the config and left behind: {}", what.join(", "))
    }
}

/// Of pipelines that are not among those known. Those that are known cost a look each, whatever waits for them.
pub async fn left_behind(state: &State, is_known: impl Fn(&str) -> bool) -> Result<Vec<LeftBehind>> {
    let mut found: BTreeMap<String, LeftBehind> = BTreeMap::new();
    for prefix in [keys::QUEUE, keys::DEAD, keys::HELD] {
        let mut after: Option<String> = None;
        loop {
            let query = Query { after: after.as_deref(), limit: 1, ..Query::keys(prefix) };
            let Some(line) = state.store().list(query).await?.items.pop() else { break };
            let pipeline = keys::below(prefix, &line.key).split('/').next().unwrap_or_default();
            if !is_known(pipeline) {
                let one = found.entry(pipeline.to_owned()).or_default();
                pipeline.clone_into(&mut one.pipeline);
                let count = match prefix {
                    keys::QUEUE => &mut one.queue,
                    keys::DEAD => &mut one.dead,
                    _ => &mut one.held,
                };
                *count = depth(state, &format!("{prefix}{pipeline}/")).await?.total();
            }
            // Behind everything of this one.
            after = Some(format!("{prefix}{pipeline}/{}", char::MAX));
        }
    }
    Ok(found.into_values().collect())
}
