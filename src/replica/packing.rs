//! Which queued writes go into the next etcd transaction, and what each expects to find there. Pure.
//!
//! A key is in a transaction once, its writes go in the order they were queued, and a write that was queued on top
//! of one of ours expects what ours left behind.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

/// etcd counts operations along a path of nested transactions: 128 by default, one is the inner level's and one the
/// marker's.
pub(super) const KEYS_MAX: usize = 126;
/// etcd refuses requests over 1.5 MiB; a larger single write still gets its chance alone.
const REQUEST_BYTES_MAX: usize = 1_000_000;

/// A queued write.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub id: i64,
    pub key: String,
    /// `None` = delete.
    pub value: Option<Bytes>,
    /// Newest revision its writer could see.
    pub base: i64,
    pub expected: i64,
    /// Compare-and-set by its writer: never rebased.
    pub exact: bool,
    pub attempts: i32,
}

/// The newest of our own writes to a key, and the base its unbroken chain began at: between `base` and `revision`
/// nobody but us wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub base: i64,
    pub revision: i64,
    pub deleted: bool,
}

/// A write with what it expects.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub row: Pending,
    pub expected: i64,
    /// Base of the chain it will belong to when it is applied.
    pub chain: i64,
}

impl Planned {
    pub fn bytes(&self) -> usize {
        self.row.key.len() * 2 + self.row.value.as_ref().map_or(0, Bytes::len) + 64
    }

    /// Deleting what we believe is not there: looking is enough.
    pub fn only_looks(&self) -> bool {
        self.row.value.is_none() && self.expected == 0
    }
}

/// What a write expects, given the newest of our own writes to its key.
pub(super) fn plan(row: Pending, head: Option<Head>) -> Planned {
    let left_behind = |head: &Head| if head.deleted { 0 } else { head.revision };
    match head {
        Some(head) if row.exact && row.expected == left_behind(&head) => {
            Planned { expected: row.expected, chain: head.base, row }
        }
        Some(head) if !row.exact && head.base <= row.base && row.base < head.revision => {
            Planned { expected: left_behind(&head), chain: head.base, row }
        }
        _ => Planned { expected: row.expected, chain: if row.exact { row.expected } else { row.base }, row },
    }
}

/// Queued writes in order, and the heads their keys have.
#[derive(Default)]
pub(super) struct Window {
    rows: VecDeque<Pending>,
    heads: HashMap<String, Head>,
    /// Set by a conflict that PostgreSQL is to win: what the next attempt expects.
    insisted: HashMap<i64, i64>,
}

impl Window {
    pub fn new(rows: Vec<Pending>, heads: HashMap<String, Head>) -> Self {
        Window { rows: rows.into(), heads, insisted: HashMap::new() }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn into_rows(self) -> impl Iterator<Item = Pending> {
        self.rows.into_iter()
    }

    /// Take the next transaction's worth: at most `keys_max` keys, each key's oldest write only.
    pub fn next(&mut self, keys_max: usize) -> Vec<Planned> {
        let (mut taken, mut bytes, mut full) = (Vec::new(), 0, false);
        let mut seen: HashSet<String> = HashSet::new();
        let mut rest = VecDeque::with_capacity(self.rows.len());
        while let Some(row) = self.rows.pop_front() {
            if full || !seen.insert(row.key.clone()) {
                rest.push_back(row);
                continue;
            }
            let planned = self.planned(row);
            if !taken.is_empty() && bytes + planned.bytes() > REQUEST_BYTES_MAX {
                full = true;
                rest.push_back(planned.row);
                continue;
            }
            bytes += planned.bytes();
            taken.push(planned);
            full = taken.len() >= keys_max;
        }
        self.rows = rest;
        taken
    }

    fn planned(&self, row: Pending) -> Planned {
        let head = self.heads.get(&row.key).copied();
        match self.insisted.get(&row.id) {
            Some(expected) => Planned { expected: *expected, chain: *expected, row },
            None => plan(row, head),
        }
    }

    /// A write was applied: later ones to its key build on it.
    pub fn applied(&mut self, planned: &Planned, revision: i64) {
        let deleted = planned.row.value.is_none();
        self.heads.insert(planned.row.key.clone(), Head { base: planned.chain, revision, deleted });
    }

    /// Try a write again before everything else of its key, on top of what is there now.
    pub fn insist(&mut self, row: Pending, on_top_of: i64) {
        self.insisted.insert(row.id, on_top_of);
        self.rows.push_front(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i64, key: &str, base: i64) -> Pending {
        let value = Some(Bytes::from_static(b"v"));
        Pending { id, key: key.to_owned(), value, base, expected: base, exact: false, attempts: 0 }
    }

    fn ids(planned: &[Planned]) -> Vec<i64> {
        planned.iter().map(|planned| planned.row.id).collect()
    }

    #[test]
    fn a_key_is_in_a_transaction_once_and_its_writes_stay_in_order() {
        let rows = vec![row(1, "a", 5), row(2, "b", 6), row(3, "a", 5), row(4, "a", 5)];
        let mut window = Window::new(rows, HashMap::new());
        let first = window.next(KEYS_MAX);
        assert_eq!(ids(&first), [1, 2]);
        window.applied(&first[0], 10);
        let second = window.next(KEYS_MAX);
        assert_eq!((ids(&second), second[0].expected, second[0].chain), (vec![3], 10, 5));
        window.applied(&second[0], 11);
        assert_eq!(window.next(KEYS_MAX)[0].expected, 11);
    }

    #[test]
    fn what_a_write_expects() {
        let head = |base, revision, deleted| Some(Head { base, revision, deleted });
        let exact = |mut row: Pending| {
            row.exact = true;
            row
        };
        let cases = [
            ("nothing of ours", row(1, "a", 5), None, 5, 5),
            ("queued on top of ours", row(1, "a", 5), head(5, 10, false), 10, 5),
            ("on top of the second of ours", row(1, "a", 10), head(5, 12, false), 12, 5),
            ("on top of our delete", row(1, "a", 5), head(5, 10, true), 0, 5),
            ("saw something newer than ours", row(1, "a", 12), head(5, 10, false), 12, 12),
            ("saw something older than our chain's base", row(1, "a", 3), head(5, 10, false), 3, 3),
            ("compare-and-set is never rebased", exact(row(1, "a", 5)), head(5, 10, false), 5, 5),
            (
                "compare-and-set on ours goes on with the chain",
                exact(row(1, "a", 10)),
                head(5, 10, false),
                10,
                5,
            ),
        ];
        for (what, row, head, expected, chain) in cases {
            let planned = plan(row, head);
            assert_eq!((planned.expected, planned.chain), (expected, chain), "{what}");
        }
    }

    #[test]
    fn transactions_are_cut_by_number_and_by_bytes() {
        let rows = (0..300).map(|id| row(id, &format!("k{id}"), 0)).collect();
        let mut window = Window::new(rows, HashMap::new());
        let sizes: Vec<usize> =
            std::iter::from_fn(|| Some(window.next(KEYS_MAX).len()).filter(|size| *size > 0)).collect();
        assert_eq!(sizes, [126, 126, 48]);
        let large =
            |id: i64| Pending { value: Some(Bytes::from(vec![0; 700_000])), ..row(id, &id.to_string(), 0) };
        let mut window = Window::new(vec![large(1), large(2)], HashMap::new());
        assert_eq!(ids(&window.next(KEYS_MAX)), [1]);
        assert_eq!(ids(&window.next(KEYS_MAX)), [2]);
    }

    #[test]
    fn a_write_that_insists_goes_first_and_expects_what_is_there() {
        let mut window = Window::new(vec![row(1, "a", 5), row(2, "a", 5)], HashMap::new());
        let first = window.next(KEYS_MAX).remove(0);
        window.insist(first.row, 8);
        let again = window.next(KEYS_MAX);
        assert_eq!((ids(&again), again[0].expected), (vec![1], 8));
    }
}
