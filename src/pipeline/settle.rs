//! Settling: what state learns once outcomes are known. Only here does the baseline move.

use super::Pipeline;
use super::prepare::Write;
use super::records::Beside;
use crate::error::{Fault, Result};
use crate::queue;
use crate::record::Version;
use crate::state::journal::{Exceptions, Intent, Late, OpenBatch, PriorBase, PriorValue};
use crate::state::{Pointer, Tombstone, item, keys};
use crate::store::{Item, Sum};

/// The outcomes of one batch, turned into state items.
pub struct Arrived<'a> {
    line: &'a Pipeline,
    run: String,
    batch: u32,
    items: Vec<Item>,
    exceptions: Exceptions,
    unknown: Vec<u32>,
    /// What becomes of the baseline's keys and versions, where that is of use.
    pub moved: Sum,
    sums: bool,
}

impl<'a> Arrived<'a> {
    /// What becomes of a batch of so many writes.
    pub fn new(line: &'a Pipeline, run: &str, batch: u32, writes: usize) -> Self {
        Arrived {
            line,
            run: run.to_owned(),
            batch,
            items: Vec::with_capacity(writes + 2),
            exceptions: Vec::new(),
            unknown: Vec::new(),
            moved: Sum::default(),
            sums: super::footing::is_possible(line),
        }
    }

    pub fn landed(&mut self, write: &Write, version: Option<Version>) -> Result<()> {
        if self.sums {
            self.sum_up(&write.intent, version.as_ref());
        }
        landed(self.line, &write.intent, version, &write.pointer, &mut self.items)?;
        self.items.extend(write.release.iter().cloned());
        Ok(())
    }

    fn sum_up(&mut self, intent: &Intent, version: Option<&Version>) {
        if intent.retire {
            return;
        }
        if let Some(PriorBase { base, .. }) = intent.prior_base.as_deref() {
            self.moved.take(base.key(&intent.identity), &base.version.0);
        }
        if let Some(PriorBase { base, .. }) = intent.next.as_deref() {
            self.moved.add(base.key(&intent.identity), &version.unwrap_or(&base.version).0);
        }
    }

    /// What went along with a change: known to be there, or doubtful.
    pub fn beside(&mut self, beside: &Beside, landed: bool) -> Result<()> {
        if landed {
            self.items.extend_from_slice(&beside.notes);
        } else {
            self.items.extend(beside.doubts()?);
        }
        Ok(())
    }

    pub fn already_so(&mut self, index: u32) {
        self.exceptions.push((index, Late::AlreadySo));
    }

    pub fn conflict(&mut self, index: u32) {
        self.exceptions.push((index, Late::Conflict));
    }

    pub fn dropped(&mut self, index: u32) {
        self.exceptions.push((index, Late::Dropped));
    }

    pub fn failed(&mut self, index: u32, fault: &Fault) {
        self.exceptions.push((index, Late::Failed(fault.clone())));
    }

    pub fn unknown(&mut self, index: u32) {
        self.unknown.push(index);
    }

    /// Everything state has to learn about this batch.
    pub fn items(mut self) -> Result<Vec<Item>> {
        let open = keys::open_batch(&self.line.name, &self.run, self.batch);
        if !self.exceptions.is_empty() {
            let key = keys::outcomes(&self.line.name, &self.run, self.batch);
            self.items.push(item(key, &self.exceptions)?);
        }
        self.items.push(if self.unknown.is_empty() {
            Item::delete(open)
        } else {
            item(open, &OpenBatch { only: Some(self.unknown) })?
        });
        Ok(self.items)
    }
}

/// Add state items for one intent that reached the store.
pub fn landed(
    line: &Pipeline,
    intent: &Intent,
    version: Option<Version>,
    pointer: &Pointer,
    items: &mut Vec<Item>,
) -> Result<()> {
    let pipeline = &line.name;
    if !intent.then.is_empty() {
        items.append(&mut queue::tasks(pipeline, intent, pointer, line.clock.now())?);
    }
    if !intent.retire {
        match &intent.next {
            Some(next) => {
                let version = version.as_ref().unwrap_or(&next.base.version);
                let place = (version, pointer);
                items.push(next.base.item_at(place, pipeline, &intent.identity, next.stamp)?);
            }
            None => {
                items.push(Item::delete(keys::base(pipeline, &intent.identity)));
                let stone = Tombstone { key: intent.key.clone(), written: pointer.clone() };
                items.push(item(keys::tombstone(pipeline, &intent.identity), &stone)?);
            }
        }
    }
    if let Some(decision) = &intent.decision {
        items.push(item(keys::decision(pipeline, &intent.identity), decision)?);
    } else if intent.lift {
        items.push(Item::delete(keys::decision(pipeline, &intent.identity)));
    }
    Ok(())
}

/// What an intent weighs in the journal, near enough for retention.
pub fn weight(write: &Write) -> u64 {
    let inline = match &write.intent.prior {
        Some(PriorValue::Text(text) | PriorValue::Base64(text)) => text.len(),
        Some(PriorValue::Blob(_)) | None => 0,
    };
    let blob =
        write.blob.as_ref().and_then(|blob| super::prepare::value_of(&blob.op)).map_or(0, bytes::Bytes::len);
    (300 + inline + blob) as u64
}
