//! What tables look like, in any database: columns with the types databases have, keys, and what of a stored layout
//! may change. Growing is done; anything that would lose data is refused with the reason.

use serde_json::{Value, json};

use crate::config::{ColumnKind, RESERVED, TableSpec, natural_key_index};
use crate::error::{Error, Kind, Result};
use crate::postgres::quoted;
use crate::shape::canonical;

/// What a column holds, as databases tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Text,
    Integer,
    Real,
    Boolean,
    /// An instant; in text form RFC 3339 with milliseconds, in UTC.
    Instant,
    Json,
}

impl Type {
    fn of(kind: &ColumnKind) -> Self {
        match kind {
            ColumnKind::Text | ColumnKind::Enum { .. } => Type::Text,
            ColumnKind::Integer => Type::Integer,
            ColumnKind::Real => Type::Real,
            ColumnKind::Boolean => Type::Boolean,
            ColumnKind::Timestamp | ColumnKind::MsDate => Type::Instant,
            ColumnKind::Json => Type::Json,
        }
    }

    /// Told as a JSON string.
    pub fn is_text(self) -> bool {
        matches!(self, Type::Text | Type::Instant)
    }

    pub fn name(self) -> &'static str {
        match self {
            Type::Text => "text",
            Type::Integer => "integer",
            Type::Real => "real",
            Type::Boolean => "boolean",
            Type::Instant => "instant",
            Type::Json => "json",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub holds: Type,
    pub index: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    /// Places of the key's columns.
    pub key: Vec<usize>,
    /// Places of all columns by name, as canonical JSON has them.
    pub sorted: Vec<usize>,
    pub schema_version: i64,
}

impl Table {
    pub fn new(spec: &TableSpec) -> Self {
        let columns: Vec<Column> = spec
            .columns
            .iter()
            .map(|column| Column {
                name: column.name.clone(),
                holds: Type::of(&column.kind),
                index: column.index.clone(),
            })
            .collect();
        let place = |name: &String| columns.iter().position(|column| column.name == *name);
        let key = spec.key.iter().filter_map(place).collect();
        let mut sorted: Vec<usize> = (0..columns.len()).collect();
        sorted.sort_by(|a, b| columns[*a].name.cmp(&columns[*b].name));
        Table { name: spec.name.clone(), key, sorted, columns, schema_version: 1 }
    }

    /// The layout as it is written down beside the tables.
    pub fn description(&self) -> String {
        let columns: Vec<Value> =
            self.columns.iter().map(|column| json!([column.name, column.holds.name()])).collect();
        let key: Vec<&str> = self.key.iter().map(|at| self.columns[*at].name.as_str()).collect();
        let text = canonical::to_vec(&json!({ "columns": columns, "key": key }));
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// What is in the database: the layout written down there, and the columns a table really has.
#[derive(Debug, Default)]
pub struct Found {
    pub described: Option<(i64, String)>,
    /// Name and type as the database calls it; empty = no such table.
    pub columns: Vec<(String, String)>,
    /// How the database compares a column, where that is not for every column the same.
    pub collations: Vec<(String, String)>,
    /// It is a view, or whatever else has columns.
    pub is_no_table: bool,
}

/// What must be done so that a table is as the recipe says.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    Create,
    /// Places of columns to add, perhaps none; the layout is written down with this version.
    Grow(Vec<usize>, i64),
    /// Places of columns somebody took away: their values are to be written again.
    Mend(Vec<usize>, i64),
    Nothing,
}

/// Compare. `native` says what the database calls a type. Refuses what would lose data.
pub fn compare(table: &Table, found: &Found, native: impl Fn(Type) -> &'static str) -> Result<Change> {
    if found.columns.is_empty() {
        return Ok(Change::Create);
    }
    let really =
        |name: &str| found.columns.iter().find(|(column, _)| column == name).map(|(_, native)| native);
    is_ours(table, found)?;
    if let Some((_, described)) = &found.described {
        keeps(table, described, |name| really(name).is_some())?;
    }
    let mut missing = Vec::new();
    for (at, column) in table.columns.iter().enumerate() {
        match really(&column.name) {
            None => missing.push(at),
            Some(kind) if kind.eq_ignore_ascii_case(native(column.holds)) => {}
            Some(kind) => {
                let message =
                    format!("`{}` is {kind} and would become {}", column.name, native(column.holds));
                return Err(refuse(table, message).remedy_is(
                    "Give the column its type back in the database, or another name in the recipe.",
                ));
            }
        }
    }
    // Names and types as a description has them.
    let is_lost =
        |at: &usize, described: &str| described.contains(&format!("[\"{}\",", table.columns[*at].name));
    Ok(match &found.described {
        Some((_, described)) if missing.is_empty() && *described == table.description() => Change::Nothing,
        Some((version, described)) if *described == table.description() => Change::Mend(missing, *version),
        Some((version, described)) if missing.iter().any(|at| is_lost(at, described)) => {
            Change::Mend(missing, version + 1)
        }
        Some((version, _)) => Change::Grow(missing, version + 1),
        None => Change::Grow(missing, 1),
    })
}

/// A table with the columns that every table of ours has.
fn is_ours(table: &Table, found: &Found) -> Result<()> {
    let name = &table.name;
    if found.is_no_table {
        return Err(Error::new(Kind::Config, format!("what is called {name} in the database is no table"))
            .remedy_is("Give the resource another name, or what is there."));
    }
    let is_lost = |own: &&&str| !found.columns.iter().any(|(column, _)| column == **own);
    match RESERVED.iter().find(is_lost) {
        None => Ok(()),
        Some(lost) if found.described.is_some() => {
            Err(Error::new(Kind::Config, format!("the table {name} has lost its column `{lost}`"))
                .remedy_is("Put the column back, or drop the table to have it made and filled anew."))
        }
        Some(_) => Err(refuse(table, "there is a table of that name that trueup did not make".to_owned())
            .remedy_is("Give the resource another name, or move the table away.")),
    }
}

/// What brings a table to its layout, statement by statement; the table learns its version.
pub fn steps(
    table: &mut Table,
    found: &Found,
    change: Change,
    create: fn(&Table) -> String,
    native: fn(Type) -> &'static str,
) -> Vec<String> {
    let mut steps = Vec::new();
    table.schema_version = match change {
        Change::Nothing => found.described.as_ref().map_or(1, |(version, _)| *version),
        Change::Create => {
            steps.push(create(table));
            1
        }
        Change::Grow(missing, version) => {
            steps.extend(missing.into_iter().map(|at| added(table, at, native)));
            version
        }
        Change::Mend(missing, version) => {
            steps.extend(missing.into_iter().map(|at| added(table, at, native)));
            // No row is what its cache entry says any more.
            let name = table.name.replace('\'', "''");
            steps.push(format!("UPDATE sync_cache SET checksum = '' WHERE table_name = '{name}'"));
            version
        }
    };
    steps.extend(indexes(table));
    steps
}

fn added(table: &Table, at: usize, native: fn(Type) -> &'static str) -> String {
    let (name, column) = (quoted(&table.name), &table.columns[at]);
    format!("ALTER TABLE {name} ADD COLUMN {} {}", quoted(&column.name), native(column.holds))
}

/// The unique natural key and the indexes of the recipe, as both databases write them.
fn indexes(table: &Table) -> Vec<String> {
    let name = quoted(&table.name);
    let key: Vec<String> = table.key.iter().map(|at| quoted(&table.columns[*at].name)).collect();
    let unique = quoted(&natural_key_index(&table.name));
    let mut all = vec![format!("CREATE UNIQUE INDEX IF NOT EXISTS {unique} ON {name}({})", key.join(", "))];
    all.extend(table.columns.iter().filter_map(|column| {
        let index = quoted(column.index.as_ref()?);
        Some(format!("CREATE INDEX IF NOT EXISTS {index} ON {name}({})", quoted(&column.name)))
    }));
    all
}

/// The unique index keeps a row from being there twice, but where its name is taken it was not made. `unique` = the columns
/// of each unique index that the table has.
pub fn check_key<'a>(table: &Table, unique: impl IntoIterator<Item = &'a Vec<String>>) -> Result<()> {
    let mut key: Vec<&str> = table.key.iter().map(|at| table.columns[*at].name.as_str()).collect();
    key.sort_unstable();
    let is_key = |columns: &&Vec<String>| {
        let mut columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        columns.sort_unstable();
        columns == key
    };
    if unique.into_iter().any(|columns| is_key(&columns)) {
        return Ok(());
    }
    let index = natural_key_index(&table.name);
    let message = format!(
        "the table {} has no unique index on its key ({}), and something else is called {index}",
        table.name,
        key.join(", ")
    );
    Err(Error::new(Kind::Config, message)
        .remedy_is(format!("Rename or drop what is called {index}, then run again.")))
}

/// The natural key of a row `t` as its cache entry has it, in the SQL of both databases; `text` says how a column becomes
/// text there. Ids are given anew when a table is made anew or emptied: only a row with the entry's own key is its row.
pub fn named(table: &Table, text: impl Fn(&str) -> String) -> String {
    let part = |at: &usize| {
        let column = &table.columns[*at];
        let text = text(&format!("t.{}", quoted(&column.name)));
        match column.holds {
            Type::Text if table.key.len() > 1 => {
                format!("replace(replace({text}, '%', '%25'), '/', '%2F')")
            }
            _ => text,
        }
    };
    table.key.iter().map(part).collect::<Vec<_>>().join(" || '/' || ")
}

/// Whether a table has rows without a cache entry; `own` says which row `t` is that of an entry `c`.
pub fn any_unlisted(table: &Table, own: &str) -> String {
    format!(
        "SELECT EXISTS(SELECT 1 FROM {} t WHERE NOT EXISTS(
           SELECT 1 FROM sync_cache c WHERE c.table_name = '{}' AND {own}))",
        quoted(&table.name),
        table.name.replace('\'', "''")
    )
}

/// The key stays, and so does every column that is still there.
fn keeps(table: &Table, described: &str, is_there: impl Fn(&str) -> bool) -> Result<()> {
    let old: Value = serde_json::from_str(described)
        .map_err(|error| Error::new(Kind::Corrupt, "sync_schema cannot be read").caused_by(error))?;
    let new: Value = serde_json::from_str(&table.description()).unwrap_or_default();
    if old["key"] != new["key"] {
        return Err(refuse(table, format!("its key is {} and would become {}", old["key"], new["key"]))
            .remedy_is("Give the resource another name in the recipe; the old table keeps its data."));
    }
    for column in old["columns"].as_array().into_iter().flatten() {
        let (name, kind) = (column[0].as_str().unwrap_or_default(), column[1].as_str().unwrap_or_default());
        match table.columns.iter().find(|column| column.name == name) {
            Some(column) if column.holds.name() != kind => {
                let message = format!("`{name}` holds {kind} and would hold {}", column.holds.name());
                return Err(refuse(table, message));
            }
            None if is_there(name) => {
                let remedy = format!(
                    "Keep it in the recipe, or give the data up: ALTER TABLE {} DROP COLUMN {name}; then run again.",
                    table.name
                );
                return Err(refuse(table, format!("`{name}` is no longer in the recipe")).remedy_is(remedy));
            }
            _ => {}
        }
    }
    Ok(())
}

fn refuse(table: &Table, why: String) -> Error {
    Error::new(
        Kind::Config,
        format!("the table {} cannot change like this, data would be lost: {why}", table.name),
    )
    .remedy_is("Give the column another name in the recipe; the old one keeps its data.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ColumnSpec, JsonPath};

    fn table(columns: &[(&str, ColumnKind)]) -> Table {
        let columns = columns.iter().map(|(name, kind)| ColumnSpec {
            name: (*name).into(),
            path: JsonPath::parse(name),
            kind: kind.clone(),
            optional: false,
            index: None,
            parent: None,
        });
        Table::new(&TableSpec { name: "t".into(), key: vec!["id".into()], columns: columns.collect() })
    }

    fn found(of: &Table) -> Found {
        let mut columns: Vec<(String, String)> =
            of.columns.iter().map(|column| (column.name.clone(), column.holds.name().to_owned())).collect();
        columns.extend(RESERVED.map(|name| (name.to_owned(), "any".to_owned())));
        Found { described: Some((3, of.description())), columns, ..Found::default() }
    }

    #[test]
    fn a_table_grows_and_never_shrinks() {
        use ColumnKind::{Integer, Real, Text};
        let old = table(&[("id", Integer), ("a", Text)]);
        let change = |new: &Table, found: &Found| compare(new, found, Type::name);
        assert_eq!(change(&old, &Found::default()).unwrap(), Change::Create);
        assert_eq!(change(&old, &found(&old)).unwrap(), Change::Nothing);
        let wider = table(&[("id", Integer), ("a", Text), ("b", Real)]);
        assert_eq!(change(&wider, &found(&old)).unwrap(), Change::Grow(vec![2], 4));
        for narrower in [
            table(&[("id", Integer)]),
            table(&[("id", Integer), ("a", Integer)]),
            table(&[("id", Text), ("a", Text)]),
        ] {
            assert_eq!(change(&narrower, &found(&old)).unwrap_err().kind(), Kind::Config);
        }
        let mut dropped = found(&old);
        dropped.columns.retain(|(name, _)| name != "a");
        assert_eq!(change(&old, &dropped).unwrap(), Change::Mend(vec![1], 3));
        assert_eq!(change(&table(&[("id", Integer)]), &dropped).unwrap(), Change::Grow(vec![], 4));
    }

    #[test]
    fn a_layout_that_is_refused_comes_with_what_to_do() {
        use ColumnKind::{Integer, Text};
        let old = table(&[("id", Integer), ("a", Text)]);
        let without = |column: &str, described: bool| {
            let mut lost = found(&old);
            lost.columns.retain(|(name, _)| name != column);
            lost.described = lost.described.filter(|_| described);
            lost
        };
        let mut retyped = found(&old);
        retyped.columns[1].1 = "blob".into();
        let mut key = table(&[("id", Integer), ("a", Text)]);
        key.key = vec![1];
        for (new, found, remedy) in [
            (&old, without("missing_since", true), "Put the column back"),
            (&old, without("row_id", true), "Put the column back"),
            (&old, without("updated_at", false), "move the table away"),
            (&old, Found { is_no_table: true, ..found(&old) }, "another name, or what is there"),
            (&old, retyped, "its type back"),
            (&key, found(&old), "Give the resource another name"),
            (&table(&[("id", Integer), ("a", Integer)]), found(&old), "Give the column another name"),
        ] {
            let error = compare(new, &found, Type::name).unwrap_err();
            assert_eq!(error.kind(), Kind::Config);
            assert!(error.remedy().contains(remedy), "{remedy}: {error} {}", error.remedy());
        }
    }
}
