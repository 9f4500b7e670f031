//! A pooler that lends its server connections for one transaction each breaks what a session is: prepared statements,
//! settings, NOTIFY, locks. Behind one everything works until two of us work at once, so it is looked for beforehand.

use tokio_postgres::SimpleQueryMessage;

use super::{STATEMENT_MAX, Session, within};
use crate::error::{Error, Kind, Result};

const REMEDY: &str = "Connect to PostgreSQL itself, or to a pool in session mode (`pool_mode = session`).";

/// What is wrong when a session turns out to be none.
pub fn in_between() -> Error {
    Error::new(Kind::Config, "a pooler gives every transaction another connection to PostgreSQL")
        .remedy_is(REMEDY)
}

/// Refuse such a pooler. Two sessions of one place begin and end transactions, in either order: whether a pooler lends
/// what came back first or what came back last, one session then meets a server process that was the other's.
pub async fn refused(sessions: [Session; 2]) -> Result<()> {
    let mut served: Option<[String; 2]> = None;
    for first_to_end in [0, 1, 0] {
        let now = [begun(&sessions[0]).await?, begun(&sessions[1]).await?];
        for session in [first_to_end, 1 - first_to_end] {
            within(STATEMENT_MAX, sessions[session].batch_execute("COMMIT")).await?;
        }
        if served.as_ref().is_some_and(|before| *before != now) {
            return Err(in_between());
        }
        served = Some(now);
    }
    Ok(())
}

/// Begin a transaction; the number of the process that serves it. By the simple protocol: nothing is prepared.
async fn begun(session: &Session) -> Result<String> {
    let answers = within(STATEMENT_MAX, session.simple_query("BEGIN; SELECT pg_backend_pid()")).await?;
    let process = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    process.map(str::to_owned).ok_or_else(|| Error::bug("PostgreSQL did not say which process it is"))
}
