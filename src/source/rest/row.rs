//! From an item of an answer to a row: stripped, declared columns picked, words and dates converted, nulls dropped,
//! written as canonical JSON. Two items that mean the same row give the same bytes.
//!
//! An item that does not fit its columns is refused with the column and the reason; it never becomes half a row.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::SignedDuration;
use jiff::Timestamp;
use jiff::civil::{DateTime, date};
use serde_json::Value;

use super::item::{Item, Wanted};
use crate::clock::{self, rfc3339_ms};
use crate::config::{ColumnKind, ColumnSpec, TableSpec};
use crate::error::{Error, Kind, Result};
use crate::shape::canonical::{self, EXACT_MAX};

/// Where the number goes in the word for an unknown one.
const NUMBER: &str = "{n}";
/// Longest piece of a misfit that a message repeats.
const SHOWN_MAX: usize = 60;

/// What a parent's row lends to its children, by column.
pub type Lent = BTreeMap<String, Value>;

/// A table's columns in the order canonical JSON has them.
pub struct Picker {
    table: TableSpec,
    sorted: Vec<usize>,
    strip: Vec<String>,
    pub wanted: Wanted,
}

/// A row, and what children may need of it.
#[derive(Debug, Default)]
pub struct Row {
    pub bytes: Vec<u8>,
    /// Numbers that stand for no word, by column.
    pub unknown: Vec<(String, i64)>,
}

impl Picker {
    pub fn new(table: &TableSpec, strip: &[String]) -> Self {
        let mut sorted: Vec<usize> = (0..table.columns.len()).collect();
        sorted.sort_by(|a, b| table.columns[*a].name.cmp(&table.columns[*b].name));
        let wanted = Wanted::of(table.columns.iter().map(|column| &column.path));
        Picker { table: table.clone(), sorted, strip: strip.to_vec(), wanted }
    }

    /// The natural key, its parts joined by `/`. In a key of several parts a `/` of their own is escaped.
    pub fn external_id(&self, item: &Item, lent: &Lent) -> Result<String> {
        let mut id = String::new();
        for name in &self.table.key {
            let column = self.table.column(name).ok_or_else(|| Error::bug("a key without its column"))?;
            let part = match self.find(column, item, lent) {
                Some(Value::String(text)) if column.kind == ColumnKind::Text && !text.is_empty() => {
                    text.clone()
                }
                Some(value @ Value::Number(_)) if column.kind == ColumnKind::Integer => {
                    whole(value).map_err(|why| misfit(column, why))?.to_string()
                }
                Some(other) => return Err(misfit(column, format!("{} is no key", shown(other)))),
                None => return Err(misfit(column, "it names the item, and is missing".to_owned())),
            };
            if !id.is_empty() {
                id.push('/');
            }
            match self.table.key.len() {
                1 => id.push_str(&part),
                _ => id.push_str(&part.replace('%', "%25").replace('/', "%2F")),
            }
        }
        Ok(id)
    }

    pub fn row(&self, item: &Item, lent: &Lent) -> Result<Row> {
        let mut row = Row { bytes: Vec::with_capacity(256), unknown: Vec::new() };
        self.row_into(&mut row, item, lent)?;
        Ok(row)
    }

    /// The same behind what is there already.
    pub fn row_into(&self, row: &mut Row, item: &Item, lent: &Lent) -> Result<()> {
        row.bytes.push(b'{');
        for at in &self.sorted {
            let column = &self.table.columns[*at];
            let Some(value) = self.find(column, item, lent) else {
                if column.optional {
                    continue;
                }
                return Err(misfit(column, "it is missing".to_owned()));
            };
            if row.bytes.len() > 1 {
                row.bytes.push(b',');
            }
            canonical::write_string(&mut row.bytes, &column.name);
            row.bytes.push(b':');
            self.write(row, column, value).map_err(|why| misfit(column, why))?;
        }
        row.bytes.push(b'}');
        Ok(())
    }

    /// What a child may refer to: text and integer columns as they are in the item.
    pub fn lend(&self, item: &Item, lent: &Lent, wanted: &[String]) -> Lent {
        let columns = wanted.iter().filter_map(|name| self.table.column(name));
        columns
            .filter_map(|column| Some((column.name.clone(), self.find(column, item, lent)?.clone())))
            .collect()
    }

    /// The value of a column; null is the same as nothing, and so is what is stripped.
    fn find<'v>(&self, column: &ColumnSpec, item: &'v Item, lent: &'v Lent) -> Option<&'v Value> {
        let stripped = column.path.0.iter().any(|part| self.strip.contains(part));
        let own = if stripped {
            None
        } else {
            self.wanted.find(&column.path, item).filter(|value| !value.is_null())
        };
        own.or_else(|| lent.get(column.parent.as_deref()?)).filter(|value| !value.is_null())
    }

    fn write(&self, row: &mut Row, column: &ColumnSpec, value: &Value) -> Result<(), String> {
        let out = &mut row.bytes;
        match (&column.kind, value) {
            (ColumnKind::Text, Value::String(text)) => canonical::write_string(out, text),
            (ColumnKind::Integer, Value::Number(_)) => canonical::write_integer(out, whole(value)?),
            (ColumnKind::Real, Value::Number(number)) => canonical::write_number(out, number),
            (ColumnKind::Boolean, Value::Bool(_)) => canonical::write(out, value),
            (ColumnKind::Timestamp, Value::String(text)) => canonical::write_string(out, &timestamp(text)?),
            (ColumnKind::MsDate, Value::String(text)) => canonical::write_string(out, &ms_date(text)?),
            (ColumnKind::Enum { names, unknown }, Value::Number(_)) => {
                let number = whole(value)?;
                if let Some(word) = names.get(&number) {
                    canonical::write_string(out, word);
                } else {
                    canonical::write_string(out, &unknown.replace(NUMBER, &number.to_string()));
                    row.unknown.push((column.name.clone(), number));
                }
            }
            (ColumnKind::Json, value) => {
                let mut value = value.clone();
                strip(&mut value, &self.strip);
                exact(&value)?;
                canonical::write(out, &value);
            }
            (kind, other) => return Err(format!("{} is not {}", shown(other), wanted(kind))),
        }
        Ok(())
    }
}

fn wanted(kind: &ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Text => "text",
        ColumnKind::Integer | ColumnKind::Enum { .. } => "an integer",
        ColumnKind::Real => "a number",
        ColumnKind::Boolean => "true or false",
        ColumnKind::Timestamp => "an RFC 3339 instant",
        ColumnKind::MsDate => "a date such as /Date(0)/",
        ColumnKind::Json => "JSON",
    }
}

fn misfit(column: &ColumnSpec, why: String) -> Error {
    Error::new(Kind::Invalid, format!("the column `{}` does not fit: {why}", column.name))
        .remedy_is("Correct the item at its source, or the column in the recipe.")
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    let mut short: String = text.chars().take(SHOWN_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// A whole number that a double holds exactly, as JSON has no other.
fn whole(value: &Value) -> Result<i64, String> {
    let number = value.as_i64().or_else(|| {
        let real = value.as_f64().filter(|real| real.fract() == 0.0 && real.abs() <= EXACT_MAX as f64)?;
        #[allow(clippy::cast_possible_truncation)] // whole and within 2^53
        Some(real as i64)
    });
    match number {
        Some(number) if number.unsigned_abs() <= EXACT_MAX => Ok(number),
        _ => Err(format!("{} is not an integer JSON can hold exactly", shown(value))),
    }
}

/// Numbers that canonical JSON would round.
fn exact(value: &Value) -> Result<(), String> {
    match value {
        Value::Number(number) if number.is_i64() || number.is_u64() => whole(value).map(drop),
        Value::Array(items) => items.iter().try_for_each(exact),
        Value::Object(map) => map.values().try_for_each(exact),
        _ => Ok(()),
    }
}

/// Take fields out, however deep they are.
pub fn strip(value: &mut Value, names: &[String]) {
    match value {
        Value::Object(map) => {
            for name in names {
                map.remove(name);
            }
            map.values_mut().for_each(|inner| strip(inner, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| strip(inner, names)),
        _ => {}
    }
}

fn timestamp(text: &str) -> Result<Cow<'_, str>, String> {
    // Most are in our own form already, and so are as they will be.
    if clock::read_rfc3339_ms(text).is_some() {
        return Ok(Cow::Borrowed(text));
    }
    let at: Timestamp = text.trim().parse().map_err(|_| format!("{text:?} is no RFC 3339 instant"))?;
    Ok(Cow::Owned(rfc3339_ms(at)))
}

/// `/Date(1761256800000+0200)/`: the milliseconds are UTC already.
fn ms_date(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is no date such as /Date(1761256800000+0200)/");
    let inner =
        text.trim().strip_prefix("/Date(").and_then(|rest| rest.strip_suffix(")/")).ok_or_else(wrong)?;
    let sign_at = inner.char_indices().skip(1).find(|(_, c)| matches!(c, '+' | '-')).map(|(at, _)| at);
    let (ms, offset) = inner.split_at(sign_at.unwrap_or(inner.len()));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !(offset.is_empty() || offset.len() == 5 && digits(&offset[1..]))
        || !digits(ms.strip_prefix('-').unwrap_or(ms))
    {
        return Err(wrong());
    }
    let ms: i64 = ms.parse().map_err(|_| wrong())?;
    let epoch: DateTime = date(1970, 1, 1).to_datetime(jiff::civil::Time::midnight());
    let at = epoch
        .checked_add(SignedDuration::from_millis(ms))
        .ok()
        .filter(|at| at.year() >= 1)
        .ok_or_else(wrong)?;
    Ok(at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scenario_16_dates_are_read_by_their_milliseconds_and_garbage_is_refused() {
        for (given, read) in [
            ("/Date(1761256800000+0200)/", Some("2025-10-23T22:00:00.000Z")),
            ("/Date(1761256800000-0700)/", Some("2025-10-23T22:00:00.000Z")),
            ("/Date(1761256800123)/", Some("2025-10-23T22:00:00.123Z")),
            ("/Date(0)/", Some("1970-01-01T00:00:00.000Z")),
            ("/Date(-1)/", Some("1969-12-31T23:59:59.999Z")),
            ("/Date(-62135596800000+0100)/", Some("0001-01-01T00:00:00.000Z")),
            ("/Date(253402300799999)/", Some("9999-12-31T23:59:59.999Z")),
            ("/Date(253402300800000)/", None),
            ("/Date(-62135596800001)/", None),
            ("/Date(99999999999999999999)/", None),
            ("/Date()/", None),
            ("/Date(-)/", None),
            ("/Date(1+02)/", None),
            ("/Date(1+02:0)/", None),
            ("/Date(12x)/", None),
            ("Date(0)", None),
            ("2025-10-23", None),
            ("", None),
        ] {
            assert_eq!(ms_date(given).ok().as_deref(), read, "{given}");
        }
        assert_eq!(timestamp("2025-10-24T00:00:00+02:00").unwrap(), "2025-10-23T22:00:00.000Z");
        assert!(timestamp("yesterday").is_err());
    }

    #[test]
    fn whole_numbers_are_exact_or_refused() {
        for (given, read) in [
            (json!(-1), Some(-1)),
            (json!(5.0), Some(5)),
            (json!(9_007_199_254_740_992_u64), Some(9_007_199_254_740_992)),
            (json!(9_007_199_254_740_993_u64), None),
            (json!(1.5), None),
            (json!(1e300), None),
        ] {
            assert_eq!(whole(&given).ok(), read, "{given}");
        }
    }

    #[test]
    fn stripping_reaches_every_depth() {
        let mut value = json!({"v": 1, "a": [{"v": 2, "b": {"v": 3, "c": 4}}]});
        strip(&mut value, &["v".to_owned()]);
        assert_eq!(value, json!({"a": [{"b": {"c": 4}}]}));
    }
}
