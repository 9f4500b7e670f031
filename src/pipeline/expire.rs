//! Retention: what a shape keeps for a limited time only is deleted when that time is over. The key itself tells its
//! age, or what is remembered of it, so neither the source's word nor the guard is needed; keys the shape does not claim
//! are left alone.

use std::collections::HashSet;

use super::Pipeline;
use super::lines::Lines;
use super::plan::{Action, Kept, Seen, Step, Why};
use super::steps::Steps;
use crate::error::Result;
use crate::record::{Fingerprint, Version};
use crate::state::journal::Change;
use crate::state::{Base, Pointer, keys};
use crate::store::What;

/// Baseline records looked up at once.
const LOOK_UP: usize = 1_000;

/// A delete for every key whose time is over.
pub async fn steps(line: &Pipeline) -> Result<Vec<Step>> {
    let Some(prefix) = line.shape.expires_below() else { return Ok(Vec::new()) };
    let now = line.clock.now();
    let mut lines = Lines::of(line.store.clone(), prefix, What::Keys);
    let mut over = Vec::new();
    while let Some(listed) = lines.pop().await? {
        if let Some(identity) =
            line.shape.claims(&listed.key).filter(|_| line.shape.expired(&listed.key, None, now))
        {
            over.push((identity, listed.key, listed.version));
        }
    }
    let mut steps = Vec::with_capacity(over.len());
    for part in over.chunks(LOOK_UP) {
        let bases: Vec<String> = part.iter().map(|(identity, ..)| keys::base(&line.name, identity)).collect();
        let names: Vec<&str> = bases.iter().map(String::as_str).collect();
        let known = line.state.store().get(&names).await?;
        for ((identity, key, version), known) in part.iter().zip(known) {
            let known = known
                .and_then(|stored| Some((stored.fingerprint?, String::from_utf8(stored.value.into()).ok()?)));
            if let Some((_, json)) = &known
                && !line.shape.expired(key, carry(identity, key, json)?.as_ref(), now)
            {
                continue;
            }
            steps.push(step(identity, key, version, known)?);
        }
    }
    Ok(steps)
}

/// What a pass found changed at the source, and still in its time: the baseline does not know that yet.
pub fn fresh(line: &Pipeline, planned: &mut Steps) -> Result<HashSet<String>> {
    let mut fresh = HashSet::new();
    if line.shape.expires_below().is_none() {
        return Ok(fresh);
    }
    let now = line.clock.now();
    for step in planned.read::<Step>()? {
        let step = step?;
        let known = step.entry.as_ref().filter(|_| step.base.is_some());
        let key = known.and_then(|entry| line.shape.key(entry));
        if key.is_some_and(|key| !line.shape.expired(&key, None, now)) {
            fresh.insert(step.identity);
        }
    }
    Ok(fresh)
}

/// What is remembered of a key.
fn carry(identity: &str, key: &str, json: &str) -> Result<Option<serde_json::Value>> {
    let base: Base = crate::state::decode(identity, json.as_bytes())?;
    Ok(if base.key(identity) == key { base.carry } else { None })
}

fn step(identity: &str, key: &str, version: &Version, known: Option<(Fingerprint, String)>) -> Result<Step> {
    let scope = identity.rsplit_once('/').map_or("", |(scope, _)| scope);
    let found = || -> Result<(Fingerprint, String)> {
        // Never written by us, but of the shape's making: what is known is what was found.
        let base = Base {
            version: version.clone(),
            fingerprint: Fingerprint::of(b""),
            bytes: None,
            scope: scope.into(),
            body: String::new(),
            key: Some(key.to_owned()),
            carry: None,
            written: Pointer::unset(),
        };
        Ok((base.fingerprint, base.json()?))
    };
    let base = match known {
        Some((stamp, json))
            if crate::state::decode::<Base>(identity, json.as_bytes())?.key(identity) == key =>
        {
            (stamp, json)
        }
        _ => found()?,
    };
    Ok(Step {
        identity: identity.to_owned(),
        scope: scope.into(),
        action: Action::Change(Change::Delete, Why::Expired),
        stamp: None,
        entry: None,
        base: Some(Box::new(Kept::new(base.0, base.1))),
        seen: Seen::At(version.clone()),
        after: None,
    })
}
