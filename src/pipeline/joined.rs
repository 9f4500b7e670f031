//! The store's own listing beside the baseline: what is really under a key, where that is cheap to know.

use std::collections::HashMap;

use super::Pipeline;
use super::lines::Lines;
use super::peek::Peek;
use super::plan::Seen;
use crate::error::Result;
use crate::record::Version;
use crate::store::What;

pub enum Joined {
    No,
    /// Keys sort as identities do.
    InOrder(Lines),
    ByKey(HashMap<String, Version>),
    /// It is known to hold exactly what the baseline says.
    AsKnown,
}

impl Joined {
    pub async fn with(line: &Pipeline) -> Result<Self> {
        // Of another store than before it must be known, whatever that costs.
        let listed = line.store.caps().cheap_list || line.place.is_other;
        Ok(match (listed, line.shape.key_prefix()) {
            (false, _) => Joined::No,
            (true, Some(prefix)) => Joined::InOrder(Lines::of(line.store.clone(), prefix, What::Keys)),
            (true, None) => Joined::ByKey(by_key(line).await?),
        })
    }

    /// With a store that holds nothing, as far as it can tell.
    pub fn with_nothing(line: &Pipeline) -> Self {
        if line.store.caps().cheap_list { Joined::AsKnown } else { Joined::No }
    }

    /// What the store's listing says about an identity's key, and the keys it passed on the way, which are strangers.
    pub async fn at(&mut self, identity: &str, known: Option<&Peek<'_>>) -> Result<(Seen, Vec<String>)> {
        let mut passed = Vec::new();
        let seen = match (self, known) {
            (Joined::InOrder(lines), _) => {
                let line = lines.take_past(identity, |line| passed.push(line.key)).await?;
                line.map_or(Seen::Nothing, |line| Seen::At(line.version))
            }
            (Joined::No, _) | (Joined::ByKey(_), None) => Seen::NotAsked,
            (Joined::ByKey(keys), Some(known)) => {
                let version = keys.get(known.key.as_deref().unwrap_or(identity)).cloned();
                version.map_or(Seen::Nothing, Seen::At)
            }
            (Joined::AsKnown, Some(known)) => Seen::At(Version(known.version.to_string())),
            (Joined::AsKnown, None) => Seen::Nothing,
        };
        Ok((seen, passed))
    }
}

async fn by_key(line: &Pipeline) -> Result<HashMap<String, Version>> {
    let mut lines = Lines::of(line.store.clone(), "", What::Keys);
    let mut keys = HashMap::new();
    while let Some(listed) = lines.pop().await? {
        keys.insert(listed.key, listed.version);
    }
    Ok(keys)
}
