//! The rows of one scope, kept back until it is known whether any of them changed: a scope whose rows are all as they
//! were when it was last applied says just that, and nobody need look at them one by one.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::record::{Entry, Fingerprint, Scope};
use crate::source::{Event, Sink};

/// Rows of a scope that are kept back; those of a larger one flow on as they come.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// What a row costs beside its bytes.
const ROW_BYTES: usize = 128;

/// Part of every digest, so that another way to make them is another digest.
const FORM: &[u8] = b"rows of a scope, 2";

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

/// What a list says of one item.
pub enum Told {
    Row {
        external_id: String,
        bytes: Vec<u8>,
        print: Fingerprint,
    },
    /// It cannot be used.
    Bad(Event),
}

pub struct Rows<'a> {
    table: &'a str,
    scope: &'a Scope,
    kept: Vec<Told>,
    bytes: usize,
    /// `None` = something in the scope cannot be used.
    summary: Option<Summary>,
    /// Some have been told already.
    flowing: bool,
}

impl<'a> Rows<'a> {
    pub fn of(table: &'a str, scope: &'a Scope) -> Self {
        let summary = Some(Summary::default());
        Rows { table, scope, kept: Vec::new(), bytes: 0, summary, flowing: false }
    }

    pub async fn add(&mut self, told: Told, out: &mut Sink) -> Result<()> {
        match &told {
            Told::Row { external_id, bytes, print } => {
                self.bytes += ROW_BYTES + bytes.len();
                if let Some(summary) = &mut self.summary {
                    summary.add(external_id, print);
                }
            }
            Told::Bad(_) => self.summary = None,
        }
        self.kept.push(told);
        if self.bytes < KEPT_BYTES_MAX {
            return Ok(());
        }
        self.flowing = true;
        self.flow(out).await
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

    async fn flow(&mut self, out: &mut Sink) -> Result<()> {
        self.bytes = 0;
        for told in std::mem::take(&mut self.kept) {
            let event = match told {
                Told::Bad(event) => event,
                Told::Row { external_id, bytes, print } => {
                    let id = format!("{}/{external_id}", self.table);
                    let mut entry = Entry::new(id, self.scope, print.with_hex(str::to_owned));
                    entry.size = Some(bytes.len() as u64);
                    entry.inline = Some(Bytes::from(bytes));
                    entry.print = Some(print);
                    Event::Seen(entry)
                }
            };
            out.send(event).await?;
        }
        Ok(())
    }
}
