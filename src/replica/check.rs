//! Could it run? Both sides are reached and asked for what running takes, in ways that change nothing.

use super::schema::{self, Tables};
use super::{Replica, within};
use crate::error::Result;
use crate::postgres::rights::{self, Right};
use crate::postgres::{STATEMENT_MAX, Session, pooler};

impl Replica {
    /// etcd, with findings for people.
    pub async fn check_etcd(&self) -> Result<Vec<String>> {
        let status = self.etcd.status().await?;
        self.check_permissions().await?;
        Ok(vec![format!("etcd {}, {} bytes in use", status.version, status.db_size)])
    }

    /// PostgreSQL, with findings for people.
    pub async fn check_postgres(&self) -> Result<Vec<String>> {
        pooler::refused([self.session().await?, self.session().await?]).await?;
        let session = self.session().await?;
        schema::check_encoding(&session).await?;
        let name = &self.spec.name;
        let Tables { etcd, wal, state, drain, versions, .. } = &self.tables;
        let there = "SELECT to_regclass($1) IS NOT NULL";
        let there = within(STATEMENT_MAX, session.query_one(there, &[versions])).await?;
        if !there.get::<_, bool>(0) {
            self.may_install(&session).await?;
            return Ok(vec![format!("no schema yet: `trueup replica init {name}` installs it")]);
        }
        rights::check(&session, &[etcd, wal, state, drain], Right::Write).await?;
        let version = schema::version(&*session, versions).await?;
        schema::check_known(version)?;
        let older = (version < schema::KNOWN)
            .then(|| format!("the schema is older: `trueup replica init {name}` upgrades it"));
        Ok(older.into_iter().collect())
    }

    /// A schema that is missing is made, and tables in it.
    async fn may_install(&self, session: &Session) -> Result<()> {
        let sql = "SELECT quote_ident(current_user), quote_ident(current_database()),
                          current_setting('transaction_read_only')::boolean, to_regnamespace($1) IS NULL,
                          coalesce(has_schema_privilege(to_regnamespace($1)::oid, 'CREATE'),
                                   has_database_privilege(current_database(), 'CREATE'))";
        let row = within(STATEMENT_MAX, session.query_one(sql, &[&self.tables.schema])).await?;
        let (role, database): (&str, &str) = (row.get(0), row.get(1));
        if row.get(2) {
            return Err(rights::standby());
        }
        if row.get(4) {
            return Ok(());
        }
        let place = if row.get(3) {
            format!("DATABASE {database}")
        } else {
            format!("SCHEMA {}", self.tables.schema)
        };
        Err(rights::denied(
            format!("the role {role} may not make the replica's tables in the schema {}", self.spec.schema),
            format!("GRANT CREATE ON {place} TO {role};"),
        ))
    }
}
