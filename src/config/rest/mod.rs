//! `from = { rest = … }`: an API as resources, in words. Nothing in the code knows any API; a recipe does.
//!
//! A resource is a path, the list in its answer and the columns of its table; it may be asked once per row of another
//! resource. This page says what a recipe means; `read` turns the file into it, `column` one column.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use url::Url;

use crate::secret::SecretRef;

mod column;
mod names;
mod read;

pub use column::COLUMN_KEYS;
pub use read::{AUTH_KEYS, PAGINATION_KEYS, RECIPE_KEYS, RESOURCE_KEYS, REST_KEYS, VERSION_KEYS, read};

/// Requests at the same time: polite to a public server, and enough to hide its distance.
pub const CONCURRENCY: usize = 4;
/// An answer that takes longer is asked for again.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The first request and four more: after 1, 2, 4 and 8 seconds.
pub const ATTEMPTS: u32 = 5;

/// Columns every table has besides its own.
pub const RESERVED: [&str; 4] = ["row_id", "created_at", "updated_at", "missing_since"];

#[derive(Clone, PartialEq, Eq)]
pub struct RestSpec {
    /// Paths are joined to it. May hold a user and a password, so `Debug` shows only its host.
    pub base: Url,
    pub resources: Vec<ResourceSpec>,
    /// Fields taken out of every item, however deep.
    pub strip: Vec<String>,
    pub auth: Option<Auth>,
    pub version: Option<AnswerVersion>,
    pub attempts: u32,
    pub timeout: Duration,
    /// A pause before every request.
    pub delay: Duration,
    pub concurrency: Option<usize>,
    /// Rows in one transaction, unless the pipeline says otherwise.
    pub batch: Option<usize>,
}

impl fmt::Debug for RestSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.resources.iter().map(|resource| resource.table.name.as_str()).collect();
        write!(f, "RestSpec({}, {names:?})", super::redact::origin(self.base.as_str()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    Bearer(SecretRef),
    Header { name: String, value: SecretRef },
    Basic { user: String, password: SecretRef },
}

/// The API's own version, as answers carry it: another major is refused, another minor is worth a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerVersion {
    pub field: JsonPath,
    pub known: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSpec {
    pub table: TableSpec,
    pub path: Vec<Part>,
    /// The resource whose rows this one is asked for; always an earlier one.
    pub parent: Option<usize>,
    /// One more request per value of this parameter.
    pub each: Option<(String, Vec<String>)>,
    pub items: JsonPath,
    pub pagination: Pagination,
}

/// A piece of a path: as it is, or a column of the parent's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(String),
    Parent(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pagination {
    None,
    Page {
        param: String,
        first: u64,
        size: Option<Size>,
    },
    Offset {
        param: String,
        size: Size,
    },
    Cursor {
        field: JsonPath,
        param: String,
    },
    /// `Link: <…>; rel="next"`
    Link,
}

/// How many items a page is asked to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    pub param: String,
    pub per: u64,
}

/// A table: what a store makes of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    pub name: String,
    /// Columns of the natural key, in order.
    pub key: Vec<String>,
    pub columns: Vec<ColumnSpec>,
}

/// The unique index on the natural key of a table.
pub fn natural_key_index(table: &str) -> String {
    format!("{table}_natural_key")
}

impl TableSpec {
    pub fn column(&self, name: &str) -> Option<&ColumnSpec> {
        self.columns.iter().find(|column| column.name == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSpec {
    pub name: String,
    pub path: JsonPath,
    pub kind: ColumnKind,
    pub optional: bool,
    /// The name of an index on this column alone.
    pub index: Option<String>,
    /// The column of the parent's row that stands in where the item itself does not say.
    pub parent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnKind {
    Text,
    Integer,
    Real,
    Boolean,
    /// RFC 3339.
    Timestamp,
    /// `/Date(1761256800000+0200)/`: milliseconds since 1970 in UTC; the offset is for display only.
    MsDate,
    /// Numbers that stand for words; `unknown` has a place `{n}` for a number that stands for none.
    Enum {
        names: BTreeMap<i64, String>,
        unknown: String,
    },
    Json,
}

/// Field names from the outside in; a number is a place in a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JsonPath(pub Vec<String>);

impl JsonPath {
    pub fn parse(text: &str) -> Self {
        JsonPath(text.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }

    pub fn find<'v>(&self, value: &'v serde_json::Value) -> Option<&'v serde_json::Value> {
        JsonPath::find_in(&self.0, value)
    }

    /// The same for the rest of a path.
    pub fn find_in<'v>(path: &[String], value: &'v serde_json::Value) -> Option<&'v serde_json::Value> {
        path.iter().try_fold(value, |value, part| match value {
            serde_json::Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            value => value.get(part),
        })
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}
