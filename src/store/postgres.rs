//! PostgreSQL as a store: one table, one row per key and nothing else in it.
//!
//! A version is drawn from a sequence, so a key that is deleted and made again never shows an old one. Keys sort by
//! bytes (`COLLATE "C"`), whatever the database's language.

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OnceCell;
use tokio_postgres::{GenericClient, Row, Transaction};

use super::sift::sift;
use super::{
    Access, Caps, Expect, Item, Listed, Mode, Op, Outcome, Page, Query, Store, Stored, What, check_atomic,
    judge, untouched,
};
use crate::clock::mark_us;
use crate::error::{Error, Kind, Result};
use crate::postgres::pool::Pool;
use crate::postgres::rights::Right;
use crate::postgres::{BULK_MAX, PostgresPlace, STATEMENT_MAX, Session, prefix_end, quoted, within};
use crate::record::{Fingerprint, Version};
use crate::secret::Secret;

mod sql;

use sql::Sql;

/// A page of values ends here, whatever its limit says.
const PAGE_BYTES_MAX: i64 = 8 << 20;
/// Writers that overtake us, or deadlocks PostgreSQL broke: each lost round means somebody else succeeded.
const ROUNDS_MAX: usize = 100;

/// A process that stops in the middle of a transaction must not keep others from its rows: a lease it held could not
/// be taken over. Statements of one transaction follow each other at once, or their process is stuck; shorter than a
/// lease.
const IDLE_MAX: &str = "SET idle_in_transaction_session_timeout = '4s'";

const CAPS: Caps = Caps {
    create: true,
    cas: true,
    atomic_max: 1_000,
    strong_read: true,
    cheap_list: true,
    keeps_fingerprint: true,
    sums: false,
    lists_own: false,
    bulk_max: 1_000,
    side_by_side: 1,
    // A B-tree entry takes 2,704 bytes.
    key_max: 2_048,
    // Sent twice through memory on its way; larger things belong in an object store.
    value_max: 100 << 20,
};

pub struct PostgresStore {
    name: String,
    pool: Pool,
    /// As SQL names it.
    table: String,
    sql: Sql,
    access: Access,
    /// Opened for reading, and the table is not there: everything is absent.
    missing: bool,
    /// Versions were raised to what they begin with now.
    raised: OnceCell<()>,
}

impl PostgresStore {
    pub async fn open(place: &PostgresPlace, password: Option<Secret>, access: Access) -> Result<Self> {
        let table = place.table.clone().unwrap_or_else(|| crate::config::TABLE.to_owned());
        let (name, sql) = (format!("{}?table={table}", place.shown()), Sql::new(&table));
        let table = quoted(&table);
        let pool = Pool::open(place.clone(), password, IDLE_MAX).await?;
        let missing = pool.with(async |session| prepared(session, &sql, &table, access).await).await?;
        Ok(PostgresStore { name, pool, table, sql, access, missing, raised: OnceCell::new() })
    }

    /// Connections that wait for work and are still open.
    pub fn connections_idle(&self) -> usize {
        self.pool.connections_idle()
    }

    /// Versions begin at this moment, unless they are beyond it already.
    async fn raise_versions(&self) -> Result<()> {
        let raise = async |session: &mut Session| {
            within(STATEMENT_MAX, session.query_one(&self.sql.raise, &[&mark_us()])).await
        };
        self.pool.with(raise).await.map(drop)
    }

    /// Run rounds until one is not overtaken.
    async fn rounds(
        &self,
        items: &[Item],
        round: impl AsyncFn(&Sql, &mut Session, &[Item]) -> Result<Option<Vec<Outcome>>>,
    ) -> Result<Vec<Outcome>> {
        if self.access == Access::Read {
            return Err(Error::bug("a write to a store that was opened for reading"));
        }
        self.raised.get_or_try_init(async || self.raise_versions().await).await?;
        for _ in 0..ROUNDS_MAX {
            let outcome = self.pool.with(async |session| round(&self.sql, session, items).await).await;
            match outcome {
                Ok(Some(outcomes)) => return Ok(outcomes),
                Ok(None) => {}
                Err(error) if error.kind() == Kind::Throttled => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Kind::Throttled, "other writers keep changing these keys"))
    }
}

/// Make the table if it is to be written and not there yet; whether it is missing. Whoever may only use it, and not make
/// one, finds it made.
async fn prepared(session: &mut Session, sql: &Sql, table: &str, access: Access) -> Result<bool> {
    let there = Making::left(&**session, sql, table).await?;
    if access == Access::Read || there == Making::Nothing {
        return Ok(there == Making::All);
    }
    // Others may be about to do the same. Whoever comes second looks again: the first one may be at work on the table
    // already, and statements that make it would get in the way of that.
    let transaction = within(STATEMENT_MAX, session.transaction()).await?;
    within(STATEMENT_MAX, transaction.batch_execute(&sql.lock_making)).await?;
    let text = match Making::left(&transaction, sql, table).await? {
        Making::All => format!("{} {}", sql.create, sql.notice),
        Making::Noticing => sql.notice.clone(),
        Making::Nothing => String::new(),
    };
    within(STATEMENT_MAX, transaction.batch_execute(&text)).await?;
    within(STATEMENT_MAX, transaction.commit()).await?;
    Ok(false)
}

/// What there is to make before the table can be written.
#[derive(PartialEq)]
enum Making {
    All,
    /// What notices changes by others, which tables of older versions do not have, and which is ours to add.
    Noticing,
    Nothing,
}

impl Making {
    async fn left(client: &impl GenericClient, sql: &Sql, table: &str) -> Result<Self> {
        let found = within(STATEMENT_MAX, client.query_one(sql.exists, &[&table])).await?;
        Ok(match [0, 1, 2].map(|at| found.get::<_, bool>(at)) {
            [false, ..] => Making::All,
            [true, false, true] => Making::Noticing,
            [true, ..] => Making::Nothing,
        })
    }
}

/// Look at every item's row; locks the rows that are there.
async fn look(sql: &Sql, transaction: &Transaction<'_>, items: &[Item]) -> Result<Vec<Option<Outcome>>> {
    let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
    let (values, prints): (Vec<_>, Vec<_>) = items.iter().map(parts).unzip();
    let rows = within(BULK_MAX, transaction.query(&sql.look, &[&keys, &values, &prints])).await?;
    let mut held: Vec<(Option<Version>, bool)> = vec![(None, false); items.len()];
    for row in rows {
        let at = usize::try_from(row.get::<_, i64>("at") - 1).unwrap_or(usize::MAX);
        if let Some(slot) = held.get_mut(at) {
            *slot = (Some(Version::from(row.get::<_, i64>("version"))), row.get("same"));
        }
    }
    Ok(items.iter().zip(held).map(|(item, (held, same))| judge(item, held.as_ref(), same)).collect())
}

fn parts(item: &Item) -> (Option<&[u8]>, Option<&[u8]>) {
    match &item.op {
        Op::Put { value, fingerprint } => (Some(value), fingerprint.as_ref().map(|print| print.0.as_slice())),
        Op::Delete | Op::Check => (None, None),
    }
}

/// Write what `judged` left to do. `None` beside an item that somebody else overtook.
async fn carry_out(
    sql: &Sql,
    transaction: &Transaction<'_>,
    items: &[Item],
    judged: Vec<Option<Outcome>>,
) -> Result<Vec<Option<Outcome>>> {
    let mut outcomes = judged;
    for kind in sql.writes() {
        let todo: Vec<usize> =
            (0..items.len()).filter(|at| outcomes[*at].is_none() && kind.fits(&items[*at])).collect();
        if todo.is_empty() {
            continue;
        }
        let keys: Vec<&str> = todo.iter().map(|at| items[*at].key.as_str()).collect();
        let (values, prints): (Vec<_>, Vec<_>) = todo.iter().map(|at| parts(&items[*at])).unzip();
        let expects: Vec<Option<i64>> = todo.iter().map(|at| expected(&items[*at])).collect();
        let rows =
            within(BULK_MAX, transaction.query(kind.text(), &[&keys, &values, &prints, &expects])).await?;
        for row in rows {
            let index = usize::try_from(row.get::<_, i64>("at") - 1).unwrap_or(usize::MAX);
            let Some(at) = todo.get(index) else { continue };
            let version = row.get::<_, Option<i64>>("version").map(Version::from);
            outcomes[*at] = Some(Outcome::Applied(version));
        }
    }
    Ok(outcomes)
}

/// One round of independent items: those that were overtaken are judged again in the same transaction.
async fn each(sql: &Sql, session: &mut Session, items: &[Item]) -> Result<Option<Vec<Outcome>>> {
    let transaction = within(STATEMENT_MAX, session.transaction()).await?;
    let mut outcomes = look(sql, &transaction, items).await?;
    for _ in 0..ROUNDS_MAX {
        outcomes = carry_out(sql, &transaction, items, outcomes).await?;
        if outcomes.iter().all(Option::is_some) {
            within(STATEMENT_MAX, transaction.commit()).await?;
            return Ok(Some(outcomes.into_iter().flatten().collect()));
        }
        let fresh = look(sql, &transaction, items).await?;
        for (outcome, fresh) in outcomes.iter_mut().zip(fresh) {
            if outcome.is_none() {
                *outcome = fresh;
            }
        }
    }
    Ok(None)
}

/// One all-or-nothing round; `None` = overtaken, nothing written.
async fn together(sql: &Sql, session: &mut Session, items: &[Item]) -> Result<Option<Vec<Outcome>>> {
    let transaction = within(STATEMENT_MAX, session.transaction()).await?;
    // A condition on a row that is not there has nothing to lock but the table.
    let guards_absence = |item: &Item| matches!(item.op, Op::Check) && item.expect == Expect::Absent;
    if items.iter().any(guards_absence) {
        within(STATEMENT_MAX, transaction.batch_execute(&sql.lock)).await?;
    }
    let judged = look(sql, &transaction, items).await?;
    if judged.iter().flatten().any(|outcome| !outcome.landed()) {
        within(STATEMENT_MAX, transaction.rollback()).await?;
        return Ok(Some(judged.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Untouched)).collect()));
    }
    let outcomes = carry_out(sql, &transaction, items, judged).await?;
    if outcomes.iter().any(Option::is_none) {
        within(STATEMENT_MAX, transaction.rollback()).await?;
        return Ok(None);
    }
    within(STATEMENT_MAX, transaction.commit()).await?;
    Ok(Some(outcomes.into_iter().flatten().collect()))
}

fn expected(item: &Item) -> Option<i64> {
    match &item.expect {
        Expect::Exactly(version) => Some(version.0.parse().unwrap_or(-1)),
        Expect::Anything | Expect::Absent => None,
    }
}

fn storable(item: &Item) -> Result<()> {
    if item.key.contains('\0') {
        return Err(Error::new(Kind::Invalid, "the key holds a NUL character, which PostgreSQL text cannot"));
    }
    Ok(())
}

fn listed(row: &Row, what: What) -> Listed {
    Listed {
        key: row.get("key"),
        version: Version::from(row.get::<_, i64>("version")),
        fingerprint: row.get::<_, Option<&[u8]>>("fingerprint").and_then(Fingerprint::from_slice),
        value: (what == What::Values).then(|| Bytes::copy_from_slice(row.get("value"))),
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        CAPS
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        if keys.is_empty() || self.missing {
            return Ok(vec![None; keys.len()]);
        }
        let rows = self
            .pool
            .with(async |session| within(BULK_MAX, session.query(&self.sql.get, &[&keys])).await)
            .await?;
        let mut answers = vec![None; keys.len()];
        for row in rows {
            let at = usize::try_from(row.get::<_, i64>("at") - 1).unwrap_or(usize::MAX);
            let line = listed(&row, What::Values);
            if let (Some(slot), Some(value)) = (answers.get_mut(at), line.value) {
                *slot = Some(Stored { value, version: line.version, fingerprint: line.fingerprint });
            }
        }
        Ok(answers)
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        let after = query.after.filter(|after| *after >= query.prefix);
        let end = prefix_end(query.prefix);
        if self.missing {
            return Ok(Page::default());
        }
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX - 1);
        let values = query.what == What::Values;
        let text = if values { &self.sql.list_values } else { &self.sql.list_keys };
        let rows = self
            .pool
            .with(async |session| {
                let fetch = limit.saturating_add(1);
                let budget = if values { PAGE_BYTES_MAX } else { i64::MAX };
                within(BULK_MAX, session.query(text, &[&query.prefix, &after, &end, &fetch, &budget])).await
            })
            .await?;
        let mut items: Vec<Listed> = Vec::with_capacity(rows.len());
        let mut more = false;
        for row in &rows {
            if items.len() == query.limit || row.get::<_, bool>("beyond") {
                more = true;
                break;
            }
            items.push(listed(row, query.what));
        }
        Ok(Page { items, more })
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        check_atomic(&CAPS, items.len(), mode)?;
        let (good, refused) = sift(items, mode, &CAPS, storable);
        if refused.stops(mode) {
            return Ok(refused.untouched(good.len()));
        }
        let written = match (good.is_empty(), mode) {
            (true, _) => Vec::new(),
            (false, Mode::Each) => self.rounds(&good, each).await?,
            (false, Mode::All) => self.rounds(&good, together).await?,
        };
        let mut written: Vec<Result<Outcome>> = written.into_iter().map(Ok).collect();
        if mode == Mode::All && written.iter().flatten().any(|outcome| !outcome.landed()) {
            untouched(&mut written);
        }
        Ok(refused.among(written))
    }

    /// Rights first: their lack is better told than an error about it.
    async fn is_there(&self) -> Result<bool> {
        Ok(!self.missing)
    }

    async fn check(&self, access: Access) -> Result<Vec<String>> {
        let right = if access == Access::Write { Right::Write } else { Right::Read };
        self.pool.check(&[&self.table], right).await?;
        self.list(Query { limit: 1, ..Query::keys("") }).await.map(|_| Vec::new())
    }
}
