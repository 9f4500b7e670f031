//! `trueup queue`: follow-up work that waits.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::desk::Desk;
use super::output::table;
use crate::config::{Config, values};
use crate::error::{Error, Kind, Result};
use crate::operations::follow;
use crate::pipeline::open::Memory;
use crate::queue::outside::{self, Filter};
use crate::queue::{self, Placed, Task};
use crate::store::Access;

/// How long a taken item is its taker's, unless they say otherwise.
const LEASE: &str = "5m";

#[derive(Args)]
pub struct Queue {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Args)]
struct Which {
    /// Only of this pipeline
    #[arg(long)]
    pipeline: Option<String>,
    /// Only this follow-up, as `queue ls` names it
    #[arg(long)]
    then: Option<String>,
}

#[derive(Subcommand)]
enum Verb {
    /// What waits
    Ls,
    /// Attempt every open item once, whatever its back-off, and return
    Work { pipelines: Vec<String> },
    /// Take items under a lease, to do the work yourself
    Take {
        #[command(flatten)]
        which: Which,
        /// At most this many
        #[arg(long, default_value_t = 1)]
        limit: usize,
        /// How long they are yours
        #[arg(long, default_value = LEASE)]
        lease: String,
    },
    /// The work of a taken item is done
    Done {
        key: String,
        #[command(flatten)]
        which: Which,
        /// The token `take` gave with it
        #[arg(long)]
        token: Option<u64>,
    },
    /// The work of a taken item failed
    Fail {
        key: String,
        #[command(flatten)]
        which: Which,
        #[arg(long)]
        token: Option<u64>,
        /// Why
        #[arg(long, default_value = "failed")]
        error: String,
    },
}

impl Queue {
    /// `trueup queue ls`.
    pub fn ls() -> Self {
        Queue { verb: Verb::Ls }
    }

    /// `trueup queue take`.
    pub fn take() -> Self {
        let which = Which { pipeline: None, then: None };
        Queue { verb: Verb::Take { which, limit: 1, lease: LEASE.to_owned() } }
    }

    /// `trueup queue done KEY`.
    pub fn done(key: &str) -> Self {
        let which = Which { pipeline: None, then: None };
        Queue { verb: Verb::Done { key: key.to_owned(), which, token: None } }
    }

    /// `trueup queue work`.
    pub fn work() -> Self {
        Queue { verb: Verb::Work { pipelines: Vec::new() } }
    }

    pub async fn run(self, desk: &Desk) -> Result<u8> {
        match self.verb {
            Verb::Ls => ls(desk).await,
            Verb::Work { pipelines } => work(desk, &pipelines).await,
            Verb::Take { which, limit, lease } => take(desk, which, limit, &lease).await,
            Verb::Done { key, which, token } => done(desk, &filter(which, Some(key)), token).await,
            Verb::Fail { key, which, token, error } => {
                fail(desk, &filter(which, Some(key)), token, &error).await
            }
        }
    }
}

fn filter(which: Which, key: Option<String>) -> Filter {
    Filter { pipeline: which.pipeline, then: which.then, key }
}

async fn ls(desk: &Desk) -> Result<u8> {
    let config = desk.config()?;
    let state = desk.memory(&config, Access::Read).await?.state;
    let waiting = queue::waiting(&state).await?;
    let all: Vec<Value> = waiting.iter().map(follow::task).collect();
    desk.out.result(&json!({ "queue": all }), || text(&waiting));
    Ok(0)
}

fn text(waiting: &[Placed<Task>]) -> String {
    if waiting.is_empty() {
        return "Nothing waits.".into();
    }
    let head = ["KEY", "PIPELINE", "THEN", "STATE", "ATTEMPTS", "ERROR"];
    let mut rows: Vec<Vec<String>> = vec![head.iter().map(ToString::to_string).collect()];
    for one in waiting {
        let task = &one.what;
        let error = task.error.as_ref().map(|fault| fault.message.clone()).unwrap_or_default();
        rows.push(vec![
            task.key.clone(),
            one.pipeline.clone(),
            one.then.clone(),
            task.state().into(),
            task.attempts.to_string(),
            error,
        ]);
    }
    table(&rows)
}

async fn done(desk: &Desk, filter: &Filter, token: Option<u64>) -> Result<u8> {
    let config = desk.config()?;
    let memory = desk.memory(&config, Access::Write).await?;
    let done = outside::done(&memory.state, filter, token).await?;
    desk.out.result(&follow::task(&done), || format!("{} is done.", done.what.key));
    tell(desk, &config, &memory, &done.pipeline).await;
    Ok(0)
}

async fn fail(desk: &Desk, filter: &Filter, token: Option<u64>, why: &str) -> Result<u8> {
    let config = desk.config()?;
    let memory = desk.memory(&config, Access::Write).await?;
    let failed = outside::fail(&memory.state, desk.clock.as_ref(), filter, token, why).await?;
    let text = format!("{} failed {} times.", failed.what.key, failed.what.attempts);
    desk.out.result(&follow::task(&failed), || text);
    tell(desk, &config, &memory, &failed.pipeline).await;
    Ok(0)
}

/// What was settled is settled; a registry that cannot be told now is told by the next run.
async fn tell(desk: &Desk, config: &Config, memory: &Memory, pipeline: &str) {
    if let Err(error) = follow::refresh(config, memory, pipeline).await {
        desk.out.note(&format!("The registry will be told by the next run: {error}"));
    }
}

/// Work on the queues of these pipelines, or of all.
async fn work(desk: &Desk, names: &[String]) -> Result<u8> {
    let config = desk.config()?;
    let memory = desk.memory(&config, Access::Write).await?;
    let summary = follow::attempt(&config, &memory, names, &desk.stop()).await?;
    desk.out.result(&summary, || {
        let rest = if summary.stopped { "; the rest waits" } else { "" };
        format!("{} done, {} failed, {} new dead letters{rest}", summary.done, summary.failed, summary.dead)
    });
    super::sync::note_left_behind(desk, &config, &memory).await;
    for fault in &summary.paused {
        desk.out.note(&format!("{} waits: {}", fault.scope.as_deref().unwrap_or_default(), fault.message));
    }
    if summary.stopped {
        return Ok(Kind::Canceled.exit_code());
    }
    Ok(if summary.dead > 0 || summary.failed > 0 || !summary.paused.is_empty() { 3 } else { 0 })
}

async fn take(desk: &Desk, which: Which, limit: usize, lease: &str) -> Result<u8> {
    let lease: Duration = values::duration(lease).ok_or_else(|| {
        Error::new(Kind::Config, format!("--lease {lease} is no duration")).remedy_is("For example 5m.")
    })?;
    let config = desk.config()?;
    let state = desk.memory(&config, Access::Write).await?.state;
    let taken = outside::take(&state, desk.clock.as_ref(), &filter(which, None), limit, lease).await?;
    let all: Vec<Value> = taken.iter().map(follow::task).collect();
    desk.out.result(&json!({ "queue": all }), || text(&taken));
    Ok(0)
}
