//! One `[workspaces.NAME]`: pages, the store that holds what is made of them, and the model that reads them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::locate::Problems;
use super::model::{Address, ConfluenceSpec, LlmSpec, PagesSpec, Place, Reanalyze, StoreSpec, Workspace};
use super::overlap::Spot;
use super::reader::{Base, Field, Keys};
use super::store::{self, Stores};

pub const KEYS: Keys = &["pages", "into", "llm", "purge_every", "reanalyze"];
pub const FOLDER_KEYS: Keys = &["folder"];
pub const CONFLUENCE_KEYS: Keys = &["confluence", "user", "token_env", "token_file", "timeout"];
pub const LLM_KEYS: Keys = &["url", "model", "token_env", "token_file", "timeout"];

const PURGE_EVERY: Duration = Duration::from_secs(24 * 3_600);
/// Confluence answers within seconds; attachments get a multiple of it.
const TIMEOUT: Duration = Duration::from_secs(15);
/// A long answer of a slow model takes a minute; beyond this nobody is at home.
const LLM_TIMEOUT: Duration = Duration::from_secs(120);
/// Three attempts and the waits between them end before a worker's lease on its job does.
const LLM_TIMEOUT_MAX: Duration = Duration::from_secs(240);
const REANALYZE: [(&str, Reanalyze); 2] = [("auto", Reanalyze::Auto), ("mark", Reanalyze::Mark)];
const PAGES: &str = "{ folder = PATH } or { confluence = URL, token_env = NAME }";

/// A workspace, and the place where its store was written.
pub struct Written<'n> {
    pub workspace: Workspace,
    into: Field<'n>,
}

pub fn all<'n>(field: &Field<'n>, stores: &Stores, base: &Base) -> Vec<Written<'n>> {
    let named = field.named("a table of workspaces: [workspaces.NAME]");
    named.into_iter().filter_map(|(entry, field)| read(&entry.key, &field, stores, base)).collect()
}

fn read<'n>(name: &str, field: &Field<'n>, stores: &Stores, base: &Base) -> Option<Written<'n>> {
    let reader = field.table(KEYS, "a table with `pages` and `into`")?;
    let purge_every = reader.take("purge_every").and_then(|field| field.interval()).unwrap_or(PURGE_EVERY);
    let llm = reader.take("llm");
    let reanalyze = reader.take("reanalyze").and_then(|field| field.choice(&REANALYZE));
    let default = if llm.is_some() { Reanalyze::Auto } else { Reanalyze::Mark };
    if let (Some(Reanalyze::Auto), None, Some(field)) = (reanalyze, &llm, reader.take("reanalyze")) {
        field
            .wrong_with("`reanalyze = \"auto\"` needs a model to analyse with", "set `llm`, or use \"mark\"");
    }
    let llm = match llm {
        Some(field) => Some(read_llm(&field, base)?),
        None => None,
    };
    let pages = reader.require("pages", PAGES).and_then(|field| read_pages(&field, base));
    let into = reader.require("into", "the name or URL of a store")?;
    let store = store::used(&into, stores, base).filter(|spec| can_hold(spec, &into))?;
    let workspace = Workspace {
        name: name.to_owned(),
        pages: pages?,
        into: store,
        llm,
        purge_every,
        reanalyze: reanalyze.unwrap_or(default),
    };
    Some(Written { workspace, into })
}

fn read_pages(field: &Field<'_>, base: &Base) -> Option<PagesSpec> {
    if field.at("folder").is_some() {
        let reader = field.table(FOLDER_KEYS, PAGES)?;
        return reader.take("folder")?.path(base).map(PagesSpec::Folder);
    }
    let reader = field.table(CONFLUENCE_KEYS, PAGES)?;
    let url = web(&reader.require("confluence", PAGES)?)?;
    let user = reader.take("user").and_then(|field| field.text("a user name")).map(str::to_owned);
    let timeout = reader.take("timeout").and_then(|field| field.interval()).unwrap_or(TIMEOUT);
    let token = reader.secret("token_env", "token_file", base);
    Some(PagesSpec::Confluence(ConfluenceSpec { url, user, token, timeout }))
}

fn read_llm(field: &Field<'_>, base: &Base) -> Option<LlmSpec> {
    let reader = field.table(LLM_KEYS, "a table with `url` and `model`")?;
    let token = reader.secret("token_env", "token_file", base);
    let url = reader.require("url", "the URL of a model's API, as \"http://127.0.0.1:8080/v1\"");
    let model = reader.require("model", "the name of a model");
    let timeout = match reader.take("timeout") {
        Some(field) => patience(&field)?,
        None => LLM_TIMEOUT,
    };
    let url = Address::new(&web(&url?)?);
    Some(LlmSpec { url, model: model?.text("the name of a model")?.to_owned(), token, timeout })
}

fn patience(field: &Field<'_>) -> Option<Duration> {
    match field.interval()? {
        long if long > LLM_TIMEOUT_MAX => field.unexpected("at most \"4m\" for one answer of a model"),
        timeout => Some(timeout),
    }
}

fn web(field: &Field<'_>) -> Option<String> {
    let expected = "an http:// or https:// URL without user, password or query";
    let text = field.text(expected)?;
    let web = text.starts_with("http://") || text.starts_with("https://");
    if !web || text.contains(['@', '?', '#']) {
        return field.unexpected(expected);
    }
    Some(text.trim_end_matches('/').to_owned())
}

/// Rows are written conditionally, several at once.
fn can_hold(store: &StoreSpec, field: &Field<'_>) -> bool {
    let can = match store.place {
        Place::Sqlite(_) | Place::Etcd(_) | Place::Postgres(_) | Place::Memory => true,
        Place::Folder(_) | Place::S3 { .. } | Place::Cloudflare { .. } | Place::Tables(_) => false,
    };
    if !can {
        let message =
            format!("a workspace cannot live in {}: it needs conditional and atomic writes", store.name);
        field.wrong_with(message, "expected sqlite:PATH, postgres://… or etcd://…");
    }
    can
}

/// Each has a store of its own, apart from the state, and no pipeline writes into it.
pub fn apart(all: &[Written<'_>], state: &Spot, pipelines: &[(String, StoreSpec)], problems: &Problems<'_>) {
    for (at, written) in all.iter().enumerate() {
        let (name, into) = (&written.workspace.name, &written.workspace.into);
        let span = written.into.span();
        super::check::apart_from_state(into, state, span, problems);
        let spot = Spot::of(into);
        let before = all[..at].iter().map(|other| (&other.workspace.name, &other.workspace.into));
        let others = before.chain(pipelines.iter().map(|(name, into)| (name, into)));
        if let Some((other, _)) = others.into_iter().find(|(_, into)| Spot::of(into).meets(&spot)) {
            let message =
                format!("two writers whose keys overlap: `{other}` and `{name}` into {}", into.name);
            problems.add_with(span, message, ["give each a store of its own".to_owned()]);
        }
    }
}

pub fn named(all: Vec<Written<'_>>) -> BTreeMap<String, Workspace> {
    all.into_iter().map(|written| (written.workspace.name.clone(), written.workspace)).collect()
}
