//! Workspaces: policies, issues and jobs of pages. What takes long, like an analysis, is a job whose status is asked for.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Number, json};

use crate::error::{Error, Result};
use crate::server::House;
use crate::server::answer::{self, Answer, Asked, Named, No};
use crate::workspace::jobs::{self, Task};
use crate::workspace::{Language, NewIssue, Passage, Severity, Workspace};

#[derive(Debug, Deserialize)]
pub struct In {
    language: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Created {
    title: String,
    #[serde(default = "minor")]
    severity: Number,
    description: Option<String>,
}

fn minor() -> Number {
    1.into()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Classified {
    severity: Number,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotated {
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Translated {
    language: String,
}

#[derive(Debug, Deserialize)]
pub struct Which {
    after: Option<String>,
    limit: Option<usize>,
}

/// Pages of one answer, unless told otherwise.
const LIMIT: usize = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeAsked {
    #[serde(default)]
    force: bool,
}

/// People's mistakes and what is not there, as the statuses of jobs name them.
fn refused(error: Error) -> No {
    let status = StatusCode::from_u16(jobs::code(&error));
    match status {
        Ok(status @ (StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::CONFLICT)) => {
            No(status, error)
        }
        _ => No::from(error),
    }
}

/// JSON does not tell 3.0 from 3.
fn severity_of(number: &Number) -> Result<Severity, No> {
    let text = number.to_string();
    let whole = text.strip_suffix(".0").unwrap_or(&text);
    Severity::try_from(whole.parse::<u64>().unwrap_or(0)).map_err(refused)
}

/// Ask a workspace; whoever asked may go away, the work goes on.
pub async fn ask<T, F>(
    house: &Arc<House>,
    name: String,
    work: impl FnOnce(Arc<Workspace>) -> F + Send + 'static,
) -> Result<T, No>
where
    F: Future<Output = Result<T>>,
    T: Send + 'static,
{
    let workspace = house.workspace(&name).await?;
    house.work(move || work(workspace)).await.map_err(refused)
}

pub async fn all(State(house): State<Arc<House>>) -> Answer {
    let all: Vec<_> = house.config.workspaces.keys().map(|name| json!({ "workspace": name })).collect();
    answer::ok(&json!({ "workspaces": all }))
}

type InPage = Named<(String, String)>;
type InIssue = Named<(String, String, String)>;

pub async fn policies(State(house): State<Arc<House>>, Named((name, page)): InPage) -> Answer {
    answer::ok(&ask(&house, name, async move |room| room.policies(&page).await).await?)
}

pub async fn policy(
    State(house): State<Arc<House>>,
    Named((name, page, source)): InIssue,
    Asked(In { language }): Asked<In>,
) -> Answer {
    let language = language
        .as_deref()
        .filter(|name| !name.is_empty())
        .map(Language::named)
        .transpose()
        .map_err(refused)?;
    answer::ok(&ask(&house, name, async move |room| room.policy(&page, &source, language).await).await?)
}

pub async fn pages(
    State(house): State<Arc<House>>,
    Named(name): Named<String>,
    Asked(which): Asked<Which>,
) -> Answer {
    let limit = answer::limit(which.limit, LIMIT, super::LIMIT_MAX)?;
    answer::ok(&ask(&house, name, async move |room| room.listing(which.after.as_deref(), limit).await).await?)
}

/// A translation waits for a model, so it is a job.
pub async fn translate(
    State(house): State<Arc<House>>,
    Named((name, page, source)): InIssue,
    body: Bytes,
) -> Answer {
    let Translated { language } = answer::body(&body)?;
    let language = Some(Language::named(&language).map_err(refused)?);
    let task = Task::Policy { page, source, language };
    let job = ask(&house, name, async move |room| room.submit(task).await).await?;
    answer::with(StatusCode::ACCEPTED, &job)
}

pub async fn issues(State(house): State<Arc<House>>, Named((name, page)): InPage) -> Answer {
    let issues = ask(&house, name, async move |room| room.issues(&page).await).await?;
    answer::ok(&json!({ "issues": issues }))
}

pub async fn issue(State(house): State<Arc<House>>, Named((name, page, id)): InIssue) -> Answer {
    answer::ok(&ask(&house, name, async move |room| room.issue(&page, &id).await).await?)
}

pub async fn create(State(house): State<Arc<House>>, Named((name, page)): InPage, body: Bytes) -> Answer {
    let Created { title, severity, description } = answer::body(&body)?;
    let severity = severity_of(&severity)?;
    let new = NewIssue { title, severity, description: description.into_iter().map(Passage::Text).collect() };
    let issue = ask(&house, name, async move |room| room.issue_create(&page, new).await).await?;
    answer::with(StatusCode::CREATED, &issue)
}

pub async fn classify(
    State(house): State<Arc<House>>,
    Named((name, page, id)): InIssue,
    body: Bytes,
) -> Answer {
    let Classified { severity } = answer::body(&body)?;
    let severity = severity_of(&severity)?;
    answer::ok(&ask(&house, name, async move |room| room.issue_classify(&page, &id, severity).await).await?)
}

pub async fn annotate(
    State(house): State<Arc<House>>,
    Named((name, page, id)): InIssue,
    body: Bytes,
) -> Answer {
    let Annotated { text } = answer::body(&body)?;
    answer::ok(&ask(&house, name, async move |room| room.issue_annotate(&page, &id, &text).await).await?)
}

pub async fn resolve(State(house): State<Arc<House>>, Named((name, page, id)): InIssue) -> Answer {
    answer::ok(&ask(&house, name, async move |room| room.issue_resolve(&page, &id).await).await?)
}

pub async fn reopen(State(house): State<Arc<House>>, Named((name, page, id)): InIssue) -> Answer {
    answer::ok(&ask(&house, name, async move |room| room.issue_reopen(&page, &id).await).await?)
}

pub async fn analyze(State(house): State<Arc<House>>, Named((name, page)): InPage) -> Answer {
    let job = ask(&house, name, async move |room| room.submit(Task::Analyze { page }).await).await?;
    answer::with(StatusCode::ACCEPTED, &job)
}

pub async fn clear(State(house): State<Arc<House>>, Named((name, page)): InPage) -> Answer {
    answer::ok(&ask(&house, name, async move |room| room.clear(&page).await).await?)
}

pub async fn purge(State(house): State<Arc<House>>, Named(name): Named<String>, body: Bytes) -> Answer {
    let PurgeAsked { force } = answer::body(&body)?;
    answer::ok(&ask(&house, name, async move |room| room.purge(force).await).await?)
}

pub async fn jobs(State(house): State<Arc<House>>, Named(name): Named<String>) -> Answer {
    let jobs = ask(&house, name, async move |room| room.jobs().await).await?;
    answer::ok(&json!({ "jobs": jobs }))
}

pub async fn job(State(house): State<Arc<House>>, Named((name, id)): InPage) -> Answer {
    answer::ok(&ask(&house, name, async move |room| room.job(&id).await).await?)
}
