//! From a store's description in the config to the store itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::cloudflare::{self, Cloudflare, Namespace};
use super::etcd::EtcdStore;
use super::failures::Watched;
use super::folder::Folder;
use super::limited::Limited;
use super::memory::Memory;
use super::objects::{Bucket, Objects};
use super::postgres::PostgresStore;
use super::sqlite::Sqlite;
use super::stamped::Stamped;
use super::{Access, Query, SharedStore, Store as _};
use crate::clock::SharedClock;
use crate::config::{Place, StoreSpec};
use crate::error::{Context, Error, Kind, Result};
use crate::etcd::EtcdPlace;
use crate::http::Http;
use crate::postgres::PostgresPlace;
use crate::secret::Secret;

/// Open a store. Reading creates nothing; writing makes what is missing (but never a bucket). One that is open has
/// answered: a pass with nothing to write must not call a store in step that is not there.
pub async fn open(spec: &StoreSpec, access: Access, clock: SharedClock) -> Result<SharedStore> {
    watched(spec, open_plain(spec, access, clock).await)
}

async fn open_plain(spec: &StoreSpec, access: Access, clock: SharedClock) -> Result<SharedStore> {
    match &spec.place {
        Place::Memory => Ok(memory(&spec.name)),
        Place::Sqlite(path) => {
            let path = path.clone();
            blocking(move || Sqlite::open(&path, access)).await.map(|store| Arc::new(store) as SharedStore)
        }
        Place::Folder(path) => {
            let path = path.clone();
            blocking(move || Folder::open(&path, access)).await.map(|store| Arc::new(store) as SharedStore)
        }
        Place::S3 { bucket, prefix } => {
            let to = bucket_of(spec, bucket, prefix)?;
            let store = Objects::connect(&to, access, &*clock).await;
            store.map(|store| Arc::new(store) as SharedStore)
        }
        Place::Cloudflare { account, namespace } => cloudflare(spec, account, namespace, clock).await,
        Place::Etcd(url) => {
            let place = EtcdPlace::parse(url.expose())?;
            let store = EtcdStore::open(&place, password_of(spec)?)?;
            // Its client connects when it is first asked.
            store.list(Query { limit: 1, ..Query::keys("") }).await?;
            Ok(Arc::new(store))
        }
        Place::Postgres(url) => {
            let place = PostgresPlace::parse(url.expose())?;
            let store = PostgresStore::open(&place, password_of(spec)?, access).await;
            store.map(|store| Arc::new(store) as SharedStore)
        }
        Place::Tables(_) => Err(Error::new(Kind::Config, "tables are made after a recipe")
            .remedy_is("Tables can be written by a pipeline with `from = { rest = … }` only.")),
    }
}

/// With its failures counted, and named in errors.
pub fn watched(spec: &StoreSpec, opened: Result<SharedStore>) -> Result<SharedStore> {
    let watched = Watched::opened(&spec.name, opened).map(|store| Arc::new(store) as SharedStore);
    watched.context(|| format!("store {}", spec.name))
}

/// Open the store of the state. In PostgreSQL it has a table of its own, and in etcd room for fingerprints.
pub async fn open_state(spec: &StoreSpec, access: Access, clock: SharedClock) -> Result<SharedStore> {
    match &spec.place {
        Place::Postgres(url) => {
            let mut place = PostgresPlace::parse(url.expose())?;
            place.table.get_or_insert_with(|| crate::config::STATE_TABLE.to_owned());
            let store = PostgresStore::open(&place, password_of(spec)?, access).await;
            watched(spec, store.map(|store| Arc::new(store) as SharedStore))
        }
        Place::Etcd(_) => Ok(Arc::new(Stamped::new(open(spec, access, clock).await?))),
        _ => open(spec, access, clock).await,
    }
}

/// Behind the limits the service documents, so that it never has to say no.
async fn cloudflare(
    spec: &StoreSpec,
    account: &str,
    namespace: &str,
    clock: SharedClock,
) -> Result<SharedStore> {
    let token = spec.secrets.get("token").ok_or_else(|| {
        Error::new(Kind::Config, "Cloudflare needs a token")
            .remedy_is("Write { url = \"cloudflare-kv://…\", token_env = \"CLOUDFLARE_API_TOKEN\" }.")
    })?;
    let namespace = Namespace {
        account: account.to_owned(),
        name: namespace.to_owned(),
        api: spec.options.get("endpoint").cloned().unwrap_or_else(|| cloudflare::API.to_owned()),
        token: token.require()?,
    };
    let store = Cloudflare::connect(spec.name.clone(), namespace, Http::new(clock.clone())?).await?;
    Ok(Arc::new(Limited::new(Arc::new(store), cloudflare::PROFILE, clock)))
}

/// The password beside the URL, if the config names one.
fn password_of(spec: &StoreSpec) -> Result<Option<Secret>> {
    spec.secrets.get("password").map(crate::secret::SecretRef::require).transpose()
}

fn bucket_of(spec: &StoreSpec, bucket: &str, prefix: &str) -> Result<Bucket> {
    let secret = |name: &str| -> Result<Option<Secret>> {
        let found = spec.secrets.get(name).map(crate::secret::SecretRef::require).transpose();
        found.context(|| format!("store {}: {name}", spec.name))
    };
    Ok(Bucket {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        endpoint: spec.options.get("endpoint").cloned(),
        region: spec.options.get("region").cloned(),
        access_key: secret("access_key")?,
        secret_key: secret("secret_key")?,
    })
}

/// Stores in memory live as long as the process, by name: two pipelines that name the same one share it.
fn memory(name: &str) -> SharedStore {
    static HELD: Mutex<BTreeMap<String, Arc<Memory>>> = Mutex::new(BTreeMap::new());
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.entry(name.to_owned()).or_insert_with(|| Arc::new(Memory::named(name))).clone()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::bug("opening a store broke off").caused_by(error))?
}
