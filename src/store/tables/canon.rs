//! Whether a row is written the one way rows are written, and under its own name, told by lengths: writing it again to
//! compare takes several times as long.
//!
//! Canonical JSON is the shortest way to write a row whose members are in their order. Every blank and every escape that
//! is not needed makes it longer, so a row of the right length is canonical. What could be written in two ways of one
//! length (`\u001f` and `\u001F`, reals, JSON within) is left to those who write it again.

use std::borrow::Cow;

use super::layout::Table;
use super::row::{Cell, Cells};

/// Whether a value is as short as its cells can be written; `None` = its length does not tell. The cells are those read
/// from the value itself: members in their order, and what is borrowed stands there as it is.
pub fn is_shortest(table: &Table, row: &Cells<'_>, value: &[u8]) -> Option<bool> {
    if row.missing_since.is_some() {
        return None;
    }
    let (mut bytes, mut members) = (0, 0);
    for (column, cell) in table.columns.iter().zip(&row.cells) {
        bytes += match cell {
            Cell::Null => continue,
            Cell::Integer(number) => digits(*number),
            Cell::Boolean(true) => "true".len(),
            Cell::Boolean(false) => "false".len(),
            Cell::Text(_) if !column.holds.is_text() => return None,
            Cell::Text(Cow::Borrowed(text)) => "\"\"".len() + text.len(),
            Cell::Text(Cow::Owned(text)) => "\"\"".len() + escaped_bytes(text)?,
            Cell::Real(_) => return None,
        };
        bytes += "\"\":".len() + column.name.len();
        members += 1;
    }
    Some(value.len() == "{}".len() + bytes + usize::max(members, 1) - 1)
}

/// Whether a row whose key is a single column is called so; `None` = the name must be made to be compared.
pub fn is_named(table: &Table, row: &Cells<'_>, id: &str) -> Option<bool> {
    let [at] = table.key[..] else { return None };
    match &row.cells[at] {
        Cell::Text(text) => Some(text == id),
        Cell::Integer(number) => Some(id.len() == digits(*number) && id.parse() == Ok(*number)),
        Cell::Null | Cell::Real(_) | Cell::Boolean(_) => None,
    }
}

/// A text with its escapes, two bytes each; `None` = one of them has more than one form.
fn escaped_bytes(text: &str) -> Option<usize> {
    // What has two forms counts for more than any text has escapes.
    let more: u64 = text.bytes().map(|byte| LONGER[usize::from(byte)]).sum();
    let more = usize::try_from(more).ok().filter(|_| more < TWO_FORMS)?;
    Some(text.len() + more)
}

const TWO_FORMS: u64 = 1 << 40;
/// By how much each byte is longer when it is escaped.
const LONGER: [u64; 256] = {
    let mut longer = [0; 256];
    let mut byte = 0;
    while byte < b' ' {
        longer[byte as usize] = TWO_FORMS;
        byte += 1;
    }
    let mut escapes = b"\"\\\x08\t\n\x0c\r".as_slice();
    while let [first, rest @ ..] = escapes {
        longer[*first as usize] = 1;
        escapes = rest;
    }
    longer
};

/// How long an integer is.
fn digits(number: i64) -> usize {
    let count = number.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1);
    count + usize::from(number < 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ColumnKind, ColumnSpec, JsonPath, TableSpec};
    use crate::store::tables::row;

    fn table(key: &[&str]) -> Table {
        let column = |(name, kind): (&str, ColumnKind)| ColumnSpec {
            name: name.into(),
            path: JsonPath::parse(name),
            kind,
            optional: true,
            index: None,
            parent: None,
        };
        let columns = [
            ("id", ColumnKind::Integer),
            ("at", ColumnKind::Timestamp),
            ("flag", ColumnKind::Boolean),
            ("json", ColumnKind::Json),
            ("real", ColumnKind::Real),
            ("text", ColumnKind::Text),
        ];
        let key = key.iter().map(|name| (*name).to_owned()).collect();
        Table::new(&TableSpec { name: "t".into(), key, columns: columns.map(column).into() })
    }

    fn why(key: &[&str], id: &str, value: &str) -> Option<String> {
        row::understood(&table(key), id, value.as_bytes(), None).err()
    }

    #[test]
    fn rows_in_the_one_form_are_taken() {
        for value in [
            r#"{"id":7}"#,
            r#"{"flag":true,"id":7,"text":""}"#,
            r#"{"at":"2026-11-15T12:00:00.000Z","flag":false,"id":7,"text":"æ\n\"\\ and \u001f\u0000"}"#,
            r#"{"id":7,"json":{"a":[1,"\u001f"]},"real":1.5,"text":"/😀"}"#,
            r#"{"id":7,"missing_since":"2026-11-15T12:00:00.000Z","text":"x"}"#,
        ] {
            assert_eq!(why(&["id"], "7", value), None, "{value}");
        }
    }

    #[test]
    fn rows_in_any_other_form_are_refused() {
        for value in [
            r#"{"id":7 }"#,
            r#" {"id":7}"#,
            r#"{"id":7,"text":"\/"}"#,
            r#"{"id":7,"text":"\u0041"}"#,
            r#"{"id":7,"text":"\u000a"}"#,
            r#"{"id":7,"text":"\u001F"}"#,
            r#"{"id":7,"text":"\u001F and \n"}"#,
            r#"{"id":7,"text":"\ud83d\ude00"}"#,
            r#"{"text":"x","id":7}"#,
            r#"{"id":7,"id":7}"#,
            r#"{"id":7,"\u0074ext":"x"}"#,
            r#"{"id":7,"real":1.50}"#,
            r#"{"id":7,"json":{"b":1,"a":2}}"#,
            r#"{"id":7,"text":"x","missing_since":"2026-11-15T12:00:00.000Z"}"#,
        ] {
            assert_eq!(why(&["id"], "7", value).as_deref(), Some("the row is not canonical JSON"), "{value}");
        }
        assert_eq!(why(&["id"], "7", r#"{"id":7,"text":null}"#).as_deref(), Some("`text` is not text"));
    }

    #[test]
    fn a_row_goes_by_its_own_name_only() {
        let other = Some("the row's own key is another one".to_owned());
        for (id, value) in [("7", r#"{"id":7}"#), ("-7", r#"{"id":-7}"#), ("0", r#"{"id":0}"#)] {
            assert_eq!(why(&["id"], id, value), None);
        }
        for id in ["", "07", "+7", "70", "-7", "7/7", "seven"] {
            assert_eq!(why(&["id"], id, r#"{"id":7}"#), other, "{id}");
        }
        assert_eq!(why(&["text"], "a/b%", r#"{"text":"a/b%"}"#), None);
        assert_eq!(why(&["text"], "a", r#"{"text":"b"}"#), other);
        assert_eq!(why(&["id", "text"], "7/a%2Fb", r#"{"id":7,"text":"a/b"}"#), None);
        assert_eq!(why(&["id", "text"], "7/a/b", r#"{"id":7,"text":"a/b"}"#), other);
    }

    #[test]
    fn integers_are_as_long_as_they_are_written() {
        for number in [0, 1, 9, 10, 99, 100, -1, -10, i64::MAX, i64::MIN] {
            assert_eq!(digits(number), number.to_string().len());
        }
    }
}
