//! Whether two places are one, or one lies inside the other, whatever they are called.
//!
//! Paths are compared as the file system sees them (links followed, `..` resolved); nothing is created or read.

use std::path::{Component, Path, PathBuf};

use super::model::{Place, StoreSpec};

/// Whether a key of one store can be the same thing as a key of the other.
pub fn stores(one: &StoreSpec, other: &StoreSpec) -> bool {
    match (&one.place, &other.place) {
        (Place::Memory, Place::Memory) => one.name == other.name,
        (Place::Sqlite(a), Place::Sqlite(b)) => true_path(a) == true_path(b),
        (Place::Folder(a), Place::Folder(b)) => folders(a, b),
        (Place::S3 { bucket: a, prefix: pa }, Place::S3 { bucket: b, prefix: pb }) => {
            a == b
                && one.options.get("endpoint") == other.options.get("endpoint")
                && (below(pa, pb) || below(pb, pa))
        }
        _ => false,
    }
}

fn folders(a: &Path, b: &Path) -> bool {
    let (a, b) = (true_path(a), true_path(b));
    a.starts_with(&b) || b.starts_with(&a)
}

/// Object prefixes are cut at slashes: `a` holds `a/b` but not `ab`.
fn below(inner: &str, outer: &str) -> bool {
    outer.is_empty() || inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
}

/// Where a file or folder is below a folder, with `/` between names; `None` when it is elsewhere.
pub fn inside(path: &Path, folder: &Path) -> Option<String> {
    let (path, folder) = (true_path(path), true_path(folder));
    let rest = path.strip_prefix(&folder).ok()?;
    let names: Vec<_> = rest.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    Some(names.join("/"))
}

/// The absolute path with links followed as far as it exists and `..` taken out of the rest.
fn true_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for ancestor in absolute.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            let rest = absolute.strip_prefix(ancestor).unwrap_or(Path::new(""));
            return without_dots(&real.join(rest));
        }
    }
    without_dots(&absolute)
}

fn without_dots(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::store_spec;

    #[test]
    fn one_place_under_two_names_is_found() {
        let cases = [
            ("sqlite:a.db", "sqlite:./x/../a.db", true),
            ("sqlite:a.db", "sqlite:b.db", false),
            ("sqlite:a", "file:a", false),
            ("file:a", "file:a/b", true),
            ("file:a/", "file:a", true),
            ("file:a", "file:ab", false),
            ("s3://b/p", "s3://b/p/q/", true),
            ("s3://b", "s3://b/p", true),
            ("s3://b/p", "s3://b/pq", false),
            ("s3://b/p", "s3://c/p", false),
            ("s3://b/p", "s3://b/p?endpoint=http://h", false),
            ("memory:", "memory:", true),
        ];
        for (one, other, same) in cases {
            let (a, b) = (store_spec(one, None).unwrap(), store_spec(other, None).unwrap());
            assert_eq!((stores(&a, &b), stores(&b, &a)), (same, same), "{one} and {other}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_the_place_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("real"), folder.path().join("link")).unwrap();
        let at = |name: &str| Place::Sqlite(folder.path().join(name));
        let spec = |place| StoreSpec {
            name: String::new(),
            place,
            secrets: std::collections::BTreeMap::new(),
            options: std::collections::BTreeMap::new(),
        };
        assert!(stores(&spec(at("real/new.db")), &spec(at("link/new.db"))));
        assert_eq!(inside(&folder.path().join("link/a/b"), &folder.path().join("real")).unwrap(), "a/b");
    }
}
