//! A few connections that are lent for one piece of work each. One that saw an error is not lent again.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::rights::{self, Right};
use super::{PostgresPlace, STATEMENT_MAX, Session, pooler, within};
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

    /// Is it PostgreSQL itself that answers, and have we this right to these tables, named as SQL does?
    pub async fn check(&self, tables: &[&str], right: Right) -> Result<()> {
        pooler::refused([self.connect().await?, self.connect().await?]).await?;
        self.with(async |session| rights::check(session, tables, right).await).await
    }

    /// Connections that wait for work and are still open.
    pub fn connections_idle(&self) -> usize {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.iter().filter(|session| !session.is_closed()).count()
    }
}
