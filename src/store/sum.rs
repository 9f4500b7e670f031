//! Many keys with their versions as one number, whatever order they come in: equal sums, equal contents.
//!
//! It tells that something changed, never what: whoever must know lists.

use serde::{Deserialize, Serialize};

use crate::record::Fingerprint;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    pub count: u64,
    /// The hashes of all pairs added up, lane by lane.
    lanes: [u64; 4],
}

impl Sum {
    pub fn add(&mut self, key: &str, version: &str) {
        self.count = self.count.wrapping_add(1);
        for (sum, lane) in self.lanes.iter_mut().zip(lanes(key, version)) {
            *sum = sum.wrapping_add(lane);
        }
    }

    /// What was added before, or will be: a difference is a sum, too.
    pub fn take(&mut self, key: &str, version: &str) {
        self.count = self.count.wrapping_sub(1);
        for (sum, lane) in self.lanes.iter_mut().zip(lanes(key, version)) {
            *sum = sum.wrapping_sub(lane);
        }
    }

    #[must_use]
    pub fn and(mut self, other: &Sum) -> Sum {
        self.count = self.count.wrapping_add(other.count);
        for (sum, lane) in self.lanes.iter_mut().zip(other.lanes) {
            *sum = sum.wrapping_add(lane);
        }
        self
    }
}

fn lanes(key: &str, version: &str) -> [u64; 4] {
    let print = Fingerprint::of_parts(&[key.as_bytes(), version.as_bytes()]);
    let mut lanes = [0; 4];
    for (lane, bytes) in lanes.iter_mut().zip(print.0.as_chunks().0) {
        *lane = u64::from_be_bytes(*bytes);
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(pairs: &[(&str, &str)]) -> Sum {
        let mut sum = Sum::default();
        for (key, version) in pairs {
            sum.add(key, version);
        }
        sum
    }

    #[test]
    fn order_does_not_matter_and_everything_else_does() {
        let whole = sum(&[("a", "1"), ("b", "2")]);
        assert_eq!(whole, sum(&[("b", "2"), ("a", "1")]));
        for other in
            [&[("a", "2"), ("b", "1")][..], &[("a", "1")], &[("a", "1"), ("b", "2"), ("b", "2")], &[]]
        {
            assert_ne!(whole, sum(other), "{other:?}");
        }
    }

    #[test]
    fn a_difference_brings_one_sum_to_another() {
        let mut moved = Sum::default();
        moved.take("b", "2");
        moved.add("b", "3");
        moved.take("a", "1");
        assert_eq!(sum(&[("a", "1"), ("b", "2")]).and(&moved), sum(&[("b", "3")]));
    }
}
