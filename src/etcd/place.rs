//! `etcd://[user[:password]@]host:port[,host:port]/prefix/[?tls=…&cert=…&key=…&server_name=…]`
//!
//! `tls=on` trusts the system's authorities, `tls=PATH` those of a PEM file. Certificates are always verified:
//! there is no way to turn that off.

use std::path::PathBuf;

use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

/// Where a cluster is, and the prefix that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdPlace {
    /// `host:port`, at least one.
    pub endpoints: Vec<String>,
    /// The path with its leading slash; empty when the URL has none.
    pub prefix: String,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub tls: Option<Tls>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// PEM file of the authorities to trust; `None` = the system's.
    pub authority: Option<PathBuf>,
    /// Our own certificate and its key, for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, when it is not the host in the URL.
    pub server_name: Option<String>,
}

const PORT: &str = "2379";

impl EtcdPlace {
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |what: &str| {
            Error::new(Kind::Config, format!("an etcd URL {what}"))
                .remedy_is("Write it as etcd://host:2379[,host:2379]/prefix/.")
        };
        let rest = url.strip_prefix("etcd://").ok_or_else(|| bad("begins with etcd://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, prefix) = match rest.find('/') {
            Some(at) => (&rest[..at], percent_decode(&rest[at..])),
            None => (rest, String::new()),
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let endpoints: Vec<String> =
            hosts.split(',').filter(|host| !host.is_empty()).map(with_port).collect();
        if endpoints.is_empty() {
            return Err(bad("names at least one host"));
        }
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, "")) => (Some(percent_decode(user)), None),
            Some((user, word)) => (Some(percent_decode(user)), Some(Secret::new(percent_decode(word)))),
            None => (None, None),
        };
        let tls = parse_tls(query)?;
        Ok(EtcdPlace { endpoints, prefix, user, password, tls })
    }

    /// The URL without secrets, as messages show it.
    pub fn shown(&self) -> String {
        format!("etcd://{}{}", self.endpoints.join(","), self.prefix)
    }
}

fn with_port(host: &str) -> String {
    let bare = host.rsplit(']').next().unwrap_or(host);
    if bare.contains(':') { host.to_owned() } else { format!("{host}:{PORT}") }
}

fn parse_tls(query: &str) -> Result<Option<Tls>> {
    let mut tls = Tls::default();
    let (mut on, mut certificate, mut key) = (false, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode(value);
        match name {
            "tls" => match value.as_str() {
                "off" | "false" => {}
                "on" | "true" | "system" => on = true,
                "" => return Err(Error::new(Kind::Config, "`tls=` needs `on` or a PEM file")),
                path => {
                    on = true;
                    tls.authority = Some(PathBuf::from(path));
                }
            },
            "cert" => certificate = Some(PathBuf::from(value)),
            "key" => key = Some(PathBuf::from(value)),
            "server_name" => tls.server_name = Some(value),
            other => {
                return Err(Error::new(Kind::Config, format!("an etcd URL has no setting `{other}`"))
                    .remedy_is("It may have tls, cert, key and server_name."));
            }
        }
    }
    tls.identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(Error::new(Kind::Config, "an etcd URL has `cert` and `key` together or neither")),
    };
    Ok(on.then_some(tls))
}

/// Percent-decoding as URLs need it; what is not a valid escape stays as it is.
pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        if let Some(byte) = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_hosts_prefix_user_and_tls() {
        let place = EtcdPlace::parse("etcd://root:p%40ss@a:1,b/service/?tls=/ca.pem").unwrap();
        assert_eq!(place.endpoints, ["a:1", "b:2379"]);
        assert_eq!(place.prefix, "/service/");
        assert_eq!(place.user.as_deref(), Some("root"));
        assert_eq!(place.password.as_ref().map(Secret::expose), Some("p@ss"));
        assert_eq!(place.tls.as_ref().and_then(|tls| tls.authority.clone()), Some(PathBuf::from("/ca.pem")));
        assert_eq!(place.shown(), "etcd://a:1,b:2379/service/");
        assert!(!format!("{place:?}").contains("p@ss"));
    }

    #[test]
    fn nonsense_is_refused_as_a_config_error() {
        for url in ["http://a", "etcd:///x", "etcd://a/x?tsl=on", "etcd://a/?cert=x", "etcd://a/?tls="] {
            assert_eq!(EtcdPlace::parse(url).unwrap_err().kind(), Kind::Config, "{url}");
        }
    }
}
