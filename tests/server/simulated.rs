//! A day of a thousand schedules on the test clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use trueup::clock::{Clock, TestClock};
use trueup::schedule::{Agenda, Rhythm, Slots};
use trueup::state::State;
use trueup::store::memory::Memory;

const EXPRESSIONS: [(&str, &str); 10] = [
    ("0 16 * * *", "UTC"),
    ("*/5 * * * *", "UTC"),
    ("30 2 * * *", "Europe/Oslo"),
    ("15 * * * *", "Asia/Seoul"),
    ("0 */6 * * *", "America/New_York"),
    ("7,37 8-18 * * MON-FRI", "Europe/London"),
    ("0 0 1 * *", "UTC"),
    ("59 23 * * *", "Asia/Kolkata"),
    ("*/20 * * * *", "Australia/Lord_Howe"),
    ("0 12 * * SUN", "UTC"),
];

struct Day {
    clock: Arc<TestClock>,
    slots: Slots,
    rhythms: BTreeMap<String, Rhythm>,
    ran: BTreeMap<(String, Timestamp), u32>,
}

impl Day {
    async fn at(start: &str) -> Self {
        let clock = TestClock::at(start, 7);
        let state = State::open(Arc::new(Memory::new())).await.unwrap();
        let rhythms = (0..1_000).map(|n| {
            let (when, tz) = EXPRESSIONS[n % EXPRESSIONS.len()];
            (format!("pipeline-{n}"), Rhythm::new(when, tz).unwrap())
        });
        let rhythms = rhythms.collect();
        Day { slots: Slots::new(state, clock.clone()), clock, rhythms, ran: BTreeMap::new() }
    }

    async fn agenda(&self) -> Agenda {
        let mut agenda = Agenda::default();
        let named: Vec<(&str, &Rhythm)> =
            self.rhythms.iter().map(|(name, rhythm)| (name.as_str(), rhythm)).collect();
        let since = self.slots.since(&named).await.unwrap();
        for ((name, rhythm), since) in named.into_iter().zip(since) {
            agenda.enter(name, rhythm.clone(), since, self.clock.now());
        }
        agenda
    }

    /// What one process does when it wakes; a second one beside it finds every slot taken.
    async fn wake(&mut self, agendas: &mut [Agenda]) {
        for agenda in agendas {
            for due in agenda.due(self.clock.now()) {
                let rhythm = &self.rhythms[&due.pipeline];
                if let Some(claim) = self.slots.claim(&due.pipeline, rhythm, due.slot).await.unwrap() {
                    *self.ran.entry((due.pipeline, due.slot)).or_default() += 1;
                    self.slots.finish(&claim).await.unwrap();
                }
            }
        }
    }
}

async fn every_slot_once(start: &str) {
    let mut day = Day::at(start).await;
    let begin = day.clock.now();
    let mut agendas = [day.agenda().await, day.agenda().await];
    let end = begin.checked_add(Duration::from_secs(24 * 3_600)).unwrap();
    let until = end.checked_add(Duration::from_secs(60)).unwrap();
    while day.clock.now() < until {
        day.wake(&mut agendas).await;
        day.clock.advance(Duration::from_secs(15));
    }
    let mut wanted = 0;
    for (name, rhythm) in &day.rhythms {
        let slots = std::iter::successors(rhythm.next(begin), |slot| rhythm.next(*slot));
        for slot in slots.take_while(|slot| *slot <= end) {
            wanted += 1;
            assert_eq!(day.ran.get(&(name.clone(), slot)), Some(&1), "{name} at {slot}");
        }
    }
    let late = day.ran.keys().filter(|(_, slot)| *slot > end).count();
    assert_eq!(day.ran.len() - late, wanted, "nothing ran that was not due");
    assert!(wanted > 38_000, "{wanted} slots");
}

#[tokio::test]
async fn a_day_of_a_thousand_pipelines_runs_every_slot_exactly_once() {
    every_slot_once("2026-01-10T00:00:00Z").await;
}

#[tokio::test]
async fn so_does_the_day_the_clocks_go_back() {
    every_slot_once("2026-10-25T00:00:00Z").await;
}

#[tokio::test]
async fn a_slot_left_unfinished_is_taken_up_once_and_only_after_a_while() {
    let day = Day::at("2026-01-10T00:00:00Z").await;
    let (name, rhythm) = day.rhythms.iter().next().unwrap();
    let locks = trueup::state::lock::Locks::in_process();
    let slot = rhythm.next(day.clock.now()).unwrap();
    day.clock.advance(slot.duration_since(day.clock.now()).unsigned_abs());
    let claim = day.slots.claim(name, rhythm, slot).await.unwrap().unwrap();
    assert!(day.slots.reclaim(name, rhythm, &locks).await.unwrap().is_none(), "its runner may be alive");
    day.clock.advance(Duration::from_secs(7));
    let held = locks.acquire(name).await.unwrap();
    assert!(day.slots.reclaim(name, rhythm, &locks).await.unwrap().is_none(), "its runner is alive");
    drop(held);
    assert_eq!(day.slots.unfinished().await.unwrap(), std::slice::from_ref(name));
    let again = day.slots.reclaim(name, rhythm, &locks).await.unwrap().unwrap();
    assert_eq!(again.slot, slot);
    // The first runner comes back from the dead: the slot is no longer its own.
    day.slots.finish(&claim).await.unwrap();
    assert_eq!(day.slots.unfinished().await.unwrap().len(), 1);
    day.slots.finish(&again).await.unwrap();
    assert!(day.slots.unfinished().await.unwrap().is_empty());
    assert!(day.slots.claim(name, rhythm, slot).await.unwrap().is_none());
}
