//! Two identities that would have one key: a template may say `{boardId}-{articleId}`, and ids may hold a `-`. Whoever
//! has the key keeps it; the other one is told, and never taken for it.

use std::borrow::Cow;
use std::collections::HashMap;

use super::Pipeline;
use super::peek::Peek;
use super::sightings::Sighting;
use crate::error::{Error, Kind, Result};
use crate::state::{Base, keys};

const REMEDY: &str = "Give `key` a template with a `/` between {boardId} and {articleId}.";

/// Keys that several identities could have, and who was met with them in this pass.
#[derive(Default)]
pub struct Clashes(HashMap<String, String>);

impl Clashes {
    /// An error when another identity has the key that this one has or would get.
    pub async fn meet(
        &mut self,
        line: &Pipeline,
        sighting: &Sighting,
        known: Option<&Peek<'_>>,
    ) -> Result<Option<Error>> {
        let own = sighting.identity.as_str();
        let has = known.and_then(|known| known.key.as_deref()).map(Cow::Borrowed);
        let gets = || line.shape.key(&sighting.entry).map(Cow::Owned);
        let Some(key) = has.or_else(gets) else { return Ok(None) };
        let names = line.shape.namesakes(&key);
        // What is too old gets no key at all.
        if names.len() < 2 || (known.is_none() && line.shape.expired(&key, None, line.clock.now())) {
            return Ok(None);
        }
        let mut owner = self.0.get(&*key).cloned();
        for other in names.into_iter().filter(|other| other != own) {
            let base: Option<Base> = line.state.read(&keys::base(&line.name, &other)).await?;
            // Where both once got it, the first of them keeps it.
            let first = known.is_none() || other.as_str() < own;
            if first && base.is_some_and(|base| base.key(&other) == key) {
                owner.get_or_insert(other);
            }
        }
        let Some(other) = owner else {
            self.0.insert(key.into_owned(), own.to_owned());
            return Ok(None);
        };
        let message = format!("{own} would have the key {key}, which is that of {other}");
        Ok(Some(Error::new(Kind::Invalid, message).remedy_is(REMEDY)))
    }
}
