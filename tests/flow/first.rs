//! A first pass over nothing writes what it finds while the source is still read. Anything to weigh it against, and all
//! of it is read first.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Barrier;
use trueup::error::{Error, Kind, Result};
use trueup::pipeline::{Ask, Pipeline, Progress};
use trueup::record::{Body, Entry};
use trueup::source::{Cursors, Event, Sink, Source, Versions};
use trueup::state::{State, Status};
use trueup::store::faulty::{Faulty, Mishap, Verb};
use trueup::store::memory::Memory;
use trueup::store::{Caps, Item, Mode, Outcome, Page, Query, SharedStore, Store, StoreExt, Stored, What};

use super::rig::{Rig, did};

/// Nothing here takes time; whoever waits longer waits for ever.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What it does when it has told half of its entries.
#[derive(Clone, Copy, PartialEq)]
enum Halfway {
    GoOn,
    /// Until some of them are in the store.
    Wait,
    Fail,
}

/// Entries in two halves, the later names first.
struct InHalves {
    count: usize,
    target: SharedStore,
    halfway: Mutex<Halfway>,
}

impl InHalves {
    async fn tell(&self, numbers: impl Iterator<Item = usize>, out: &mut Sink) -> Result<()> {
        for number in numbers {
            let name = format!("k{number:03}");
            let mut entry = Entry::new(&name, &"".into(), "1");
            entry.inline = Some(Bytes::from(name));
            out.send(Event::Seen(entry)).await?;
        }
        out.flush().await
    }
}

#[async_trait]
impl Source for InHalves {
    fn name(&self) -> &'static str {
        "in halves"
    }

    fn sorted(&self) -> bool {
        false
    }

    fn names_once(&self) -> bool {
        true
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    async fn list(&self, _: &Cursors, out: &mut Sink) -> Result<()> {
        let half = self.count / 2;
        self.tell(half..self.count, out).await?;
        let halfway = *self.halfway.lock().unwrap();
        match halfway {
            Halfway::GoOn => {}
            Halfway::Fail => return Err(Error::new(Kind::Unavailable, "down")),
            Halfway::Wait => {
                let some = async {
                    while self.target.list_all("", What::Keys).await.unwrap().is_empty() {
                        tokio::task::yield_now().await;
                    }
                };
                let written = tokio::time::timeout(WAIT_MAX, some).await;
                assert!(written.is_ok(), "nothing is written before all is read");
            }
        }
        self.tell(0..half, out).await?;
        out.send(Event::Complete("".into(), Some("end".into()))).await
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        let bytes = entry.inline.clone().unwrap();
        Ok(Body { bytes, version: entry.version.clone() })
    }

    fn requests(&self) -> u64 {
        0
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fn rig(count: usize, halfway: Halfway, target: SharedStore) -> (Rig, Arc<InHalves>) {
    let source = Arc::new(InHalves { count, target: target.clone(), halfway: Mutex::new(halfway) });
    (Rig { target, batch: Some(5), ..Rig::over(source.clone()) }, source)
}

fn memory() -> SharedStore {
    Arc::new(Memory::named("target"))
}

/// Takes two writes side by side, and remembers how large they were. Where it is told so, the first two wait for each other.
struct Wide {
    store: Memory,
    pair: Option<Barrier>,
    /// More at a time is too much for it.
    most: usize,
    sizes: Mutex<Vec<usize>>,
}

impl Wide {
    fn new(pair: bool) -> Arc<Wide> {
        let pair = pair.then(|| Barrier::new(2));
        Arc::new(Wide { store: Memory::named("target"), pair, most: usize::MAX, sizes: Mutex::default() })
    }
}

#[async_trait]
impl Store for Wide {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn caps(&self) -> Caps {
        Caps { side_by_side: 2, ..self.store.caps() }
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        self.store.get(keys).await
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.store.list(query).await
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        let before = {
            let mut sizes = self.sizes.lock().unwrap();
            sizes.push(items.len());
            sizes.len() - 1
        };
        if let Some(pair) = self.pair.as_ref().filter(|_| before < 2) {
            let met = tokio::time::timeout(WAIT_MAX, pair.wait()).await;
            assert!(met.is_ok(), "a batch is written alone");
        }
        if items.len() > self.most {
            return Err(Error::new(Kind::Unavailable, "canceled: it took too long"));
        }
        self.store.write(items, mode).await
    }
}

#[tokio::test]
async fn batches_are_written_side_by_side_where_the_store_says_so() {
    let wide = Wide::new(true);
    let (rig, _) = rig(60, Halfway::GoOn, wide.clone());
    let report = rig.ran(60, 0, 0, 0).await;
    assert_eq!((report.status, report.writes), (Status::Ok, 60));
    assert_eq!(*wide.sizes.lock().unwrap(), [5; 12], "as large as the config says, and no larger");
    rig.at_rest().await;
}

/// The first goes at once; what comes while it is being written goes together, and each batch has its own outcome.
#[tokio::test]
async fn batches_that_wait_go_together_where_nobody_says_how_large_they_are() {
    let wide = Wide::new(true);
    let (rig, _) = rig(20_000, Halfway::GoOn, wide.clone());
    let rig = Rig { batch: None, ..rig };
    let report = rig.ran(20_000, 0, 0, 0).await;
    assert_eq!((report.status, report.writes), (Status::Ok, 20_000));
    let sizes = wide.sizes.lock().unwrap().clone();
    assert_eq!((sizes[0], sizes[1], sizes.iter().sum::<usize>()), (1_000, 8_000, 20_000), "{sizes:?}");
    rig.at_rest().await;
    rig.ran(0, 0, 0, 20_000).await;
    let undone = rig.line().await.undo(&report.id, &Ask::plain("undo"), None).await.unwrap();
    assert_eq!(undone.counts.deleted, 20_000);
}

#[tokio::test]
async fn what_is_too_much_together_is_written_batch_by_batch() {
    let wide = Wide { most: 1_000, ..Arc::into_inner(Wide::new(true)).unwrap() };
    let (rig, _) = rig(20_000, Halfway::GoOn, Arc::new(wide));
    let rig = Rig { batch: None, ..rig };
    let report = rig.ran(20_000, 0, 0, 0).await;
    assert_eq!((report.status, report.writes), (Status::Ok, 20_000));
    rig.at_rest().await;
    rig.ran(0, 0, 0, 20_000).await;
}

#[tokio::test]
async fn what_is_new_is_written_while_the_source_is_still_read() {
    let (rig, source) = rig(60, Halfway::Wait, memory());
    let report = rig.ran(60, 0, 0, 0).await;
    assert_eq!(
        (report.status, report.counts.scanned, report.cursor.as_deref()),
        (Status::Ok, 60, Some("end"))
    );
    rig.at_rest().await;
    *source.halfway.lock().unwrap() = Halfway::GoOn;
    rig.ran(0, 0, 0, 60).await;
    // The journal has it like any other run.
    let undone = rig.line().await.undo(&report.id, &Ask::plain("undo"), None).await.unwrap();
    assert_eq!(undone.counts.deleted, 60);
}

/// The plan's id is made of what is in it, whether it was ever whole or not.
#[tokio::test]
async fn it_is_the_same_plan_as_if_all_had_been_read_first() {
    let (first, _) = rig(20, Halfway::GoOn, memory());
    let planned = first.line().await.preview(&Ask::plain("plan")).await.unwrap();
    assert_eq!((planned.add.len(), first.run().await.plan), (20, Some(planned.id)));
}

#[tokio::test]
async fn a_source_that_breaks_off_leaves_what_was_read_and_no_cursor() {
    let (rig, source) = rig(60, Halfway::Fail, memory());
    let report = rig.run().await;
    assert_eq!((report.cause, report.exit_code(), &report.cursor), (Some(Kind::Unavailable), 5, &None));
    assert_eq!((did(&report), report.counts.scanned), ([30, 0, 0, 0], 30));
    rig.at_rest().await;
    *source.halfway.lock().unwrap() = Halfway::GoOn;
    rig.ran(30, 0, 0, 30).await;
    rig.at_rest().await;
}

#[tokio::test]
async fn a_store_that_fails_on_the_way_is_left_in_order() {
    let kinds = [Mishap::Reject, Mishap::FailAfterWrite];
    let wide = || -> SharedStore { Wide::new(false) };
    // Of the last, some batches are written together and others wait.
    let stores = |kind| {
        [(memory(), 60, Some(5)), (wide(), 60, Some(5)), (wide(), 30_000, None)].map(|store| (kind, store))
    };
    for (mishap, (inner, count, batch)) in kinds.into_iter().flat_map(stores) {
        let store = Rig::new();
        let target = Arc::new(Faulty::new(inner, store.clock.clone()));
        for call in 3..10 {
            target.at_verb(Verb::Write, call, mishap);
        }
        let (rig, _) = rig(count, Halfway::GoOn, target.clone());
        let rig = Rig { batch, ..rig };
        let report = rig.run().await;
        assert_eq!((report.cause, report.exit_code()), (Some(Kind::Unavailable), 5), "{report:#?}");
        target.heal();
        let report = rig.run().await;
        assert_eq!((report.status, report.counts.scanned), (Status::Ok, count as u64));
        rig.at_rest().await;
        rig.ran(0, 0, 0, count as u64).await;
    }
}

/// Several batches are on their way into it, and some are being written.
#[tokio::test]
async fn a_state_that_fails_on_the_way_is_made_good_by_the_next_run() {
    for mishap in [Mishap::Reject, Mishap::FailAfterWrite] {
        let mut troubles = 0;
        for step in 1.. {
            let (rig, _) = rig(60, Halfway::GoOn, Wide::new(false));
            let state = Arc::new(Faulty::new(rig.memory.clone(), rig.clock.clone()));
            let line = Pipeline { state: State::open(state.clone()).await.unwrap(), ..rig.line().await };
            let call = state.calls() + step;
            state.at(call, mishap);
            let ended = line.run(&Ask::plain("test")).await;
            let clean = ended.as_ref().is_ok_and(|report| report.cause.is_none());
            assert!(!clean || rig.target.list_all("", What::Keys).await.unwrap().len() == 60, "{ended:?}");
            let report = rig.run().await;
            assert_eq!((report.status, report.counts.scanned), (Status::Ok, 60), "{mishap:?} at {call}");
            rig.at_rest().await;
            rig.ran(0, 0, 0, 60).await;
            if state.calls() < call {
                break;
            }
            troubles += 1;
        }
        assert!(troubles > 10, "only {troubles} were tried");
    }
}

/// Which steps a run told of.
#[derive(Default)]
struct Heard(Mutex<Vec<&'static str>>);

impl Progress for Heard {
    fn step(&self, _: &str, name: &'static str, _: Option<u64>) {
        self.0.lock().unwrap().push(name);
    }

    fn advance(&self, _: u64) {}
}

async fn is_read_first(rig: &Rig, ask: Ask) -> bool {
    let heard = Arc::new(Heard::default());
    rig.ask(Ask { progress: heard.clone(), ..ask }).await.unwrap();
    let first = heard.0.lock().unwrap()[0];
    assert!(["reading", "reading and writing"].contains(&first));
    first == "reading"
}

#[tokio::test]
async fn anything_to_weigh_it_against_is_reason_to_read_all_of_it_first() {
    let plain = || Ask::plain("test");
    let (blank, _) = rig(20, Halfway::GoOn, memory());
    assert!(!is_read_first(&blank, plain()).await);
    assert!(is_read_first(&blank, plain()).await, "there is a baseline");

    let (taken, _) = rig(20, Halfway::GoOn, memory());
    taken.intrude("k001", "theirs").await;
    assert!(is_read_first(&taken, plain()).await, "the store holds something");
    assert_eq!(taken.value("k001").await.as_deref(), Some("theirs"));

    let (narrow, _) = rig(20, Halfway::GoOn, memory());
    let only = Ask { only: Some("k001".into()), ..plain() };
    assert!(is_read_first(&narrow, only).await, "one key is asked for");

    let (undone, _) = rig(20, Halfway::GoOn, memory());
    let run = undone.run().await;
    undone.line().await.undo(&run.id, &plain(), None).await.unwrap();
    assert!(is_read_first(&undone, plain()).await, "somebody decided about it");
    assert!(undone.target.list_all("", What::Keys).await.unwrap().is_empty());

    let unnamed = Rig::over(Arc::new(super::scripted::Script::default()));
    assert!(is_read_first(&unnamed, plain()).await, "an entry may be told twice");
}
