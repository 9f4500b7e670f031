//! What the store holds under the keys a batch is about to change: for the journal, and to see who changed it.

use std::collections::{HashMap, VecDeque};

use super::draft::{Draft, Drafted};
use super::plan::{Seen, Step};
use super::prepare::Preparer;
use crate::error::Result;
use crate::portion::Portion;
use crate::shape::Output;
use crate::store::{Store, Stored};

/// Values of the store in memory at a time, for one batch.
const PRIORS_BYTES_MAX: usize = 32 << 20;

/// What the store holds under keys that are known, also where it lost sight of it and no listing shows it.
pub(super) async fn stored(store: &dyn Store, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut stored = store.get(keys).await?;
    let unseen: Vec<usize> = (0..keys.len()).filter(|at| stored[*at].is_none()).collect();
    if !unseen.is_empty() {
        let names: Vec<&str> = unseen.iter().map(|at| keys[*at]).collect();
        for (at, found) in unseen.iter().zip(store.unlisted(&names).await?) {
            stored[*at] = found;
        }
    }
    Ok(stored)
}

impl Preparer<'_> {
    /// What the store holds now under the keys the first drafts are about to change, and how many drafts these are.
    pub(super) async fn priors(
        &self,
        drafts: &VecDeque<Drafted>,
    ) -> Result<(HashMap<String, Stored>, usize)> {
        let mut portion = Portion::expecting(PRIORS_BYTES_MAX, self.prior_bytes(drafts));
        let mut found = self.unlisted(drafts).await?;
        let mut count = 0;
        while count < drafts.len() && portion.room() > 0 {
            let mut wanted = Vec::new();
            while count < drafts.len() && wanted.len() < portion.room() {
                self.changes(&drafts[count], &mut wanted)?;
                count += 1;
            }
            if wanted.is_empty() {
                continue;
            }
            let keys: Vec<&str> = wanted.iter().map(String::as_str).collect();
            let stored = stored(&*self.line.store, &keys).await?;
            for (key, stored) in wanted.into_iter().zip(stored) {
                portion.add(stored.as_ref().map_or(0, |stored| stored.value.len()));
                found.extend(stored.map(|stored| (key, stored)));
            }
        }
        self.priors_weigh.learn(&portion);
        Ok((found, count))
    }

    /// Rows of new keys that are older than trueup, or that it forgot: they are taken over, and the journal keeps what they
    /// were.
    async fn unlisted(&self, drafts: &VecDeque<Drafted>) -> Result<HashMap<String, Stored>> {
        let new = drafts.iter().filter_map(|draft| match draft {
            Drafted::Put(draft) if draft.step.seen == Seen::Nothing && draft.step.base.is_none() => {
                Some(draft.output.key.as_str())
            }
            _ => None,
        });
        let keys: Vec<&str> = new.collect();
        let mut found = HashMap::new();
        if keys.is_empty() || !*self.unlisted.get_or_try_init(|| self.line.store.any_unlisted()).await? {
            return Ok(found);
        }
        let stored = self.line.store.unlisted(&keys).await?;
        found
            .extend(keys.into_iter().zip(stored).filter_map(|(key, stored)| Some((key.to_owned(), stored?))));
        Ok(found)
    }

    /// What the store holds under the keys of the first steps, and how many steps these are: as many as memory takes.
    pub(super) async fn stored_of(&self, steps: &[Box<Step>]) -> (usize, Result<Vec<Option<Stored>>>) {
        let mut portion = Portion::expecting(PRIORS_BYTES_MAX, self.priors_weigh.each());
        let some = &steps[..portion.room().min(steps.len())];
        let prefix = self.line.shape.key_prefix();
        let found = async {
            let keys: Vec<String> = some.iter().map(|step| step.key(prefix)).collect::<Result<_>>()?;
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            stored(&*self.line.store, &keys).await
        };
        let stored = found.await;
        for held in stored.iter().flatten() {
            portion.add(held.as_ref().map_or(0, |held| held.value.len()));
        }
        self.priors_weigh.learn(&portion);
        (some.len(), stored)
    }

    /// What a prior value may weigh: as much as those before it, or as what takes its place.
    fn prior_bytes(&self, drafts: &VecDeque<Drafted>) -> Option<usize> {
        let values = drafts.iter().filter_map(|draft| match draft {
            Drafted::Put(draft) => Some(draft.output.value.len()),
            _ => None,
        });
        values.max().max(self.priors_weigh.each())
    }

    /// The keys a draft is about to change. New ones are not looked up unless they may be taken over or were seen to be
    /// taken: their condition is that nothing is there.
    fn changes(&self, draft: &Drafted, wanted: &mut Vec<String>) -> Result<()> {
        match draft {
            Drafted::Delete(step) => wanted.push(step.key(self.line.shape.key_prefix())?),
            Drafted::Put(draft) => {
                let Draft { step, output, .. } = &**draft;
                wanted.extend(Self::old_keys(step, output)?);
                let taken = matches!(step.seen, Seen::At(_));
                // The listing showed nothing there: the condition of the write tells if that changed.
                let unknown = step.seen != Seen::Nothing && !self.is_accounted_for();
                let may_be = unknown && self.may_replace(&step.identity);
                if taken || step.base.is_some() || may_be {
                    wanted.push(output.key.clone());
                }
            }
            Drafted::Done(_) | Drafted::Absent(_) | Drafted::Body(..) => {}
        }
        Ok(())
    }

    /// Older keys of the identity that this one replaces.
    pub(super) fn old_keys(step: &Step, output: &Output) -> Result<Vec<String>> {
        let mut old = output.retire.clone();
        if let Some((_, base)) = step.base()?
            && base.key(&step.identity) != output.key
        {
            old.push(base.key(&step.identity).to_owned());
        }
        Ok(old)
    }
}
