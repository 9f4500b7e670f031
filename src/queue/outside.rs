//! Tasks for somebody outside: take them under a lease, then say done or failed. The fence handed out with a task is
//! the token: who lost the lease to another cannot settle any more.

use std::time::Duration;

use jiff::Timestamp;

use super::dead::Letter;
use super::{Claim, Placed, Task};
use crate::clock::{Clock, rfc3339_ms};
use crate::error::{Error, Fault, Kind, Result};
use crate::retry::Patience;
use crate::state::{State, item, keys};
use crate::store::{Expect, Item, Outcome, StoreExt};

pub const OWNER: &str = "outside";

/// Which tasks are meant.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub pipeline: Option<String>,
    pub then: Option<String>,
    pub key: Option<String>,
}

impl Filter {
    fn fits(&self, one: &Placed<Task>) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        same(&self.pipeline, &one.pipeline) && same(&self.then, &one.then) && same(&self.key, &one.what.key)
    }
}

/// Take up to `limit` open tasks.
pub async fn take(
    state: &State,
    clock: &dyn Clock,
    filter: &Filter,
    limit: usize,
    lease: Duration,
) -> Result<Vec<Placed<Task>>> {
    let mut taken = Vec::new();
    for mut one in super::waiting(state).await? {
        if taken.len() >= limit {
            break;
        }
        if !filter.fits(&one) || !is_free(&one.what, clock.now()) {
            continue;
        }
        let key = keys::task(&one.pipeline, &one.then, &one.identity);
        let Some(stored) = state.store().get_one(&key).await? else { continue };
        one.what = crate::state::decode(&key, &stored.value)?;
        if !is_free(&one.what, clock.now()) {
            continue;
        }
        let until = clock.now().checked_add(lease).unwrap_or(Timestamp::MAX);
        one.what.claim = Some(Claim { owner: OWNER.into(), until: rfc3339_ms(until) });
        one.what.fence += 1;
        let claim = one.what.item(key)?.expecting(Expect::Exactly(stored.version));
        if let Outcome::Applied(_) = state.store().write_one(claim).await? {
            taken.push(one);
        }
    }
    Ok(taken)
}

fn is_free(task: &Task, now: Timestamp) -> bool {
    task.claim.as_ref().is_none_or(|claim| claim.until.parse::<Timestamp>().is_ok_and(|until| until <= now))
}

/// The work is done: the task goes.
pub async fn done(state: &State, filter: &Filter, token: Option<u64>) -> Result<Placed<Task>> {
    let (one, expect) = find(state, filter, token).await?;
    let key = keys::task(&one.pipeline, &one.then, &one.identity);
    settle(state, vec![Item::delete(key).expecting(expect)], one).await
}

/// The work failed: it counts, and the third failure makes it a dead letter.
pub async fn fail(
    state: &State,
    clock: &dyn Clock,
    filter: &Filter,
    token: Option<u64>,
    why: &str,
) -> Result<Placed<Task>> {
    let (mut one, expect) = find(state, filter, token).await?;
    let key = keys::task(&one.pipeline, &one.then, &one.identity);
    let error = Error::new(Kind::Invalid, why).remedy_is("Correct the cause, then `trueup dead retry`.");
    let cause = Fault::of(&error).at_key(one.what.key.clone());
    let task =
        Task { claim: None, attempts: one.what.attempts + 1, error: Some(cause.clone()), ..one.what.clone() };
    one.what = task.clone();
    let items = if task.attempts >= Patience::FOLLOW_UP.attempts_max {
        let letter = Letter { task, cause, since: rfc3339_ms(clock.now()) };
        vec![
            Item::delete(key).expecting(expect),
            item(keys::dead(&one.pipeline, &one.then, &one.identity), &letter)?,
        ]
    } else {
        vec![task.item(key)?.expecting(expect)]
    };
    settle(state, items, one).await
}

async fn find(state: &State, filter: &Filter, token: Option<u64>) -> Result<(Placed<Task>, Expect)> {
    let name = filter.key.as_deref().unwrap_or_default();
    let mut fitting: Vec<_> =
        super::waiting(state).await?.into_iter().filter(|one| filter.fits(one)).collect();
    let (Some(one), true) = (fitting.pop(), fitting.is_empty()) else {
        let message = if fitting.is_empty() { "waits for nothing" } else { "has several tasks" };
        return Err(Error::new(Kind::NotFound, format!("{name} {message}"))
            .remedy_is("`trueup queue ls` lists what waits; `--pipeline` and `--then` tell tasks apart."));
    };
    let key = keys::task(&one.pipeline, &one.then, &one.identity);
    // Token and condition come from one look: whoever takes it after that makes the settling fail.
    let stored = state.store().get_one(&key).await?;
    let Some(stored) = stored else { return Err(taken_since(name)) };
    let what: Task = crate::state::decode(&key, &stored.value)?;
    if token.is_some_and(|token| token != what.fence) {
        return Err(taken_since(name));
    }
    Ok((Placed { what, ..one }, Expect::Exactly(stored.version)))
}

fn taken_since(name: &str) -> Error {
    Error::new(Kind::Conflict, format!("{name} was taken, replaced or settled by somebody else since"))
        .remedy_is("Take it again with `trueup queue take`.")
}

async fn settle(state: &State, items: Vec<Item>, one: Placed<Task>) -> Result<Placed<Task>> {
    state.store().write_all(items).await.map_err(|error| match error.kind() {
        Kind::Conflict => Error::new(Kind::Conflict, format!("{} changed in the meantime", one.what.key)),
        _ => error,
    })?;
    Ok(one)
}
