//! The file as a tree of values that know where they were written, with the environment filled in.

use toml_edit::{Document, Item, TableLike};

use super::interpolate::{Env, interpolate};
use super::locate::{Problems, Span};

pub struct Node {
    pub span: Span,
    pub value: Value,
}

pub enum Value {
    /// `filled`: part of it came from the environment, so messages do not repeat it.
    Text {
        text: String,
        filled: bool,
    },
    Integer(i64),
    Float(f64),
    Bool(bool),
    Date,
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// A string whose variables could not be filled in. That is said already; readers keep quiet about it.
    Unfilled,
}

impl Value {
    pub fn plain(text: &str) -> Self {
        Value::Text { text: text.to_owned(), filled: false }
    }
}

pub struct Entry {
    pub key: String,
    pub span: Span,
    pub node: Node,
}

/// The tree of the whole file; `None` (and a problem) when it is not TOML.
pub fn read(problems: &Problems<'_>, env: Env<'_>) -> Option<Node> {
    let document = match Document::parse(problems.text()) {
        Ok(document) => document,
        Err(error) => {
            let end = problems.text().len();
            let span = error.span().unwrap_or(end..end);
            problems.add(&span, syntax(problems.text(), &span, error.message()));
            return None;
        }
    };
    let value = Value::Table(entries(document.as_table(), problems, env));
    Some(Node { span: 0..0, value })
}

/// What the parser says, in plainer words where it is at a loss.
fn syntax(text: &str, span: &Span, message: &str) -> String {
    let written = text.get(span.clone()).unwrap_or_default();
    if message.starts_with("duplicate key") && !written.is_empty() {
        return format!("`{written}` is given twice");
    }
    let line = text.get(..span.start).unwrap_or_default().rsplit('\n').next().unwrap_or_default();
    if written.trim().is_empty() && line.trim_end().ends_with('=') {
        return "there is no value behind the `=`".to_owned();
    }
    format!("this is not TOML: {}", message.lines().collect::<Vec<_>>().join(", "))
}

fn entries(table: &dyn TableLike, problems: &Problems<'_>, env: Env<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, _) in table.iter() {
        let Some((key, item)) = table.get_key_value(name) else { continue };
        let span = key.span().or_else(|| item.span()).unwrap_or(0..0);
        let node = node(item, &span, problems, env);
        entries.push(Entry { key: name.to_owned(), span, node });
    }
    entries
}

fn node(item: &Item, key: &Span, problems: &Problems<'_>, env: Env<'_>) -> Node {
    let span = item.span().unwrap_or_else(|| key.clone());
    let value = match item {
        Item::None => Value::Table(Vec::new()),
        Item::Value(value) => return scalar(value, key, problems, env),
        Item::Table(table) => Value::Table(entries(table, problems, env)),
        Item::ArrayOfTables(tables) => {
            let row = |table: &toml_edit::Table| Node {
                span: table.span().unwrap_or_else(|| key.clone()),
                value: Value::Table(entries(table, problems, env)),
            };
            Value::List(tables.iter().map(row).collect())
        }
    };
    Node { span, value }
}

fn scalar(value: &toml_edit::Value, key: &Span, problems: &Problems<'_>, env: Env<'_>) -> Node {
    use toml_edit::Value as Toml;
    let span = value.span().unwrap_or_else(|| key.clone());
    let value = match value {
        Toml::String(text) => string(text.value(), &span, problems, env),
        Toml::Integer(number) => Value::Integer(*number.value()),
        Toml::Float(number) => Value::Float(*number.value()),
        Toml::Boolean(truth) => Value::Bool(*truth.value()),
        Toml::Datetime(_) => Value::Date,
        Toml::Array(list) => {
            Value::List(list.iter().map(|value| scalar(value, &span, problems, env)).collect())
        }
        Toml::InlineTable(table) => Value::Table(entries(table, problems, env)),
    };
    Node { span, value }
}

fn string(text: &str, span: &Span, problems: &Problems<'_>, env: Env<'_>) -> Value {
    match interpolate(text, env) {
        Ok(None) => Value::plain(text),
        Ok(Some(text)) => Value::Text { text, filled: true },
        Err(unfilled) => {
            // The raw text holds the same `${…` unless it was written with escapes; then the whole string is shown.
            let raw = problems.text().get(span.clone()).unwrap_or_default();
            let place = match raw.find(&unfilled.at) {
                Some(at) => span.start + at..span.start + at + unfilled.at.len(),
                None => span.clone(),
            };
            let note = "set it, or give a default: `${NAME:-default}`".to_owned();
            if unfilled.why.ends_with("is not set") {
                problems.add_with(&place, unfilled.why, [note]);
            } else {
                problems.add(&place, unfilled.why);
            }
            Value::Unfilled
        }
    }
}
