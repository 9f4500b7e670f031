//! A store on which things go wrong, on purpose. Each mishap is named by what really happened, because that is what
//! a caller cannot see: an error may mean that nothing was written, or that all of it was and the answer got lost.
//!
//! Mishaps come at a numbered call ("fail at step 1, 2, 3 …") or by chance from a repeatable `Clock`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, watch};

use super::{Access, Caps, Item, Mode, Outcome, Page, Query, SharedStore, Store, Stored, Sum};
use crate::clock::SharedClock;
use crate::error::{Error, Kind, Result};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing happened; the caller gets an error.
    Reject,
    /// It was done, for good; the caller gets an error all the same.
    FailAfterWrite,
    /// The call waits until [`Faulty::release`], then goes through.
    Hold,
    /// The call goes through after this long.
    Slow(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Write,
}

/// When a mishap comes: which calls are counted, and which of them it hits (from 1).
#[derive(Debug, Clone, Copy)]
struct Planned {
    verb: Option<Verb>,
    call: u64,
    /// It hits every later call too: the store, or the caller, is as good as dead.
    lasting: bool,
    mishap: Mishap,
}

/// How likely each mishap is, per call, in [0, 1].
#[derive(Debug, Clone, Copy, Default)]
pub struct Odds {
    pub reject: f64,
    pub fail_after_write: f64,
    pub slow: f64,
    /// How slow a slow call is.
    pub slow_by: Duration,
}

pub struct Faulty {
    inner: SharedStore,
    clock: SharedClock,
    plan: Mutex<Vec<Planned>>,
    odds: Mutex<Odds>,
    calls: [AtomicU64; 3],
    gate: Semaphore,
    held: watch::Sender<usize>,
}

impl Faulty {
    /// Goes well until a mishap is planned. The clock gives chance and waits for slow calls.
    pub fn new(inner: SharedStore, clock: SharedClock) -> Self {
        Faulty {
            inner,
            clock,
            plan: Mutex::default(),
            odds: Mutex::default(),
            calls: Default::default(),
            gate: Semaphore::new(0),
            held: watch::Sender::new(0),
        }
    }

    /// Hit the call with this number, counting calls of every verb from 1.
    pub fn at(&self, call: u64, mishap: Mishap) {
        self.add(Planned { verb: None, call, lasting: false, mishap });
    }

    /// Hit this call and every one after it.
    pub fn from(&self, call: u64, mishap: Mishap) {
        self.add(Planned { verb: None, call, lasting: true, mishap });
    }

    /// Hit the call with this number among the calls of one verb.
    pub fn at_verb(&self, verb: Verb, call: u64, mishap: Mishap) {
        self.add(Planned { verb: Some(verb), call, lasting: false, mishap });
    }

    pub fn by_chance(&self, odds: Odds) {
        *self.odds.lock().unwrap_or_else(PoisonError::into_inner) = odds;
    }

    /// From now on everything goes well.
    pub fn heal(&self) {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.by_chance(Odds::default());
    }

    /// Calls so far, of every verb.
    pub fn calls(&self) -> u64 {
        self.calls.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Wait until a call is held.
    pub async fn until_held(&self) {
        // The sender lives in self, so the wait cannot fail.
        let _ = self.held.subscribe().wait_for(|held| *held > 0).await;
    }

    /// Let one held call go on, now or when it comes.
    pub fn release(&self) {
        self.gate.add_permits(1);
    }

    fn add(&self, planned: Planned) {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).push(planned);
    }

    /// Count the call and see what hits it.
    fn next(&self, verb: Verb) -> Option<Mishap> {
        let of_verb = self.calls[verb as usize].fetch_add(1, Ordering::SeqCst) + 1;
        let of_all = self.calls();
        let hits = |planned: &&Planned| {
            let call = match planned.verb {
                None => of_all,
                Some(only) if only == verb => of_verb,
                Some(_) => return false,
            };
            call == planned.call || (planned.lasting && call > planned.call)
        };
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let planned = plan.iter().find(hits).map(|planned| planned.mishap);
        planned.or_else(|| self.chance())
    }

    fn chance(&self) -> Option<Mishap> {
        let odds = *self.odds.lock().unwrap_or_else(PoisonError::into_inner);
        if odds.reject + odds.fail_after_write + odds.slow <= 0.0 {
            return None;
        }
        let chance = self.clock.chance();
        if chance < odds.reject {
            Some(Mishap::Reject)
        } else if chance < odds.reject + odds.fail_after_write {
            Some(Mishap::FailAfterWrite)
        } else if chance < odds.reject + odds.fail_after_write + odds.slow {
            Some(Mishap::Slow(odds.slow_by))
        } else {
            None
        }
    }

    async fn hold(&self) {
        self.held.send_modify(|held| *held += 1);
        if let Ok(permit) = self.gate.acquire().await {
            permit.forget();
        }
        self.held.send_modify(|held| *held -= 1);
    }

    /// Run a call as its mishap has it.
    async fn run<T>(&self, verb: Verb, call: impl Future<Output = Result<T>>) -> Result<T> {
        match self.next(verb) {
            None => call.await,
            Some(Mishap::Reject) => Err(self.error(verb, "was rejected; nothing happened")),
            Some(Mishap::FailAfterWrite) => {
                call.await?;
                Err(self.error(verb, "was done, but the answer got lost"))
            }
            Some(Mishap::Hold) => {
                self.hold().await;
                call.await
            }
            Some(Mishap::Slow(by)) => {
                self.clock.sleep(by).await;
                call.await
            }
        }
    }

    fn error(&self, verb: Verb, what: &str) -> Error {
        let verb = match verb {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Write => "write",
        };
        Error::new(Kind::Unavailable, format!("{}: the {verb} {what} (staged)", self.inner.name()))
    }
}

#[async_trait]
impl Store for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        self.run(Verb::Get, self.inner.get(keys)).await
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.run(Verb::List, self.inner.list(query)).await
    }

    async fn survey(&self, query: Query<'_>) -> Result<Page> {
        self.run(Verb::List, self.inner.survey(query)).await
    }

    async fn sum(&self, prefix: &str) -> Result<Option<Sum>> {
        self.run(Verb::List, self.inner.sum(prefix)).await
    }

    async fn any_unlisted(&self) -> Result<bool> {
        // Most stores know without a look.
        self.inner.any_unlisted().await
    }

    async fn unlisted(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        self.run(Verb::Get, self.inner.unlisted(keys)).await
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        self.run(Verb::Write, self.inner.write(items, mode)).await
    }

    async fn is_there(&self) -> Result<bool> {
        self.inner.is_there().await
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.inner.check(access).await
    }
}
