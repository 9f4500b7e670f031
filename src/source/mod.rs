//! A source: something that can be listed, in scopes that end in proof or in an error.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};
use tokio::sync::mpsc;

use crate::error::{Error, Result};
use crate::record::{Body, Entry, Scope};

pub mod files;
pub mod git;
pub mod github;
pub mod globs;
mod object_id;
pub mod rest;
pub mod rss;
mod silence;
pub mod store;
pub mod walk;

/// Where each scope was left off; written by an earlier, fully applied run.
pub type Cursors = BTreeMap<String, String>;

/// What a listing says. Absence is only ever concluded from `Complete`.
#[derive(Debug)]
pub enum Event {
    /// This is there.
    Seen(Entry),
    /// This is there, but cannot be used; it is never taken for absent.
    Bad(Entry, Error),
    /// The source itself says that this was removed (change feeds).
    Gone(Entry),
    /// The scope was read to its end: what was not seen in it is not there.
    Complete(Scope, Option<String>),
    /// The scope was read well, but shows only a part (a feed): absence means nothing.
    Window(Scope, Option<String>),
    /// Nothing changed in this scope since the cursor; it was not read.
    Unchanged(Scope),
    /// The scope could not be read to its end: absence in it is unproven.
    Broken(Scope, Error),
    /// Something a person should know that stops nothing: it becomes a warning of the run.
    Note(String),
}

/// What became of an entry since a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    Came(Entry),
    Changed(Entry),
    Went(Entry),
}

/// Everything that happened in a source of one scope since its cursor: what is not mentioned is as it was then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Since {
    pub scope: Scope,
    /// Where the scope stands now.
    pub cursor: String,
    pub news: Vec<News>,
}

/// Whether a version tells the content, or only hints that it may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// Another version is another body (blob SHAs, checksums).
    Content,
    /// Another version may be the same body (file times): the body is compared before an update is planned.
    Hint,
}

#[async_trait]
pub trait Source: Send + Sync {
    /// How messages name it, without secrets.
    fn name(&self) -> &str;

    /// Entries come in byte order of their id.
    fn sorted(&self) -> bool;

    /// A listing names no entry twice, in whatever order it comes.
    fn names_once(&self) -> bool {
        self.sorted()
    }

    fn versions(&self) -> Versions;

    /// The entry id the scope hangs from, if it is a child scope: when that entry is gone, so is all in the scope.
    fn owner(&self, _scope: &str) -> Option<String> {
        None
    }

    /// Whether there is such a scope, or was one that its entry took along. `false` = the config no longer asks for it.
    fn has_scope(&self, _scope: &str) -> bool {
        true
    }

    /// Whether some scopes hang from entries at all.
    fn has_owners(&self) -> bool {
        false
    }

    /// Whether a listing comes to the scopes of every entry it lists, however they end: one it did not come to hangs from
    /// nothing any more.
    fn comes_to_all(&self) -> bool {
        false
    }

    /// Send every event. An error means the source as a whole could not be read: the run fails, nothing is absent.
    async fn list(&self, cursors: &Cursors, out: &mut Sink) -> Result<()>;

    /// Whether the list of a scope may have moved while it was read, so that something in it went unseen.
    fn may_have_moved(&self, _scope: &str) -> bool {
        false
    }

    /// The entry ids such a scope lists now.
    async fn names_now(&self, scope: &str, _stop: &Arc<AtomicBool>) -> Result<HashSet<String>> {
        Err(Error::bug(format!("{scope} cannot have moved")))
    }

    /// Whether a listing may leave out what did not change since the cursors.
    fn skips_unchanged(&self) -> bool {
        false
    }

    /// What happened since the cursors, for sources that know without listing; `None` = a listing must tell. Errors are
    /// those of `list`.
    async fn since(&self, _cursors: &Cursors) -> Result<Option<Since>> {
        Ok(None)
    }

    /// The body of an entry. Called only for what changed, several at a time.
    async fn open(&self, entry: &Entry) -> Result<Body>;

    /// The bodies of the first of these entries, one answer each, in order: as many as make up `bytes_max` bytes, and one
    /// at least. No more than `at_once` requests are under way.
    async fn open_all(&self, entries: &[&Entry], at_once: usize, bytes_max: usize) -> Vec<Result<Body>> {
        let mut announced = 0;
        // Where sizes are known, what would be too much is not even begun.
        let begun = entries.iter().take_while(|entry| {
            let fits = announced == 0 || announced < bytes_max as u64;
            announced += entry.size.unwrap_or(0);
            fits
        });
        let mut opening = begun.map(|entry| self.open(entry)).collect::<Vec<_>>().into_iter();
        let read = AtomicUsize::new(0);
        let next = || if read.load(Ordering::Relaxed) < bytes_max.max(1) { opening.next() } else { None };
        stream::iter(std::iter::from_fn(next))
            .buffered(at_once)
            .inspect(|body| {
                read.fetch_add(body.as_ref().map_or(0, |body| body.bytes.len()), Ordering::Relaxed);
            })
            .collect()
            .await
    }

    /// Requests made so far (listings, bodies and retries), for the report.
    fn requests(&self) -> u64;

    /// Whether `open` asks another machine (then `plan` announces bodies instead of fetching them).
    fn remote(&self) -> bool {
        false
    }

    /// Reach the source; findings are for people.
    async fn check(&self) -> Result<Vec<String>>;
}

/// Events per message: the channel costs once per batch, not once per entry.
const BATCH: usize = 512;
/// And no more bytes of bodies than this: some listings bring them along.
const BATCH_BYTES: usize = 1 << 20;
/// Batches under way: enough to keep both ends busy, few enough to bound memory.
const DEPTH: usize = 4;

/// Where a source sends its events. Bounded: a slow reader slows the source down.
pub struct Sink {
    batch: Vec<Event>,
    /// Bytes of bodies in it.
    bytes: usize,
    sender: mpsc::Sender<Vec<Event>>,
    stop: Arc<AtomicBool>,
}

pub type Events = mpsc::Receiver<Vec<Event>>;

/// A sink and its other end.
pub fn channel() -> (Sink, Events) {
    channel_until(Arc::default())
}

/// The same, with a flag that a person sets to end the reading.
pub fn channel_until(stop: Arc<AtomicBool>) -> (Sink, Events) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    (Sink { batch: Vec::with_capacity(BATCH), bytes: 0, sender, stop }, receiver)
}

impl Sink {
    /// A person asked to stop: a source that asks other machines finishes what is in flight and begins nothing new.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The same for tasks of the source's own.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    pub async fn send(&mut self, event: Event) -> Result<()> {
        if self.fills(event) { self.flush().await } else { Ok(()) }
    }

    /// Take it in, and say whether that is enough for a message.
    fn fills(&mut self, event: Event) -> bool {
        if let Event::Seen(Entry { inline: Some(body), .. }) = &event {
            self.bytes += body.len();
        }
        self.batch.push(event);
        self.batch.len() >= BATCH || self.bytes >= BATCH_BYTES
    }

    fn take(&mut self) -> Vec<Event> {
        self.bytes = 0;
        std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH))
    }

    /// For sources that walk on a blocking thread.
    pub fn blocking_send(&mut self, event: Event) -> Result<()> {
        if self.fills(event) { self.blocking_flush() } else { Ok(()) }
    }

    /// Send what is left. The pass calls this after `list`; a source need not.
    pub async fn flush(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = self.take();
        self.sender.send(batch).await.map_err(|_| stopped())
    }

    /// The same channel for another thread; both must be flushed.
    #[must_use]
    pub fn fork(&self) -> Sink {
        let (sender, stop) = (self.sender.clone(), self.stop.clone());
        Sink { batch: Vec::with_capacity(BATCH), bytes: 0, sender, stop }
    }

    /// Send what is left, from a blocking thread.
    pub fn blocking_flush(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = self.take();
        self.sender.blocking_send(batch).map_err(|_| stopped())
    }
}

fn stopped() -> Error {
    Error::new(crate::error::Kind::Canceled, "the reader of this source stopped")
}
