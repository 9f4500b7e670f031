//! Lists that may have moved while they were turned. Where pages go by number or by how many items came before, one that
//! is removed meanwhile moves all behind it up: the first of the next page slips through between two answers. Links and
//! cursors may be such numbers, too, and nobody can tell by looking at them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::scope::{self, Message, Picked, Which};
use super::{Api, PAGES_AHEAD, Root};
use crate::error::{Error, Kind, Result};

/// The scopes of a listing that came on several pages, and what each hangs from.
#[derive(Default)]
pub struct Paged(Mutex<HashMap<String, (usize, Root)>>);

impl Paged {
    fn all(&self) -> MutexGuard<'_, HashMap<String, (usize, Root)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn forget(&self) {
        self.all().clear();
    }

    /// A list of a scope was read to its end, with so many answers.
    pub fn note(&self, api: &Api, which: &Which, answers: usize) {
        if answers > 1 {
            let scope = api.scope(which.resource, which.parent.as_deref());
            self.all().insert(scope.to_string(), (which.resource, which.parent.clone()));
        }
    }

    pub fn has(&self, scope: &str) -> bool {
        self.all().contains_key(scope)
    }
}

/// The ids a scope lists now.
pub async fn names_now(api: &Arc<Api>, scope: &str, stop: &Arc<AtomicBool>) -> Result<HashSet<String>> {
    let Some((resource, parent)) = api.paged.all().get(scope).cloned() else {
        return Err(Error::bug(format!("{scope} was not read")));
    };
    let (sender, mut messages) = mpsc::channel(PAGES_AHEAD);
    // Reading ends with its set.
    let mut reading = JoinSet::new();
    let which = Which { resource, parent, cursor: None };
    reading.spawn(scope::read(api.clone(), which, stop.clone(), sender));
    let mut names = HashSet::new();
    while let Some(message) = messages.recv().await {
        match message {
            Message::Page(items) => {
                for item in items {
                    names.insert(named(item)?);
                }
            }
            Message::End(ended) => return ended.map(|_| names),
            Message::Same(_) | Message::Verbatim(_) => break,
        }
    }
    Err(Error::bug(format!("reading {scope} again broke off")))
}

fn named(item: Picked) -> Result<String> {
    match item {
        Picked::Row { id, .. } | Picked::Bad { id: Some(id), .. } => Ok(id),
        Picked::Bad { id: None, error, .. } => {
            Err(Error::new(Kind::Invalid, "an item without a key may be any that is missing")
                .caused_by(error))
        }
    }
}
