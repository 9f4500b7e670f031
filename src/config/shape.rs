//! Shapes: which kinds there are, and what the keys they write begin with: two of them may share a store in which they
//! cannot meet.
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

/// What the keys of a registry begin with: policies, and what is published beside them.
pub const POLICIES: &str = "policy:";
pub const QUEUE: &str = "queue:";
pub const DEAD_LETTERS: &str = "dead-letter:";
pub const METADATA: &str = "metadata:";
/// And those of exported policies.
pub const POLICY_OBJECTS: &str = "policies/";

/// What every key that is written begins with, one of these. `raw` writes whatever the source names, and `rows` into tables
/// whose names are the recipe's.
pub fn heads(shape: &ShapeSpec, exported: bool) -> Vec<&str> {
    match shape {
        ShapeSpec::Policy if exported => vec![POLICY_OBJECTS],
        ShapeSpec::Policy => vec![POLICIES, QUEUE, DEAD_LETTERS, METADATA],
        ShapeSpec::Article(spec) => vec![spec.key.head()],
        ShapeSpec::Raw | ShapeSpec::Rows(_) => vec![""],
    }
}

/// Whether keys that begin so can never be the same. Some file systems take `A` for `a`.
pub fn are_apart(some: &[&str], others: &[&str]) -> bool {
    some.iter().all(|one| {
        let one = one.to_lowercase();
        others
            .iter()
            .map(|other| other.to_lowercase())
            .all(|other| !one.starts_with(&other) && !other.starts_with(&one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ArticleSpec, KeyTemplate};

    #[test]
    fn writers_are_apart_where_no_key_begins_like_one_of_the_other() {
        let article = |key: &str| {
            ShapeSpec::Article(ArticleSpec {
                key: KeyTemplate::parse(key).unwrap(),
                ..ArticleSpec::default()
            })
        };
        let news = ShapeSpec::Article(ArticleSpec::default());
        let cases = [
            ((&ShapeSpec::Policy, true), (&news, false), true),
            ((&ShapeSpec::Policy, false), (&news, false), true),
            ((&ShapeSpec::Policy, false), (&ShapeSpec::Policy, true), true),
            ((&ShapeSpec::Policy, true), (&ShapeSpec::Policy, true), false),
            ((&ShapeSpec::Policy, false), (&ShapeSpec::Raw, false), false),
            ((&news, false), (&news, true), false),
            ((&news, false), (&article("news/{board}/{article}"), false), true),
            ((&news, false), (&article("rss/{board}/x/{article}"), false), false),
            ((&news, false), (&article("{board}/{article}"), false), false),
            ((&ShapeSpec::Policy, true), (&article("Policies/{board}/{article}"), false), false),
            ((&ShapeSpec::Policy, true), (&article("pol{board}/{article}"), false), false),
            ((&ShapeSpec::Policy, false), (&article("queue:{board}/{article}"), false), false),
        ];
        for (one, other, apart) in cases {
            let (some, others) = (heads(one.0, one.1), heads(other.0, other.1));
            assert_eq!(
                (are_apart(&some, &others), are_apart(&others, &some)),
                (apart, apart),
                "{some:?} {others:?}"
            );
        }
    }
}
