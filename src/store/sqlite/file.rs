//! The file itself: recognising it, making it, opening it. What it is gets decided by its header, read without
//! locks or files beside it, so that a file of somebody else is left exactly as it was.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::fault::explain;
use crate::error::{Error, Kind, Result, from_io};

/// "trup" in the header of the file: ours, whatever it is called.
pub const APPLICATION_ID: i32 = 0x7472_7570;
/// The layout described at the top of this module. A higher number in a file is a newer program's.
pub const FORMAT: i32 = 1;

/// How long to wait for another process's write: longer than any batch takes, shorter than a person's patience.
const BUSY_WAIT: Duration = Duration::from_secs(15);
/// A page of a new file. Much is written in the order of its keys, and the cost of that is by the page.
const PAGE_BYTES: i32 = 16 * 1_024;
/// The log before it is folded into the file: fewer, larger folds while loading, and not much left when it is closed.
const LOG_BYTES: i32 = 4 << 20;
/// Page cache per connection in KiB: holds the upper levels of a tree of millions of keys; what lies below is in the system's own.
const CACHE_KIB: i32 = 4 * 1_024;

/// Somebody who changes a value with SQL has no version to give it. Without one of its own the change would go unnoticed, and
/// what was known of the value before would be taken for what it is now.
const OUTSIDE: &str = "
CREATE TRIGGER IF NOT EXISTS outside AFTER UPDATE OF value ON kv
WHEN NEW.version = OLD.version AND NEW.value IS NOT OLD.value
BEGIN
  UPDATE meta SET value = value + 1 WHERE name = 'version';
  UPDATE kv SET version = (SELECT value FROM meta WHERE name = 'version'), fingerprint = NULL WHERE key = NEW.key;
END;
CREATE INDEX IF NOT EXISTS kv_by_large ON kv(large) WHERE large IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS outside_large AFTER UPDATE OF value ON large
WHEN NEW.value IS NOT OLD.value
BEGIN
  UPDATE meta SET value = value + 1 WHERE name = 'version';
  UPDATE kv SET version = (SELECT value FROM meta WHERE name = 'version'), fingerprint = NULL WHERE large = NEW.id;
END;
";

const SCHEMA: &str = "
CREATE TABLE kv(
  key TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  fingerprint BLOB,
  value BLOB,
  large INTEGER
) WITHOUT ROWID;
CREATE TABLE large(id INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE meta(name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('version', 0);
CREATE VIEW entries AS
  SELECT kv.key, CAST(coalesce(kv.value, large.value) AS TEXT) AS value, kv.version,
         iif(kv.fingerprint IS NULL, NULL, lower(hex(kv.fingerprint))) AS fingerprint
  FROM kv LEFT JOIN large ON large.id = kv.large
  ORDER BY kv.key;
";

/// What is at a path, judged without opening it as a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Empty,
    Ours,
}

/// Writers that may come and go while something is read. While one is there, it is read beside it.
pub(in crate::store) const LOOKS_MAX: usize = 20;

/// Look at the header. Everything that is not ours, or is newer than we are, is an error here.
///
/// The look goes through SQLite too: closing a file handle of our own would drop the locks that other
/// connections of this process hold on the same file.
pub(super) fn look(path: &Path) -> Result<Found> {
    let facts = match fs::metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(from_io(error, "looking at the file")),
    };
    if facts.is_dir() {
        return Err(Error::new(Kind::Config, "this is a folder").remedy_is("Name a file in it instead."));
    }
    if facts.len() == 0 {
        return Ok(Found::Empty);
    }
    // Half folded into the file, a log makes it whole: without it the file would look damaged.
    let connection = if has_log(path) { open_to_read(path)? } else { open_unchanging(path)? };
    admit(pragma(&connection, "application_id")?, pragma(&connection, "user_version")?)?;
    Ok(Found::Ours)
}

fn admit(application_id: i32, format: i32) -> Result<()> {
    if application_id != APPLICATION_ID {
        return Err(Error::new(Kind::Config, "this SQLite file belongs to another program")
            .remedy_is("Name another file; this one was left as it is."));
    }
    if format > FORMAT {
        let message = format!("the file has format {format}, this trueup knows formats up to {FORMAT}");
        return Err(Error::new(Kind::Config, message)
            .remedy_is("Use the newer trueup that wrote it; the file was left as it is."));
    }
    if format < 1 {
        return Err(Error::new(Kind::Corrupt, format!("the file says it has format {format}")));
    }
    Ok(())
}

/// Open to write, making folders and file if they are not there.
pub(super) fn open_to_write(path: &Path) -> Result<Connection> {
    match look(path)? {
        Found::Ours => {}
        Found::Nothing => make(path)?,
        Found::Empty => lay_out(path, "FULL")?,
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    let log_pages = LOG_BYTES / pragma(&connection, "page_size")?.max(1);
    connection.pragma_update(None, "wal_autocheckpoint", log_pages).map_err(explain)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(explain)?;
    let id = pragma(&connection, "application_id")?;
    admit(id, pragma(&connection, "user_version")?)?;
    // Files of an older trueup have none.
    connection.execute_batch(OUTSIDE).map_err(explain)?;
    // They are for others: compiled into our own statements they would cost a copy of every page they change.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).map_err(explain)?;
    Ok(connection)
}

/// Open to read beside a writer (WAL readers need the shared index file, so this one may touch `-shm`).
pub(in crate::store) fn open_to_read(path: &Path) -> Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

/// How a file may be opened without disturbing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Manner {
    /// There is a log beside the file: somebody writes, or was killed while writing.
    Shared,
    /// No log: the file as it is. Good for as long as length and time of change stay the same; whoever reads looks
    /// afterwards whether they have.
    Unchanging { length: u64, changed: Option<SystemTime> },
}

pub(in crate::store) fn written_all_the_time() -> Error {
    Error::new(Kind::Unavailable, "the file is written anew all the time")
}

/// How to open it now; `None` = there is none.
pub(in crate::store) fn manner(path: &Path) -> Result<Option<Manner>> {
    if has_log(path) {
        return Ok(Some(Manner::Shared));
    }
    match fs::metadata(path) {
        Ok(facts) if facts.len() == 0 => Ok(None),
        Ok(facts) => Ok(Some(Manner::Unchanging { length: facts.len(), changed: facts.modified().ok() })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(from_io(error, "looking at the file")),
    }
}

pub(in crate::store) fn open_as(path: &Path, manner: Manner) -> Result<Connection> {
    match manner {
        Manner::Shared => open_to_read(path),
        Manner::Unchanging { .. } => open_unchanging(path),
    }
}

/// There is something in the log beside the file: somebody writes, or was killed while writing.
pub(super) fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    fs::metadata(log).is_ok_and(|facts| facts.len() > 0)
}

/// Open a file that nobody writes to, without locks and without files beside it.
fn open_unchanging(path: &Path) -> Result<Connection> {
    let mut url = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            url.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    connect(Path::new(&url), flags | OpenFlags::SQLITE_OPEN_URI)
}

pub(in crate::store) fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let connection = Connection::open_with_flags(path, flags).map_err(explain)?;
    // Plans do not depend on bound values here; without this SQLite plans some statements anew at every use.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(explain)?;
    connection.busy_timeout(BUSY_WAIT).map_err(explain)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB).map_err(explain)?;
    Ok(connection)
}

fn pragma(connection: &Connection, name: &str) -> Result<i32> {
    connection.pragma_query_value(None, name, |row| row.get(0)).map_err(explain)
}

/// Make the file under another name and give it its own only when it is whole: no crash and no second process
/// ever meets half a file. Whoever comes second finds the first one's.
fn make(path: &Path) -> Result<()> {
    let folder = folder_of(path);
    fs::create_dir_all(&folder).map_err(|error| from_io(error, format!("making {}", folder.display())))?;
    let draft = tempfile::Builder::new()
        .prefix(".trueup-new-")
        .tempfile_in(&folder)
        .map_err(|error| from_io(error, format!("making a file in {}", folder.display())))?;
    // A private temp file's mode would lock other users out of reading; SQLite makes it with the usual one.
    let draft = draft.into_temp_path();
    fs::remove_file(&draft).map_err(|error| from_io(error, "making the file"))?;
    // Nobody sees it until it has its name, so it is flushed once, as a whole.
    lay_out(&draft, "OFF")?;
    File::open(&draft)
        .and_then(|file| file.sync_all())
        .map_err(|error| from_io(error, format!("flushing a new file in {}", folder.display())))?;
    match draft.persist_noclobber(path) {
        Ok(()) => {}
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(from_io(error.error, "giving the new file its name")),
    }
    sync_folder(&folder)
}

/// Write the empty layout, flushing as `synchronous` says. The header carries our mark from the first commit on.
fn lay_out(path: &Path, synchronous: &str) -> Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = connect(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    let steps = format!(
        "PRAGMA page_size={PAGE_BYTES}; PRAGMA synchronous={synchronous}; BEGIN EXCLUSIVE; PRAGMA application_id={APPLICATION_ID};
         PRAGMA user_version={FORMAT}; {SCHEMA} {OUTSIDE} COMMIT;"
    );
    connection.execute_batch(&steps).map_err(explain)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(explain)?;
    connection.close().map_err(|(_, error)| explain(error))
}

pub(in crate::store) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A new name is durable once its folder is.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| from_io(error, format!("flushing the folder {}", folder.display())))
}
