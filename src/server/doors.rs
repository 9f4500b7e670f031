//! Who may ask. With a token, everybody shows it; without one, only this machine is served, and only to pages of this
//! server: a page of another site that a browser on this machine has open can neither write nor, by renaming itself
//! to this address, read.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, Method, header};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::clock::Clock;
use crate::secret::Secret;

/// The cookie of somebody who showed the token on the page.
pub const SESSION: &str = "trueup_session";

/// Sessions at a time. Of more the oldest ends: its browser is asked for the token again.
const SESSIONS_MAX: usize = 1_000;

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum No {
    /// No token, or a wrong one.
    Token,
    /// A page of another site.
    CrossSite,
    /// Called by a name that is not this server's.
    Host,
}

pub struct Doors {
    /// Made anew by every start: what is compared is keyed by it, so that comparing takes the same time whatever is
    /// shown.
    key: [u8; 32],
    token: Option<Secret>,
    address: SocketAddr,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    /// No number is given twice.
    begun: u64,
    /// Those nobody ended.
    open: BTreeSet<u64>,
}

impl Doors {
    pub fn new(token: Option<Secret>, address: SocketAddr, clock: &dyn Clock) -> Self {
        let mut key = [0; 32];
        for part in key.chunks_mut(8) {
            part.copy_from_slice(&clock.random().to_be_bytes());
        }
        Doors { key, token, address, sessions: Mutex::default() }
    }

    /// Whether a request may come in. `acts` = it changes something, whatever its method says.
    pub fn admit(&self, method: &Method, headers: &HeaderMap, acts: bool) -> Result<(), No> {
        let acts = acts || !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        if self.token.is_none() && !self.is_our_name(headers) {
            return Err(No::Host);
        }
        if self.token.is_some() {
            if bearer(headers).is_some_and(|shown| self.is_token(shown)) {
                return Ok(());
            }
            if !cookie(headers).is_some_and(|shown| self.is_session(shown)) {
                return Err(No::Token);
            }
        }
        if acts && !is_same_origin(headers) { Err(No::CrossSite) } else { Ok(()) }
    }

    pub fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    pub fn is_token(&self, shown: &str) -> bool {
        self.token
            .as_ref()
            .is_some_and(|token| self.same(shown.as_bytes(), &self.mac(token.expose().as_bytes())))
    }

    /// Begin one: what a browser that showed the token shows from then on. It ends with this process, or when it logs out.
    pub fn session(&self) -> Option<String> {
        let mut sessions = self.sessions();
        sessions.begun += 1;
        let number = sessions.begun;
        sessions.open.insert(number);
        if sessions.open.len() > SESSIONS_MAX {
            sessions.open.pop_first();
        }
        self.session_of(number)
    }

    /// The browser that asks logs out: its cookie is good for nothing any more, wherever else it is.
    pub fn end_session(&self, headers: &HeaderMap) {
        if let Some(number) = cookie(headers).and_then(|shown| self.number_of(shown)) {
            self.sessions().open.remove(&number);
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session_of(&self, number: u64) -> Option<String> {
        let token = self.token.as_ref()?.expose().as_bytes();
        let mac = self.mac(&[b"session ", &number.to_be_bytes()[..], token].concat());
        Some(format!("{number}-{}", hex::encode(mac)))
    }

    /// Whose session it is, if it is one of ours.
    fn number_of(&self, shown: &str) -> Option<u64> {
        let number = shown.split_once('-')?.0.parse().ok()?;
        let session = self.session_of(number)?;
        self.same(shown.as_bytes(), &self.mac(session.as_bytes())).then_some(number)
    }

    fn is_session(&self, shown: &str) -> bool {
        self.number_of(shown).is_some_and(|number| self.sessions().open.contains(&number))
    }

    fn same(&self, shown: &[u8], mac: &[u8]) -> bool {
        Hmac::<Sha256>::new_from_slice(&self.key)
            .is_ok_and(|keyed| keyed.chain_update(shown).verify_slice(mac).is_ok())
    }

    fn mac(&self, of: &[u8]) -> Vec<u8> {
        Hmac::<Sha256>::new_from_slice(&self.key)
            .map(|keyed| keyed.chain_update(of).finalize().into_bytes().to_vec())
            .unwrap_or_default()
    }

    /// Loopback by any of its names, or the very address we listen on; the port does not matter.
    fn is_our_name(&self, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
        let name = host_name(host);
        let own = self.address.ip().to_string();
        ["localhost", "127.0.0.1", "::1"].contains(&name) || name == own
    }
}

/// The name in `name:port` or `[::1]:port`.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = all.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == SESSION).map(|(_, value)| value)
}

/// Browsers say where a request comes from; programs say nothing, and are no page of another site.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = headers.get("sec-fetch-site") {
        return matches!(site.to_str(), Ok("same-origin" | "none"));
    }
    let host = text(header::HOST).unwrap_or_default();
    let ours = |address: &str| {
        let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
        rest.is_some_and(|rest| rest.split('/').next() == Some(host))
    };
    text(header::ORIGIN).or_else(|| text(header::REFERER)).is_none_or(ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    type Given<'g> = &'g [(&'static str, &'g str)];

    fn doors(token: Option<&str>) -> Doors {
        let clock = TestClock::at("2026-01-01T00:00:00Z", 1);
        Doors::new(token.map(Secret::new), "127.0.0.1:8787".parse().unwrap(), clock.as_ref())
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn without_a_token_pages_of_other_sites_are_refused() {
        let doors = doors(None);
        let host = ("host", "127.0.0.1:8787");
        let cases: [(Given<'_>, Result<(), No>); 11] = [
            (&[host], Ok(())),
            (&[("host", "localhost:1")], Ok(())),
            (&[("host", "[::1]:8787")], Ok(())),
            (&[("host", "evil.example:8787")], Err(No::Host)),
            (&[], Err(No::Host)),
            (&[host, ("sec-fetch-site", "same-origin")], Ok(())),
            (&[host, ("sec-fetch-site", "none")], Ok(())),
            (&[host, ("sec-fetch-site", "cross-site")], Err(No::CrossSite)),
            (&[host, ("sec-fetch-site", "same-site")], Err(No::CrossSite)),
            (&[host, ("origin", "http://127.0.0.1:8787")], Ok(())),
            (&[host, ("origin", "null")], Err(No::CrossSite)),
        ];
        for (given, verdict) in cases {
            assert_eq!(doors.admit(&Method::POST, &headers(given), false), verdict, "{given:?}");
        }
        let elsewhere = headers(&[host, ("sec-fetch-site", "cross-site")]);
        assert_eq!(doors.admit(&Method::GET, &elsewhere, false), Ok(()));
        assert_eq!(doors.admit(&Method::GET, &elsewhere, true), Err(No::CrossSite));
    }

    #[test]
    fn with_a_token_everybody_shows_it() {
        let doors = doors(Some("a long token"));
        let host = ("host", "anything");
        let ask = |given: &[(&'static str, &str)]| doors.admit(&Method::POST, &headers(given), false);
        assert_eq!(ask(&[host]), Err(No::Token));
        assert_eq!(ask(&[host, ("authorization", "Bearer a long toke")]), Err(No::Token));
        assert_eq!(ask(&[host, ("authorization", "Basic a long token")]), Err(No::Token));
        assert_eq!(ask(&[host, ("authorization", "bearer a long token")]), Ok(()));
        let session = format!("a=b; {SESSION}={}", doors.session().unwrap());
        assert_eq!(ask(&[host, ("cookie", &session)]), Ok(()));
        assert_eq!(ask(&[host, ("cookie", &session), ("origin", "http://evil")]), Err(No::CrossSite));
        assert_eq!(ask(&[host, ("cookie", "trueup_session=00")]), Err(No::Token));
    }

    #[test]
    fn who_logs_out_is_out_and_nobody_else() {
        let doors = doors(Some("a long token"));
        let ask = |cookie: &str| doors.admit(&Method::GET, &headers(&[("cookie", cookie)]), false);
        let begun = || format!("{SESSION}={}", doors.session().unwrap());
        let (first, second) = (begun(), begun());
        doors.end_session(&headers(&[("cookie", &second)]));
        assert_eq!((ask(&first), ask(&second)), (Ok(()), Err(No::Token)));
        let third = begun();
        assert_eq!((ask(&third), ask(&second)), (Ok(()), Err(No::Token)));
        doors.end_session(&headers(&[("cookie", &format!("{SESSION}=1-00"))]));
        assert_eq!(ask(&first), Ok(()), "a cookie that is none of ours ends nothing");
        for _ in 0..SESSIONS_MAX {
            doors.session();
        }
        assert_eq!(ask(&first), Err(No::Token), "the oldest makes room");
    }
}
