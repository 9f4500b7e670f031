//! Single flight: one run per pipeline. Beside an embedded state it is an OS file lock, free the moment its process
//! dies; there is no lease to wait out.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::error::{Error, Kind, Result, from_io};

/// Lookers that may come between two tries at a lock; each looks for microseconds.
const LOOKERS_MAX: usize = 1_000;

/// Where locks are taken.
#[derive(Debug)]
pub enum Locks {
    /// A folder beside the state file.
    Folder(PathBuf),
    /// Inside this process only (a state in memory has no other users).
    Process(Mutex<Vec<String>>),
}

/// Held while a pipeline runs; dropping it frees the pipeline.
#[derive(Debug)]
pub enum Lock<'a> {
    File(File),
    Process(&'a Mutex<Vec<String>>, String),
}

impl Locks {
    pub fn in_process() -> Self {
        Locks::Process(Mutex::new(Vec::new()))
    }

    pub fn acquire(&self, pipeline: &str) -> Result<Lock<'_>> {
        match self {
            Locks::Folder(folder) => Self::lock_file(folder.join(format!("{pipeline}.lock")), pipeline),
            Locks::Process(taken) => {
                let mut names = taken.lock().map_err(|_| Error::bug("a lock holder panicked"))?;
                if names.iter().any(|name| name == pipeline) {
                    return Err(busy(pipeline));
                }
                names.push(pipeline.to_owned());
                Ok(Lock::Process(taken, pipeline.to_owned()))
            }
        }
    }

    /// Whether somebody runs it now. Creates nothing.
    pub fn is_taken(&self, pipeline: &str) -> bool {
        match self {
            Locks::Folder(folder) => {
                let Ok(file) = File::open(folder.join(format!("{pipeline}.lock"))) else { return false };
                matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock))
            }
            Locks::Process(taken) => {
                taken.lock().is_ok_and(|names| names.iter().any(|name| name == pipeline))
            }
        }
    }

    /// Whether a lock's holder can be seen from here at all.
    pub fn are_local(&self) -> bool {
        match self {
            Locks::Folder(_) | Locks::Process(_) => true,
        }
    }

    /// Clear away what a lock that will not be used again leaves behind.
    pub fn forget(&self, name: &str) {
        if let Locks::Folder(folder) = self {
            // Best effort: a file left behind is empty and harmless.
            drop(std::fs::remove_file(folder.join(format!("{name}.lock"))));
        }
    }

    fn lock_file<'a>(path: PathBuf, pipeline: &str) -> Result<Lock<'a>> {
        let doing = || format!("taking the lock {}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| from_io(error, doing()))?;
        }
        let file =
            File::options().create(true).append(true).open(&path).map_err(|error| from_io(error, doing()))?;
        for _ in 0..LOOKERS_MAX {
            match file.try_lock() {
                Ok(()) => return Ok(Lock::File(file)),
                Err(std::fs::TryLockError::Error(error)) => return Err(from_io(error, doing())),
                // Somebody runs it, or somebody merely looks: with a lookers' lock that can be told apart.
                Err(std::fs::TryLockError::WouldBlock) if file.try_lock_shared().is_err() => break,
                Err(std::fs::TryLockError::WouldBlock) => {
                    file.unlock().map_err(|error| from_io(error, doing()))?;
                    std::thread::yield_now();
                }
            }
        }
        Err(busy(pipeline))
    }
}

fn busy(pipeline: &str) -> Error {
    Error::new(Kind::Busy, format!("{pipeline} is already running"))
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        if let Lock::Process(taken, name) = self
            && let Ok(mut names) = taken.lock()
        {
            names.retain(|other| other != name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_never_keeps_anybody_from_running() {
        let folder = tempfile::tempdir().unwrap();
        let locks = Locks::Folder(folder.path().to_owned());
        drop(locks.acquire("p").unwrap());
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while !over.load(std::sync::atomic::Ordering::SeqCst) {
                        locks.is_taken("p");
                    }
                });
            }
            let failed = (0..500).filter(|_| locks.acquire("p").is_err()).count();
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(failed, 0);
        });
        let held = locks.acquire("p").unwrap();
        assert!(locks.acquire("p").is_err() && locks.is_taken("p"));
        drop(held);
        assert!(!locks.is_taken("p"));
    }
}
