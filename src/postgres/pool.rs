//! A few connections that are lent for one piece of work each. One that saw an error is not lent again.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::{PostgresPlace, STATEMENT_MAX, Session, within};
use crate::error::{Error, Result};
use crate::secret::Secret;

/// Enough for a pass that reads while it writes; a database has better uses for its connections.
const CONNECTIONS_MAX: usize = 4;

pub struct Pool {
    place: PostgresPlace,
    password: Option<Secret>,
    idle: Mutex<Vec<Session>>,
    permits: Semaphore,
    /// What every connection is told first.
    settings: &'static str,
}

impl Pool {
    /// With one connection open, so that a wrong address shows at once.
    pub async fn open(
        place: PostgresPlace,
        password: Option<Secret>,
        settings: &'static str,
    ) -> Result<Self> {
        let permits = Semaphore::new(CONNECTIONS_MAX);
        let pool = Pool { place, password, idle: Mutex::default(), permits, settings };
        pool.with(async |_| Ok(())).await?;
        Ok(pool)
    }

    async fn connect(&self) -> Result<Session> {
        let session = Session::open(&self.place, self.password.as_ref()).await?;
        within(STATEMENT_MAX, session.batch_execute(self.settings)).await?;
        Ok(session)
    }

    pub async fn with<T>(&self, work: impl AsyncFnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let _permit = self.permits.acquire().await.map_err(|_| Error::bug("a closed semaphore"))?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut session = match idle.filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => self.connect().await?,
        };
        let outcome = work(&mut session).await;
        if outcome.is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
        outcome
    }
}
