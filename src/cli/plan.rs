//! `trueup plan`: what a sync would do. Writes nothing, not even its own state.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;

use super::desk::Desk;
use super::output::{Color, Output, count, named};
use super::sync::tell_not_started;
use crate::config;
use crate::error::{Error, Kind, Result, from_io};
use crate::operations::{self, NotStarted, Plans, look};
use crate::pipeline::open::Memory;
use crate::pipeline::preview::Preview;
use crate::pipeline::seal::Sealed;
use crate::pipeline::{Ask, Stop};
use crate::state::report::gravest;
use crate::store::Access;

#[derive(Args)]
pub struct Plan {
    /// Pipelines to look at; all enabled ones when none is named
    pipelines: Vec<String>,
    /// Only this key
    #[arg(long, value_name = "KEY")]
    only: Option<String>,
    /// Read everything, whatever the cursors say
    #[arg(long)]
    full: bool,
    /// Write a sealed plan, for `trueup sync --plan FILE`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Plan {
    pub fn of(pipelines: Vec<String>, only: Option<String>, full: bool) -> Self {
        Plan { pipelines, only, full, out: None }
    }

    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let chosen = operations::chosen(&config, &self.pipelines)?;
        if self.out.is_some() && chosen.len() != 1 {
            return Err(Error::new(Kind::Config, "a sealed plan is for one pipeline")
                .remedy_is("Name it: `trueup plan PIPELINE --out FILE`."));
        }
        if let Some(file) = &self.out {
            may_write(file)?;
        }
        let memory = desk.memory(&config, Access::Read).await?;
        if let Some(key) = &self.only {
            look::is_known(&chosen, &memory, key, &Stop::default()).await?;
        }
        let mut plans = Plans::default();
        for spec in chosen {
            match self.look(desk, spec, &memory).await {
                Ok(preview) => plans.plans.push(preview),
                Err(error) => plans.not_started.push(NotStarted::of(spec, &error)),
            }
        }
        if plans.plans.is_empty() {
            NotStarted::none_started(&plans.not_started)?;
        }
        tell_not_started(&desk.out, &plans.not_started);
        show(&desk.out, &plans);
        Ok(gravest(plans.not_started.iter().map(NotStarted::exit_code)))
    }

    async fn look(&self, desk: &Desk, spec: &config::Pipeline, memory: &Memory) -> Result<Preview> {
        let line = desk.open(spec, memory, Access::Read).await?;
        let ask = Ask { only: self.only.clone(), full: self.full, ..Ask::plain("plan") };
        let preview = line.preview(&ask).await?;
        if let Some(file) = &self.out {
            let sealed = line.seal(&ask, &spec.digest).await?;
            write(file, &sealed)?;
            desk.out.note(&format!("Sealed in {}; `trueup sync --plan {0}` applies it.", file.display()));
        }
        Ok(preview)
    }
}

/// A plan takes the place of an older plan, and of nothing else: whatever is there is somebody's work.
fn may_write(file: &Path) -> Result<()> {
    let refuse = |what: &str| {
        let message = format!("{} {what} and is left as it is", file.display());
        Error::new(Kind::Config, message).remedy_is("Name another file: `trueup plan PIPELINE --out FILE`.")
    };
    match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(from_io(error, format!("looking at {}", file.display()))),
        Ok(facts) if facts.is_dir() => return Err(refuse("is a folder")),
        // A device or a pipe would be replaced, not written to.
        Ok(facts) if !facts.is_file() => return Err(refuse("is no regular file")),
        Ok(_) => {}
    }
    let mut start = Vec::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(START).read_to_end(&mut start))
        .map_err(|error| from_io(error, format!("reading {}", file.display())))?;
    if Sealed::begins(&start) { Ok(()) } else { Err(refuse("exists, is no plan of trueup's")) }
}

/// Enough of a file to tell a plan by.
const START: u64 = 64;

/// A plan that exists is not overwritten half: it is written beside and moved into place.
fn write(file: &Path, sealed: &Sealed) -> Result<()> {
    may_write(file)?;
    let doing = || format!("writing {}", file.display());
    let text = sealed.to_text()?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(|error| from_io(error, doing()))?;
    draft.write_all(text.as_bytes()).map_err(|error| from_io(error, doing()))?;
    draft.persist(file).map_err(|error| from_io(error.error, doing()))?;
    Ok(())
}

/// Plans as the result of a command.
pub fn show(out: &Output, plans: &Plans) {
    out.result(plans, || plans.plans.iter().map(|plan| text(out, plan)).collect());
}

/// Keys shown of each kind; the rest are counted (all of them with --json).
const SHOWN: usize = 20;

fn text(out: &Output, plan: &Preview) -> String {
    let mut text = format!("{} (plan {})\n", out.paint(Color::Bold, &plan.pipeline), plan.id);
    let more = |text: &mut String, total: usize| {
        if total > SHOWN {
            text.push_str(&format!("  … and {} more\n", total - SHOWN));
        }
    };
    for add in plan.add.iter().take(SHOWN) {
        text.push_str(&format!("  {} {}\n", out.paint(Color::Green, "+"), named(&add.key)));
    }
    more(&mut text, plan.add.len());
    for update in plan.update.iter().take(SHOWN) {
        text.push_str(&format!(
            "  {} {} ({})\n",
            out.paint(Color::Yellow, "~"),
            named(&update.key),
            update.why
        ));
        for line in update.diff.iter().flat_map(|diff| diff.lines().skip(2)) {
            let color = match line.as_bytes().first() {
                Some(b'+') => Color::Green,
                Some(b'-') => Color::Red,
                _ => Color::Dim,
            };
            text.push_str(&format!("      {}\n", out.paint(color, line)));
        }
    }
    more(&mut text, plan.update.len());
    for delete in plan.delete.iter().take(SHOWN) {
        text.push_str(&format!("  {} {}\n", out.paint(Color::Red, "-"), named(&delete.key)));
    }
    more(&mut text, plan.delete.len());
    for held in plan.held.iter().take(SHOWN) {
        text.push_str(&format!(
            "  {} {} {} ({})\n",
            out.paint(Color::Yellow, "held"),
            held.change.name(),
            named(&held.key),
            held.rule
        ));
    }
    more(&mut text, plan.held.len());
    text.push_str(&troubles(out, plan));
    text.push_str(&closing(plan));
    text
}

/// What cannot be used, could not be read, or is worth a word.
fn troubles(out: &Output, plan: &Preview) -> String {
    let mut text = String::new();
    for fault in &plan.failed {
        let key = named(fault.key.as_deref().unwrap_or_default());
        text.push_str(&format!("  {} {key}: {}\n", out.paint(Color::Red, "bad"), fault.message));
    }
    for scope in &plan.unproven {
        text.push_str(&format!("  {} {}: {}\n", out.paint(Color::Red, "unproven"), scope.scope, scope.error));
    }
    for warning in &plan.warnings {
        text.push_str(&format!("  {} {warning}\n", out.paint(Color::Yellow, "warning")));
    }
    text
}

fn closing(plan: &Preview) -> String {
    let (adds, updates, deletes) =
        (plan.add.len() as u64, plan.update.len() as u64, plan.delete.len() as u64);
    let mut line = format!(
        "  {}, {}, {}; {} unchanged",
        count(adds, "add"),
        count(updates, "update"),
        count(deletes, "delete"),
        plan.unchanged
    );
    if plan.skipped > 0 {
        line.push_str(&format!("; {} skipped", plan.skipped));
    }
    if !plan.held.is_empty() {
        line.push_str(&format!("; {} held", plan.held.len()));
    }
    if plan.requests.made + plan.requests.to_come > 0 {
        line.push_str(&format!(
            "; {} made, {} to come",
            count(plan.requests.made, "request"),
            plan.requests.to_come
        ));
    }
    line.push('\n');
    line
}
