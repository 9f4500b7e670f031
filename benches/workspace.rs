//! Workspaces: a page's keys among a million, edits of issues by a hundred at once, a PDF of a hundred pages beside
//! `pdftotext` (Debian: poppler-utils). docs/benchmarks.md says how to run it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{Bench, Group, Job, Outcome, runtime, timed};
use bytes::Bytes;
use trueup::clock::SystemClock;
use trueup::config::Config;
use trueup::store::{Access, Item, Mode, StoreExt as _, What};
use trueup::workspace::extract::{Media, markdown};
use trueup::workspace::{NewIssue, Severity, Workspace};

/// Keys of the page that is looked for.
const OF_THE_PAGE: usize = 50;
/// Writers at the same time, and what each does.
const WRITERS: usize = 100;
const EDITS_EACH: usize = 20;
const SCRIPT: &str = include_str!("../tests/fixtures/workspace/papers.py");

pub const JOBS: &[Job] = &[("listing", listing), ("edits", edits), ("extract", extract)];

pub const GROUPS: &[Group] = &[("listing", figure_listing), ("edits", figure_edits), ("pdf", figure_pdf)];

fn figure_listing(bench: &mut Bench) -> Outcome<()> {
    let folder = Bench::folder()?;
    let size = bench.size(1_000_000, 20_000);
    let best = Bench::best(1, || Bench::job("listing", folder.path(), size))?;
    bench.at_most(
        &format!("the {OF_THE_PAGE} keys of a page among {size}, SQLite"),
        best.seconds * 1e3,
        5.0,
        "ms",
    );
    Ok(())
}

fn figure_edits(bench: &mut Bench) -> Outcome<()> {
    let folder = Bench::folder()?;
    let edits = WRITERS * bench.size(EDITS_EACH, 2);
    let best = Bench::job("edits", folder.path(), bench.size(EDITS_EACH, 2))?;
    let name = format!("{WRITERS} writers edit issues of their own, SQLite");
    bench.at_least(&name, edits as f64 / best.seconds, 1_000.0, "edits/s");
    Ok(())
}

fn figure_pdf(bench: &mut Bench) -> Outcome<()> {
    let folder = Bench::folder()?;
    let pages = bench.size(100, 5);
    let file = folder.path().join("long.pdf");
    paper(&file, pages)?;
    let text = folder.path().join("long.txt");
    let (from, to) = (file.to_str().ok_or("a path")?.to_owned(), text.to_str().ok_or("a path")?.to_owned());
    let floor = || Bench::program(Path::new("pdftotext"), &[&from, &to], folder.path());
    let ours = || Bench::job("extract", folder.path(), pages);
    bench.ratio(
        &format!("the text of a PDF of about {pages} pages, against pdftotext"),
        5.0,
        3,
        floor,
        ours,
    )?;
    Ok(())
}

async fn workspace(folder: &Path) -> Outcome<Workspace> {
    std::fs::create_dir_all(folder.join("pages/p"))?;
    let text = "[workspaces.w]\npages = { folder = \"pages\" }\ninto = \"sqlite:w.db\"\n";
    let config = Config::parse(text, &folder.join("trueup.toml"), &|_| None)?;
    Ok(Workspace::open(&config.workspaces["w"], Access::Write, SystemClock::new()).await?)
}

/// Best of many looks: one look is shorter than any disturbance.
fn listing(folder: &Path, size: usize) -> Outcome<Duration> {
    runtime()?.block_on(async {
        let workspace = workspace(folder).await?;
        let store = &workspace.shelf.store;
        let all: Vec<usize> = (0..size).collect();
        for chunk in all.chunks(1_000) {
            let items = chunk.iter().map(|at| {
                let page = at / OF_THE_PAGE;
                Item::put(format!("{page}:issue:{at:08}"), "{\"title\":\"a row of a workspace\"}")
            });
            store.write(items.collect(), Mode::All).await?;
        }
        let prefix = format!("{}:issue:", size / OF_THE_PAGE / 2);
        let mut best = Duration::MAX;
        for _ in 0..20 {
            let start = std::time::Instant::now();
            let found = store.list_all(&prefix, What::Keys).await?;
            best = best.min(start.elapsed());
            if found.len() != OF_THE_PAGE {
                return Err(format!("{} keys of {OF_THE_PAGE}", found.len()).into());
            }
        }
        Ok(best)
    })
}

fn edits(folder: &Path, each: usize) -> Outcome<Duration> {
    runtime()?.block_on(async {
        let workspace = Arc::new(workspace(folder).await?);
        let mut ids = Vec::new();
        for at in 0..WRITERS {
            let new = NewIssue {
                title: format!("Issue {at}"),
                severity: Severity::LOWEST,
                description: Vec::new(),
            };
            ids.push(workspace.issue_create("p", new).await?.id);
        }
        let start = std::time::Instant::now();
        let writers = ids.into_iter().map(|id| {
            let workspace = workspace.clone();
            tokio::spawn(async move {
                for round in 0..each {
                    workspace.issue_annotate("p", &id, &format!("round {round}")).await?;
                }
                Ok::<(), trueup::error::Error>(())
            })
        });
        for writer in futures::future::join_all(writers).await {
            writer??;
        }
        let took = start.elapsed();
        let last = format!("round {}", each - 1);
        let issues = workspace.issues("p").await?;
        if !issues.iter().all(|issue| issue.annotations.as_deref() == Some(&last)) {
            return Err("an edit was lost".into());
        }
        Ok(took)
    })
}

/// As a process of its own, like the program it is compared with; starting it is part of neither figure's point but of
/// both figures.
fn extract(folder: &Path, _pages: usize) -> Outcome<Duration> {
    let bytes = Bytes::from(std::fs::read(folder.join("long.pdf"))?);
    let (text, took) =
        timed(|| runtime().and_then(|runtime| Ok(runtime.block_on(markdown(Media::Pdf, bytes))?)))?;
    if !text.contains("the last clause") {
        return Err("the text is not whole".into());
    }
    Ok(took)
}

/// A PDF of about this many pages, by the tool the tests use.
fn paper(to: &Path, pages: usize) -> Outcome<()> {
    let clause =
        "Every doctoral candidate shall have at least two supervisors employed by the university. ".repeat(6);
    let mut clauses: Vec<String> = (1..=pages * 6).map(|at| format!("{at}. {clause}")).collect();
    clauses.push("This is the last clause.".into());
    let home: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("papers");
    if !home.join("ready").exists() {
        return Err("run `./x test systems::workspace` once: it installs the tool that makes PDFs".into());
    }
    let text = to.with_extension("source");
    std::fs::write(&text, clauses.join("\n\n"))?;
    let mut command = Command::new(home.join("bin/python"));
    let made = command.args(["-c", SCRIPT, "plain"]).arg(to).arg(format!("@{}", text.display())).status()?;
    if made.success() { Ok(()) } else { Err("no PDF was made".into()) }
}
