//! The statements of one table, with its names filled in once, and cells to and from SQLite.

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Row, Statement};

use super::super::layout::{Found, Table, Type, any_unlisted, named};
use super::super::row::{Cell, Cells};
use crate::postgres::quoted;

pub(in crate::store::tables) struct Sql {
    /// Opened to be read, and the table is not there.
    pub absent: bool,
    pub list_keys: String,
    pub list_values: String,
    /// A branch of the question whether a cache entry has its row.
    pub there: String,
    /// Every row's id and natural key. The index of the key has both, so that no row is read.
    pub keys: String,
    /// By external id, through the cache.
    pub held: String,
    /// Whether the table has rows without a cache entry.
    pub any_unlisted: String,
    /// By natural key.
    pub natural: String,
    pub insert: String,
    pub update: String,
    pub delete: String,
    /// For each column of the table: its place among those selected.
    places: Vec<Option<usize>>,
    selected: usize,
}

pub(super) const CACHE_PUT: &str =
    "INSERT INTO sync_cache(table_name, external_id, checksum, internal_id, schema_version, seen_at)
     VALUES(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(table_name, external_id)
     DO UPDATE SET checksum = ?3, internal_id = ?4, schema_version = ?5, seen_at = ?6";
pub(super) const CACHE_DELETE: &str = "DELETE FROM sync_cache WHERE table_name = ?1 AND external_id = ?2";

/// The columns that are there, as they are selected, and where each of the table's lies among them.
fn selection(table: &Table, found: &Found) -> (Vec<Option<usize>>, Vec<String>) {
    let is_there = |column: &str| found.columns.iter().any(|(name, _)| name == column);
    let mut places = Vec::new();
    let mut selected: Vec<String> = Vec::new();
    for column in &table.columns {
        places.push(is_there(&column.name).then_some(selected.len()));
        if is_there(&column.name) {
            selected.push(format!("t.{}", quoted(&column.name)));
        }
    }
    (places, selected)
}

fn there(table: &Table, own: &str) -> String {
    format!(
        "WHEN '{}' THEN EXISTS(SELECT 1 FROM {} t WHERE {own})",
        table.name.replace('\'', "''"),
        quoted(&table.name)
    )
}

/// The natural key of a row `t`.
fn key(table: &Table) -> String {
    named(table, |column| format!("CAST({column} AS TEXT)"))
}

/// A key of one column is not made text of: that takes SQLite longer than us.
fn ids_and_keys(table: &Table, joined: &str) -> String {
    let key = match table.key[..] {
        [only] => format!("t.{}", quoted(&table.columns[only].name)),
        _ => joined.to_owned(),
    };
    format!("SELECT t.row_id, {key} FROM {} t", quoted(&table.name))
}

/// A column has the value of a parameter, byte by byte: one of somebody's own making may be compared in another way.
fn is(column: &str, parameter: usize) -> String {
    format!("{column} = ?{parameter} AND {column} = ?{parameter} COLLATE BINARY")
}

/// By row id and natural key; the cells begin at parameter 4.
fn update(table: &Table, all: &[String]) -> String {
    let sets: Vec<String> = (0..all.len()).map(|at| format!("{} = ?{}", all[at], at + 4)).collect();
    let key: Vec<String> = table.key.iter().map(|at| is(&all[*at], at + 4)).collect();
    format!(
        "UPDATE {} SET updated_at = coalesce(?2, updated_at), missing_since = ?3, {} WHERE row_id = ?1 AND {}",
        quoted(&table.name),
        sets.join(", "),
        key.join(" AND ")
    )
}

impl Sql {
    pub fn new(table: &Table, found: &Found) -> Self {
        let name = quoted(&table.name);
        let (places, mut selected) = selection(table, found);
        let count = selected.len();
        selected.push("t.missing_since".to_owned());
        let cells = selected.join(", ");
        let all: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
        let numbered: Vec<String> = (0..all.len()).map(|at| format!("?{}", at + 4)).collect();
        let keys: Vec<String> = table
            .key
            .iter()
            .enumerate()
            .map(|(at, place)| is(&format!("t.{}", all[*place]), at + 1))
            .collect();
        let range = "c.table_name = ?1 AND c.external_id >= ?2 AND (?3 IS NULL OR c.external_id > ?3)
                     AND (?4 IS NULL OR c.external_id < ?4)";
        let key = key(table);
        let own = format!("t.row_id = c.internal_id AND {key} = c.external_id");
        let joined = format!("FROM sync_cache c JOIN {name} t ON {own}");
        Sql {
            absent: found.columns.is_empty(),
            list_keys: format!(
                "SELECT c.external_id, c.internal_id, c.checksum, c.seen_at {joined} WHERE {range}
                 ORDER BY c.external_id LIMIT ?5"
            ),
            list_values: format!(
                "SELECT c.external_id, c.internal_id, c.checksum, c.seen_at, {cells} {joined} WHERE {range}
                 ORDER BY c.external_id LIMIT ?5"
            ),
            there: there(table, &own),
            keys: ids_and_keys(table, &key),
            held: format!(
                "SELECT c.internal_id, c.checksum, c.seen_at, {cells} {joined}
                 WHERE c.table_name = ?1 AND c.external_id = ?2"
            ),
            any_unlisted: any_unlisted(table, &own),
            natural: format!("SELECT t.row_id, {cells} FROM {name} t WHERE {}", keys.join(" AND ")),
            insert: format!(
                "INSERT INTO {name}(created_at, updated_at, missing_since, {}) VALUES(?1, ?2, ?3, {})",
                all.join(", "),
                numbered.join(", ")
            ),
            update: update(table, &all),
            delete: format!("DELETE FROM {name} AS t WHERE t.row_id = ?1 AND {key} = ?2"),
            places,
            selected: count,
        }
    }

    /// The cells of a row whose selection begins at column `from`.
    pub fn cells(&self, table: &Table, row: &Row<'_>, from: usize) -> rusqlite::Result<Cells<'static>> {
        let mut cells = Vec::with_capacity(table.columns.len());
        for (column, place) in table.columns.iter().zip(&self.places) {
            let Some(place) = place else {
                cells.push(Cell::Null);
                continue;
            };
            cells.push(match (column.holds, row.get_ref(from + place)?) {
                (_, ValueRef::Null) => Cell::Null,
                (Type::Boolean, ValueRef::Integer(number)) if number == 0 || number == 1 => {
                    Cell::Boolean(number == 1)
                }
                (_, ValueRef::Integer(number)) => Cell::Integer(number),
                (_, ValueRef::Real(number)) => Cell::Real(number),
                (_, ValueRef::Text(text) | ValueRef::Blob(text)) => {
                    Cell::Text(String::from_utf8_lossy(text).into_owned().into())
                }
            });
        }
        Ok(Cells { cells, missing_since: row.get(from + self.selected)? })
    }
}

/// Bind cells from parameter `from` on.
pub(super) fn bind(statement: &mut Statement<'_>, from: usize, cells: &[Cell<'_>]) -> rusqlite::Result<()> {
    cells.iter().enumerate().try_for_each(|(at, cell)| statement.raw_bind_parameter(from + at, cell))
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Cell::Null => ValueRef::Null,
            Cell::Integer(number) => ValueRef::Integer(*number),
            Cell::Real(number) => ValueRef::Real(*number),
            Cell::Boolean(truth) => ValueRef::Integer(i64::from(*truth)),
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}
