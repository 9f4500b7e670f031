//! Sources: which kinds there are and which keys each takes. The kind is the key that is present: `{ files = … }`.
//!
//! A new kind is a line in `KINDS`, a reading function and a variant of `From`.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::git;
use super::interpolate::Env;
use super::locate::suggestion;
use super::model::{From, Place};
use super::reader::{Base, Field, Keys, Reader, listed, repeated};
use super::store::{self, Stores};
use super::{rest, rss};

/// What a source may refer to.
pub struct Around<'a> {
    pub stores: &'a Stores,
    pub base: &'a Base,
    pub env: Env<'a>,
}

struct SourceKind {
    name: &'static str,
    keys: Keys,
    read: fn(&Reader<'_>, &Around<'_>) -> Option<From>,
}

const KINDS: [SourceKind; 7] = [
    SourceKind { name: "etcd", keys: ETCD_KEYS, read: etcd_source },
    SourceKind { name: "files", keys: FILES_KEYS, read: files },
    SourceKind { name: "git", keys: git::GIT_KEYS, read: git::read_git },
    SourceKind { name: "github", keys: git::GITHUB_KEYS, read: git::read_github },
    SourceKind { name: "rest", keys: rest::REST_KEYS, read: rest::read },
    SourceKind { name: "rss", keys: rss::RSS_KEYS, read: rss::read },
    SourceKind { name: "store", keys: STORE_KEYS, read: store_source },
];

pub const ETCD_KEYS: Keys = &["etcd"];
pub const FILES_KEYS: Keys = &["files", "include", "exclude"];
pub const STORE_KEYS: Keys = &["store", "prefix"];

const EXPECTED: &str = "a table such as { files = \"folder\" }";

pub fn read(field: &Field<'_>, around: &Around<'_>) -> Option<From> {
    if !field.is_table() {
        return field.unexpected(EXPECTED);
    }
    let present: Vec<&SourceKind> = KINDS.iter().filter(|kind| field.at(kind.name).is_some()).collect();
    match present[..] {
        [kind] => (kind.read)(&field.table(kind.keys, EXPECTED)?, around),
        [first, second, ..] => {
            field
                .wrong(format!("`from` names two sources, `{}` and `{}`; keep one", first.name, second.name));
            None
        }
        [] => no_kind(field),
    }
}

fn no_kind(field: &Field<'_>) -> Option<From> {
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let note = format!("sources are: {}", listed(&names));
    if let Some(word) = field.keys().next() {
        let meant = suggestion(word, names.iter().copied());
        field.wrong_with(format!("there is no kind of source `{}`{meant}", repeated(word)), note);
    } else {
        field.wrong_with("`from` names no source", note);
    }
    None
}

/// The keys below a prefix of etcd: any store can be read, and this one goes by its own name.
fn etcd_source(reader: &Reader<'_>, around: &Around<'_>) -> Option<From> {
    const URL: &str = "the URL of an etcd (etcd://HOST:PORT/PREFIX/)";
    let field = reader.require("etcd", URL)?;
    let store = store::used(&field, around.stores, around.base)?;
    if !matches!(store.place, Place::Etcd(_)) {
        return field.unexpected(URL);
    }
    Some(From::Store { store, prefix: String::new() })
}

fn files(reader: &Reader<'_>, around: &Around<'_>) -> Option<From> {
    let globs = |field: Option<Field<'_>>| field.map(|field| patterns(&field)).unwrap_or_default();
    let include = globs(reader.take("include"));
    let exclude = globs(reader.take("exclude"));
    let folder = reader.require("files", "a folder")?.path(around.base)?;
    Some(From::Files { folder, include, exclude })
}

pub fn patterns(field: &Field<'_>) -> Vec<String> {
    let mut patterns = Vec::new();
    for item in field.list_or_one() {
        let Some(pattern) = item.text("glob patterns such as \"**/*.md\"") else { continue };
        if let Err(error) = glob_set(&[pattern]) {
            item.wrong(format!("`{}` holds no glob pattern: {}", item.key(), error.kind()));
        }
        patterns.push(pattern.to_owned());
    }
    patterns
}

fn store_source(reader: &Reader<'_>, around: &Around<'_>) -> Option<From> {
    let prefix = match reader.take("prefix") {
        // An empty prefix is every key: the default, said aloud.
        Some(field) if field.as_text() == Some("") => String::new(),
        Some(field) => field.text("the beginning of keys").unwrap_or_default().to_owned(),
        None => String::new(),
    };
    let field = reader.require("store", "the name or URL of a store")?;
    let store = store::used(&field, around.stores, around.base)?;
    Some(From::Store { store, prefix })
}

/// A pattern as it matches from the root: one without a slash matches at any depth, a leading slash ties it to the root, a
/// trailing one means everything below.
pub fn rooted(pattern: &str) -> String {
    let body = pattern.trim_start_matches('/');
    let name = body.trim_end_matches('/');
    let below = if body.ends_with('/') { "/**" } else { "" };
    let anchored = pattern.starts_with('/') || name.contains('/') || name == "**";
    format!("{}{name}{below}", if anchored { "" } else { "**/" })
}

/// Patterns as every part of trueup reads them: `*` stays within a folder, `**` crosses folders.
pub fn glob_set<P: AsRef<str>>(patterns: &[P]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(GlobBuilder::new(&rooted(pattern.as_ref())).literal_separator(true).build()?);
    }
    set.build()
}
