//! A consistent copy of the file, made while others read and write.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use tempfile::TempPath;

use super::fault::explain;
use super::file::{folder_of, sync_folder};
use crate::error::{Error, Kind, Result, from_io};

/// Copy into a file of another name beside `to`.
pub(super) fn copy(source: Option<&mut Connection>, to: &Path) -> Result<TempPath> {
    let Some(source) = source else {
        return Err(Error::new(Kind::NotFound, "there is no file yet to copy"));
    };
    if fs::symlink_metadata(to).is_ok() {
        return Err(taken());
    }
    let folder = folder_of(to);
    fs::create_dir_all(&folder).map_err(|error| from_io(error, format!("making {}", folder.display())))?;
    let draft = tempfile::Builder::new()
        .prefix(".trueup-backup-")
        .tempfile_in(&folder)
        .map_err(|error| from_io(error, format!("making a file in {}", folder.display())))?
        .into_temp_path();
    let mut copy = Connection::open(&draft).map_err(explain)?;
    step(source, &mut copy)?;
    copy.close().map_err(|(_, error)| explain(error))?;
    Ok(draft)
}

/// Give a copy its name, now that it is whole and of one moment.
pub(super) fn name(draft: TempPath, to: &Path) -> Result<()> {
    match draft.persist_noclobber(to) {
        Ok(()) => sync_folder(&folder_of(to)),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(taken()),
        Err(error) => Err(from_io(error.error, "giving the copy its name")),
    }
}

/// All pages in one step, from one moment: a reader's snapshot in a WAL file holds nobody up.
fn step(source: &Connection, copy: &mut Connection) -> Result<()> {
    copy.busy_timeout(Duration::from_secs(1)).map_err(explain)?;
    let backup = Backup::new(source, copy).map_err(explain)?;
    match backup.step(-1).map_err(explain)? {
        StepResult::Done => Ok(()),
        _ => Err(Error::new(Kind::Unavailable, "the file is locked by another program")),
    }
}

fn taken() -> Error {
    Error::new(Kind::Conflict, "a file of that name is already there")
        .remedy_is("Name a file that does not exist; an older backup is never overwritten.")
}
