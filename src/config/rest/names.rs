//! Names a recipe gives to tables and indexes. In PostgreSQL all of them share one room and are cut at 63 bytes: of two
//! things with one name the second would be left out, and with an index the proof that no row is there twice.

use std::collections::HashMap;

use super::super::reader::{Field, repeated};
use super::column::{NAME_MAX, is_sql_name};
use super::{ColumnSpec, natural_key_index};

/// What trueup makes in every database.
const OWN: [&str; 4] = ["sync_cache", "sync_schema", "sync_schema_pkey", "by_table_and_external_id"];
/// What PostgreSQL makes with a table.
const MADE_ALONG: [&str; 2] = ["_pkey", "_row_id_seq"];

pub struct Names(HashMap<String, String>);

impl Names {
    pub fn new() -> Self {
        Names(OWN.map(|name| (name.to_owned(), "trueup's own".to_owned())).into())
    }

    /// A table, with what is called after it.
    pub fn table(&mut self, field: &Field<'_>, name: &str) -> Option<()> {
        let index = natural_key_index(name);
        if is_sql_name(name) && index.len() > NAME_MAX {
            let most = NAME_MAX - (index.len() - name.len());
            field.wrong_with(
                format!("a resource cannot be called `{}`", repeated(name)),
                format!("{most} bytes at most: the index of its key is called after it, in {NAME_MAX}"),
            );
            return None;
        }
        let system = name.starts_with("sqlite_") || name.starts_with("pg_");
        if !is_sql_name(name) || system || self.0.contains_key(name) {
            let note = "a-z, 0-9 and `_`; once; and not a name the database or trueup uses";
            field.wrong_with(format!("a resource cannot be called `{}`", repeated(name)), note);
            return None;
        }
        self.0.insert(name.to_owned(), format!("that of the table {name}"));
        self.claim(field, index, format!("that of the key of {name}"))?;
        MADE_ALONG.iter().try_for_each(|end| {
            self.claim(field, format!("{name}{end}"), format!("that of a part of the table {name}"))
        })
    }

    /// The indexes of a table's columns.
    pub fn indexes(&mut self, field: &Field<'_>, columns: &[ColumnSpec]) -> Option<()> {
        for column in columns {
            let Some(index) = &column.index else { continue };
            let at = field.at(&column.name).and_then(|column| column.at("index"));
            self.claim(at.as_ref().unwrap_or(field), index.clone(), format!("that of `{}`", column.name))?;
        }
        Some(())
    }

    fn claim(&mut self, field: &Field<'_>, name: String, whose: String) -> Option<()> {
        if let Some(taken) = self.0.get(&name) {
            let note =
                format!("tables and indexes share their names, and this one is {taken}; give it another");
            field.wrong_with(format!("an index cannot be called `{name}`"), note);
            return None;
        }
        self.0.insert(name, whose);
        Some(())
    }
}
