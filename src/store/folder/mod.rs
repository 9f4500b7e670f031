//! `file:` — a folder as a store: a key is a path below it, a value is a file.
//!
//! A file appears whole or not at all (written under another name, flushed, renamed), and an outcome is returned
//! when file and folder are on disk. Creating is atomic; other conditions are a look before the write, because a
//! file system has nothing better to offer. Fingerprints are not kept: the files are for people and other programs.
//! The other name is locked while it is written; what a killed process left of it goes with the next listing.
//!
//! Refused: keys that are no path (empty, `.` or `..` segments, NUL), and a file where a folder is or the other way
//! round. Links to files are followed, links to folders are not; names that are no UTF-8 are nobody's key.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::sift::sift;
use super::{Access, Caps, Item, Mode, Outcome, Page, Query, Store, Stored, check_atomic, writable};
use crate::error::{Context, Error, Kind, Result, from_io};
use crate::record::Version;

mod placing;
mod walk;

/// Files handled at the same time: keeps a disk busy with flushes without a thread per file.
const FILES_AT_ONCE: usize = 16;
/// Longest name of one file or folder: what Linux takes, less room for a draft's name.
const NAME_MAX: usize = 240;
/// A file of this name is being written; it is nobody's key and no listing shows it.
const DRAFT: &str = ".trueup-draft-";

const CAPS: Caps = Caps {
    create: true,
    cas: false,
    atomic_max: 0,
    strong_read: true,
    cheap_list: true,
    keeps_fingerprint: false,
    sums: false,
    lists_own: false,
    // One flush per folder and batch: a thousand files share it.
    bulk_max: 1_000,
    side_by_side: 1,
    // Well below the longest path of Linux (4,096), with room for the folder's own.
    key_max: 1_024,
    // Files pass through memory.
    value_max: 512 * 1024 * 1024,
};

/// A store in a folder.
pub struct Folder {
    name: String,
    root: Arc<Root>,
    walks: Arc<walk::Walks>,
}

struct Root {
    path: PathBuf,
    access: Access,
}

impl Folder {
    /// Open a folder; with [`Access::Write`] it is made if need be, with [`Access::Read`] a missing one is empty.
    pub fn open(path: &Path, access: Access) -> Result<Folder> {
        let name = format!("file:{}", path.display());
        let there = path.ancestors().find_map(|above| Some((above, fs::metadata(above).ok()?)));
        if let Some((above, facts)) = there
            && !facts.is_dir()
        {
            let message = if above == path {
                format!("{name} is a file")
            } else {
                format!("{name} would be below {}, which is a file", above.display())
            };
            return Err(Error::new(Kind::Config, message).remedy_is("Name a folder instead."));
        }
        if access == Access::Write {
            placing::make_folder(path).context(|| format!("opening {name}"))?;
        }
        let root = Arc::new(Root { path: path.to_owned(), access });
        Ok(Folder { name, root, walks: Arc::default() })
    }

    async fn write_each(&self, items: Vec<Item>) -> Result<Vec<Result<Outcome>>> {
        let place = |item: Item| {
            let root = Arc::clone(&self.root);
            blocking(move || {
                let mut touched = BTreeSet::new();
                let outcome = placing::write(&root, &item, &mut touched);
                Ok((outcome.map_err(|error| error.while_(item.key)), touched))
            })
        };
        let placed: Vec<_> = stream::iter(items).map(place).buffered(FILES_AT_ONCE).try_collect().await?;
        // What was placed is durable once its folders are; many files share a flush.
        let folders: BTreeSet<PathBuf> = placed.iter().flat_map(|(_, touched)| touched.clone()).collect();
        let flush = |folder: PathBuf| blocking(move || placing::sync_folder(&folder));
        stream::iter(folders).map(flush).buffer_unordered(FILES_AT_ONCE).try_collect::<()>().await?;
        Ok(placed.into_iter().map(|(outcome, _)| outcome).collect())
    }
}

#[async_trait]
impl Store for Folder {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        CAPS
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let fetch = |key: String| {
            let root = Arc::clone(&self.root);
            blocking(move || root.read(&key))
        };
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let found = stream::iter(keys).map(fetch).buffered(FILES_AT_ONCE).try_collect().await;
        found.context(|| format!("reading {}", self.name))
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        let (root, walks) = (Arc::clone(&self.root), Arc::clone(&self.walks));
        let wanted = walk::Wanted::of(&query);
        let page = blocking(move || walks.page(&root, &wanted)).await;
        page.context(|| format!("listing {}", self.name))
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        check_atomic(&CAPS, items.len(), mode)?;
        if self.root.access == Access::Read {
            return Err(Error::bug(format!("{} was opened to be read and was asked to write", self.name)));
        }
        let (items, refused) = sift(items, mode, &CAPS, |item| check_key(&item.key));
        let outcomes = self.write_each(items).await;
        self.walks.forget();
        Ok(refused.among(outcomes.context(|| format!("writing to {}", self.name))?))
    }

    async fn is_there(&self) -> Result<bool> {
        let root = Arc::clone(&self.root);
        blocking(move || Ok(root.path.is_dir())).await
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.list(Query { limit: 1, ..Query::keys("") }).await?;
        if access == Access::Write {
            writable::check(&self.root.path)?;
        }
        Ok(Vec::new())
    }
}

impl Root {
    /// The file of a key that passed [`check_key`].
    fn file(&self, key: &str) -> PathBuf {
        self.path.join(key)
    }

    fn read(&self, key: &str) -> Result<Option<Stored>> {
        if check_key(key).is_err() {
            return Ok(None);
        }
        let path = self.file(key);
        let Some(facts) = look(&path)? else { return Ok(None) };
        if facts.len() > CAPS.value_max {
            return Err(Error::new(Kind::Invalid, format!("{key} is {} bytes long", facts.len())));
        }
        read_file(&path)
    }
}

/// A file and the version it had while it was read; `None` = no such file.
fn read_file(path: &Path) -> Result<Option<Stored>> {
    use std::io::Read as _;
    let doing = || format!("reading {}", path.display());
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(from_io(error, doing())),
    };
    let facts = file.metadata().map_err(|error| from_io(error, doing()))?;
    let mut value = Vec::with_capacity(usize::try_from(facts.len()).unwrap_or(0));
    file.read_to_end(&mut value).map_err(|error| from_io(error, doing()))?;
    Ok(Some(Stored { value: Bytes::from(value), version: version_of(&facts), fingerprint: None }))
}

/// The facts of a file; a folder or nothing at all is `None`.
fn look(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(facts) if facts.is_file() => Ok(Some(facts)),
        Ok(_) => Ok(None),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(from_io(error, format!("looking at {}", path.display()))),
    }
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Every write makes a new file beside the old one, so the number of the file differs; an editor changes the time.
fn version_of(facts: &Metadata) -> Version {
    Version(format!("{:x}-{:x}.{:x}-{:x}", facts.ino(), facts.mtime(), facts.mtime_nsec(), facts.len()))
}

fn check_key(key: &str) -> Result<()> {
    for name in key.split('/') {
        let why = match name {
            "" => "it has an empty segment",
            "." | ".." => "it has a segment `.` or `..`",
            _ if name.contains('\0') => "it contains a NUL",
            _ if name.len() > NAME_MAX => "one of its segments is too long",
            _ if name.starts_with(DRAFT) => "it is like the name of an unfinished file",
            _ => continue,
        };
        return Err(Error::new(Kind::Invalid, format!("this key cannot be a file: {why}")));
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::bug("work on a file broke off").caused_by(error))?
}
