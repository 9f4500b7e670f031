//! Whether two places are one, or one lies inside the other, whatever they are called.
//!
//! Paths are compared as the file system sees them (links followed, `..` resolved); nothing is created or read.

use std::path::{Component, Path, PathBuf};

use super::model::{Database, Place, StoreSpec};

/// The table of a key-value store whose URL names none, and that of a state.
pub const TABLE: &str = "trueup_kv";
pub const STATE_TABLE: &str = "trueup_state";

/// A place as it is compared. Made once per store: following links asks the file system.
#[derive(Debug, PartialEq, Eq)]
pub enum Spot {
    /// Memory has no address; the name is all there is.
    Memory(String),
    File(PathBuf),
    Folder(PathBuf),
    /// Its URL without the password.
    Database(String),
    Objects {
        endpoint: Option<String>,
        bucket: String,
        prefix: String,
    },
}

impl Spot {
    pub fn of(store: &StoreSpec) -> Self {
        match &store.place {
            Place::Memory => Spot::Memory(store.name.clone()),
            Place::Sqlite(file) | Place::Tables(Database::Sqlite(file)) => Spot::File(true_path(file)),
            Place::Folder(folder) => Spot::folder(folder),
            Place::Etcd(url) => Spot::etcd(url.expose()),
            Place::Postgres(url) => Spot::postgres(url.expose(), TABLE),
            Place::Tables(Database::Postgres(_)) => Spot::Database(store.name.clone()),
            Place::Cloudflare { account, namespace } => {
                Spot::Database(format!("cloudflare-kv://{account}/{namespace}"))
            }
            Place::S3 { bucket, prefix } => Spot::Objects {
                endpoint: store.options.get("endpoint").cloned(),
                bucket: bucket.clone(),
                prefix: prefix.clone(),
            },
        }
    }

    /// The place of the state: in a database it has a table of its own.
    pub fn of_state(state: &StoreSpec) -> Self {
        match &state.place {
            Place::Postgres(url) => Spot::postgres(url.expose(), STATE_TABLE),
            _ => Spot::of(state),
        }
    }

    /// Tables of one database are places of their own.
    fn postgres(url: &str, table: &str) -> Self {
        let place = crate::postgres::PostgresPlace::parse(url).ok();
        let shown =
            place.as_ref().map_or_else(|| super::redact::url(url), crate::postgres::PostgresPlace::shown);
        let table = place.and_then(|place| place.table).unwrap_or_else(|| table.to_owned());
        Spot::Database(format!("{shown}?table={table}"))
    }

    /// Prefixes of one etcd meet as prefixes of one bucket do.
    fn etcd(url: &str) -> Self {
        let place = crate::etcd::EtcdPlace::parse(url).ok();
        let endpoint = place.as_ref().map(|place| place.endpoints.join(","));
        let prefix = place.map(|place| place.prefix).unwrap_or_default();
        Spot::Objects { endpoint, bucket: "etcd".to_owned(), prefix: prefix.trim_matches('/').to_owned() }
    }

    pub fn folder(folder: &Path) -> Self {
        Spot::Folder(true_path(folder))
    }

    /// Whether a key of one can be the same thing as a key of the other, or one holds the other's file.
    pub fn meets(&self, other: &Spot) -> bool {
        match (self, other) {
            (Spot::Memory(a), Spot::Memory(b)) | (Spot::Database(a), Spot::Database(b)) => a == b,
            (Spot::File(a), Spot::File(b)) => a == b,
            (Spot::File(file), Spot::Folder(folder)) | (Spot::Folder(folder), Spot::File(file)) => {
                file.starts_with(folder)
            }
            (Spot::Folder(a), Spot::Folder(b)) => a.starts_with(b) || b.starts_with(a),
            (
                Spot::Objects { endpoint: ea, bucket: a, prefix: pa },
                Spot::Objects { endpoint: eb, bucket: b, prefix: pb },
            ) => ea == eb && a == b && (below(pa, pb) || below(pb, pa)),
            _ => false,
        }
    }

    /// Where this is below a folder, with `/` between names; `None` when it is elsewhere.
    pub fn inside(&self, folder: &Spot) -> Option<String> {
        let (Spot::File(path) | Spot::Folder(path), Spot::Folder(folder)) = (self, folder) else {
            return None;
        };
        let rest = path.strip_prefix(folder).ok()?;
        let names: Vec<_> = rest.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        Some(names.join("/"))
    }
}

/// Object prefixes are cut at slashes: `a` holds `a/b` but not `ab`.
fn below(inner: &str, outer: &str) -> bool {
    outer.is_empty() || inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
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
            ("sqlite:a/x.db", "file:a", true),
            ("sqlite:a.db", "file:a", false),
            ("file:a", "file:a/b", true),
            ("file:a/", "file:a", true),
            ("file:a", "file:ab", false),
            ("s3://b/p", "s3://b/p/q/", true),
            ("s3://b", "s3://b/p", true),
            ("s3://b/p", "s3://b/pq", false),
            ("s3://b/p", "s3://c/p", false),
            ("s3://b/p", "s3://b/p?endpoint=http://h", false),
            ("memory:", "memory:", true),
            ("postgres://u@h/d", "postgres://v@h:5432/d?table=trueup_kv", true),
            ("postgres://u@h/d", "postgres://u@h/d?table=trueup_state", false),
        ];
        for (one, other, same) in cases {
            let spot = |url| Spot::of(&store_spec(url, None).unwrap());
            let (a, b) = (spot(one), spot(other));
            assert_eq!((a.meets(&b), b.meets(&a)), (same, same), "{one} and {other}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_the_place_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("real"), folder.path().join("link")).unwrap();
        let spot = |url: &str| {
            Spot::of(&store_spec(&url.replace('~', folder.path().to_str().unwrap()), None).unwrap())
        };
        assert!(spot("sqlite:~/real/new.db").meets(&spot("sqlite:~/link/new.db")));
        assert_eq!(spot("sqlite:~/link/a/b").inside(&spot("file:~/real")).unwrap(), "a/b");
    }
}
