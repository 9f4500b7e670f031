//! `from = { git = … }` and `from = { github = … }`: a repository, a branch of it, and the files wanted.

use std::fmt;

use super::model::From;
use super::reader::{Field, Keys, Reader};
use super::source::{Around, patterns};
use super::{redact, values};
use crate::secret::{Secret, SecretRef};

pub const GIT_KEYS: Keys = &["git", "branch", "include", "exclude", "token_env", "token_file"];
pub const GITHUB_KEYS: Keys = &["github", "branch", "include", "exclude", "api", "token_env", "token_file"];

/// What both kinds say about the files they want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// `None` = the repository's own.
    pub branch: Option<String>,
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub token: Option<SecretRef>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct GitSpec {
    /// A URL, `host:path`, or a path. It may hold a password, so only `shown` is ever shown.
    pub address: Secret,
    pub shown: String,
    pub files: Selection,
}

impl fmt::Debug for GitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitSpec({}, {:?})", self.shown, self.files)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GithubSpec {
    pub owner: String,
    pub name: String,
    /// `None` = the public service.
    pub api: Option<String>,
    pub files: Selection,
}

pub fn read_git(reader: &Reader<'_>, around: &Around<'_>) -> Option<From> {
    let files = selection(reader, around)?;
    let field = reader.require("git", ADDRESS)?;
    let text = field.text(ADDRESS)?;
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let known = scheme.is_none_or(|scheme| ["https", "http", "ssh", "file", "git"].contains(&scheme));
    if !known || text.starts_with('-') || text.contains("::") {
        return field.unexpected(ADDRESS);
    }
    let before_slash = text.split('/').next().unwrap_or_default();
    let local = scheme.is_none() && !before_slash.contains(':');
    let address =
        if local { around.base.resolve(text).to_string_lossy().into_owned() } else { text.to_owned() };
    Some(From::Git(GitSpec { shown: redact::url(&address), address: Secret::new(address), files }))
}

const ADDRESS: &str = "the address of a git repository: an https, ssh or file URL, host:path, or a path";

pub fn read_github(reader: &Reader<'_>, around: &Around<'_>) -> Option<From> {
    let files = selection(reader, around)?;
    let api = match reader.take("api") {
        Some(field) => Some(api(&field)?),
        None => None,
    };
    let expected = "a repository as \"owner/name\"";
    let field = reader.require("github", expected)?;
    let text = field.text(expected)?;
    let plain = |part: &str| {
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        !part.is_empty() && part.chars().all(named) && part != "." && part != ".."
    };
    match text.split_once('/') {
        Some((owner, name)) if plain(owner) && plain(name) => {
            Some(From::Github(GithubSpec { owner: owner.to_owned(), name: name.to_owned(), api, files }))
        }
        _ => field.unexpected(expected),
    }
}

fn api(field: &Field<'_>) -> Option<String> {
    let text = field.text("the URL of a GitHub API")?;
    let web = text.starts_with("http://") || text.starts_with("https://");
    if !web || text.contains(['@', '?', '#']) {
        return field
            .unexpected("the URL of a GitHub API: http:// or https://, without user, password or query");
    }
    Some(text.trim_end_matches('/').to_owned())
}

fn selection(reader: &Reader<'_>, around: &Around<'_>) -> Option<Selection> {
    let globs = |field: Option<Field<'_>>| field.map(|field| patterns(&field)).unwrap_or_default();
    let branch = match reader.take("branch") {
        Some(field) => Some(branch(&field)?),
        None => None,
    };
    Some(Selection {
        branch,
        include: globs(reader.take("include")),
        exclude: globs(reader.take("exclude")),
        token: reader.secret("token_env", "token_file", around.base),
    })
}

fn branch(field: &Field<'_>) -> Option<String> {
    let text = field.text("the name of a branch")?;
    if values::is_branch_name(text) {
        Some(text.to_owned())
    } else {
        field.unexpected("the name of a branch")
    }
}
