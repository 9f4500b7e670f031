//! Many keys with their versions as one number, whatever order they come in: equal sums, equal contents.
//!
//! It tells that something changed, never what: whoever must know lists.

use std::hash::Hasher as _;

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

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

/// A sum tells of chance, not of somebody who means to deceive: that takes a quarter of the time of SHA-256.
fn lanes(key: &str, version: &str) -> [u64; 4] {
    let half = |number: u64| {
        let mut hash = SipHasher13::new_with_keys(number, key.len() as u64);
        hash.write(key.as_bytes());
        hash.write(version.as_bytes());
        hash.finish128().as_u64()
    };
    let ((a, b), (c, d)) = (half(1), half(2));
    [a, b, c, d]
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
