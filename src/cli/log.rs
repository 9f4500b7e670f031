//! Log lines of a long-running command, on stderr: text for people, JSON for machines.

use std::fmt;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::clock::{SharedClock, rfc3339_ms};

/// Times in lines are times of the one clock there is.
struct Stamp(SharedClock);

impl FormatTime for Stamp {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        line.write_str(&rfc3339_ms(self.0.now()))
    }
}

pub fn start(json: bool, quiet: bool, clock: SharedClock) {
    let level = if quiet { tracing::Level::WARN } else { tracing::Level::INFO };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_timer(Stamp(clock))
        .with_target(false)
        .with_ansi(false)
        .with_writer(std::io::stderr);
    // Only one can be set per process, and this is it.
    drop(if json { lines.json().flatten_event(true).try_init() } else { lines.try_init() });
}
