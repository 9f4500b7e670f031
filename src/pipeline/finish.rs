//! The end of a pass: cursors move, what is held is written down, decisions the source has overtaken are forgotten.

use std::collections::HashSet;

use super::apply::Applied;
use super::cursors;
use super::decide::{Plan, plan_id};
use super::failing;
use super::hold::count_held;
use super::parked::Parked;
use super::past::Past;
use super::place;
use super::plan::PlanId;
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
            let failed = &applied.failed_scopes;
            items.extend(cursors::settled(line, &plan.scopes, failed, report).await?);
            items.extend(place::settled(line, report)?);
        }
    }
    let held = plan.held.read::<HeldItem>()?.collect::<Result<Vec<_>>>()?;
    still_held_by_undo(line, held.is_empty(), report).await?;
    hold(line, held, report).await?;
    line.state.commit_in_parts(items).await
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

/// Write down what is held now, under the id that names it.
pub async fn hold(line: &Pipeline, held: Vec<HeldItem>, report: &mut Report) -> Result<()> {
    if held.is_empty() {
        return line.state.nothing_held(&line.name, SYNC).await;
    }
    let mut id = PlanId::of(&line.name);
    for held in &held {
        id.add_held(held);
    }
    report.plan = Some(id.finish());
    let header = Header {
        plan: id.finish(),
        pipeline: line.name.clone(),
        since: rfc3339_ms(line.clock.now()),
        run: report.id.clone(),
        undo: None,
    };
    for held in held.iter().filter(|held| held.foreign) {
        report.warn(format!(
            "{0} holds something trueup did not write: `trueup adopt {0}` takes it over, `approve` and `reject` leave it",
            held.key
        ));
    }
    line.state.hold(&header, &held).await
}

/// What an undo could not do waits for a person as well: it is said by every run until it is decided.
async fn still_held_by_undo(line: &Pipeline, alone: bool, report: &mut Report) -> Result<()> {
    for header in line.state.held_of(&line.name).await?.into_iter().filter(|header| header.undo.is_some()) {
        for held in line.state.held_items(&header).await? {
            count_held(report, &held, true);
        }
        if alone {
            report.plan = Some(header.plan);
        }
    }
    Ok(())
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
