//! A look into the stores of the config. The state is none of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::LIMIT_MAX;
use crate::config::{Config, Database, Pipeline, Place, StoreSpec, Then};
use crate::error::{Error, Kind, Result};
use crate::operations::look;
use crate::registry;
use crate::server::House;
use crate::server::answer::{self, Answer, Asked, Named};
use crate::store::{Access, Query, SharedStore, What, open};

/// A page of keys for a person.
const LIMIT: usize = 200;
/// Larger values are not for a page.
const VALUE_MAX: usize = 4 << 20;

#[derive(Debug, Deserialize)]
pub struct Page {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub struct Key {
    key: String,
}

/// A store, and the pipeline whose recipe says what its tables are.
pub struct Known<'c> {
    pub spec: &'c StoreSpec,
    writer: Option<&'c Pipeline>,
}

/// By the name of the config, or the address (without secrets) of one that has no name.
pub fn known(config: &Config) -> BTreeMap<&str, Known<'_>> {
    let mut all: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for (name, spec) in &config.stores {
        all.insert(name, Known { spec, writer: None });
    }
    for pipeline in config.pipelines.values() {
        let exports = pipeline.then.iter().filter_map(|then| match then {
            Then::Export(spec) => Some(spec),
            Then::Webhook(_) | Then::Command(_) => None,
        });
        for spec in exports {
            all.entry(&spec.name).or_insert(Known { spec, writer: None });
        }
        let into = all.entry(&pipeline.into.name).or_insert(Known { spec: &pipeline.into, writer: None });
        into.writer.get_or_insert(pipeline);
    }
    all
}

pub async fn opened(house: &House, name: &str) -> Result<SharedStore> {
    let all = known(&house.config);
    let Some(store) = all.get(name) else {
        let names: Vec<&str> = all.keys().copied().collect();
        return Err(Error::new(Kind::NotFound, format!("there is no store {name}"))
            .remedy_is(format!("Stores of the config: {}.", names.join(", "))));
    };
    match (&store.spec.place, store.writer) {
        (Place::Tables(_), Some(writer)) => {
            Ok(registry::open(writer, &house.memory, Access::Read).await?.store)
        }
        _ => open::open(store.spec, Access::Read, house.clock.clone()).await,
    }
}

pub fn kind(place: &Place) -> &'static str {
    match place {
        Place::Memory => "memory",
        Place::Sqlite(_) => "sqlite",
        Place::Folder(_) => "file",
        Place::Cloudflare { .. } => "cloudflare-kv",
        Place::S3 { .. } => "s3",
        Place::Etcd(_) => "etcd",
        Place::Postgres(_) => "postgres",
        Place::Tables(Database::Sqlite(_)) => "tables in sqlite",
        Place::Tables(Database::Postgres(_)) => "tables in postgres",
    }
}

pub async fn all(State(house): State<Arc<House>>) -> Answer {
    let all: Vec<Value> = known(&house.config)
        .into_iter()
        .map(|(name, store)| {
            let writers = house.config.pipelines.values().filter(|pipeline| pipeline.into.name == name);
            let writers: Vec<&str> = writers.map(|pipeline| pipeline.name.as_str()).collect();
            json!({ "name": name, "kind": kind(&store.spec.place), "pipelines": writers })
        })
        .collect();
    answer::ok(&json!({ "stores": all }))
}

pub async fn keys(
    State(house): State<Arc<House>>,
    Named(store): Named<String>,
    Asked(page): Asked<Page>,
) -> Answer {
    let store = opened(&house, &store).await?;
    let limit = answer::limit(page.limit, LIMIT, LIMIT_MAX)?;
    let query = Query { prefix: &page.prefix, after: page.after.as_deref(), limit, what: What::Keys };
    let found = store.list(query).await?;
    let keys: Vec<Value> =
        found.items.iter().map(|line| json!({ "key": line.key, "version": line.version })).collect();
    answer::ok(&json!({ "keys": keys, "more": found.more }))
}

pub async fn value(
    State(house): State<Arc<House>>,
    Named(store): Named<String>,
    Asked(Key { key }): Asked<Key>,
) -> Answer {
    let store = opened(&house, &store).await?;
    answer::some_key(&key)?;
    let stored = look::stored(&store, &key).await?;
    if stored.value.len() > VALUE_MAX {
        let message = format!("{key} holds {} bytes, too many to show", stored.value.len());
        return Err(Error::new(Kind::Invalid, message)
            .remedy_is("`trueup kv get STORE KEY` writes it out.")
            .into());
    }
    answer::ok(&json!({ "key": key, "value": look::shown(&stored.value), "version": stored.version }))
}
