//! What PostgreSQL's errors mean: by SQLSTATE, which unlike the text is the same in every language.

use tokio_postgres::error::{DbError, SqlState};

use crate::error::{Error, Kind};

/// What to do when the server does not take our certificate, or misses one.
const CERTIFICATE: &str = "Give a certificate that PostgreSQL's authority signed for the user, with `sslcert` and `sslkey` in the DSN.";

pub fn from_postgres(error: &tokio_postgres::Error) -> Error {
    if let Some(db) = error.as_db_error() {
        return from_answer(db);
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    if text.contains("received fatal alert") && (text.contains("ertificate") || text.contains("UnknownCA")) {
        return Error::new(Kind::Unauthorized, text).remedy_is(CERTIFICATE);
    }
    if text.contains("TLS") || text.contains("certificate") {
        return Error::new(Kind::Unavailable, text)
            .remedy_is("Check `sslmode` and `sslrootcert` against the server's certificate.");
    }
    if text.contains("invalid configuration") || text.contains("missing") {
        return Error::new(Kind::Config, text);
    }
    if text.contains("serializing") || text.contains("converting column") || text.contains("deserializing") {
        return Error::new(Kind::Bug, text);
    }
    Error::new(Kind::Unavailable, text)
        .remedy_is("Check that PostgreSQL is up and reachable at the hosts the DSN names.")
}

fn from_answer(db: &DbError) -> Error {
    let error = meaning(db);
    // 22 a value of the wrong kind, 23 a constraint, 44 a view's condition, 54 too much for an index or a row, P0 what a
    // trigger raises.
    if matches!(&db.code().code()[..2], "22" | "23" | "44" | "54" | "P0") {
        error.about_data()
    } else {
        error
    }
}

fn meaning(db: &DbError) -> Error {
    // What was prepared is gone, or was somebody else's: only behind a pooler.
    if [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT].contains(db.code()) {
        return super::pooler::in_between();
    }
    let mut text = db.message().to_owned();
    if let Some(detail) = db.detail() {
        text = format!("{text} ({detail})");
    }
    let error = Error::new(kind_of(db.code()), text);
    match db.code() {
        code if *code == SqlState::INVALID_CATALOG_NAME => {
            error.remedy_is("Create the database, or correct the DSN.")
        }
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE && is_row_security(db) => error.remedy_is(
            "Rows are hidden from the PostgreSQL role, and what is hidden would look as if it were gone. Let the role see all \
             of them (`ALTER ROLE … BYPASSRLS`, or make it the owner of the table), or use another one.",
        ),
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            error.remedy_is("Grant the PostgreSQL role the right it lacks.")
        }
        // A certificate for somebody else is "certificate authentication failed for user".
        code if code.code().starts_with("28") && error.to_string().contains("certificate") => {
            error.remedy_is(CERTIFICATE)
        }
        code if code.code().starts_with("28") => error.remedy_is("Check the PostgreSQL user and password."),
        code if ["23", "44", "P0"].contains(&&code.code()[..2]) => {
            error.remedy_is("A rule of the table keeps it out. Change the rule, or what the source says.")
        }
        code if *code == SqlState::INVALID_SCHEMA_NAME => {
            error.remedy_is("Give the PostgreSQL role a `search_path` with a schema that exists.")
        }
        code if is_schema_missing(code) => error.remedy_is(
            "What is named there was removed or altered in the database: put it back, or run again to have made anew what \
             trueup makes.",
        ),
        _ => error,
    }
}

/// By the place in PostgreSQL that says so: its words are in the server's language.
fn is_row_security(db: &DbError) -> bool {
    db.routine() == Some("check_enable_rls")
}

/// A table, a column, a function or a schema is not there.
pub fn is_schema_missing(code: &SqlState) -> bool {
    [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::INVALID_SCHEMA_NAME,
    ]
    .contains(code)
}

fn kind_of(code: &SqlState) -> Kind {
    if *code == SqlState::DISK_FULL {
        return Kind::Full;
    }
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return Kind::Unauthorized;
    }
    if *code == SqlState::INVALID_CATALOG_NAME || is_schema_missing(code) {
        return Kind::Config;
    }
    if *code == SqlState::UNIQUE_VIOLATION {
        return Kind::Conflict;
    }
    match &code.code()[..2] {
        "28" => Kind::Unauthorized,
        // A deadlock that PostgreSQL broke, or somebody who was faster: the same again, and it goes through.
        "40" => Kind::Throttled,
        // 08 connection, 25 a read-only standby after a failover, 53 resources, 55 object in use, 57 shutdown or cancel.
        "08" | "25" | "53" | "55" | "57" => Kind::Unavailable,
        "XX" | "58" => Kind::Corrupt,
        _ => Kind::Invalid,
    }
}
