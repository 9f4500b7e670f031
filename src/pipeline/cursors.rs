//! Where a source was left off, and under which settings: a cursor says that nothing is new since then *for what was asked
//! then*. Other settings ask for something else, and everything is read again.

use std::collections::{BTreeMap, HashSet};

use super::Pipeline;
use super::scopes::Scopes;
use crate::error::Result;
use crate::source::Cursors;
use crate::state::{Report, item, keys};
use crate::store::Item;

/// None at all if they were made under other settings.
pub async fn load(line: &Pipeline) -> Result<Cursors> {
    if are_of_now(line).await? { all(line).await } else { Ok(Cursors::new()) }
}

async fn are_of_now(line: &Pipeline) -> Result<bool> {
    let reading: Option<String> = line.state.read(&keys::reading(&line.name)).await?;
    Ok(reading.as_ref() == Some(&line.reading))
}

async fn all(line: &Pipeline) -> Result<Cursors> {
    let prefix = keys::cursors(&line.name);
    let all = line.state.read_all::<String>(&prefix).await?;
    Ok(all.into_iter().map(|(key, cursor)| (keys::below(&prefix, &key).to_owned(), cursor)).collect())
}

/// Where a scope was left off stands for what the baseline knows of it. Before that changes it is forgotten, and told anew
/// only when all went well: a run that breaks off, or a single item that fails, would leave it standing for rows that are
/// others by now, and a source that returns to them would be taken for one that did not change.
pub async fn forget(line: &Pipeline, touched: impl IntoIterator<Item: AsRef<str>>) -> Result<()> {
    let mut touched = touched.into_iter().peekable();
    if touched.peek().is_none() {
        return Ok(());
    }
    let known: HashSet<String> = line.state.keys(&keys::cursors(&line.name)).await?.into_iter().collect();
    let touched = touched.map(|scope| key(line, scope.as_ref())).filter(|key| known.contains(key));
    line.state.commit_in_parts(touched.map(Item::delete).collect()).await
}

/// What state learns of them at the end of a pass. The settings go last: until they are there, nothing goes on from what
/// stands before them.
pub async fn settled(
    line: &Pipeline,
    scopes: &Scopes,
    failed: &[String],
    report: &mut Report,
) -> Result<Vec<Item>> {
    let moved: BTreeMap<&str, &str> = scopes.cursors(failed).collect();
    // Of many scopes none stands for the run.
    let whole = moved.get("").or_else(|| moved.values().next().filter(|_| moved.len() == 1));
    if let Some(cursor) = whole {
        report.cursor = Some((*cursor).to_owned());
    }
    let of_now = are_of_now(line).await?;
    let over = over(line, scopes, of_now, report).await?;
    let over = over.iter().filter(|scope| !moved.contains_key(scope.as_str()));
    let mut items: Vec<Item> = over.map(|scope| Item::delete(key(line, scope))).collect();
    for (scope, cursor) in moved {
        items.push(item(key(line, scope), &cursor)?);
    }
    if !of_now {
        items.push(item(keys::reading(&line.name), &line.reading)?);
    }
    Ok(items)
}

/// Scopes nobody will go on from: all that are left of other settings, and those that went with the entry they hung from.
async fn over(line: &Pipeline, scopes: &Scopes, of_now: bool, report: &Report) -> Result<Vec<String>> {
    if !of_now {
        return Ok(all(line).await?.into_keys().collect());
    }
    let somebody_left = report.counts.deleted + report.counts.missing > 0;
    if !line.source.has_owners() || !somebody_left || scopes.broken().next().is_some() {
        return Ok(Vec::new());
    }
    Ok(all(line).await?.into_keys().filter(|scope| !scopes.ended(scope)).collect())
}

fn key(line: &Pipeline, scope: &str) -> String {
    format!("{}{scope}", keys::cursors(&line.name))
}
