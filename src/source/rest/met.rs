//! The ids a list has named so far: each counts once.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hash, Hasher, RandomState};

use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// They are kept as hashes, 16 bytes each however long they are: that two of a hundred million are the same by chance is as
/// likely as one in 10^22. The key of the hash is by chance, too, so nobody can choose ids that are.
pub struct Met {
    key: (u64, u64),
    seen: HashSet<Print, BuildHasherDefault<AsIs>>,
}

#[derive(PartialEq, Eq)]
struct Print(u64, u64);

impl Hash for Print {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// What is a hash already needs no other.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "{bytes:?} is no hash");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl Default for Met {
    fn default() -> Self {
        let chance = RandomState::new();
        Met { key: (chance.hash_one(0), chance.hash_one(1)), seen: HashSet::default() }
    }
}

impl Met {
    /// Whether an id is met for the first time.
    pub fn is_first(&mut self, id: &str) -> bool {
        let mut hash = SipHasher13::new_with_keys(self.key.0, self.key.1);
        hash.write(id.as_bytes());
        let (one, other) = hash.finish128().as_u64();
        self.seen.insert(Print(one, other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_met_once() {
        let mut met = Met::default();
        let ids: Vec<String> = (0..5_000).map(|number| format!("t/{number}")).collect();
        assert!(ids.iter().all(|id| met.is_first(id)));
        assert!(!ids.iter().any(|id| met.is_first(id)));
        assert!(met.is_first("") && met.is_first(&"x".repeat(1_000)) && !met.is_first(""));
        assert!(Met::default().is_first("t/1"), "another list has ids of its own");
    }
}
