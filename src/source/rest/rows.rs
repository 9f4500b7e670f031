//! The rows of one scope, kept back until it is known whether any of them changed: a scope whose rows are all as they
//! were when it was last applied says just that, and nobody need look at them one by one.

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::record::{Entry, Fingerprint, Scope};
use crate::source::{Event, Sink};

use super::row::Picker;

/// Rows of a scope that are kept back; those of a larger one flow on as they come.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// What a row costs beside its bytes.
const ROW_BYTES: usize = 128;

/// Rows share memory in blocks of this size. One that is kept for long keeps its block: a few rows, not a whole answer.
const BLOCK_BYTES: usize = 4 << 10;

/// Part of every digest, so that another way to make them is another digest.
const FORM: &[u8] = b"rows of a scope, 3";

/// The rows of a scope as one hash: over ids and checksums in the order they came.
#[derive(Clone)]
pub struct Summary(Sha256);

impl Default for Summary {
    fn default() -> Self {
        Summary(Sha256::new_with_prefix(FORM))
    }
}

impl Summary {
    pub fn add(&mut self, external_id: &str, print: &Fingerprint) {
        self.0.update((external_id.len() as u64).to_be_bytes());
        self.0.update(external_id);
        self.0.update(print.0);
    }

    pub fn finish(self) -> String {
        hex::encode(self.0.finalize())
    }
}

/// Where the rows of an answer are kept.
pub struct Blocks {
    free: BytesMut,
    /// How many rows are still to come, at most: a few need no whole block.
    expected: usize,
}

impl Blocks {
    pub fn of(rows: usize) -> Self {
        Blocks { free: BytesMut::new(), expected: rows }
    }

    pub fn keep(&mut self, row: &[u8]) -> Bytes {
        if self.free.capacity() < row.len() {
            let alike = row.len().saturating_mul(self.expected);
            self.free = BytesMut::with_capacity(alike.min(BLOCK_BYTES).max(row.len()));
        }
        self.expected = self.expected.saturating_sub(1);
        self.free.extend_from_slice(row);
        self.free.split().freeze()
    }
}

/// What a list says of one item.
pub enum Told {
    Row {
        id: String,
        bytes: Bytes,
        print: Fingerprint,
    },
    /// It cannot be used. Boxed: there are few, and rows are moved by the hundred thousand.
    Bad(Box<Event>),
}

pub struct Rows<'a> {
    picker: &'a Picker,
    scope: &'a Scope,
    kept: Vec<Told>,
    bytes: usize,
    /// `None` = something in the scope cannot be used.
    summary: Option<Summary>,
    /// Some have been told already.
    flowing: bool,
}

impl<'a> Rows<'a> {
    pub fn of(picker: &'a Picker, scope: &'a Scope) -> Self {
        let summary = Some(Summary::default());
        Rows { picker, scope, kept: Vec::new(), bytes: 0, summary, flowing: false }
    }

    /// Take it in, and say whether that is more than is kept back.
    pub fn add(&mut self, told: Told) -> bool {
        match &told {
            Told::Row { id, bytes, print } => {
                self.bytes += ROW_BYTES + bytes.len();
                if let Some(summary) = &mut self.summary {
                    summary.add(self.picker.external_id(id), print);
                }
            }
            Told::Bad(_) => self.summary = None,
        }
        self.kept.push(told);
        self.bytes >= KEPT_BYTES_MAX
    }

    /// Nothing has been told yet.
    pub fn are_whole(&self) -> bool {
        !self.flowing
    }

    pub fn digest(&self) -> Option<String> {
        self.summary.clone().map(Summary::finish)
    }

    /// Everything that is still kept, then how the scope ended.
    pub async fn tell(mut self, end: Event, out: &mut Sink) -> Result<()> {
        self.flow(out).await?;
        out.send(end).await
    }

    /// Tell what is kept: nothing is held back any more.
    pub async fn flow(&mut self, out: &mut Sink) -> Result<()> {
        self.flowing = true;
        self.bytes = 0;
        for told in std::mem::take(&mut self.kept) {
            let event = match told {
                Told::Bad(event) => *event,
                Told::Row { id, bytes, print } => {
                    let mut entry = Entry::new(id, self.scope, print.with_hex(str::to_owned));
                    entry.size = Some(bytes.len() as u64);
                    entry.inline = Some(bytes);
                    entry.print = Some(print);
                    Event::Seen(entry)
                }
            };
            out.send(event).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_share_blocks_and_stay_what_they_are() {
        let rows: Vec<Vec<u8>> =
            [0, 1, 300, BLOCK_BYTES - 1, BLOCK_BYTES, 9, BLOCK_BYTES * 3, 700, 700, 700, 700, 700, 700]
                .iter()
                .enumerate()
                .map(|(at, len)| vec![b'a' + u8::try_from(at).unwrap(); *len])
                .collect();
        for expected in [0, 1, rows.len(), 1 << 20] {
            let mut blocks = Blocks::of(expected);
            let kept: Vec<Bytes> = rows.iter().map(|row| blocks.keep(row)).collect();
            assert_eq!(kept, rows);
        }
        let mut blocks = Blocks::of(2);
        let (first, second) = (blocks.keep(&[1; 200]), blocks.keep(&[2; 200]));
        assert_eq!(first.as_ptr() as usize + 200, second.as_ptr() as usize, "one block");
        assert_eq!(blocks.free.capacity(), 0, "two rows take no more than they are long");
    }
}
