//! Follow-up work and dead letters.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::LIMIT_MAX;
use crate::operations::follow;
use crate::queue::{self, dead};
use crate::server::House;
use crate::server::answer::{self, Answer, Asked};

#[derive(Debug, Deserialize)]
pub struct Page {
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub struct Key {
    key: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Which {
    keys: Vec<String>,
    all: bool,
}

impl From<Which> for follow::Which {
    fn from(which: Which) -> Self {
        follow::Which { keys: which.keys, all: which.all }
    }
}

pub async fn queue(State(house): State<Arc<House>>, Asked(page): Asked<Page>) -> Answer {
    let limit = answer::limit(page.limit, LIMIT_MAX, LIMIT_MAX)?;
    let waiting = queue::waiting(&house.memory.state).await?;
    let shown: Vec<Value> = waiting.iter().take(limit).map(follow::task).collect();
    answer::ok(&json!({ "queue": shown, "total": waiting.len() }))
}

pub async fn work(State(house): State<Arc<House>>) -> Answer {
    let shared = house.clone();
    let worked = house.work(move || async move {
        follow::attempt(&shared.config, &shared.memory, &[], shared.stop()).await
    });
    answer::ok(&worked.await?)
}

pub async fn dead(State(house): State<Arc<House>>) -> Answer {
    let letters = dead::all(&house.memory.state).await?;
    let shown: Vec<Value> = letters.iter().take(LIMIT_MAX).map(follow::letter).collect();
    answer::ok(&json!({ "dead": shown, "total": letters.len() }))
}

pub async fn show(State(house): State<Arc<House>>, Asked(Key { key }): Asked<Key>) -> Answer {
    answer::some_key(&key)?;
    let letters = dead::of(&house.memory.state, &[key]).await?;
    let shown: Vec<Value> = letters.iter().map(follow::whole_letter).collect();
    answer::ok(&json!({ "dead": shown, "total": letters.len() }))
}

pub async fn retry(State(house): State<Arc<House>>, body: Bytes) -> Answer {
    let which: Which = answer::body(&body)?;
    let shared = house.clone();
    let retried = house.work(move || async move {
        follow::retry(&shared.config, &shared.memory, which.into(), shared.stop()).await
    });
    answer::ok(&retried.await?)
}

pub async fn forget(State(house): State<Arc<House>>, body: Bytes) -> Answer {
    let which: Which = answer::body(&body)?;
    let shared = house.clone();
    let dropped = house.work(move || async move {
        follow::drop_letters(&shared.config, &shared.memory, which.into()).await
    });
    answer::ok(&dropped.await?)
}
