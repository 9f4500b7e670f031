//! One PostgreSQL connection, as every part of trueup opens it: TLS by `sslmode`, several hosts, keepalives,
//! a limit on every wait, errors told apart by what a person must do.
//!
//! It keeps no pool: those who need several connections open several, and know why.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

pub mod dsn;
pub mod fault;
pub mod pool;
pub mod pooler;
pub mod rights;
mod tls;

pub use dsn::PostgresPlace;

/// Long enough for a far server; a multi-host DSN tries its hosts one after the other.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// From the connection to the first answer: a server that starts or is loaded takes its time to fork.
const GREETING_MAX: Duration = Duration::from_secs(10);
/// Statements of a few rows.
pub const STATEMENT_MAX: Duration = Duration::from_secs(15);
/// Statements over a whole table, or a COPY of megabytes.
pub const BULK_MAX: Duration = Duration::from_secs(120);
/// Unanswered data on a connection: the peer is gone.
const UNACKED_MAX: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;

/// What a database or a role may have set otherwise, and what would make us read something else than is there. Rows that
/// row security hides would look as if they were gone: without it PostgreSQL refuses to read, as it does for `pg_dump`.
/// Names of types are compared with the ones we know, which have no quotes. Where every transaction sees what was there when it
/// began, a look after waiting for somebody would see what was before.
const SETTINGS: &str = "SET row_security = off; SET quote_all_identifiers = off;
                        SET default_transaction_isolation = 'read committed'";

/// An open connection. Dropping it ends it.
pub struct Session {
    client: Client,
    /// What is asked again and again.
    prepared: Mutex<HashMap<String, Statement>>,
    driver: JoinHandle<()>,
    woken: Arc<Notify>,
    ended: Arc<Notify>,
}

impl std::ops::Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl std::ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A half-open connection would otherwise keep its task, and a lock on the server, for minutes.
        self.driver.abort();
    }
}

impl Session {
    pub async fn open(place: &PostgresPlace, password: Option<&Secret>) -> Result<Self> {
        let mut outcome = Err(Error::bug("a PostgreSQL URL without a host"));
        let (first, count) = (place.answered.load(Ordering::Relaxed), place.hosts.len());
        for host in (first..first + count).map(|turn| turn % count) {
            outcome = Self::open_host(place, place.hosts[host].clone(), password).await;
            if outcome.is_ok() {
                place.answered.store(host, Ordering::Relaxed);
                break;
            }
        }
        let session = outcome.map_err(|error| error.while_(format!("connecting to {}", place.shown())))?;
        // Both in one round trip. Alone, because what fails takes the settings beside it along: a server older than 14, or
        // a pooler, does not know it, and takeover is then slower, not wrong.
        let check = session.client.batch_execute("SET client_connection_check_interval = '500ms'");
        let settled = session.client.batch_execute(SETTINGS);
        let (settled, _) = tokio::join!(within(STATEMENT_MAX, settled), within(STATEMENT_MAX, check));
        settled.map_err(|error| error.while_(format!("connecting to {}", place.shown())))?;
        Ok(session)
    }

    async fn open_host(
        place: &PostgresPlace,
        mut config: tokio_postgres::Config,
        password: Option<&Secret>,
    ) -> Result<Self> {
        config
            .connect_timeout(CONNECT_MAX)
            .tcp_user_timeout(UNACKED_MAX)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_EVERY)
            .keepalives_retries(KEEPALIVE_PROBES)
            .application_name("trueup");
        if let Some(password) = password {
            config.password(password.expose());
        }
        match tls::connector(place)? {
            None => {
                let opened = within(GREETING_MAX, config.connect(NoTls)).await;
                opened.map(|(client, driver)| drive(client, driver))
            }
            Some(tls) => {
                let opened = within(GREETING_MAX, config.connect(tls)).await;
                opened.map(|(client, driver)| drive(client, driver))
            }
        }
    }

    /// A statement that is prepared once and kept as long as the session.
    pub async fn prepared(&self, text: &str) -> Result<Statement, tokio_postgres::Error> {
        let known = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(text).await?;
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(prepared.entry(text.to_owned()).or_insert(statement).clone())
    }

    /// Ends when a NOTIFY arrived since the last call.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Ends when the connection has.
    pub async fn ended(&self) {
        if !self.client.is_closed() {
            self.ended.notified().await;
        }
    }

    pub fn woken_signal(&self) -> Arc<Notify> {
        self.woken.clone()
    }
}

fn drive<S, T>(client: Client, mut connection: tokio_postgres::Connection<S, T>) -> Session
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let woken = Arc::new(Notify::new());
    let ended = Arc::new(Notify::new());
    let (wake, end) = (woken.clone(), ended.clone());
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                wake.notify_one();
            }
        }
        end.notify_one();
    });
    Session { client, prepared: Mutex::default(), driver, woken, ended }
}

/// Wait for PostgreSQL, but not for ever.
pub async fn within<T>(
    max: Duration,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    within_or(max, work, fault::from_postgres).await
}

/// The same, for those who know more about what an error means.
pub async fn within_or<T>(
    max: Duration,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    explain: fn(&tokio_postgres::Error) -> Error,
) -> Result<T> {
    if let Ok(outcome) = tokio::time::timeout(max, work).await {
        return outcome.map_err(|error| explain(&error));
    }
    let message = format!("PostgreSQL did not answer within {} s", max.as_secs());
    Err(Error::new(Kind::Unavailable, message).remedy_is(
        "Check that PostgreSQL is up and not overloaded, and that nobody holds a lock on the tables (`pg_locks`).",
    ))
}

/// A name as SQL takes it, whatever it contains.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The smallest text greater than every text with this prefix, in byte order; `None` = unbounded.
/// UTF-8 sorts as its characters do, so the last character that has a successor is the one to raise.
pub fn prefix_end(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        let next = if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn a_prefix_ends_before_its_next_character() {
        assert_eq!(prefix_end("/a/").as_deref(), Some("/a0"));
        assert_eq!(prefix_end("é").as_deref(), Some("ê"));
        assert_eq!(prefix_end("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(prefix_end("\u{D7FF}").as_deref(), Some("\u{E000}"));
        assert_eq!(prefix_end(""), None);
    }
}
