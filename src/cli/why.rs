//! `trueup why KEY`: one page about one key.

use std::fmt::Write as _;

use clap::Args;

use super::desk::Desk;
use super::output::{Color, Output, named};
use crate::error::Result;
use crate::operations::look;
use crate::pipeline::why::{Story, Waiting};
use crate::store::Access;

#[derive(Args)]
pub struct Why {
    pub key: String,
    /// As this pipeline tells it, where several know the key
    #[arg(long, value_name = "P")]
    pub pipeline: Option<String>,
}

impl Why {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let memory = desk.memory(&config, Access::Read).await?;
        let story = look::why(&config, &memory, &self.key, self.pipeline.as_deref()).await?;
        desk.out.result(&story, || text(&desk.out, &story));
        Ok(0)
    }
}

fn text(out: &Output, story: &Story) -> String {
    let mut page = format!("{}\n", out.paint(Color::Bold, &named(&story.key)));
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(page, "  {name:<12} {value}");
    };
    line("pipeline", &story.pipeline);
    if !story.also.is_empty() {
        line("also", &format!("{} (`--pipeline NAME` tells of each)", story.also.join(", ")));
    }
    line("store", &story.store);
    line("version", story.version.as_ref().map_or("not in the store", |version| &version.0));
    if let Some(print) = &story.fingerprint {
        line("fingerprint", &print.to_string());
    }
    if let Some(source) = &story.source {
        line("source", &source.name);
        line("body version", &source.version);
        line("seen", source.seen.as_deref().unwrap_or("?"));
        line("shape", &source.shape);
    }
    if let Some(held) = &story.held {
        line("held", &format!("{} ({})", held.change.name(), held.rule));
    }
    if let Some(decision) = &story.decision {
        line("decided", &format!("{} in run {}", decision.verdict.name(), decision.run));
    }
    if let Some(drift) = story.drift {
        line("drift", drift);
    }
    for waiting in story.queue.iter().chain(&story.dead) {
        line("follow-up", &follow_up(waiting));
    }
    for trouble in &story.errors {
        line("error", &format!("{} (run {})", trouble.fault.message, trouble.run));
    }
    page.push_str("  history\n");
    for event in &story.history {
        let at = event.at.as_deref().unwrap_or("?");
        let _ = writeln!(page, "    {at}  {:<6}  {}  run {}", event.change.name(), event.outcome, event.run);
    }
    if story.history.is_empty() {
        page.push_str("    nothing kept\n");
    }
    page
}

fn follow_up(waiting: &Waiting) -> String {
    let error = waiting.error.as_ref().map(|fault| format!(": {}", fault.message)).unwrap_or_default();
    format!("{} {} after {} attempts{error}", waiting.then, waiting.state, waiting.attempts)
}
