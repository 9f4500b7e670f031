//! `trueup page`: policies, issues and jobs of a workspace's pages.

use clap::{Args, Subcommand, value_parser};
use serde::Serialize;
use serde_json::json;

use super::desk::Desk;
use super::output::{Color, count, table};
use crate::clock::rfc3339_ms;
use crate::config::{self, Config};
use crate::error::{Error, Kind, Result};
use crate::store::Access;
use crate::workspace::{
    Analysis, Catalogue, Issue, Job, Language, NewIssue, Passage, Purged, Severity, Status, Workspace,
};

#[derive(Args)]
pub struct Page {
    /// The workspace; may be left out when there is one
    #[arg(long, global = true, value_name = "NAME")]
    workspace: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// The policies of a page, and the languages they are there in
    Policies { page: String },
    /// A policy as Markdown, translated if need be
    Policy {
        page: String,
        source: String,
        /// de, en, es, fr, it, pt, ro, fi or sv; left out: as it was written
        #[arg(long)]
        language: Option<String>,
    },
    /// The issues of a page
    Issues { page: String },
    /// Make or change an issue
    Issue {
        #[command(subcommand)]
        verb: IssueVerb,
    },
    /// Compare the page with its policies; shows the issues that are new
    Analyze { page: String },
    /// Work in the background, and how it is getting on
    Jobs {
        /// Do what waits, and return
        #[arg(long)]
        work: bool,
    },
    /// Remove everything kept of a page
    Clear { page: String },
    /// Remove what is kept of pages that are gone
    Purge {
        /// Now, whenever the last one was
        #[arg(long)]
        force: bool,
    },
}

#[derive(Subcommand)]
pub enum IssueVerb {
    /// Make an issue
    Create {
        page: String,
        #[arg(long)]
        title: String,
        /// 1 minor, 2 notable, 3 grave
        #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=3))]
        severity: u64,
        #[arg(long)]
        description: Option<String>,
    },
    /// Set the severity: 1 minor, 2 notable, 3 grave
    Classify {
        page: String,
        id: String,
        #[arg(value_parser = value_parser!(u64).range(1..=3))]
        severity: u64,
    },
    /// Replace the notes (Markdown); an empty text removes them
    Annotate { page: String, id: String, text: String },
    /// It is dealt with; the first time counts
    Resolve { page: String, id: String },
    /// It is not dealt with after all
    Reopen { page: String, id: String },
}

impl Page {
    /// As the command line would give it.
    pub fn of(verb: Verb) -> Self {
        Page { workspace: None, verb }
    }

    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let spec = chosen(&config, self.workspace.as_deref())?;
        let workspace = Workspace::open(spec, Access::Write, desk.clock.clone()).await?;
        let upkeep = !matches!(self.verb, Verb::Purge { .. } | Verb::Clear { .. } | Verb::Jobs { .. });
        let code = self.verb.run(desk, &workspace).await?;
        if upkeep && let Err(error) = workspace.purge(false).await {
            desk.out.note(&format!("The purge of pages that are gone did not work: {error}"));
        }
        Ok(code)
    }
}

impl Verb {
    async fn run(self, desk: &Desk, workspace: &Workspace) -> Result<u8> {
        match self {
            Verb::Policies { page } => policies(desk, workspace, &page).await,
            Verb::Policy { page, source, language } => {
                let language = language.as_deref().map(Language::named).transpose()?;
                let document = workspace.policy(&page, &source, language).await?;
                desk.out.result(&document, || document.content.clone());
                Ok(0)
            }
            Verb::Issues { page } => {
                let issues = workspace.issues(&page).await?;
                desk.out.result(&json!({ "issues": issues }), || issues_text(desk, &issues));
                Ok(0)
            }
            Verb::Issue { verb } => {
                let issue = verb.run(workspace).await?;
                desk.out.result(&issue, || issues_text(desk, std::slice::from_ref(&issue)));
                Ok(0)
            }
            Verb::Analyze { page } => {
                let analysis = workspace.analyze(&page).await?;
                desk.out.result(&analysis, || analysis_text(desk, &analysis));
                Ok(if analysis.errors.is_empty() { 0 } else { 3 })
            }
            Verb::Jobs { work } => jobs(desk, workspace, work).await,
            Verb::Clear { page } => {
                let cleared = workspace.clear(&page).await?;
                let removed = u64::try_from(cleared.removed).unwrap_or(u64::MAX);
                desk.out.result(&cleared, || format!("Removed {} of page {page}.", count(removed, "key")));
                Ok(0)
            }
            Verb::Purge { force } => {
                let purged = workspace.purge(force).await?;
                desk.out.result(&purged, || purged_text(&purged));
                Ok(if purged.unknown.is_empty() { 0 } else { 3 })
            }
        }
    }
}

impl IssueVerb {
    async fn run(self, workspace: &Workspace) -> Result<Issue> {
        match self {
            IssueVerb::Create { page, title, severity, description } => {
                let description = description.into_iter().map(Passage::Text).collect();
                let new = NewIssue { title, severity: Severity::try_from(severity)?, description };
                workspace.issue_create(&page, new).await
            }
            IssueVerb::Classify { page, id, severity } => {
                workspace.issue_classify(&page, &id, Severity::try_from(severity)?).await
            }
            IssueVerb::Annotate { page, id, text } => workspace.issue_annotate(&page, &id, &text).await,
            IssueVerb::Resolve { page, id } => workspace.issue_resolve(&page, &id).await,
            IssueVerb::Reopen { page, id } => workspace.issue_reopen(&page, &id).await,
        }
    }
}

/// The workspace named, or the only one.
pub fn chosen<'c>(config: &'c Config, name: Option<&str>) -> Result<&'c config::Workspace> {
    let names: Vec<&str> = config.workspaces.keys().map(String::as_str).collect();
    let problem = |message: String| {
        let remedy = match names[..] {
            [] => "Add a `[workspaces.NAME]`; `trueup init workspace` writes one.".to_owned(),
            _ => format!("Workspaces in the config: {}.", names.join(", ")),
        };
        Error::new(Kind::Config, message).remedy_is(remedy)
    };
    match (name, &names[..]) {
        (Some(name), _) => config.workspaces.get(name).ok_or_else(|| {
            let hint = config::suggestion(name, names.iter().copied());
            problem(format!("there is no workspace {name}{hint}"))
        }),
        (None, [only]) => config
            .workspaces
            .get(*only)
            .ok_or_else(|| Error::bug("a workspace went missing between two lines")),
        (None, []) => Err(problem("the config has no workspace".to_owned())),
        (None, _) => {
            Err(problem("there are several workspaces; name one with `--workspace NAME`".to_owned()))
        }
    }
}

async fn policies(desk: &Desk, workspace: &Workspace, page: &str) -> Result<u8> {
    let catalogue = workspace.policies(page).await?;
    desk.out.result(&catalogue, || catalogue_text(desk, &catalogue));
    if catalogue.analysis_stale {
        let waits = workspace.jobs().await?.iter().any(|job| !job.status.is_final());
        if waits {
            desk.out.note("An analysis is queued: `trueup page jobs --work` does it.");
        }
    }
    Ok(0)
}

fn catalogue_text(desk: &Desk, catalogue: &Catalogue) -> String {
    let mut rows = vec![head(&["SOURCE", "TITLE", "LANGUAGE", "COPIES", ""])];
    for policy in &catalogue.policies {
        let codes: Vec<&str> = policy.languages.iter().map(|language| language.code()).collect();
        rows.push(vec![
            policy.source.clone(),
            policy.title.clone(),
            policy.language.map_or("-", Language::code).to_owned(),
            if codes.is_empty() { "-".to_owned() } else { codes.join(" ") },
            if policy.stale { "changed".to_owned() } else { String::new() },
        ]);
    }
    let mut text =
        if catalogue.policies.is_empty() { "The page has no policies.\n".into() } else { table(&rows) };
    if catalogue.analysis_stale {
        text.push_str(&desk.out.paint(Color::Yellow, "Policies changed since the page was analysed.\n"));
    }
    text
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn issues_text(desk: &Desk, issues: &[Issue]) -> String {
    if issues.is_empty() {
        return "There are no issues.".into();
    }
    let mut text = String::new();
    for issue in issues {
        let state = match issue.resolved {
            Some(at) => desk.out.paint(Color::Green, &format!("resolved {}", rfc3339_ms(at))),
            None => desk.out.paint(Color::Yellow, "pending"),
        };
        let severity = issue.severity.get();
        let title = desk.out.paint(Color::Bold, &issue.title);
        text.push_str(&format!("{}  severity {severity}  {state}\n  {title}\n", issue.id));
        for passage in &issue.description {
            match passage {
                Passage::Text(words) => text.push_str(&format!("  {}\n", indented(words))),
                Passage::Reference(place) => {
                    let gone = if place.unresolved { " (not found there any more)" } else { "" };
                    text.push_str(&format!("  > {}\n    {}{gone}\n", indented(&place.excerpt), place.source));
                }
            }
        }
        if let Some(notes) = &issue.annotations {
            text.push_str(&format!("  {} {}\n", desk.out.paint(Color::Dim, "notes:"), indented(notes)));
        }
    }
    text
}

/// Further lines stand below the first.
fn indented(text: &str) -> String {
    text.trim().replace('\n', "\n    ")
}

fn analysis_text(desk: &Desk, analysis: &Analysis) -> String {
    let mut text = if analysis.issues.is_empty() {
        "Nothing new.\n".to_owned()
    } else {
        issues_text(desk, &analysis.issues)
    };
    for fault in &analysis.errors {
        text.push_str(&format!("{} {}\n", desk.out.paint(Color::Red, "error:"), fault.message));
        text.push_str(&format!("  {} {}\n", desk.out.paint(Color::Dim, "what to do:"), fault.remedy));
    }
    text
}

#[derive(Serialize)]
struct Jobs {
    jobs: Vec<Job>,
}

async fn jobs(desk: &Desk, workspace: &Workspace, work: bool) -> Result<u8> {
    let jobs = Jobs { jobs: if work { workspace.work().await? } else { workspace.jobs().await? } };
    desk.out.result(&jobs, || jobs_text(&jobs.jobs));
    let failed = jobs.jobs.iter().any(|job| matches!(job.status, Status::Error { .. }));
    Ok(if work && failed { 3 } else { 0 })
}

fn jobs_text(jobs: &[Job]) -> String {
    if jobs.is_empty() {
        return "No jobs.".into();
    }
    let mut rows = vec![head(&["JOB", "TASK", "STATUS", "UPDATED"])];
    for job in jobs {
        let status = match &job.status {
            Status::Activity { activity } => name_of(activity),
            Status::Value { .. } => "done".to_owned(),
            Status::Error { code, text } => format!("error {code}: {text}"),
        };
        rows.push(vec![job.id.clone(), task(job), status, rfc3339_ms(job.updated)]);
    }
    table(&rows)
}

/// `analyze welcome`.
fn task(job: &Job) -> String {
    let value = serde_json::to_value(&job.task).unwrap_or_default();
    let words = ["task", "page", "source", "language"].iter().filter_map(|name| value[name].as_str());
    words.collect::<Vec<_>>().join(" ")
}

fn name_of<T: Serialize>(word: &T) -> String {
    serde_json::to_value(word).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn purged_text(purged: &Purged) -> String {
    if !purged.ran {
        return "Not due yet; `--force` purges now.".into();
    }
    let number = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let mut text = format!(
        "Asked about {}; {} gone, {} removed.\n",
        count(number(purged.pages), "page"),
        purged.gone.len(),
        count(number(purged.removed), "key")
    );
    for fault in &purged.unknown {
        let page = fault.scope.as_deref().unwrap_or_default();
        text.push_str(&format!("Nothing is known of page {page}, so it stays: {}\n", fault.message));
    }
    text
}
