//! A small harness for figures that mean something on any machine: ratios to a floor measured in the same run, and
//! limits on memory and time. Floor and ours take turns, and the best of each counts, because a busy machine only
//! ever makes things slower. It prints; it never fails because something was slow.
//!
//! A system names its jobs (each runs in a process of its own, so that its memory is its own) and its groups of
//! figures, and hands both to [`main`].
#![allow(clippy::print_stdout, clippy::print_stderr)] // this is the printer

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

mod page;
pub mod web;

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A piece of work by name: prepares, works, and says how long the working part took.
pub type Job = (&'static str, fn(&Path, usize) -> Outcome<Duration>);

/// Figures that belong together, by the name `--only` takes.
pub type Group = (&'static str, fn(&mut Bench) -> Outcome<()>);

/// What is measured of one part of the house.
pub struct System {
    pub name: &'static str,
    pub jobs: &'static [Job],
    pub groups: &'static [Group],
}

/// No single job is worth more of a person's time than this.
const JOB_SECONDS_MAX: u32 = 900;

/// How often another program is asked whether it has ended: what it is found out later counts as its own time.
const GLANCE: Duration = Duration::from_millis(1);
/// Its memory is looked at less often, because that takes time on the cores it works on.
const GLANCES_EACH: usize = 10;

/// What one measurement showed.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub seconds: f64,
    /// The most memory the process ever held (`VmHWM`).
    pub peak_mb: f64,
}

/// One line of the table.
struct Figure {
    name: String,
    floor: String,
    ours: String,
    ratio: String,
    allowed: String,
    verdict: String,
}

pub struct Bench {
    quick: bool,
    figures: Vec<Figure>,
}

struct Arguments {
    system: Option<String>,
    quick: bool,
    write: bool,
    only: Option<String>,
}

/// Measure everything, or what the arguments ask for.
pub fn main(systems: &[System]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let done = match arguments.first().map(String::as_str) {
        Some("--job") => run_job(systems, &arguments[1..]),
        _ => parse(&arguments).and_then(|arguments| run_systems(systems, &arguments)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Outcome<Arguments> {
    let mut parsed = Arguments { system: None, quick: false, write: false, only: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--quick" => parsed.quick = true,
            "--write" => parsed.write = true,
            "--only" => parsed.only = Some(rest.next().ok_or("--only needs the name of a group")?.clone()),
            name if !name.starts_with('-') && parsed.system.is_none() => {
                parsed.system = Some(name.to_owned());
            }
            other => {
                return Err(format!(
                    "unknown argument {other}; there are [SYSTEM] --quick, --write, --only GROUP"
                )
                .into());
            }
        }
    }
    if parsed.write && (parsed.quick || parsed.only.is_some()) {
        return Err("--write keeps whole runs at full size only: leave out --quick and --only".into());
    }
    Ok(parsed)
}

fn run_systems(systems: &[System], arguments: &Arguments) -> Outcome<()> {
    let chosen = |system: &&System| arguments.system.as_ref().is_none_or(|name| system.name == name);
    let mut failed = Vec::new();
    let mut measured = 0;
    for system in systems.iter().filter(chosen) {
        let bench = run_groups(system, arguments, &mut failed);
        if bench.figures.is_empty() {
            continue;
        }
        measured += bench.figures.len();
        let size = if arguments.quick { " --quick" } else { "" };
        println!("\n{}", page::facts(&format!("./x bench {}{size}", system.name)));
        println!("\n{}", page::table(&bench.figures));
        if arguments.write {
            page::write(system.name, &bench.figures)?;
        }
    }
    if measured == 0 {
        let groups = |system: &System| -> String {
            let names: Vec<&str> = system.groups.iter().map(|group| group.0).collect();
            format!("{}: {}", system.name, names.join(", "))
        };
        let all: Vec<String> = systems.iter().map(groups).collect();
        return Err(format!("no such system or group; there are\n{}", all.join("\n")).into());
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", ")).into()) }
}

fn run_groups(system: &System, arguments: &Arguments, failed: &mut Vec<&'static str>) -> Bench {
    let mut bench = Bench { quick: arguments.quick, figures: Vec::new() };
    let chosen = |group: &&Group| arguments.only.as_ref().is_none_or(|only| group.0.contains(only.as_str()));
    for (group, run) in system.groups.iter().filter(chosen) {
        eprintln!("==> {}: {group}", system.name);
        if let Err(error) = run(&mut bench) {
            bench.unmeasured(group, &error.to_string());
            failed.push(group);
        }
    }
    bench
}

/// The other end of [`Bench::job`].
fn run_job(systems: &[System], arguments: &[String]) -> Outcome<()> {
    let [name, folder, size] = arguments else { return Err("--job NAME FOLDER SIZE".into()) };
    let mut jobs = systems.iter().flat_map(|system| system.jobs);
    let (_, work) = jobs.find(|job| job.0 == name).ok_or_else(|| format!("there is no job {name}"))?;
    let took = work(Path::new(folder), size.parse()?)?;
    println!("{} {}", took.as_secs_f64(), page::peak_kib());
    Ok(())
}

impl Bench {
    /// The size of a figure: the promised one, or a small one for `--quick`.
    pub fn size(&self, promised: usize, quick: usize) -> usize {
        if self.quick { quick } else { promised }
    }

    /// A folder of its own, gone when dropped, on the disk the build is on.
    pub fn folder() -> Outcome<tempfile::TempDir> {
        let top = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(&top)?;
        Ok(tempfile::Builder::new().prefix("bench-").tempdir_in(top)?)
    }

    /// Run a job in a process of its own.
    pub fn job(name: &str, folder: &Path, size: usize) -> Outcome<Measured> {
        let mut command = bounded(&std::env::current_exe()?);
        command.arg("--job").arg(name).arg(folder).arg(size.to_string()).stderr(Stdio::inherit());
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("the job {name} ended with {}", output.status).into());
        }
        let answer = String::from_utf8(output.stdout)?;
        let (seconds, kib) = answer.trim().split_once(' ').ok_or("a job gave no answer")?;
        Ok(Measured { seconds: seconds.parse()?, peak_mb: kib.parse::<f64>()? * 1_024.0 / 1e6 })
    }

    /// Run a program to its end and take the time of it.
    pub fn program(program: &Path, arguments: &[&str], folder: &Path) -> Outcome<Measured> {
        let mut command = bounded(program);
        command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        let start = Instant::now();
        let output = command.stderr(Stdio::piped()).output()?;
        let seconds = start.elapsed().as_secs_f64();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} ended with {}: {said}", program.display(), output.status).into());
        }
        Ok(Measured { seconds, peak_mb: 0.0 })
    }

    /// Run a program that takes a while: the time of it, and the most memory it was seen to hold.
    pub fn weighed(program: &Path, arguments: &[&str], folder: &Path) -> Outcome<Measured> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        let start = Instant::now();
        let mut child = command.spawn()?;
        let mut peak_mb: f64 = 0.0;
        let mut glances = (0..GLANCES_EACH).cycle();
        let status = loop {
            if glances.next() == Some(0) {
                peak_mb = peak_mb.max(page::peak_kib_of(child.id()) * 1_024.0 / 1e6);
            }
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed().as_secs() > JOB_SECONDS_MAX.into() {
                child.kill()?;
            }
            std::thread::sleep(GLANCE);
        };
        let seconds = start.elapsed().as_secs_f64();
        if !status.success() {
            return Err(format!("{} ended with {status}", program.display()).into());
        }
        Ok(Measured { seconds, peak_mb })
    }

    /// The best of several.
    pub fn best(times: usize, mut measure: impl FnMut() -> Outcome<Measured>) -> Outcome<Measured> {
        let mut best = measure()?;
        for _ in 1..times {
            best = best.or(measure()?);
        }
        Ok(best)
    }

    /// A ratio of ours to a floor, taking turns, the best of `times` each.
    pub fn ratio(
        &mut self,
        name: &str,
        allowed: f64,
        times: usize,
        mut floor: impl FnMut() -> Outcome<Measured>,
        mut ours: impl FnMut() -> Outcome<Measured>,
    ) -> Outcome<(Measured, Measured)> {
        let mut best = (floor()?, ours()?);
        for _ in 1..times {
            best = (best.0.or(floor()?), best.1.or(ours()?));
        }
        self.compared(name, allowed, best);
        Ok(best)
    }

    /// A ratio of two measurements made before: floor, ours.
    pub fn compared(&mut self, name: &str, allowed: f64, (floor, ours): (Measured, Measured)) {
        let ratio = ours.seconds / floor.seconds;
        self.add(Figure {
            name: name.to_owned(),
            floor: page::seconds(floor.seconds),
            ours: page::seconds(ours.seconds),
            ratio: format!("{ratio:.2} ×"),
            allowed: format!("≤ {allowed} ×"),
            verdict: verdict(ratio <= allowed, ratio / allowed),
        });
    }

    /// A value that must stay within a limit.
    pub fn at_most(&mut self, name: &str, value: f64, limit: f64, unit: &str) {
        let (ours, allowed) =
            (format!("{} {unit}", page::short(value)), format!("≤ {} {unit}", page::short(limit)));
        self.limit(name, ours, allowed, verdict(value <= limit, value / limit));
    }

    /// A value that must reach a mark.
    pub fn at_least(&mut self, name: &str, value: f64, mark: f64, unit: &str) {
        let (ours, allowed) =
            (format!("{} {unit}", page::short(value)), format!("≥ {} {unit}", page::short(mark)));
        self.limit(name, ours, allowed, verdict(value >= mark, mark / value));
    }

    /// A figure that nothing is wanted of.
    pub fn noted(&mut self, name: &str, value: &str) {
        self.limit(name, value.to_owned(), "–".into(), String::new());
    }

    /// A figure that could not be had here, and why.
    pub fn unmeasured(&mut self, name: &str, why: &str) {
        self.limit(name, "–".into(), "–".into(), format!("not measured: {why}"));
    }

    fn limit(&mut self, name: &str, ours: String, allowed: String, verdict: String) {
        let none = || "–".to_owned();
        self.add(Figure { name: name.to_owned(), floor: none(), ours, ratio: none(), allowed, verdict });
    }

    fn add(&mut self, figure: Figure) {
        eprintln!("    {}: {} ({}), {}", figure.name, figure.ours, figure.ratio, figure.verdict);
        self.figures.push(figure);
    }
}

/// For the benches that drive servers.
pub fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

impl Measured {
    /// A time, where memory is not looked at.
    pub fn took(time: Duration) -> Measured {
        Measured { seconds: time.as_secs_f64(), peak_mb: 0.0 }
    }

    /// The faster time and, as memory is no accident, the larger peak.
    #[must_use]
    pub fn or(self, other: Measured) -> Measured {
        Measured { seconds: self.seconds.min(other.seconds), peak_mb: self.peak_mb.max(other.peak_mb) }
    }
}

fn verdict(met: bool, over: f64) -> String {
    if met { "met".into() } else { format!("**missed** by {:.0} %", (over - 1.0) * 100.0) }
}

/// A command that is ended when it takes unreasonably long.
fn bounded(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=5").arg(JOB_SECONDS_MAX.to_string()).arg(program);
    command
}

/// How long a piece of work takes.
pub fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, Duration), E> {
    let start = Instant::now();
    let done = work()?;
    Ok((done, start.elapsed()))
}
