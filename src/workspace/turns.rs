//! One at a time: work that several ask for at once is done by one of them.
//!
//! Within a process by a lock per name; between processes by a claim in the store that ends by itself. A claim is a
//! courtesy, not a fence: whoever overstays it only does work twice, because results are written conditionally.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;

use super::shelf::{Held, Shelf};
use super::{instant, keys};
use crate::error::Result;
use crate::record::Fingerprint;
use crate::store::Expect;

/// Between two looks at somebody else's claim: shorter than any work that is worth a claim.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Locks nobody holds are forgotten when there are this many names.
const NAMES_MAX: usize = 1_024;

#[derive(Serialize, Deserialize)]
struct Claim {
    by: String,
    #[serde(with = "instant")]
    until: Timestamp,
}

type Locks = Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>;

pub struct Turns {
    locks: Locks,
    /// This instance's name on its claims.
    me: String,
}

/// Held while the work is done.
pub struct Turn {
    key: String,
    _local: OwnedMutexGuard<()>,
}

impl Turns {
    pub fn new(me: String) -> Self {
        Turns { locks: Locks::default(), me }
    }

    /// Wait for this name within the process.
    pub async fn local(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            if locks.len() >= NAMES_MAX {
                locks.retain(|_, lock| lock.strong_count() > 0);
            }
            let known = locks.get(name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                locks.insert(name.to_owned(), Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }

    /// Wait for this name everywhere. The claim ends after `lasting`, whatever becomes of its holder.
    pub async fn take(&self, shelf: &Shelf, name: &[&str], lasting: Duration) -> Result<Turn> {
        let parts: Vec<&[u8]> = name.iter().map(|part| part.as_bytes()).collect();
        let name = Fingerprint::of_parts(&parts).to_string();
        let key = keys::system_key("working", Some(&name[..32]))?;
        let local = self.local(&key).await;
        let lasting = SignedDuration::try_from(lasting).unwrap_or(SignedDuration::MAX);
        loop {
            let held: Option<Held<Claim>> = shelf.read(&key).await?;
            let now = shelf.clock.now();
            let free = held.as_ref().is_none_or(|held| held.what.by == self.me || held.what.until <= now);
            if free {
                let until = now.saturating_add(lasting).unwrap_or(now);
                let claim = Claim { by: self.me.clone(), until };
                let expect = held.map_or(Expect::Absent, |held| Expect::Exactly(held.version));
                if shelf.put(&key, &claim, expect).await?.is_some() {
                    return Ok(Turn { key, _local: local });
                }
            }
            shelf.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Give the name back. A claim that somebody took over stays theirs.
    pub async fn end(&self, shelf: &Shelf, turn: Turn) -> Result<()> {
        let held: Option<Held<Claim>> = shelf.read(&turn.key).await?;
        match held {
            Some(held) if held.what.by == self.me => {
                shelf.remove(vec![(turn.key, held.version)]).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}
