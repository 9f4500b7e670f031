//! Which paths of a tree belong to a source: `include` and `exclude`, in the dialect git and rclone share.
//!
//! Patterns match the `/`-separated path below the root. `*` and `?` stay within one name, `**` crosses folders.
//! A pattern without a slash (`*.md`) matches the name at any depth; a leading slash (`/*.md`) ties it to the root;
//! a trailing one (`drafts/`) means everything below. An excluded folder is not entered at all, so a folder that
//! cannot be read can be excluded. An empty `include` means everything. Negation (`!…`) does not exist here.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::config::rooted;
use crate::error::{Error, Kind, Result};

#[derive(Debug, Clone)]
pub struct Globs {
    include: Option<GlobSet>,
    /// The literal folders that `include` patterns start with; "" when one may match anywhere.
    bases: Vec<String>,
    exclude: GlobSet,
    /// What makes a folder not worth entering: the excludes, and `x` for every `x/**`.
    prune: GlobSet,
}

impl Globs {
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self> {
        let (mut included, mut bases) = (GlobSetBuilder::new(), Vec::new());
        for pattern in include {
            let full = anchor(pattern)?;
            included.add(compile(&full, pattern)?);
            bases.push(literal_base(&full));
        }
        let (mut excluded, mut pruned) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in exclude {
            let full = anchor(pattern)?;
            let glob = compile(&full, pattern)?;
            excluded.add(glob.clone());
            pruned.add(glob);
            if let Some(folder) = full.strip_suffix("/**") {
                pruned.add(compile(folder, pattern)?);
            }
        }
        Ok(Globs {
            include: if include.is_empty() { None } else { Some(build(&included)?) },
            bases,
            exclude: build(&excluded)?,
            prune: build(&pruned)?,
        })
    }

    /// Whether the file belongs to the source. Its folders have been asked about by `enters` before.
    pub fn wants(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        !self.exclude.is_match(path) && self.include.as_ref().is_none_or(|include| include.is_match(path))
    }

    /// Whether anything below the folder can belong to the source.
    pub fn enters(&self, folder: impl AsRef<Path>) -> bool {
        let folder = folder.as_ref();
        let reachable = self.include.is_none()
            || self.bases.iter().any(|base| folder.starts_with(base) || Path::new(base).starts_with(folder));
        reachable && !self.prune.is_match(folder)
    }
}

/// The pattern as it matches from the root.
fn anchor(pattern: &str) -> Result<String> {
    if pattern.trim_matches('/').is_empty() {
        return Err(refused(pattern, "it matches nothing"));
    }
    if pattern.starts_with('!') {
        return Err(refused(pattern, "negation is not supported"));
    }
    Ok(rooted(pattern))
}

fn compile(full: &str, pattern: &str) -> Result<Glob> {
    GlobBuilder::new(full)
        .literal_separator(true)
        .build()
        .map_err(|error| refused(pattern, &error.kind().to_string()))
}

fn build(builder: &GlobSetBuilder) -> Result<GlobSet> {
    builder
        .build()
        .map_err(|error| Error::new(Kind::Config, "the patterns are too large together").caused_by(error))
}

fn refused(pattern: &str, why: &str) -> Error {
    Error::new(Kind::Config, format!("the pattern \"{pattern}\" cannot be used: {why}")).remedy_is(
        "Correct it in `include` or `exclude`; examples: \"**/*.md\", \"docs/**\", \"/README.md\".",
    )
}

/// The folders a pattern names before its first wildcard.
fn literal_base(full: &str) -> String {
    let Some((folders, _name)) = full.rsplit_once('/') else { return String::new() };
    let literal = folders.split('/').take_while(|part| !part.contains(['*', '?', '[', '{', '\\']));
    literal.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(include: &[&str], exclude: &[&str]) -> Globs {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Globs::new(&owned(include), &owned(exclude)).unwrap()
    }

    #[test]
    fn patterns_match_as_git_and_rclone_users_expect() {
        for (pattern, hits, misses) in [
            ("*.md", vec!["a.md", "x/y/a.md", ".hidden.md"], vec!["a.txt", "a.md/b"]),
            ("/*.md", vec!["a.md"], vec!["x/a.md"]),
            ("**/*.md", vec!["a.md", "x/y/a.md"], vec!["a.txt"]),
            ("docs/*.md", vec!["docs/a.md"], vec!["docs/x/a.md", "x/docs/a.md", "a.md"]),
            ("docs/**", vec!["docs/a", "docs/x/y"], vec!["docs", "docsx/a"]),
            ("docs/", vec!["docs/a", "x/docs/y"], vec!["docs"]),
            ("a/**/b", vec!["a/b", "a/x/y/b"], vec!["a/xb"]),
            ("{a,b}.t?t", vec!["a.txt", "x/b.tat"], vec!["c.txt"]),
            ("**", vec!["a", "x/y"], vec![]),
            ("메모*", vec!["메모.md"], vec!["노트.md"]),
        ] {
            let globs = globs(&[pattern], &[]);
            for path in hits {
                assert!(globs.wants(path), "{pattern} should match {path}");
            }
            for path in misses {
                assert!(!globs.wants(path), "{pattern} should not match {path}");
            }
        }
    }

    #[test]
    fn an_excluded_folder_is_not_entered() {
        for pattern in ["private", "private/", "private/**", "/private", "priv*"] {
            assert!(!globs(&[], &[pattern]).enters("private"), "{pattern}");
        }
        assert!(globs(&[], &["private/*.md"]).enters("private"));
        assert!(globs(&[], &["private/**"]).wants("private"), "a file of that name is not below it");
    }

    #[test]
    fn only_folders_that_an_include_can_reach_are_entered() {
        let globs = globs(&["docs/guide/**", "src/*.rs"], &[]);
        for (folder, enters) in [("docs", true), ("docs/guide", true), ("docs/guide/x", true), ("src", true)]
            .into_iter()
            .chain([("docs/other", false), ("target", false), ("doc", false)])
        {
            assert_eq!(globs.enters(folder), enters, "{folder}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_work_is_a_config_error() {
        for pattern in ["", "/", "[", "a{b", "!keep.md"] {
            let error = Globs::new(&[pattern.to_owned()], &[]).unwrap_err();
            assert_eq!(error.kind(), Kind::Config, "{pattern}");
            assert!(error.to_string().contains(pattern));
        }
    }
}
