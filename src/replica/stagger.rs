//! Reads a backlog with many watchers at once. Pure: it is told what arrived and says what to open and close.
//!
//! etcd serves a watcher that is behind 1,000 revisions a round. So the backlog is cut into segments with a watcher
//! each; what they bring is handed on in order. The first segment is always an ordinary watch: it hands on what it
//! gets and goes on past its end until something beyond it arrives, so a quiet prefix never waits for anything.

use std::collections::VecDeque;

use super::apply::Batch;
use super::codec;
use crate::etcd::{Event, KeyValue};

/// A response with this many revisions is a full round: the server has more.
const FULL_ROUND: usize = 900;
/// Revisions of the prefix the server sends per round.
const ROUND: i64 = 1_000;
/// Watchers at once. For each round the server reads all revisions from the oldest watcher to the newest there is, whatever
/// the number of watchers: few rounds are better. Beyond this many the first one takes so long that the writer is idle.
const WIDTH_MAX: usize = 100;
/// A single watcher would need several rounds.
const FAR_BEHIND: i64 = 4 * ROUND;
/// What all segments together may hold.
const BUFFER_BYTES: usize = 16 << 20;
/// A batch is handed on when it has this many bytes; it ends with a whole revision.
const BATCH_BYTES: usize = 1 << 20;

/// A glance at the server before the watch begins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    /// Its newest revision.
    pub newest: i64,
    /// What an event takes, by the keys that were looked at.
    pub bytes: usize,
}

impl Sample {
    pub fn of(newest: i64, pairs: &[KeyValue]) -> Self {
        let bytes: usize = pairs.iter().map(bytes_of_pair).sum();
        Sample { newest, bytes: bytes / pairs.len().max(1) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Open { id: i64, start: i64 },
    Close { id: i64 },
}

/// What to hand on now, in order, and what to tell the server.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub batches: Vec<Batch>,
    pub commands: Vec<Command>,
}

struct Segment {
    id: i64,
    /// The next revision this watcher may bring.
    next: i64,
    /// Revisions from here on are the next segment's; `None` = it goes on for ever.
    end: Option<i64>,
    /// Something at or beyond `end` arrived: everything before it is here.
    complete: bool,
    closed: bool,
    held: Vec<Batch>,
    fragments: Vec<Event>,
}

pub(super) struct Stagger {
    segments: VecDeque<Segment>,
    next_id: i64,
    /// Revisions per segment, once a full round has shown how dense the prefix is.
    length: Option<i64>,
    width: usize,
    /// The newest revision the server mentioned.
    target: i64,
}

impl Stagger {
    /// Begin with one plain watch, or, far behind, with many at once. Of keys as large as the `sample` shows a round is
    /// expected to be of use as a whole; the first full one tells better.
    pub fn new(start: i64, sample: Sample) -> (Self, Vec<Command>) {
        let target = start.max(sample.newest);
        let mut stagger = Stagger { segments: VecDeque::new(), next_id: 1, length: None, width: 1, target };
        if is_far_behind(start, target) {
            stagger.length = Some(ROUND);
            stagger.width = width_for(sample.bytes * usize::try_from(ROUND).unwrap_or(0));
        }
        let mut step = Step { commands: vec![stagger.open(start)], ..Step::default() };
        stagger.widen(&mut step);
        (stagger, step.commands)
    }

    fn open(&mut self, start: i64) -> Command {
        let id = self.next_id;
        self.next_id += 1;
        self.segments.push_back(Segment {
            id,
            next: start,
            end: None,
            complete: false,
            closed: false,
            held: Vec::new(),
            fragments: Vec::new(),
        });
        Command::Open { id, start }
    }

    /// A response arrived. A fragment is kept until the rest of it is there: it may end inside a revision.
    pub fn receive(&mut self, id: i64, events: Vec<Event>, fragment: bool, revision: i64) -> Step {
        self.target = self.target.max(revision);
        let mut step = Step::default();
        let Some(at) = self.segments.iter().position(|segment| segment.id == id) else { return step };
        self.segments[at].fragments.extend(events);
        if fragment {
            return step;
        }
        let events = std::mem::take(&mut self.segments[at].fragments);
        self.measure(&events);
        self.segments[at].take(events);
        self.hand_on(&mut step);
        self.widen(&mut step);
        step
    }

    /// A progress notice: everything up to `revision` was sent to this watcher. It counts when it is the only one.
    pub fn progress(&mut self, id: i64, revision: i64) -> Option<i64> {
        self.target = self.target.max(revision);
        let only = self.segments.len() == 1;
        let head = self.segments.front_mut()?;
        if !only || head.id != id || !head.fragments.is_empty() || revision < head.next {
            return None;
        }
        head.next = revision + 1;
        Some(revision)
    }

    #[cfg(test)]
    fn watchers(&self) -> usize {
        self.segments.iter().filter(|segment| !segment.closed).count()
    }

    /// A full round tells how many revisions of the whole store hold one round of ours, and how large it is.
    fn measure(&mut self, events: &[Event]) {
        let mut rounds = 0;
        let mut last = 0;
        for event in events {
            let at = revision_of(event);
            rounds += usize::from(at != last);
            last = at;
        }
        let (Some(first), true) = (events.first().map(revision_of), rounds >= FULL_ROUND) else { return };
        self.length = Some((last - first + 1).max(ROUND));
        let bytes: usize = events.iter().map(bytes_of).sum();
        self.width = width_for(bytes);
    }

    fn hand_on(&mut self, step: &mut Step) {
        while let Some(head) = self.segments.front_mut() {
            step.batches.append(&mut head.held);
            if !head.complete {
                break;
            }
            if !head.closed {
                step.commands.push(Command::Close { id: head.id });
            }
            let end = head.end;
            self.segments.pop_front();
            if let (true, Some(end)) = (self.segments.is_empty(), end) {
                step.commands.push(self.open(end));
            }
        }
        for segment in &mut self.segments {
            if segment.complete && !segment.closed {
                segment.closed = true;
                step.commands.push(Command::Close { id: segment.id });
            }
        }
    }

    /// Cut what lies ahead into more segments while it is worth it.
    fn widen(&mut self, step: &mut Step) {
        let Some(length) = self.length else { return };
        loop {
            let room = self.segments.len() < self.width;
            let Some(tail) = self.segments.back_mut() else { return };
            match tail.end {
                // The last segment is bounded too while the end is far: it must not pile up what it is ahead of.
                None if self.target - tail.next > length => tail.end = Some(tail.next + length),
                Some(end) if room => {
                    let command = self.open(end);
                    step.commands.push(command);
                }
                None | Some(_) => return,
            }
        }
    }
}

impl Segment {
    fn take(&mut self, events: Vec<Event>) {
        if self.complete {
            return;
        }
        let bytes: usize = events.iter().map(bytes_of).sum();
        let mut batch = Batch::with_capacity(bytes.min(BATCH_BYTES));
        for event in events {
            let at = revision_of(&event);
            if self.end.is_some_and(|end| at >= end) {
                self.complete = true;
                break;
            }
            if at > batch.upto && batch.bytes >= BATCH_BYTES {
                self.hold(std::mem::take(&mut batch));
            }
            self.next = self.next.max(at + 1);
            if let Some(read) = codec::read_event(event) {
                batch.push(read);
            }
        }
        self.hold(batch);
    }

    fn hold(&mut self, mut batch: Batch) {
        if !batch.is_empty() {
            batch.seal();
            self.held.push(batch);
        }
    }
}

pub(super) fn is_far_behind(start: i64, newest: i64) -> bool {
    newest - start > FAR_BEHIND
}

/// As many rounds of this size as may wait at once.
fn width_for(round_bytes: usize) -> usize {
    (BUFFER_BYTES / round_bytes.max(1)).clamp(1, WIDTH_MAX)
}

fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |pair| pair.mod_revision)
}

fn bytes_of(event: &Event) -> usize {
    event.kv.as_ref().map_or(0, bytes_of_pair)
}

fn bytes_of_pair(pair: &KeyValue) -> usize {
    /// What a row has besides, as it is held.
    const OVERHEAD: usize = 48;
    pair.key.len() + pair.value.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: i64) -> Event {
        let kv = KeyValue { key: "/k".into(), mod_revision: revision, ..KeyValue::default() };
        Event { kv: Some(kv), ..Event::default() }
    }

    /// A server: it sends each open watcher one round at a time, in an order the seed chooses.
    struct Server {
        revisions: Vec<i64>,
        watchers: Vec<(i64, i64)>,
        seed: u64,
    }

    impl Server {
        fn obey(&mut self, commands: Vec<Command>) {
            for command in commands {
                match command {
                    Command::Open { id, start } => self.watchers.push((id, start)),
                    Command::Close { id } => self.watchers.retain(|watcher| watcher.0 != id),
                }
            }
        }

        fn random(&mut self, below: usize) -> usize {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.seed >> 33).unwrap() % below
        }

        /// One round for one watcher that is behind; `None` when nobody is.
        fn round(&mut self) -> Option<(i64, Vec<Event>)> {
            let newest = *self.revisions.last()?;
            let behind: Vec<usize> =
                (0..self.watchers.len()).filter(|at| self.watchers[*at].1 <= newest).collect();
            if behind.is_empty() {
                return None;
            }
            let at = behind[self.random(behind.len())];
            let (id, start) = self.watchers[at];
            let sent: Vec<i64> =
                self.revisions.iter().copied().filter(|revision| *revision >= start).take(1_000).collect();
            self.watchers[at].1 = sent.last().map_or(newest + 1, |last| last + 1);
            Some((id, sent.into_iter().map(event).collect()))
        }
    }

    fn rows_of(step: &Step) -> usize {
        step.batches.iter().map(|batch| batch.rows).sum()
    }

    fn read_all(revisions: Vec<i64>, seed: u64) -> (Vec<i64>, usize) {
        let newest = *revisions.last().unwrap();
        let sample = if seed.is_multiple_of(2) { Sample { newest, bytes: 100 } } else { Sample::default() };
        let (mut stagger, first) = Stagger::new(1, sample);
        let mut server = Server { revisions, watchers: Vec::new(), seed };
        server.obey(first);
        let (mut got, mut widest) = (Vec::new(), 0);
        while let Some((id, events)) = server.round() {
            let step = stagger.receive(id, events, false, newest);
            got.extend(step.batches.iter().flat_map(Batch::each).map(|row| row.revision));
            server.obey(step.commands);
            widest = widest.max(stagger.watchers());
        }
        (got, widest)
    }

    #[test]
    fn every_revision_comes_once_and_in_order_however_watchers_take_turns() {
        for seed in 0..20 {
            let all: Vec<i64> = (1..=25_500).collect();
            let (got, widest) = read_all(all.clone(), seed);
            assert_eq!(got, all, "seed {seed}");
            assert!(widest > 4, "many watchers shared the work: {widest}");
        }
    }

    #[test]
    fn a_sparse_prefix_is_read_whole_without_waiting_for_segments_that_stay_empty() {
        for seed in 0..20 {
            let sparse: Vec<i64> = (1..=9_000).map(|n| n * 7).chain([500_000, 500_003]).collect();
            assert_eq!(read_all(sparse.clone(), seed).0, sparse, "seed {seed}");
        }
    }

    #[test]
    fn whoever_is_far_behind_begins_with_as_many_watchers_as_memory_allows() {
        let watchers = |newest, bytes| Stagger::new(1, Sample { newest, bytes }).1.len();
        assert_eq!(watchers(4_000, 100), 1, "a few rounds");
        assert_eq!(watchers(200_000, 100), WIDTH_MAX);
        assert_eq!(watchers(200_000, 1 << 20), 1, "values of a megabyte");
        assert!(watchers(10_000, 100) <= 10, "no more than there is to read");
        let empty = Sample::of(200_000, &[]);
        assert_eq!(Stagger::new(1, empty).1.len(), WIDTH_MAX, "nothing there, so nothing large");
    }

    #[test]
    fn a_trickle_needs_one_watcher() {
        let (mut stagger, _) = Stagger::new(5, Sample::default());
        for revision in 5..50 {
            let step = stagger.receive(1, vec![event(revision)], false, revision);
            assert_eq!((rows_of(&step), step.commands.len()), (1, 0));
        }
        assert_eq!(stagger.watchers(), 1);
    }

    #[test]
    fn a_fragment_waits_for_its_rest() {
        let (mut stagger, _) = Stagger::new(1, Sample::default());
        assert!(stagger.receive(1, vec![event(1)], true, 1).batches.is_empty());
        assert_eq!(rows_of(&stagger.receive(1, vec![event(1)], false, 1)), 2);
    }

    #[test]
    fn progress_counts_only_when_nothing_else_is_open() {
        let (mut stagger, _) = Stagger::new(1, Sample::default());
        assert_eq!(stagger.progress(1, 40), Some(40));
        assert_eq!(stagger.progress(1, 30), None, "older than what is known");
        assert_eq!(stagger.progress(9, 50), None, "another watcher");
        stagger.receive(1, vec![event(60)], true, 60);
        assert_eq!(stagger.progress(1, 60), None, "half a response is waiting");
    }
}
