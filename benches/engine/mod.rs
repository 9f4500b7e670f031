//! The engine under the stopwatch: groups of figures here, the work they measure in the files beside.

use std::fmt::Write as _;
use std::path::Path;

use crate::harness::{Bench, Group, Job, Measured, Outcome};

mod copying;
mod floor;
mod generated;
mod line;
mod million;
mod scattered;
mod unjournaled;
mod volume;
mod waiting;

pub const JOBS: &[Job] = &[
    ("fill", million::fill),
    ("first", million::first),
    ("list-sorted", million::list_sorted),
    ("list-unsorted", million::list_unsorted),
    ("noop-sorted", million::noop_sorted),
    ("noop-unsorted", million::noop_unsorted),
    ("bare-first", floor::first),
    ("bare-update", floor::update),
    ("sync-first", copying::first),
    ("sync-update", copying::update),
    ("unjournaled-first", copying::first_unjournaled),
    ("unjournaled-update", copying::update_unjournaled),
    ("history", waiting::history),
    ("enqueue", waiting::enqueue),
    ("drain", waiting::drain),
];

pub const GROUPS: &[Group] = &[
    ("start-up", start_up),
    ("writing", writing),
    ("journal", journal),
    ("queue", queue),
    ("million", a_million),
    ("rclone", volume::against_rclone),
];

const MS: f64 = 1_000.0;

/// The program itself, as users run it.
fn trueup(folder: &Path, arguments: &[&str]) -> Outcome<Measured> {
    Bench::program(Path::new(env!("CARGO_BIN_EXE_trueup")), arguments, folder)
}

fn start_up(bench: &mut Bench) -> Outcome<()> {
    let folder = Bench::folder()?;
    Bench::job("history", folder.path(), 1_000)?;
    let version = Bench::best(10, || trueup(folder.path(), &["--version"]))?;
    bench.at_most("`trueup --version`", version.seconds * MS, 50.0, "ms");
    let status = Bench::best(10, || trueup(folder.path(), &["status"]))?;
    bench.at_most("`trueup status` on 1,000 runs", status.seconds * MS, 50.0, "ms");
    Ok(())
}

/// Two jobs in folders of their own, one after the other, so that the second finds what the first left.
fn fresh_then(first: &str, second: Option<&str>, size: usize) -> Outcome<Measured> {
    let folder = Bench::folder()?;
    let measured = Bench::job(first, folder.path(), size)?;
    second.map_or(Ok(measured), |second| Bench::job(second, folder.path(), size))
}

fn writing(bench: &mut Bench) -> Outcome<()> {
    let size = bench.size(100_000, 10_000);
    let name = format!("first sync of {} records of 300 B into SQLite, against a bare loop", thousands(size));
    bench.ratio(
        &name,
        2.5,
        5,
        || fresh_then("bare-first", None, size),
        || fresh_then("sync-first", None, size),
    )?;
    let name = format!("{} updates with journal, against a bare loop", thousands(size));
    let floor = || fresh_then("bare-first", Some("bare-update"), size);
    bench.ratio(&name, 6.0, 3, floor, || fresh_then("sync-first", Some("sync-update"), size))?;
    Ok(())
}

fn journal(bench: &mut Bench) -> Outcome<()> {
    let size = bench.size(100_000, 10_000);
    let name = format!("journal on, against off: {} adds", thousands(size));
    let off = || fresh_then("unjournaled-first", None, size);
    bench.ratio(&name, 1.3, 4, off, || fresh_then("sync-first", None, size))?;
    let name = format!("journal on, against off: {} updates", thousands(size));
    let off = || fresh_then("sync-first", Some("unjournaled-update"), size);
    bench.ratio(&name, 2.0, 4, off, || fresh_then("sync-first", Some("sync-update"), size))?;
    Ok(())
}

fn queue(bench: &mut Bench) -> Outcome<()> {
    let size = bench.size(50_000, 5_000);
    let drained = Bench::best(3, || fresh_then("enqueue", Some("drain"), size))?;
    let name = format!("{} follow-up items exported, state and stores in SQLite", thousands(size));
    bench.at_least(&name, size as f64 / drained.seconds, 5_000.0, "items/s");
    Ok(())
}

fn a_million(bench: &mut Bench) -> Outcome<()> {
    let size = bench.size(1_000_000, 50_000);
    let folder = Bench::folder()?;
    let at = folder.path();
    let count = thousands(size);
    Bench::job("fill", at, size)?;
    let first = Bench::job("first", at, size)?;
    bench.at_most(&format!("first sync of {count} records: memory"), first.peak_mb, 250.0, "MB");
    for (kind, ratio, peak_mb) in [("sorted", 3.0, 100.0), ("unsorted", 6.0, 150.0)] {
        let name =
            format!("no-op sync of {count} records, {kind} source, against listing it and the fingerprints");
        let floor = || Bench::job(&format!("list-{kind}"), at, size);
        let (_, ours) =
            bench.ratio(&name, ratio, 3, floor, || Bench::job(&format!("noop-{kind}"), at, size))?;
        bench.at_most(
            &format!("no-op sync of {count} records, {kind} source: memory"),
            ours.peak_mb,
            peak_mb,
            "MB",
        );
    }
    let key = line::key(size / 2);
    let why = Bench::best(10, || trueup(at, &["why", &key]))?;
    bench.at_most(&format!("`trueup why KEY` among {count} keys"), why.seconds * MS, 50.0, "ms");
    Ok(())
}

/// `1,000,000`
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        let comma = if at > 0 && (digits.len() - at).is_multiple_of(3) { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{digit}");
    }
    text
}
