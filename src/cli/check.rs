//! `trueup check`: can everything the config names be reached, and what can it really do?

use serde::Serialize;

use super::desk::Desk;
use super::output::{Color, table};
use crate::config::{Config, Place, StoreSpec, Then};
use crate::error::{Error, Fault, Result};
use crate::operations::replicas;
use crate::pipeline::Pipeline;
use crate::pipeline::open::Memory;
use crate::state::report::gravest;
use crate::store::{Access, open};
use crate::workspace::Workspace;

#[derive(Serialize)]
struct Checks {
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    what: String,
    name: String,
    ok: bool,
    findings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Fault>,
    #[serde(skip)]
    code: u8,
}

impl Check {
    fn of(what: impl Into<String>, name: impl Into<String>, result: Result<Vec<String>>) -> Self {
        let (what, name) = (what.into(), name.into());
        match result {
            Ok(findings) => Check { what, name, ok: true, findings, error: None, code: 0 },
            Err(error) => {
                let code = error.kind().exit_code();
                Check { what, name, ok: false, findings: Vec::new(), error: Some(Fault::of(&error)), code }
            }
        }
    }
}

pub async fn run(desk: &Desk) -> Result<u8> {
    let config = desk.config()?;
    let mut checks = vec![Check::of("config", config.file.display().to_string(), Ok(Vec::new()))];
    let memory = desk.memory(&config, Access::Read).await;
    let state = match &memory {
        Ok(memory) => memory.state.store().check(Access::Write).await,
        Err(error) => Err(Error::from(&Fault::of(error))),
    };
    checks.push(Check::of("state", config.state.name.clone(), state));
    // Sources and stores can be reached without what is remembered of them.
    let memory = match memory {
        Ok(memory) => memory,
        Err(_) => Memory::blank(&config, desk.clock.clone()).await?,
    };
    for spec in config.pipelines.values() {
        checks.extend(pipeline(desk, spec, &memory).await);
    }
    for name in config.replicas.keys() {
        checks.extend(replica(desk, &config, name).await);
    }
    for spec in config.workspaces.values() {
        checks.extend(workspace(desk, spec).await);
    }
    // Those that only people look into. Tables nobody fills have no recipe to open them by.
    for (name, spec) in &config.stores {
        if !checks.iter().any(|check| check.name == *name) && !matches!(spec.place, Place::Tables(_)) {
            checks.push(store("store".to_owned(), desk, spec, Access::Read).await);
        }
    }
    let code = gravest(checks.iter().map(|check| check.code));
    let checks = Checks { checks };
    desk.out.result(&checks, || text(desk, &checks));
    Ok(code)
}

async fn pipeline(desk: &Desk, spec: &crate::config::Pipeline, memory: &Memory) -> Vec<Check> {
    let name = &spec.name;
    let line: Result<Pipeline> = desk.open(spec, memory, Access::Read).await;
    let mut checks = match line {
        Err(error) => vec![Check::of(name.clone(), spec.into.name.clone(), Err(error))],
        Ok(line) => vec![
            Check::of(format!("{name} from"), line.source.name().to_owned(), line.source.check().await),
            Check::of(format!("{name} into"), spec.into.name.clone(), line.store.check(Access::Write).await),
        ],
    };
    for then in &spec.then {
        if let Then::Export(target) = then {
            checks.push(store(format!("{name} then"), desk, target, Access::Write).await);
        }
    }
    checks
}

/// A store by itself. Opened to be read: nothing is made in passing.
async fn store(what: String, desk: &Desk, spec: &StoreSpec, access: Access) -> Check {
    let checked = async { open::open(spec, Access::Read, desk.clock.clone()).await?.check(access).await };
    Check::of(what, spec.name.clone(), checked.await)
}

async fn replica(desk: &Desk, config: &Config, name: &str) -> Vec<Check> {
    let replica = match replicas::replica(config, name, desk.clock.clone()) {
        Ok(replica) => replica,
        Err(error) => return vec![Check::of(name, "", Err(error))],
    };
    let spec = replica.spec();
    vec![
        Check::of(format!("{name} etcd"), spec.etcd.shown(), replica.check_etcd().await),
        Check::of(format!("{name} postgres"), spec.postgres.shown(), replica.check_postgres().await),
    ]
}

/// The pages, the store, and the model if there is one.
async fn workspace(desk: &Desk, spec: &crate::config::Workspace) -> Vec<Check> {
    let name = &spec.name;
    let workspace = match Workspace::open(spec, Access::Read, desk.clock.clone()).await {
        Ok(workspace) => workspace,
        Err(error) => return vec![Check::of(name.clone(), spec.into.name.clone(), Err(error))],
    };
    let pages = &workspace.pages;
    let mut checks = vec![
        Check::of(format!("{name} pages"), pages.name().to_owned(), pages.check().await),
        Check::of(
            format!("{name} into"),
            spec.into.name.clone(),
            workspace.shelf.store.check(Access::Write).await,
        ),
    ];
    if let Some(llm) = &workspace.llm {
        checks.push(Check::of(format!("{name} llm"), llm.name(), llm.check().await));
    }
    checks
}

fn text(desk: &Desk, checks: &Checks) -> String {
    let mut rows = Vec::new();
    for check in &checks.checks {
        let mark = if check.ok { "ok" } else { "FAILED" };
        let said =
            check.error.as_ref().map_or_else(|| check.findings.join("; "), |fault| fault.message.clone());
        rows.push(vec![mark.to_owned(), check.what.clone(), check.name.clone(), said]);
    }
    let mut text = table(&rows);
    for (remedy, of) in remedies(checks) {
        let what = desk.out.paint(Color::Yellow, &format!("what to do ({}):", of.join(", ")));
        text.push_str(&format!("{what} {remedy}\n"));
    }
    text
}

/// What helps, each once, with what it helps.
fn remedies(checks: &Checks) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for check in &checks.checks {
        let Some(fault) = &check.error else { continue };
        match all.iter_mut().find(|(remedy, _)| *remedy == fault.remedy) {
            Some((_, of)) => of.push(&check.what),
            None => all.push((&fault.remedy, vec![&check.what])),
        }
    }
    all
}
