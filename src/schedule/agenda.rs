//! Many rhythms in the order they come up. Pure: it is told what time it is.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Rhythm;

#[derive(Debug, Default)]
pub struct Agenda {
    entries: BTreeMap<String, Entry>,
    /// By the instant each is due, jitter included.
    order: BTreeSet<(Timestamp, String)>,
}

#[derive(Debug)]
struct Entry {
    rhythm: Rhythm,
    /// The slot that comes up next.
    slot: Timestamp,
    due: Timestamp,
}

/// A slot that has come up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub pipeline: String,
    pub slot: Timestamp,
}

impl Agenda {
    /// Take a pipeline in. `since` is the slot it was last run for, or the instant it was first seen: what came up
    /// between then and now was missed, and comes up at once, once.
    pub fn enter(&mut self, pipeline: &str, rhythm: Rhythm, since: Timestamp, now: Timestamp) {
        let missed = rhythm.latest(now).filter(|slot| *slot > since);
        match missed {
            Some(slot) => self.place(pipeline, rhythm, slot, now),
            None => self.wait(pipeline, rhythm, since.max(now)),
        }
    }

    /// Everything that is due. What was slept through comes up once, as its latest slot.
    pub fn due(&mut self, now: Timestamp) -> Vec<Due> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.order.first()
            && *at <= now
            && let Some((_, pipeline)) = self.order.pop_first()
        {
            let Some(entry) = self.entries.remove(&pipeline) else { continue };
            let slot = entry.rhythm.latest(now).filter(|latest| *latest > entry.slot).unwrap_or(entry.slot);
            self.wait(&pipeline, entry.rhythm, slot);
            due.push(Due { pipeline, slot });
        }
        due
    }

    /// The next slot of a pipeline.
    pub fn next(&self, pipeline: &str) -> Option<Timestamp> {
        self.entries.get(pipeline).map(|entry| entry.slot)
    }

    /// When something comes up next.
    pub fn wakes(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    fn wait(&mut self, pipeline: &str, rhythm: Rhythm, after: Timestamp) {
        if let Some(slot) = rhythm.next(after) {
            let due = slot.checked_add(rhythm.jitter(pipeline, slot)).unwrap_or(slot);
            self.place(pipeline, rhythm, slot, due);
        }
    }

    fn place(&mut self, pipeline: &str, rhythm: Rhythm, slot: Timestamp, due: Timestamp) {
        if let Some(old) = self.entries.insert(pipeline.to_owned(), Entry { rhythm, slot, due }) {
            self.order.remove(&(old.due, pipeline.to_owned()));
        }
        self.order.insert((due, pipeline.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn daily() -> Rhythm {
        Rhythm::new("0 16 * * *", "UTC").unwrap()
    }

    #[test]
    fn a_missed_slot_comes_up_at_once_and_once() {
        let mut agenda = Agenda::default();
        let now = at("2026-01-10T09:00:00Z");
        agenda.enter("p", daily(), at("2026-01-06T16:00:00Z"), now);
        let slot = at("2026-01-09T16:00:00Z");
        assert_eq!(agenda.due(now), [Due { pipeline: "p".into(), slot }]);
        assert_eq!(agenda.due(at("2026-01-10T15:59:59Z")), []);
        assert_eq!(agenda.next("p"), Some(at("2026-01-10T16:00:00Z")));
    }

    #[test]
    fn nothing_was_missed_before_it_was_first_seen() {
        let mut agenda = Agenda::default();
        let now = at("2026-01-10T17:00:00Z");
        agenda.enter("p", daily(), now, now);
        assert_eq!(agenda.due(now), []);
    }

    #[test]
    fn what_was_slept_through_comes_up_once() {
        let mut agenda = Agenda::default();
        let now = at("2026-01-10T17:00:00Z");
        agenda.enter("p", Rhythm::new("* * * * *", "UTC").unwrap(), now, now);
        let woken = at("2026-01-10T18:30:30Z");
        assert_eq!(agenda.due(woken), [Due { pipeline: "p".into(), slot: at("2026-01-10T18:30:00Z") }]);
        assert_eq!(agenda.due(woken), []);
    }
}
