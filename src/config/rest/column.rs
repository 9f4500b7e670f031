//! One column of a resource: `"integer"`, `"text?"`, or a table that says more.

use std::collections::BTreeMap;

use super::super::reader::{Field, Keys, repeated};
use super::{ColumnKind, ColumnSpec, JsonPath, RESERVED};

pub const COLUMN_KEYS: Keys = &["type", "path", "optional", "index", "parent", "enum", "unknown"];

/// What PostgreSQL keeps of a name.
pub const NAME_MAX: usize = 63;
/// What a number without a word becomes.
const UNKNOWN: &str = "unknown_{n}";
/// Where the number goes in it.
pub const NUMBER: &str = "{n}";

const KINDS: [(&str, ColumnKind); 7] = [
    ("text", ColumnKind::Text),
    ("integer", ColumnKind::Integer),
    ("real", ColumnKind::Real),
    ("boolean", ColumnKind::Boolean),
    ("timestamp", ColumnKind::Timestamp),
    ("ms_date", ColumnKind::MsDate),
    ("json", ColumnKind::Json),
];
const EXPECTED: &str =
    "a type: text, integer, real, boolean, timestamp, ms_date or json, with `?` when it may be absent";

/// Names of tables and columns: the same in every database, without quotes.
pub fn is_sql_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= NAME_MAX
        && bytes.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

pub fn read(name: &str, field: &Field<'_>) -> Option<ColumnSpec> {
    if !is_sql_name(name) {
        let note = "give it such a name and `path = \"…\"`";
        field.wrong_with(format!("a column is named with a-z, 0-9 and `_`, not `{}`", repeated(name)), note);
        return None;
    }
    if RESERVED.contains(&name) {
        field.wrong_with(
            format!("every table has a column `{name}` of its own"),
            "give it another name and `path = \"…\"`",
        );
        return None;
    }
    if let Some(text) = field.as_text() {
        let (word, optional) = text.strip_suffix('?').map_or((text, false), |word| (word, true));
        let kind = kind(field, word)?;
        return Some(ColumnSpec {
            name: name.to_owned(),
            path: JsonPath::parse(name),
            kind,
            optional,
            index: None,
            parent: None,
        });
    }
    table(name, field)
}

fn table(name: &str, field: &Field<'_>) -> Option<ColumnSpec> {
    let reader = field.table(COLUMN_KEYS, EXPECTED)?;
    let word = reader.take("type").and_then(|field| Some((field.clone(), field.text(EXPECTED)?)));
    let (word, marked) = match word {
        Some((field, text)) => {
            let (word, marked) = text.strip_suffix('?').map_or((text, false), |word| (word, true));
            (Some((field, word)), marked)
        }
        None => (None, false),
    };
    let kind = match (reader.take("enum"), word) {
        (Some(names), None) => enumeration(&names, reader.take("unknown").as_ref())?,
        (Some(names), Some(_)) => {
            names.wrong("a column has `enum` or `type`, not both");
            return None;
        }
        (None, Some((field, word))) => kind(&field, word)?,
        (None, None) => {
            reader.require("type", EXPECTED);
            return None;
        }
    };
    let text =
        |key, expected: &str| reader.take(key).and_then(|field| field.text(expected).map(str::to_owned));
    let index = match reader.take("index") {
        Some(field) => Some(
            field
                .text("the name of an index")
                .filter(|name| {
                    is_sql_name(name) || field.unexpected::<()>("a name of a-z, 0-9 and `_`").is_some()
                })?
                .to_owned(),
        ),
        None => None,
    };
    Some(ColumnSpec {
        name: name.to_owned(),
        path: JsonPath::parse(
            &text("path", "a path such as \"author.name\"").unwrap_or_else(|| name.to_owned()),
        ),
        kind,
        optional: marked || reader.take("optional").and_then(|field| field.boolean()).unwrap_or(false),
        index,
        parent: text("parent", "a column of the parent resource"),
    })
}

fn kind(field: &Field<'_>, word: &str) -> Option<ColumnKind> {
    match KINDS.iter().find(|(name, _)| *name == word) {
        Some((_, kind)) => Some(kind.clone()),
        None => field.unexpected(EXPECTED),
    }
}

fn enumeration(field: &Field<'_>, unknown: Option<&Field<'_>>) -> Option<ColumnKind> {
    const WORDS: &str = "words by number, such as { 1 = \"open\", 2 = \"closed\" }";
    let mut names = BTreeMap::new();
    for key in field.keys() {
        let Some(item) = field.at(key) else { continue };
        let Ok(number) = key.parse::<i64>() else { return field.unexpected(WORDS) };
        names.insert(number, item.text("a word")?.to_owned());
    }
    if names.is_empty() {
        return field.unexpected(WORDS);
    }
    let unknown = match unknown {
        Some(field) => field
            .text("a word with {n}")
            .filter(|text| text.contains(NUMBER))
            .or_else(|| field.unexpected("a word with {n} in it"))?,
        None => UNKNOWN,
    };
    Some(ColumnKind::Enum { names, unknown: unknown.to_owned() })
}
