//! From an item of an answer to a row: stripped, declared columns picked, words and dates converted, nulls dropped,
//! written as canonical JSON. Two items that mean the same row give the same bytes.
//!
//! An item that does not fit its columns is refused with the column and the reason; it never becomes half a row.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::dates::{ms_date, timestamp};
use super::item::{Found, Item, Place, Wanted};
use super::mend::UNREADABLE;
use crate::config::{ColumnKind, ColumnSpec, TableSpec};
use crate::error::{Error, Kind, Result};
use crate::shape::canonical::{self, EXACT_MAX};

/// Where the number goes in the word for an unknown one.
const NUMBER: &str = "{n}";
/// Longest piece of a misfit that a message repeats.
const SHOWN_MAX: usize = 60;

/// Room for a natural key: most are a number or a short word.
const KEY_BYTES: usize = 16;

/// What a parent's row lends to its children, by column, in the order of their names. There is one for every row that has
/// children, and all of them are kept until those are read.
#[derive(Debug, Clone, Default)]
pub struct Lent(Box<[(Arc<str>, Value)]>);

impl Lent {
    pub fn get(&self, column: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| **name == *column).map(|(_, value)| value)
    }
}

impl FromIterator<(Arc<str>, Value)> for Lent {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Value)>>(columns: I) -> Self {
        let mut columns: Vec<_> = columns.into_iter().collect();
        columns.sort_by(|(a, _), (b, _)| a.cmp(b));
        Lent(columns.into())
    }
}

impl Serialize for Lent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (&**name, value)))
    }
}

/// A table's columns in the order canonical JSON has them.
pub struct Picker {
    table: String,
    columns: Vec<Column>,
    /// The columns of the natural key, in order.
    key: Vec<usize>,
    strip: Vec<String>,
    pub wanted: Wanted,
}

struct Column {
    spec: ColumnSpec,
    /// Where its values are; `None` = they are stripped.
    place: Option<Place>,
    /// What a row has before its value.
    label: Vec<u8>,
}

/// A row, and what children may need of it.
#[derive(Debug, Default)]
pub struct Row {
    pub bytes: Vec<u8>,
    /// Numbers that stand for no word, by column.
    pub unknown: Vec<(String, i64)>,
}

impl Picker {
    pub fn new(table: &TableSpec, strip: &[String]) -> Result<Self> {
        let wanted = Wanted::of(table.columns.iter().map(|column| &column.path));
        let mut columns: Vec<Column> =
            table.columns.iter().map(|spec| Column::of(spec, &wanted, strip)).collect();
        columns.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        let place = |name: &String| columns.iter().position(|column| column.spec.name == *name);
        let key: Option<Vec<usize>> = table.key.iter().map(place).collect();
        let key = key.ok_or_else(|| Error::bug("a key without its column"))?;
        Ok(Picker { table: table.name.clone(), columns, key, strip: strip.to_vec(), wanted })
    }

    /// What the entry of an item is called: the table, and the natural key.
    pub fn id(&self, item: &Item<'_>, lent: &Lent) -> Result<String> {
        let mut id = Vec::with_capacity(self.table.len() + 1 + KEY_BYTES);
        id.extend_from_slice(self.table.as_bytes());
        for at in &self.key {
            let column = &self.columns[*at];
            let spec = &column.spec;
            id.push(b'/');
            match column.find(item, lent) {
                Some(Found::Text(text)) if text.contains('\0') => {
                    return Err(misfit(spec, format!("{text:?} is no key: it holds a NUL character")));
                }
                Some(Found::Text(text)) if spec.kind == ColumnKind::Text && !text.is_empty() => {
                    match self.key.len() {
                        1 => id.extend_from_slice(text.as_bytes()),
                        _ => id.extend_from_slice(text.replace('%', "%25").replace('/', "%2F").as_bytes()),
                    }
                }
                Some(Found::Other(value @ Value::Number(_))) if spec.kind == ColumnKind::Integer => {
                    canonical::write_integer(&mut id, whole(value).map_err(|why| misfit(spec, why))?);
                }
                Some(other) => return Err(misfit(spec, format!("{} is no key", shown(other)))),
                None => return Err(misfit(spec, "it names the item, and is missing".to_owned())),
            }
        }
        String::from_utf8(id).map_err(|error| Error::bug("an id that is no text").caused_by(error))
    }

    /// The natural key in an id, its parts joined by `/`. In a key of several parts a `/` of their own is escaped.
    pub fn external_id<'i>(&self, id: &'i str) -> &'i str {
        id.get(self.table.len() + 1..).unwrap_or_default()
    }

    /// The row of an item, in place of the one that was there.
    pub fn row(&self, row: &mut Row, item: &Item<'_>, lent: &Lent) -> Result<()> {
        row.bytes.clear();
        row.unknown.clear();
        row.bytes.push(b'{');
        for column in &self.columns {
            let Some(value) = column.find(item, lent) else {
                if column.spec.optional {
                    continue;
                }
                return Err(misfit(&column.spec, "it is missing".to_owned()));
            };
            if row.bytes.len() > 1 {
                row.bytes.push(b',');
            }
            row.bytes.extend_from_slice(&column.label);
            self.write(row, &column.spec, value).map_err(|why| misfit(&column.spec, why))?;
        }
        row.bytes.push(b'}');
        Ok(())
    }

    /// What a child may refer to: text as it is in the item, integers as they are in the row.
    pub fn lend(&self, item: &Item<'_>, lent: &Lent, wanted: &[Arc<str>]) -> Lent {
        let value = |name: &str| {
            let column = self.columns.iter().find(|column| column.spec.name == *name)?;
            let value = column.find(item, lent)?.to_value();
            let number = if column.spec.kind == ColumnKind::Integer { whole(&value).ok() } else { None };
            Some(number.map_or(value, Value::from))
        };
        wanted.iter().filter_map(|name| Some((name.clone(), value(name)?))).collect()
    }

    fn write(&self, row: &mut Row, column: &ColumnSpec, value: Found<'_>) -> Result<(), String> {
        let out = &mut row.bytes;
        match (&column.kind, value) {
            (ColumnKind::Text | ColumnKind::Json, Found::Text(text)) => canonical::write_string(out, text),
            (ColumnKind::Timestamp, Found::Text(text)) => canonical::write_string(out, &timestamp(text)?),
            (ColumnKind::MsDate, Found::Text(text)) => canonical::write_string(out, &ms_date(text)?),
            (ColumnKind::Integer, Found::Other(value @ Value::Number(_))) => {
                canonical::write_integer(out, whole(value)?);
            }
            (ColumnKind::Real, Found::Other(Value::Number(number))) => canonical::write_number(out, number),
            (ColumnKind::Boolean, Found::Other(value @ Value::Bool(_))) => canonical::write(out, value),
            (ColumnKind::Enum { names, unknown }, Found::Other(value @ Value::Number(_))) => {
                let number = whole(value)?;
                if let Some(word) = names.get(&number) {
                    canonical::write_string(out, word);
                } else {
                    canonical::write_string(out, &unknown.replace(NUMBER, &number.to_string()));
                    row.unknown.push((column.name.clone(), number));
                }
            }
            (ColumnKind::Json, Found::Other(value)) => {
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

impl Column {
    fn of(spec: &ColumnSpec, wanted: &Wanted, strip: &[String]) -> Self {
        let stripped = spec.path.0.iter().any(|part| strip.contains(part));
        let mut label = Vec::new();
        canonical::write_string(&mut label, &spec.name);
        label.push(b':');
        Column { spec: spec.clone(), place: (!stripped).then(|| wanted.place(&spec.path)), label }
    }

    /// Its value; null is the same as nothing, and so is what is stripped.
    fn find<'v>(&self, item: &'v Item<'_>, lent: &'v Lent) -> Option<Found<'v>> {
        let own = self.place.as_ref().and_then(|place| place.find(item)).filter(|value| !value.is_null());
        own.or_else(|| lent.get(self.spec.parent.as_deref()?).map(Found::from))
            .filter(|value| !value.is_null())
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

fn shown(value: Found<'_>) -> String {
    if matches!(value, Found::Other(Value::Object(map)) if map.contains_key(UNREADABLE)) {
        return "a number or a character that cannot be held".to_owned();
    }
    let text = value.to_value().to_string();
    let mut short: String = text.chars().take(SHOWN_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// A whole number that a double holds exactly, as JSON has no other.
fn whole(value: &Value) -> Result<i64, String> {
    let number = value.as_i64().or_else(|| {
        let real = value.as_f64().filter(|real| real.fract() == 0.0 && real.abs() < EXACT_MAX as f64)?;
        #[allow(clippy::cast_possible_truncation)]
        // whole, and so far below 2^53 that nothing was rounded off
        Some(real as i64)
    });
    match number {
        Some(number) if number.unsigned_abs() <= EXACT_MAX => Ok(number),
        _ => Err(format!("{} is not an integer JSON can hold exactly", shown(value.into()))),
    }
}

/// Numbers that canonical JSON would round.
fn exact(value: &Value) -> Result<(), String> {
    match value {
        Value::Number(number) if number.is_i64() || number.is_u64() => whole(value).map(drop),
        Value::Array(items) => items.iter().try_for_each(exact),
        Value::Object(map) if map.contains_key(UNREADABLE) => {
            Err("a number or a character in it is none that can be held".to_owned())
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::super::item;
    use super::*;
    use crate::config::JsonPath;

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

    fn column(name: &str, path: &str, kind: ColumnKind) -> ColumnSpec {
        let (name, path) = (name.to_owned(), JsonPath::parse(path));
        ColumnSpec { name, path, kind, optional: true, index: None, parent: None }
    }

    /// What becomes of the items of a body: ids and rows, or why not.
    fn picked(key: &[&str], columns: Vec<ColumnSpec>, strip: &[&str], body: &str) -> Vec<[String; 2]> {
        let key = key.iter().map(|name| (*name).to_owned()).collect();
        let strip: Vec<String> = strip.iter().map(|name| (*name).to_owned()).collect();
        let picker = Picker::new(&TableSpec { name: "t".into(), key, columns }, &strip).unwrap();
        let (items, _) = item::read(body.as_bytes(), &JsonPath::parse(""), &picker.wanted).unwrap();
        let lent = Lent::from_iter([("of".into(), json!("a \"parent\"")), ("nil".into(), Value::Null)]);
        let mut row = Row::default();
        let mut pick = |item: &Item<'_>| {
            let id = picker.id(item, &lent).unwrap_or_else(|error| error.to_string());
            let written = picker.row(&mut row, item, &lent);
            let text = String::from_utf8(row.bytes.clone()).unwrap();
            [id, written.map_or_else(|error| error.to_string(), |()| text)]
        };
        items.unwrap().iter().map(&mut pick).collect()
    }

    #[test]
    fn rows_are_the_columns_in_order_whatever_way_an_item_says_them() {
        let columns = || {
            let mut of = column("of", "of", ColumnKind::Text);
            of.parent = Some("of".to_owned());
            vec![
                column("z", "n\u{e4}me", ColumnKind::Text),
                column("id", "id", ColumnKind::Integer),
                column("deep", "at.list.1", ColumnKind::Text),
                column("any", "at", ColumnKind::Json),
                of,
            ]
        };
        let lent = r#""of":"a \"parent\"""#;
        for (item, row) in [
            (r#"{"id": 1}"#, format!(r#"{{"id":1,{lent}}}"#)),
            (r#"{"id": 7, "id": 1}"#, format!(r#"{{"id":1,{lent}}}"#)),
            (r#"{"of": "x", "of": null, "id": 1.0}"#, format!(r#"{{"id":1,{lent}}}"#)),
            (
                r#"{"of": "o", "id": 1, "n\u00e4me": "\u0041\"\n\/é"}"#,
                r#"{"id":1,"of":"o","z":"A\"\n/é"}"#.into(),
            ),
            (r#"{"näme": "x", "\u006ff": "o", "id": 1}"#, r#"{"id":1,"of":"o","z":"x"}"#.into()),
            (
                r#"{"of": "o", "id": 1, "at": {"list": [1, "t"], "b": null}}"#,
                r#"{"any":{"b":null,"list":[1,"t"]},"deep":"t","id":1,"of":"o"}"#.into(),
            ),
            (r#"{"of": "o", "id": 1, "at": "te\tt"}"#, r#"{"any":"te\tt","id":1,"of":"o"}"#.into()),
        ] {
            let found = picked(&["id"], columns(), &[], &format!("[{item}]"));
            assert_eq!(found, [["t/1".to_owned(), row]], "{item}");
        }
        let body = r#"[{"id": 1, "of": "o", "at": {"list": [0, "s"], "v": 1}, "näme": "x"}]"#;
        let kept = r#"{"any":{"list":[0,"s"]},"deep":"s","id":1,"of":"o","z":"x"}"#;
        assert_eq!(picked(&["id"], columns(), &["v"], body)[0][1], kept);
        assert_eq!(
            picked(&["id"], columns(), &["list", "of"], body)[0][1],
            format!(r#"{{"any":{{"v":1}},"id":1,{lent},"z":"x"}}"#)
        );
    }

    #[test]
    fn keys_of_several_parts_are_told_apart() {
        let columns = || vec![column("a", "a", ColumnKind::Text), column("b", "b", ColumnKind::Integer)];
        let ids = |key: &[&str], body: &str| picked(key, columns(), &[], body)[0][0].clone();
        assert_eq!(ids(&["a"], r#"[{"a": "x/50%\u00e9"}]"#), "t/x/50%é");
        assert_eq!(ids(&["a", "b"], r#"[{"a": "x/50%", "b": -3}]"#), "t/x%2F50%25/-3");
        assert_eq!(ids(&["b", "a"], r#"[{"a": "x", "b": 3e0}]"#), "t/3/x");
        for (body, why) in [
            (r#"[{"a": "", "b": 1}]"#, r#"the column `a` does not fit: "" is no key"#),
            (r#"[{"a": 1, "b": 1}]"#, "the column `a` does not fit: 1 is no key"),
            (r#"[{"a": "x", "b": "1"}]"#, r#"the column `b` does not fit: "1" is no key"#),
            (r#"[{"a": "x", "b": null}]"#, "the column `b` does not fit: it names the item, and is missing"),
            (r#"[["x", 1]]"#, "the column `a` does not fit: it names the item, and is missing"),
        ] {
            assert!(ids(&["a", "b"], body).contains(why), "{body}: {}", ids(&["a", "b"], body));
        }
    }

    #[test]
    fn what_does_not_fit_is_shown() {
        let names = BTreeMap::from([(1, "one".to_owned())]);
        let kinds = || {
            [
                (ColumnKind::Text, "text"),
                (ColumnKind::Integer, "an integer"),
                (ColumnKind::Real, "a number"),
                (ColumnKind::Boolean, "true or false"),
                (ColumnKind::Timestamp, "an RFC 3339 instant"),
                (ColumnKind::Enum { names: names.clone(), unknown: "{n}?".into() }, "an integer"),
            ]
        };
        for (kind, wanted) in kinds() {
            let body = r#"[{"x": ["a\u0022b"]}, {"x": {"y": 1}}]"#;
            let rows = picked(&[], vec![column("x", "x", kind)], &[], body);
            for (row, shown) in rows.iter().zip([r#"["a\"b"]"#, r#"{"y":1}"#]) {
                let why = format!("the column `x` does not fit: {shown} is not {wanted}");
                assert!(row[1].contains(&why), "{row:?} {why}");
            }
        }
        let long = format!(r#"[{{"x": "\"{}"}}]"#, "é".repeat(100));
        let row = &picked(&[], vec![column("x", "x", ColumnKind::Integer)], &[], &long)[0][1];
        assert!(
            row.contains(&format!(r#"fit: "\"{}… is not an integer"#, "é".repeat(SHOWN_MAX - 3))),
            "{row}"
        );
    }

    #[test]
    fn stripping_reaches_every_depth() {
        let mut value = json!({"v": 1, "a": [{"v": 2, "b": {"v": 3, "c": 4}}]});
        strip(&mut value, &["v".to_owned()]);
        assert_eq!(value, json!({"a": [{"b": {"c": 4}}]}));
    }
}
