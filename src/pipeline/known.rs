//! Whether anybody knows a key: what is remembered, the store, the source. A key that nobody knows was mistyped.

use super::why::{Near, identities_of};
use super::{Pipeline, Stop, parked};
use crate::error::{Error, Kind, Result};
use crate::record::Entry;
use crate::source::{self, Cursors, Event};
use crate::state::held::Decision;
use crate::state::keys;
use crate::store::StoreExt;

impl Pipeline {
    /// Something is decided about it or parked under it, or the store holds it.
    pub async fn keeps(&self, key: &str) -> Result<bool> {
        let names = identities_of(self.shape.as_ref(), key);
        for identity in &names {
            let decision: Option<Decision> = self.state.read(&keys::decision(&self.name, identity)).await?;
            if decision.is_some() {
                return Ok(true);
            }
        }
        let parked = parked::load(self).await?;
        if parked.iter().any(|(entry, parked)| entry == key || names.contains(&parked.identity)) {
            return Ok(true);
        }
        Ok(self.store.get_one(key).await?.is_some())
    }

    /// The source lists it, or may: of a part that could not be read nobody knows. What it lists instead is weighed.
    pub async fn lists(&self, key: &str, near: &mut Near<'_>, stop: &Stop) -> Result<bool> {
        let (mut sink, mut events) = source::channel_until(stop.flag());
        let listing = async move {
            let listed = self.source.list(&Cursors::new(), &mut sink).await;
            if listed.is_ok() { sink.flush().await } else { listed }
        };
        let looking = async move {
            while let Some(batch) = events.recv().await {
                if batch.iter().any(|event| self.tells_of(event, key, near)) {
                    // Whoever lists notices that nobody listens any more.
                    return true;
                }
            }
            false
        };
        let (listed, found): (Result<()>, bool) = tokio::join!(listing, looking);
        if stop.is_set() {
            return Err(Error::new(Kind::Canceled, "stopped by request"));
        }
        // A source that cannot be read is the run's to report.
        Ok(found || listed.is_err())
    }

    fn tells_of(&self, event: &Event, key: &str, near: &mut Near<'_>) -> bool {
        match event {
            Event::Seen(entry) | Event::Bad(entry, _) | Event::Gone(entry) => {
                self.shape.wants(entry) && self.is_called(entry, key, near)
            }
            Event::Broken(..) => true,
            Event::Complete(..) | Event::Window(..) | Event::Unchanged(_) | Event::Note(_) => false,
        }
    }

    fn is_called(&self, entry: &Entry, key: &str, near: &mut Near<'_>) -> bool {
        let identity = self.shape.identify(entry).map(|known| known.identity).unwrap_or_default();
        if entry.id == key
            || self.shape.key(entry).is_some_and(|own| own == key)
            || identities_of(self.shape.as_ref(), key).contains(&identity)
        {
            return true;
        }
        if !identity.is_empty() {
            near.weigh(&identity);
        }
        false
    }
}
