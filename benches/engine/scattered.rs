//! The same records in an order that helps nobody: pages far apart follow each other, and each comes shuffled.

use async_trait::async_trait;
use trueup::error::Result;
use trueup::record::{Body, Entry, Scope};
use trueup::source::{Cursors, Event, Sink, Source, Versions};
use trueup::store::{PAGE, Query, SharedStore, StoreExt as _, What};

use super::line::key;

pub struct Scattered {
    pub store: SharedStore,
    pub size: usize,
}

/// A step through the pages that meets each once, unless their number is a multiple of it.
const STRIDE: usize = 7_919;

#[async_trait]
impl Source for Scattered {
    fn name(&self) -> &'static str {
        "scattered"
    }

    fn sorted(&self) -> bool {
        false
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    async fn list(&self, _cursors: &Cursors, out: &mut Sink) -> Result<()> {
        let scope: Scope = "item".into();
        let pages = self.size.div_ceil(PAGE);
        for turn in 0..pages {
            let start = turn * STRIDE % pages * PAGE;
            let after = start.checked_sub(1).map(key);
            let query = Query { prefix: "", after: after.as_deref(), limit: PAGE, what: What::Keys };
            let mut lines = self.store.list(query).await?.items;
            for at in 0..lines.len() {
                let other = at * STRIDE % lines.len();
                lines.swap(at, other);
            }
            for line in lines {
                let version = line.fingerprint.map(|print| print.to_string()).unwrap_or_default();
                out.send(Event::Seen(Entry::new(line.key, &scope, version))).await?;
            }
        }
        out.send(Event::Complete("".into(), None)).await
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        let stored = self.store.get_one(&entry.id).await?;
        let bytes = stored.map(|stored| stored.value).unwrap_or_default();
        Ok(Body { bytes, version: entry.version.clone() })
    }

    fn requests(&self) -> u64 {
        0
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}
