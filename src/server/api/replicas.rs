//! Replicas: how they are doing, and conflicts that wait for a person.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Error, Fault, Kind, Result};
use crate::operations::replicas;
use crate::replica::{Replica, Winner};
use crate::server::House;
use crate::server::answer::{self, Answer, Named};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    winner: Side,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Side {
    Etcd,
    Postgres,
}

pub fn engine(house: &House, name: &str) -> Result<Replica> {
    if !house.config.replicas.contains_key(name) {
        let known: Vec<&str> = house.config.replicas.keys().map(String::as_str).collect();
        return Err(Error::new(Kind::NotFound, format!("there is no replica {name}"))
            .remedy_is(format!("Replicas in the config: {}.", known.join(", "))));
    }
    replicas::replica(&house.config, name, house.clock.clone())
}

/// One that cannot be reached says so beside the others.
pub async fn all(State(house): State<Arc<House>>) -> Answer {
    let mut all: Vec<Value> = Vec::new();
    for name in house.config.replicas.keys() {
        let status = async { engine(&house, name)?.status().await };
        all.push(match status.await {
            Ok(status) => json!(status),
            Err(error) => json!({ "replica": name, "error": Fault::of(&error) }),
        });
    }
    answer::ok(&json!({ "replicas": all }))
}

pub async fn one(State(house): State<Arc<House>>, Named(name): Named<String>) -> Answer {
    answer::ok(&engine(&house, &name)?.status().await?)
}

pub async fn conflicts(State(house): State<Arc<House>>, Named(name): Named<String>) -> Answer {
    answer::ok(&json!({ "conflicts": engine(&house, &name)?.conflicts().await? }))
}

pub async fn resolve(
    State(house): State<Arc<House>>,
    Named((name, id)): Named<(String, i64)>,
    body: Bytes,
) -> Answer {
    let Verdict { winner } = answer::body(&body)?;
    let winner = match winner {
        Side::Etcd => Winner::Etcd,
        Side::Postgres => Winner::Postgres,
    };
    answer::ok(&engine(&house, &name)?.resolve(id, winner).await?)
}
