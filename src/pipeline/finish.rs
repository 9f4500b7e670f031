//! The end of a pass: cursors move, what is held is written down, decisions the source has overtaken are forgotten.

use std::collections::HashSet;

use super::apply::Applied;
use super::decide::{Plan, plan_id};
use super::failing;
use super::parked::Parked;
use super::past::Past;
use super::scopes::Scopes;
use super::{Ask, Pipeline};
use crate::clock::rfc3339_ms;
use crate::error::{Error, Kind, Result};
use crate::state::held::{Header, HeldItem, SYNC};
use crate::state::{Report, item, keys};
use crate::store::Item;

pub async fn finish(
    line: &Pipeline,
    ask: &Ask,
    past: &Past,
    mut plan: Plan,
    mut applied: Applied,
    report: &mut Report,
) -> Result<()> {
    for held in &applied.held {
        plan.held.push(held)?;
    }
    let id = plan_id(&line.name, &mut plan)?;
    report.plan = Some(id.clone());
    let mut items: Vec<Item> =
        plan.void.iter().map(|identity| Item::delete(keys::decision(&line.name, identity))).collect();
    if applied.journal_bytes > 0 {
        items.push(item(keys::weight(&line.name, &report.id), &applied.journal_bytes)?);
    }
    items.extend(failing::settle(line, ask, past, &plan, &mut applied, report).await?);
    // A look at one key says nothing about the rest: cursors, held and parked items stay.
    if ask.only.is_none() {
        applied.failed_scopes.append(&mut plan.failed);
        items.extend(shadowed(line, &plan)?);
        // Only a pass that came to its end may forget, or go on from here; cursors go last.
        if report.cause.is_none() && !ask.stop.is_set() {
            items.extend(no_longer_parked(line, past, &plan, &applied));
            items.extend(moved_cursors(line, &plan.scopes, &applied.failed_scopes, report)?);
            items.extend(cursors_of_nothing(line, &plan.scopes, report).await?);
        }
        hold(line, &id, &mut plan, report).await?;
    }
    line.state.commit_in_parts(items).await
}

fn moved_cursors(
    line: &Pipeline,
    scopes: &Scopes,
    failed: &[String],
    report: &mut Report,
) -> Result<Vec<Item>> {
    let moved: Vec<(&str, &str)> = scopes.cursors(failed).collect();
    // Of many scopes none stands for the run.
    let whole = moved.iter().find(|(scope, _)| scope.is_empty() || moved.len() == 1);
    if let Some((_, cursor)) = whole {
        report.cursor = Some((*cursor).to_owned());
    }
    moved
        .iter()
        .map(|(scope, cursor)| item(format!("{}{scope}", keys::cursors(&line.name)), cursor))
        .collect()
}

/// Scopes go with the entry they hang from; where they were left off is of no use to anybody.
async fn cursors_of_nothing(line: &Pipeline, scopes: &Scopes, report: &Report) -> Result<Vec<Item>> {
    let somebody_left = report.counts.deleted + report.counts.missing > 0;
    if !line.source.has_owners() || !somebody_left || scopes.broken().next().is_some() {
        return Ok(Vec::new());
    }
    let cursors = line.cursors().await?;
    let over = cursors.keys().filter(|scope| !scopes.ended(scope));
    Ok(over.map(|scope| Item::delete(format!("{}{scope}", keys::cursors(&line.name)))).collect())
}

/// Parked entries that a read scope no longer shows as such.
fn no_longer_parked(line: &Pipeline, past: &Past, plan: &Plan, applied: &Applied) -> Vec<Item> {
    let shadowed: HashSet<&String> = plan.shadowed.iter().map(|(entry, _, _)| entry).collect();
    let still = |entry: &String, old: &Parked| {
        applied.parked.contains(entry) || shadowed.contains(entry) || plan.given_up.contains(&old.identity)
    };
    let over =
        past.parked.iter().filter(|(entry, old)| plan.scopes.was_read(&old.scope) && !still(entry, old));
    over.map(|(entry, _)| Item::delete(keys::parked_item(&line.name, entry))).collect()
}

/// Remember who was shadowed.
fn shadowed(line: &Pipeline, plan: &Plan) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for (entry, identity, scope) in &plan.shadowed {
        let why = format!("shadowed: another entry is {identity} too");
        let parked =
            Parked { identity: identity.clone(), scope: scope.clone(), why, shadowed: true, unknown: false };
        items.push(item(keys::parked_item(&line.name, entry), &parked)?);
    }
    Ok(items)
}

async fn hold(line: &Pipeline, id: &str, plan: &mut Plan, report: &Report) -> Result<()> {
    if plan.held.is_empty() {
        return line.state.nothing_held(&line.name, SYNC).await;
    }
    let header = Header {
        plan: id.to_owned(),
        pipeline: line.name.clone(),
        since: rfc3339_ms(line.clock.now()),
        run: report.id.clone(),
        undo: None,
    };
    let items = plan.held.read::<HeldItem>()?.collect::<Result<Vec<_>>>()?;
    line.state.hold(&header, &items).await
}

/// Scopes that could not be read are counted and named on every run.
pub fn report_broken(scopes: &Scopes, report: &mut Report) {
    for (scope, fault) in scopes.broken() {
        report.count(scope, |counts| counts.unproven += 1);
        report.error(fault.clone().at_scope(scope));
    }
}

/// Every scope failed: that is a failed source, never an empty one.
pub fn nothing_could_be_read(scopes: &Scopes) -> Error {
    let mut faults = scopes.broken();
    let Some((scope, fault)) = faults.next() else { return Error::bug("no scope was broken") };
    let others = faults.count();
    let mut message =
        if scope.is_empty() { fault.message.clone() } else { format!("{scope}: {}", fault.message) };
    if others > 0 {
        message = format!("nothing could be read: {message} (and {others} more)");
    }
    let kind = if fault.kind == Kind::Throttled { Kind::Unavailable } else { fault.kind };
    Error::new(kind, message).remedy_is(fault.remedy.clone())
}
