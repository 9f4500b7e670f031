//! A part of a store as a store of its own: every key below a prefix. Whoever holds it can neither see nor touch
//! what lies outside.

use async_trait::async_trait;

use super::sift::sift;
use super::{Access, Caps, Item, Mode, Outcome, Page, Query, SharedStore, Store, Stored, check_atomic};
use crate::error::{Error, Result};

pub struct Prefixed {
    inner: SharedStore,
    prefix: String,
    name: String,
}

impl Prefixed {
    pub fn new(inner: SharedStore, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let name = format!("{} below {prefix}", inner.name());
        Prefixed { inner, prefix, name }
    }

    fn inside(&self, key: &str) -> String {
        [&self.prefix, key].concat()
    }
}

impl Prefixed {
    /// A page as it looks from the outside: keys without the prefix.
    fn outside(&self, mut page: Page, prefix: &str) -> Result<Page> {
        for line in &mut page.items {
            if !line.key.starts_with(&self.prefix) {
                return Err(Error::bug(format!("{} listed {} below {prefix}", self.inner.name(), line.key)));
            }
            line.key.drain(..self.prefix.len());
        }
        Ok(page)
    }
}

#[async_trait]
impl Store for Prefixed {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        let inner = self.inner.caps();
        // A sum is over whole keys, and we know only their ends.
        Caps { key_max: inner.key_max.saturating_sub(self.prefix.len()), sums: false, ..inner }
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        let keys: Vec<String> = keys.iter().map(|key| self.inside(key)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.inner.get(&keys).await
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        let prefix = self.inside(query.prefix);
        let after = query.after.map(|after| self.inside(after));
        let page = self.inner.list(Query { prefix: &prefix, after: after.as_deref(), ..query }).await?;
        self.outside(page, &prefix)
    }

    async fn survey(&self, query: Query<'_>) -> Result<Page> {
        let prefix = self.inside(query.prefix);
        let after = query.after.map(|after| self.inside(after));
        let page = self.inner.survey(Query { prefix: &prefix, after: after.as_deref(), ..query }).await?;
        self.outside(page, &prefix)
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        let caps = self.caps();
        check_atomic(&caps, items.len(), mode)?;
        // Checked before the prefix goes on: behind it an empty key would no longer look empty.
        let (mut items, refused) = sift(items, mode, &caps, |_| Ok(()));
        if refused.stops(mode) {
            return Ok(refused.untouched(items.len()));
        }
        for item in &mut items {
            item.key = self.inside(&item.key);
        }
        Ok(refused.among(self.inner.write(items, mode).await?))
    }

    async fn is_there(&self) -> Result<bool> {
        self.inner.is_there().await
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        self.inner.check(access).await
    }
}
