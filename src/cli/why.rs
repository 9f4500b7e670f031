//! `trueup why KEY`: one page about one key.

use std::fmt::Write as _;

use clap::Args;

use super::desk::Desk;
use super::output::{Color, Output};
use crate::config::Pipeline;
use crate::error::{Error, Kind, Result};
use crate::pipeline::open::Memory;
use crate::pipeline::why::{Story, Waiting};
use crate::store::Access;

#[derive(Args)]
pub struct Why {
    pub key: String,
}

impl Why {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let memory = desk.memory(&config, Access::Read).await?;
        let mut near = Vec::new();
        let mut story = None;
        let mut unknown: Option<Error> = None;
        for spec in config.pipelines.values() {
            match self.ask(desk, spec, &memory, &mut near).await {
                // Several may know the key; whoever wrote it tells.
                Ok(Some(told)) => {
                    let owner = told.source.is_some();
                    story = if owner { Some(told) } else { story.or(Some(told)) };
                    if owner {
                        break;
                    }
                }
                Ok(None) => {}
                // A pipeline that cannot be reached may well be the one that knows.
                Err(error) => _ = unknown.get_or_insert(error),
            }
        }
        if let Some(story) = story {
            desk.out.result(&story, || text(&desk.out, &story));
            return Ok(0);
        }
        if let Some(error) = unknown {
            return Err(error);
        }
        let error = Error::new(Kind::NotFound, format!("no pipeline knows the key {}", self.key));
        Err(if near.is_empty() {
            error
                .remedy_is("`trueup sync` has not written it; `trueup kv ls STORE` shows what a store holds.")
        } else {
            error.remedy_is(format!("The nearest keys: {}.", near.join(", ")))
        })
    }

    async fn ask(
        &self,
        desk: &Desk,
        spec: &Pipeline,
        memory: &Memory,
        near: &mut Vec<String>,
    ) -> Result<Option<Story>> {
        let line = desk.open(spec, memory, Access::Read).await?;
        let story = line.why(&self.key).await?;
        if story.is_none() {
            near.extend(line.near(&self.key).await?);
        }
        Ok(story)
    }
}

fn text(out: &Output, story: &Story) -> String {
    let mut page = format!("{}\n", out.paint(Color::Bold, &story.key));
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(page, "  {name:<12} {value}");
    };
    line("pipeline", &story.pipeline);
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
