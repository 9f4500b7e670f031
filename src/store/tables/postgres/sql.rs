//! The statements of one table, with its names filled in once, and cells from PostgreSQL.

use tokio_postgres::Row;

use super::super::layout::{Found, Table, Type, any_unlisted, named};
use super::super::row::{Cell, Cells};
use super::{ids, native};
use crate::postgres::quoted;

pub(in crate::store::tables) struct Sql {
    /// Opened to be read, and the table is not there.
    pub absent: bool,
    pub list_keys: String,
    pub list_values: String,
    /// All of it, in no order.
    pub sum: String,
    pub held: String,
    /// Whether the table has rows without a cache entry.
    pub any_unlisted: String,
    /// By natural key, from rows given as JSON.
    pub natural: String,
    pub update: String,
    pub copy: String,
    pub copy_binary: String,
    /// The table's name, as it stands between the quotes of a text.
    literal: String,
    pub delete: String,
    /// For each column of the table: its place among those selected.
    places: Vec<Option<usize>>,
    selected: usize,
}

pub(super) const CACHE_COPY: &str =
    "COPY sync_cache(table_name, external_id, checksum, internal_id, schema_version, seen_at) FROM STDIN";
pub(super) const CACHE_COPY_BINARY: &str = "COPY sync_cache(table_name, external_id, checksum, internal_id, schema_version, seen_at) FROM STDIN BINARY";
pub(super) const CACHE_DELETE: &str =
    "DELETE FROM sync_cache WHERE table_name = $1 AND external_id = ANY($2)";
/// For whoever looks before writing: nobody else writes meanwhile.
pub(super) const LOCK: &str = "LOCK TABLE sync_cache IN SHARE ROW EXCLUSIVE MODE";
/// For new rows, which the unique indexes keep apart: others may bring theirs. Before anything else, or one that looks
/// would wait for our rows and we for its lock.
pub(super) const LOCK_BESIDE_NEW: &str = "LOCK TABLE sync_cache IN ROW EXCLUSIVE MODE";

/// An instant as text, the way rows have it. One that no row can have is told in PostgreSQL's words: it is another one than
/// whatever was written.
fn instant(expression: &str) -> String {
    format!(
        "CASE WHEN {expression} >= '0001-01-01Z' AND {expression} < '10000-01-01Z'
                AND {expression} = date_trunc('milliseconds', {expression})
              THEN to_char({expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')
              ELSE {expression}::text END"
    )
}

/// When a cache entry was written. Somebody's `infinity` is no reason to read nothing any more.
const SEEN_MS: &str =
    "CASE WHEN isfinite(c.seen_at) THEN (extract(epoch FROM c.seen_at) * 1000)::bigint ELSE 0 END";

/// The columns that are there, as they are selected, and where each of the table's lies among them.
fn selection(table: &Table, found: &Found) -> (Vec<Option<usize>>, Vec<String>) {
    let is_there = |column: &str| found.columns.iter().any(|(name, _)| name == column);
    let mut places = Vec::new();
    let mut selected: Vec<String> = Vec::new();
    for column in &table.columns {
        places.push(is_there(&column.name).then_some(selected.len()));
        let plain = format!("t.{}", quoted(&column.name));
        if is_there(&column.name) {
            selected.push(match column.holds {
                Type::Instant => instant(&plain),
                Type::Json => format!("{plain}::text"),
                _ => plain,
            });
        }
    }
    (places, selected)
}

/// A join row by row, by index: tables that grow while they are filled have no statistics, and without them the whole
/// table would be read for every batch.
fn each_in(table: &str, alias: &str, matching: &str) -> String {
    format!("CROSS JOIN LATERAL (SELECT * FROM {table} {alias} WHERE {matching} OFFSET 0) {alias}")
}

fn natural(name: &str, cells: &str, typed: &[String], same_key: &str) -> String {
    format!(
        "SELECT i.row_id, t.row_id, {cells} FROM json_to_recordset($1::text::json) AS i(row_id bigint, {}) {}",
        typed.join(", "),
        each_in(name, "t", same_key)
    )
}

/// The natural key of a row, compared byte by byte.
fn key(table: &Table) -> String {
    named(table, |column| format!("{column}::text COLLATE \"C\""))
}

/// The row `t` with the key that an entry names, found by the index of the key. What is no such key finds none.
fn keyed(table: &Table, found: &Found, external_id: &str) -> String {
    let one = |(number, at): (usize, &usize)| {
        let column = &table.columns[*at];
        let part = match table.key.len() {
            1 => external_id.to_owned(),
            _ => format!("split_part({external_id}, '/', {})", number + 1),
        };
        let cell = match column.holds {
            Type::Integer => integer(&part),
            _ if table.key.len() == 1 => collated(&part, found, &column.name),
            _ => collated(&format!("replace(replace({part}, '%2F', '/'), '%25', '%')"), found, &column.name),
        };
        format!("t.{} = {cell}", quoted(&column.name))
    };
    table.key.iter().enumerate().map(one).collect::<Vec<_>>().join(" AND ")
}

/// A text that is compared as a column is: the index of another order would be of no use.
fn collated(text: &str, found: &Found, column: &str) -> String {
    let own = found.collations.iter().find(|(name, _)| name == column);
    format!("{text} COLLATE {}", own.map_or("\"default\"", |(_, collation)| collation))
}

/// A row `t` has the natural key of `i`, byte by byte: a column may be compared in a way that takes `k3` for `K3`.
fn same_key(table: &Table) -> String {
    let one = |at: &usize| {
        let column = &table.columns[*at];
        let name = quoted(&column.name);
        let same = format!("t.{name} = i.{name}");
        match column.holds {
            Type::Text => format!("{same} AND t.{name}::text COLLATE \"C\" = i.{name} COLLATE \"C\""),
            _ => same,
        }
    };
    table.key.iter().map(one).collect::<Vec<_>>().join(" AND ")
}

/// A text as a number, where it is one.
fn integer(text: &str) -> String {
    format!(
        "CASE WHEN {text} ~ '^-?[0-9]{{1,18}}$' THEN {text}::bigint
              WHEN {text} ~ '^-?[0-9]{{19}}$' THEN
                CASE WHEN {text}::numeric BETWEEN {} AND {} THEN {text}::bigint END END",
        i64::MIN,
        i64::MAX
    )
}

fn delete(name: &str, table: &Table, found: &Found, key: &str) -> String {
    format!(
        "DELETE FROM {name} t USING unnest($1::bigint[], $2::text[]) AS i(row_id, external_id)
         WHERE {} AND t.row_id = i.row_id AND {key} = i.external_id",
        keyed(table, found, "i.external_id")
    )
}

fn update(name: &str, all: &[String], typed: &[String], same_key: &str) -> String {
    let each = |form: &dyn Fn(&String) -> String| all.iter().map(form).collect::<Vec<_>>().join(", ");
    format!(
        "UPDATE {name} t SET {}, missing_since = i.missing_since,
           updated_at = CASE WHEN ({}) IS DISTINCT FROM ({}) THEN $2::text::timestamptz ELSE t.updated_at END
         FROM json_to_recordset($1::text::json) AS i(row_id bigint, missing_since timestamptz, {})
         WHERE t.row_id = i.row_id AND {same_key}",
        each(&|name| format!("{name} = i.{name}")),
        each(&|name| format!("t.{name}")),
        each(&|name| format!("i.{name}")),
        typed.join(", "),
    )
}

fn sum(name: &str, own: &str) -> String {
    format!(
        "SELECT c.external_id, c.internal_id, left(c.checksum, 8), {SEEN_MS} FROM sync_cache c
         WHERE c.table_name = $1 AND EXISTS(SELECT 1 FROM {name} t WHERE {own})"
    )
}

impl Sql {
    /// A statement that reserves so many row ids.
    pub fn reserve(&self, count: usize) -> String {
        ids::reserve(&self.literal, count)
    }

    pub fn new(table: &Table, found: &Found) -> Self {
        let name = quoted(&table.name);
        let (places, mut selected) = selection(table, found);
        let count = selected.len();
        selected.push(instant("t.missing_since"));
        let cells = selected.join(", ");
        let all: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
        let typed: Vec<String> = table
            .columns
            .iter()
            .zip(&all)
            .map(|(column, name)| format!("{name} {}", native(column.holds)))
            .collect();
        let same_key = same_key(table);
        let seen_ms = SEEN_MS;
        let range = "c.table_name = $1 AND c.external_id >= $2 AND ($3::text IS NULL OR c.external_id > $3)
                     AND ($4::text IS NULL OR c.external_id < $4)";
        let key = key(table);
        let own = format!("t.row_id = c.internal_id AND {key} = c.external_id");
        let row = each_in(&name, "t", &format!("{} AND {own}", keyed(table, found, "c.external_id")));
        let joined = format!("FROM sync_cache c {row}");
        let entry = each_in("sync_cache", "c", "c.table_name = $1 AND c.external_id = i.external_id");
        let into = format!("COPY {name}(row_id, created_at, updated_at, missing_since, {})", all.join(", "));
        Sql {
            absent: found.columns.is_empty(),
            list_keys: format!(
                "SELECT c.external_id, c.internal_id, c.checksum, {seen_ms} {joined} WHERE {range}
                 ORDER BY c.external_id LIMIT $5"
            ),
            list_values: format!(
                "SELECT c.external_id, c.internal_id, c.checksum, {seen_ms}, {cells} {joined} WHERE {range}
                 ORDER BY c.external_id LIMIT $5"
            ),
            sum: sum(&name, &own),
            held: format!(
                "SELECT i.at, c.internal_id, c.checksum, {seen_ms}, {cells}
                 FROM unnest($2::text[]) WITH ORDINALITY AS i(external_id, at) {entry} {row}"
            ),
            any_unlisted: any_unlisted(table, &own),
            natural: natural(&name, &cells, &typed, &same_key),
            update: update(&name, &all, &typed, &same_key),
            copy: format!("{into} FROM STDIN"),
            copy_binary: format!("{into} FROM STDIN BINARY"),
            literal: name.replace('\'', "''"),
            delete: delete(&name, table, found, &key),
            places,
            selected: count,
        }
    }

    /// The cells of a row whose selection begins at column `from`.
    pub fn cells(&self, table: &Table, row: &Row, from: usize) -> Cells<'static> {
        let mut cells = Vec::with_capacity(table.columns.len());
        for (column, place) in table.columns.iter().zip(&self.places) {
            let cell = place.and_then(|place| {
                let at = from + place;
                match column.holds {
                    Type::Text | Type::Instant | Type::Json => {
                        row.get::<_, Option<String>>(at).map(|text| Cell::Text(text.into()))
                    }
                    Type::Integer => row.get::<_, Option<i64>>(at).map(Cell::Integer),
                    Type::Real => row.get::<_, Option<f64>>(at).map(Cell::Real),
                    Type::Boolean => row.get::<_, Option<bool>>(at).map(Cell::Boolean),
                }
            });
            cells.push(cell.unwrap_or(Cell::Null));
        }
        Cells { cells, missing_since: row.get(from + self.selected) }
    }
}
