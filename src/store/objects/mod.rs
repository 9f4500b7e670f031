//! `s3://` — a bucket as a store: S3 and its kin (R2, MinIO, …).
//!
//! S3 can create and replace under a condition, but it cannot delete under one, and some of its kin silently ignore
//! conditions. So what a server really does is found out by trying (`probe`), and the caps say no more than that:
//! creating is atomic where the server proved it, everything else is a look before the write (made safer by
//! `If-Match` where that works). Fingerprints are not kept, because no listing shows them.
//!
//! Refused: keys with empty, `.` or `..` segments or control characters. Not seen: objects whose name ends in `/`, which
//! consoles make for folders. An answer that is none (`answers`, `listing`) is an error, never an empty bucket.

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta, ObjectStoreExt as _};

use super::sift::sift;
use super::{Access, Caps, Item, Listed, Mode, Outcome, Page, Query, Store, Stored, What, check_atomic};
use crate::error::{Context, Error, Kind, Result};
use crate::record::Version;

mod answers;
mod connect;
mod fault;
mod listing;
mod placing;
mod probe;

pub use connect::Bucket;
pub use probe::Conditions;

use fault::{explain, is_missing};
use listing::Keys;

/// Requests under way at the same time: hides the round trip without flooding a small server.
const REQUESTS_AT_ONCE: usize = 16;
/// Lines per request of a listing: what S3 gives at most.
const LINES_MAX: usize = 1_000;
/// A page of values ends once it holds this many bytes.
const PAGE_BYTES: u64 = 32 * 1024 * 1024;
/// Longest key of S3, in bytes.
const KEY_MAX: usize = 1_024;
/// Objects pass through memory and go up in one request.
const VALUE_MAX: u64 = 256 * 1024 * 1024;

/// A store in a bucket.
pub struct Objects {
    name: String,
    client: AmazonS3,
    /// Before every key: empty, or ending in `/`.
    prefix: String,
    access: Access,
    conditions: Conditions,
    /// The name of the probe's object, different for every connection.
    probe_key: String,
}

impl Objects {
    /// What the server was found to do about conditions.
    pub fn conditions(&self) -> Conditions {
        self.conditions
    }

    /// The object of a key that passed [`check_key`].
    fn object(&self, key: &str) -> Result<Path> {
        Path::parse([&self.prefix, key].concat())
            .map_err(|error| Error::new(Kind::Invalid, "this key cannot be an object").caused_by(error))
    }

    async fn fetch(&self, key: &str) -> Result<Option<Stored>> {
        if check_key(key).is_err() {
            return Ok(None);
        }
        let got = match self.client.get(&self.object(key)?).await {
            Ok(got) => got,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(explain(&error)),
        };
        if got.meta.size > VALUE_MAX {
            return Err(Error::new(Kind::Invalid, format!("{key} is {} bytes long", got.meta.size)));
        }
        let version = version_of(&got.meta)?;
        let value = got.bytes().await.map_err(|error| explain(&error))?;
        Ok(Some(Stored { value, version, fingerprint: None }))
    }

    /// Lines of a listing from the server, at least one more than asked for if there are.
    async fn lines(&self, query: &Query<'_>) -> Result<Vec<ObjectMeta>> {
        let prefix = [&self.prefix, query.prefix].concat();
        let mut options = PaginatedListOptions {
            offset: query
                .after
                .filter(|after| *after >= query.prefix)
                .map(|after| [&self.prefix, after].concat()),
            max_keys: Some(query.limit.saturating_add(1).min(LINES_MAX)),
            ..PaginatedListOptions::default()
        };
        let mut found: Vec<ObjectMeta> = Vec::new();
        loop {
            let below = Some(prefix.as_str()).filter(|prefix| !prefix.is_empty());
            let part = self.client.list_paginated(below, options.clone());
            let part = part.await.map_err(|error| explain(&error))?;
            check_names(&part.result, &prefix)?;
            found.extend(part.result.objects.into_iter().filter(|object| !probe::is_probe(&object.location)));
            if part.page_token.is_some() && part.page_token == options.page_token {
                return Err(Error::new(Kind::Unavailable, "the server's listing does not go on"));
            }
            options.page_token = part.page_token;
            if options.page_token.is_none() || found.len() > query.limit {
                break;
            }
        }
        let first = found.first().map(|object| object.location.as_ref());
        if !found.is_sorted_by(|a, b| a.location.as_ref() < b.location.as_ref())
            || first.is_some_and(|first| options.offset.as_deref().is_some_and(|after| first <= after))
        {
            return Err(Error::new(
                Kind::Unavailable,
                "the server's listing is not in the order of the keys",
            )
            .remedy_is("This kind of bucket (for instance an S3 directory bucket) cannot be used."));
        }
        Ok(found)
    }

    /// The line with its value; `None` = it went away meanwhile, and the listing says so too.
    async fn with_value(&self, mut line: Listed) -> Result<Option<Listed>> {
        if let Some(stored) = self.fetch(&line.key).await? {
            line.version = stored.version;
            line.value = Some(stored.value);
            return Ok(Some(line));
        }
        let again = self.lines(&Query { limit: 1, ..Query::keys(&line.key) }).await?;
        let still =
            again.first().is_some_and(|object| object.location.as_ref()[self.prefix.len()..] == line.key);
        if still {
            let message = format!("{} is listed, and the server says that it is not there", line.key);
            return Err(Error::new(Kind::Unavailable, message));
        }
        Ok(None)
    }
}

#[async_trait]
impl Store for Objects {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        Caps {
            create: self.conditions.create,
            cas: false,
            atomic_max: 0,
            // S3, R2 and their kin read their own writes.
            strong_read: true,
            cheap_list: true,
            keeps_fingerprint: false,
            sums: false,
            lists_own: false,
            // There is no bulk request; a batch of this size keeps all connections busy.
            bulk_max: 256,
            side_by_side: 1,
            key_max: KEY_MAX - self.prefix.len(),
            value_max: VALUE_MAX,
        }
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let fetch = async |key: String| self.fetch(&key).await;
        let found = stream::iter(keys).map(fetch).buffered(REQUESTS_AT_ONCE).try_collect().await;
        found.context(|| format!("reading {}", self.name))
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        let mut found = self.lines(&query).await.context(|| format!("listing {}", self.name))?;
        let mut more = found.len() > query.limit;
        found.truncate(query.limit);
        if query.what == What::Values {
            let kept = within_bytes(&found);
            more |= kept < found.len();
            found.truncate(kept);
        }
        let line = |object: ObjectMeta| {
            let version = version_of(&object)?;
            let key = object.location.as_ref()[self.prefix.len()..].to_owned();
            Ok(Listed { key, version, fingerprint: None, value: None })
        };
        let items: Vec<Listed> = found.into_iter().map(line).collect::<Result<_>>()?;
        if query.what != What::Values {
            return Ok(Page { items, more });
        }
        let filled = stream::iter(items).map(|line| self.with_value(line)).buffered(REQUESTS_AT_ONCE);
        let filled: Vec<Option<Listed>> =
            filled.try_collect().await.context(|| format!("listing {}", self.name))?;
        Ok(Page { items: filled.into_iter().flatten().collect(), more })
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        let caps = self.caps();
        check_atomic(&caps, items.len(), mode)?;
        if self.access == Access::Read {
            return Err(Error::bug(format!("{} was opened to be read and was asked to write", self.name)));
        }
        let (items, refused) = sift(items, mode, &caps, |item| check_key(&item.key));
        let write =
            async |item: Item| self.place(&item).await.context(|| format!("{} in {}", item.key, self.name));
        let outcomes = stream::iter(items).map(write).buffered(REQUESTS_AT_ONCE).collect().await;
        Ok(refused.among(outcomes))
    }

    /// Only trying tells which conditions a server honours; what was written for that is removed again.
    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.list(Query { limit: 1, ..Query::keys("") }).await?;
        match access {
            Access::Read => Ok(Vec::new()),
            Access::Write => Ok(self.try_conditions().await?.findings()),
        }
    }
}

/// The client makes paths of names, and two names may become one path. And a server may give what was not asked for.
fn check_names(page: &ListResult, prefix: &str) -> Result<()> {
    let keys = page.extensions.get::<Keys>().ok_or_else(|| Error::bug("a listing that nobody looked at"))?;
    for (key, object) in keys.0.iter().zip(&page.objects) {
        if object.location.as_ref() != key {
            return Err(Error::new(Kind::Invalid, format!("the object {key:?} cannot be a key"))
                .remedy_is(fault::NO_PATH));
        }
        if !key.starts_with(prefix) {
            let message = format!("the server lists {key:?}, which does not begin with {prefix:?}");
            return Err(Error::new(Kind::Unavailable, message));
        }
    }
    Ok(())
}

/// How many of these objects fit a page of values; at least one.
fn within_bytes(objects: &[ObjectMeta]) -> usize {
    let mut bytes = 0;
    let fits = |object: &&ObjectMeta| {
        let fits = bytes == 0 || bytes + object.size <= PAGE_BYTES;
        bytes += object.size;
        fits
    };
    objects.iter().take_while(fits).count()
}

fn version_of(object: &ObjectMeta) -> Result<Version> {
    let mark = object.e_tag.clone();
    mark.map(Version).ok_or_else(|| {
        Error::new(Kind::Invalid, format!("the server gave {} no ETag", object.location))
            .remedy_is("trueup needs ETags to notice changes; use another server.")
    })
}

fn check_key(key: &str) -> Result<()> {
    let refuse = |why: &str| Err(Error::new(Kind::Invalid, format!("this key cannot be an object: {why}")));
    if key.split('/').any(str::is_empty) {
        return refuse("it has an empty segment");
    }
    if probe::is_reserved(key) {
        return refuse("it is like the name of a probe");
    }
    match Path::parse(key) {
        Ok(path) if path.as_ref() == key => Ok(()),
        Ok(_) => refuse("it would be stored under another name"),
        Err(error) => refuse(&error.to_string()),
    }
}

/// What to tell a browser or another program about an object, by the ending of its key.
fn content_type(key: &str) -> &'static str {
    let name = key.rsplit('/').next().unwrap_or(key);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match ending.as_str() {
        "md" | "markdown" => "text/markdown; charset=utf-8",
        "txt" | "log" => "text/plain; charset=utf-8",
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "pdf" => "application/pdf",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => "application/octet-stream",
    }
}

/// The bytes of a value as the client takes them.
fn payload(value: &Bytes) -> object_store::PutPayload {
    object_store::PutPayload::from_bytes(value.clone())
}
