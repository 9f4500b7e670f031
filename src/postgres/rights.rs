//! May this role do here what it must do? Asked of PostgreSQL's own catalogue, so that nothing is tried and nothing changes.

use super::{STATEMENT_MAX, Session, within};
use crate::error::{Error, Kind, Result};

/// What is to be done with tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    Read,
    /// Their rows come and go. A table that is missing is made.
    Write,
    /// They are altered, too.
    Own,
}

/// What is missing of the rights to a table that is there; `$2` = it must be ours.
const TABLES: &str = "
SELECT t.name, c.oid IS NOT NULL,
       $2 AND NOT pg_has_role(c.relowner, 'USAGE'),
       (SELECT string_agg(p.name, ', ') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p(name)
        WHERE NOT has_table_privilege(c.oid, p.name)),
       (SELECT min(s.oid::regclass::text) FROM pg_depend d JOIN pg_class s ON s.oid = d.objid
        WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.deptype IN ('a', 'i')
          AND CASE s.relkind WHEN 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE') END)
FROM unnest($1::text[]) AS t(name) LEFT JOIN pg_class c ON c.oid = to_regclass(t.name)";

const HERE: &str = "
SELECT quote_ident(current_user), current_setting('transaction_read_only')::boolean, quote_ident(current_schema()),
       coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)";

/// A table of which row security would hide rows.
const HIDDEN: &str =
    "SELECT t.name FROM unnest($1::text[]) AS t(name) WHERE row_security_active(to_regclass(t.name)) LIMIT 1";

/// Whether we have this right to these tables, named as SQL does.
pub async fn check(session: &Session, tables: &[&str], right: Right) -> Result<()> {
    let here = within(STATEMENT_MAX, session.query_one(HERE, &[])).await?;
    let (role, read_only): (&str, bool) = (here.get(0), here.get(1));
    if let Some(hidden) = within(STATEMENT_MAX, session.query_opt(HIDDEN, &[&tables])).await? {
        return Err(denied(
            format!("row security hides rows of {} from the role {role}", hidden.get::<_, &str>(0)),
            format!("ALTER ROLE {role} BYPASSRLS;"),
        ));
    }
    if right == Right::Read {
        return Ok(());
    }
    if read_only {
        return Err(standby());
    }
    let own = right == Right::Own;
    let rows = within(STATEMENT_MAX, session.query(TABLES, &[&tables, &own])).await?;
    for row in &rows {
        let (table, there): (&str, bool) = (row.get(0), row.get(1));
        if !there {
            may_create(table, role, here.get(2), here.get(3))?;
        } else if row.get::<_, Option<bool>>(2) == Some(true) {
            return Err(denied(
                format!("the table {table} is not {role}'s, and would have to be altered"),
                format!("ALTER TABLE {table} OWNER TO {role};"),
            ));
        } else if let Some(lacking) = row.get::<_, Option<&str>>(3) {
            return Err(denied(
                format!("the role {role} has no right to {lacking} on {table}"),
                format!("GRANT {lacking} ON {table} TO {role};"),
            ));
        } else if let Some(sequence) = row.get::<_, Option<&str>>(4) {
            return Err(denied(
                format!("the role {role} may not use the sequence {sequence} of {table}"),
                format!("GRANT USAGE ON SEQUENCE {sequence} TO {role};"),
            ));
        }
    }
    Ok(())
}

fn may_create(table: &str, role: &str, schema: Option<&str>, may: bool) -> Result<()> {
    match schema {
        Some(_) if may => Ok(()),
        Some(schema) => Err(denied(
            format!("the role {role} may not make the table {table} in the schema {schema}"),
            format!("GRANT CREATE ON SCHEMA {schema} TO {role};"),
        )),
        None => Err(Error::new(Kind::Config, format!("there is no schema to make the table {table} in"))
            .remedy_is(format!("Give the role {role} a `search_path` with a schema that exists."))),
    }
}

/// A right that is missing, with the statement that grants it.
pub fn denied(message: String, statement: String) -> Error {
    Error::new(Kind::Unauthorized, message)
        .remedy_is(format!("As an administrator of the database: {statement}"))
}

pub fn standby() -> Error {
    Error::new(Kind::Unavailable, "this PostgreSQL takes no writes: it is a standby, or set to be read only")
        .remedy_is("Name the primary; with several hosts, `target_session_attrs=read-write` finds it.")
}
