//! Putting objects in their places and taking them away, as safely as the server allows.

use object_store::{Attribute, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion};

use super::fault::{explain, is_missing, is_perhaps_missing, is_unmet};
use super::{Objects, content_type, payload, version_of};
use crate::error::{Error, Kind, Result};
use crate::record::Version;
use crate::store::{Expect, Item, Op, Outcome, judge};

impl Objects {
    pub(super) async fn place(&self, item: &Item) -> Result<Outcome> {
        if item.op == Op::Delete {
            return self.remove(item).await;
        }
        // One request is enough to create where the server can be trusted with the condition.
        if item.expect == Expect::Absent && self.conditions.create {
            return match self.put(item, PutMode::Create).await? {
                Some(version) => Ok(Outcome::Applied(Some(version))),
                None => self.conflict(item).await,
            };
        }
        let (held, same) = self.look(item).await?;
        if let Some(outcome) = judge(item, held.as_ref(), same) {
            return Ok(outcome);
        }
        let mode = match (&item.expect, held) {
            (Expect::Exactly(_), Some(version)) if self.conditions.update => {
                PutMode::Update(UpdateVersion { e_tag: Some(version.0), version: None })
            }
            _ => PutMode::Overwrite,
        };
        match self.put(item, mode).await? {
            Some(version) => Ok(Outcome::Applied(Some(version))),
            None => self.conflict(item).await,
        }
    }

    /// The version it has now; `None` = the condition did not hold.
    async fn put(&self, item: &Item, mode: PutMode) -> Result<Option<Version>> {
        let Op::Put { value, .. } = &item.op else { return Err(Error::bug("a put that is none")) };
        let mut options = PutOptions::from(mode.clone());
        options.attributes.insert(Attribute::ContentType, content_type(&item.key).into());
        match self.client.put_opts(&self.object(&item.key)?, payload(value), options).await {
            Ok(done) => match done.e_tag {
                Some(mark) => Ok(Some(Version(mark))),
                None => Err(Error::new(Kind::Invalid, "the server gave the object no ETag")),
            },
            Err(error) if is_unmet(&error) => Ok(None),
            Err(error) if is_missing(&error) && mode != PutMode::Overwrite => Ok(None),
            Err(error) => Err(explain(&error)),
        }
    }

    async fn remove(&self, item: &Item) -> Result<Outcome> {
        let (held, _) = self.look(item).await?;
        if let Some(outcome) = judge(item, held.as_ref(), false) {
            return Ok(outcome);
        }
        match self.client.delete(&self.object(&item.key)?).await {
            Ok(()) => Ok(Outcome::Applied(None)),
            Err(error) if is_missing(&error) => Ok(Outcome::AlreadySo(None)),
            Err(error) => Err(explain(&error)),
        }
    }

    /// A condition failed at the server: what is there now decides what that means.
    async fn conflict(&self, item: &Item) -> Result<Outcome> {
        let (held, same) = self.look(item).await?;
        Ok(judge(item, held.as_ref(), same).unwrap_or(Outcome::Conflict(held)))
    }

    /// The version held, and whether the object is what a put brings. Bytes are only fetched where sizes agree, and where
    /// nothing seems to be there: an answer to HEAD does not say who says so.
    async fn look(&self, item: &Item) -> Result<(Option<Version>, bool)> {
        match self.client.head(&self.object(&item.key)?).await {
            Ok(object) if !is_as_long(item, object.size) => return Ok((Some(version_of(&object)?), false)),
            Err(error) if !is_perhaps_missing(&error) => return Err(explain(&error)),
            _ => {}
        }
        let Some(stored) = self.fetch(&item.key).await? else { return Ok((None, false)) };
        let same = matches!(&item.op, Op::Put { value, .. } if *value == stored.value);
        Ok((Some(stored.version), same))
    }
}

fn is_as_long(item: &Item, size: u64) -> bool {
    matches!(&item.op, Op::Put { value, .. } if value.len() as u64 == size)
}
