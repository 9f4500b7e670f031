//! `trueup sync`: one pass of each pipeline.

use std::path::{Path, PathBuf};

use clap::Args;

use super::desk::Desk;
use super::output::{Color, Output, count, named};
use crate::config::{self, Config, ShapeSpec};
use crate::error::{Error, Kind, Result, from_io};
use crate::operations::{self, NotStarted, Runs, look};
use crate::pipeline::Ask;
use crate::pipeline::open::Memory;
use crate::pipeline::seal::Sealed;
use crate::queue::depth;
use crate::state::report::{ERRORS_MAX, gravest, untold};
use crate::state::{Report, Status};
use crate::store::Access;

#[derive(Args)]
pub struct Sync {
    /// Pipelines to run; all enabled ones when none is named
    pipelines: Vec<String>,
    /// Only this key
    #[arg(long, value_name = "KEY")]
    only: Option<String>,
    /// Read everything, whatever the cursors say, and export every key again
    #[arg(long)]
    full: bool,
    /// Show what would be done, as `plan` does; writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Apply exactly this sealed plan, or refuse it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "full", "dry_run", "pipelines"])]
    plan: Option<PathBuf>,
}

impl Sync {
    /// Everything that is due, as `trueup sync` alone does it.
    pub fn all() -> Self {
        Sync { pipelines: Vec::new(), only: None, full: false, dry_run: false, plan: None }
    }

    pub async fn run(self, desk: &Desk) -> Result<u8> {
        if self.dry_run {
            return super::plan::Plan::of(self.pipelines, self.only, self.full).run(desk).await;
        }
        if let Some(file) = &self.plan {
            return sealed(desk, file).await;
        }
        let config = desk.config()?;
        let chosen = operations::chosen(&config, &self.pipelines)?;
        let memory = desk.memory(&config, Access::Write).await?;
        let ask = desk.ask("manual");
        let ask = Ask { only: self.only, full: self.full, exports: self.full, ..ask };
        if let Some(key) = &ask.only {
            look::is_known(&chosen, &memory, key, &ask.stop).await?;
        }
        let archives = archives(&chosen);
        let mut runs = Runs::of(Vec::new());
        let mut codes = Vec::new();
        for spec in chosen {
            if ask.stop.is_set() {
                // This one was not even begun.
                codes.push(Kind::Canceled.exit_code());
                break;
            }
            match operations::sync(spec, &memory, &ask).await {
                Ok(report) => {
                    codes.push(report.exit_code());
                    runs.runs.push(report);
                }
                Err(error) => {
                    codes.push(error.kind().exit_code());
                    runs.not_started.push(NotStarted::of(spec, &error));
                }
            }
        }
        drop(ask);
        note_left_behind(desk, &config, &memory).await;
        finish(desk, &runs, &archives, codes)
    }
}

/// Say what waits for pipelines that are no longer there; whoever cannot say it has said enough by then.
pub(super) async fn note_left_behind(desk: &Desk, config: &Config, memory: &Memory) {
    let known = |name: &str| config.pipelines.contains_key(name);
    for left in depth::left_behind(&memory.state, known).await.unwrap_or_default() {
        desk.out.note(&left.told());
    }
}

/// The pipelines among these that keep articles of boards.
fn archives(chosen: &[&config::Pipeline]) -> Vec<String> {
    let boards = chosen.iter().filter(|spec| matches!(spec.shape, ShapeSpec::Article(_)));
    boards.map(|spec| spec.name.clone()).collect()
}

/// Apply a sealed plan.
async fn sealed(desk: &Desk, file: &Path) -> Result<u8> {
    let plan = Sealed::parse(&read_plan(file)?)?;
    let config = desk.config()?;
    let spec = operations::pipeline(&config, &plan.pipeline)?;
    let memory = desk.memory(&config, Access::Write).await?;
    let line = desk.open(spec, &memory, Access::Write).await?;
    let report = line.run_sealed(plan, desk.ask("plan"), &spec.digest).await?;
    Ok(show_one(&desk.out, report))
}

fn read_plan(file: &Path) -> Result<String> {
    let remedy = "Name a file that `trueup plan PIPELINE --out FILE` wrote.";
    if file.is_dir() {
        return Err(Error::new(Kind::Config, format!("{} is a folder", file.display())).remedy_is(remedy));
    }
    let bytes = std::fs::read(file)
        .map_err(|error| from_io(error, format!("reading {}", file.display())).remedy_is(remedy))?;
    // What is no text is no plan either, and is refused as such.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Once a run started, its report is the result; an error is the result only when none did.
fn finish(desk: &Desk, runs: &Runs, archives: &[String], codes: Vec<u8>) -> Result<u8> {
    if runs.runs.is_empty() {
        NotStarted::none_started(&runs.not_started)?;
    }
    tell_not_started(&desk.out, &runs.not_started);
    show(&desk.out, runs, archives);
    Ok(gravest(codes))
}

/// Pipelines that could not start, beside the results of the others.
pub fn tell_not_started(out: &Output, pipelines: &[NotStarted]) {
    for failed in pipelines {
        out.trouble(&format!(
            "{} {}: {}",
            out.paint(Color::Red, "error"),
            failed.pipeline,
            failed.fault.message
        ));
        out.trouble(&format!("  what to do: {}", failed.fault.remedy));
    }
}

/// Show one report as the result of a command.
pub fn show_one(out: &Output, report: Report) -> u8 {
    let code = report.exit_code();
    show(out, &Runs::of(vec![report]), &[]);
    code
}

fn show(out: &Output, runs: &Runs, archives: &[String]) {
    for report in &runs.runs {
        tell_troubles(out, report);
    }
    let text = |report: &Report| {
        let boards = archives.contains(&report.pipeline).then(|| in_articles(report));
        summary(out, report) + &boards.unwrap_or_default()
    };
    out.result(runs, || runs.runs.iter().map(text).collect());
}

/// The same counts in the words of an archive.
fn in_articles(report: &Report) -> String {
    let counts = &report.counts;
    let saved = count(counts.added + counts.updated, "article");
    let boards = count(counts.unproven, "board");
    format!("  {saved} saved, {} skipped, {boards} failed\n", counts.unchanged + counts.skipped)
}

/// Errors and warnings go to stderr, each with its remedy, the first few in full.
fn tell_troubles(out: &Output, report: &Report) {
    const SHOWN: usize = 20;
    let troubles = report.troubles();
    for trouble in troubles.iter().take(SHOWN) {
        let place = trouble.place().map(|at| format!(" {}:", named(&at))).unwrap_or_default();
        let (error, fault) = (out.paint(Color::Red, "error"), trouble.fault);
        out.trouble(&format!("{error} {}:{place} {}", report.pipeline, fault.message));
        out.trouble(&format!("  what to do: {}", fault.remedy));
    }
    let more = untold(&troubles, SHOWN) + report.errors_omitted;
    if more > 0 {
        let listed = if report.errors_omitted > 0 { format!("the first {ERRORS_MAX}") } else { "all".into() };
        out.trouble(&format!("  … and {} (--json lists {listed})", count(more, "more error")));
    }
    for warning in report.warnings.iter().take(SHOWN) {
        out.note(&format!("{} {}: {warning}", out.paint(Color::Yellow, "warning"), report.pipeline));
    }
    if let Some(more) = report.warnings.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        out.note(&format!("  … and {} (--json lists them)", count(more as u64, "more warning")));
    }
}

/// A run in a few lines: what happened, what is left for a person.
pub fn summary(out: &Output, report: &Report) -> String {
    let counts = &report.counts;
    let color = match report.status {
        Status::Ok => Color::Green,
        Status::Held | Status::Partial | Status::Running => Color::Yellow,
        Status::Failed | Status::Canceled => Color::Red,
    };
    let named = [
        ("added", counts.added),
        ("updated", counts.updated),
        ("deleted", counts.deleted),
        ("unchanged", counts.unchanged),
        ("skipped", counts.skipped),
        ("missing", counts.missing),
        ("failed", counts.failed),
        ("held", counts.held),
        ("unproven", counts.unproven),
    ];
    let always = ["added", "updated", "deleted", "unchanged"];
    let shown = named.iter().filter(|(name, number)| *number > 0 || always.contains(name));
    let shown: Vec<String> = shown.map(|(name, number)| format!("{number} {name}")).collect();
    let status = out.paint(color, report.status.name());
    let mut text = format!("{}: {status} · {} · run {}\n", report.pipeline, shown.join(", "), report.id);
    if counts.held > 0 {
        let plan = report.plan.as_deref().unwrap_or("PLAN");
        let by = &counts.held_by;
        let kinds = [("add", by.add), ("update", by.update), ("delete", by.delete)];
        let kinds: Vec<String> =
            kinds.iter().filter(|kind| kind.1 > 0).map(|(kind, n)| count(*n, kind)).collect();
        text.push_str(&format!(
            "  held: {} · `trueup held` shows them, `trueup approve {plan}` applies, `trueup reject {plan}` drops them\n",
            kinds.join(", ")
        ));
    }
    text
}
