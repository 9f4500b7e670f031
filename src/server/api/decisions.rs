//! What waits for a person, and why a key is as it is.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;

use crate::operations::{self, Runs, look};
use crate::server::House;
use crate::server::answer::{self, Answer, Asked, Named};

#[derive(Debug, Deserialize)]
pub struct Key {
    key: String,
    pipeline: Option<String>,
}

pub async fn held(State(house): State<Arc<House>>) -> Answer {
    answer::ok(&operations::held(&house.memory.state).await?)
}

pub async fn approve(State(house): State<Arc<House>>, Named(plan): Named<String>) -> Answer {
    let shared = house.clone();
    let approved = house.work(move || async move {
        operations::approve(&shared.config, &shared.memory, &plan, shared.ask("approve")).await
    });
    let report = approved.await?;
    house.ended(&report);
    answer::ok(&Runs::of(vec![report]))
}

pub async fn reject(State(house): State<Arc<House>>, Named(plan): Named<String>) -> Answer {
    let shared = house.clone();
    let rejected = house.work(move || async move {
        operations::reject(&shared.config, &shared.memory, &plan, &shared.ask("reject")).await
    });
    let report = rejected.await?;
    house.ended(&report);
    answer::ok(&Runs::of(vec![report]))
}

pub async fn why(State(house): State<Arc<House>>, Asked(asked): Asked<Key>) -> Answer {
    let Key { key, pipeline } = asked;
    answer::some_key(&key)?;
    let pipeline = pipeline.map(|name| house.pipeline(&name)).transpose()?.map(|spec| spec.name.as_str());
    answer::ok(&look::why(&house.config, &house.memory, &key, pipeline).await?)
}
