//! Whether anybody knows a key: what is remembered, the store, the source. A key that nobody knows was mistyped.

use super::peek::peek;
use super::why::{Near, names_of};
use super::{Pipeline, Stop, parked};
use crate::error::{Error, Kind, Result};
use crate::record::Entry;
use crate::source::{self, Cursors, Event};
use crate::state::held::Decision;
use crate::state::keys;
use crate::store::{Listed, StoreExt};

impl Pipeline {
    /// Something is decided about it or parked under it, or the store holds it.
    pub async fn keeps(&self, key: &str) -> Result<bool> {
        let names = names_of(self.shape.as_ref(), key);
        for identity in &names {
            let decision: Option<Decision> = self.state.read(&keys::decision(&self.name, identity)).await?;
            if decision.is_some() {
                return Ok(true);
            }
        }
        let parked = parked::load(self).await?;
        if parked.values().any(|parked| names.contains(&parked.identity)) {
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

    /// By its identity or by the key it would have. What is too bad to have one may be whatever the shape claims it is.
    fn is_called(&self, entry: &Entry, key: &str, near: &mut Near<'_>) -> bool {
        let shape = self.shape.as_ref();
        let identity = shape.identify(entry).map_or_else(|_| entry.id.clone(), |known| known.identity);
        let by_key = match shape.key(entry) {
            Some(own) => own == key,
            None => shape.claims(key).as_ref() == Some(&identity),
        };
        if by_key || names_of(shape, key).contains(&identity) {
            return true;
        }
        near.weigh(&identity);
        false
    }
}

/// Whether a key is an identity, or the key it has in the store or would have there.
pub(super) fn is_called(
    line: &Pipeline,
    key: &str,
    (identity, entry, known): (&str, Option<&Entry>, Option<&Listed>),
) -> bool {
    let shape = line.shape.as_ref();
    let by_base = || {
        let peeked = known.and_then(|line| peek(line).ok());
        peeked.is_some_and(|peeked| peeked.key.as_deref() == Some(key))
    };
    let by_entry = || entry.and_then(|entry| shape.key(entry)).is_some_and(|own| own == key);
    // Its file may be there from before, under another day.
    let by_claim = || known.is_none() && shape.claims(key).as_deref() == Some(identity);
    names_of(shape, key).iter().any(|name| name == identity) || by_base() || by_entry() || by_claim()
}
