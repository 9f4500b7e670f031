//! Steps in order, written once, read as often as needed. They move to an unnamed temporary file when they grow, so that
//! a million changes cost disk, not memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::vec;

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::error::{Error, Result, from_io};

/// Above this steps move from memory to a file. A hundred thousand rows with their bodies stay.
const MEMORY_MAX: usize = 64 * 1024 * 1024;
/// Steps that are put away together.
const BLOCK: usize = 256 * 1024;
/// Bytes of the length before each step.
const LENGTH: usize = 4;

/// Steps are encoded where they belong, behind those before them.
struct Behind<'a>(&'a mut Vec<u8>);

impl Flavor for Behind<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Blocks of whole steps: those before the last one are put away, in memory or in a file.
pub struct Steps {
    blocks: Vec<Vec<u8>>,
    file: Option<File>,
    bytes: usize,
    memory_max: usize,
    count: u64,
    buffer: Vec<u8>,
}

impl Default for Steps {
    fn default() -> Self {
        Steps::within(MEMORY_MAX)
    }
}

impl Steps {
    fn within(memory_max: usize) -> Self {
        Steps { blocks: Vec::new(), file: None, bytes: 0, memory_max, count: 0, buffer: Vec::new() }
    }

    /// In a file from the start, for those who know that they will outgrow memory.
    pub fn on_disk() -> Self {
        Steps::within(0)
    }

    pub fn push<T: Serialize>(&mut self, step: &T) -> Result<()> {
        self.count += 1;
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; LENGTH]);
        postcard::serialize_with_flavor(step, Behind(&mut self.buffer))
            .map_err(|error| Error::bug("encoding a plan").caused_by(error))?;
        let length = u32::try_from(self.buffer.len() - start - LENGTH)
            .map_err(|_| Error::bug("a step of the plan is too large"))?;
        self.buffer[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
        if self.buffer.len() > BLOCK { self.put_away() } else { Ok(()) }
    }

    fn put_away(&mut self) -> Result<()> {
        let doing = "writing the plan";
        self.bytes += self.buffer.len();
        if self.file.is_none() && self.bytes <= self.memory_max {
            let next = Vec::with_capacity(self.buffer.len());
            self.blocks.push(std::mem::replace(&mut self.buffer, next));
            return Ok(());
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile().map_err(|error| from_io(error, doing))?,
        };
        // Whoever read it left it anywhere.
        file.seek(SeekFrom::End(0)).map_err(|error| from_io(error, doing))?;
        for block in self.blocks.drain(..) {
            file.write_all(&block).map_err(|error| from_io(error, doing))?;
        }
        file.write_all(&self.buffer).map_err(|error| from_io(error, doing))?;
        self.buffer.clear();
        self.file = Some(file);
        Ok(())
    }

    /// Nothing will be added for a while: give back the memory that takes.
    pub fn put_down(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.put_away()?;
        }
        self.buffer = Vec::new();
        Ok(())
    }

    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Read from the start.
    pub fn read<T: for<'de> Deserialize<'de>>(&mut self) -> Result<Reader<'_, T>> {
        self.put_down()?;
        let from = match &mut self.file {
            None => From::Memory(self.blocks.iter().map(Vec::as_slice).collect()),
            Some(file) => {
                file.seek(SeekFrom::Start(0)).map_err(|error| from_io(error, "reading the plan"))?;
                From::File(BufReader::with_capacity(64 * 1024, file), Vec::new())
            }
        };
        Ok(Reader { from, of: PhantomData })
    }
}

enum From<'a> {
    Memory(VecDeque<&'a [u8]>),
    /// With room for one step.
    File(BufReader<&'a mut File>, Vec<u8>),
}

impl From<'_> {
    /// The next step's bytes; `None` = that was all.
    fn row(&mut self) -> Result<Option<&[u8]>> {
        match self {
            From::Memory(blocks) => {
                while blocks.front().is_some_and(|block| block.is_empty()) {
                    blocks.pop_front();
                }
                let Some(block) = blocks.front_mut() else { return Ok(None) };
                let cut = || Error::bug("a plan that is cut short");
                let (length, rest) = block.split_first_chunk::<LENGTH>().ok_or_else(cut)?;
                let length = u32::from_le_bytes(*length) as usize;
                let (row, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
                *block = rest;
                Ok(Some(row))
            }
            From::File(input, row) => {
                let doing = "reading the plan";
                if input.fill_buf().map_err(|error| from_io(error, doing))?.is_empty() {
                    return Ok(None);
                }
                let mut length = [0; LENGTH];
                input.read_exact(&mut length).map_err(|error| from_io(error, doing))?;
                row.resize(u32::from_le_bytes(length) as usize, 0);
                input.read_exact(row).map_err(|error| from_io(error, doing))?;
                Ok(Some(row))
            }
        }
    }
}

pub struct Reader<'a, T> {
    from: From<'a>,
    of: PhantomData<T>,
}

impl<T: for<'de> Deserialize<'de>> Iterator for Reader<'_, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let decode = |row: &[u8]| {
            postcard::from_bytes(row).map_err(|error| Error::bug("decoding a plan").caused_by(error))
        };
        self.from.row().transpose().map(|row| row.and_then(decode))
    }
}

/// Steps one after the other: those of a plan, or those that are still being found.
pub enum Feed<'a, T> {
    Planned(Reader<'a, T>),
    Found { here: vec::IntoIter<T>, coming: mpsc::Receiver<Vec<T>> },
}

impl<T: for<'de> Deserialize<'de>> Feed<'_, T> {
    pub fn found(coming: mpsc::Receiver<Vec<T>>) -> Self {
        Feed::Found { here: Vec::new().into_iter(), coming }
    }

    /// The next step, as soon as there is one; `None` = that was all.
    pub async fn next(&mut self) -> Option<Result<T>> {
        match self {
            Feed::Planned(steps) => steps.next(),
            Feed::Found { here, coming } => loop {
                match here.next() {
                    Some(step) => return Some(Ok(step)),
                    None => *here = coming.recv().await?.into_iter(),
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(steps: &mut Steps) -> Vec<u64> {
        steps.read::<(u64, Vec<u8>)>().unwrap().map(|step| step.unwrap().0).collect()
    }

    #[test]
    fn steps_come_back_in_order_from_memory_from_a_file_and_from_one_that_grew_out_of_memory() {
        for memory_max in [0, 3 * BLOCK, usize::MAX] {
            let mut steps = Steps::within(memory_max);
            assert!(steps.is_empty() && numbers(&mut steps).is_empty());
            let mut wanted = Vec::new();
            for round in 0..4 {
                for number in 0..100 {
                    // A few are larger than a block.
                    let size = if number == 50 { 2 * BLOCK } else { 1_000 };
                    steps.push(&(round * 100 + number, vec![7u8; size])).unwrap();
                    wanted.push(round * 100 + number);
                }
                assert_eq!(steps.len(), wanted.len() as u64);
                // Reading in between, whole or in part, spoils nothing.
                assert_eq!(numbers(&mut steps), wanted);
                assert_eq!(steps.read::<(u64, Vec<u8>)>().unwrap().take(3).count(), 3);
            }
            assert_eq!(steps.file.is_some(), memory_max < usize::MAX);
        }
    }
}
