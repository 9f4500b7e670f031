//! `trueup kv`: a look into any store, as an outsider would have it. It knows nothing of pipelines.

use clap::{Args, Subcommand};
use serde_json::json;

use super::desk::Desk;
use super::output::named;
use crate::config;
use crate::error::Result;
use crate::operations::look;
use crate::store::{Access, Item, Query, SharedStore, StoreExt, open};

#[derive(Args)]
pub struct Kv {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The value of a key
    Get { store: String, key: String },
    /// Write a value
    Put { store: String, key: String, value: String },
    /// Keys, in byte order
    Ls { store: String, prefix: Option<String> },
    /// Remove a key
    Rm { store: String, key: String },
}

impl Kv {
    /// `trueup kv get STORE KEY`.
    pub fn get(store: &str, key: &str) -> Self {
        Kv { verb: Verb::Get { store: store.to_owned(), key: key.to_owned() } }
    }

    pub async fn run(self, desk: &Desk) -> Result<u8> {
        match self.verb {
            Verb::Get { store, key } => get(desk, &opened(desk, &store, Access::Read).await?, &key).await,
            Verb::Ls { store, prefix } => {
                ls(desk, &opened(desk, &store, Access::Read).await?, &prefix.unwrap_or_default()).await
            }
            Verb::Put { store, key, value } => {
                write(desk, &opened(desk, &store, Access::Write).await?, Item::put(key, value)).await
            }
            Verb::Rm { store, key } => {
                write(desk, &opened(desk, &store, Access::Write).await?, Item::delete(key)).await
            }
        }
    }
}

/// By name needs the config; a URL does without.
async fn opened(desk: &Desk, store: &str, access: Access) -> Result<SharedStore> {
    let config = if store.contains(':') && !desk.config.exists() { None } else { Some(desk.config()?) };
    let spec = config::store_spec(store, config.as_ref())?;
    open::open(&spec, access, desk.clock.clone()).await
}

async fn get(desk: &Desk, store: &SharedStore, key: &str) -> Result<u8> {
    let stored = look::stored(store, key).await?;
    if desk.out.json {
        desk.out.json(&json!({ "key": key, "value": look::shown(&stored.value), "version": stored.version }));
    } else {
        desk.out.bytes(&stored.value);
    }
    Ok(0)
}

async fn ls(desk: &Desk, store: &SharedStore, prefix: &str) -> Result<u8> {
    let mut keys = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.list(Query { after: after.as_deref(), ..Query::keys(prefix) }).await?;
        after = page.items.last().map(|line| line.key.clone());
        for line in page.items {
            // Text is shown as it comes; JSON is one document.
            if desk.out.json {
                keys.push(json!({ "key": line.key, "version": line.version }));
            } else {
                desk.out.line(&named(&line.key));
            }
        }
        if !page.more {
            break;
        }
    }
    if desk.out.json {
        desk.out.json(&json!({ "keys": keys }));
    }
    Ok(0)
}

async fn write(desk: &Desk, store: &SharedStore, item: Item) -> Result<u8> {
    let key = item.key.clone();
    let outcome = store.write_one(item).await?;
    let changed = matches!(outcome, crate::store::Outcome::Applied(_));
    desk.out.result(&json!({ "key": key, "changed": changed }), String::new);
    Ok(0)
}
