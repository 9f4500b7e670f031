//! Large bodies and values: however many there are, few of them are in memory at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use trueup::error::Result;
use trueup::pipeline::Ask;
use trueup::record::{Body, Entry, Fingerprint};
use trueup::shape::policy::Policy;
use trueup::source::{Cursors, Event, Sink, Source, Versions};
use trueup::store::memory::Memory;
use trueup::store::{Caps, Item, Mode, Op, Outcome, Page, Query, Store, StoreExt, Stored};

use super::rig::Rig;

const MIB: usize = 1 << 20;
const COUNT: usize = 200;
/// Bodies of two batches, and what was under way when each was full.
const ALIVE_MAX: usize = 80 * MIB;
/// Messages from the source, chunks on their way to be written, and batches: a mebibyte or two each.
const INLINE_MAX: usize = 32 * MIB;
/// What one look at the store may bring.
const LOOK_MAX: usize = 34 * MIB;

/// Bytes that are in memory now, and the most there ever were.
#[derive(Default)]
struct Scales {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Weighed(Vec<u8>, Arc<Scales>);

impl Weighed {
    fn on(bytes: Vec<u8>, scales: &Arc<Scales>) -> Bytes {
        let now = scales.now.fetch_add(bytes.len(), Ordering::SeqCst) + bytes.len();
        scales.most.fetch_max(now, Ordering::SeqCst);
        Bytes::from_owner(Weighed(bytes, scales.clone()))
    }
}

impl AsRef<[u8]> for Weighed {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Weighed {
    fn drop(&mut self) {
        self.1.now.fetch_sub(self.0.len(), Ordering::SeqCst);
    }
}

/// Documents of almost a mebibyte each, whose sizes it tells or does not.
struct Heavy {
    scales: Arc<Scales>,
    tells_sizes: bool,
    /// The listing brings them along.
    inline: bool,
}

impl Heavy {
    fn document(&self, id: &str) -> Bytes {
        let mut text = format!("# {id}\n").into_bytes();
        text.resize(MIB, b'x');
        Weighed::on(text, &self.scales)
    }
}

#[async_trait]
impl Source for Heavy {
    fn name(&self) -> &'static str {
        "heavy"
    }

    fn sorted(&self) -> bool {
        true
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    async fn list(&self, _: &Cursors, out: &mut Sink) -> Result<()> {
        for number in 0..COUNT {
            let mut entry = Entry::new(format!("p{number:03}.md"), &"".into(), format!("{number:040x}"));
            entry.size = self.tells_sizes.then_some(MIB as u64);
            entry.inline = self.inline.then(|| self.document(&entry.id));
            out.send(Event::Seen(entry)).await?;
        }
        out.send(Event::Complete("".into(), None)).await
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        let bytes = entry.inline.clone().unwrap_or_else(|| self.document(&entry.id));
        Ok(Body { bytes, version: entry.version.clone() })
    }

    fn requests(&self) -> u64 {
        0
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn bodies_of_any_number_are_read_a_few_at_a_time() {
    for tells_sizes in [false, true] {
        let scales = Arc::new(Scales::default());
        let mut rig = Rig::over(Arc::new(Heavy { scales: scales.clone(), tells_sizes, inline: false }));
        rig.shape = Arc::new(Policy::default());
        rig.ran(COUNT as u64, 0, 0, 0).await;
        let most = scales.most.load(Ordering::SeqCst);
        assert!(most <= ALIVE_MAX, "{} MiB of bodies at a time", most / MIB);
        assert!(most >= 30 * MIB, "no batch was made: {} MiB", most / MIB);
        assert_eq!(scales.now.load(Ordering::SeqCst), 0, "nothing is kept");
    }
}

/// A first pass writes while it reads: what is on its way in between is few, too.
#[tokio::test]
async fn bodies_that_a_listing_brings_along_are_few_at_a_time() {
    let scales = Arc::new(Scales::default());
    let heavy = Heavy { scales: scales.clone(), tells_sizes: true, inline: true };
    let target = Arc::new(Answering { store: Memory::named("target"), heaviest: AtomicUsize::new(0) });
    let rig = Rig { target, ..Rig::over(Arc::new(heavy)) };
    rig.ran(COUNT as u64, 0, 0, 0).await;
    let most = scales.most.load(Ordering::SeqCst);
    assert!(most <= INLINE_MAX, "{} MiB of bodies at a time", most / MIB);
    assert_eq!(scales.now.load(Ordering::SeqCst), 0, "nothing is kept");
}

/// A store in memory that remembers the heaviest answer it gave, and keeps nothing of what it is given but a copy.
struct Answering {
    store: Memory,
    heaviest: AtomicUsize,
}

#[async_trait]
impl Store for Answering {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn caps(&self) -> Caps {
        self.store.caps()
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let found = self.store.get(keys).await?;
        let bytes = found.iter().flatten().map(|stored| stored.value.len()).sum();
        self.heaviest.fetch_max(bytes, Ordering::SeqCst);
        Ok(found)
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.store.list(query).await
    }

    async fn write(&self, mut items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        for item in &mut items {
            if let Op::Put { value, .. } = &mut item.op {
                *value = Bytes::copy_from_slice(value);
            }
        }
        self.store.write(items, mode).await
    }
}

#[tokio::test]
async fn values_that_are_replaced_deleted_and_brought_back_are_looked_at_a_few_at_a_time() {
    let target = Arc::new(Answering { store: Memory::named("target"), heaviest: AtomicUsize::new(0) });
    let mut rig = Rig::new();
    rig.target = target.clone();
    let light = |what: &str| {
        assert!(target.heaviest.swap(0, Ordering::SeqCst) <= LOOK_MAX, "{what}: one look was too heavy");
    };
    let fill = async |letter: u8| {
        for number in 0..100 {
            let value = vec![letter; MIB];
            let print = Fingerprint::of(&value);
            let item = Item::put(format!("k{number:02}"), value).with_fingerprint(print);
            rig.origin.write_one(item).await.unwrap();
        }
    };
    fill(b'a').await;
    rig.ran(100, 0, 0, 0).await;
    fill(b'b').await;
    rig.ran(0, 100, 0, 0).await;
    light("updates");
    let names: Vec<String> = (0..100).map(|number| format!("k{number:02}")).collect();
    rig.take_away(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let deleted = rig.ran(0, 0, 100, 0).await;
    light("deletes");
    let undone = rig.line().await.undo(&deleted.id, &Ask::plain("undo"), None).await.unwrap();
    light("undo");
    assert_eq!(undone.counts.added, 100, "{undone:#?}");
    assert_eq!(rig.target.get_one("k42").await.unwrap().unwrap().value, vec![b'b'; MIB]);
}
