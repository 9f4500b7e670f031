//! A folder as a source: every regular file below it, its path as the id.
//!
//! Hidden files are included, and so is what symbolic links lead to (see `walk`); the folder trueup keeps its own files
//! in is not. A file's times are only a hint, so the body is compared before an update is planned. The folder
//! itself missing or unreadable is an error of the whole source: it is never taken for an empty one.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use super::globs::Globs;
use super::walk::{Child, Node, Stat, Tree, Wanted, walk};
use super::{Cursors, Sink, Source, Versions};
use crate::clock::SharedClock;
use crate::error::{Context, Error, Kind, Result, from_io};
use crate::record::{Body, Entry};

/// Largest file that is taken: a value is held in memory while it is written, several at a time.
pub const VALUE_MAX: u64 = 256 * 1024 * 1024;
/// File times advance in ticks (4 ms on Linux): two edits within one look alike. Well above any tick.
const RACY_NS: i64 = 100_000_000;
/// File systems that keep whole seconds (or two, FAT) need as much.
const RACY_NS_COARSE: i64 = 2_000_000_000;
/// A file that changes during two readings in a row is being written: better read on the next run.
const READS_MAX: u32 = 2;

pub struct Files {
    name: String,
    folder: Arc<Path>,
    globs: Arc<Globs>,
    own: Option<Arc<Path>>,
    clock: SharedClock,
}

impl Files {
    /// `include` and `exclude` are patterns as `globs` describes them; none in `include` = everything.
    pub fn new(folder: PathBuf, include: &[String], exclude: &[String], clock: SharedClock) -> Result<Files> {
        Ok(Files {
            name: format!("files {}", folder.display()),
            folder: folder.into(),
            globs: Arc::new(Globs::new(include, exclude)?),
            own: None,
            clock,
        })
    }

    /// The folder trueup keeps its own files in is no part of the source, wherever it is.
    #[must_use]
    pub fn without(mut self, own: &Path) -> Self {
        self.own = Some(own.into());
        self
    }

    fn stamp(&self) -> Stamp {
        Stamp { now_ns: nanoseconds(self.clock.machine_now()), clock: self.clock.clone() }
    }
}

#[async_trait]
impl Source for Files {
    fn name(&self) -> &str {
        &self.name
    }

    fn sorted(&self) -> bool {
        true
    }

    fn versions(&self) -> Versions {
        Versions::Hint
    }

    async fn list(&self, _cursors: &Cursors, out: &mut Sink) -> Result<()> {
        let (folder, globs, stamp, mut out) =
            (self.folder.clone(), self.globs.clone(), self.stamp(), out.fork());
        let own = self.own.clone();
        off_thread(move || {
            let disk = Disk::at(&folder)?;
            let own = own.and_then(|own| disk.below(&own));
            let wanted = Wanted { globs: &globs, own: own.as_deref(), version: &|stat| stamp.version(stat) };
            walk(&disk, &wanted, &mut out)
        })
        .await
        .context(|| self.name.clone())
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        if !Path::new(&entry.id).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(Error::new(Kind::Invalid, format!("{} is not a path below the folder", entry.id)));
        }
        let (path, stamp) = (self.folder.join(&entry.id), self.stamp());
        let listed = entry.version.clone();
        off_thread(move || {
            let (bytes, stat) = read_still(&path)?;
            let version = if unsuffixed(&listed) == base(&stat) { listed } else { stamp.version(&stat) };
            Ok(Body { bytes, version })
        })
        .await
        .context(|| format!("reading {}", entry.id))
    }

    /// Nothing is asked of another machine, and counting system calls would tell nobody anything.
    fn requests(&self) -> u64 {
        0
    }

    async fn check(&self) -> Result<Vec<String>> {
        let folder = self.folder.clone();
        off_thread(move || {
            let disk = Disk::at(&folder)?;
            disk.children(Path::new("")).map_err(|error| from_io(error, "listing the folder"))
        })
        .await
        .context(|| self.name.clone())?;
        Ok(Vec::new())
    }
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::bug("a reading thread ended early").caused_by(error)))
}

/// The real file system below a folder that was there when it was asked for.
struct Disk<'a> {
    root: &'a Path,
}

impl<'a> Disk<'a> {
    fn at(root: &'a Path) -> Result<Self> {
        match std::fs::metadata(root) {
            Ok(stat) if stat.is_dir() => Ok(Disk { root }),
            Ok(_) => Err(Error::new(Kind::Invalid, format!("{} is not a folder", root.display()))
                .remedy_is("Name a folder in `files`.")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::new(Kind::NotFound, format!("the folder {} does not exist", root.display()))
                    .remedy_is("Create or mount the folder, or correct `files`; nothing was deleted."))
            }
            Err(error) => Err(from_io(error, format!("looking at {}", root.display()))),
        }
    }

    /// A folder as the walk names it, if it lies below the root.
    fn below(&self, folder: &Path) -> Option<PathBuf> {
        let (root, folder) = (self.root.canonicalize().ok()?, folder.canonicalize().ok()?);
        folder.strip_prefix(root).ok().map(Path::to_owned)
    }
}

impl Tree for Disk<'_> {
    fn children(&self, folder: &Path) -> io::Result<Vec<Child>> {
        std::fs::read_dir(self.root.join(folder))?
            .map(|child| {
                let child = child?;
                Ok(Child { node: node_of(child.file_type()?), name: child.file_name() })
            })
            .collect()
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        std::fs::metadata(self.root.join(path)).map(|stat| stat_of(&stat))
    }
}

fn node_of(kind: std::fs::FileType) -> Node {
    if kind.is_dir() {
        Node::Folder
    } else if kind.is_symlink() {
        Node::Link
    } else if kind.is_file() {
        Node::File
    } else {
        Node::Special
    }
}

fn stat_of(stat: &Metadata) -> Stat {
    let ns = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    Stat {
        node: node_of(stat.file_type()),
        size: stat.size(),
        mtime_ns: ns(stat.mtime(), stat.mtime_nsec()),
        ctime_ns: ns(stat.ctime(), stat.ctime_nsec()),
        inode: stat.ino(),
        device: stat.dev(),
    }
}

/// Names the state of a file as of a moment.
struct Stamp {
    now_ns: i64,
    clock: SharedClock,
}

impl Stamp {
    /// A file that changed just now may change again without its times telling: its version gets a mark that no
    /// later listing repeats, so that the body is compared once more.
    fn version(&self, stat: &Stat) -> String {
        let window = if stat.ctime_ns % 1_000_000_000 == 0 { RACY_NS_COARSE } else { RACY_NS };
        // A time of writing in the far future was set by hand and tells nothing; a time of change never is.
        let just_written = stat.mtime_ns.abs_diff(self.now_ns) <= window.unsigned_abs();
        if just_written || stat.ctime_ns >= self.now_ns.saturating_sub(window) {
            format!("{}~{:x}", base(stat), self.clock.random())
        } else {
            base(stat)
        }
    }
}

fn base(stat: &Stat) -> String {
    format!("{:x}.{:x}.{:x}.{:x}", stat.size, stat.mtime_ns, stat.ctime_ns, stat.inode)
}

fn unsuffixed(version: &str) -> &str {
    version.split('~').next().unwrap_or(version)
}

fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

/// The bytes of a file that was the same before and after they were read, and what it was.
fn read_still(path: &Path) -> Result<(Bytes, Stat)> {
    for _ in 0..READS_MAX {
        if let Some(read) = read_once(path)? {
            return Ok(read);
        }
    }
    Err(Error::new(Kind::Conflict, "the file changed while it was read")
        .remedy_is("Run again once nobody is writing it."))
}

fn read_once(path: &Path) -> Result<Option<(Bytes, Stat)>> {
    let before = stat_of(&std::fs::metadata(path).map_err(refused)?);
    if before.node != Node::File {
        return Err(Error::new(Kind::Conflict, "it is no longer a file"));
    }
    if before.size > VALUE_MAX {
        return Err(too_large(before.size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(before.size).unwrap_or(0));
    let file = File::open(path).map_err(refused)?;
    file.take(before.size + 1).read_to_end(&mut bytes).map_err(refused)?;
    let after = stat_of(&std::fs::metadata(path).map_err(refused)?);
    let still = before == after && bytes.len() as u64 == before.size;
    Ok(still.then(|| (Bytes::from(bytes), before)))
}

fn refused(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::new(Kind::Conflict, "the file was removed after it was listed"),
        io::ErrorKind::PermissionDenied => Error::new(Kind::Unauthorized, "the file may not be read")
            .caused_by(error)
            .remedy_is("Make the file readable for the user trueup runs as, or name it in `exclude`."),
        _ => from_io(error, "the file"),
    }
}

fn too_large(size: u64) -> Error {
    let message = format!("the file is {size} bytes, {VALUE_MAX} at most are taken");
    Error::new(Kind::Invalid, message).remedy_is("Name it in `exclude`, or split it.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn stamp() -> Stamp {
        let clock = TestClock::at(NOW, 7);
        Stamp { now_ns: nanoseconds(NOW.parse().unwrap()), clock }
    }

    fn aged(ms: i64) -> Stat {
        let at = nanoseconds(NOW.parse().unwrap()) - ms * 1_000_000 - 1;
        Stat { node: Node::File, size: 3, mtime_ns: at, ctime_ns: at, inode: 5, device: 1 }
    }

    #[test]
    fn a_file_at_rest_has_the_same_version_twice() {
        let stamp = stamp();
        assert_eq!(stamp.version(&aged(100)), stamp.version(&aged(100)));
    }

    #[test]
    fn a_file_edited_just_now_never_has_the_same_version_twice() {
        let stamp = stamp();
        for ms in [-3_600_000, -1, 0, 99] {
            assert_ne!(stamp.version(&aged(ms)), stamp.version(&aged(ms)), "{ms} ms old");
        }
        let restored = Stat { mtime_ns: 12_345, ..aged(1) };
        assert_ne!(
            stamp.version(&restored),
            stamp.version(&restored),
            "an old mtime does not hide a new ctime"
        );
        let dated_ahead = Stat { mtime_ns: stamp.now_ns + RACY_NS_COARSE + 1, ..aged(1_000) };
        assert_eq!(stamp.version(&dated_ahead), stamp.version(&dated_ahead), "a future mtime is only a date");
    }

    #[test]
    fn times_in_whole_seconds_are_trusted_later() {
        let stamp = stamp();
        let at = |seconds: i64| {
            let ns = stamp.now_ns - seconds * 1_000_000_000;
            Stat { mtime_ns: ns, ctime_ns: ns, ..aged(0) }
        };
        assert_ne!(stamp.version(&at(2)), stamp.version(&at(2)));
        assert_eq!(stamp.version(&at(3)), stamp.version(&at(3)));
    }

    #[test]
    fn what_a_person_must_do_about_an_unreadable_file_is_in_its_kind() {
        assert_eq!(refused(io::ErrorKind::PermissionDenied.into()).kind(), Kind::Unauthorized);
        assert_eq!(refused(io::ErrorKind::NotFound.into()).kind(), Kind::Conflict);
        assert_eq!(refused(io::ErrorKind::TimedOut.into()).kind(), Kind::Unavailable);
    }

    #[test]
    fn every_part_of_a_stat_tells_in_the_version() {
        let still = aged(1_000);
        for other in [
            Stat { size: 4, ..still },
            Stat { mtime_ns: 1, ..still },
            Stat { ctime_ns: 1, ..still },
            Stat { inode: 6, ..still },
        ] {
            assert_ne!(base(&still), base(&other));
        }
    }
}
