//! A whole pipeline in memory, with a clock of its own, and the promises every run must keep, whatever it was about.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trueup::clock::TestClock;
use trueup::config::{Drift, Guard, Journal, Limit};
use trueup::error::Result;
use trueup::pipeline::place::Place;
use trueup::pipeline::{Ask, Pipeline};
use trueup::queue::FollowUp;
use trueup::record::Fingerprint;
use trueup::shape::Shape;
use trueup::shape::raw::Raw;
use trueup::source::Source;
use trueup::source::store::FromStore;
use trueup::state::held::{Header, SYNC};
use trueup::state::lock::Locks;
use trueup::state::{Base, Report, State, Status, keys};
use trueup::store::memory::Memory;
use trueup::store::{Item, Mode, SharedStore, StoreExt, What};

/// The one pipeline's name.
pub const LINE: &str = "line";
pub const NOW: &str = "2026-01-01T00:00:00Z";

/// Everything that outlives a run: what is at the source, in the store and in the state.
pub struct Rig {
    pub clock: Arc<TestClock>,
    pub origin: Arc<Memory>,
    pub target: SharedStore,
    pub memory: SharedStore,
    pub source: Arc<dyn Source>,
    pub shape: Arc<dyn Shape>,
    pub locks: Arc<Locks>,
    pub guard: Guard,
    pub drift: Drift,
    pub adopt: bool,
    pub batch: Option<usize>,
    pub keep_runs: Duration,
    pub journal: Journal,
    pub then: Vec<FollowUp>,
}

/// Lets every change through.
pub const OPEN: Guard =
    Guard { max_delete: Limit::Percent(100.0), max_update: Limit::Percent(100.0), above: 10 };

impl Rig {
    /// A store as the source, the plain shape, no guard.
    pub fn new() -> Self {
        let origin = Arc::new(Memory::named("origin"));
        let source = Arc::new(FromStore::new(origin.clone(), String::new()));
        Rig { origin, ..Rig::over(source) }
    }

    pub fn over(source: Arc<dyn Source>) -> Self {
        Rig {
            clock: TestClock::at(NOW, 1),
            origin: Arc::new(Memory::named("origin")),
            target: Arc::new(Memory::named("target")),
            memory: Arc::new(Memory::named("state")),
            source,
            shape: Arc::new(Raw),
            locks: Arc::new(Locks::in_process()),
            guard: OPEN,
            drift: Drift::default(),
            adopt: false,
            batch: None,
            keep_runs: Duration::from_secs(30 * 24 * 3600),
            journal: Journal::default(),
            then: Vec::new(),
        }
    }

    /// A guard on deletes and one on updates, by plain numbers.
    pub fn guarded(mut self, deletes: u64, updates: u64) -> Self {
        self.guard =
            Guard { max_delete: Limit::Count(deletes), max_update: Limit::Count(updates), above: 10 };
        self
    }

    pub async fn line(&self) -> Pipeline {
        Pipeline {
            settings: String::new(),
            reading: String::new(),
            name: LINE.to_owned(),
            source: self.source.clone(),
            shape: self.shape.clone(),
            store: self.target.clone(),
            place: Place::named(self.target.name()),
            state: State::open(self.memory.clone()).await.unwrap(),
            locks: self.locks.clone(),
            clock: self.clock.clone(),
            guard: self.guard,
            drift: self.drift,
            adopt: self.adopt,
            batch: self.batch,
            concurrency: 4,
            keep_runs: self.keep_runs,
            journal: self.journal,
            then: self.then.clone(),
            baseline: None,
            records: None,
            notifier: None,
        }
    }

    pub async fn state(&self) -> State {
        State::look(self.memory.clone()).await.unwrap()
    }

    // ---- the source ----

    pub async fn give(&self, records: &[(&str, &str)]) {
        for (key, value) in records {
            let print = Fingerprint::of(value.as_bytes());
            let item = Item::put(*key, value.as_bytes().to_vec()).with_fingerprint(print);
            self.origin.write_one(item).await.unwrap();
        }
    }

    /// Records `k00`, `k01`, … with one value.
    pub async fn give_many(&self, count: usize, value: &str) {
        for number in 0..count {
            self.give(&[(&format!("k{number:02}"), value)]).await;
        }
    }

    pub async fn take_away(&self, keys: &[&str]) {
        for key in keys {
            self.origin.write_one(Item::delete(*key)).await.unwrap();
        }
    }

    // ---- the store, as an outsider ----

    pub async fn intrude(&self, key: &str, value: &str) {
        self.target.write_one(Item::put(key, value.as_bytes().to_vec())).await.unwrap();
    }

    pub async fn remove(&self, key: &str) {
        self.target.write_one(Item::delete(key)).await.unwrap();
    }

    pub async fn value(&self, key: &str) -> Option<String> {
        let stored = self.target.get_one(key).await.unwrap()?;
        Some(String::from_utf8(stored.value.to_vec()).unwrap())
    }

    // ---- runs ----

    pub async fn run(&self) -> Report {
        self.ask(Ask::plain("test")).await.unwrap()
    }

    pub async fn run_only(&self, key: &str) -> Report {
        self.ask(Ask { only: Some(key.to_owned()), ..Ask::plain("test") }).await.unwrap()
    }

    pub async fn ask(&self, ask: Ask) -> Result<Report> {
        let report = self.line().await.run(&ask).await?;
        self.kept_its_promises(&report).await;
        Ok(report)
    }

    pub async fn held(&self) -> Option<Header> {
        self.state().await.held_header(LINE, SYNC).await.unwrap()
    }

    pub async fn approve(&self, plan: &str) -> Result<Report> {
        let header = self.state().await.find_held(plan).await?;
        let report = self.line().await.approve(&header, Ask::plain("approve")).await?;
        self.kept_its_promises(&report).await;
        Ok(report)
    }

    pub async fn reject(&self, plan: &str) -> Result<Report> {
        let header = self.state().await.find_held(plan).await?;
        let report = self.line().await.reject(&header, &Ask::plain("reject")).await?;
        self.kept_its_promises(&report).await;
        Ok(report)
    }

    /// Run, and expect these counts of added, updated, deleted, unchanged.
    pub async fn ran(&self, added: u64, updated: u64, deleted: u64, unchanged: u64) -> Report {
        let report = self.run().await;
        assert_eq!(did(&report), [added, updated, deleted, unchanged], "{report:#?}");
        report
    }

    // ---- what must hold after every run ----

    pub async fn kept_its_promises(&self, report: &Report) {
        let counts = &report.counts;
        assert_ne!(report.status, Status::Running, "a run that ended says how");
        assert!(report.cause.is_some() || counts.add_up(), "counts add up: {report:#?}");
        let clean = counts.failed + counts.unproven + counts.held == 0 && report.cause.is_none();
        assert_eq!(
            report.status == Status::Ok,
            clean,
            "ok is said when all is well, and only then: {report:#?}"
        );
        let by_kind = &counts.held_by;
        assert_eq!(counts.held, by_kind.add + by_kind.update + by_kind.delete);
        let summed: u64 = report.groups.values().map(|group| group.scanned).sum();
        assert_eq!(summed, counts.scanned, "groups add up to the whole");
        let kept: Report = self.state().await.read(&keys::run(&report.id)).await.unwrap().unwrap();
        assert_eq!(kept.status, report.status, "what state keeps is what was reported");
        assert_eq!(kept.counts, report.counts);
        self.held_items_belong_to_a_plan().await;
    }

    /// Every held change hangs from a held plan: nothing is left of an older one.
    async fn held_items_belong_to_a_plan(&self) {
        let state = self.state().await;
        let plans: Vec<String> =
            state.held_headers().await.unwrap().into_iter().map(|header| header.plan).collect();
        let prefix = format!("held-item/{LINE}/");
        for key in state.keys(&prefix).await.unwrap() {
            let plan = keys::below(&prefix, &key).split('/').next().unwrap().to_owned();
            assert!(plans.contains(&plan), "{key} is left over; held: {plans:?}");
        }
    }

    /// Nothing is under way: no open batch, and the baseline says of every key what the store holds.
    pub async fn at_rest(&self) {
        let state = self.state().await;
        let open = state.keys(&keys::open_batches(LINE)).await.unwrap();
        assert!(open.is_empty(), "open batches: {open:?}");
        let held = contents(&self.target).await;
        let mut known = BTreeMap::new();
        for (identity, base) in self.bases().await {
            let key = base.key(&identity).to_owned();
            let stored = self.target.get_one(&key).await.unwrap();
            let stored = stored.unwrap_or_else(|| panic!("{key} is in the baseline, not in the store"));
            assert_eq!(stored.version, base.version, "the version of {key}");
            assert_eq!(Fingerprint::of(&stored.value), base.bytes_hash(), "the bytes of {key}");
            known.insert(key, stored.value);
        }
        assert_eq!(known, held, "the baseline is what the store holds");
    }

    pub async fn bases(&self) -> Vec<(String, Base)> {
        let prefix = keys::bases(LINE);
        let all = self.state().await.read_all::<Base>(&prefix).await.unwrap();
        all.into_iter().map(|(key, base)| (keys::below(&prefix, &key).to_owned(), base)).collect()
    }

    /// The store is what the source is, byte for byte, and nothing is under way.
    pub async fn in_step(&self) {
        let origin: SharedStore = self.origin.clone();
        assert_eq!(contents(&self.target).await, contents(&origin).await, "the store is as the source");
        self.at_rest().await;
    }

    pub async fn state_bytes(&self) -> BTreeMap<String, Bytes> {
        contents(&self.memory).await
    }
}

pub fn did(report: &Report) -> [u64; 4] {
    let counts = &report.counts;
    [counts.added, counts.updated, counts.deleted, counts.unchanged]
}

pub async fn contents(store: &SharedStore) -> BTreeMap<String, Bytes> {
    let lines = store.list_all("", What::Values).await.unwrap();
    lines.into_iter().map(|line| (line.key, line.value.unwrap())).collect()
}

/// Many records at once, a thousand to a write.
pub async fn fill(store: &SharedStore, records: impl IntoIterator<Item = (String, String)>) {
    let items: Vec<Item> = records.into_iter().map(|(key, value)| Item::put(key, value)).collect();
    for batch in items.chunks(1_000) {
        for outcome in store.write(batch.to_vec(), Mode::Each).await.unwrap() {
            outcome.unwrap();
        }
    }
}
