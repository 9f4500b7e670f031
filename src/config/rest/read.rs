//! A recipe, from a file of its own or inline, checked as a whole: keys name columns, parents come first, names that
//! would meet in a database do not.

use std::path::Path;
use std::time::Duration;

use url::Url;

use super::super::document::{self, Value};
use super::super::locate::Problems;
use super::super::model::From;
use super::super::reader::{Base, Field, Keys, Reader, repeated};
use super::super::source::Around;
use super::super::values;
use super::column;
use super::names::Names;
use super::{
    ATTEMPTS, AnswerVersion, Auth, ColumnKind, ColumnSpec, JsonPath, Pagination, Part, ResourceSpec,
    RestSpec, Size, TIMEOUT, TableSpec,
};

pub const REST_KEYS: Keys = &["rest"];
pub const RECIPE_KEYS: Keys = &[
    "base",
    "resources",
    "strip",
    "auth",
    "pagination",
    "version",
    "attempts",
    "timeout",
    "delay",
    "concurrency",
    "batch",
];
pub const RESOURCE_KEYS: Keys = &["name", "path", "each", "items", "key", "columns", "pagination"];
pub const AUTH_KEYS: Keys = &[
    "bearer_env",
    "bearer_file",
    "header",
    "value_env",
    "value_file",
    "user",
    "password_env",
    "password_file",
];
pub const PAGINATION_KEYS: Keys = &["page", "first", "offset", "size", "per", "cursor", "param"];
pub const VERSION_KEYS: Keys = &["field", "known"];

const EXPECTED: &str = "a recipe file, or a table with `base` and `resources`";
/// A recipe is written by a person.
const BYTES_MAX: u64 = 1 << 20;

pub fn read(reader: &Reader<'_>, around: &Around<'_>) -> Option<From> {
    let field = reader.require("rest", EXPECTED)?;
    if field.is_table() {
        return recipe(&field, around.base).map(|spec| From::Rest(Box::new(spec)));
    }
    let written = field.text(EXPECTED)?;
    let path = around.base.resolve(written);
    let text = match text_of(&path, written) {
        Ok(text) => text,
        Err(why) => {
            field.wrong_with(format!("the recipe {} cannot be read", path.display()), why);
            return None;
        }
    };
    let problems = Problems::new(&path, &text);
    let spec = document::read(&problems, around.env).and_then(|root| {
        let top = Field { path: "recipe".to_owned(), node: &root, problems: &problems };
        // Secret files named in a recipe lie beside it.
        let beside = Base(path.parent().map(Path::to_path_buf).unwrap_or_default());
        recipe(&top, &beside)
    });
    if let Some(error) = problems.into_error() {
        field.wrong_with("the recipe has mistakes of its own", error.to_string());
        return None;
    }
    spec.map(|spec| From::Rest(Box::new(spec)))
}

/// The file, or the recipe of that name that comes with the program.
fn text_of(path: &Path, written: &str) -> Result<String, String> {
    let facts = match std::fs::metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return super::super::recipe::shipped(written)
                .map(str::to_owned)
                .ok_or_else(|| "there is no such file".to_owned());
        }
        Err(error) => return Err(error.to_string()),
    };
    if facts.len() > BYTES_MAX {
        return Err(format!("it is larger than {} MiB; that is no recipe", BYTES_MAX >> 20));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

fn recipe(field: &Field<'_>, base: &Base) -> Option<RestSpec> {
    let reader = field.table(RECIPE_KEYS, EXPECTED)?;
    let address = reader.require("base", "the URL of the API")?;
    let url = match Url::parse(address.text("the URL of the API")?) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
        _ => return address.unexpected("an http:// or https:// URL"),
    };
    let whole = |key, range| reader.take(key).and_then(|field| field.integer(range));
    let pagination = match reader.take("pagination") {
        Some(field) => pagination(&field)?,
        None => Pagination::None,
    };
    let list =
        reader.require("resources", "a list of resources: [[resources]]")?.list("a list of resources")?;
    let mut resources: Vec<ResourceSpec> = Vec::with_capacity(list.len());
    let mut names = Names::new();
    for field in list {
        let one = resource(&field, &resources, &pagination, &mut names)?;
        resources.push(one);
    }
    Some(RestSpec {
        base: url,
        resources,
        strip: reader.take("strip").map(|field| texts(&field, "names of fields")).unwrap_or_default(),
        auth: match reader.take("auth") {
            Some(field) => Some(auth(&field, base)?),
            None => None,
        },
        version: match reader.take("version") {
            Some(field) => Some(version(&field)?),
            None => None,
        },
        attempts: whole("attempts", 1..=20).and_then(|n| u32::try_from(n).ok()).unwrap_or(ATTEMPTS),
        timeout: reader.take("timeout").and_then(|field| field.interval()).unwrap_or(TIMEOUT),
        delay: reader.take("delay").and_then(|field| field.duration()).unwrap_or(Duration::ZERO),
        concurrency: whole("concurrency", 1..=1_024).and_then(|n| usize::try_from(n).ok()),
        batch: whole("batch", 1..=100_000).and_then(|n| usize::try_from(n).ok()),
    })
}

fn texts(field: &Field<'_>, expected: &str) -> Vec<String> {
    field.list_or_one().iter().filter_map(|item| item.text(expected).map(str::to_owned)).collect()
}

fn auth(field: &Field<'_>, base: &Base) -> Option<Auth> {
    const EXPECTED: &str = "a table such as { bearer_env = \"NAME\" }";
    let reader = field.table(AUTH_KEYS, EXPECTED)?;
    let bearer = reader.secret("bearer_env", "bearer_file", base);
    let value = reader.secret("value_env", "value_file", base);
    let password = reader.secret("password_env", "password_file", base);
    let text = |key| reader.take(key).and_then(|field| field.text("a name").map(str::to_owned));
    match (bearer, text("header"), value, text("user"), password) {
        (Some(token), None, None, None, None) => Some(Auth::Bearer(token)),
        (None, Some(name), Some(value), None, None) => Some(Auth::Header { name, value }),
        (None, None, None, Some(user), Some(password)) => Some(Auth::Basic { user, password }),
        _ => {
            let note = "one of: bearer_env · header and value_env · user and password_env";
            field.wrong_with("`auth` names no way to sign in", note);
            None
        }
    }
}

fn version(field: &Field<'_>) -> Option<AnswerVersion> {
    let reader = field.table(VERSION_KEYS, "a table such as { field = \"version\", known = \"1.6\" }")?;
    Some(AnswerVersion {
        field: JsonPath::parse(
            reader.require("field", "the field of the answer")?.text("the field of the answer")?,
        ),
        known: reader
            .require("known", "a version such as \"1.6\"")?
            .text("a version such as \"1.6\"")?
            .to_owned(),
    })
}

fn pagination(field: &Field<'_>) -> Option<Pagination> {
    const EXPECTED: &str = "\"none\", \"link\", or a table with `page`, `offset` or `cursor`";
    match field.as_text() {
        Some("none") => return Some(Pagination::None),
        Some("link") => return Some(Pagination::Link),
        Some(_) => return field.unexpected(EXPECTED),
        None => {}
    }
    let reader = field.table(PAGINATION_KEYS, EXPECTED)?;
    let text =
        |key| reader.take(key).and_then(|field| field.text("the name of a parameter").map(str::to_owned));
    let whole = |key| reader.take(key).and_then(|field| field.integer(0..=i64::MAX));
    let size = match (text("size"), whole("per").filter(|per| *per > 0)) {
        (Some(param), Some(per)) => Some(Size { param, per }),
        (None, None) => None,
        _ => {
            field.wrong("`size` and `per` go together: the parameter and how many items a page has");
            return None;
        }
    };
    match (text("page"), text("offset"), text("cursor")) {
        (Some(param), None, None) => {
            Some(Pagination::Page { param, first: whole("first").unwrap_or(1), size })
        }
        (None, Some(param), None) => match size {
            Some(size) => Some(Pagination::Offset { param, size }),
            None => field.unexpected("`size` and `per` beside `offset`"),
        },
        (None, None, Some(path)) => {
            let param = reader
                .require("param", "the parameter that takes the cursor")?
                .text("the name of a parameter")?;
            Some(Pagination::Cursor { field: JsonPath::parse(&path), param: param.to_owned() })
        }
        _ => field.unexpected(EXPECTED),
    }
}

fn resource(
    field: &Field<'_>,
    earlier: &[ResourceSpec],
    usual: &Pagination,
    names: &mut Names,
) -> Option<ResourceSpec> {
    let reader = field.table(RESOURCE_KEYS, "a table with `name`, `path`, `key` and `columns`")?;
    let name_field = reader.require("name", "the name of the table")?;
    let name = name_field.text("the name of the table")?;
    names.table(&name_field, name)?;
    let columns_field = reader.require("columns", "the columns of the table")?;
    let mut columns = Vec::new();
    for key in columns_field.keys() {
        columns.push(column::read(key, &columns_field.at(key)?)?);
    }
    let key_field = reader.require("key", "the column that names an item, or a list of columns")?;
    let key = texts(&key_field, "names of columns");
    let path_field = reader.require("path", "the path of the resource")?;
    let (path, parent) = template(&path_field, earlier)?;
    let table = TableSpec { name: name.to_owned(), key, columns };
    check_key(&key_field, &table)?;
    check_columns(&columns_field, &table, earlier, parent)?;
    names.indexes(&columns_field, &table.columns)?;
    Some(ResourceSpec {
        table,
        path,
        parent,
        each: reader.take("each").map(|field| each(&field)).unwrap_or_default(),
        items: JsonPath::parse(
            reader.take("items").and_then(|field| field.text("the list in the answer")).unwrap_or_default(),
        ),
        pagination: match reader.take("pagination") {
            Some(field) => pagination(&field)?,
            None => usual.clone(),
        },
    })
}

/// A parameter and its values. No values: the parameter is left out.
fn each(field: &Field<'_>) -> Option<(String, Vec<String>)> {
    const EXPECTED: &str = "one parameter and its values, such as { year = [\"2024\", \"2025\"] }";
    let mut keys = field.keys();
    let (Some(param), None) = (keys.next(), keys.next()) else { return field.unexpected(EXPECTED) };
    let mut found: Vec<String> = Vec::new();
    for item in field.at(param)?.list_or_one() {
        match &item.node.value {
            Value::Integer(number) => found.push(number.to_string()),
            Value::Text { text, .. } => found.extend(values::commas(text)),
            _ => return item.unexpected(EXPECTED),
        }
    }
    (!found.is_empty()).then(|| (param.to_owned(), found))
}

/// `/votes?case={cases.id}`: pieces of text and columns of one earlier resource.
fn template(field: &Field<'_>, earlier: &[ResourceSpec]) -> Option<(Vec<Part>, Option<usize>)> {
    let mut rest = field.text("the path of the resource")?;
    let mut parts = Vec::new();
    let mut parent = None;
    while let Some(open) = rest.find('{') {
        let Some(close) = rest[open..].find('}').map(|at| open + at) else {
            return field.unexpected("a path in which every `{` has its `}`");
        };
        let place = &rest[open + 1..close];
        let found = place.split_once('.').and_then(|(name, column)| {
            let at = earlier.iter().position(|other| other.table.name == name)?;
            let kind = &earlier[at].table.column(column)?.kind;
            matches!(kind, ColumnKind::Text | ColumnKind::Integer).then_some((at, column))
        });
        let Some((at, column)) = found.filter(|(at, _)| parent.is_none_or(|known| known == *at)) else {
            let note = "a place is {RESOURCE.COLUMN}: a text or integer column of one resource that comes before this one";
            field.wrong_with(format!("nothing can fill the place {{{}}}", repeated(place)), note);
            return None;
        };
        parent = Some(at);
        parts.push(Part::Text(rest[..open].to_owned()));
        parts.push(Part::Parent(column.to_owned()));
        rest = &rest[close + 1..];
    }
    parts.push(Part::Text(rest.to_owned()));
    Some((parts, parent))
}

fn check_key(field: &Field<'_>, table: &TableSpec) -> Option<()> {
    let fits = |column: &ColumnSpec| {
        !column.optional && matches!(column.kind, ColumnKind::Text | ColumnKind::Integer)
    };
    let good = |name: &String| table.column(name).is_some_and(fits);
    if table.key.is_empty() || !table.key.iter().all(good) {
        return field.unexpected("columns that are text or integer and always there");
    }
    Some(())
}

fn check_columns(
    field: &Field<'_>,
    table: &TableSpec,
    earlier: &[ResourceSpec],
    parent: Option<usize>,
) -> Option<()> {
    for column in &table.columns {
        if let Some(wanted) = &column.parent
            && parent.is_none_or(|at| earlier[at].table.column(wanted).is_none())
        {
            field.wrong(format!(
                "`{}` is filled from `{wanted}` of the parent, which has no such column",
                column.name
            ));
            return None;
        }
    }
    Some(())
}
