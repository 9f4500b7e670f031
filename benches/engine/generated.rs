//! A source that makes its records up as it goes: what is measured is the engine and the stores, not a source.

use async_trait::async_trait;
use bytes::Bytes;
use trueup::error::{Error, Kind, Result};
use trueup::record::{Body, Entry, Scope};
use trueup::source::{Cursors, Event, Sink, Source, Versions};

use super::line::{key, value};

/// Bytes of a record, as promised.
pub const LENGTH: usize = 300;

pub struct Generated {
    pub count: usize,
    /// Another generation is another body for every record.
    pub generation: u32,
}

#[async_trait]
impl Source for Generated {
    fn name(&self) -> &'static str {
        "generated"
    }

    fn sorted(&self) -> bool {
        true
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    async fn list(&self, _cursors: &Cursors, out: &mut Sink) -> Result<()> {
        let scope: Scope = "item".into();
        for number in 0..self.count {
            out.send(Event::Seen(Entry::new(key(number), &scope, self.generation.to_string()))).await?;
        }
        out.send(Event::Complete("".into(), None)).await
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        let number = entry.id.trim_start_matches("item/").parse();
        let number = number.map_err(|error| Error::new(Kind::Invalid, "an odd key").caused_by(error))?;
        let bytes = Bytes::from(value(number, self.generation, LENGTH));
        Ok(Body { bytes, version: entry.version.clone() })
    }

    fn requests(&self) -> u64 {
        0
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}
