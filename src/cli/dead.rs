//! `trueup dead`: follow-up work that was given up, and what to do about it.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::desk::Desk;
use super::output::{count, table};
use crate::config::Config;
use crate::error::{Kind, Result};
use crate::operations::follow;
use crate::pipeline::open::Memory;
use crate::queue::Placed;
use crate::queue::dead::{self, Letter};
use crate::store::Access;

#[derive(Args)]
pub struct Dead {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Args)]
struct Which {
    keys: Vec<String>,
    /// All of them
    #[arg(long)]
    all: bool,
}

impl From<Which> for follow::Which {
    fn from(which: Which) -> Self {
        follow::Which { keys: which.keys, all: which.all }
    }
}

#[derive(Subcommand)]
enum Verb {
    /// The dead letters
    Ls,
    /// Everything about the dead letters of a key
    Show { key: String },
    /// Put dead letters back into the queue and attempt them
    Retry(Which),
    /// Forget dead letters
    Drop(Which),
}

impl Dead {
    /// `trueup dead ls`.
    pub fn ls() -> Self {
        Dead { verb: Verb::Ls }
    }

    /// `trueup dead retry --all`.
    pub fn retry_all() -> Self {
        Dead { verb: Verb::Retry(Which { keys: Vec::new(), all: true }) }
    }

    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let access =
            if matches!(self.verb, Verb::Ls | Verb::Show { .. }) { Access::Read } else { Access::Write };
        let memory = desk.memory(&config, access).await?;
        let state = &memory.state;
        match self.verb {
            Verb::Ls => {
                let letters = dead::all(state).await?;
                let all: Vec<Value> = letters.iter().map(follow::letter).collect();
                desk.out.result(&json!({ "dead": all }), || text(&letters));
                Ok(0)
            }
            Verb::Show { key } => {
                let letters = dead::of(state, &[key]).await?;
                let all: Vec<Value> = letters.iter().map(follow::whole_letter).collect();
                desk.out.result(&json!({ "dead": all }), || {
                    serde_json::to_string_pretty(&all).unwrap_or_default()
                });
                Ok(0)
            }
            Verb::Retry(which) => retry(desk, &config, &memory, which.into()).await,
            Verb::Drop(which) => {
                let done = follow::drop_letters(&config, &memory, which.into()).await?;
                desk.out.result(&done, || format!("Dropped {}.", count(done.dropped as u64, "dead letter")));
                for error in &done.untold {
                    desk.out.note(&format!("The registry will be told by the next run: {error}"));
                }
                Ok(0)
            }
        }
    }
}

async fn retry(desk: &Desk, config: &Config, memory: &Memory, which: follow::Which) -> Result<u8> {
    let retried = follow::retry(config, memory, which, &desk.stop()).await?;
    let many = count(retried.retried as u64, "dead letter");
    desk.out
        .result(&retried, || format!("Retried {many}: {} done, {} failed.", retried.done, retried.failed));
    if retried.stopped {
        return Ok(Kind::Canceled.exit_code());
    }
    Ok(if retried.failed > 0 || retried.waits { 3 } else { 0 })
}

fn text(letters: &[Placed<Letter>]) -> String {
    if letters.is_empty() {
        return "No dead letters.".into();
    }
    let head = ["KEY", "PIPELINE", "THEN", "SINCE", "ATTEMPTS", "CAUSE"];
    let mut rows: Vec<Vec<String>> = vec![head.iter().map(ToString::to_string).collect()];
    for letter in letters {
        let Letter { task, cause, since } = &letter.what;
        let cells =
            [&task.key, &letter.pipeline, &letter.then, since, &task.attempts.to_string(), &cause.message];
        rows.push(cells.map(ToOwned::to_owned).to_vec());
    }
    table(&rows) + "`trueup dead retry KEY` tries again, `trueup dead drop KEY` forgets.\n"
}
