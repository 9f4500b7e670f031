//! All cache entries that have their row, as one sum.
//!
//! Looking up the row of every entry takes as long as all the rest. So the ids and keys entries lead to are summed up,
//! and those of the rows, which the index of the key has: where both come to the same, every entry has its row. Where they
//! do not (somebody else's rows are among ours, or a row is gone) each is looked up.

use std::hash::{DefaultHasher, Hasher};

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::pen;
use super::sql::Sql;
use crate::store::Sum;
use crate::store::tables::layout::Table;
use crate::store::tables::row::Adding;

const ENTRIES: &str =
    "SELECT c.table_name, c.external_id, c.internal_id, c.checksum, c.seen_at FROM sync_cache c";

pub(super) fn sum(connection: &Connection, sql: &[Sql], tables: &[Table]) -> rusqlite::Result<Sum> {
    if sql.iter().all(|sql| sql.absent) {
        return Ok(Sum::default());
    }
    // All of it is of one moment.
    let moment = connection.unchecked_transaction()?;
    let (sum, led_to) = entries(&moment, sql, tables, ENTRIES)?;
    for (one, led_to) in sql.iter().zip(led_to) {
        if !one.absent && rows(&moment, one)? != Some(led_to) {
            return entries(&moment, sql, tables, &with_their_rows(sql)).map(|(sum, _)| sum);
        }
    }
    Ok(sum)
}

/// Every cache entry that has its row, in no order: the cache is read from its start to its end, once.
fn with_their_rows(sql: &[Sql]) -> String {
    let there: Vec<&str> = sql.iter().filter(|sql| !sql.absent).map(|sql| sql.there.as_str()).collect();
    format!("{ENTRIES} WHERE CASE c.table_name {} ELSE 0 END", there.join(" "))
}

/// Row ids and their keys, whatever order they come in: the same sum, the same pairs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Pairs {
    count: u64,
    hashes: u64,
}

impl Pairs {
    fn add(&mut self, row_id: i64, key: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write_i64(row_id);
        hasher.write(key);
        self.count += 1;
        self.hashes = self.hashes.wrapping_add(hasher.finish());
    }
}

/// The sum of the cache entries, and what those of each table lead to.
fn entries(
    connection: &Connection,
    sql: &[Sql],
    tables: &[Table],
    selected: &str,
) -> rusqlite::Result<(Sum, Vec<Pairs>)> {
    let mut adding = Adding::default();
    let mut led_to = vec![Pairs::default(); tables.len()];
    let mut statement = connection.prepare_cached(selected)?;
    let mut rows = statement.query([])?;
    // Rows of one batch were written at one instant.
    let mut instant = (String::new(), 0);
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_str()?;
        let Some(at) = tables.iter().position(|table| table.name == name).filter(|at| !sql[*at].absent)
        else {
            continue;
        };
        let (id, checksum) = (row.get_ref(1)?.as_str()?, row.get_ref(3)?.as_str()?);
        let (row_id, seen_at) = (row.get_ref(2)?.as_i64()?, row.get_ref(4)?.as_str()?);
        if instant.0 != seen_at {
            instant = (seen_at.to_owned(), pen::ms(seen_at));
        }
        adding.add(&tables[at], id, row_id, instant.1, checksum);
        led_to[at].add(row_id, id.as_bytes());
    }
    Ok((adding.sum, led_to))
}

/// The ids and keys of a table's rows; `None` where a key is neither text nor a whole number.
fn rows(connection: &Connection, sql: &Sql) -> rusqlite::Result<Option<Pairs>> {
    let mut pairs = Pairs::default();
    let mut statement = connection.prepare_cached(&sql.keys)?;
    let mut rows = statement.query([])?;
    let mut digits = itoa::Buffer::new();
    while let Some(row) = rows.next()? {
        let key = match row.get_ref(1)? {
            ValueRef::Integer(number) => digits.format(number).as_bytes(),
            ValueRef::Text(text) => text,
            _ => return Ok(None),
        };
        pairs.add(row.get_ref(0)?.as_i64()?, key);
    }
    Ok(Some(pairs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tables::layout::{Column, Found, Type};

    fn table(key: Type) -> Table {
        let column = |name: &str, holds| Column { name: name.to_owned(), holds, index: None };
        let columns = vec![column("a", key), column("b", Type::Text)];
        Table { name: "t".to_owned(), columns, key: vec![0], sorted: vec![0, 1], schema_version: 1 }
    }

    /// Three rows with their entries.
    fn database(keys: [&str; 3]) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(super::super::BESIDE).unwrap();
        let made = "CREATE TABLE t(row_id INTEGER PRIMARY KEY, a, b, missing_since); CREATE UNIQUE INDEX k ON t(a, b)";
        connection.execute_batch(made).unwrap();
        for (at, key) in keys.iter().enumerate() {
            let own = format!("INSERT INTO t(row_id, a, b) VALUES({at}, {key}, 'x/y')");
            connection.execute(&own, []).unwrap();
        }
        connection
    }

    fn cached(connection: &Connection, named: &str) {
        let entries = format!(
            "INSERT INTO sync_cache SELECT 't', {named}, 'abcdefghij', row_id, 1, '2026-11-18T12:00:00.000Z' FROM t"
        );
        connection.execute(&entries, []).unwrap();
    }

    fn summed(connection: &Connection, table: &Table) -> Sum {
        let columns = ["a", "b"].map(|name| (name.to_owned(), String::new())).to_vec();
        let sql = Sql::new(table, &Found { columns, ..Found::default() });
        let fast = sum(connection, std::slice::from_ref(&sql), std::slice::from_ref(table)).unwrap();
        let slow = with_their_rows(std::slice::from_ref(&sql));
        let (slow, _) = entries(connection, &[sql], std::slice::from_ref(table), &slow).unwrap();
        assert_eq!(fast, slow, "both ways say the same");
        fast
    }

    #[test]
    fn whichever_way_it_is_summed_up_only_entries_with_their_row_count() {
        let whole_numbers = (table(Type::Integer), ["1", "-20", "9007199254740993"], "a");
        let texts = (table(Type::Text), ["'æ'", "'007'", "''"], "a");
        let two = Table { key: vec![0, 1], ..table(Type::Integer) };
        let joined = (two, ["1", "2", "3"], "a || '/x%2Fy'");
        let fractions = (table(Type::Real), ["1.5", "2.0", "1e300"], "CAST(a AS TEXT)");
        for (table, keys, named) in [whole_numbers, texts, joined, fractions] {
            let connection = database(keys);
            cached(&connection, named);
            let whole = summed(&connection, &table);
            assert_eq!(whole.count, 3, "{named}");
            for (hand, left) in [
                ("INSERT INTO t(row_id, a, b) VALUES(77, 'not ours', 'z')", 3),
                ("DELETE FROM t WHERE row_id = 1", 2),
                ("UPDATE t SET a = 'another' WHERE row_id = 2", 1),
                ("UPDATE sync_cache SET internal_id = 77 WHERE internal_id = 0", 0),
            ] {
                connection.execute(hand, []).unwrap();
                assert_eq!(summed(&connection, &table).count, left, "{named}: {hand}");
            }
        }
    }

    #[test]
    fn rows_that_changed_places_are_not_each_others() {
        let connection = database(["1", "2", "3"]);
        cached(&connection, "a");
        for hand in [
            "UPDATE t SET row_id = 50 WHERE row_id = 0",
            "UPDATE t SET row_id = 0 WHERE row_id = 1",
            "UPDATE t SET row_id = 1 WHERE row_id = 50",
        ] {
            connection.execute(hand, []).unwrap();
        }
        assert_eq!(summed(&connection, &table(Type::Integer)).count, 1);
    }
}
