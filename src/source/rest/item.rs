//! The items of an answer. Of each only what the recipe names is kept, the rest is read over: most APIs tell much more
//! than anybody asks for. Texts stay where they are in the answer.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::config::JsonPath;

/// An item of a list.
#[derive(Debug, PartialEq)]
pub enum Item<'a> {
    /// An object's members, in the order they are wanted.
    Members(Vec<Option<Member<'a>>>),
    /// Whatever is no object, or is wanted as a whole.
    Whole(Value),
}

/// A member of an item.
#[derive(Debug, PartialEq)]
pub enum Member<'a> {
    Text(Cow<'a, str>),
    Other(Value),
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found<'v> {
    Text(&'v str),
    /// Anything but a text.
    Other(&'v Value),
}

impl<'v> From<&'v Value> for Found<'v> {
    fn from(value: &'v Value) -> Self {
        match value {
            Value::String(text) => Found::Text(text),
            other => Found::Other(other),
        }
    }
}

impl Found<'_> {
    pub fn is_null(self) -> bool {
        matches!(self, Found::Other(Value::Null))
    }

    pub fn to_value(self) -> Value {
        match self {
            Found::Text(text) => Value::String(text.to_owned()),
            Found::Other(value) => value.clone(),
        }
    }
}

/// The members of an item that paths begin with; `None` = a path stands for all of it.
#[derive(Debug)]
pub struct Wanted(Option<Vec<String>>);

/// Where a path leads in an item.
#[derive(Debug)]
pub struct Place {
    /// The place of its first name among those that are wanted.
    member: Option<usize>,
    path: JsonPath,
}

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

    /// The place of a name; `likely` is looked at first.
    fn member(&self, name: &str, likely: usize) -> Option<usize> {
        let names = self.0.as_ref()?;
        if names.get(likely).is_some_and(|wanted| wanted == name) {
            return Some(likely);
        }
        names.iter().position(|wanted| wanted == name)
    }

    /// The place of a path, one of those it was made of.
    pub fn place(&self, path: &JsonPath) -> Place {
        let member = path.0.first().and_then(|name| self.member(name, 0));
        Place { member, path: path.clone() }
    }
}

impl Place {
    pub fn find<'v>(&self, item: &'v Item<'_>) -> Option<Found<'v>> {
        match item {
            Item::Whole(value) => self.path.find(value).map(Found::from),
            Item::Members(members) => {
                let within = self.path.0.get(1..)?;
                match members.get(self.member?)?.as_ref()? {
                    Member::Text(text) => within.is_empty().then_some(Found::Text(text)),
                    Member::Other(value) => JsonPath::find_in(within, value).map(Found::from),
                }
            }
        }
    }
}

/// The list at a path of an answer, `None` if that is no list, and what is around it.
pub fn read<'a>(
    body: &'a [u8],
    path: &JsonPath,
    wanted: &Wanted,
) -> serde_json::Result<(Option<Vec<Item<'a>>>, Value)> {
    // Looked through once as a whole, the texts in it need no look of their own. What is wrong with others is told.
    match std::str::from_utf8(body) {
        Ok(text) => read_from(serde_json::Deserializer::from_str(text), path, wanted),
        Err(_) => read_from(serde_json::Deserializer::from_slice(body), path, wanted),
    }
}

fn read_from<'a, R: serde_json::de::Read<'a>>(
    mut json: serde_json::Deserializer<R>,
    path: &JsonPath,
    wanted: &Wanted,
) -> serde_json::Result<(Option<Vec<Item<'a>>>, Value)> {
    let mut items = None;
    let rest = Level { path: &path.0, wanted, items: &mut items }.deserialize(&mut json)?;
    json.end()?;
    Ok((items, rest))
}

/// What is neither a text, a list nor an object.
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
    };
}

/// On the way to the list.
struct Level<'a, 'de> {
    path: &'a [String],
    wanted: &'a Wanted,
    items: &'a mut Option<Vec<Item<'de>>>,
}

impl<'de> DeserializeSeed<'de> for Level<'_, 'de> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_, 'de> {
    plain!(Value, std::convert::identity);

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

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
                    // Of two lists nobody knows which one is meant.
                    if around.contains_key(&name) {
                        return Err(A::Error::custom(format!("`{name}` is there twice")));
                    }
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
    type Value = Item<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Item<'de>, D::Error> {
        match &self.0.0 {
            None => Value::deserialize(json).map(Item::Whole),
            Some(_) => json.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for One<'_> {
    plain!(Item<'de>, Item::Whole);

    fn visit_str<E: Error>(self, text: &str) -> Result<Item<'de>, E> {
        Ok(Item::Whole(Value::String(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Item<'de>, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list)).map(Item::Whole)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Item<'de>, A::Error> {
        let mut kept = Vec::new();
        kept.resize_with(self.0.0.as_ref().map_or(0, Vec::len), || None);
        // Recipes and answers often agree on the order.
        let mut likely = 0;
        while let Some(place) = members.next_key_seed(Name(self.0, likely))? {
            match place.and_then(|place| kept.get_mut(place)) {
                Some(member) => *member = Some(members.next_value()?),
                None => drop(members.next_value::<IgnoredAny>()?),
            }
            likely = place.map_or(likely, |place| place + 1);
        }
        Ok(Item::Members(kept))
    }
}

impl<'de> Deserialize<'de> for Member<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Any)
    }
}

/// Whatever a member may be.
struct Any;

impl<'de> Visitor<'de> for Any {
    plain!(Member<'de>, Member::Other);

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Member<'de>, E> {
        Ok(Member::Text(Cow::Borrowed(text)))
    }

    /// A text with escapes, which is nowhere as it reads.
    fn visit_str<E: Error>(self, text: &str) -> Result<Member<'de>, E> {
        Ok(Member::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Member<'de>, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list)).map(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Member<'de>, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(members)).map(Member::Other)
    }
}

/// A member's name, as its place among those that are wanted.
struct Name<'a>(&'a Wanted, usize);

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
        Ok(self.0.member(name, self.1))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed<'a>(body: &'a str, path: &str, columns: &[&str]) -> (Option<Vec<Item<'a>>>, Value) {
        let paths: Vec<JsonPath> = columns.iter().map(|path| JsonPath::parse(path)).collect();
        read(body.as_bytes(), &JsonPath::parse(path), &Wanted::of(paths.iter())).unwrap()
    }

    /// Whatever is kept, a path finds what it finds in the whole item.
    #[test]
    fn paths_find_what_they_find_in_the_whole() {
        let columns = ["id", "at.b", "at.c.0", "list.1", "gone", "n\u{e4}me", "0"];
        let bodies = [
            r#"[{"id": 1, "x": {"y": [1, 2]}, "at": {"b": "t", "c": [null]}, "list": [1, 2.5], "n\u00e4me": "é\n"}]"#,
            r#"[{"id": 1, "id": 2}, {"id": "a", "id": "b\"", "id": null}, {"id": [], "id": "c"}, {}, {"at": 3}, [7, 8], "text", null, true, -5, 18446744073709551615, 1e3]"#,
        ];
        for body in bodies {
            let (items, rest) = listed(body, "", &columns);
            let (items, whole): (_, Vec<Value>) = (items.unwrap(), serde_json::from_str(body).unwrap());
            assert_eq!((items.len(), rest), (whole.len(), json!([])));
            let paths: Vec<JsonPath> = columns.iter().map(|path| JsonPath::parse(path)).collect();
            let wanted = Wanted::of(paths.iter());
            for (item, whole) in items.iter().zip(&whole) {
                for path in &paths {
                    let found = wanted.place(path).find(item).map(Found::to_value);
                    assert_eq!(found.as_ref(), path.find(whole), "{path} in {whole}");
                }
            }
        }
    }

    #[test]
    fn a_list_is_found_in_its_envelope_and_the_rest_is_kept() {
        let body = r#"{"meta": {"next": 7}, "data": {"rows": [{"id": 1}], "of": 9}}"#;
        let (items, rest) = listed(body, "data.rows", &["id"]);
        assert_eq!(items, Some(vec![Item::Members(vec![Some(Member::Other(json!(1)))])]));
        assert_eq!(rest, json!({"meta": {"next": 7}, "data": {"rows": [], "of": 9}}));
        for (body, path) in [("{}", ""), ("7", ""), (r#"{"data": 3}"#, "data.rows"), ("[[1]]", "0")] {
            let (items, rest) = listed(body, path, &["id"]);
            assert_eq!((items, rest), (None, serde_json::from_str::<Value>(body).unwrap()), "{body}");
        }
        let twice = br#"{"rows": [{"id": 1}], "rows": []}"#;
        let wanted = Wanted::of([JsonPath::parse("id")].iter());
        let refused = read(twice, &JsonPath::parse("rows"), &wanted).unwrap_err();
        assert!(refused.to_string().contains("`rows` is there twice"), "{refused}");
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
