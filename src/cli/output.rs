//! The only place that prints. Results go to stdout, everything else to stderr; `--json` makes the result one JSON
//! document; colours and bars appear on a terminal only. A result that could not be written is remembered, and makes
//! the command fail.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::error::{Error, Fault, from_io};
use crate::pipeline::{Progress, Silent};

#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // one per global flag
pub struct Output {
    pub json: bool,
    pub quiet: bool,
    pub color: bool,
    /// Show no results either: the demo tells its story as one document.
    pub silent: bool,
}

impl Output {
    pub fn new(json: bool, quiet: bool, no_color: bool) -> Self {
        let refused = no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Output { json, quiet, color: !refused && std::io::stdout().is_terminal(), silent: false }
    }

    /// The result: JSON if asked for, else the text.
    pub fn result<T: Serialize>(&self, value: &T, text: impl FnOnce() -> String) {
        if self.silent {
            return;
        }
        if self.json {
            return self.json(value);
        }
        let text = text();
        if !text.is_empty() {
            self.line(text.trim_end_matches('\n'));
        }
    }

    /// A line for people.
    pub fn line(&self, text: &str) {
        if !self.silent {
            line(&legible(text, self.color));
        }
    }

    pub fn json<T: Serialize>(&self, value: &T) {
        match serde_json::to_string(value) {
            Ok(json) => line(&json),
            Err(error) => remember(Error::bug("showing the result as JSON").caused_by(error)),
        }
    }

    /// Bytes as they are (`kv get`).
    pub fn bytes(&self, bytes: &[u8]) {
        if self.silent {
            return;
        }
        let mut out = std::io::stdout().lock();
        let end: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
        written(out.write_all(bytes).and_then(|()| out.write_all(end)));
    }

    /// Something a person may want to know on the way.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// To stderr.
    fn say(&self, text: &str) {
        say(&legible(text, self.color));
    }

    /// Something that went wrong on the way. It is said to the quiet too.
    pub fn trouble(&self, text: &str) {
        if !self.silent {
            self.say(text);
        }
    }

    /// An error that ended the command: text on stderr, and JSON on stdout when that was asked for.
    pub fn error(&self, error: &Error) {
        self.fault(&Fault::of(error));
        if self.json {
            self.json(&error_json(error));
        }
    }

    /// What went wrong beside a result that was shown.
    pub fn fault(&self, fault: &Fault) {
        self.say(&format!("{} {}", self.paint(Color::Red, "error:"), fault.message));
        self.say(&format!("  {} {}", self.paint(Color::Dim, "what to do:"), fault.remedy));
    }

    pub fn paint(&self, color: Color, text: &str) -> String {
        if self.color { format!("{}{text}{PLAIN}", color.ink()) } else { text.to_owned() }
    }

    /// Bars on a terminal, plain lines otherwise, nothing when quiet.
    pub fn progress(&self) -> Arc<dyn Progress> {
        if self.quiet {
            return Arc::new(Silent);
        }
        let bars = std::io::stderr().is_terminal();
        Arc::new(Shown { bars, bar: Mutex::new(None) })
    }
}

/// `{"error": {…}}`: what stdout shows when no run started.
pub fn error_json(error: &Error) -> serde_json::Value {
    let (kind, message, remedy) = (error.kind(), error.to_string(), error.remedy());
    serde_json::json!({ "error": { "kind": kind, "message": message, "remedy": remedy } })
}

/// To stderr. A closed pipe is the reader's choice, not an error of ours.
fn say(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()));
}

/// Why the result is not whole, if it is not. One for the process: there is one stdout.
static UNWRITTEN: Mutex<Option<Error>> = Mutex::new(None);

/// Why not all that was to go to stdout got there; asked once, at the end.
pub fn unwritten() -> Option<Error> {
    written(std::io::stdout().flush());
    UNWRITTEN.lock().ok().and_then(|mut first| first.take())
}

/// What became of writing to stdout. A closed pipe (`trueup runs | head`) is the reader's choice, not an error of ours.
pub fn written(outcome: std::io::Result<()>) {
    if let Err(error) = outcome
        && error.kind() != ErrorKind::BrokenPipe
    {
        let error = from_io(error, "writing the result to stdout");
        remember(
            error.remedy_is("Make room where stdout goes, or send it elsewhere; what was done is done."),
        );
    }
}

fn remember(error: Error) {
    if let Ok(mut first) = UNWRITTEN.lock() {
        first.get_or_insert(error);
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Color {
    Red,
    Green,
    Yellow,
    Dim,
    Bold,
}

/// Colours on their way to the terminal are characters that Unicode leaves to programs. Every escape sequence is made
/// at the very end, so that one that is part of a name is known for what it is.
const INKS: [(char, &str); 6] = [
    (PLAIN, "\u{1b}[0m"),
    ('\u{fdd1}', "\u{1b}[31m"),
    ('\u{fdd2}', "\u{1b}[32m"),
    ('\u{fdd3}', "\u{1b}[33m"),
    ('\u{fdd4}', "\u{1b}[2m"),
    ('\u{fdd5}', "\u{1b}[1m"),
];
const PLAIN: char = '\u{fdd0}';

impl Color {
    fn ink(self) -> char {
        match self {
            Color::Red => '\u{fdd1}',
            Color::Green => '\u{fdd2}',
            Color::Yellow => '\u{fdd3}',
            Color::Dim => '\u{fdd4}',
            Color::Bold => '\u{fdd5}',
        }
    }
}

/// Text for people. Control characters, which names and values of others may hold, are spelled out: on a terminal they
/// would move, hide or forge what is shown.
fn legible(text: &str, color: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match INKS.iter().find(|(ink, _)| color && *ink == letter) {
            Some((_, code)) => shown.push_str(code),
            None if letter.is_control() && !matches!(letter, '\n' | '\t') => {
                shown.extend(letter.escape_default())
            }
            None => shown.push(letter),
        }
    }
    shown
}

/// A name within a line: a line break in it is spelled out, too.
pub fn named(name: &str) -> String {
    name.replace('\n', "\\n")
}

struct Shown {
    bars: bool,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress for Shown {
    fn step(&self, pipeline: &str, name: &'static str, items: Option<u64>) {
        if !self.bars {
            match items {
                Some(0) => {}
                Some(items) => say(&legible(&format!("{pipeline}: {name} {items}"), false)),
                None => say(&legible(&format!("{pipeline}: {name}"), false)),
            }
            return;
        }
        let bar = match items {
            Some(items) => {
                ProgressBar::new(items).with_style(style("{prefix} {msg} {wide_bar} {pos}/{len} {eta}"))
            }
            None => ProgressBar::new_spinner().with_style(style("{spinner} {prefix} {msg}")),
        };
        bar.set_prefix(pipeline.to_owned());
        bar.set_message(name);
        bar.enable_steady_tick(TICK);
        if let Ok(mut shown) = self.bar.lock()
            && let Some(old) = shown.replace(bar)
        {
            old.finish_and_clear();
        }
    }

    fn advance(&self, items: u64) {
        if let Ok(shown) = self.bar.lock()
            && let Some(bar) = shown.as_ref()
        {
            if bar.length().is_none() {
                bar.set_style(style("{spinner} {prefix} {msg} {pos}"));
            }
            bar.inc(items);
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Ok(mut shown) = self.bar.lock()
            && let Some(bar) = shown.take()
        {
            bar.finish_and_clear();
        }
    }
}

/// Often enough to look alive.
const TICK: Duration = Duration::from_millis(120);

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Rows as columns, padded to the widest cell, by characters.
pub fn table(rows: &[Vec<String>]) -> String {
    let shown = |cell: &String| legible(&named(cell), false);
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width.saturating_sub(cell.chars().count()))));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// "1 key", "2 keys".
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
