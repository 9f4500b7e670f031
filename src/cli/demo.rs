//! `trueup demo`: the story in under a minute, told by the real commands on small local sources. Nothing is staged:
//! what is printed is what the engine answered.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::desk::Desk;
use super::output::{Color, Output};
use super::serve::Serve;
use super::sync::Sync;
use super::{dead, decide, kv, page, plan, queue, undo, why};
use crate::error::{Error, Result, from_io};
use crate::pipeline::open::Memory;
use crate::server;
use crate::state::{Report, keys};
use crate::store::Access;

mod archive;
mod loopback;
mod registry;
mod tables;
mod workspace;

const CONFIG: &str = r#"# What `trueup demo` runs: a folder of policies, kept in an embedded store and exported to a folder of objects.
[stores]
registry = "sqlite:.trueup/registry.db"
objects  = "file:objects"

[pipelines.policies]
from  = { files = "policies" }
into  = "registry"
then  = [{ export = "objects" }, { command = ["sh", "-c", "test ! -e broken"] }]
guard = { max_delete = "30%", above = 10 }
"#;

/// Pipelines that are only there for the page.
const MORE: &str = r#"
[pipelines.handbook]
from = { files = "handbook" }
into = "sqlite:.trueup/handbook.db"
when = "0 16 * * *"

[pipelines.notices]
from = { files = "notices" }
into = "sqlite:.trueup/notices.db"
"#;

struct Story<'d> {
    desk: Desk,
    folder: PathBuf,
    steps: Vec<serde_json::Value>,
    out: &'d Output,
}

/// What `trueup demo` takes.
#[derive(Args)]
pub struct Demo {
    /// Go on as a server when the story is told, with its page on what the story left behind
    #[arg(long)]
    serve: bool,
    /// Where `--serve` listens. Port 0 takes a free one
    #[arg(long, default_value = server::LISTEN, value_name = "HOST:PORT", requires = "serve")]
    listen: String,
}

impl Demo {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let folder = tempfile::Builder::new()
            .prefix("trueup-demo-")
            .tempdir()
            .map_err(|e| from_io(e, "making a folder"))?;
        let at = folder.path().to_owned();
        // With --json the story is one document at the end; the commands themselves stay silent.
        let shown = Output { json: false, quiet: true, ..desk.out };
        let config = at.join("trueup.toml");
        let desk_there = Desk { config: config.clone(), out: shown, clock: desk.clock.clone() };
        let mut story = Story { desk: desk_there, folder: at, steps: Vec::new(), out: &desk.out };
        let outcome = story.tell().await;
        if desk.out.json {
            desk.out.json(&json!({ "demo": story.steps }));
        }
        outcome?;
        if !self.serve {
            return Ok(0);
        }
        story.prepare_page()?;
        story.say("The page shows what is left: 30 deletes that wait for a person. Ctrl-C ends it.");
        let desk = Desk { config, out: desk.out, clock: desk.clock.clone() };
        Serve::on(self.listen).run(&desk).await
    }
}

impl Story<'_> {
    async fn tell(&mut self) -> Result<()> {
        self.setting()?;
        self.say("A folder of 40 policies is the truth. First a look: `plan` writes nothing.");
        self.step("plan", 0, Step::Plan).await?;
        self.say("Then the real thing. Every key is written once, and exported to a folder of objects.");
        self.step("sync", 0, Step::Sync).await?;
        self.say("Again: nothing changed, so nothing is written.");
        self.step("sync", 0, Step::Sync).await?;
        self.say("Now somebody empties most of the folder by accident, and one policy changes.");
        self.accident()?;
        self.say("The change goes through; 30 deletes at once do not. They are held until a person decides.");
        self.step("sync", 4, Step::Sync).await?;
        self.step("held", 0, Step::Held).await?;
        let plan = self.last_report().await?.plan.unwrap_or_default();
        self.say("It was meant so. Absence is proven once more, then they go.");
        self.step(&format!("approve {plan}"), 0, Step::Approve(plan)).await?;
        let run = self.last_report().await?.id;
        self.say("No, it was not. Every run can be undone.");
        self.step(&format!("undo {run}"), 0, Step::Undo(run)).await?;
        self.say("And every key can be explained.");
        self.step("why regulation-07.md", 0, Step::Why("regulation-07.md")).await?;
        self.dead_letters().await?;
        self.registry().await?;
        self.archive().await?;
        self.tables().await?;
        self.workspace().await?;
        self.say("That is all: `trueup init` writes a config to start from.");
        Ok(())
    }

    /// Follow-up work that fails is kept, explained and tried again.
    async fn dead_letters(&mut self) -> Result<()> {
        self.say(
            "Follow-up work can fail, too. A command that always fails is given up after three attempts …",
        );
        self.write("broken", "the command fails while this file is here")?;
        self.write("policies/regulation-39.md", "# Regulation 39\n\nAs amended.\n")?;
        self.step("sync", 4, Step::Sync).await?;
        self.step("queue work", 3, Step::Work).await?;
        self.step("queue work", 3, Step::Work).await?;
        self.step("dead ls", 0, Step::Dead).await?;
        self.say("… and once the cause is gone, it is tried again.");
        let broken = self.folder.join("broken");
        std::fs::remove_file(&broken).map_err(|error| from_io(error, "mending the command"))?;
        self.step("dead retry --all", 0, Step::Retry).await
    }

    /// More to look at than one pipeline: one that has not run yet, and one whose source is missing.
    fn prepare_page(&self) -> Result<()> {
        self.write("trueup.toml", &format!("{CONFIG}{MORE}"))?;
        for chapter in ["arrival", "leave", "travel"] {
            self.write(&format!("handbook/{chapter}.md"), &format!("# {chapter}\n"))?;
        }
        Ok(())
    }

    fn setting(&self) -> Result<()> {
        self.write("trueup.toml", CONFIG)?;
        for number in 0..40 {
            let text = format!("# Regulation {number}\n\nEverybody may read this.\n");
            self.write(&format!("policies/regulation-{number:02}.md"), &text)?;
        }
        Ok(())
    }

    fn accident(&self) -> Result<()> {
        for number in 0..30 {
            let path = self.folder.join(format!("policies/regulation-{number:02}.md"));
            std::fs::remove_file(&path).map_err(|error| from_io(error, "removing a policy"))?;
        }
        self.write("policies/regulation-35.md", "# Regulation 35\n\nEverybody should read this.\n")
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        let folder = path.parent().unwrap_or(Path::new("."));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
        written.map_err(|error| from_io(error, format!("writing {name}")))
    }

    /// A chapter with a config of its own.
    async fn with_config(
        &mut self,
        name: &str,
        tell: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let before = std::mem::replace(&mut self.desk.config, self.folder.join(name));
        let told = tell(self).await;
        self.desk.config = before;
        told
    }

    /// What another program shows.
    fn show(&self, command: &str, text: &str) {
        if !self.out.json {
            self.out.result(&(), || format!("{}\n{}", self.out.paint(Color::Dim, command), text.trim_end()));
        }
    }

    fn say(&self, text: &str) {
        if !self.out.json {
            self.out.result(&(), || format!("\n{}", self.out.paint(Color::Bold, text)));
        }
    }

    /// Run one command as a user would, and make sure it ended as the story says.
    async fn step(&mut self, command: &str, expected: u8, step: Step) -> Result<()> {
        if !self.out.json {
            self.out.result(&(), || self.out.paint(Color::Dim, &format!("$ trueup {command}")));
        }
        let desk =
            Desk { config: self.desk.config.clone(), out: self.desk.out, clock: self.desk.clock.clone() };
        let code = step.run(&desk, self.out.json).await?;
        self.steps.push(json!({ "command": command, "exit": code }));
        if code != expected {
            return Err(Error::bug(format!(
                "`trueup {command}` ended with {code}, the demo expects {expected}"
            )));
        }
        Ok(())
    }

    async fn last_report(&self) -> Result<Report> {
        let config = self.desk.config()?;
        let memory: Memory = self.desk.memory(&config, Access::Read).await?;
        let run: Option<String> = memory.state.read(&keys::last("policies")).await?;
        let report = match run {
            Some(run) => memory.state.read(&keys::run(&run)).await?,
            None => None,
        };
        report.ok_or_else(|| Error::bug("the demo made no run"))
    }
}

enum Step {
    Plan,
    Sync,
    Held,
    Approve(String),
    Undo(String),
    Why(&'static str),
    Work,
    Dead,
    Retry,
    Get(&'static str, &'static str),
    Queue,
    Take,
    Done(&'static str),
    Page(page::Verb),
}

impl Step {
    async fn run(self, desk: &Desk, silent: bool) -> Result<u8> {
        let desk = &Desk {
            out: Output { silent, ..desk.out },
            config: desk.config.clone(),
            clock: desk.clock.clone(),
        };
        match self {
            Step::Plan => plan::Plan::of(Vec::new(), None, false).run(desk).await,
            Step::Sync => Sync::all().run(desk).await,
            Step::Held => decide::held(desk).await,
            Step::Approve(plan) => decide::Approve { plan }.run(desk).await,
            Step::Undo(run) => undo::Undo::of(run).run(desk).await,
            Step::Why(key) => why::Why { key: key.to_owned(), pipeline: None }.run(desk).await,
            Step::Work => queue::Queue::work().run(desk).await,
            Step::Dead => dead::Dead::ls().run(desk).await,
            Step::Page(verb) => Box::pin(page::Page::of(verb).run(desk)).await,
            Step::Get(store, key) => kv::Kv::get(store, key).run(desk).await,
            Step::Queue => queue::Queue::ls().run(desk).await,
            Step::Take => queue::Queue::take().run(desk).await,
            Step::Done(key) => queue::Queue::done(key).run(desk).await,
            Step::Retry => dead::Dead::retry_all().run(desk).await,
        }
    }
}
