//! A replica of the config, ready to be asked or run.

use crate::clock::SharedClock;
use crate::config::{self, Config, Conflict};
use crate::error::{Error, Kind, Result};
use crate::etcd::EtcdPlace;
use crate::postgres::PostgresPlace;
use crate::replica::{ConflictRule, Replica, ReplicaSpec};

pub fn replica(config: &Config, name: &str, clock: SharedClock) -> Result<Replica> {
    Replica::new(spec(config, name)?, clock)
}

/// From the config's words to the replica's own.
fn spec(config: &Config, name: &str) -> Result<ReplicaSpec> {
    let replica = config.replicas.get(name).ok_or_else(|| {
        let names = config.replicas.keys().map(String::as_str);
        let hint = config::suggestion(name, names.clone());
        let known: Vec<&str> = names.collect();
        Error::new(Kind::Config, format!("there is no replica {name}{hint}"))
            .remedy_is(format!("Replicas in the config: {}.", known.join(", ")))
    })?;
    let mut spec = ReplicaSpec::new(name, replica.etcd.expose(), replica.postgres.expose())?;
    spec.etcd = EtcdPlace::parse(replica.etcd.expose())?;
    spec.postgres = PostgresPlace::parse(replica.postgres.expose())?;
    spec.etcd_password.clone_from(&replica.etcd_password);
    spec.postgres_password.clone_from(&replica.postgres_password);
    spec.conflict = match replica.conflict {
        Conflict::EtcdWins => ConflictRule::EtcdWins,
        Conflict::PostgresWins => ConflictRule::PostgresWins,
        Conflict::Hold => ConflictRule::Hold,
    };
    spec.schema = replica.schema.clone().unwrap_or(spec.schema);
    spec.poll = replica.poll.unwrap_or(spec.poll);
    spec.marker = replica.marker.clone().unwrap_or(spec.marker);
    spec.max_attempts = replica.max_attempts.unwrap_or(spec.max_attempts);
    spec.keep_history = replica.keep_history;
    spec.keep_wal = replica.keep_wal;
    spec.check()?;
    Ok(spec)
}
