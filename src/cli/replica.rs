//! `trueup replica`: an etcd prefix and PostgreSQL, kept in step both ways.

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;

use super::desk::Desk;
use super::signals::{self, STOPPING};
use crate::error::Result;
use crate::operations::replicas;
use crate::replica::{Replica as Engine, StatusReport, Winner};

/// What to do where an audit could not tell.
const UNPROVEN: &str = "The mirror is behind, and etcd has compacted what would show whether it is only that. \
                        Let the replica run until it has caught up, and audit again.";

#[derive(Args)]
pub struct Replica {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install or upgrade the SQL schema
    Init { name: String },
    /// Keep both sides in step until stopped; a second instance stands by
    Run { name: String },
    /// Lag, rates, pending, conflicts, failed
    Status { name: String },
    /// Writes that wait for a person
    Conflicts { name: String },
    /// Decide a held conflict
    Resolve {
        name: String,
        id: i64,
        /// Whose value stays
        #[arg(value_enum)]
        winner: Side,
    },
    /// Take a fresh snapshot: etcd was replaced, or the mirror tampered with
    Resync { name: String },
    /// Compare both sides
    Audit {
        name: String,
        /// Put PostgreSQL right where it differs
        #[arg(long)]
        repair: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Side {
    Etcd,
    Postgres,
}

impl Replica {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let name = self.verb.name();
        let engine = replicas::replica(&config, name, desk.clock.clone())?;
        match self.verb {
            Verb::Init { .. } => show(desk, &engine.init().await?),
            Verb::Run { .. } => return Box::pin(run(desk, &engine)).await,
            Verb::Status { .. } => {
                let status = engine.status().await?;
                desk.out.result(&status, || told(&status));
                if let Some(error) = &status.error {
                    desk.out.fault(error);
                    return Ok(error.kind.exit_code());
                }
            }
            Verb::Conflicts { .. } => show(desk, &json!({ "conflicts": engine.conflicts().await? })),
            Verb::Resolve { id, winner, .. } => {
                let winner = match winner {
                    Side::Etcd => Winner::Etcd,
                    Side::Postgres => Winner::Postgres,
                };
                show(desk, &engine.resolve(id, winner).await?);
            }
            Verb::Resync { .. } => show(desk, &engine.resync().await?),
            Verb::Audit { repair, .. } => {
                let report = engine.audit(repair).await?;
                show(desk, &report);
                if !report.unproven.is_empty() {
                    desk.out.note(UNPROVEN);
                }
                return Ok(if report.is_clean() { 0 } else { 3 });
            }
        }
        Ok(0)
    }
}

impl Verb {
    fn name(&self) -> &str {
        match self {
            Verb::Init { name }
            | Verb::Run { name }
            | Verb::Status { name }
            | Verb::Conflicts { name }
            | Verb::Resolve { name, .. }
            | Verb::Resync { name }
            | Verb::Audit { name, .. } => name,
        }
    }
}

/// Reports are small: as JSON, or the same laid out for reading.
fn show<T: Serialize>(desk: &Desk, report: &T) {
    desk.out.result(report, || serde_json::to_string_pretty(report).unwrap_or_default());
}

/// How it is doing, for a person.
fn told(status: &StatusReport) -> String {
    let seconds = |seconds: Option<f64>| seconds.map_or("never".to_owned(), |it| format!("{it:.1} s"));
    let state = match (status.running, status.snapshot_revision) {
        (false, _) => "not running".to_owned(),
        (true, Some(revision)) => format!("running, taking a snapshot at revision {revision}"),
        (true, None) => "running".to_owned(),
    };
    let oldest = status.oldest_pending_seconds.map(|it| format!(", oldest {it:.1} s")).unwrap_or_default();
    let StatusReport { rates, pending, retrying, retries, .. } = status;
    let StatusReport { conflicts, held, failed, gaps, quarantined, .. } = status;
    let number = |number: Option<i64>| number.map_or("unknown".to_owned(), |it| it.to_string());
    [
        format!("{}: {state}", status.replica),
        format!("  prefix     {} into schema {}", status.prefix, status.schema),
        format!("  lag        {} revisions, {}", number(status.lag_revisions), seconds(status.lag_seconds)),
        format!("  mirrored   revision {} of {}", status.applied_revision, number(status.etcd_revision)),
        format!("  from etcd  {:.1} changes/s over the last minute", rates.from_etcd),
        format!("  to etcd    {:.1} writes/s over the last minute", rates.to_etcd),
        format!("  pending    {pending}{oldest}; {retrying} tried before, {retries} retries since it began"),
        format!(
            "  trouble    {conflicts} conflicts ({held} held), {failed} failed, {gaps} gaps, {quarantined} quarantined"
        ),
    ]
    .join("\n")
}

/// Run until a signal asks to stop: what is in flight is drained first.
async fn run(desk: &Desk, engine: &Engine) -> Result<u8> {
    let (stop, stopped) = watch::channel(false);
    let out = desk.out;
    signals::heed(move || {
        let first = !stop.send_replace(true);
        if first {
            out.note(STOPPING);
        }
        first
    });
    show(desk, &Box::pin(engine.run(stopped)).await?);
    Ok(0)
}
