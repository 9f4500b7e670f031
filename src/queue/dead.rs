//! Dead letters: follow-up work that failed too often, kept with its cause until a person or a newer version of the
//! key settles it.

use serde::{Deserialize, Serialize};

use super::{Placed, Task};
use crate::error::{Error, Fault, Kind, Result};
use crate::state::{State, keys};
use crate::store::{Expect, Item, StoreExt};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Letter {
    pub task: Task,
    pub cause: Fault,
    pub since: String,
}

pub async fn all(state: &State) -> Result<Vec<Placed<Letter>>> {
    let all = state.read_all::<Letter>(keys::DEAD).await?;
    Ok(all.into_iter().filter_map(|(key, letter)| Placed::of(keys::DEAD, &key, letter)).collect())
}

/// The letters of these keys; every one of them must exist.
pub async fn of(state: &State, wanted: &[String]) -> Result<Vec<Placed<Letter>>> {
    let letters = all(state).await?;
    for key in wanted {
        if !letters.iter().any(|letter| letter.what.task.key == *key) {
            return Err(Error::new(Kind::NotFound, format!("there is no dead letter for {key}"))
                .remedy_is("`trueup dead ls` lists them."));
        }
    }
    Ok(letters.into_iter().filter(|letter| wanted.contains(&letter.what.task.key)).collect())
}

/// Put letters back into the queue, with a clean slate.
pub async fn retry(state: &State, letters: &[Placed<Letter>]) -> Result<()> {
    let mut items = Vec::new();
    for letter in letters {
        let dead = keys::dead(&letter.pipeline, &letter.then, &letter.identity);
        // A newer version of the key may have taken the letter's place since it was read: then there is nothing to retry.
        let Some(stored) = state.store().get_one(&dead).await? else { continue };
        let task = Task { attempts: 0, not_before: None, claim: None, ..letter.what.task.clone() };
        items.push(task.item(keys::task(&letter.pipeline, &letter.then, &letter.identity))?);
        items.push(Item::delete(dead).expecting(Expect::Exactly(stored.version)));
    }
    // Pairs stay together: the part size is even.
    state.commit_in_parts(items).await
}

pub async fn drop_letters(state: &State, letters: &[Placed<Letter>]) -> Result<()> {
    let gone = letters
        .iter()
        .map(|letter| Item::delete(keys::dead(&letter.pipeline, &letter.then, &letter.identity)));
    state.commit_in_parts(gone.collect()).await
}
