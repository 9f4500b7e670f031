//! Reading what changed since the cursor, and nothing else. The sum the last run left proves that the store holds what
//! the baseline says, and a source that knows its own history tells what became of its entries: everything they do not
//! mention is as it was.
//!
//! Two entries may be one identity (files of one name in two folders). The last run left no sum if there were such
//! pairs, so every identity had one entry at most; news that would make a second one is left to a listing.

use std::collections::BTreeMap;

use super::footing::{self, Ground};
use super::past::Past;
use super::read::{Merge, Reading};
use super::scopes::End;
use super::sightings::{Sighting, What};
use super::{Ask, Pipeline};
use crate::error::Result;
use crate::record::Entry;
use crate::source::{Cursors, News, Since};
use crate::state::footing::Footing;
use crate::state::{Report, keys};
use crate::store::{Listed, Stored};

/// What the source said about one identity.
#[derive(Default)]
struct Told {
    /// The entry it is now, and whether that came since.
    now: Option<(Entry, bool)>,
    /// The entry it was.
    went: Option<Entry>,
}

/// `None` = a listing must tell.
pub async fn read(
    line: &Pipeline,
    ask: &Ask,
    past: &Past,
    (since, before): (Since, &Cursors),
    ground: Option<Ground>,
    report: &mut Report,
) -> Result<Option<Reading>> {
    let Some(ground) = ground else { return Ok(None) };
    let Some(told) = by_identity(line, since.news) else {
        ground.leave();
        return Ok(None);
    };
    let bases = bases(line, &told).await?;
    let is_clear = told.values().zip(&bases).all(|(told, base)| told.is_clear(base.is_some()));
    let Some(footing) = ground.holds().await?.filter(|_| is_clear) else { return Ok(None) };
    let known = bases.iter().flatten().count() as u64;
    let Some(untouched) = untouched(&footing, known) else { return Ok(None) };
    footing::count(&untouched, report);

    let mut merge = Merge::on_firm_ground(line, ask, past, &footing, report);
    for ((identity, told), base) in told.into_iter().zip(bases) {
        let (entry, what) = match (told.now, told.went) {
            (Some((entry, _)), _) => (entry, What::There),
            (None, Some(entry)) => (entry, What::Gone),
            (None, None) => continue,
        };
        let sighting = Sighting { identity, rank: String::new(), entry, what };
        merge.judge(Box::new(sighting), base).await?;
    }
    let stands = before.get(&*since.scope) == Some(&since.cursor);
    let end = if stands { End::Unchanged } else { End::Complete(Some(since.cursor)) };
    merge.found.scopes.end(&since.scope, end);
    Ok(Some(merge.found))
}

/// News in order of identity; `None` = some would make two entries one identity.
fn by_identity(line: &Pipeline, news: Vec<News>) -> Option<BTreeMap<String, Told>> {
    let mut all: BTreeMap<String, Told> = BTreeMap::new();
    for one in news {
        let (News::Came(entry) | News::Changed(entry) | News::Went(entry)) = &one;
        if !line.shape.wants(entry) {
            continue;
        }
        let told = all.entry(line.shape.identify(entry).ok()?.identity).or_default();
        let second = match one {
            News::Came(entry) => told.now.replace((entry, true)).is_some(),
            News::Changed(entry) => told.now.replace((entry, false)).is_some(),
            News::Went(entry) => told.went.replace(entry).is_some(),
        };
        if second {
            return None;
        }
    }
    Some(all)
}

impl Told {
    /// It fits what is known: what came is new or takes the place of what went, and what changed or went was there.
    fn is_clear(&self, known: bool) -> bool {
        match (&self.now, &self.went) {
            (Some((_, true)), None) => !known,
            (Some((_, true)) | None, Some(_)) | (Some((_, false)), None) => known,
            (Some((_, false)), Some(_)) | (None, None) => false,
        }
    }
}

/// The baseline records of all identities, in order.
async fn bases(line: &Pipeline, told: &BTreeMap<String, Told>) -> Result<Vec<Option<Listed>>> {
    let names: Vec<String> = told.keys().map(|identity| keys::base(&line.name, identity)).collect();
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = if asked.is_empty() { Vec::new() } else { line.state.store().get(&asked).await? };
    let listed = |(key, stored): (String, Option<Stored>)| {
        let Stored { value, version, fingerprint } = stored?;
        Some(Listed { key, version, fingerprint, value: Some(value) })
    };
    Ok(names.into_iter().zip(found).map(listed).collect())
}

/// What a pass counts without a look at it; `None` = records are marked as missing or lie in several groups, and only a
/// listing tells which of them are meant.
fn untouched(footing: &Footing, known: u64) -> Option<Footing> {
    let mut rest = footing.clone();
    let mut groups = rest.groups.values_mut();
    match (groups.next(), groups.next()) {
        (None, _) if known == 0 => {}
        (Some(group), None) if group.missing == 0 => group.there = group.there.checked_sub(known)?,
        _ => return None,
    }
    Some(rest)
}
