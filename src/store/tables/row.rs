//! Between a row as JSON and a row as cells. What goes in comes out byte for byte: canonical JSON is written from the
//! cells alone, so a row altered in the database gives other bytes.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use super::canon;
use super::layout::{Table, Type};
use crate::error::{Error, Kind, Result};
use crate::record::{Fingerprint, Version};
use crate::shape::canonical;
use crate::shape::rows::MISSING_SINCE;
use crate::store::{Item, Op, Sum};

#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Boolean(bool),
    /// Text, an instant, or canonical JSON.
    Text(Cow<'a, str>),
}

/// The cells of a row in the order of the table's columns, and its mark.
#[derive(Debug, Clone, PartialEq)]
pub struct Cells<'a> {
    pub cells: Vec<Cell<'a>>,
    pub missing_since: Option<String>,
}

/// A key taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub table: usize,
    pub external_id: String,
}

/// What the database holds under a key.
#[derive(Debug, Clone)]
pub struct Held {
    pub row_id: i64,
    pub cells: Cells<'static>,
    pub value: Bytes,
    /// Of these very bytes, whatever its cache entry says.
    pub print: Fingerprint,
    pub version: Version,
    /// Its cache entry tells the truth about it.
    fits: bool,
}

/// An item of a write, understood.
#[derive(Debug)]
pub struct Parsed<'a> {
    pub place: Place,
    /// `None` for a delete or a check.
    pub put: Option<(Cells<'a>, Fingerprint)>,
}

impl Parsed<'_> {
    /// The same, beside the item it was read from.
    pub fn into_owned(self) -> Parsed<'static> {
        let owned = |cell| match cell {
            Cell::Null => Cell::Null,
            Cell::Integer(number) => Cell::Integer(number),
            Cell::Real(number) => Cell::Real(number),
            Cell::Boolean(truth) => Cell::Boolean(truth),
            Cell::Text(text) => Cell::Text(Cow::Owned(text.into_owned())),
        };
        let put = self.put.map(|(Cells { cells, missing_since }, print)| {
            (Cells { cells: cells.into_iter().map(owned).collect(), missing_since }, print)
        });
        Parsed { place: self.place, put }
    }
}

/// The table and row a key names; `None` = no table of ours.
pub fn place(tables: &[Table], key: &str) -> Option<Place> {
    let (table, id) = parts(tables, key)?;
    Some(Place { table, external_id: id.to_owned() })
}

/// The table, and the natural key in it.
pub fn parts<'k>(tables: &[Table], key: &'k str) -> Option<(usize, &'k str)> {
    let (name, id) = key.split_once('/')?;
    let table = tables.iter().position(|table| table.name == name)?;
    // PostgreSQL's texts hold no NUL, and no table has other keys than another.
    (!id.is_empty() && !id.contains('\0')).then_some((table, id))
}

pub fn parse<'a>(tables: &[Table], item: &'a Item) -> Result<Parsed<'a>> {
    let invalid = |message: &str| Error::new(Kind::Invalid, message).while_(item.key.clone());
    let place = place(tables, &item.key).ok_or_else(|| invalid("no table of this store has such a key"))?;
    let put = match &item.op {
        Op::Put { value, fingerprint } => {
            let row = understood(&tables[place.table], &place.external_id, value, *fingerprint);
            Some(row.map_err(|why| invalid(&why))?)
        }
        Op::Delete | Op::Check => None,
    };
    Ok(Parsed { place, put })
}

/// A row under its natural key, as cells and with its hash; an error says what is wrong with it.
pub fn understood<'a>(
    table: &Table,
    id: &str,
    value: &'a [u8],
    given: Option<Fingerprint>,
) -> Result<(Cells<'a>, Fingerprint), String> {
    let (cells, canonical) = match Members(table).read(value) {
        Some(cells) => {
            let shortest = canon::is_shortest(table, &cells, value);
            (cells, shortest)
        }
        None => (cells(table, value)?, None),
    };
    // Whoever made the row has hashed these very bytes: only rows go into tables.
    let print = given.unwrap_or_else(|| Fingerprint::of(value));
    debug_assert_eq!(print, Fingerprint::of(value), "the fingerprint of a row is the SHA-256 of its bytes");
    if !canon::is_named(table, &cells, id).unwrap_or_else(|| external_id(table, &cells) == id) {
        return Err("the row's own key is another one".to_owned());
    }
    let canonical = match canonical {
        Some(canonical) => canonical,
        None => bytes(table, &cells)? == value,
    };
    if !canonical {
        return Err("the row is not canonical JSON".to_owned());
    }
    Ok((cells, print))
}

/// Reads a row that is as it should be straight into its cells. Of any other it says nothing.
struct Members<'t>(&'t Table);

impl Members<'_> {
    fn read(self, value: &[u8]) -> Option<Cells<'_>> {
        // Looked through once as a whole, the texts in it need no look of their own.
        let mut json = serde_json::Deserializer::from_str(std::str::from_utf8(value).ok()?);
        let cells = json.deserialize_map(self).ok()?;
        json.end().ok().map(|()| cells)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Cells<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a row of {}", self.0.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Cells<'de>, A::Error> {
        let Table { columns, sorted, .. } = self.0;
        let mut row = Cells { cells: vec![Cell::Null; columns.len()], missing_since: None };
        // They come in the order canonical JSON has them.
        let mut order = sorted.iter();
        while let Some(name) = members.next_key::<&str>()? {
            if name == MISSING_SINCE {
                row.missing_since = Some(members.next_value()?);
                continue;
            }
            let at = order.by_ref().find(|at| columns[**at].name == name);
            let at = *at.ok_or_else(|| A::Error::custom("no such column"))?;
            row.cells[at] = match columns[at].holds {
                Type::Text | Type::Instant => Cell::Text(members.next_value_seed(Text)?),
                Type::Integer => Cell::Integer(members.next_value()?),
                Type::Real => Cell::Real(members.next_value()?),
                Type::Boolean => Cell::Boolean(members.next_value()?),
                Type::Json => {
                    let json = canonical::to_vec(&members.next_value::<Value>()?);
                    Cell::Text(String::from_utf8(json).map_err(A::Error::custom)?.into())
                }
            };
        }
        Ok(row)
    }
}

/// A text where it stands, unless it has to be unescaped.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Cow<'de, str>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// The same for any value, with the reason where it is no row.
fn cells(table: &Table, value: &[u8]) -> Result<Cells<'static>, String> {
    let Ok(Value::Object(mut row)) = serde_json::from_slice(value) else {
        return Err("the value is no JSON object".into());
    };
    let missing_since = match row.remove(MISSING_SINCE) {
        Some(Value::String(since)) => Some(since),
        None => None,
        Some(_) => return Err(format!("`{MISSING_SINCE}` is no instant")),
    };
    let mut cells = Vec::with_capacity(table.columns.len());
    for column in &table.columns {
        cells.push(match (column.holds, row.remove(&column.name)) {
            (_, None) => Cell::Null,
            (Type::Json, Some(value)) => {
                Cell::Text(String::from_utf8_lossy(&canonical::to_vec(&value)).into_owned().into())
            }
            (Type::Text | Type::Instant, Some(Value::String(text))) => Cell::Text(text.into()),
            (Type::Boolean, Some(Value::Bool(truth))) => Cell::Boolean(truth),
            (Type::Integer, Some(Value::Number(number))) if number.is_i64() => {
                Cell::Integer(number.as_i64().unwrap_or_default())
            }
            (Type::Real, Some(Value::Number(number))) => Cell::Real(number.as_f64().unwrap_or_default()),
            (holds, Some(_)) => return Err(format!("`{}` is not {}", column.name, holds.name())),
        });
    }
    match row.keys().next() {
        Some(name) => Err(format!("the table {} has no column `{name}`", table.name)),
        None => Ok(Cells { cells, missing_since }),
    }
}

/// Canonical JSON from the cells.
pub fn bytes(table: &Table, row: &Cells<'_>) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(256);
    out.push(b'{');
    let mut marked = row.missing_since.as_deref();
    for at in &table.sorted {
        let column = &table.columns[*at];
        if column.name.as_str() > MISSING_SINCE
            && let Some(since) = marked.take()
        {
            field(&mut out, MISSING_SINCE);
            canonical::write_string(&mut out, since);
        }
        let cell = &row.cells[*at];
        if *cell == Cell::Null {
            continue;
        }
        field(&mut out, &column.name);
        match (column.holds, cell) {
            (Type::Json, Cell::Text(text)) => {
                let value: Value =
                    serde_json::from_str(text).map_err(|_| format!("`{}` is no JSON", column.name))?;
                canonical::write(&mut out, &value);
            }
            (_, Cell::Text(text)) => canonical::write_string(&mut out, text),
            (_, Cell::Integer(number)) => canonical::write_integer(&mut out, *number),
            (_, Cell::Real(number)) => canonical::write_real(&mut out, *number),
            (_, Cell::Boolean(truth)) => canonical::write(&mut out, &Value::Bool(*truth)),
            (_, Cell::Null) => {}
        }
    }
    if let Some(since) = marked {
        field(&mut out, MISSING_SINCE);
        canonical::write_string(&mut out, since);
    }
    out.push(b'}');
    Ok(out)
}

fn field(out: &mut Vec<u8>, name: &str) {
    if out.len() > 1 {
        out.push(b',');
    }
    canonical::write_string(out, name);
    out.push(b':');
}

/// The natural key, as the source joins it.
pub fn external_id(table: &Table, row: &Cells<'_>) -> String {
    let mut id = String::new();
    for at in &table.key {
        if !id.is_empty() {
            id.push('/');
        }
        match &row.cells[*at] {
            Cell::Text(text) if table.key.len() == 1 => id.push_str(text),
            Cell::Text(text) => id.push_str(&text.replace('%', "%25").replace('/', "%2F")),
            // Writing to a string cannot fail.
            Cell::Integer(number) => drop(write!(id, "{number}")),
            Cell::Null | Cell::Real(_) | Cell::Boolean(_) => {}
        }
    }
    id
}

/// The cells of a natural key, as [`external_id`] joins them; `None` = no row of the table is called so.
pub fn key_of(table: &Table, external_id: &str) -> Option<Vec<Cell<'static>>> {
    let parts: Vec<String> = match table.key.len() {
        1 => vec![external_id.to_owned()],
        _ => external_id.split('/').map(|part| part.replace("%2F", "/").replace("%25", "%")).collect(),
    };
    let cell = |(at, part): (&usize, String)| match table.columns[*at].holds {
        Type::Text => Some(Cell::Text(part.into())),
        Type::Integer => part.parse().ok().map(Cell::Integer),
        _ => None,
    };
    if parts.len() != table.key.len() {
        return None;
    }
    table.key.iter().zip(parts).map(cell).collect()
}

/// The version of a row as the cache tells it: which row, when it was written, what was written.
pub fn version(row_id: i64, seen_ms: i64, checksum: &str) -> Version {
    let mut text = String::with_capacity(40);
    write_version(&mut text, row_id, seen_ms, checksum);
    Version(text)
}

fn write_version(out: &mut String, row_id: i64, seen_ms: i64, checksum: &str) {
    let mut digits = itoa::Buffer::new();
    out.push_str(digits.format(row_id));
    out.push('.');
    out.push_str(digits.format(seen_ms));
    out.push('.');
    out.push_str(checksum.get(..8).unwrap_or(checksum));
}

/// A table's keys and versions, added up without a copy of each.
#[derive(Default)]
pub struct Adding {
    pub sum: Sum,
    key: String,
    version: String,
}

impl Adding {
    pub fn add(&mut self, table: &Table, external_id: &str, row_id: i64, seen_ms: i64, checksum: &str) {
        self.key.clear();
        self.key.push_str(&table.name);
        self.key.push('/');
        self.key.push_str(external_id);
        self.version.clear();
        write_version(&mut self.version, row_id, seen_ms, checksum);
        self.sum.add(&self.key, &self.version);
    }
}

impl Held {
    /// A row that was altered behind our back has another version than the one the cache knows.
    pub fn new(table: &Table, row_id: i64, cells: Cells<'static>, seen_ms: i64, checksum: &str) -> Self {
        let value = bytes(table, &cells).unwrap_or_else(std::string::String::into_bytes);
        let print = Fingerprint::of(&value);
        let mut version = version(row_id, seen_ms, checksum);
        let fits = Fingerprint::parse(checksum) == Some(print);
        if !fits {
            let _ = write!(version.0, "~{}", print.short());
        }
        Held { row_id, cells, value: value.into(), print, version, fits }
    }

    /// There is nothing to do for whoever wants it to be so.
    pub fn is(&self, value: &[u8]) -> bool {
        self.fits && self.value == value
    }
}
