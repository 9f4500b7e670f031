//! May something be written at a path? Asked of the kernel, so that nothing is tried and nothing made.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{Access, access};

use crate::error::{Error, Kind, Result, from_io};

/// A file that may be changed, or a folder that things may be put in. What is not there yet could be made.
pub fn check(path: &Path) -> Result<()> {
    let mut existing = path;
    let facts = loop {
        match fs::metadata(existing) {
            Ok(facts) => break facts,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                existing = match existing.parent() {
                    Some(folder) if !folder.as_os_str().is_empty() => folder,
                    _ => Path::new("."),
                };
            }
            Err(error) => return Err(from_io(error, format!("looking at {}", existing.display()))),
        }
    };
    if existing != path && !facts.is_dir() {
        let message = format!("{} is a file, and would have to be a folder", existing.display());
        return Err(Error::new(Kind::Config, message));
    }
    // By its own name: "write to ." says little.
    let shown = if existing == Path::new(".") { fs::canonicalize(existing).ok() } else { None };
    let shown = shown.as_deref().unwrap_or(existing).display();
    let wanted = if facts.is_dir() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
    access(existing, wanted).map_err(|error| {
        let remedy = format!("Let the user that trueup runs as write to {shown}.");
        from_io(error.into(), format!("asking whether {shown} may be written")).remedy_is(remedy)
    })
}

/// The same for a file of SQLite's, which has others beside it while it is open.
pub fn check_database(path: &Path) -> Result<()> {
    check(path)?;
    check(&super::sqlite::file::folder_of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_judged_by_the_folder_it_would_be_in() {
        let folder = tempfile::tempdir().unwrap();
        let below = |name: &str| folder.path().join(name);
        fs::write(below("file"), "").unwrap();
        for good in ["", "file", "new", "new/deeper/still"] {
            check(&below(good)).unwrap();
        }
        check_database(&below("new/file.db")).unwrap();
        let error = check(&below("file/x")).unwrap_err();
        assert!(matches!(error.kind(), Kind::Config | Kind::Invalid), "{error}");
    }
}
