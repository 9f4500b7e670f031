//! Which queued writes go into the next etcd transaction, and what each expects to find there. Pure.
//!
//! A key is in a transaction once, its writes go in the order they were queued, and a write that was queued on top
//! of one of ours expects what ours left behind.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

/// What etcd takes by default. It counts along a path of nested transactions: the siblings on each level of it.
pub(super) const OPERATIONS_MAX: usize = 128;
/// On every path there is the marker and, innermost, the write itself.
const OPERATIONS_OWN: usize = 2;
/// So a tree holds more than a row of siblings does: branches on the first level, writes on the second.
const BRANCHES: usize = 8;
/// One flush to disk, one answer and one marker for all of them; and etcd does nothing else meanwhile (about 10 ms), so
/// not too many.
const KEYS_MAX: usize = 900;
/// etcd refuses requests over 1.5 MiB; a larger single write still gets its chance alone.
const REQUEST_BYTES_MAX: usize = 1_000_000;

/// How a transaction is built for a server that takes so many operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Build {
    operations: usize,
}

impl Build {
    pub fn new() -> Self {
        Build { operations: OPERATIONS_MAX }
    }

    /// Writes per transaction.
    pub fn keys_max(self) -> usize {
        let row = self.operations.saturating_sub(OPERATIONS_OWN);
        let tree = BRANCHES * self.operations.saturating_sub(BRANCHES + OPERATIONS_OWN);
        row.max(tree).clamp(1, KEYS_MAX)
    }

    /// Operations side by side in a transaction that only reads.
    pub fn row_max(self) -> usize {
        self.operations.saturating_sub(OPERATIONS_OWN).max(1)
    }

    /// Writes per branch; `None` = they all stand side by side.
    pub fn branch(self, keys: usize) -> Option<usize> {
        let row = keys + OPERATIONS_OWN <= self.operations || keys <= BRANCHES;
        (!row).then(|| keys.div_ceil(BRANCHES))
    }

    /// The server refused a transaction of so many writes as too large: half of its longest path is tried next.
    pub fn halved(self, keys: usize) -> Self {
        let path = self.branch(keys).map_or(keys, |branch| branch + BRANCHES) + OPERATIONS_OWN;
        Build { operations: self.operations.min(path.div_ceil(2)) }
    }
}

/// A queued write.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub id: i64,
    /// What its id alone cannot say after a restore: that it is this very write. `None` = queued by an older trueup.
    pub nonce: Option<i64>,
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

impl Pending {
    /// What it takes of a request.
    fn bytes(&self) -> usize {
        self.key.len() * 3 + self.value.as_ref().map_or(0, Bytes::len) + 64
    }
}

impl Planned {
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
    /// More of the queue. What we know of a key ourselves may be newer than what the queue says of it.
    pub fn extend(&mut self, rows: Vec<Pending>, heads: HashMap<String, Head>) {
        self.rows.extend(rows);
        for (key, head) in heads {
            let known = self.heads.entry(key).or_insert(head);
            if known.revision < head.revision {
                *known = head;
            }
        }
    }

    /// Everything of ours can be read in the queue: nothing has to be remembered here.
    pub fn forget(&mut self) {
        self.heads.clear();
        self.insisted.clear();
    }

    /// Keys remembered.
    pub fn heads(&self) -> usize {
        self.heads.len()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Another transaction as large as can be could not be made of this.
    pub fn is_short(&self, keys_max: usize) -> bool {
        self.rows.len() < keys_max && self.rows.iter().map(Pending::bytes).sum::<usize>() < REQUEST_BYTES_MAX
    }

    pub fn into_rows(self) -> impl Iterator<Item = Pending> {
        self.rows.into_iter()
    }

    /// Take the next transaction's worth: at most `keys_max` keys, each key's oldest write only.
    pub fn next(&mut self, keys_max: usize) -> Vec<Planned> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let mut seen: HashSet<String> = HashSet::new();
        let mut rest = VecDeque::new();
        while taken.len() < keys_max
            && let Some(row) = self.rows.pop_front()
        {
            if !seen.insert(row.key.clone()) {
                rest.push_back(row);
                continue;
            }
            let planned = self.planned(row);
            if !taken.is_empty() && bytes + planned.row.bytes() > REQUEST_BYTES_MAX {
                rest.push_back(planned.row);
                break;
            }
            bytes += planned.row.bytes();
            taken.push(planned);
        }
        rest.append(&mut self.rows);
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

    const KEYS: usize = 126;

    fn row(id: i64, key: &str, base: i64) -> Pending {
        let value = Some(Bytes::from_static(b"v"));
        let key = key.to_owned();
        Pending { id, nonce: None, key, value, base, expected: base, exact: false, attempts: 0 }
    }

    fn window_of(rows: Vec<Pending>) -> Window {
        let mut window = Window::default();
        window.extend(rows, HashMap::new());
        window
    }

    fn ids(planned: &[Planned]) -> Vec<i64> {
        planned.iter().map(|planned| planned.row.id).collect()
    }

    #[test]
    fn a_key_is_in_a_transaction_once_and_its_writes_stay_in_order() {
        let rows = vec![row(1, "a", 5), row(2, "b", 6), row(3, "a", 5), row(4, "a", 5)];
        let mut window = window_of(rows);
        let first = window.next(KEYS);
        assert_eq!(ids(&first), [1, 2]);
        window.applied(&first[0], 10);
        let second = window.next(KEYS);
        assert_eq!((ids(&second), second[0].expected, second[0].chain), (vec![3], 10, 5));
        window.applied(&second[0], 11);
        assert_eq!(window.next(KEYS)[0].expected, 11);
    }

    #[test]
    fn large_values_fill_a_transaction_before_its_keys_do() {
        let large =
            |id| Pending { value: Some(Bytes::from(vec![0; 400_000])), ..row(id, &id.to_string(), 0) };
        let mut window = window_of((1..=4).map(large).collect());
        assert!(!window.is_short(KEYS));
        assert_eq!(ids(&window.next(KEYS)), [1, 2]);
        assert!(window.is_short(KEYS), "a third one would have its place beside the two that are left");
    }

    #[test]
    fn what_is_known_here_outlives_an_older_look_at_the_queue() {
        let head = |revision| Head { base: 5, revision, deleted: false };
        let heads = |revision| HashMap::from([("a".to_owned(), head(revision))]);
        let mut window = window_of(vec![row(1, "a", 5)]);
        let first = window.next(KEYS);
        window.applied(&first[0], 12);
        window.extend(vec![row(2, "a", 5)], heads(10));
        assert_eq!(window.next(KEYS)[0].expected, 12, "the queue did not know of 12 yet");
        window.extend(vec![row(3, "a", 5)], heads(14));
        assert_eq!(window.next(KEYS)[0].expected, 14);
        window.forget();
        window.extend(vec![row(4, "a", 5)], heads(11));
        assert_eq!(window.next(KEYS)[0].expected, 11);
    }

    /// As etcd counts: siblings on each level of a path.
    fn path(build: Build, keys: usize) -> usize {
        match build.branch(keys) {
            None => keys + 1 + 1,
            Some(branch) => keys.div_ceil(branch) + 1 + branch + 1,
        }
    }

    #[test]
    fn a_transaction_of_any_size_stays_within_what_the_server_takes() {
        let build = Build::new();
        assert_eq!((build.keys_max(), build.branch(126), build.branch(127)), (900, None, Some(16)));
        for keys in 1..=build.keys_max() {
            assert!(path(build, keys) <= OPERATIONS_MAX, "{keys}");
        }
        for limit in 3..OPERATIONS_MAX {
            let mut build = Build::new();
            while path(build, build.keys_max()) > limit {
                build = build.halved(build.keys_max());
            }
            assert!(limit < 5 || build.keys_max() > 1, "{limit}");
        }
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
        let mut window = window_of(rows);
        let sizes: Vec<usize> =
            std::iter::from_fn(|| Some(window.next(KEYS).len()).filter(|size| *size > 0)).collect();
        assert_eq!(sizes, [126, 126, 48]);
        let large =
            |id: i64| Pending { value: Some(Bytes::from(vec![0; 700_000])), ..row(id, &id.to_string(), 0) };
        let mut window = window_of(vec![large(1), large(2)]);
        assert_eq!(ids(&window.next(KEYS)), [1]);
        assert_eq!(ids(&window.next(KEYS)), [2]);
    }

    #[test]
    fn a_write_that_insists_goes_first_and_expects_what_is_there() {
        let mut window = window_of(vec![row(1, "a", 5), row(2, "a", 5)]);
        let first = window.next(KEYS).remove(0);
        window.insist(first.row, 8);
        let again = window.next(KEYS);
        assert_eq!((ids(&again), again[0].expected), (vec![1], 8));
    }
}
