//! A git repository as a source: every file of one commit, its path as the id, its blob's SHA as the version.
//!
//! Asks the `git` program, never a host's API, so whatever `git fetch` can reach (https, ssh, file, with the user's own
//! credential helpers) is a source. A path on this machine is read where it is; anything else is fetched, one commit
//! deep, into a bare repository kept beside the state. Reading (`plan`) leaves that cache as it is.
//!
//! The whole tree of one commit is one scope: it is listed to its end or not at all. Whoever knows what an earlier
//! commit held is told the difference alone. Symbolic links and submodules are not files and are left out.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::globs::Globs;
use super::{Cursors, Event, News, Since, Sink, Source, Versions};
use crate::clock::SharedClock;
use crate::error::{Context, Error, Kind, Result, from_io};
use crate::record::{Body, Entry, Scope};
use crate::secret::Secret;

mod blobs;
mod cache;
mod program;
mod tree;

use blobs::Blobs;
use cache::Cache;
use program::Program;
use tree::{Difference, Line};

/// Of a commit that changes more than this the tree is listed: what is told at once is in memory at once.
const NEWS_MAX: usize = 10_000;

/// Where a repository is and which part of it is wanted.
pub struct Repository {
    /// What `git fetch` takes, or a path on this machine.
    pub address: String,
    /// How messages call it: the address without secrets.
    pub shown: String,
    /// `None` = the branch the repository itself points to.
    pub branch: Option<String>,
    pub token: Option<Secret>,
}

impl Repository {
    /// A path on this machine: no scheme, and no `host:` in front of the first slash.
    pub fn is_local(&self) -> bool {
        let before_slash = self.address.split('/').next().unwrap_or_default();
        !self.address.contains("://") && !before_slash.contains(':')
    }

    fn branch_shown(&self) -> &str {
        self.branch.as_deref().unwrap_or("HEAD")
    }
}

/// Where the objects are read.
enum Place {
    /// The repository itself.
    Here(PathBuf),
    Fetched(Cache),
}

pub struct Git {
    name: String,
    repository: Repository,
    place: Place,
    globs: Globs,
    clock: SharedClock,
    requests: AtomicU64,
    blobs: Mutex<Option<Blobs>>,
}

impl Git {
    /// `cache` is a folder of this pipeline's own. With `keep = false` it is only looked at: what is fetched goes into
    /// a temporary folder beside it.
    pub fn new(
        repository: Repository,
        globs: Globs,
        cache: &Path,
        keep: bool,
        clock: SharedClock,
    ) -> Result<Self> {
        let address = &repository.address;
        if address.starts_with('-') || address.contains("::") {
            let message = format!("{} is not an address of a git repository", repository.shown);
            return Err(
                Error::new(Kind::Config, message).remedy_is("Use an https, ssh or file URL, or a path.")
            );
        }
        let place = if repository.is_local() {
            Place::Here(PathBuf::from(address))
        } else {
            Place::Fetched(Cache::new(cache, keep))
        };
        Ok(Git {
            name: format!("git {}", repository.shown),
            repository,
            place,
            globs,
            clock,
            requests: AtomicU64::new(0),
            blobs: Mutex::new(None),
        })
    }

    /// The repository the objects are in, and the commit the branch points to now.
    async fn head(&self) -> Result<(Program, String)> {
        match &self.place {
            Place::Here(path) => {
                let program = Program::in_folder(path)?;
                self.requests.fetch_add(1, Ordering::Relaxed);
                let wanted = match &self.repository.branch {
                    Some(branch) => format!("refs/heads/{branch}"),
                    None => "HEAD".to_owned(),
                };
                let commit = program.commit(&wanted).await.map_err(|error| self.explain(error))?;
                Ok((program, commit))
            }
            Place::Fetched(cache) => {
                let fetched = cache.fetch(&self.repository, &self.clock, &self.requests).await;
                let program = fetched.map_err(|error| self.explain(error))?;
                let commit = program.commit(cache::REF).await?;
                Ok((program, commit))
            }
        }
    }

    /// What is missing is said by the names the config gave it.
    fn explain(&self, error: Error) -> Error {
        if error.kind() != Kind::NotFound {
            return error;
        }
        let message = format!(
            "{} or its branch {} was not found",
            self.repository.shown,
            self.repository.branch_shown()
        );
        Error::new(Kind::NotFound, message)
            .caused_by(error)
            .remedy_is("Check the address and `branch`, and that the token may read the repository.")
    }

    /// The tree of a commit, line by line, on a thread of its own.
    async fn tell(&self, program: &Program, commit: &str, out: &mut Sink) -> Result<()> {
        let (mut child, globs, mut out) = (program.list(commit)?, self.globs.clone(), out.fork());
        let Some(stdout) = child.stdout.take() else { return Err(Error::bug("git ls-tree has no output")) };
        tokio::task::spawn_blocking(move || {
            let scope: Scope = "".into();
            for line in std::io::BufReader::with_capacity(256 * 1024, stdout).split(0) {
                let line = line.map_err(|error| from_io(error, "reading the tree"))?;
                match tree::line(&line)? {
                    Line::File { path, sha } if globs.wants(&path) => {
                        out.blocking_send(Event::Seen(Entry::new(path, &scope, sha)))?;
                    }
                    Line::Unnamed(shown) => out.blocking_send(unnamed(&shown, &scope))?,
                    Line::File { .. } | Line::Other => {}
                }
            }
            program::ended(child, "git ls-tree")?;
            out.blocking_flush()
        })
        .await
        .unwrap_or_else(|error| Err(Error::bug("a reading thread ended early").caused_by(error)))
    }

    /// What differs between two commits; `None` = too much, or something a listing must explain.
    async fn compare(&self, program: &Program, from: &str, to: &str) -> Result<Option<Vec<News>>> {
        let (mut child, globs) = (program.compare(from, to)?, self.globs.clone());
        let Some(stdout) = child.stdout.take() else { return Err(Error::bug("git diff-tree has no output")) };
        let comparing = tokio::task::spawn_blocking(move || {
            let news = read_news(std::io::BufReader::new(stdout), &globs);
            if matches!(news, Ok(Some(_))) {
                program::ended(child, "git diff-tree")?;
            } else {
                program::abandon(child);
            }
            news
        });
        comparing
            .await
            .unwrap_or_else(|error| Err(Error::bug("a reading thread ended early").caused_by(error)))
    }

    /// Whoever knows a blob's name need not have listed the tree: then what is at hand will do.
    async fn blobs(&self) -> Result<Blobs> {
        if let Some(blobs) = &*self.blobs.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(blobs.clone());
        }
        let program = match &self.place {
            Place::Here(path) => Program::in_folder(path)?,
            Place::Fetched(cache) => match cache.at_hand() {
                Some(program) => program,
                None => self.head().await.context(|| self.name.clone())?.0,
            },
        };
        Ok(self.serve_from(&program))
    }

    fn serve_from(&self, program: &Program) -> Blobs {
        let blobs = Blobs::new(program.clone());
        *self.blobs.lock().unwrap_or_else(PoisonError::into_inner) = Some(blobs.clone());
        blobs
    }
}

fn body(entry: &Entry, blob: Result<bytes::Bytes>) -> Result<Body> {
    let bytes = blob.context(|| format!("reading {}", entry.id))?;
    Ok(Body { bytes, version: entry.version.clone() })
}

fn read_news(lines: impl std::io::BufRead, globs: &Globs) -> Result<Option<Vec<News>>> {
    let scope: Scope = "".into();
    let mut news = Vec::new();
    let mut lines = lines.split(0);
    let mut next = || lines.next().transpose().map_err(|error| from_io(error, "comparing two commits"));
    while let Some(head) = next()? {
        let path = next()?.unwrap_or_default();
        news.push(match tree::difference(&head, &path)? {
            Difference::Unnamed => return Ok(None),
            Difference::Came { path, sha } if globs.wants(&path) => News::Came(Entry::new(path, &scope, sha)),
            Difference::Changed { path, sha } if globs.wants(&path) => {
                News::Changed(Entry::new(path, &scope, sha))
            }
            Difference::Went { path } if globs.wants(&path) => News::Went(Entry::new(path, &scope, "")),
            _ => continue,
        });
        if news.len() > NEWS_MAX {
            return Ok(None);
        }
    }
    Ok(Some(news))
}

/// A path that is not UTF-8 cannot be a key; it is there, and must not be taken for absent.
fn unnamed(shown: &str, scope: &Scope) -> Event {
    let error = Error::new(Kind::Invalid, format!("the path {shown} is not valid UTF-8"))
        .remedy_is("Rename the file in the repository, or name its folder in `exclude`.");
    Event::Bad(Entry::new(format!("{shown}/"), scope, ""), error)
}

#[async_trait]
impl Source for Git {
    fn name(&self) -> &str {
        &self.name
    }

    fn sorted(&self) -> bool {
        true
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    fn skips_unchanged(&self) -> bool {
        true
    }

    async fn since(&self, cursors: &Cursors) -> Result<Option<Since>> {
        let Some(before) = cursors.get("") else { return Ok(None) };
        let (program, commit) = self.head().await.context(|| self.name.clone())?;
        self.serve_from(&program);
        let news = if *before == commit {
            Some(Vec::new())
        } else {
            // The earlier commit may be gone for good: history was rewritten, or the cache was tidied.
            self.compare(&program, before, &commit).await.unwrap_or(None)
        };
        Ok(news.map(|news| Since { scope: "".into(), cursor: commit, news }))
    }

    async fn list(&self, cursors: &Cursors, out: &mut Sink) -> Result<()> {
        let (program, commit) = self.head().await.context(|| self.name.clone())?;
        self.serve_from(&program);
        if cursors.get("") == Some(&commit) {
            return out.send(Event::Unchanged("".into())).await;
        }
        let end = match self.tell(&program, &commit, out).await {
            Ok(()) => Event::Complete("".into(), Some(commit)),
            Err(error) if error.kind() == Kind::Canceled => return Err(error),
            Err(error) => Event::Broken("".into(), error),
        };
        out.send(end).await
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        body(entry, self.blobs().await?.read(&entry.version).await)
    }

    async fn open_all(&self, entries: &[&Entry], _: usize, bytes_max: usize) -> Vec<Result<Body>> {
        let shas = entries.iter().map(|entry| entry.version.clone()).collect();
        match self.blobs().await {
            Ok(blobs) => {
                let read = blobs.read_all(shas, bytes_max).await;
                entries.iter().zip(read).map(|(entry, blob)| body(entry, blob)).collect()
            }
            Err(error) => vec![Err(error)],
        }
    }

    /// Conversations with the repository; blobs are at hand after the first one.
    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    async fn check(&self) -> Result<Vec<String>> {
        let (_, commit) = self.head().await.context(|| self.name.clone())?;
        Ok(vec![format!("{} is at {}", self.repository.branch_shown(), &commit[..commit.len().min(12)])])
    }
}
