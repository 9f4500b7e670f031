//! Runs: the history, and its reverse.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;

use super::LIMIT_MAX;
use crate::operations::{self, Runs};
use crate::server::House;
use crate::server::answer::{self, Answer, Asked, Named};

/// A page of history.
const LIMIT: usize = 50;

#[derive(Debug, Deserialize)]
pub struct Which {
    pipeline: Option<String>,
    limit: Option<usize>,
}

pub async fn all(State(house): State<Arc<House>>, Asked(which): Asked<Which>) -> Answer {
    let limit = answer::limit(which.limit, LIMIT, LIMIT_MAX)?;
    answer::ok(&operations::runs(&house.memory, which.pipeline.as_deref(), limit).await?)
}

pub async fn one(State(house): State<Arc<House>>, Named(run): Named<String>) -> Answer {
    answer::ok(&operations::run(&house.memory, &run).await?)
}

pub async fn undo(State(house): State<Arc<House>>, Named(run): Named<String>) -> Answer {
    let shared = house.clone();
    let undone = house.work(move || async move {
        operations::undo(&shared.config, &shared.memory, &run, &shared.ask("undo")).await
    });
    let report = undone.await?;
    house.ended(&report);
    answer::ok(&Runs::of(vec![report]))
}

pub async fn undo_plan(State(house): State<Arc<House>>, Named(run): Named<String>) -> Answer {
    answer::ok(&operations::preview_undo(&house.config, &house.memory, &run).await?)
}
