//! The policy registry beside the git program itself: a change in a large repository, the first sync of many documents,
//! and what Cloudflare KV is asked. docs/benchmarks.md says how to run it.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Bench, Group, Job, Outcome, runtime, timed};
use crate::support::cloudflare::Kv;
use trueup::clock::SystemClock;
use trueup::config::Config;
use trueup::pipeline::open::Memory;
use trueup::pipeline::{Ask, Pipeline};
use trueup::registry;
use trueup::state::Report;
use trueup::store::Access;

/// Files a commit changes in the large repository.
const CHANGED: usize = 10;
/// A regulation of a few pages.
const DOCUMENT_BYTES: usize = 16 * 1024;
/// What a file of the large repository holds: there only its SHA matters.
const SMALL_BYTES: usize = 200;

pub const JOBS: &[Job] = &[
    ("repository", small_documents),
    ("documents", documents),
    ("commit", commit),
    ("clone", clone),
    ("git-fetch", git_fetch),
    ("registry-sync", sync_again),
    ("cat-file", cat_file),
    ("registry-first", sync_first),
];

pub const GROUPS: &[Group] = &[("incremental", incremental), ("first", first), ("cloudflare", cloudflare)];

fn incremental(bench: &mut Bench) -> Outcome<()> {
    let size = bench.size(100_000, 5_000);
    let folder = Bench::folder()?;
    let at = folder.path();
    Bench::job("repository", at, size)?;
    Bench::job("clone", at, size)?;
    Bench::job("registry-sync", at, size)?;
    // Each turn is a new commit, seen by both.
    let floor = || {
        Bench::job("commit", at, CHANGED)?;
        Bench::job("git-fetch", at, CHANGED)
    };
    let name = format!("{CHANGED} of {size} files changed: sync, against `git fetch` and `git diff-tree`");
    let (_, ours) = bench.ratio(&name, 2.0, 5, floor, || Bench::job("registry-sync", at, CHANGED))?;
    bench.at_most(&format!("{CHANGED} of {size} files changed: memory"), ours.peak_mb, 150.0, "MB");
    Ok(())
}

fn first(bench: &mut Bench) -> Outcome<()> {
    let size = bench.size(10_000, 1_000);
    let folder = Bench::folder()?;
    let at = folder.path();
    Bench::job("documents", at, size)?;
    let name = format!("first sync of {size} policies of 16 KiB into SQLite, against `git cat-file --batch`");
    let floor = || Bench::job("cat-file", at, size);
    bench.ratio(&name, 2.0, 5, floor, || Bench::job("registry-first", at, size))?;
    Ok(())
}

/// Counted, not timed: the service is a stand-in on this machine.
fn cloudflare(bench: &mut Bench) -> Outcome<()> {
    let size = bench.size(10_000, 1_000);
    let folder = Bench::folder()?;
    let at = folder.path();
    small_documents(at, size)?;
    let kv = Kv::start(None);
    let into = kv.config(&at.join("token"));
    let report = runtime()?.block_on(sync(at, &into, "repository.git"))?;
    expect(&report, report.counts.added, size)?;
    let bulk = kv.bulk_writes().iter().filter(|pairs| **pairs > 2).count();
    bench.at_most(
        &format!("{size} policies into Cloudflare KV: bulk requests"),
        bulk as f64,
        2.0,
        "requests",
    );
    std::fs::remove_dir_all(at.join(".trueup"))?;
    kv.server.forget();
    let report = runtime()?.block_on(sync(at, &into, "repository.git"))?;
    expect(&report, report.counts.unchanged, size)?;
    let read = kv.server.count("/values/policy");
    bench.at_most("state lost: values read from Cloudflare KV", read as f64, 0.0, "values");
    Ok(())
}

fn expect(report: &Report, count: u64, size: usize) -> Outcome<()> {
    if count == size as u64 && report.exit_code() == 0 { Ok(()) } else { Err(format!("{report:#?}").into()) }
}

fn git(at: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(at).args(["-c", "gc.auto=0"]).args(arguments).stdout(Stdio::null());
    command
}

fn run(mut command: Command) -> Outcome<()> {
    if command.status()?.success() { Ok(()) } else { Err(format!("{command:?} failed").into()) }
}

fn small_documents(at: &Path, size: usize) -> Outcome<Duration> {
    repository(at, size, SMALL_BYTES)
}

fn documents(at: &Path, size: usize) -> Outcome<Duration> {
    repository(at, size, DOCUMENT_BYTES)
}

/// A bare repository of Markdown files, a hundred to a folder, packed as a server would have it.
fn repository(at: &Path, size: usize, bytes: usize) -> Outcome<Duration> {
    let bare = at.join("repository.git");
    std::fs::create_dir_all(&bare)?;
    run(git(&bare, &["init", "--quiet", "--bare", "--initial-branch=main"]))?;
    import(&bare, (0..size).map(|number| (number, document(number, 0, bytes))), "")?;
    run(git(&bare, &["repack", "-adq"]))?;
    Ok(Duration::ZERO)
}

/// Text that compresses as text does.
fn document(number: usize, version: usize, bytes: usize) -> String {
    let mut text = format!("# Policy {number}\n\nVersion {version}.\n\n");
    let mut chance = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    while text.len() < bytes {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(
            ["article ", "the ", "university ", "student ", "term ", "may ", "shall ", "not "]
                [(chance >> 61) as usize],
        );
        text.push_str(&format!("{:x} ", (chance >> 40) & 0xFFF));
    }
    text
}

fn import(bare: &Path, files: impl Iterator<Item = (usize, String)>, from: &str) -> Outcome<()> {
    let mut child = git(bare, &["fast-import", "--quiet", "--force"]).stdin(Stdio::piped()).spawn()?;
    let mut input = std::io::BufWriter::new(child.stdin.take().ok_or("no input")?);
    write!(input, "commit refs/heads/main\ncommitter n <e@example.org> 0 +0000\ndata 1\nx\n{from}")?;
    for (number, text) in files {
        let folder = number / 100;
        write!(input, "M 644 inline f{folder:04}/p{number:06}.md\ndata {}\n{text}\n", text.len())?;
    }
    drop(input);
    if child.wait()?.success() { Ok(()) } else { Err("git fast-import failed".into()) }
}

/// One more commit, which changes so many files.
fn commit(at: &Path, changed: usize) -> Outcome<Duration> {
    let counter = at.join("commits");
    let version = std::fs::read_to_string(&counter).ok().and_then(|text| text.parse().ok()).unwrap_or(0) + 1;
    std::fs::write(&counter, format!("{version}"))?;
    let files = (0..changed).map(|at| (at * 401, document(at * 401, version, SMALL_BYTES)));
    import(&at.join("repository.git"), files, "from refs/heads/main^0\n")?;
    Ok(Duration::ZERO)
}

fn address(at: &Path) -> String {
    format!("file://{}", at.join("repository.git").display())
}

/// What somebody has who follows the repository by git alone.
fn clone(at: &Path, _: usize) -> Outcome<Duration> {
    let copy = at.join("copy.git");
    std::fs::create_dir_all(&copy)?;
    run(git(&copy, &["init", "--quiet", "--bare"]))?;
    fetch(at)?;
    Ok(Duration::ZERO)
}

fn fetch(at: &Path) -> Outcome<()> {
    let to = "+refs/heads/main:refs/heads/seen";
    run(git(&at.join("copy.git"), &["fetch", "--quiet", "--no-tags", "--depth=1", &address(at), to]))
}

/// The least anybody does to learn what changed.
fn git_fetch(at: &Path, changed: usize) -> Outcome<Duration> {
    let copy = at.join("copy.git");
    let told = git(&copy, &["rev-parse", "refs/heads/seen"]).stdout(Stdio::piped()).output()?;
    let before = String::from_utf8(told.stdout)?.trim().to_owned();
    let (lines, took) = timed(|| -> Outcome<usize> {
        fetch(at)?;
        let tell = ["diff-tree", "-r", "-z", "--name-only", &before, "refs/heads/seen"];
        let told = git(&copy, &tell).stdout(Stdio::piped()).output()?;
        Ok(told.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()).count())
    })?;
    if lines == changed { Ok(took) } else { Err(format!("{lines} files changed, not {changed}").into()) }
}

async fn line(at: &Path, into: &str, from: &str) -> Outcome<Pipeline> {
    let text = format!("[pipelines.p]\nfrom = {{ git = \"{from}\" }}\nas = \"policy\"\ninto = {into}\n");
    let config = Config::parse(&text, &at.join("trueup.toml"), &|_| None)?;
    let memory = Memory::open(&config, Access::Write, SystemClock::new()).await?;
    Ok(registry::open(&config.pipelines["p"], &memory, Access::Write).await?)
}

async fn sync(at: &Path, into: &str, from: &str) -> Outcome<Report> {
    Ok(line(at, into, from).await?.run(&Ask::plain("bench")).await?)
}

/// Opened and run as a process would, on what the last run left.
fn sync_again(at: &Path, changed: usize) -> Outcome<Duration> {
    let runtime = runtime()?;
    let (report, took) = timed(|| runtime.block_on(sync(at, "\"sqlite:registry.db\"", &address(at))))?;
    expect(&report, report.counts.added + report.counts.updated, changed)?;
    runtime.block_on(drain(at))?;
    Ok(took)
}

/// Whoever works on the queue has done so by the next run.
async fn drain(at: &Path) -> Outcome<()> {
    let line = line(at, "\"sqlite:registry.db\"", &address(at)).await?;
    line.state.remove_below("queue/").await?;
    line.refresh_records().await?;
    Ok(())
}

fn sync_first(at: &Path, size: usize) -> Outcome<Duration> {
    let fresh = tempfile::tempdir_in(at)?;
    let from = at.join("repository.git");
    let runtime = runtime()?;
    let (report, took) = timed(|| {
        runtime.block_on(sync(fresh.path(), "\"sqlite:registry.db\"", &from.display().to_string()))
    })?;
    expect(&report, report.counts.added, size)?;
    Ok(took)
}

/// The same blobs, named and read through one pipe.
fn cat_file(at: &Path, size: usize) -> Outcome<Duration> {
    let bare = at.join("repository.git");
    let listed =
        git(&bare, &["ls-tree", "-r", "main", "--format=%(objectname)"]).stdout(Stdio::piped()).output()?;
    let (bytes, took) = timed(|| -> Outcome<usize> {
        let mut child =
            git(&bare, &["cat-file", "--batch"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().ok_or("no input")?;
        let names = listed.stdout.clone();
        let writing = std::thread::spawn(move || input.write_all(&names));
        let mut bytes = 0;
        let mut output = child.stdout.take().ok_or("no output")?;
        let mut buffer = vec![0; 128 * 1024];
        loop {
            match output.read(&mut buffer)? {
                0 => break,
                read => bytes += read,
            }
        }
        writing.join().map_err(|_| "the writing thread ended early")??;
        child.wait()?;
        Ok(bytes)
    })?;
    if bytes > size * DOCUMENT_BYTES { Ok(took) } else { Err(format!("only {bytes} bytes were read").into()) }
}
