//! Figures on paper: the table, the machine they are from, and the section of `docs/benchmarks.md` between a bench's
//! markers. Everything outside the markers belongs to people.

use std::fmt::Write as _;
use std::path::Path;

use super::{Figure, Outcome};

/// The command and the machine, without anything that says when or whose.
pub fn facts(command: &str) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let gib = proc_kib("/proc/meminfo", "MemTotal:") / (1_024.0 * 1_024.0);
    format!(
        "`{command}` on {cores} cores, {gib:.0} GiB of memory; the best of several runs, floor and ours in turns."
    )
}

pub fn table(figures: &[Figure]) -> String {
    let mut text =
        String::from("| figure | floor | trueup | ratio | allowed | |\n|---|---|---|---|---|---|\n");
    for figure in figures {
        let Figure { name, floor, ours, ratio, allowed, verdict } = figure;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | {floor} | {ours} | {ratio} | {allowed} | {verdict} |");
    }
    text
}

/// Put the table between the bench's markers; a page or a section that is not there is made.
pub fn write(name: &str, figures: &[Figure]) -> Outcome<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks.md");
    let (open, close) = (format!("<!-- figures: {name} -->"), format!("<!-- end of figures: {name} -->"));
    let section =
        format!("{open}\n{}\n\n{}{close}", facts(&format!("./x bench {name} --write")), table(figures));
    let page = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Benchmarks\n".into());
    let page = match (page.find(&open), page.find(&close)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{section}{}", &page[..from], &page[to + close.len()..])
        }
        _ => format!("{}\n\n## {name}\n\n{section}\n", page.trim_end()),
    };
    std::fs::write(&path, page)?;
    Ok(())
}

/// The most memory this process ever held.
pub fn peak_kib() -> f64 {
    proc_kib("/proc/self/status", "VmHWM:")
}

/// The same of another process, nought when it is gone.
pub fn peak_kib_of(process: u32) -> f64 {
    proc_kib(&format!("/proc/{process}/status"), "VmHWM:")
}

fn proc_kib(file: &str, line: &str) -> f64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let value = text.lines().find_map(|row| row.strip_prefix(line)).unwrap_or_default();
    value.trim().trim_end_matches("kB").trim().parse().unwrap_or(0.0)
}

pub fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1_000.0) } else { format!("{seconds:.2} s") }
}

/// As many digits as a person reads.
pub fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{}", (value * 10.0).round() / 10.0) }
}
