//! Leases: single flight over a state that machines share. A lease is a key its holder keeps changing; whoever finds it
//! unchanged for a whole [`TTL`] *on its own clock* may take it. No two clocks are ever compared, so clocks that are
//! wrong do no harm, and a store needs nothing but compare-and-set (docs/decisions/0009-leases.md).
//!
//! A holder gives up [`MARGIN`] before anybody may take over. What it writes into the state carries its fence, so that
//! even a process that slept through all of this cannot write there. It refuses to guess: a lease that cannot be
//! renewed is lost.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{decode, decode_line, item, keys};
use crate::clock::{SharedClock, rfc3339_ms};
use crate::error::{Error, Fault, Kind, Result};
use crate::record::Version;
use crate::store::{Expect, Item, Mode, Op, Outcome, SharedStore, StoreExt, What};

/// How long a lease may stay unchanged before it is free: a killed holder is replaced within 10 s, start included.
pub const TTL: Duration = Duration::from_secs(5);
/// Two renewals may fail before the third is too late.
pub const RENEW_EVERY: Duration = Duration::from_millis(1_250);
/// The holder stops this much earlier than anybody may take over: clocks tick at slightly different speeds.
pub const MARGIN: Duration = Duration::from_secs(1);
/// A renewal that failed is tried again soon: the time that is left is short.
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// Between two looks at a lease somebody holds.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Giving a lease back is a courtesy; who cannot goes, and it runs out by itself.
const RELEASE_MAX: Duration = Duration::from_secs(2);

/// How holders are named that work on a queue, each name used once.
pub const WORKER: &str = "worker-";

/// Who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub machine: String,
    pub pid: u32,
    /// By the holder's clock, for people.
    pub since: String,
    /// Grows by one with every acquisition.
    pub fence: u64,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, process {}, since {}", self.machine, self.pid, self.since)
    }
}

/// The record under `lease/NAME`. Every renewal raises `beat`, which is what others watch.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Beat {
    #[serde(flatten)]
    holder: Holder,
    /// Tells two processes apart that share a name and a number.
    id: u64,
    beat: u64,
    /// When it was renewed by the holder's clock: for people, never compared.
    renewed: String,
}

/// Whether the holder of a lease is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Gone,
    Alive,
    /// It has not been watched for long enough.
    Unsure,
}

/// What this process saw of somebody's lease.
struct Sighting {
    version: Version,
    /// Monotonic, after the answer that showed this version first.
    since_ms: u64,
    moved: bool,
}

/// All leases of a state.
pub struct Leases {
    store: SharedStore,
    clock: SharedClock,
    seen: Mutex<HashMap<String, Sighting>>,
}

type Found = HashMap<String, (Beat, Version)>;

impl Leases {
    /// `store` should have a connection of its own: renewals must not wait behind a run's own writes.
    pub fn new(store: SharedStore, clock: SharedClock) -> Self {
        Leases { store, clock, seen: Mutex::default() }
    }

    /// Take a lease, or say who has it. Waits until the holder shows a sign of life, or was silent for too long.
    pub async fn acquire(&self, name: &str) -> Result<Lease> {
        let mut first: Option<Version> = None;
        loop {
            let mut found = self.look().await?;
            let Some((beat, version)) = found.remove(name) else {
                return self.take(name, None).await?.ok_or_else(|| busy(name, None));
            };
            if first.get_or_insert_with(|| version.clone()) != &version {
                return Err(busy(name, Some(&beat.holder)));
            }
            if self.standing_of(name) == Standing::Gone {
                let taken = self.take(name, Some(version)).await?;
                self.sweep(&found).await?;
                return taken.ok_or_else(|| busy(name, Some(&beat.holder)));
            }
            self.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Who holds it, as far as anybody can tell. A record that looks old is watched for a moment.
    pub async fn holder(&self, name: &str) -> Result<Option<Holder>> {
        let started = self.clock.elapsed_ms();
        loop {
            let Some((beat, _)) = self.look().await?.remove(name) else { return Ok(None) };
            let age =
                beat.renewed.parse::<jiff::Timestamp>().map(|at| self.clock.machine_now().duration_since(at));
            let fresh = age.is_ok_and(|age| age.unsigned_abs() <= RENEW_EVERY + MARGIN);
            if fresh || self.standing_of(name) == Standing::Alive {
                return Ok(Some(beat.holder));
            }
            if self.clock.elapsed_ms() - started > ms(RENEW_EVERY + MARGIN) {
                return Ok(None);
            }
            self.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Whether these holders, whose names are used once, are there. What is left of those who are gone is cleared away.
    pub async fn standing(&self, names: &[&str]) -> Result<Vec<Standing>> {
        let mut found = self.look().await?;
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            let standing = self.standing_of(name);
            if let (Standing::Gone, Some((_, version))) = (standing, found.remove(*name)) {
                let gone = vec![
                    Item::delete(keys::lease(name)).expecting(Expect::Exactly(version)),
                    Item::delete(keys::fence(name)),
                ];
                let outcomes = self.store.write(gone, Mode::All).await?;
                if !outcomes.into_iter().collect::<Result<Vec<_>>>()?.iter().all(Outcome::landed) {
                    all.push(Standing::Alive);
                    continue;
                }
            }
            all.push(standing);
        }
        Ok(all)
    }

    /// Whoever was watched beside a dead holder and was silent for as long died with it.
    async fn sweep(&self, found: &Found) -> Result<()> {
        let workers = found.keys().map(String::as_str).filter(|name| name.starts_with(WORKER));
        let workers: Vec<&str> = workers.filter(|name| self.standing_of(name) == Standing::Gone).collect();
        if workers.is_empty() { Ok(()) } else { self.standing(&workers).await.map(drop) }
    }

    /// One look, without a wait: which of these nobody holds, or somebody who was silent for too long. Whoever looks
    /// again and again knows so within a lease's time after the holder died.
    pub async fn free(&self, names: &[&str]) -> Result<Vec<bool>> {
        self.look().await?;
        Ok(names.iter().map(|name| self.standing_of(name) == Standing::Gone).collect())
    }

    /// Clear away what workers left that died between two pieces of work: no task names them, so nobody else would.
    pub async fn clear(&self) -> Result<()> {
        let found = self.look().await?;
        self.sweep(&found).await
    }

    /// Wait until nothing is unsure about these holders.
    pub async fn watch(&self, names: &[&str]) -> Result<Vec<Standing>> {
        loop {
            let standing = self.standing(names).await?;
            if !standing.contains(&Standing::Unsure) {
                return Ok(standing);
            }
            self.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Clear away the fence of a name that is not used again.
    pub async fn forget(&self, name: &str) {
        // Best effort: it is a few bytes.
        drop(tokio::time::timeout(RELEASE_MAX, self.store.write_one(Item::delete(keys::fence(name)))).await);
    }

    /// Read every lease and remember since when each has looked as it does.
    async fn look(&self) -> Result<Found> {
        let lines = self.store.list_all(keys::LEASES, What::Values).await?;
        // After the answer: a renewal that came while it was on its way must not count as silence.
        let now = self.clock.elapsed_ms();
        let mut found = Found::new();
        for line in lines {
            let name = keys::below(keys::LEASES, &line.key).to_owned();
            found.insert(name, (decode_line(&line)?, line.version));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|name, _| found.contains_key(name));
        for (name, (_, version)) in &found {
            let moved = seen.get(name).map(|sighting| sighting.version != *version);
            if moved != Some(false) {
                let moved = moved.is_some();
                seen.insert(name.clone(), Sighting { version: version.clone(), since_ms: now, moved });
            }
        }
        Ok(found)
    }

    fn standing_of(&self, name: &str) -> Standing {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get(name) {
            None => Standing::Gone,
            Some(one) if self.clock.elapsed_ms().saturating_sub(one.since_ms) >= ms(TTL) => Standing::Gone,
            Some(one) if one.moved => Standing::Alive,
            Some(_) => Standing::Unsure,
        }
    }

    /// `None` = somebody else was faster.
    async fn take(&self, name: &str, silent: Option<Version>) -> Result<Option<Lease>> {
        let started = self.clock.elapsed_ms();
        let fence_key = keys::fence(name);
        let before = self.store.get_one(&fence_key).await?;
        let number: u64 = match &before {
            Some(stored) => decode(&fence_key, &stored.value)?,
            None => 0,
        };
        let now = rfc3339_ms(self.clock.machine_now());
        let holder =
            Holder { machine: machine(), pid: std::process::id(), since: now.clone(), fence: number + 1 };
        let beat = Beat { holder, id: self.clock.random() >> 12, beat: 0, renewed: now };
        let items = vec![
            item(keys::lease(name), &beat)?.expecting(silent.map_or(Expect::Absent, Expect::Exactly)),
            item(fence_key.clone(), &(number + 1))?
                .expecting(before.map_or(Expect::Absent, |stored| Expect::Exactly(stored.version))),
        ];
        let outcomes: Vec<Outcome> =
            self.store.write(items, Mode::All).await?.into_iter().collect::<Result<_>>()?;
        let [Outcome::Applied(Some(version)), Outcome::Applied(Some(fence))] = outcomes.as_slice() else {
            return Ok(None);
        };
        let held = Held {
            name: name.to_owned(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            valid_until_ms: AtomicU64::new(started + ms(TTL) - ms(MARGIN)),
            lost: OnceLock::new(),
            trouble: Mutex::new(None),
        };
        let fence = Fence { key: fence_key, version: fence.clone(), held: Arc::new(held) };
        Ok(Some(Lease::keep(fence, beat, version.clone())))
    }
}

/// The time a holder has is counted from before it asked, others count from after they were answered.
struct Held {
    name: String,
    store: SharedStore,
    clock: SharedClock,
    valid_until_ms: AtomicU64,
    lost: OnceLock<Fault>,
    /// Why the last renewal failed.
    trouble: Mutex<Option<Error>>,
}

impl Held {
    fn check(&self) -> Result<()> {
        if let Some(fault) = self.lost.get() {
            return Err(Error::from(fault));
        }
        if self.clock.elapsed_ms() < self.valid_until_ms.load(Ordering::SeqCst) {
            return Ok(());
        }
        // Held until it is decided: of two who find out at once, one would know the reason and the other none.
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        // Who finds out this late was asleep, and what failed then says nothing.
        let asleep = self.clock.elapsed_ms() > self.valid_until_ms.load(Ordering::SeqCst) + ms(TTL);
        Err(self.lose(trouble.take().filter(|_| !asleep)))
    }

    /// It is over, for this reason.
    fn lose(&self, why: Option<Error>) -> Error {
        let error = match why {
            Some(error) => Error::new(error.kind(), format!("lost the lease on {}: {error}", self.name))
                .remedy_is(error.remedy()),
            None => lost(&self.name),
        };
        Error::from(self.lost.get_or_init(|| Fault::of(&error)))
    }

    fn left(&self) -> Duration {
        let until = self.valid_until_ms.load(Ordering::SeqCst);
        Duration::from_millis(until.saturating_sub(self.clock.elapsed_ms()))
    }
}

/// What a run's writes into the state carry: they count only while nobody else has acquired the lease.
#[derive(Clone)]
pub struct Fence {
    key: String,
    version: Version,
    held: Arc<Held>,
}

impl Fence {
    /// The condition that goes with every write.
    pub fn condition(&self) -> Item {
        Item { key: self.key.clone(), op: Op::Check, expect: Expect::Exactly(self.version.clone()) }
    }

    /// Whether the lease still holds, by this process's own clock.
    pub fn check(&self) -> Result<()> {
        self.held.check()
    }

    /// A write was refused because somebody else has the lease.
    pub fn broken(&self) -> Error {
        self.held.lose(None)
    }
}

/// A lease that is kept as long as this lives.
pub struct Lease {
    fence: Fence,
    stop: watch::Sender<bool>,
    keeper: Option<JoinHandle<()>>,
}

impl Lease {
    fn keep(fence: Fence, beat: Beat, version: Version) -> Self {
        let (stop, stopped) = watch::channel(false);
        let keeper = Keeper { held: fence.held.clone(), beat, version, stopped };
        Lease { fence, stop, keeper: Some(tokio::spawn(keeper.run())) }
    }

    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Work that ends the moment the lease is lost: not one step of it is taken after that.
    pub async fn guard<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = pin!(work);
        let held = &self.fence.held;
        let mut over = pin!(async {
            loop {
                held.clock.sleep(held.left().clamp(Duration::from_millis(1), LOOK_EVERY)).await;
                if let Err(error) = held.check() {
                    return error;
                }
            }
        });
        std::future::poll_fn(|context| {
            if let Err(error) = held.check() {
                return Poll::Ready(Err(error));
            }
            if let Poll::Ready(error) = over.as_mut().poll(context) {
                return Poll::Ready(Err(error));
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Give it back, so that the next one need not wait.
    pub async fn release(mut self) {
        self.stop.send_replace(true);
        if let Some(keeper) = self.keeper.take() {
            drop(tokio::time::timeout(RELEASE_MAX, keeper).await);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The keeper gives it back, if there is still somebody to run it.
        self.stop.send_replace(true);
    }
}

/// Renews a lease until it is told to stop, then gives it back.
struct Keeper {
    held: Arc<Held>,
    beat: Beat,
    version: Version,
    stopped: watch::Receiver<bool>,
}

impl Keeper {
    async fn run(mut self) {
        let mut wait = RENEW_EVERY;
        loop {
            let held = self.held.clone();
            let stopped = tokio::select! {
                _ = self.stopped.wait_for(|stopped| *stopped) => true,
                () = held.clock.sleep(wait.min(held.left())) => false,
            };
            if stopped {
                return self.give_back().await;
            }
            if held.check().is_err() {
                return;
            }
            wait = match self.renew().await {
                Ok(true) => RENEW_EVERY,
                Ok(false) => {
                    held.lose(None);
                    return;
                }
                Err(error) => {
                    *held.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    RETRY_EVERY
                }
            };
        }
    }

    /// One beat, tried until it is known to be there. `false` = the lease is somebody else's.
    async fn renew(&mut self) -> Result<bool> {
        let held = self.held.clone();
        self.beat.beat += 1;
        self.beat.renewed = rfc3339_ms(held.clock.machine_now());
        // An answer that was lost may have been a renewal: others count from the first attempt then.
        let started = held.clock.elapsed_ms();
        // Until the answer is there, its absence is the trouble: whoever looks in the meantime must be told so.
        let silence = || Error::new(Kind::Unavailable, "the state did not answer in time");
        held.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(silence);
        loop {
            let beat =
                item(keys::lease(&held.name), &self.beat)?.expecting(Expect::Exactly(self.version.clone()));
            let answer = tokio::time::timeout(held.left(), held.store.write_one(beat)).await;
            let trouble = match answer {
                Ok(Ok(Outcome::Applied(Some(version)) | Outcome::AlreadySo(Some(version)))) => {
                    self.version = version;
                    held.valid_until_ms.store(started + ms(TTL) - ms(MARGIN), Ordering::SeqCst);
                    held.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
                    return Ok(true);
                }
                Ok(Ok(_)) => return Ok(false),
                Ok(Err(error)) => error,
                Err(_) => silence(),
            };
            *held.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
            held.check()?;
            held.clock.sleep(RETRY_EVERY.min(held.left())).await;
        }
    }

    async fn give_back(self) {
        let gone = Item::delete(keys::lease(&self.held.name)).expecting(Expect::Exactly(self.version));
        // Whoever cannot be told finds out by watching.
        drop(tokio::time::timeout(RELEASE_MAX, self.held.store.write_one(gone)).await);
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn lost(name: &str) -> Error {
    let message =
        format!("lost the lease on {name}: it was not renewed in time, or somebody else has taken it");
    Error::new(Kind::Conflict, message)
        .remedy_is("Nothing to do: whoever holds it now goes on; `trueup status` shows who that is.")
}

fn busy(name: &str, holder: Option<&Holder>) -> Error {
    let by = holder.map(|holder| format!(" ({holder})")).unwrap_or_default();
    Error::new(Kind::Busy, format!("{name} is already running{by}"))
}

/// What people call this machine.
fn machine() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let named = named.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    if named.trim().is_empty() { "a machine without a name".to_owned() } else { named.trim().to_owned() }
}
