//! The ids a list has named so far: each counts once.

use std::collections::HashSet;

use crate::record::Fingerprint;

/// They are kept as hashes, 16 bytes each however long they are.
#[derive(Default)]
pub struct Met(HashSet<[u8; PRINT]>);

/// Half of a SHA-256: that two of a hundred million are the same by chance is as likely as one in 10^22.
const PRINT: usize = 16;

impl Met {
    /// Whether an id is met for the first time.
    pub fn is_first(&mut self, id: &str) -> bool {
        let mut print = [0; PRINT];
        print.copy_from_slice(&Fingerprint::of(id.as_bytes()).0[..PRINT]);
        self.0.insert(print)
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
