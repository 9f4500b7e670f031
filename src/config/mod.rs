//! The config file, validated once. What comes out of here is known to be well-formed; nobody checks it again.
//!
//! `document` turns text into a tree that knows its places, `reader` looks at one table of it with types,
//! `store`, `source`, `shape`, `follow` and `pipeline` each read one word of the sentence, `check` compares the
//! parts. Problems are collected and reported together, five at most, each with file, line and column.
//!
//! It refuses to hold secrets, to open what it names, and to guess: an unknown key is an error, not a comment.

use std::io::Read as _;
use std::path::{Path, PathBuf};

mod article;
mod check;
mod digest;
mod document;
mod follow;
mod git;
mod interpolate;
mod locate;
mod model;
mod overlap;
mod pipeline;
mod reader;
pub mod recipe;
pub mod redact;
mod replica;
mod rest;
mod rows;
mod rss;
mod shape;
mod source;
mod store;
pub mod values;
mod workspace;

pub use article::{ArticleSpec, KeyTemplate, Named, OnEdit, Retention};
pub use git::{GitSpec, GithubSpec, Selection};
pub use locate::suggestion;
pub use model::*;
pub use overlap::{STATE_TABLE, TABLE};
pub use rest::{
    AnswerVersion, Auth, CONCURRENCY as REST_CONCURRENCY, ColumnKind, ColumnSpec, JsonPath, Pagination, Part,
    RESERVED, ResourceSpec, RestSpec, Size, TableSpec, natural_key_index,
};
pub use rss::{FEED_TIMEOUT, FeedSpec, PreviewSpec, RssSpec};
pub use shape::{DEAD_LETTERS, METADATA, POLICIES, POLICY_OBJECTS, QUEUE};
pub use source::{glob_set, rooted};
pub use store::store_spec;

use document::{Node, Value};
use locate::Problems;
use reader::{Base, Field, Keys, Reader};
use store::Stores;

use crate::error::{Error, Kind, Result};

/// The file `trueup` looks for when none is named.
pub const FILE: &str = "trueup.toml";
/// No config written by a person is larger; a larger file is something else.
const BYTES_MAX: u64 = 4 << 20;

const TOP_KEYS: Keys = &["state", "stores", "pipelines", "replicas", "workspaces"];
const STATE_KEYS: Keys = &["store"];

/// Every table and the keys it knows, for the test that holds the documentation to them.
pub const KEYS: [(&str, &[&str]); 35] = [
    ("top", TOP_KEYS),
    ("state", STATE_KEYS),
    ("store s3", store::S3_KEYS),
    ("pipeline", pipeline::KEYS),
    ("guard", pipeline::GUARD_KEYS),
    ("drift", pipeline::DRIFT_KEYS),
    ("journal", pipeline::JOURNAL_KEYS),
    ("from files", source::FILES_KEYS),
    ("from store", source::STORE_KEYS),
    ("from git", git::GIT_KEYS),
    ("from github", git::GITHUB_KEYS),
    ("from rest", rest::REST_KEYS),
    ("recipe", rest::RECIPE_KEYS),
    ("recipe auth", rest::AUTH_KEYS),
    ("recipe pagination", rest::PAGINATION_KEYS),
    ("recipe version", rest::VERSION_KEYS),
    ("resource", rest::RESOURCE_KEYS),
    ("column", rest::COLUMN_KEYS),
    ("as rows", rows::ROWS_KEYS),
    ("into tables", rows::TABLES_KEYS),
    ("from rss", rss::RSS_KEYS),
    ("from rss preview", rss::PREVIEW_KEYS),
    ("as article", article::ARTICLE_KEYS),
    ("then export", follow::EXPORT_KEYS),
    ("then webhook", follow::WEBHOOK_KEYS),
    ("then command", follow::COMMAND_KEYS),
    ("notify", follow::NOTIFY_KEYS),
    ("store", &["url"]),
    ("store server", store::SERVER_KEYS),
    ("store cloudflare", store::CLOUDFLARE_KEYS),
    ("replica", replica::KEYS),
    ("workspace", workspace::KEYS),
    ("workspace folder", workspace::FOLDER_KEYS),
    ("workspace confluence", workspace::CONFLUENCE_KEYS),
    ("workspace llm", workspace::LLM_KEYS),
];

impl Config {
    /// Read and validate a file. `env` looks up what `${NAME}` stands for.
    pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
        let mut bytes = Vec::new();
        let read =
            std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
        let shown = path.display();
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let remedy = "Run `trueup init` to write one, or name another with `--config FILE`.";
                return Err(Error::new(Kind::Config, format!("there is no {shown}")).remedy_is(remedy));
            }
            Err(error) => {
                let remedy = "Name the config file with `--config FILE`.";
                return Err(Error::new(Kind::Config, format!("{shown} cannot be read"))
                    .caused_by(error)
                    .remedy_is(remedy));
            }
            Ok(_) if bytes.len() as u64 > BYTES_MAX => {
                let message =
                    format!("{shown} is larger than {} MiB; that is no config file", BYTES_MAX >> 20);
                return Err(Error::new(Kind::Config, message));
            }
            Ok(_) => {}
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..at].split(|byte| *byte == b'\n').count();
            Error::new(Kind::Config, format!("{shown}:{line}: the file is not UTF-8 text"))
        })?;
        Config::parse(&text, path, env)
    }

    /// Validate a text. `path` is what messages call it, and its folder is where relative paths begin.
    pub fn parse(text: &str, path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
        // A mark of the encoding that some editors put in front is no part of the first line.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let problems = Problems::new(path, text);
        let config = read(&problems, path, env);
        match (problems.into_error(), config) {
            (Some(error), _) => Err(error),
            (None, Some(config)) => Ok(config),
            (None, None) => Err(Error::bug("the config was refused without a reason")),
        }
    }
}

fn read(problems: &Problems<'_>, file: &Path, env: &dyn Fn(&str) -> Option<String>) -> Option<Config> {
    let root = document::read(problems, env)?;
    let base = folder_of(file);
    let top = Field { path: String::new(), node: &root, problems }.table(TOP_KEYS, "a table")?;
    let at = Base(base.clone());
    let stores = top.take("stores").map(|field| read_stores(&field, &at)).unwrap_or_default();
    let default = Node { span: 0..0, value: Value::plain(store::STATE_URL) };
    let state_field =
        state_field(&top).unwrap_or(Field { path: "state.store".to_owned(), node: &default, problems });
    let state = store::used(&state_field, &stores, &at);
    let around = source::Around { stores: &stores, base: &at, env };
    let mut written = Vec::new();
    if let Some(field) = top.take("pipelines") {
        for (entry, field) in field.named("a table of pipelines: [pipelines.NAME]") {
            written.extend(pipeline::read(&entry.key, &field, &around));
        }
    }
    let replicas = top.take("replicas").map(|field| replica::all(&field, &at)).unwrap_or_default();
    let workspaces =
        top.take("workspaces").map(|field| workspace::all(&field, &stores, &at)).unwrap_or_default();
    let state = state?;
    let spot = overlap::Spot::of_state(&state);
    check::state_can_hold(&state, state_field.span(), problems);
    if let Some(field) = top.take("stores") {
        for (name, spec) in stores.iter().filter(|(name, _)| state_field.as_text() != Some(name)) {
            let span = field.at(name).map_or(0..0, |field| field.span().clone());
            check::apart_from_state(spec, &spot, &span, problems);
        }
    }
    // Checks between parts make sense only when each part does.
    if problems.none() {
        check::pipelines(&written, &spot, problems);
        let into =
            |written: &pipeline::Written| (written.pipeline.name.clone(), written.pipeline.into.clone());
        workspace::apart(&workspaces, &spot, &written.iter().map(into).collect::<Vec<_>>(), problems);
    }
    let pipelines = written.into_iter().map(|written| {
        let mut pipeline = written.pipeline;
        pipeline.digest = digest::of(&pipeline, &base);
        pipeline.reading = digest::of_reading(&pipeline, &base);
        pipeline.place = digest::place(&pipeline.into, &base);
        (pipeline.name.clone(), pipeline)
    });
    let (pipelines, workspaces) = (pipelines.collect(), workspace::named(workspaces));
    Some(Config { file: file.to_owned(), state, stores, pipelines, replicas, workspaces, base })
}

fn state_field<'n>(top: &Reader<'n>) -> Option<Field<'n>> {
    top.take("state")?.table(STATE_KEYS, "a table such as { store = \"sqlite:…\" }")?.take("store")
}

fn read_stores(field: &Field<'_>, base: &Base) -> Stores {
    field
        .named("a table of names and URLs")
        .into_iter()
        .filter_map(|(entry, field)| Some((entry.key.clone(), store::named(&entry.key, &field, base)?)))
        .collect()
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
