//! The command line: one file per command. Nothing here decides anything about data; it asks, shows, and returns an
//! exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use jiff::Timestamp;

use crate::clock::SystemClock;
use crate::error::{Error, Fault, Kind, Result};
use crate::state::report::gravest;

mod adopt;
mod audit;
mod check;
mod dead;
mod decide;
mod demo;
mod desk;
mod init;
mod kv;
mod log;
mod output;
mod page;
mod plan;
mod queue;
mod replica;
mod runs;
mod serve;
mod signals;
mod state;
mod status;
mod sync;
mod undo;
mod why;

use desk::Desk;
use output::Output;

/// Keeps keyed stores true to their sources.
#[derive(Parser)]
#[command(
    name = "trueup",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
#[allow(clippy::struct_excessive_bools)] // each is a flag a user types
struct Global {
    /// The config file
    #[arg(long, global = true, env = "TRUEUP_CONFIG", default_value = crate::config::FILE, value_name = "FILE")]
    config: PathBuf,
    /// One JSON document on stdout
    #[arg(long, global = true)]
    json: bool,
    /// Say nothing but results and errors
    #[arg(long, global = true)]
    quiet: bool,
    /// Say more: the opposite of --quiet
    #[arg(short, long, global = true)]
    verbose: bool,
    /// No colours (also by NO_COLOR)
    #[arg(long, global = true)]
    no_color: bool,
    /// Take this instant for now (RFC 3339), for tests
    #[arg(long, global = true, value_name = "RFC3339")]
    now: Option<Timestamp>,
}

#[derive(Subcommand)]
enum Command {
    /// Write a commented trueup.toml that runs as it is
    Init(init::Init),
    /// Parse the config, reach every source and store, say what is wrong and what to do
    Check,
    /// Show what a sync would do; writes nothing
    Plan(plan::Plan),
    /// Bring stores in step with their sources
    Sync(sync::Sync),
    /// What the guard holds back
    Held,
    /// Apply what is held under a plan
    Approve(decide::Approve),
    /// Drop what is held under a plan, until the source changes
    Reject(decide::Reject),
    /// Plan and apply the reverse of a run
    Undo(undo::Undo),
    /// The whole story of one key
    Why(why::Why),
    /// Take over keys that hold something trueup did not write
    Adopt(adopt::Adopt),
    /// Compare source, state and store
    Audit(audit::Audit),
    /// Follow-up work
    Queue(queue::Queue),
    /// Follow-up work that was given up
    Dead(dead::Dead),
    /// Keep an etcd prefix and PostgreSQL in step, both ways
    Replica(replica::Replica),
    /// Policies, issues and jobs of a workspace's pages
    Page(page::Page),
    /// What is due, running, failing, held
    Status,
    /// The history of runs, newest first
    Runs(runs::Runs),
    /// The state trueup keeps
    State(state::State),
    /// Look into any store, by name or URL, as an outsider would
    Kv(kv::Kv),
    /// Run what is due, and show it: scheduler, queue workers, replicas, HTTP API
    Serve(serve::Serve),
    /// See it work: no config, no network, no servers
    Demo(demo::Demo),
    /// Shell completions
    Completions { shell: clap_complete::Shell },
}

/// Parse, run, and say how it went.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    quiet_readers();
    let global = &cli.global;
    let out = Output::new(global.json, global.quiet && !global.verbose, global.no_color);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            out.error(&Error::new(Kind::Bug, "the program cannot start its threads").caused_by(error));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run(cli, out)).unwrap_or_else(|error| {
        out.error(&error);
        error.kind().exit_code()
    });
    // Blocking readers of a source that was given up on must not hold the program back.
    runtime.shutdown_background();
    ExitCode::from(gravest([code, shown_whole(out)]))
}

/// 0, or why not: whoever reads half a result must not be told that all is well.
fn shown_whole(out: Output) -> u8 {
    let Some(error) = output::unwritten() else { return 0 };
    // On stderr alone: stdout is what failed.
    out.fault(&Fault::of(&error));
    1
}

/// A panic inside a library that reads documents is caught and told as that document's error; it is not printed too.
fn quiet_readers() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !crate::workspace::extract::is_reading() {
            usual(info);
        }
    }));
}

async fn run(cli: Cli, out: Output) -> Result<u8> {
    let clock = SystemClock::fixed_at(cli.global.now);
    let desk = Desk { config: cli.global.config, out, clock };
    match cli.command {
        Command::Init(args) => args.run(&desk),
        Command::Check => check::run(&desk).await,
        Command::Plan(args) => args.run(&desk).await,
        Command::Sync(args) => args.run(&desk).await,
        Command::Held => decide::held(&desk).await,
        Command::Approve(args) => args.run(&desk).await,
        Command::Reject(args) => args.run(&desk).await,
        Command::Undo(args) => args.run(&desk).await,
        Command::Why(args) => args.run(&desk).await,
        Command::Adopt(args) => args.run(&desk).await,
        Command::Audit(args) => args.run(&desk).await,
        Command::Queue(args) => args.run(&desk).await,
        Command::Dead(args) => args.run(&desk).await,
        Command::Replica(args) => Box::pin(args.run(&desk)).await,
        Command::Page(args) => Box::pin(args.run(&desk)).await,
        Command::Status => status::run(&desk).await,
        Command::Runs(args) => args.run(&desk).await,
        Command::State(args) => args.run(&desk).await,
        Command::Kv(args) => args.run(&desk).await,
        Command::Serve(args) => Box::pin(args.run(&desk)).await,
        Command::Demo(args) => Box::pin(args.run(&desk)).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "trueup", &mut script);
            out.bytes(&script);
            Ok(0)
        }
    }
}

/// Help and version are results; anything else is a usage error, as JSON too if the line asked for JSON.
fn usage(error: &clap::Error) -> ExitCode {
    let out = Output::new(true, true, true);
    let printed = error.print();
    if !error.use_stderr() {
        output::written(printed);
        return ExitCode::from(shown_whole(out));
    }
    if std::env::args().any(|arg| arg == "--json") {
        out.json(&output::error_json(&misused(error)));
    }
    ExitCode::from(2)
}

/// What clap says over several lines, as one error: what is wrong, and the advice below it.
fn misused(error: &clap::Error) -> Error {
    let help = "See `trueup --help`.".to_owned();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Error::new(Kind::Config, "no command was named").remedy_is(help);
    }
    let text = error.to_string();
    let told = text.split("\n\n").map(|part| part.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    let mut told = told.map(|part| part.trim().to_owned());
    let what = told.next().unwrap_or_default();
    let advice: Vec<String> =
        told.filter(|part| part.starts_with("tip: ")).map(|tip| tip["tip: ".len()..].to_owned()).collect();
    let remedy = if advice.is_empty() { help } else { format!("{}. {help}", advice.join("; ")) };
    Error::new(Kind::Config, what.trim_start_matches("error: ")).remedy_is(remedy)
}
