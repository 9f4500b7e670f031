//! How many things to ask for at a time when nobody knows how large they are: by what those before them weighed.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What is asked for while nothing is known.
const FIRST: usize = 16;

/// So many bytes may come together; what does not fit waits for its turn. One thing is always taken, however large.
#[derive(Debug)]
pub struct Portion {
    bytes_max: usize,
    bytes: usize,
    items: usize,
    /// What one is thought to weigh before the first has come.
    expected: Option<usize>,
}

impl Portion {
    pub fn of(bytes_max: usize) -> Self {
        Portion { bytes_max, bytes: 0, items: 0, expected: None }
    }

    /// Somebody has met such things before.
    pub fn expecting(bytes_max: usize, each: Option<usize>) -> Self {
        Portion { expected: each, ..Portion::of(bytes_max) }
    }

    /// How many more fit; 0 = it is full.
    pub fn room(&self) -> usize {
        if self.items > 0 && self.bytes >= self.bytes_max {
            return 0;
        }
        let left = self.bytes_max.saturating_sub(self.bytes);
        self.each().map_or(FIRST, |each| (left / each.max(1)).max(1))
    }

    pub fn add(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// What one weighs, as far as that is known.
    pub fn each(&self) -> Option<usize> {
        self.bytes.checked_div(self.items).or(self.expected)
    }
}

/// What one of them weighed lately, for whoever asks again and again.
#[derive(Debug, Default)]
pub struct Lately(AtomicUsize);

impl Lately {
    pub fn each(&self) -> Option<usize> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    pub fn learn(&self, portion: &Portion) {
        if let Some(each) = portion.each() {
            self.0.store(each.saturating_add(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_tells_how_much_more_fits() {
        let mut portion = Portion::of(1_000);
        assert_eq!(portion.room(), FIRST);
        portion.add(10);
        assert_eq!(portion.room(), 99);
        portion.add(490);
        assert_eq!(portion.room(), 2, "each weighs 250 by now");
        portion.add(600);
        assert_eq!(portion.room(), 0);
        let lately = Lately::default();
        assert_eq!(lately.each(), None);
        lately.learn(&portion);
        assert_eq!(lately.each(), Some(366));
    }

    #[test]
    fn one_is_always_taken_and_nothing_weighs_nothing() {
        assert_eq!(Portion::of(0).room(), FIRST);
        assert_eq!(Portion::expecting(100, Some(5_000)).room(), 1);
        let mut empty = Portion::expecting(100, Some(0));
        assert_eq!(empty.room(), 100);
        empty.add(0);
        assert_eq!(empty.room(), 100);
    }
}
