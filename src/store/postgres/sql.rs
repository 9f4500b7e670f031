//! The statements of the key-value table, with its name filled in once.

use crate::postgres::quoted;
use crate::store::{Expect, Item, Op};

pub(super) struct Sql {
    /// Waits until nobody else makes this table; the lock's number is its own.
    pub lock_making: String,
    pub create: String,
    /// Makes what notices changes by others.
    pub notice: String,
    /// The table, what notices changes by others, and whether it is ours to add that.
    pub exists: &'static str,
    pub raise: String,
    pub lock: String,
    pub look: String,
    pub get: String,
    pub list_keys: String,
    pub list_values: String,
    put_anyway: String,
    put_new: String,
    put_exactly: String,
    delete_anyway: String,
    delete_exactly: String,
}

/// One of the five ways to write; items of one way go in one statement.
pub(super) struct Write<'a> {
    text: &'a str,
    put: bool,
    expect: Option<bool>,
}

impl Write<'_> {
    pub fn text(&self) -> &str {
        self.text
    }

    /// `expect`: `None` = whatever is there, `Some(false)` = nothing, `Some(true)` = this version.
    pub fn fits(&self, item: &Item) -> bool {
        let put = match item.op {
            Op::Put { .. } => true,
            Op::Delete => false,
            Op::Check => return false,
        };
        let expect = match item.expect {
            Expect::Anything => None,
            Expect::Absent => Some(false),
            Expect::Exactly(_) => Some(true),
        };
        put == self.put && expect == self.expect
    }
}

const ITEMS: &str = "unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[]) WITH ORDINALITY \
                     AS i(key, value, fingerprint, expect, at)";

const EXISTS: &str = "SELECT to_regclass($1) IS NOT NULL,
  EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = 'outside'),
  coalesce((SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass($1)), false)
    AND has_schema_privilege(current_schema(), 'CREATE')";

fn lock_making(plain: &str) -> String {
    let plain = plain.replace('\'', "''");
    format!("SELECT pg_advisory_xact_lock(hashtextextended('trueup store ' || '{plain}', 0))")
}

fn create(table: &str, sequence: &str) -> String {
    format!(
        "CREATE SEQUENCE IF NOT EXISTS {sequence};
         CREATE TABLE {table} (
           key text COLLATE \"C\" PRIMARY KEY CHECK (key <> ''),
           value bytea NOT NULL,
           fingerprint bytea,
           version bigint NOT NULL DEFAULT nextval('{}'));
         ALTER SEQUENCE {sequence} OWNED BY {table}.version;",
        sequence.replace('\'', "''"),
    )
}

/// Somebody who changes a value with SQL has no version to give it. Without one of its own the change would go unnoticed, and
/// what was known of the value before would be taken for what it is now.
fn notice(plain: &str, table: &str, sequence: &str) -> String {
    let function = quoted(&format!("{plain}_outside"));
    format!(
        "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $outside$
         BEGIN
           NEW.version := nextval('{}');
           NEW.fingerprint := NULL;
           RETURN NEW;
         END $outside$;
         CREATE TRIGGER outside BEFORE UPDATE ON {table} FOR EACH ROW
           WHEN (NEW.version = OLD.version AND NEW.value IS DISTINCT FROM OLD.value)
           EXECUTE FUNCTION {function}();",
        sequence.replace('\'', "''"),
    )
}

/// No version from now on is lower than this: a table that was made anew, or put back from a backup, must not give a version
/// again that stood for something else. Whoever may not say so goes on as before.
fn raise(sequence: &str) -> String {
    format!(
        "SELECT CASE WHEN has_sequence_privilege('{0}', 'UPDATE')
           THEN setval('{0}', greatest(nextval('{0}'), $1)) END",
        sequence.replace('\'', "''"),
    )
}

fn look(table: &str) -> String {
    format!(
        "SELECT i.at, t.version,
                coalesce(t.value = i.value AND t.fingerprint IS NOT DISTINCT FROM i.fingerprint, false) AS same
         FROM {table} t JOIN unnest($1::text[], $2::bytea[], $3::bytea[]) WITH ORDINALITY
           AS i(key, value, fingerprint, at) ON t.key = i.key
         ORDER BY t.key FOR UPDATE OF t"
    )
}

fn list_keys(table: &str, range: &str) -> String {
    format!(
        "SELECT key, version, fingerprint, $5::bigint < 0 AS beyond FROM {table}
         WHERE {range} ORDER BY key LIMIT $4"
    )
}

fn list_values(table: &str, range: &str) -> String {
    format!(
        "SELECT key, version, fingerprint, value, before > $5::bigint AS beyond FROM (
           SELECT *, sum(octet_length(value)) OVER (ORDER BY key) - octet_length(value) AS before
           FROM (SELECT * FROM {table} WHERE {range} ORDER BY key LIMIT $4) page) sized
         WHERE before <= $5::bigint + 100 * 1024 * 1024 ORDER BY key"
    )
}

fn get(table: &str) -> String {
    format!(
        "SELECT i.at, t.key, t.value, t.version, t.fingerprint
         FROM unnest($1::text[]) WITH ORDINALITY AS i(key, at) JOIN {table} t ON t.key = i.key"
    )
}

impl Sql {
    pub fn new(table: &str) -> Self {
        let plain = table;
        let table = quoted(table);
        let sequence = quoted(&format!("{plain}_version"));
        let next = format!("nextval('{}')", sequence.replace('\'', "''"));
        // Rows are taken in key order, so that two batches do not wait for each other in a circle.
        let insert = format!(
            "WITH i AS (SELECT * FROM {ITEMS}), w AS (
               INSERT INTO {table} AS t (key, value, fingerprint)
               SELECT key, value, fingerprint FROM i ORDER BY key COLLATE \"C\"
               ON CONFLICT (key) DO"
        );
        let returning = "RETURNING t.key, t.version) SELECT i.at, w.version FROM w JOIN i ON i.key = w.key";
        let range = "key >= $1 AND ($2::text IS NULL OR key > $2) \
                     AND ($3::text IS NULL OR key < $3)";
        Sql {
            lock_making: lock_making(plain),
            create: create(&table, &sequence),
            notice: notice(plain, &table, &sequence),
            exists: EXISTS,
            raise: raise(&sequence),
            lock: format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"),
            look: look(&table),
            get: get(&table),
            list_keys: list_keys(&table, range),
            list_values: list_values(&table, range),
            put_anyway: format!(
                "{insert} UPDATE SET value = excluded.value, fingerprint = excluded.fingerprint, version = {next} \
                 {returning}"
            ),
            put_new: format!("{insert} NOTHING {returning}"),
            put_exactly: format!(
                "WITH i AS (SELECT * FROM {ITEMS}), w AS (
                   UPDATE {table} t SET value = i.value, fingerprint = i.fingerprint, version = {next}
                   FROM i WHERE t.key = i.key AND t.version = i.expect {returning}"
            ),
            delete_anyway: format!(
                "WITH i AS (SELECT * FROM {ITEMS}), w AS (
                   DELETE FROM {table} t USING i WHERE t.key = i.key RETURNING t.key)
                 SELECT i.at, NULL::bigint AS version FROM w JOIN i ON i.key = w.key"
            ),
            delete_exactly: format!(
                "WITH i AS (SELECT * FROM {ITEMS}), w AS (
                   DELETE FROM {table} t USING i WHERE t.key = i.key AND t.version = i.expect RETURNING t.key)
                 SELECT i.at, NULL::bigint AS version FROM w JOIN i ON i.key = w.key"
            ),
        }
    }

    pub fn writes(&self) -> [Write<'_>; 5] {
        let write = |text, put, expect| Write { text, put, expect };
        [
            write(&self.put_anyway, true, None),
            write(&self.put_new, true, Some(false)),
            write(&self.put_exactly, true, Some(true)),
            write(&self.delete_anyway, false, None),
            write(&self.delete_exactly, false, Some(true)),
        ]
    }
}
