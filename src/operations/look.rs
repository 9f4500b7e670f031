//! Looking without touching: the story of a key, and what a store holds.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::config::{self, Config};
use crate::error::{Error, Kind, Result};
use crate::pipeline::open::Memory;
use crate::pipeline::why::Story;
use crate::registry;
use crate::store::{Access, SharedStore, StoreExt};

/// The whole story of one key, as whoever wrote it tells it.
pub async fn why(config: &Config, memory: &Memory, key: &str) -> Result<Story> {
    let mut near = Vec::new();
    let mut story = None;
    let mut unknown: Option<Error> = None;
    for spec in config.pipelines.values() {
        match ask(spec, memory, key, &mut near).await {
            // Several may know the key; whoever wrote it tells.
            Ok(Some(told)) => {
                let owner = told.source.is_some();
                story = if owner { Some(told) } else { story.or(Some(told)) };
                if owner {
                    break;
                }
            }
            Ok(None) => {}
            // A pipeline that cannot be reached may well be the one that knows.
            Err(error) => _ = unknown.get_or_insert(error),
        }
    }
    if let Some(story) = story {
        return Ok(story);
    }
    if let Some(error) = unknown {
        return Err(error);
    }
    let error = Error::new(Kind::NotFound, format!("no pipeline knows the key {key}"));
    Err(if near.is_empty() {
        error.remedy_is("`trueup sync` has not written it; `trueup kv ls STORE` shows what a store holds.")
    } else {
        error.remedy_is(format!("The nearest keys: {}.", near.join(", ")))
    })
}

async fn ask(
    spec: &config::Pipeline,
    memory: &Memory,
    key: &str,
    near: &mut Vec<String>,
) -> Result<Option<Story>> {
    let line = registry::open(spec, memory, Access::Read).await?;
    let story = line.why(key).await?;
    if story.is_none() {
        near.extend(line.near(key).await?);
    }
    Ok(story)
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
