//! The items of an answer. Of each only what the recipe names is kept, the rest is read over: most APIs tell much more
//! than anybody asks for.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::config::JsonPath;

/// An item of a list.
#[derive(Debug, PartialEq)]
pub enum Item {
    /// An object's members, in the order they are wanted.
    Members(Vec<Option<Value>>),
    /// Whatever is no object, or is wanted as a whole.
    Whole(Value),
}

/// The members of an item that paths begin with; `None` = a path stands for all of it.
#[derive(Debug)]
pub struct Wanted(Option<Vec<String>>);

impl Wanted {
    pub fn of<'a>(paths: impl Iterator<Item = &'a JsonPath>) -> Self {
        let mut names: Vec<String> = Vec::new();
        for path in paths {
            let Some(name) = path.0.first() else { return Wanted(None) };
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Wanted(Some(names))
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.0.as_ref()?.iter().position(|wanted| wanted == name)
    }

    /// What is at a path, one of those it was made of.
    pub fn find<'v>(&self, path: &JsonPath, item: &'v Item) -> Option<&'v Value> {
        match item {
            Item::Whole(value) => path.find(value),
            Item::Members(members) => {
                let (first, rest) = path.0.split_first()?;
                JsonPath::find_in(rest, members.get(self.place(first)?)?.as_ref()?)
            }
        }
    }
}

/// The list at a path of an answer, `None` if that is no list, and what is around it.
pub fn read(body: &[u8], path: &JsonPath, wanted: &Wanted) -> serde_json::Result<(Option<Vec<Item>>, Value)> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut items = None;
    let rest = Level { path: &path.0, wanted, items: &mut items }.deserialize(&mut json)?;
    json.end()?;
    Ok((items, rest))
}

/// What is neither a list nor an object.
macro_rules! plain {
    ($value:ty, $wrap:expr) => {
        type Value = $value;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }

        fn visit_unit<E: Error>(self) -> Result<$value, E> {
            Ok($wrap(Value::Null))
        }

        fn visit_bool<E: Error>(self, truth: bool) -> Result<$value, E> {
            Ok($wrap(Value::Bool(truth)))
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<$value, E> {
            Ok($wrap(Value::Number(number.into())))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<$value, E> {
            Ok($wrap(Value::Number(number.into())))
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<$value, E> {
            Ok($wrap(Number::from_f64(number).map_or(Value::Null, Value::Number)))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<$value, E> {
            Ok($wrap(Value::String(text.to_owned())))
        }
    };
}

/// On the way to the list.
struct Level<'a> {
    path: &'a [String],
    wanted: &'a Wanted,
    items: &'a mut Option<Vec<Item>>,
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    plain!(Value, std::convert::identity);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut around = Vec::new();
        if self.path.is_empty() {
            let mut items = Vec::new();
            while let Some(item) = list.next_element_seed(One(self.wanted))? {
                items.push(item);
            }
            *self.items = Some(items);
        } else {
            while let Some(value) = list.next_element()? {
                around.push(value);
            }
        }
        Ok(Value::Array(around))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut around = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = match self.path.split_first() {
                Some((first, path)) if *first == name => {
                    // Of two with one name the last one counts.
                    *self.items = None;
                    members.next_value_seed(Level { path, wanted: self.wanted, items: &mut *self.items })?
                }
                _ => members.next_value()?,
            };
            around.insert(name, value);
        }
        Ok(Value::Object(around))
    }
}

/// An item.
struct One<'a>(&'a Wanted);

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Item, D::Error> {
        match &self.0.0 {
            None => Value::deserialize(json).map(Item::Whole),
            Some(_) => json.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for One<'_> {
    plain!(Item, Item::Whole);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Item, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Item::Whole(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Item, A::Error> {
        let mut kept: Vec<Option<Value>> = self.0.0.iter().flatten().map(|_| None).collect();
        while let Some(place) = members.next_key_seed(Name(self.0))? {
            match place.and_then(|place| kept.get_mut(place)) {
                Some(member) => *member = Some(members.next_value()?),
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Item::Members(kept))
    }
}

/// A member's name, as its place among those that are wanted.
struct Name<'a>(&'a Wanted);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Option<usize>, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.place(name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(body: &str, path: &str, columns: &[&str]) -> (Option<Vec<Item>>, Value) {
        let paths: Vec<JsonPath> = columns.iter().map(|path| JsonPath::parse(path)).collect();
        read(body.as_bytes(), &JsonPath::parse(path), &Wanted::of(paths.iter())).unwrap()
    }

    /// Whatever is kept, a path finds what it finds in the whole item.
    #[test]
    fn paths_find_what_they_find_in_the_whole() {
        let columns = ["id", "at.b", "at.c.0", "list.1", "gone", "n\u{e4}me", "0"];
        let bodies = [
            r#"[{"id": 1, "x": {"y": [1, 2]}, "at": {"b": "t", "c": [null]}, "list": [1, 2.5], "n\u00e4me": "é\n"}]"#,
            r#"[{"id": 1, "id": 2}, {}, {"at": 3}, [7, 8], "text", null, true, -5, 18446744073709551615, 1e3]"#,
        ];
        for body in bodies {
            let (items, rest) = listed(body, "", &columns);
            let (items, whole): (_, Vec<Value>) = (items.unwrap(), serde_json::from_str(body).unwrap());
            assert_eq!((items.len(), rest), (whole.len(), json!([])));
            let paths: Vec<JsonPath> = columns.iter().map(|path| JsonPath::parse(path)).collect();
            let wanted = Wanted::of(paths.iter());
            for (item, whole) in items.iter().zip(&whole) {
                for path in &paths {
                    assert_eq!(wanted.find(path, item), path.find(whole), "{path} in {whole}");
                }
            }
        }
    }

    #[test]
    fn a_list_is_found_in_its_envelope_and_the_rest_is_kept() {
        let body = r#"{"meta": {"next": 7}, "data": {"rows": [{"id": 1}], "of": 9}}"#;
        let (items, rest) = listed(body, "data.rows", &["id"]);
        assert_eq!(items, Some(vec![Item::Members(vec![Some(json!(1))])]));
        assert_eq!(rest, json!({"meta": {"next": 7}, "data": {"rows": [], "of": 9}}));
        for (body, path) in [("{}", ""), ("7", ""), (r#"{"data": 3}"#, "data.rows"), ("[[1]]", "0")] {
            let (items, rest) = listed(body, path, &["id"]);
            assert_eq!((items, rest), (None, serde_json::from_str::<Value>(body).unwrap()), "{body}");
        }
        let twice = r#"{"rows": [{"id": 1}], "rows": 3}"#;
        assert_eq!(listed(twice, "rows", &["id"]), (None, json!({"rows": 3})));
    }

    #[test]
    fn an_item_that_is_wanted_as_a_whole_is_kept_so() {
        let (items, _) = listed(r#"[{"id": 1, "x": 2}]"#, "", &["id", ""]);
        assert_eq!(items, Some(vec![Item::Whole(json!({"id": 1, "x": 2}))]));
    }

    #[test]
    fn what_is_cut_off_is_no_answer() {
        let wanted = Wanted::of([JsonPath::parse("id")].iter());
        let fails = |body: &str| read(body.as_bytes(), &JsonPath::parse(""), &wanted).unwrap_err();
        assert!(fails(r#"[{"id": 1}, {"x": "#).is_eof());
        assert!(fails(r#"[{"id": 1}"#).is_eof());
        assert!(!fails(r#"[{"id": 1}] x"#).is_eof());
        assert!(!fails(r#"[{"x": tru}]"#).is_eof());
    }
}
