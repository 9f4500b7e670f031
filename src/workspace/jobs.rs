//! Jobs: work that outlives the request that asked for it, with a status anybody can look at.
//!
//! The status is written before the job is queued, so there is never a job without one; a worker that is faster than
//! its submitter is not overwritten. `seq` only grows, and a final status never changes. A worker holds a lease that
//! every step renews: one that died is noticed, and its job ends in error 504. Nothing here runs work twice.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ulid::Ulid;

use super::analyze::State;
use super::language::Language;
use super::pages::Existence;
use super::shelf::{Held, Shelf, crowded};
use super::{Reanalyze, Workspace, instant, keys};
use crate::error::{Error, Kind, Result};
use crate::record::Version;
use crate::store::Expect;

/// A step of a job waits for a model at most; each step renews this.
pub const LEASE: Duration = Duration::from_secs(900);
/// A final status is kept this long after it was first read, for whoever else is waiting for it …
pub const KEPT_AFTER_READING: Duration = Duration::from_secs(30);
/// … and this long when nobody reads it.
pub const KEPT_UNREAD: Duration = Duration::from_secs(3_600);

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "lowercase")]
pub enum Task {
    Policies {
        page: String,
    },
    Policy {
        page: String,
        source: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        language: Option<Language>,
    },
    Analyze {
        page: String,
    },
    /// Analyse if the page is still stale by then.
    Reanalyze {
        page: String,
    },
    Clear {
        page: String,
    },
    Purge {
        #[serde(default)]
        force: bool,
    },
}

impl Task {
    /// The page it is about.
    pub fn page(&self) -> Option<&str> {
        match self {
            Task::Policies { page }
            | Task::Policy { page, .. }
            | Task::Analyze { page }
            | Task::Reanalyze { page }
            | Task::Clear { page } => Some(page),
            Task::Purge { .. } => None,
        }
    }
}

/// What a job is doing, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    Submitting,
    Scheduling,
    Locking,
    Scanning,
    Fetching,
    Caching,
    Purging,
    Prompting,
    Uploading,
    Extracting,
    Translating,
    Analyzing,
}

impl Activity {
    pub fn name(self) -> &'static str {
        match self {
            Activity::Submitting => "submitting",
            Activity::Scheduling => "scheduling",
            Activity::Locking => "locking",
            Activity::Scanning => "scanning",
            Activity::Fetching => "fetching",
            Activity::Caching => "caching",
            Activity::Purging => "purging",
            Activity::Prompting => "prompting",
            Activity::Uploading => "uploading",
            Activity::Extracting => "extracting",
            Activity::Translating => "translating",
            Activity::Analyzing => "analyzing",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Status {
    Activity { activity: Activity },
    Value { value: Value },
    Error { code: u16, text: String },
}

impl Status {
    pub fn is_final(&self) -> bool {
        !matches!(self, Status::Activity { .. })
    }

    pub fn of_error(error: &Error) -> Self {
        Status::Error { code: code(error), text: format!("{error}. {}", error.remedy()) }
    }
}

/// The status code that says the same.
pub fn code(error: &Error) -> u16 {
    match error.kind() {
        Kind::Invalid | Kind::Config => 400,
        Kind::Unauthorized => 403,
        Kind::NotFound => 404,
        Kind::Conflict | Kind::Busy | Kind::CursorLost => 409,
        Kind::Throttled => 429,
        Kind::Canceled => 499,
        Kind::Unavailable => 503,
        Kind::Full => 507,
        Kind::Corrupt | Kind::Bug => 500,
    }
}

/// A job as anybody sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    #[serde(flatten)]
    pub task: Task,
    #[serde(flatten)]
    pub status: Status,
    pub seq: u64,
    #[serde(with = "instant")]
    pub updated: Timestamp,
}

/// A job as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    job: Job,
    /// When the final status was first read.
    #[serde(default, with = "instant::option", skip_serializing_if = "Option::is_none")]
    read: Option<Timestamp>,
    /// Until when a worker's silence is believed; none while nobody took the job.
    #[serde(default, with = "instant::option", skip_serializing_if = "Option::is_none")]
    lease: Option<Timestamp>,
    /// Who took it: two workers never write the same claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
}

/// A job's place in the queue, until it is done.
#[derive(Debug, Serialize, Deserialize)]
struct Ticket {
    job: String,
}

/// Where work says what it is doing: a job's status, or nowhere.
pub struct Notes(Option<(Arc<Shelf>, String)>);

impl Notes {
    pub fn none() -> Self {
        Notes(None)
    }

    /// An error when the job was given up meanwhile: then the work ends, too.
    pub async fn say(&self, activity: Activity) -> Result<()> {
        match &self.0 {
            None => Ok(()),
            Some((shelf, id)) => advance(shelf, id, &Status::Activity { activity }).await,
        }
    }
}

impl Workspace {
    /// Ask for work. The answer is there at once; the work is done by whoever calls [`Workspace::work_one`].
    pub async fn submit(&self, task: Task) -> Result<Job> {
        let now = instant::to_ms(self.shelf.clock.now());
        let random = u128::from(self.shelf.clock.random()) << 64 | u128::from(self.shelf.clock.random());
        let at = u64::try_from(now.as_millisecond()).unwrap_or(0);
        let id = Ulid::from_parts(at, random).to_string();
        let status = Status::Activity { activity: Activity::Submitting };
        let mut row = Row {
            job: Job { id, task, status, seq: 1, updated: now },
            read: None,
            lease: None,
            worker: None,
        };
        let key = keys::job_key(&row.job.id)?;
        let Some(version) = self.shelf.put(&key, &row, Expect::Absent).await? else {
            return Err(Error::bug("two jobs were given one id"));
        };
        let ticket = Ticket { job: row.job.id.clone() };
        self.shelf.put(&ticket_key(&row.job.id)?, &ticket, Expect::Absent).await?;
        // A worker may have been here already; then its word stands.
        row.job.status = Status::Activity { activity: Activity::Scheduling };
        row.job.seq = 2;
        match self.shelf.put(&key, &row, Expect::Exactly(version)).await? {
            Some(_) => Ok(row.job),
            None => self.peek(&row.job.id).await,
        }
    }

    /// How a job is getting on. Reading a final status starts the time until it is forgotten.
    pub async fn job(&self, id: &str) -> Result<Job> {
        let held = self.live(id).await?;
        let mut row = held.what;
        if row.job.status.is_final() && row.read.is_none() {
            row.read = Some(instant::to_ms(self.shelf.clock.now()));
            // Another reader may have been first; its time counts.
            self.shelf.put(&keys::job_key(id)?, &row, Expect::Exactly(held.version)).await?;
        }
        Ok(row.job)
    }

    async fn peek(&self, id: &str) -> Result<Job> {
        self.live(id).await.map(|held| held.what.job)
    }

    /// Every job there is, oldest first; looking at the list reads none of them.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for (_, held) in self.shelf.all::<Row>("job:").await? {
            jobs.extend(self.aged(held).await?.map(|held| held.what.job));
        }
        Ok(jobs)
    }

    async fn live(&self, id: &str) -> Result<Held<Row>> {
        let held: Option<Held<Row>> = self.shelf.read(&keys::job_key(id)?).await?;
        let held = match held {
            Some(held) => self.aged(held).await?,
            None => None,
        };
        held.ok_or_else(|| {
            Error::new(Kind::NotFound, format!("there is no job {}", id.escape_debug()))
                .remedy_is("`trueup page jobs` lists them; what is done is kept for an hour at most.")
        })
    }

    /// What time did to a job: a dead worker's ends in error 504, a final one is forgotten.
    async fn aged(&self, held: Held<Row>) -> Result<Option<Held<Row>>> {
        let now = self.shelf.clock.now();
        let row = &held.what;
        let passed = |since: Timestamp, lasting: Duration| {
            now.duration_since(since) >= SignedDuration::try_from(lasting).unwrap_or(SignedDuration::MAX)
        };
        if row.job.status.is_final() {
            let forgotten = passed(row.job.updated, KEPT_UNREAD)
                || row.read.is_some_and(|read| passed(read, KEPT_AFTER_READING));
            if forgotten {
                self.shelf.remove(vec![(keys::job_key(&row.job.id)?, held.version)]).await?;
                return Ok(None);
            }
            return Ok(Some(held));
        }
        if row.lease.is_none_or(|lease| lease > now) {
            return Ok(Some(held));
        }
        let id = row.job.id.clone();
        let text = "the worker of this job died, or did not report in time".to_owned();
        // It may have reported just now: then its word stands.
        drop(advance_from(&self.shelf, held, &Status::Error { code: 504, text }).await?);
        self.shelf.read(&keys::job_key(&id)?).await
    }

    /// Do the oldest job that waits. `None` when there is none.
    pub async fn work_one(&self) -> Result<Option<Job>> {
        let tickets = self.shelf.all::<Ticket>("system:task.").await?;
        for (key, ticket) in tickets {
            let (id, ticket) = (ticket.what.job, (key, ticket.version));
            match self.claim(&id).await? {
                Claim::Taken(task) => {
                    let done = self.carry_out(&id, task).await;
                    self.shelf.remove(vec![ticket]).await?;
                    return done.map(Some);
                }
                Claim::Over => drop(self.shelf.remove(vec![ticket]).await?),
                Claim::Busy => {}
            }
        }
        Ok(None)
    }

    /// Do every job that waits, and what is to be tried again by now; how many were done.
    pub async fn work(&self) -> Result<Vec<Job>> {
        self.analyze_all_again().await?;
        let mut done = Vec::new();
        while let Some(job) = self.work_one().await? {
            done.push(job);
        }
        Ok(done)
    }

    async fn claim(&self, id: &str) -> Result<Claim> {
        let held: Option<Held<Row>> = self.shelf.read(&keys::job_key(id)?).await?;
        let held = match held {
            Some(held) => self.aged(held).await?,
            None => None,
        };
        let Some(mut held) = held else { return Ok(Claim::Over) };
        if held.what.job.status.is_final() {
            return Ok(Claim::Over);
        }
        if held.what.lease.is_some() {
            return Ok(Claim::Busy);
        }
        let task = held.what.job.task.clone();
        let taken = Status::Activity { activity: Activity::Scheduling };
        held.what.worker = Some(format!("{:016x}", self.shelf.clock.random()));
        Ok(match advance_from(&self.shelf, held, &taken).await? {
            Some(_) => Claim::Taken(task),
            None => Claim::Busy,
        })
    }

    async fn carry_out(&self, id: &str, task: Task) -> Result<Job> {
        let notes = Notes(Some((self.shelf.clone(), id.to_owned())));
        let status = match self.perform(task, &notes).await {
            Ok(value) => Status::Value { value },
            Err(error) => Status::of_error(&error),
        };
        if let Err(error) = advance(&self.shelf, id, &status).await {
            // The result itself could not be kept; if the job was given up meanwhile, that stands.
            drop(advance(&self.shelf, id, &Status::of_error(&error)).await);
        }
        self.peek(id).await
    }

    async fn perform(&self, task: Task, notes: &Notes) -> Result<Value> {
        match task {
            Task::Policies { page } => json(&self.policies_noting(&page, notes).await?),
            Task::Policy { page, source, language } => {
                json(&self.policy_noting(&page, &source, language, notes).await?)
            }
            Task::Analyze { page } => json(&self.analyze_noting(&page, notes).await?),
            Task::Reanalyze { page } => {
                if self.analysis(&page).await?.is_stale() {
                    json(&self.analyze_noting(&page, notes).await?)
                } else {
                    Ok(serde_json::json!({ "issues": [] }))
                }
            }
            Task::Clear { page } => {
                notes.say(Activity::Purging).await?;
                json(&self.clear(&page).await?)
            }
            Task::Purge { force } => {
                notes.say(Activity::Purging).await?;
                json(&self.purge(force).await?)
            }
        }
    }

    /// Analyse a page again, unless that is on its way already.
    pub(super) async fn submit_analysis(&self, page: &str) -> Result<()> {
        if self.is_open(self.analysis(page).await?.job.as_deref()).await {
            return Ok(());
        }
        let job = self.submit(Task::Reanalyze { page: page.to_owned() }).await?;
        let (now, chance) = (self.shelf.clock.now(), self.shelf.clock.chance());
        self.note_analysis(page, |state| {
            state.job = Some(job.id.clone());
            state.attempts = state.attempts.saturating_add(1);
            state.attempted(now, chance);
        })
        .await
    }

    async fn is_open(&self, job: Option<&str>) -> bool {
        let Some(id) = job else { return false };
        self.peek(id).await.is_ok_and(|job| !job.status.is_final())
    }

    /// Queue the analysis of a stale page once more: the last one failed, and its time has come.
    pub(super) async fn analyze_again(&self, page: &str) -> Result<()> {
        let state = self.analysis(page).await?;
        let due = state.not_before.is_none_or(|at| at <= self.shelf.clock.now());
        if self.reanalyze == Reanalyze::Auto && self.llm.is_some() && state.is_stale() && due {
            self.submit_analysis(page).await?;
        }
        Ok(())
    }

    /// The same for every page an analysis of which failed. Pages nobody ever queued one for are seen to by who looks at them.
    pub async fn analyze_all_again(&self) -> Result<()> {
        if self.reanalyze != Reanalyze::Auto || self.llm.is_none() {
            return Ok(());
        }
        let now = self.shelf.clock.now();
        for (key, held) in self.shelf.all::<State>(ANALYSES).await? {
            let due = held.what.is_stale() && held.what.not_before.is_some_and(|at| at <= now);
            let Some(page) = key.strip_prefix(ANALYSES).filter(|_| due) else { continue };
            if matches!(self.pages.exists(page).await, Existence::Gone) {
                self.note_analysis(page, |state| state.not_before = None).await?;
            } else {
                self.analyze_again(page).await?;
            }
        }
        Ok(())
    }
}

/// What is remembered about analyses, by page.
const ANALYSES: &str = "system:analysis.";

enum Claim {
    Taken(Task),
    Busy,
    Over,
}

fn json<T: Serialize>(value: &T) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| Error::bug("a result is no JSON").caused_by(error))
}

fn ticket_key(id: &str) -> Result<String> {
    keys::system_key("task", Some(id))
}

/// The next status of a job that this worker holds.
async fn advance(shelf: &Shelf, id: &str, status: &Status) -> Result<()> {
    let key = keys::job_key(id)?;
    for round in Shelf::rounds() {
        let held: Option<Held<Row>> = shelf.read(&key).await?;
        let held = held.filter(|held| !held.what.job.status.is_final());
        let Some(held) = held else {
            return Err(Error::new(Kind::Conflict, format!("job {id} was given up meanwhile")));
        };
        if advance_from(shelf, held, status).await?.is_some() {
            return Ok(());
        }
        shelf.pause(round).await;
    }
    Err(crowded(&key))
}

/// The next status, if the job is still as it was seen.
async fn advance_from(shelf: &Shelf, held: Held<Row>, status: &Status) -> Result<Option<Version>> {
    let mut row = held.what;
    let now = shelf.clock.now();
    row.job.status = status.clone();
    row.job.seq += 1;
    row.job.updated = instant::to_ms(now);
    row.lease = Some(now.saturating_add(LEASE).unwrap_or(now)).filter(|_| !status.is_final());
    shelf.put(&keys::job_key(&row.job.id)?, &row, Expect::Exactly(held.version)).await
}
