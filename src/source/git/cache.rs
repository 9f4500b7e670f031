//! The bare repository a pipeline fetches into. It is only ever a copy: when it is damaged (a killed fetch leaves locks
//! behind), it is thrown away and fetched again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use super::Repository;
use super::program::Program;
use crate::clock::SharedClock;
use crate::error::{Error, Kind, Result, from_io};
use crate::retry::{self, Patience, Verdict};

/// The name the fetched commit has in the cache.
pub const REF: &str = "refs/trueup/head";

pub struct Cache {
    folder: PathBuf,
    keep: bool,
    /// Where a reader fetches to, who must leave the cache as it is.
    scratch: Mutex<Option<TempDir>>,
}

impl Cache {
    pub fn new(folder: &Path, keep: bool) -> Self {
        Cache { folder: folder.to_owned(), keep, scratch: Mutex::new(None) }
    }

    /// Bring the branch here. Passing troubles are tried again, a damaged cache is made anew once.
    pub async fn fetch(
        &self,
        from: &Repository,
        clock: &SharedClock,
        requests: &AtomicU64,
    ) -> Result<Program> {
        let wanted =
            from.branch.as_ref().map_or_else(|| "HEAD".to_owned(), |branch| format!("refs/heads/{branch}"));
        let mut program = self.ready().await?;
        let mut attempt = 1;
        let mut renewed = false;
        loop {
            requests.fetch_add(1, Ordering::Relaxed);
            let error = match program.fetch(&from.address, &wanted, REF, from.token.as_ref()).await {
                Ok(()) => break,
                Err(error) => error,
            };
            if error.kind() == Kind::Corrupt && !renewed {
                renewed = true;
                self.throw_away()?;
                program = self.ready().await?;
                continue;
            }
            match retry::judge(&Patience::REQUEST, attempt, &error, clock.chance()) {
                Verdict::GiveUp => return Err(error),
                Verdict::Again { wait_ms } => clock.sleep(Duration::from_millis(wait_ms)).await,
            }
            attempt += 1;
        }
        if self.keep {
            program.tidy().await?;
        }
        Ok(program)
    }

    /// What was fetched before, as it is.
    pub fn at_hand(&self) -> Option<Program> {
        self.folder.join("HEAD").exists().then(|| Program::bare(&self.folder))
    }

    /// A repository to fetch into.
    async fn ready(&self) -> Result<Program> {
        let folder = if self.keep { self.folder.clone() } else { self.beside()? };
        let program = Program::bare(&folder);
        if !folder.join("HEAD").exists() {
            program.init().await?;
            if !self.keep {
                self.lean_on_cache(&folder)?;
            }
        }
        Ok(program)
    }

    fn beside(&self) -> Result<PathBuf> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.is_none() {
            let made = tempfile::Builder::new().prefix("trueup-git-").tempdir();
            *scratch = Some(made.map_err(|error| from_io(error, "making a temporary folder"))?);
        }
        scratch
            .as_ref()
            .map(|folder| folder.path().join("git"))
            .ok_or_else(|| Error::bug("no temporary folder"))
    }

    /// What the cache holds need not be fetched again: its objects are read from where they are.
    fn lean_on_cache(&self, folder: &Path) -> Result<()> {
        let Ok(cache) = self.folder.canonicalize() else { return Ok(()) };
        let doing = || format!("leaning on {}", self.folder.display());
        let line = format!("{}\n", cache.join("objects").display());
        std::fs::write(folder.join("objects/info/alternates"), line)
            .map_err(|error| from_io(error, doing()))?;
        match std::fs::copy(cache.join("shallow"), folder.join("shallow")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(from_io(error, doing())),
            _ => Ok(()),
        }
    }

    fn throw_away(&self) -> Result<()> {
        let folder = if self.keep { self.folder.clone() } else { self.beside()? };
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(from_io(error, format!("clearing {}", folder.display())))
            }
            _ => Ok(()),
        }
    }
}
