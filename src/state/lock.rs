//! Single flight: one run per pipeline. Beside an embedded state it is an OS file lock, free the moment its process
//! dies; on a state that machines share it is a lease.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use super::lease::{Fence, Holder, Lease, Leases, Standing};
use crate::error::{Error, Kind, Result, from_io};

/// Tries at a lock that lookers hold; each looks for microseconds, but may be kept from its processor in the middle.
const TRIES_MAX: usize = 2_000;
/// After so many of them in a row the others need time more than we need the lock.
const HASTY_TRIES: usize = 200;
const REST: Duration = Duration::from_millis(1);

/// Where locks are taken.
pub enum Locks {
    /// A folder beside the state file.
    Folder(PathBuf),
    /// Inside this process only (a state in memory has no other users).
    Process(Mutex<Vec<String>>),
    /// In the state itself.
    Leases(Leases),
}

/// Held while a pipeline runs; dropping it frees the pipeline, soon. `release` frees it now.
pub enum Lock<'a> {
    File(Locked),
    Process(Taken<'a>),
    Lease(Lease),
}

/// A file that is locked. It is unlocked, not only closed: a program started meanwhile may hold the file open for the
/// moment before it becomes another program, and the lock with it.
pub struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Fails only where closing the file frees it anyway.
        let _ = self.0.unlock();
    }
}

/// A name on the list of those taken.
pub struct Taken<'a> {
    names: &'a Mutex<Vec<String>>,
    name: String,
}

impl Locks {
    pub fn in_process() -> Self {
        Locks::Process(Mutex::new(Vec::new()))
    }

    pub async fn acquire(&self, pipeline: &str) -> Result<Lock<'_>> {
        match self {
            Locks::Folder(folder) => Self::lock_file(folder.join(format!("{pipeline}.lock")), pipeline),
            Locks::Process(taken) => {
                let mut names = taken.lock().map_err(|_| Error::bug("a lock holder panicked"))?;
                if names.iter().any(|name| name == pipeline) {
                    return Err(busy(pipeline));
                }
                names.push(pipeline.to_owned());
                Ok(Lock::Process(Taken { names: taken, name: pipeline.to_owned() }))
            }
            Locks::Leases(leases) => leases.acquire(pipeline).await.map(Lock::Lease),
        }
    }

    /// Who runs it now, where that can be told.
    pub async fn holder(&self, pipeline: &str) -> Result<Option<Holder>> {
        match self {
            Locks::Folder(_) | Locks::Process(_) => Ok(None),
            Locks::Leases(leases) => leases.holder(pipeline).await,
        }
    }

    /// Whether somebody runs it now. Creates nothing.
    pub async fn is_taken(&self, pipeline: &str) -> bool {
        match self {
            Locks::Folder(folder) => {
                let Ok(file) = File::open(folder.join(format!("{pipeline}.lock"))) else { return false };
                let looked = file.try_lock_shared();
                drop(looked.is_ok().then(|| Locked(file)));
                matches!(looked, Err(TryLockError::WouldBlock))
            }
            Locks::Process(taken) => {
                taken.lock().is_ok_and(|names| names.iter().any(|name| name == pipeline))
            }
            Locks::Leases(leases) => leases.holder(pipeline).await.is_ok_and(|holder| holder.is_some()),
        }
    }

    /// Which of these nobody holds, by one look. Of a dead holder that is known when it was looked at for a while.
    pub async fn free(&self, names: &[&str]) -> Result<Vec<bool>> {
        if let Locks::Leases(leases) = self {
            return leases.free(names).await;
        }
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            all.push(!self.is_taken(name).await);
        }
        Ok(all)
    }

    /// Clear away what dead workers left. A lock that dies with its process leaves nothing that matters.
    pub async fn clear(&self) -> Result<()> {
        match self {
            Locks::Folder(_) | Locks::Process(_) => Ok(()),
            Locks::Leases(leases) => leases.clear().await,
        }
    }

    /// Whether each of these is still there.
    pub async fn standing(&self, names: &[&str]) -> Result<Vec<Standing>> {
        if let Locks::Leases(leases) = self {
            return leases.standing(names).await;
        }
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            all.push(if self.is_taken(name).await { Standing::Alive } else { Standing::Gone });
        }
        Ok(all)
    }

    /// Wait until it is known whether each of these is still there: one lease's time at most.
    pub async fn watch(&self, names: &[&str]) -> Result<Vec<Standing>> {
        match self {
            Locks::Folder(_) | Locks::Process(_) => self.standing(names).await,
            Locks::Leases(leases) => leases.watch(names).await,
        }
    }

    /// Whether clocks of several machines may be at work.
    pub fn are_local(&self) -> bool {
        match self {
            Locks::Folder(_) | Locks::Process(_) => true,
            Locks::Leases(_) => false,
        }
    }

    /// Clear away what a lock that will not be used again leaves behind.
    pub async fn forget(&self, name: &str) {
        match self {
            // Best effort: a file left behind is empty and harmless, a fence a few bytes.
            Locks::Folder(folder) => drop(std::fs::remove_file(folder.join(format!("{name}.lock")))),
            Locks::Process(_) => {}
            Locks::Leases(leases) => leases.forget(name).await,
        }
    }

    fn lock_file<'a>(path: PathBuf, pipeline: &str) -> Result<Lock<'a>> {
        let doing = || format!("taking the lock {}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| from_io(error, doing()))?;
        }
        let file =
            File::options().create(true).append(true).open(&path).map_err(|error| from_io(error, doing()))?;
        for tried in 0..TRIES_MAX {
            match file.try_lock() {
                Ok(()) => return Ok(Lock::File(Locked(file))),
                Err(TryLockError::Error(error)) => return Err(from_io(error, doing())),
                // Somebody runs it, or somebody merely looks: with a lookers' lock that can be told apart.
                Err(TryLockError::WouldBlock) if file.try_lock_shared().is_err() => break,
                Err(TryLockError::WouldBlock) => {
                    file.unlock().map_err(|error| from_io(error, doing()))?;
                    if tried < HASTY_TRIES {
                        std::thread::yield_now();
                    } else {
                        std::thread::park_timeout(REST);
                    }
                }
            }
        }
        Err(busy(pipeline))
    }
}

impl Lock<'_> {
    /// What writes into the state carry, if others could have taken the lock unnoticed.
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Lock::File(_) | Lock::Process(_) => None,
            Lock::Lease(lease) => Some(lease.fence()),
        }
    }

    /// Work that ends when the lock is lost.
    pub async fn guard<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self {
            Lock::File(_) | Lock::Process(_) => work.await,
            Lock::Lease(lease) => lease.guard(work).await,
        }
    }

    /// Free it at once.
    pub async fn release(self) {
        if let Lock::Lease(lease) = self {
            lease.release().await;
        }
    }
}

fn busy(pipeline: &str) -> Error {
    Error::new(Kind::Busy, format!("{pipeline} is already running"))
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Ok(mut names) = self.names.lock() {
            names.retain(|other| *other != self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// File locks never wait; nothing here needs a runtime with threads of its own.
    fn now<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn looking_never_keeps_anybody_from_running() {
        let folder = tempfile::tempdir().unwrap();
        let locks = Locks::Folder(folder.path().to_owned());
        drop(now(locks.acquire("p")).unwrap());
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    now(async {
                        while !over.load(std::sync::atomic::Ordering::SeqCst) {
                            locks.is_taken("p").await;
                        }
                    });
                });
            }
            let failed = (0..500).filter(|_| now(locks.acquire("p")).is_err()).count();
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(failed, 0);
        });
        let held = now(locks.acquire("p")).unwrap();
        assert!(now(locks.acquire("p")).is_err() && now(locks.is_taken("p")));
        drop(held);
        assert!(!now(locks.is_taken("p")));
    }
}
