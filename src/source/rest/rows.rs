//! The rows of one scope, kept back until it is known whether any of them changed: a scope whose rows are all as they
//! were when it was last applied says just that, and nobody need look at them one by one.

use crate::error::Result;
use crate::record::Fingerprint;
use crate::source::{Event, Sink};

/// Rows of a scope that are kept back; those of a larger one flow on as they come.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// What a row costs beside its bytes.
const ROW_BYTES: usize = 256;

/// Part of every digest, so that another way to make them is another digest.
const FORM: &[u8] = b"rows of a scope, 1";

pub struct Rows {
    kept: Vec<Event>,
    bytes: usize,
    /// Over ids and checksums in the order they came; `None` = something in the scope cannot be used.
    digest: Option<Fingerprint>,
    /// Some have been told already.
    flowing: bool,
}

impl Default for Rows {
    fn default() -> Self {
        Rows { kept: Vec::new(), bytes: 0, digest: Some(Fingerprint::of(FORM)), flowing: false }
    }
}

impl Rows {
    pub async fn add(&mut self, event: Event, out: &mut Sink) -> Result<()> {
        self.digest = match (&event, self.digest) {
            (Event::Seen(entry), Some(so_far)) => Some(Fingerprint::of_parts(&[
                &so_far.0,
                &(entry.id.len() as u64).to_be_bytes(),
                entry.id.as_bytes(),
                entry.version.as_bytes(),
            ])),
            _ => None,
        };
        if let Event::Seen(entry) = &event {
            self.bytes += ROW_BYTES + entry.inline.as_ref().map_or(0, bytes::Bytes::len);
        }
        self.kept.push(event);
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
        self.digest.map(|digest| digest.to_string())
    }

    /// Everything that is still kept, then how the scope ended.
    pub async fn tell(mut self, end: Event, out: &mut Sink) -> Result<()> {
        self.flow(out).await?;
        out.send(end).await
    }

    async fn flow(&mut self, out: &mut Sink) -> Result<()> {
        self.bytes = 0;
        for event in self.kept.drain(..) {
            out.send(event).await?;
        }
        Ok(())
    }
}
