//! Listing a folder in the byte order of whole keys, page by page.
//!
//! A folder's name sorts as if it ended in `/` (`a-b` comes before `a/b`), which makes a depth-first walk sorted.
//! A walk starts anywhere by skipping what lies before, and reads only the folders it enters. The walk of a listing
//! in progress is kept, so that the next page goes on where the last one ended; any change in a folder it stands in
//! makes it start anew from there.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::placing::sweep;
use super::{DRAFT, Root, is_absent, look, read_file, version_of};
use crate::error::{Error, Kind, Result, from_io};
use crate::store::{Access, Listed, Page, Query, What};

/// Listings in progress that are kept. More than that go on all the same, only slower.
const KEPT: usize = 4;
/// A page of values ends once it holds this many bytes.
const PAGE_BYTES: usize = 32 * 1024 * 1024;

/// A query that can move to another thread.
pub(super) struct Wanted {
    prefix: String,
    after: Option<String>,
    limit: usize,
    what: What,
}

impl Wanted {
    pub fn of(query: &Query<'_>) -> Self {
        Wanted {
            prefix: query.prefix.to_owned(),
            after: query.after.map(str::to_owned),
            limit: query.limit,
            what: query.what,
        }
    }
}

/// The walks of listings in progress.
#[derive(Default)]
pub(super) struct Walks {
    kept: Mutex<Vec<Walk>>,
    /// Counts our own writes, which may be faster than the clock of the file system.
    writes: AtomicU64,
}

impl Walks {
    /// Something was written: what was read of the folders may be old.
    pub fn forget(&self) {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.kept().clear();
    }

    pub fn page(&self, root: &Root, wanted: &Wanted) -> Result<Page> {
        let writes = self.writes.load(Ordering::SeqCst);
        let Some(mut walk) = self.take(root, wanted)? else { return Ok(Page::default()) };
        let page = walk.page(wanted)?;
        if page.more && self.writes.load(Ordering::SeqCst) == writes {
            let mut kept = self.kept();
            if kept.len() == KEPT {
                kept.remove(0);
            }
            kept.push(walk);
        }
        Ok(page)
    }

    /// The kept walk that ended where this page begins, if it still holds; else a new one. `None` = no folder.
    fn take(&self, root: &Root, wanted: &Wanted) -> Result<Option<Walk>> {
        let fits = |walk: &Walk| walk.prefix == wanted.prefix && walk.last == wanted.after;
        let kept = {
            let mut kept = self.kept();
            kept.iter().position(fits).map(|at| kept.remove(at))
        };
        match kept {
            Some(walk) if walk.holds() => Ok(Some(walk)),
            _ => Walk::start(root, wanted),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Walk>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a walk is: the folders it stands in, each with the entries still to come.
struct Walk {
    access: Access,
    prefix: String,
    /// Nothing up to and including this key is listed.
    last: Option<String>,
    stack: Vec<Entered>,
}

struct Entered {
    path: PathBuf,
    /// The key of the folder: empty, or ending in `/`.
    key: String,
    /// Names still to come, last first; those of folders end in `/`.
    names: Vec<String>,
    changed: Option<SystemTime>,
}

impl Walk {
    fn start(root: &Root, wanted: &Wanted) -> Result<Option<Walk>> {
        let (prefix, last) = (wanted.prefix.clone(), wanted.after.clone());
        let mut walk = Walk { access: root.access, prefix, last, stack: Vec::new() };
        match fs::metadata(&root.path) {
            Ok(_) => walk.enter(root.path.clone(), String::new())?,
            Err(error) if is_absent(&error) && root.access == Access::Read => return Ok(None),
            Err(error) => {
                let gone = from_io(error, format!("looking at {}", root.path.display()));
                return Err(gone.remedy_is("The folder was there and is gone: mount or restore it."));
            }
        }
        Ok(Some(walk))
    }

    /// No folder it stands in was changed since it was read.
    fn holds(&self) -> bool {
        self.stack.iter().all(|entered| {
            entered.changed.is_some() && changed(&entered.path).ok().flatten() == entered.changed
        })
    }

    /// Read a folder, keeping only what can still be listed. One that just vanished had nothing to list.
    fn enter(&mut self, path: PathBuf, key: String) -> Result<()> {
        let doing = || format!("reading the folder {}", path.display());
        let when = changed(&path).map_err(|error| from_io(error, doing()))?;
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) && !self.stack.is_empty() => return Ok(()),
            Err(error) => return Err(from_io(error, doing())),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| from_io(error, doing()))?;
            let Ok(mut name) = entry.file_name().into_string() else { continue };
            if name.starts_with(DRAFT) {
                if self.access == Access::Write {
                    sweep(&entry.path());
                }
                continue;
            }
            let kind = entry.file_type().map_err(|error| from_io(error, doing()))?;
            // What is behind a link to a folder is read and written like everything else, so it is listed, too.
            if kind.is_dir()
                || kind.is_symlink() && entry.path().is_dir() && !self.leads_back(&path, &entry.path())
            {
                name.push('/');
            }
            if self.concerns(&key, &name) {
                names.push(name);
            }
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        self.stack.push(Entered { path, key, names, changed: when });
        Ok(())
    }

    /// A link to a folder it is in: following it would never end.
    fn leads_back(&self, folder: &Path, link: &Path) -> bool {
        let place = |path: &Path| fs::metadata(path).ok().map(|facts| (facts.dev(), facts.ino()));
        let there = place(link);
        let mut above = self.stack.iter().map(|entered| entered.path.as_path()).chain([folder]);
        there.is_none() || above.any(|above| place(above) == there)
    }

    /// Whether a file, or anything in a folder, has the prefix and comes after the last key.
    fn concerns(&self, folder: &str, name: &str) -> bool {
        let key = [folder, name].concat();
        let last = self.last.as_deref();
        if name.ends_with('/') {
            let inside = key.starts_with(&self.prefix) || self.prefix.starts_with(&key);
            inside && last.is_none_or(|last| last.starts_with(&key) || *key > *last)
        } else {
            key.starts_with(&self.prefix) && last.is_none_or(|last| *key > *last)
        }
    }

    /// The next file, by key.
    fn next(&mut self) -> Result<Option<(String, PathBuf)>> {
        while let Some(entered) = self.stack.last_mut() {
            let Some(name) = entered.names.pop() else {
                self.stack.pop();
                continue;
            };
            let key = [entered.key.as_str(), &name].concat();
            let path = entered.path.join(name.trim_end_matches('/'));
            if name.ends_with('/') {
                self.enter(path, key)?;
            } else {
                return Ok(Some((key, path)));
            }
        }
        Ok(None)
    }

    fn page(&mut self, wanted: &Wanted) -> Result<Page> {
        let mut page = Page::default();
        let mut bytes = 0;
        while let Some((key, path)) = self.next()? {
            if page.items.len() == wanted.limit || bytes >= PAGE_BYTES {
                // It is there, as far as the names tell; whether it still is must be known to say "more".
                if look(&path)?.is_none() {
                    continue;
                }
                self.put_back(&key);
                page.more = true;
                break;
            }
            if let Some(line) = line(key, &path, wanted.what)? {
                bytes += line.value.as_ref().map_or(0, bytes::Bytes::len);
                page.items.push(line);
            }
        }
        if let Some(line) = page.items.last() {
            self.last = Some(line.key.clone());
        }
        Ok(page)
    }

    fn put_back(&mut self, key: &str) {
        if let Some(entered) = self.stack.last_mut() {
            entered.names.push(key[entered.key.len()..].to_owned());
        }
    }
}

/// A file as a line; `None` if it is gone by now or no file at all.
fn line(key: String, path: &Path, what: What) -> Result<Option<Listed>> {
    let Some(facts) = look(path)? else { return Ok(None) };
    if what != What::Values {
        return Ok(Some(Listed { key, version: version_of(&facts), fingerprint: None, value: None }));
    }
    if facts.len() > super::CAPS.value_max {
        return Err(Error::new(Kind::Invalid, format!("{key} is {} bytes long", facts.len())));
    }
    let stored = read_file(path)?;
    Ok(stored.map(|stored| Listed {
        key,
        version: stored.version,
        fingerprint: None,
        value: Some(stored.value),
    }))
}

fn changed(path: &Path) -> std::io::Result<Option<SystemTime>> {
    match fs::metadata(path) {
        Ok(facts) => facts.modified().map(Some),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
