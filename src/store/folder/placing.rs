//! Putting files in their places and taking them away.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{DRAFT, Root, is_absent, look, read_file, version_of};
use crate::error::{Error, Kind, Result, from_io};
use crate::record::Version;
use crate::store::{Expect, Item, Op, Outcome, judge};

/// Tries to write into a folder that somebody else's cleaning up takes away each time.
const TRIES: usize = 5;

/// Do one item. Folders whose entries changed are added to `touched`: the caller flushes them.
pub(super) fn write(root: &Root, item: &Item, touched: &mut BTreeSet<PathBuf>) -> Result<Outcome> {
    let path = root.file(&item.key);
    let held = look(&path)?;
    let version = held.as_ref().map(version_of);
    let Op::Put { value, .. } = &item.op else {
        if let Some(outcome) = judge(item, version.as_ref(), false) {
            return Ok(outcome);
        }
        return remove(root, &path, touched);
    };
    let same = held.is_some_and(|facts| facts.len() == value.len() as u64) && holds(&path, value)?;
    if let Some(outcome) = judge(item, version.as_ref(), same) {
        return Ok(outcome);
    }
    if let Some(version) = place(&path, value, item.expect == Expect::Absent, touched)? {
        return Ok(Outcome::Applied(Some(version)));
    }
    // Somebody was faster. What they wrote decides: the same is fine, anything else is a conflict.
    let held = read_file(&path)?;
    let same = held.as_ref().is_some_and(|held| held.value == value);
    let version = held.map(|held| held.version);
    Ok(judge(item, version.as_ref(), same).unwrap_or(Outcome::Conflict(version)))
}

fn holds(path: &Path, value: &[u8]) -> Result<bool> {
    Ok(read_file(path)?.is_some_and(|held| held.value == value))
}

/// Write a draft beside the place, flush it, and move it there. `None` = only if absent, and it was not.
fn place(
    path: &Path,
    value: &[u8],
    only_if_absent: bool,
    touched: &mut BTreeSet<PathBuf>,
) -> Result<Option<Version>> {
    let folder = path.parent().ok_or_else(|| Error::bug("a file without a folder"))?;
    let draft = draft_in(folder, path)?;
    let doing = || format!("writing {}", path.display());
    let mut file = draft.as_file();
    file.write_all(value).and_then(|()| file.sync_all()).map_err(|error| from_io(error, doing()))?;
    let version = version_of(&file.metadata().map_err(|error| from_io(error, doing()))?);
    let moved = if only_if_absent { draft.persist_noclobber(path) } else { draft.persist(path) };
    match moved {
        Ok(_) => {}
        Err(error) if path.is_dir() => return Err(in_the_way(error.error, path)),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(from_io(error.error, doing())),
    }
    touched.insert(folder.to_owned());
    Ok(Some(version))
}

/// A draft in the folder of its place, the folder made first if it is not there. It is locked as long as somebody
/// writes it.
fn draft_in(folder: &Path, path: &Path) -> Result<NamedTempFile> {
    // What the user's umask leaves of it, as for any file a program makes.
    let usual = Permissions::from_mode(0o666);
    for attempt in 1.. {
        match tempfile::Builder::new().prefix(DRAFT).permissions(usual.clone()).tempfile_in(folder) {
            Ok(draft) if claim(draft.as_file()) || attempt == TRIES => return Ok(draft),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound && attempt < TRIES => make_folder(folder)?,
            Err(error) if error.kind() == ErrorKind::NotADirectory => return Err(in_the_way(error, path)),
            Err(error) => return Err(from_io(error, format!("writing {}", path.display()))),
        }
    }
    unreachable!("the last try returns")
}

/// Lock a new draft; `false` = a sweeper was faster. Where files cannot be locked, nobody sweeps.
fn claim(draft: &File) -> bool {
    match draft.try_lock() {
        Err(TryLockError::WouldBlock) => false,
        Ok(()) | Err(TryLockError::Error(_)) => draft.metadata().is_ok_and(|facts| facts.nlink() > 0),
    }
}

/// Remove a draft whose writer was killed: nobody has it locked. It was never anybody's file, so failing is fine.
pub(super) fn sweep(draft: &Path) {
    let Ok(file) = File::options().write(true).open(draft) else { return };
    if file.try_lock().is_ok() {
        let _ = fs::remove_file(draft);
    }
}

fn in_the_way(error: std::io::Error, path: &Path) -> Error {
    let message = format!("{}: a file and a folder would have the same name", path.display());
    Error::new(Kind::Invalid, message)
        .caused_by(error)
        .remedy_is("Rename one of the two keys: a folder cannot hold both `a` and `a/b`.")
}

/// Make a folder and those above it, each flushed into the one above.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().unwrap_or(Path::new(""));
    make_folder(above)?;
    match fs::create_dir(folder) {
        Ok(()) => sync_folder(above),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        // Cleaned away by somebody between the two steps: the caller tries again.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) => {
            Err(in_the_way(error, folder))
        }
        Err(error) => Err(from_io(error, format!("making the folder {}", folder.display()))),
    }
}

/// Remove a file, and the folders it leaves empty: without keys there is no folder.
fn remove(root: &Root, path: &Path, touched: &mut BTreeSet<PathBuf>) -> Result<Outcome> {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if is_absent(&error) => return Ok(Outcome::AlreadySo(None)),
        Err(error) => return Err(from_io(error, format!("deleting {}", path.display()))),
    }
    let mut folder = path.parent();
    while let Some(empty) = folder.filter(|folder| **folder != *root.path) {
        if fs::remove_dir(empty).is_err() {
            break;
        }
        folder = empty.parent();
    }
    touched.extend(folder.map(Path::to_owned));
    Ok(Outcome::Applied(None))
}

/// A name is durable once its folder is. A folder that is gone by now has nothing left to keep.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(from_io(error, format!("flushing the folder {}", folder.display()))),
    }
}
