//! Sightings in order of identity, whatever order they came in. They are sorted in memory a part at a time; parts
//! that would be too many for memory wait in unnamed temporary files and are merged in the end.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::sightings::Sighting;
use super::steps::{Reader, Steps};
use crate::error::Result;

/// A part in memory, by estimate: with it, sorting a million entries needs well under 150 MB.
const PART_BYTES: usize = 12 * 1024 * 1024;
/// What a sighting costs beside its texts.
const SIGHTING_BYTES: usize = 320;

#[derive(Default)]
pub struct Sorter {
    #[allow(clippy::vec_box)] // they come in boxes, and are sorted and handed on in them
    part: Vec<Box<Sighting>>,
    bytes: usize,
    /// Parts that are full, each in order; earlier ones were seen earlier.
    full: Vec<Steps>,
}

impl Sorter {
    pub fn add(&mut self, seen: Box<Sighting>) -> Result<()> {
        let entry = &seen.entry;
        let texts = seen.identity.len() + seen.rank.len() + entry.id.len() + entry.version.len();
        self.bytes += SIGHTING_BYTES + texts + entry.inline.as_ref().map_or(0, bytes::Bytes::len);
        self.part.push(seen);
        if self.bytes >= PART_BYTES { self.put_away() } else { Ok(()) }
    }

    fn put_away(&mut self) -> Result<()> {
        let mut file = Steps::on_disk();
        for seen in in_order(std::mem::take(&mut self.part)) {
            file.push(&seen)?;
        }
        file.put_down()?;
        self.bytes = 0;
        self.full.push(file);
        Ok(())
    }

    /// Hand out everything, by identity, then rank, then as it came, until somebody has had enough.
    pub fn finish(mut self, mut each: impl FnMut(Box<Sighting>) -> bool) -> Result<()> {
        if self.full.is_empty() {
            in_order(self.part).all(each);
            return Ok(());
        }
        self.put_away()?;
        let mut parts =
            self.full.iter_mut().map(Steps::read).collect::<Result<Vec<Reader<'_, Box<Sighting>>>>>()?;
        let mut heads = BinaryHeap::new();
        for (part, rows) in parts.iter_mut().enumerate() {
            if let Some(seen) = rows.next() {
                heads.push(Reverse(Head { seen: seen?, part }));
            }
        }
        while let Some(Reverse(Head { seen, part })) = heads.pop() {
            if !each(seen) {
                return Ok(());
            }
            if let Some(seen) = parts[part].next() {
                heads.push(Reverse(Head { seen: seen?, part }));
            }
        }
        Ok(())
    }
}

#[allow(clippy::vec_box)] // as above
fn in_order(mut part: Vec<Box<Sighting>>) -> impl Iterator<Item = Box<Sighting>> {
    part.sort_by(|a, b| a.place().cmp(&b.place()));
    part.into_iter()
}

/// The next sighting of a part.
struct Head {
    seen: Box<Sighting>,
    part: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        self.seen.place().cmp(&other.seen.place()).then(self.part.cmp(&other.part))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::sightings::What;
    use crate::record::Entry;

    fn seen(identity: &str, rank: &str, id: &str) -> Box<Sighting> {
        let entry = Entry::new(id, &"".into(), "1");
        Box::new(Sighting { identity: identity.into(), rank: rank.into(), entry, what: What::There })
    }

    fn sorted(sorter: Sorter) -> Vec<String> {
        let mut ids = Vec::new();
        sorter
            .finish(|seen| {
                ids.push(seen.entry.id);
                true
            })
            .unwrap();
        ids
    }

    #[test]
    fn parts_in_files_and_in_memory_come_out_in_one_order() {
        let rows = [
            ("b", "2", "b2"),
            ("c", "", "c"),
            ("a", "", "a"),
            ("b", "1", "b1"),
            ("b", "1", "b1 again"),
            ("d", "", "d"),
        ];
        let expected = ["a", "b1", "b1 again", "b2", "c", "d"];
        for put_away_every in [1, 2, 3, usize::MAX] {
            let mut sorter = Sorter::default();
            for (number, (identity, rank, id)) in rows.iter().enumerate() {
                sorter.add(seen(identity, rank, id)).unwrap();
                if (number + 1) % put_away_every == 0 {
                    sorter.put_away().unwrap();
                }
            }
            assert_eq!(sorted(sorter), expected, "put away every {put_away_every}");
        }
        assert!(sorted(Sorter::default()).is_empty());
    }
}
