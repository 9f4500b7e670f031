//! Looking without touching: the story of a key, and what a store holds.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::config::{self, Config};
use crate::error::{Error, Kind, Result};
use crate::pipeline::Stop;
use crate::pipeline::open::Memory;
use crate::pipeline::why::{Near, Story, memory_of, near_to};
use crate::registry;
use crate::store::{Access, SharedStore, StoreExt};

/// The whole story of one key, as whoever wrote it tells it; or as this pipeline does.
pub async fn why(config: &Config, memory: &Memory, key: &str, pipeline: Option<&str>) -> Result<Story> {
    let asked = pipeline.map(|name| super::pipeline(config, name)).transpose()?;
    let mut telling = Vec::new();
    for spec in config.pipelines.values() {
        if let Some(remembered) = memory_of(spec, memory, key).await? {
            telling.push((!remembered.is_owner(), spec));
        }
    }
    // Several may know the key; whoever wrote it tells.
    telling.sort_by_key(|(is_stranger, _)| *is_stranger);
    let mut trouble = None;
    for (_, spec) in telling.iter().filter(|(_, spec)| asked.is_none_or(|asked| asked.name == spec.name)) {
        match tell(spec, memory, key).await {
            Ok(Some(mut story)) => {
                let others = config.pipelines.keys().filter(|name| **name != story.pipeline);
                let tells = |name: &&String| telling.iter().any(|(_, spec)| spec.name == **name);
                story.also = others.filter(tells).cloned().collect();
                return Ok(story);
            }
            Ok(None) => {}
            // Another may be within reach.
            Err(error) => _ = trouble.get_or_insert(error),
        }
    }
    if let Some(error) = trouble {
        return Err(error);
    }
    let others: Vec<&str> = telling.iter().map(|(_, spec)| spec.name.as_str()).collect();
    if let (Some(asked), false) = (asked, others.is_empty()) {
        let message = format!("{} does not know the key {key}", asked.name);
        let remedy = format!("Ask {}, which does: `--pipeline NAME`.", others.join(" or "));
        return Err(Error::new(Kind::NotFound, message).remedy_is(remedy));
    }
    let mut near = Near::to(key);
    let specs = config.pipelines.values().filter(|spec| asked.is_none_or(|asked| asked.name == spec.name));
    for spec in specs {
        remembered_near(spec, memory, key, &mut near).await?;
    }
    Err(unknown(key, &near))
}

async fn tell(spec: &config::Pipeline, memory: &Memory, key: &str) -> Result<Option<Story>> {
    registry::open(spec, memory, Access::Read).await?.why(key).await
}

async fn remembered_near(
    spec: &config::Pipeline,
    memory: &Memory,
    key: &str,
    near: &mut Near<'_>,
) -> Result<()> {
    near_to(&memory.state, &spec.name, key).await?.iter().for_each(|name| near.weigh(name));
    Ok(())
}

fn unknown(key: &str, near: &Near<'_>) -> Error {
    let error = Error::new(Kind::NotFound, format!("no pipeline knows the key {key}"));
    let names = near.names();
    if names.is_empty() {
        return error
            .remedy_is("`trueup sync` has not written it; `trueup kv ls STORE` shows what a store holds.");
    }
    error.remedy_is(format!("The nearest keys: {}.", names.join(", ")))
}

/// An error when none of these pipelines knows a key, be it by its source, its store or what is remembered: to run for
/// it alone would do nothing and be called a success. One that cannot be asked may be the one that knows; its run
/// tells more.
pub async fn is_known(specs: &[&config::Pipeline], memory: &Memory, key: &str, stop: &Stop) -> Result<()> {
    let mut near = Near::to(key);
    for spec in specs {
        if memory_of(spec, memory, key).await?.is_some_and(|remembered| remembered.is_called(key)) {
            return Ok(());
        }
        remembered_near(spec, memory, key, &mut near).await?;
    }
    let mut lines = Vec::new();
    for spec in specs {
        let Ok(line) = registry::open(spec, memory, Access::Read).await else { return Ok(()) };
        if line.keeps(key).await.unwrap_or(true) {
            return Ok(());
        }
        lines.push(line);
    }
    // Sources last: they are listed, and may be far away.
    for line in lines {
        if line.lists(key, &mut near, stop).await? {
            return Ok(());
        }
    }
    Err(unknown(key, &near))
}

/// What a store holds under a key.
pub async fn stored(store: &SharedStore, key: &str) -> Result<crate::store::Stored> {
    store.get_one(key).await?.ok_or_else(|| {
        Error::new(Kind::NotFound, format!("{} holds no key {key}", store.name()))
            .remedy_is("`trueup kv ls STORE [PREFIX]` lists the keys.")
    })
}

/// Text as a string, other bytes as base64.
pub fn shown(value: &[u8]) -> Value {
    std::str::from_utf8(value)
        .map_or_else(|_| json!({ "base64": STANDARD.encode(value) }), |text| json!(text))
}
