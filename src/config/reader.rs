//! A typed look at one table of the file. A table is read against the list of its keys: what is not on the list is
//! a problem at once, with the nearest name. A value of the wrong type is a problem that says what was expected.
//!
//! Every reading answers `None` after adding a problem; the caller goes on with a default to find more of them.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::document::{Entry, Node, Value};
use super::locate::{Problems, Span, nearest, suggestion};
use super::model::Limit;
use super::{redact, values};
use crate::secret::{SecretRef, names_a_secret};

/// Longest value a message repeats.
const REPEATED_MAX: usize = 40;

/// The keys one kind of table knows.
pub type Keys = &'static [&'static str];

pub struct Reader<'n> {
    /// `pipelines.f`; empty for the file itself.
    pub path: String,
    span: &'n Span,
    entries: &'n [Entry],
    keys: Keys,
    pub problems: &'n Problems<'n>,
}

/// A value and what it is called in messages.
#[derive(Clone)]
pub struct Field<'n> {
    /// `pipelines.f.guard`
    pub path: String,
    pub node: &'n Node,
    pub problems: &'n Problems<'n>,
}

impl<'n> Reader<'n> {
    pub fn take(&self, key: &'static str) -> Option<Field<'n>> {
        debug_assert!(self.keys.contains(&key), "{key} is missing from the list of keys");
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Some(Field { path, node: &entry.node, problems: self.problems })
    }

    /// A key that must be there. If it was merely misspelt, that is said already.
    pub fn require(&self, key: &'static str, expected: &str) -> Option<Field<'n>> {
        let field = self.take(key);
        let misspelt = |entry: &Entry| {
            !self.keys.contains(&entry.key.as_str())
                && nearest(&entry.key, self.keys.iter().copied()) == Some(key)
        };
        if field.is_none() && !self.entries.iter().any(misspelt) {
            self.problems.add(self.span, format!("[{}] has no `{key}`; it takes {expected}", self.path));
        }
        field
    }

    /// `NAME_env` or `NAME_file`, given once.
    pub fn secret(&self, env: &'static str, file: &'static str, base: &Base) -> Option<SecretRef> {
        let by_env = self.take(env);
        let by_file = self.take(file);
        if let (Some(_), Some(second)) = (&by_env, &by_file) {
            let message = format!("`{env}` and `{file}` name one secret twice; keep one of them");
            self.problems.add(&second.node.span, message);
        }
        match (by_env, by_file) {
            (Some(field), _) => field.variable().map(SecretRef::Env),
            (None, Some(field)) => field.path(base).map(SecretRef::File),
            (None, None) => None,
        }
    }
}

/// The folder relative paths are taken from.
pub struct Base(pub PathBuf);

impl Base {
    /// The path from where trueup runs, without `./` in it.
    pub fn resolve(&self, path: &str) -> PathBuf {
        let joined: PathBuf = self.0.join(path).components().collect();
        let plain = joined.strip_prefix(".").map(PathBuf::from).unwrap_or(joined);
        if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain }
    }
}

impl<'n> Field<'n> {
    pub fn span(&self) -> &'n Span {
        &self.node.span
    }

    /// The part of the path that a person wrote here.
    pub fn key(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    pub fn wrong(&self, message: impl Into<String>) {
        self.problems.add(&self.node.span, message);
    }

    pub fn wrong_with(&self, message: impl Into<String>, note: impl Into<String>) {
        self.problems.add_with(&self.node.span, message, [note.into()]);
    }

    /// "`batch` takes a whole number, found the string "x"".
    pub fn unexpected<T>(&self, expected: &str) -> Option<T> {
        if matches!(self.node.value, Value::Unfilled) {
            return None;
        }
        self.wrong(format!("`{}` takes {expected}, found {}", self.key(), self.found()));
        None
    }

    fn found(&self) -> String {
        match &self.node.value {
            Value::Text { filled: true, .. } => "a string filled in from the environment".to_owned(),
            Value::Text { text, .. } => format!("the string \"{}\"", repeated(text)),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Bool(truth) => truth.to_string(),
            Value::Date => "a date".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
            Value::Unfilled => "nothing".to_owned(),
        }
    }

    /// The value if it is a string, without complaint if it is not.
    pub fn as_text(&self) -> Option<&'n str> {
        match &self.node.value {
            Value::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    pub fn is_table(&self) -> bool {
        matches!(self.node.value, Value::Table(_))
    }

    pub fn text(&self, expected: &str) -> Option<&'n str> {
        match self.as_text() {
            None | Some("") => self.unexpected(expected),
            Some(text) => Some(text),
        }
    }

    pub fn boolean(&self) -> Option<bool> {
        match &self.node.value {
            Value::Bool(truth) => Some(*truth),
            Value::Text { text, filled: true } if text == "true" => Some(true),
            Value::Text { text, filled: true } if text == "false" => Some(false),
            _ => self.unexpected("true or false"),
        }
    }

    pub fn integer(&self, range: RangeInclusive<i64>) -> Option<u64> {
        let number = match &self.node.value {
            Value::Integer(number) => Some(*number),
            Value::Text { text, filled: true } => text.trim().parse().ok(),
            _ => None,
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => u64::try_from(number).ok(),
            None if *range.end() == i64::MAX => {
                self.unexpected(&format!("a whole number from {}", range.start()))
            }
            None => self.unexpected(&format!("a whole number from {} to {}", range.start(), range.end())),
        }
    }

    pub fn duration(&self) -> Option<Duration> {
        self.as_text().and_then(values::duration).or_else(|| self.unexpected(values::DURATION))
    }

    /// A duration that is not zero: a wait or an interval.
    pub fn interval(&self) -> Option<Duration> {
        match self.duration()? {
            Duration::ZERO => self.unexpected("more than nothing"),
            duration => Some(duration),
        }
    }

    pub fn bytes(&self) -> Option<u64> {
        match &self.node.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::Text { text, .. } => values::bytes(text),
            _ => None,
        }
        .or_else(|| self.unexpected(values::SIZE))
    }

    pub fn limit(&self) -> Option<Limit> {
        match &self.node.value {
            Value::Integer(number) => u64::try_from(*number).ok().map(Limit::Count),
            Value::Text { text, .. } => values::limit(text),
            _ => None,
        }
        .or_else(|| self.unexpected(values::LIMIT))
    }

    /// One of several words; each stands for a value.
    pub fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let expected = format!("one of {}", names.join(", "));
        let Some(text) = self.as_text() else { return self.unexpected(&expected) };
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*value);
        }
        let meant = suggestion(text, choices.iter().map(|(name, _)| *name));
        self.wrong(format!("`{}` takes {expected}, found {}{meant}", self.key(), self.found()));
        None
    }

    /// A path, resolved.
    pub fn path(&self, base: &Base) -> Option<PathBuf> {
        self.text("a path").map(|path| base.resolve(path))
    }

    fn variable(&self) -> Option<String> {
        let name = self.text("the name of a variable")?;
        if redact::is_variable_name(name) {
            return Some(name.to_owned());
        }
        let note =
            "the secret itself does not belong in this file, only the name of the variable that holds it";
        self.wrong_with(format!("`{}` takes the name of a variable", self.key()), note);
        None
    }

    /// The items of a list, or the value itself as the only one.
    pub fn list_or_one(&self) -> Vec<Field<'n>> {
        match &self.node.value {
            Value::List(items) => items.iter().map(|node| Field { node, ..self.clone() }).collect(),
            _ => vec![self.clone()],
        }
    }

    /// A list of strings, not one.
    pub fn list(&self, expected: &str) -> Option<Vec<Field<'n>>> {
        match &self.node.value {
            Value::List(items) if !items.is_empty() => Some(self.list_or_one()),
            _ => self.unexpected(expected),
        }
    }

    /// The entries of a table whose keys are names that a person chose.
    pub fn named(&self, expected: &str) -> Vec<(&'n Entry, Field<'n>)> {
        let Value::Table(entries) = &self.node.value else {
            self.unexpected::<()>(expected);
            return Vec::new();
        };
        let field = |entry: &'n Entry| {
            let path = format!("{}.{}", self.path, entry.key);
            (entry, Field { path, node: &entry.node, problems: self.problems })
        };
        entries.iter().filter(|entry| self.check_name(entry)).map(field).collect()
    }

    fn check_name(&self, entry: &Entry) -> bool {
        let good = values::is_name(&entry.key);
        if !good {
            let message = format!(
                "a name in [{}] is made of letters, digits, `.`, `_` and `-`, {} at most",
                self.path,
                values::NAME_MAX
            );
            self.problems.add(&entry.span, message);
        }
        good
    }

    /// The keys present in a table, without complaint.
    pub fn keys(&self) -> impl Iterator<Item = &'n str> {
        let entries: &[Entry] = match &self.node.value {
            Value::Table(entries) => entries,
            _ => &[],
        };
        entries.iter().map(|entry| entry.key.as_str())
    }

    /// The value of one key of a table, whatever its keys are.
    pub fn at(&self, key: &str) -> Option<Field<'n>> {
        let Value::Table(entries) = &self.node.value else { return None };
        let entry = entries.iter().find(|entry| entry.key == key)?;
        Some(Field { path: format!("{}.{key}", self.path), node: &entry.node, problems: self.problems })
    }

    /// Read it as a table with these keys and no others.
    pub fn table(&self, keys: Keys, expected: &str) -> Option<Reader<'n>> {
        let Value::Table(entries) = &self.node.value else { return self.unexpected(expected) };
        for entry in entries.iter().filter(|entry| !keys.contains(&entry.key.as_str())) {
            self.unknown(entry, keys);
        }
        Some(Reader { path: self.path.clone(), span: self.span(), entries, keys, problems: self.problems })
    }

    fn unknown(&self, entry: &Entry, keys: Keys) {
        let key = entry.key.as_str();
        let place =
            if self.path.is_empty() { "at the top".to_owned() } else { format!("in [{}]", self.path) };
        let expected = match keys {
            [] => "it takes no keys".to_owned(),
            keys => format!("expected one of: {}", listed(keys)),
        };
        let known = keys.iter().any(|known| known.strip_suffix("_env") == Some(key));
        if names_a_secret(key) && (known || !keys.contains(&key)) {
            let message = format!("`{key}` {place} would hold a secret; this file must not");
            let note = if known {
                format!("use `{key}_env = \"NAME\"` for a variable or `{key}_file = \"path\"` for a file")
            } else {
                expected
            };
            return self.problems.add_with(&entry.span, message, [note]);
        }
        let meant = suggestion(key, keys.iter().copied());
        let message = format!("unknown key `{}` {place}{meant}", repeated(key));
        self.problems.add_with(&entry.span, message, [expected]);
    }
}

/// Names in alphabetical order, separated by commas.
pub fn listed(names: &[&str]) -> String {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.join(", ")
}

/// A value fit to be repeated in a message: short, printable, without a password.
pub fn repeated(text: &str) -> String {
    let shown = redact::url(text);
    let mut short: String = shown.chars().take(REPEATED_MAX).flat_map(char::escape_debug).collect();
    if shown.chars().count() > REPEATED_MAX {
        short.push('…');
    }
    short
}
