//! What a config file says, as the rest of trueup sees it: names resolved, defaults filled in, paths complete.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::article::ArticleSpec;
use super::git::{GitSpec, GithubSpec};
use super::rest::RestSpec;
use super::rss::RssSpec;
use crate::secret::{Secret, SecretRef};

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
    pub replicas: BTreeMap<String, Replica>,
    pub workspaces: BTreeMap<String, Workspace>,
}

/// Pages, what is made of their policies, and where it is kept.
#[derive(Debug, Clone)]
pub struct Workspace {
    pub name: String,
    pub pages: PagesSpec,
    pub into: StoreSpec,
    pub llm: Option<LlmSpec>,
    pub purge_every: Duration,
    pub reanalyze: Reanalyze,
}

#[derive(Debug, Clone)]
pub enum PagesSpec {
    Folder(PathBuf),
    Confluence(ConfluenceSpec),
}

#[derive(Debug, Clone)]
pub struct ConfluenceSpec {
    /// Up to `/wiki`.
    pub url: String,
    /// With a user the token is a password; without, it is shown as it is.
    pub user: Option<String>,
    pub token: Option<SecretRef>,
    pub timeout: Duration,
}

/// A model behind an OpenAI-compatible API.
#[derive(Debug, Clone)]
pub struct LlmSpec {
    pub url: Address,
    pub model: String,
    pub token: Option<SecretRef>,
    /// For one answer.
    pub timeout: Duration,
}

/// What becomes of a page whose policies changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reanalyze {
    /// It is marked, and analysed again.
    Auto,
    /// It is marked.
    Mark,
}

/// An etcd prefix and a PostgreSQL database kept in step, both ways.
#[derive(Debug, Clone)]
pub struct Replica {
    pub name: String,
    pub etcd: Address,
    pub etcd_password: Option<SecretRef>,
    pub postgres: Address,
    pub postgres_password: Option<SecretRef>,
    pub schema: Option<String>,
    pub conflict: Conflict,
    pub poll: Option<Duration>,
    pub marker: Option<String>,
    pub max_attempts: Option<u32>,
    pub keep_history: Option<Duration>,
    pub keep_wal: Option<Duration>,
}

/// Who wins when both sides of a replica changed a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conflict {
    #[default]
    EtcdWins,
    PostgresWins,
    Hold,
}

/// Where a store is and how to get in. `name` is the config's name for it, or the URL without secrets.
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
    /// `cloudflare-kv://ACCOUNT/NAMESPACE`
    Cloudflare {
        account: String,
        /// Its id or its title.
        namespace: String,
    },
    /// `s3://bucket/prefix`
    S3 {
        bucket: String,
        prefix: String,
    },
    /// `etcd://HOST:PORT/PREFIX/`; a URL that may hold a password.
    Etcd(Address),
    /// `postgres://…`; a URL that may hold a password.
    Postgres(Address),
    /// `{ tables = "…" }`
    Tables(Database),
}

/// A database in which every resource has a table of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    /// A URL that may hold a password.
    Postgres(Address),
}

#[derive(Debug, Clone)]
pub struct Pipeline {
    pub name: String,
    pub from: From,
    pub shape: ShapeSpec,
    pub into: StoreSpec,
    /// Follow-up work for every change, in the order it was written.
    pub then: Vec<Then>,
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
    pub notify: Option<Notify>,
    pub keep_runs: Duration,
    pub journal: Journal,
    /// Hash of the pipeline's own settings and those of its store, secrets left out: a sealed plan names it.
    pub digest: String,
    /// The same of what is read and how it is understood, and nothing else.
    pub reading: String,
    /// Where its store is, in one way of writing, without secrets.
    pub place: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    Files { folder: PathBuf, include: Vec<String>, exclude: Vec<String> },
    Store { store: StoreSpec, prefix: String },
    Rss(RssSpec),
    Git(GitSpec),
    Github(GithubSpec),
    Rest(Box<RestSpec>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeSpec {
    Raw,
    Article(ArticleSpec),
    Policy,
    Rows(RowsSpec),
}

/// What becomes of a row that the source no longer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnMissing {
    /// It stays, with the instant it was first missed.
    Mark,
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsSpec {
    pub on_missing: OnMissing,
}

/// What is done with each change once it is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// Put the record into this store too.
    Export(StoreSpec),
    Webhook(Webhook),
    Command(Command),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub url: Address,
    /// Signs the request.
    pub secret: Option<SecretRef>,
    pub timeout: Duration,
}

/// A program and its arguments. They may hold what the environment filled in, so only the program is ever shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    pub program: String,
    pub args: Vec<String>,
    pub timeout: Duration,
    /// Where it runs: the config's folder.
    pub folder: PathBuf,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({} + {} arguments)", self.program, self.args.len())
    }
}

/// Whom to tell that a pipeline keeps failing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notify {
    pub webhook: Address,
    /// Failed runs in a row before the first message.
    pub after: u32,
}

/// A URL to call. Its path may be the very secret (many web hooks work so): only scheme and host are shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    url: Secret,
    shown: String,
}

impl Address {
    pub fn new(url: &str) -> Self {
        Address { url: Secret::new(url), shown: super::redact::origin(url) }
    }

    /// For the line that makes the request.
    pub fn expose(&self) -> &str {
        self.url.expose()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.shown)
    }
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
/// A web hook that takes longer is better off answering first and working later.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// Long enough for an import, short enough that a hung program is noticed the same hour.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);
