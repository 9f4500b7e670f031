//! One small world from one number: edits at the source, strangers at the store, faults, crashes, restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trueup::clock::{Clock, TestClock};
use trueup::config::{Guard, Limit};
use trueup::error::Result;
use trueup::pipeline::Ask;
use trueup::queue;
use trueup::record::Fingerprint;
use trueup::source::store::FromStore;
use trueup::state::held::Header;
use trueup::state::{Report, State, Status, keys};
use trueup::store::faulty::{Faulty, Odds};
use trueup::store::folder::Folder;
use trueup::store::{Access, Item, SharedStore, StoreExt};

use super::seams::{Fuse, Seam, Watched};
use crate::flow::rig::{NOW, OPEN, Rig, contents, did};
use crate::support;
use crate::trust::exports::export_to;

/// Keys the source may have.
const KEYS: u64 = 24;
/// The calls of a pass, roughly: a crash comes within or just after.
const CALLS: u64 = 90;

pub struct World {
    rig: Rig,
    watched: Arc<Watched>,
    dice: Arc<TestClock>,
    /// The store is too expensive to list on every pass, so drift is not seen.
    blind: bool,
    /// The source keeps fingerprints.
    prints: bool,
    most_deletes: Option<u64>,
    page: usize,
    /// What strangers put under names of their own; it must stay.
    strangers: BTreeMap<String, Bytes>,
    /// What each key ever held, whoever put it there: an undo brings back one of these.
    lived: BTreeMap<String, BTreeSet<Bytes>>,
    /// Where every change is exported to.
    copy: Option<tempfile::TempDir>,
}

/// What a round asks of the pipeline.
enum Wish {
    Sync,
    Approve(Header),
    Undo(String),
}

/// How one run went.
enum Ended {
    Reported(Box<Report>),
    NotStarted,
    Crashed,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let dice = TestClock::at(NOW, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut rig = Rig { clock: TestClock::at(NOW, seed), ..Rig::new() };
        let below = |most: u64| dice.random() % most;
        rig.batch = Some(usize::try_from(1 + below(6)).unwrap());
        let (blind, prints) = (below(4) == 0, below(3) > 0);
        let most_deletes = (below(2) == 0).then(|| below(4));
        let page = usize::try_from(1 + below(9)).unwrap();
        let copy = (below(4) == 0).then(support::temp);
        rig.then = copy.iter().map(|folder| export_to(folder.path())).collect();
        let (inner, memory) = (rig.target.clone(), rig.memory.clone());
        let watched = Arc::new(Watched { inner, memory, deeds: std::sync::Mutex::default() });
        let (strangers, lived) = (BTreeMap::new(), BTreeMap::new());
        World { rig, watched, dice, blind, prints, most_deletes, page, strangers, lived, copy }
    }

    fn below(&self, most: u64) -> u64 {
        self.dice.random() % most
    }

    /// Live through it, then come to rest.
    pub async fn live(mut self) {
        for _ in 0..3 + self.below(8) {
            self.edit_source().await;
            self.intrude().await;
            self.remember().await;
            self.round().await;
            self.remember().await;
        }
        self.come_to_rest().await;
    }

    async fn remember(&mut self) {
        for (key, value) in contents(&self.rig.target).await {
            self.lived.entry(key).or_default().insert(value);
        }
    }

    /// A sync, an approval of what is held, or an undo of any run there ever was.
    async fn wish(&self) -> Wish {
        if let Some(header) = self.rig.held().await.filter(|_| self.below(2) == 0) {
            return Wish::Approve(header);
        }
        let runs = self.rig.state().await.keys(keys::RUNS).await.unwrap();
        if runs.is_empty() || self.below(5) > 0 {
            return Wish::Sync;
        }
        let run = &runs[usize::try_from(self.below(runs.len() as u64)).unwrap()];
        Wish::Undo(keys::below(keys::RUNS, run).to_owned())
    }

    async fn edit_source(&self) {
        let edits = if self.below(8) == 0 { KEYS } else { self.below(6) };
        for _ in 0..edits {
            let key = format!("{}/{:02}", self.below(3), self.below(KEYS));
            let item = if self.below(3) == 0 {
                Item::delete(key)
            } else {
                let value = self.below(9).to_string().repeat(usize::try_from(1 + self.below(3)).unwrap());
                let print = Fingerprint::of(value.as_bytes());
                let item = Item::put(key, value);
                if self.prints { item.with_fingerprint(print) } else { item }
            };
            self.rig.origin.write_one(item).await.unwrap();
        }
    }

    /// Strangers write under names of their own, and now and then at ours, where that is noticed.
    async fn intrude(&mut self) {
        if self.below(3) == 0 {
            let (key, value) = (format!("theirs/{}", self.below(4)), self.below(9).to_string());
            self.strangers.insert(key.clone(), value.clone().into());
            self.rig.intrude(&key, &value).await;
        }
        let keys: Vec<String> = contents(&self.rig.target).await.into_keys().collect();
        if self.blind || keys.is_empty() || self.below(3) > 0 {
            return;
        }
        let key = &keys[usize::try_from(self.below(keys.len() as u64)).unwrap()];
        if self.strangers.contains_key(key) {
            return;
        }
        if self.below(2) == 0 {
            self.rig.intrude(key, "edited").await;
        } else {
            self.rig.remove(key).await;
        }
    }

    fn odds(&self) -> Odds {
        if self.below(3) > 0 {
            return Odds::default();
        }
        let chance = |many: u64| many as f64 / 100.0;
        let (reject, lost) = (chance(self.below(12)), chance(self.below(12)));
        Odds { reject, fail_after_write: lost, slow: chance(self.below(5)), slow_by: Duration::from_secs(2) }
    }

    fn seam(&self, store: SharedStore, fuse: &Arc<Fuse>, blind: bool, odds: Odds) -> Arc<Seam> {
        let faulty = Faulty::new(store, self.rig.clock.clone());
        faulty.by_chance(odds);
        Arc::new(Seam {
            inner: Arc::new(faulty),
            fuse: fuse.clone(),
            done_before: self.below(2) == 0,
            page: self.page,
            blind,
            failed_lists: 0.into(),
        })
    }

    /// One wish, in a process that may die.
    async fn round(&self) {
        let fuse = Fuse::new((self.below(3) == 0).then(|| i64::try_from(1 + self.below(CALLS)).unwrap()));
        let wish = self.wish().await;
        let source = self.seam(self.rig.origin.clone(), &fuse, false, self.odds());
        let before = contents(&self.rig.target).await;
        let run = async {
            let state: SharedStore = self.seam(self.rig.memory.clone(), &fuse, false, self.odds());
            let mut line = self.rig.line().await;
            line.source = Arc::new(FromStore::new(source.clone(), String::new()));
            line.store = self.seam(self.watched.clone(), &fuse, self.blind, self.odds());
            line.state = State::open(state).await?;
            line.guard = self.guard();
            match &wish {
                Wish::Approve(header) => line.approve(header, Ask::plain("approve")).await,
                Wish::Sync => line.run(&Ask::plain("test")).await,
                Wish::Undo(run) => line.undo(run, &Ask::plain("undo"), None).await,
            }
        };
        let ended: Ended = tokio::select! {
            biased;
            ended = run => of(ended),
            () = fuse.until_blown() => Ended::Crashed,
        };
        if matches!(wish, Wish::Undo(_)) {
            self.went_back();
            return self.told_the_truth(&ended, false).await;
        }
        let unread = source.failed_lists.load(std::sync::atomic::Ordering::SeqCst) > 0;
        self.did_no_harm(&before, unread, matches!(wish, Wish::Approve(_))).await;
        self.told_the_truth(&ended, true).await;
    }

    /// An undo writes nothing that was not there before, and touches nothing that is a stranger's.
    fn went_back(&self) {
        for (key, value) in self.watched.take() {
            assert!(!self.strangers.contains_key(&key), "{key} is a stranger's");
            let known = |value| self.lived.get(&key).is_some_and(|values| values.contains(value));
            assert!(value.as_ref().is_none_or(known), "{key} was never {value:?}");
        }
    }

    fn guard(&self) -> Guard {
        self.most_deletes.map_or(OPEN, |most| Guard { max_delete: Limit::Count(most), ..OPEN })
    }

    /// What the pipeline wrote is what the source has; what it deleted, the source was seen not to have.
    async fn did_no_harm(&self, before: &BTreeMap<String, Bytes>, unread: bool, approved: bool) {
        let origin: SharedStore = self.rig.origin.clone();
        let wanted = contents(&origin).await;
        let mut deletes = 0;
        for (key, value) in self.watched.take() {
            assert!(!self.strangers.contains_key(&key), "{key} is a stranger's");
            match value {
                Some(value) => {
                    assert_eq!(wanted.get(&key), Some(&value), "{key} was written with what it was not")
                }
                None => {
                    deletes += 1;
                    assert!(!wanted.contains_key(&key), "{key} was deleted, and the source has it");
                    assert!(!unread, "{key} was deleted, and the source could not be read to its end");
                }
            }
        }
        let most = self.most_deletes.filter(|_| !approved).unwrap_or(u64::MAX);
        assert!(deletes <= most, "{deletes} deletes, and the guard lets {most} pass");
        let after = contents(&self.rig.target).await;
        for key in before.keys().filter(|key| wanted.contains_key(*key)) {
            assert!(after.contains_key(key), "{key} was lost");
        }
    }

    async fn told_the_truth(&self, ended: &Ended, forward: bool) {
        let Ended::Reported(report) = ended else { return };
        assert_ne!(report.status, Status::Running);
        assert!(report.cause.is_some() || report.counts.add_up(), "{report:#?}");
        assert!(report.counts.held_by.delete == 0 || report.status != Status::Ok);
        if report.status == Status::Ok && forward {
            self.is_in_step(self.blind).await;
        }
    }

    /// The store holds what the source has and what strangers put, and nothing else.
    async fn is_in_step(&self, drift_unseen: bool) {
        let origin: SharedStore = self.rig.origin.clone();
        let mut wanted = contents(&origin).await;
        wanted.extend(self.strangers.clone());
        assert_eq!(contents(&self.rig.target).await, wanted, "drift unseen: {drift_unseen}");
    }

    /// No more trouble, no guard, and what strangers did to our keys may be undone: all is as the source has it.
    async fn come_to_rest(mut self) {
        self.rig.adopt = true;
        self.rig.target = self.seam(self.watched.clone(), &Fuse::new(None), self.blind, Odds::default());
        // What an undo could not do is let go.
        for header in self.rig.state().await.held_headers().await.unwrap() {
            if header.undo.is_some() {
                self.rig.reject(&header.plan).await.unwrap();
            }
        }
        let mut report = self.rig.run().await;
        if report.status == Status::Held {
            // What was undone waits for a word.
            report = self.rig.approve(&report.plan.unwrap()).await.unwrap();
        }
        assert_eq!(report.status, Status::Ok, "{report:#?}");
        self.did_no_harm(&BTreeMap::new(), false, true).await;
        self.is_in_step(self.blind).await;
        let still = self.rig.run().await;
        assert_eq!((did(&still)[..3].to_vec(), still.writes), (vec![0; 3], 0), "nothing is left to do");
        self.rig.target = self.watched.inner.clone();
        for (key, value) in &self.strangers {
            assert_eq!(self.rig.target.get_one(key).await.unwrap().unwrap().value, value);
            self.rig.remove(key).await;
        }
        self.rig.in_step().await;
        self.every_follow_up_is_done().await;
    }

    async fn every_follow_up_is_done(&self) {
        let Some(folder) = &self.copy else { return };
        let waiting = queue::waiting(&self.rig.state().await).await.unwrap();
        assert!(waiting.is_empty(), "still waiting: {waiting:#?}");
        let copy: SharedStore = Arc::new(Folder::open(folder.path(), Access::Read).unwrap());
        assert_eq!(contents(&copy).await, contents(&self.rig.target).await, "the export is as the store");
    }
}

fn of(ended: Result<Report>) -> Ended {
    ended.map_or(Ended::NotStarted, |report| Ended::Reported(Box::new(report)))
}
