//! The embedded store: one SQLite file that any number of processes may read while one writes.
//!
//! Writes go through one thread per store and come back durable (WAL, `synchronous=FULL`); reads have connections
//! of their own and never wait for the writer. A file that is not ours, is newer than this program, or is damaged
//! is refused and left as it is. Opened with [`Access::Read`], nothing is created and no byte of the file changes.
//!
//! Layout (format 1; `sqlite3 FILE 'select * from entries'` shows it to a person):
//! - `kv`: key → version, fingerprint and the value itself when it is small. `WITHOUT ROWID`: one lookup per key.
//! - `large`: values over [`INLINE_MAX`], because long rows make a `WITHOUT ROWID` table many times slower.
//! - `meta`: the version counter, which only grows, so that no version ever names two states.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;

use super::{Access, Caps, Item, Mode, Outcome, Page, Query, Store, Stored, Sum, check_atomic, writable};
use crate::error::{Context, Error, Kind, Result};

mod backup;
pub(super) mod fault;
pub(super) mod file;
mod reader;
mod several;
mod writer;

pub use file::{APPLICATION_ID, FORMAT};

/// Values up to this many bytes stay in the row of their key.
pub const INLINE_MAX: usize = 1_024;

pub(super) const CAPS: Caps = Caps {
    create: true,
    cas: true,
    // One transaction of this many small rows stays within a few megabytes of log and a fraction of a second.
    atomic_max: 60_000,
    strong_read: true,
    cheap_list: true,
    keeps_fingerprint: true,
    sums: true,
    lists_own: false,
    // From here on a larger batch no longer saves much: the flush to disk is shared by enough rows.
    bulk_max: 1_000,
    side_by_side: 1,
    // Room for any other store's key below a prefix of ours.
    key_max: 4_096,
    // A value is in memory several times on its way; four of this size still fit a small machine.
    value_max: 256 * 1024 * 1024,
};

/// A store in a SQLite file.
pub struct Sqlite {
    name: String,
    path: PathBuf,
    readers: Arc<reader::Readers>,
    /// `None` when opened to be read.
    writer: Option<writer::Writer>,
}

impl Sqlite {
    /// Open the file; with [`Access::Write`] it and its folders are made if need be, with [`Access::Read`] a missing
    /// file is an empty store. Blocks for as long as the disk takes: call it from a thread that may.
    pub fn open(path: &Path, access: Access) -> Result<Sqlite> {
        let name = format!("sqlite:{}", path.display());
        let doing = || format!("opening {name}");
        let writer = match access {
            Access::Write => Some(writer::Writer::start(file::open_to_write(path).context(doing)?)?),
            Access::Read => None,
        };
        let readers = Arc::new(reader::Readers::new(path.to_owned(), access));
        readers.try_out().context(doing)?;
        Ok(Sqlite { path: path.to_owned(), readers, writer, name })
    }

    /// A consistent copy of the whole store while others go on reading and writing. An existing file is refused.
    pub async fn backup(&self, to: &Path) -> Result<()> {
        let to = to.to_owned();
        let doing = format!("backing up {} to {}", self.name, to.display());
        let beside = to.clone();
        let copied = self.read(move |source| backup::copy(source, &beside)).await;
        copied.and_then(|draft| backup::name(draft, &to)).context(|| doing)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Run a read on a thread that may block. `None` stands for a file that does not exist.
    async fn read<T: Send + 'static>(
        &self,
        work: impl Fn(Option<&mut Connection>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _turn = self.readers.turn().await?;
        let readers = Arc::clone(&self.readers);
        let done = tokio::task::spawn_blocking(move || readers.with(work)).await;
        done.map_err(|error| Error::bug("a read of SQLite broke off").caused_by(error))?
    }
}

impl Drop for Sqlite {
    /// Readers close first: the last connection to close, the writer's, then folds the log into the file.
    fn drop(&mut self) {
        self.readers.close();
        drop(self.writer.take());
    }
}

#[async_trait]
impl Store for Sqlite {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        CAPS
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let got = self.read(move |source| reader::get(source, &keys)).await;
        got.context(|| format!("reading {}", self.name))
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        let span = reader::Span::of(&query);
        let page = self.read(move |source| reader::list(source, &span)).await;
        page.context(|| format!("listing {}", self.name))
    }

    async fn sum(&self, prefix: &str) -> Result<Option<Sum>> {
        let span = reader::Span::of(&Query::keys(prefix));
        let sum = self.read(move |source| reader::sum(source, &span)).await;
        sum.context(|| format!("summing up {}", self.name)).map(Some)
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        check_atomic(&CAPS, items.len(), mode)?;
        let Some(writer) = &self.writer else {
            let message = format!("{} was opened to be read and was asked to write", self.name);
            return Err(Error::new(Kind::Bug, message));
        };
        writer.write(items, mode).await.context(|| format!("writing to {}", self.name))
    }

    async fn is_there(&self) -> Result<bool> {
        self.read(|source| Ok(source.is_some())).await
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.list(Query { limit: 1, ..Query::keys("") }).await?;
        if access == Access::Write {
            writable::check_database(&self.path)?;
        }
        Ok(Vec::new())
    }
}
