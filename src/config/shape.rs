//! Shapes: which kinds there are, and whether two of them can write into one store without meeting.
//!
//! `as = "raw"`, or a table with the shape's settings: `as = { article = { … } }`. A new kind is a line in `KINDS`.

use super::article;
use super::locate::suggestion;
use super::model::ShapeSpec;
use super::reader::{Field, listed, repeated};
use super::rows;

struct ShapeKind {
    name: &'static str,
    /// `None` = named without settings.
    read: fn(Option<&Field<'_>>) -> Option<ShapeSpec>,
}

const KINDS: [ShapeKind; 4] = [
    ShapeKind { name: "article", read: article::read },
    ShapeKind { name: "policy", read: policy },
    ShapeKind { name: "raw", read: raw },
    ShapeKind { name: "rows", read: rows::read },
];

const EXPECTED: &str = "a shape such as \"raw\"";

pub fn read(field: &Field<'_>) -> Option<ShapeSpec> {
    let mut keys = field.keys();
    let (name, settings) = match (field.as_text(), keys.next(), keys.next()) {
        (Some(name), ..) => (name, None),
        (None, Some(name), None) => (name, field.at(name)),
        _ => return field.unexpected(EXPECTED),
    };
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
        return (kind.read)(settings.as_ref());
    }
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let note = format!("shapes are: {}", listed(&names));
    let meant = suggestion(name, names);
    field.wrong_with(format!("there is no shape `{}`{meant}", repeated(name)), note);
    None
}

fn raw(settings: Option<&Field<'_>>) -> Option<ShapeSpec> {
    if let Some(field) = settings {
        field.table(&[], "an empty table: raw has no settings")?;
    }
    Some(ShapeSpec::Raw)
}

fn policy(settings: Option<&Field<'_>>) -> Option<ShapeSpec> {
    if let Some(field) = settings {
        field.table(&[], "an empty table: policy has no settings")?;
    }
    Some(ShapeSpec::Policy)
}

/// Whether the keys two shapes write can never be the same. `raw` writes whatever the source names.
pub fn disjoint(one: &ShapeSpec, other: &ShapeSpec) -> bool {
    type S = ShapeSpec;
    match (one, other) {
        (
            S::Raw | S::Article(_) | S::Rows(_) | S::Policy,
            S::Raw | S::Article(_) | S::Rows(_) | S::Policy,
        ) => false,
    }
}
