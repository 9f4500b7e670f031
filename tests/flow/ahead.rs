//! The source is read for batches to come while the store writes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use trueup::error::Result;
use trueup::record::{Body, Entry};
use trueup::shape::policy::Policy;
use trueup::source::{Cursors, Event, Sink, Source, Versions};
use trueup::store::memory::Memory;
use trueup::store::{Caps, Item, Mode, Outcome, Page, Query, Store, Stored};

use super::rig::Rig;

const COUNT: usize = 8;
/// While the first batch is written, two more are prepared and this one is on its way.
const ON_ITS_WAY: usize = 4;
/// Nothing here takes time; whoever waits longer waits for ever.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Documents that come in pieces, as they do over a network; how many have come.
struct InPieces(watch::Sender<usize>);

#[async_trait]
impl Source for InPieces {
    fn name(&self) -> &'static str {
        "in pieces"
    }

    fn sorted(&self) -> bool {
        true
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    async fn list(&self, _: &Cursors, out: &mut Sink) -> Result<()> {
        for number in 0..COUNT {
            let entry = Entry::new(format!("p{number}.md"), &"".into(), format!("{number:040x}"));
            out.send(Event::Seen(entry)).await?;
        }
        out.send(Event::Complete("".into(), None)).await
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        for _piece in 0..5 {
            tokio::task::yield_now().await;
        }
        self.0.send_modify(|come| *come += 1);
        Ok(Body { bytes: Bytes::from(format!("# {}\n", entry.id)), version: entry.version.clone() })
    }

    fn requests(&self) -> u64 {
        0
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// Writes nothing before the source has brought this many.
struct Slow {
    store: Memory,
    come: watch::Receiver<usize>,
}

#[async_trait]
impl Store for Slow {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn caps(&self) -> Caps {
        self.store.caps()
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        self.store.get(keys).await
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.store.list(query).await
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        let mut come = self.come.clone();
        let waited = tokio::time::timeout(WAIT_MAX, come.wait_for(|come| *come >= ON_ITS_WAY)).await.is_ok();
        assert!(waited, "what is on its way stands still while the store writes");
        self.store.write(items, mode).await
    }
}

#[tokio::test]
async fn what_is_on_its_way_arrives_while_the_store_writes() {
    let (come, seen) = watch::channel(0);
    let mut rig = Rig::over(Arc::new(InPieces(come)));
    rig.shape = Arc::new(Policy::default());
    rig.target = Arc::new(Slow { store: Memory::named("target"), come: seen });
    rig.batch = Some(1);
    rig.ran(COUNT as u64, 0, 0, 0).await;
}
