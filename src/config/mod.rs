//! The config file, validated once. What comes out of here is known to be well-formed; nobody checks it again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::secret::SecretRef;

/// A whole `trueup.toml`.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it came from, as given; errors and the demo name it.
    pub file: PathBuf,
    /// Relative paths in the config are taken from here: the folder the file is in.
    pub base: PathBuf,
    pub state: StoreSpec,
    pub stores: BTreeMap<String, StoreSpec>,
    pub pipelines: BTreeMap<String, Pipeline>,
}

/// Where a store is and how to get in. `name` is the config's name for it, or the URL itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSpec {
    pub name: String,
    pub place: Place,
    /// `token_env` / `token_file` and friends, by the part of the key before `_env` or `_file` ("token", "secret_key").
    pub secrets: BTreeMap<String, SecretRef>,
    /// Other settings of this kind of store (`endpoint`, `region`, …), already checked to be known to it.
    pub options: BTreeMap<String, String>,
}

/// What a store URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Memory,
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `file:PATH`
    Folder(PathBuf),
    /// `s3://bucket/prefix`
    S3 {
        bucket: String,
        prefix: String,
    },
}

#[derive(Debug, Clone)]
pub struct Pipeline {
    pub name: String,
    pub from: From,
    pub shape: ShapeSpec,
    pub into: StoreSpec,
    /// Cron expression; kept as text until the scheduler reads it.
    pub when: Option<String>,
    pub tz: String,
    pub catch_up: bool,
    pub enabled: bool,
    pub guard: Guard,
    pub adopt: bool,
    /// Items per write; `None` = what the store does best.
    pub batch: Option<usize>,
    /// Bodies read at the same time.
    pub concurrency: usize,
    pub drift: Drift,
    pub keep_runs: Duration,
    pub journal: Journal,
    /// Hash of the pipeline's own settings and those of its store, secrets left out: a sealed plan names it.
    pub digest: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    Files { folder: PathBuf, include: Vec<String>, exclude: Vec<String> },
    Store { store: StoreSpec, prefix: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeSpec {
    Raw,
}

/// How much may change at once before a person is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guard {
    pub max_delete: Limit,
    pub max_update: Limit,
    /// A percentage applies only when the baseline holds more than this many keys.
    pub above: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    Percent(f64),
    Count(u64),
}

impl Default for Guard {
    fn default() -> Self {
        Guard { max_delete: Limit::Percent(30.0), max_update: Limit::Percent(100.0), above: 10 }
    }
}

/// What a pass does about a store that was changed behind its back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heal {
    Heal,
    Report,
    Adopt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift {
    pub edited: Heal,
    pub missing: Heal,
    pub extra: Heal,
}

impl Default for Drift {
    fn default() -> Self {
        Drift { edited: Heal::Heal, missing: Heal::Heal, extra: Heal::Report }
    }
}

/// How long prior values are kept for `undo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Journal {
    pub keep: Duration,
    pub max_bytes: u64,
}

impl Default for Journal {
    fn default() -> Self {
        Journal { keep: DAYS_30, max_bytes: 1_000_000_000 }
    }
}

/// Long enough to notice a mistake after a holiday.
pub const DAYS_30: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bodies read at the same time unless the config says otherwise: keeps a disk or an API busy without flooding it.
pub const CONCURRENCY: usize = 8;
