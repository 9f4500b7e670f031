//! `as = "rows"` and `into = { tables = … }`: rows with typed columns, in tables a person can query.

use super::model::{Address, Database, OnMissing, Place, RowsSpec, ShapeSpec, StoreSpec};
use super::reader::{Field, Keys};
use super::redact;
use super::source::Around;

pub const ROWS_KEYS: Keys = &["on_missing"];
pub const TABLES_KEYS: Keys = &["tables", "password_env", "password_file"];

const EXPECTED: &str = "the URL of a database: sqlite:PATH or postgres://…";

pub fn read(settings: Option<&Field<'_>>) -> Option<ShapeSpec> {
    const CHOICES: [(&str, OnMissing); 2] = [("mark", OnMissing::Mark), ("delete", OnMissing::Delete)];
    let mut on_missing = OnMissing::Mark;
    if let Some(field) = settings {
        let reader = field.table(ROWS_KEYS, "a table such as { on_missing = \"mark\" }")?;
        if let Some(field) = reader.take("on_missing") {
            on_missing = field.choice(&CHOICES)?;
        }
    }
    Some(ShapeSpec::Rows(RowsSpec { on_missing }))
}

/// `{ tables = "sqlite:…" }`
pub fn target(field: &Field<'_>, around: &Around<'_>) -> Option<StoreSpec> {
    let reader = field.table(TABLES_KEYS, EXPECTED)?;
    let password = reader.secret("password_env", "password_file", around.base);
    let url_field = reader.require("tables", EXPECTED)?;
    let url = url_field.text(EXPECTED)?;
    let database = if let Some(path) = url.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
        Database::Sqlite(around.base.resolve(path))
    } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        Database::Postgres(Address::new(url))
    } else {
        return url_field.unexpected(EXPECTED);
    };
    Some(StoreSpec {
        name: redact::url(url),
        place: Place::Tables(database),
        secrets: password.into_iter().map(|secret| ("password".to_owned(), secret)).collect(),
        options: std::collections::BTreeMap::new(),
    })
}
