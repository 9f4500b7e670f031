//! One `[replicas.NAME]`: an etcd prefix and a PostgreSQL database.

use std::collections::BTreeMap;

use super::model::{Address, Conflict, Replica};
use super::reader::{Base, Field, Keys, Reader};
use crate::etcd::EtcdPlace;
use crate::postgres::PostgresPlace;

pub const KEYS: Keys = &[
    "etcd",
    "etcd_password_env",
    "etcd_password_file",
    "postgres",
    "postgres_password_env",
    "postgres_password_file",
    "schema",
    "conflict",
    "poll",
    "marker",
    "max_attempts",
    "keep_history",
    "keep_wal",
];

const CONFLICTS: [(&str, Conflict); 3] =
    [("etcd-wins", Conflict::EtcdWins), ("postgres-wins", Conflict::PostgresWins), ("hold", Conflict::Hold)];
/// More attempts at a server that keeps refusing tell nothing new.
const ATTEMPTS_MAX: i64 = 1_000;

pub fn all(field: &Field<'_>, base: &Base) -> BTreeMap<String, Replica> {
    let named = field.named("a table of replicas: [replicas.NAME]");
    named
        .into_iter()
        .filter_map(|(entry, field)| Some((entry.key.clone(), read(&entry.key, &field, base)?)))
        .collect()
}

fn read(name: &str, field: &Field<'_>, base: &Base) -> Option<Replica> {
    let reader = field.table(KEYS, "a table with `etcd` and `postgres`")?;
    let text = |key| reader.take(key).and_then(|field| field.text("a string")).map(str::to_owned);
    let interval = |key| reader.take(key).and_then(|field| field.interval());
    let conflict = reader.take("conflict").and_then(|field| field.choice(&CONFLICTS)).unwrap_or_default();
    let attempts = reader.take("max_attempts").and_then(|field| field.integer(1..=ATTEMPTS_MAX));
    let etcd = address(&reader, "etcd", "etcd://HOST:PORT/PREFIX/", |url| EtcdPlace::parse(url).map(drop));
    let postgres = address(&reader, "postgres", "postgres://…", |url| PostgresPlace::parse(url).map(drop));
    Some(Replica {
        name: name.to_owned(),
        etcd_password: reader.secret("etcd_password_env", "etcd_password_file", base),
        postgres_password: reader.secret("postgres_password_env", "postgres_password_file", base),
        schema: text("schema"),
        conflict,
        poll: interval("poll"),
        marker: text("marker"),
        max_attempts: attempts.and_then(|attempts| u32::try_from(attempts).ok()),
        keep_history: interval("keep_history"),
        keep_wal: interval("keep_wal"),
        etcd: etcd?,
        postgres: postgres?,
    })
}

fn address(
    reader: &Reader<'_>,
    key: &'static str,
    form: &str,
    check: impl Fn(&str) -> crate::error::Result<()>,
) -> Option<Address> {
    let field = reader.require(key, form)?;
    let url = field.text(form)?;
    match check(url) {
        Ok(()) => Some(Address::new(url)),
        Err(error) => {
            field.wrong_with(error.to_string(), error.remedy().to_owned());
            None
        }
    }
}
