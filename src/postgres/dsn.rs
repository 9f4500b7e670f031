//! `postgres://user@host[:port][,host[:port]]/database[?sslmode=…&sslrootcert=…&sslcert=…&sslkey=…&target_session_attrs=…&table=…]`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::{Error, Kind, Result};
use crate::etcd::place::percent_decode;

/// Where a database is. The password inside `config` is not shown by `Debug`.
#[derive(Clone)]
pub struct PostgresPlace {
    pub(super) config: Config,
    /// The same for each host alone: one that accepts and never answers must not keep us from the next.
    pub(super) hosts: Vec<Config>,
    /// The host that answered last, which is asked first: a silent one costs seconds each time.
    pub(super) answered: Arc<AtomicUsize>,
    /// Check the server's certificate. libpq's rule: `verify-ca`, `verify-full`, or a root certificate given.
    pub(super) verify: bool,
    pub(super) authority: Option<PathBuf>,
    /// Our own certificate and its key, for servers that ask for one.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
    /// `table=` of a key-value store; the replica has tables of its own.
    pub table: Option<String>,
}

impl std::fmt::Debug for PostgresPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

impl PostgresPlace {
    pub fn parse(url: &str) -> Result<Self> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(bad("begins with postgres://"));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut place = PostgresPlace {
            config: Config::new(),
            hosts: Vec::new(),
            answered: Arc::default(),
            verify: false,
            authority: None,
            identity: None,
            table: None,
        };
        let (mut mode, mut certificate, mut key) = (None, None, None);
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "table" => place.table = Some(percent_decode(value)),
                "sslrootcert" => place.authority = Some(PathBuf::from(percent_decode(value))),
                "sslcert" => certificate = Some(PathBuf::from(percent_decode(value))),
                "sslkey" => key = Some(PathBuf::from(percent_decode(value))),
                "sslmode" => mode = Some(percent_decode(value)),
                _ => rest.push(pair),
            }
        }
        // The parser's own message may quote the URL, password and all: it is not passed on.
        let parse = |base: &str| -> Result<Config> {
            let plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
            plain.parse().map_err(|_| bad("that trueup can read"))
        };
        place.config = parse(base)?;
        if place.config.get_hosts().is_empty() {
            return Err(bad("names a host"));
        }
        if certificate.is_some() != key.is_some() {
            return Err(bad("has `sslcert` and `sslkey` together or neither"));
        }
        place.identity = certificate.zip(key);
        let (ssl, verify) = ssl_mode(mode.as_deref())?;
        place.verify = verify || place.authority.is_some();
        place.hosts = each_host(base).iter().map(|base| parse(base)).collect::<Result<_>>()?;
        for config in place.hosts.iter_mut().chain([&mut place.config]) {
            config.ssl_mode(ssl);
        }
        Ok(place)
    }

    /// Hosts and database without user or password, as messages show them.
    pub fn shown(&self) -> String {
        let ports = self.config.get_ports();
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .enumerate()
            .map(|(index, host)| {
                let name = match host {
                    Host::Tcp(name) => name.clone(),
                    #[cfg(unix)]
                    Host::Unix(path) => path.display().to_string(),
                };
                let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432);
                format!("{name}:{port}")
            })
            .collect();
        format!("postgres://{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or_default())
    }
}

/// libpq's word, and whether it asks for the server's certificate to be checked.
fn ssl_mode(word: Option<&str>) -> Result<(SslMode, bool)> {
    match word {
        Some("disable") => Ok((SslMode::Disable, false)),
        None | Some("allow" | "prefer") => Ok((SslMode::Prefer, false)),
        Some("require") => Ok((SslMode::Require, false)),
        Some("verify-ca" | "verify-full") => Ok((SslMode::Require, true)),
        Some(other) => Err(bad(&format!("knows no sslmode `{other}`"))),
    }
}

/// The URL once for each host it names.
fn each_host(base: &str) -> Vec<String> {
    let Some((scheme, rest)) = base.split_once("://") else { return vec![base.to_owned()] };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    hosts.split(',').map(|host| format!("{scheme}://{login}{host}{path}")).collect()
}

fn bad(what: &str) -> Error {
    Error::new(Kind::Config, format!("a PostgreSQL URL {what}"))
        .remedy_is("Write it as postgres://user@host:5432/database, with the password in `password_env`.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dsn_names_hosts_database_and_settings() {
        let place = PostgresPlace::parse(
            "postgres://u:secret@a:1,b:2/app?target_session_attrs=read-write&sslmode=verify-full&table=t",
        )
        .unwrap();
        assert_eq!(place.shown(), "postgres://a:1,b:2/app");
        assert_eq!(place.table.as_deref(), Some("t"));
        let ports: Vec<&[u16]> = place.hosts.iter().map(Config::get_ports).collect();
        assert_eq!(ports, [&[1], &[2]]);
        assert!(
            place.hosts.iter().all(|host| host.get_user() == Some("u") && host.get_dbname() == Some("app"))
        );
        assert!(place.verify);
        assert!(!format!("{place:?}").contains("secret"));
    }

    #[test]
    fn nonsense_is_refused_without_showing_the_password() {
        for url in [
            "mysql://a/b",
            "postgres://u:hidden@a:x/b",
            "postgres://u:hidden@a/b?sslmode=maybe",
            "postgres://u:hidden@a/b?sslcert=c",
        ] {
            let error = PostgresPlace::parse(url).unwrap_err();
            assert_eq!(error.kind(), Kind::Config, "{url}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }
}
