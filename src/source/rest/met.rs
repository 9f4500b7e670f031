//! The ids a list has named so far: each counts once.
//!
//! They are kept as hashes, 16 bytes each however long they are. It refuses to be led astray: the hashes are SHA-256
//! behind a secret of this listing, so that nobody can choose ids that fall together.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hash, Hasher, RandomState};

use crate::record::Fingerprint;

pub struct Met {
    secret: [u8; 8],
    prints: HashSet<Print, BuildHasherDefault<AsIs>>,
}

/// Half of a SHA-256: that two of a hundred million are the same by chance is as likely as one in 10^22.
#[derive(PartialEq, Eq)]
struct Print(u64, u64);

impl Default for Met {
    fn default() -> Self {
        let secret = RandomState::new().build_hasher().finish().to_be_bytes();
        Met { secret, prints: HashSet::default() }
    }
}

impl Met {
    /// Whether an id is met for the first time.
    pub fn is_first(&mut self, id: &str) -> bool {
        let print = Fingerprint::of_parts(&[&self.secret, id.as_bytes()]);
        let (parts, _) = print.0.as_chunks();
        self.prints.insert(Print(u64::from_be_bytes(parts[0]), u64::from_be_bytes(parts[1])))
    }
}

impl Hash for Print {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// What is a hash already needs no other.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
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
