//! `trueup dead`: follow-up work that was given up, and what to do about it.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::desk::Desk;
use super::output::{count, table};
use crate::error::{Error, Kind, Result};
use crate::queue::dead::{self, Letter};
use crate::queue::{Placed, Summary};
use crate::state::State;
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
        let state = desk.memory(&config, access).await?.state;
        match self.verb {
            Verb::Ls => {
                let letters = dead::all(&state).await?;
                let all: Vec<Value> = letters.iter().map(shown).collect();
                desk.out.result(&json!({ "dead": all }), || text(&letters));
                Ok(0)
            }
            Verb::Show { key } => {
                let letters = dead::of(&state, &[key]).await?;
                let all: Vec<Value> = letters.iter().map(whole).collect();
                desk.out.result(&json!({ "dead": all }), || {
                    serde_json::to_string_pretty(&all).unwrap_or_default()
                });
                Ok(0)
            }
            Verb::Retry(which) => retry(desk, &state, which).await,
            Verb::Drop(which) => {
                let letters = chosen(&state, which).await?;
                dead::drop_letters(&state, &letters).await?;
                let text = format!("Dropped {}.", count(letters.len() as u64, "dead letter"));
                desk.out.result(&json!({ "dropped": letters.len() }), || text);
                Ok(0)
            }
        }
    }
}

async fn retry(desk: &Desk, state: &State, which: Which) -> Result<u8> {
    let letters = chosen(state, which).await?;
    dead::retry(state, &letters).await?;
    let mut names: Vec<String> = letters.iter().map(|letter| letter.pipeline.clone()).collect();
    names.dedup();
    let summary =
        if names.is_empty() { Summary::default() } else { super::queue::attempt(desk, &names).await? };
    let many = count(letters.len() as u64, "dead letter");
    desk.out
        .result(&json!({ "retried": letters.len(), "done": summary.done, "failed": summary.failed }), || {
            format!("Retried {many}: {} done, {} failed.", summary.done, summary.failed)
        });
    Ok(if summary.failed > 0 || !summary.paused.is_empty() { 3 } else { 0 })
}

async fn chosen(state: &State, which: Which) -> Result<Vec<Placed<Letter>>> {
    match (which.all, which.keys.is_empty()) {
        (true, true) => dead::all(state).await,
        (false, false) => dead::of(state, &which.keys).await,
        _ => {
            Err(Error::new(Kind::Config, "name keys, or say --all")
                .remedy_is("`trueup dead ls` lists the keys."))
        }
    }
}

fn shown(letter: &Placed<Letter>) -> Value {
    let Letter { task, cause, since } = &letter.what;
    json!({
        "key": task.key,
        "pipeline": letter.pipeline,
        "then": letter.then,
        "kind": cause.kind,
        "message": cause.message,
        "remedy": cause.remedy,
        "attempts": task.attempts,
        "since": since,
    })
}

fn whole(letter: &Placed<Letter>) -> Value {
    let mut value = shown(letter);
    let task = &letter.what.task;
    value["change"] = json!(task.change);
    value["sha256"] = json!(task.bytes);
    value["run"] = json!(task.write.run);
    value["created"] = json!(task.created);
    value
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
