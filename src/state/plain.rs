//! Additions with nothing beside them, as the journal has them: most of a first load is such, and each is a short array
//! instead of an object with names.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::journal::{Change, Exact, PriorBase};
use super::telling::write_print;
use super::{Base, Intent, Pointer};
use crate::error::{Error, Kind, Result};
use crate::record::{Fingerprint, Scope, Version};
use crate::shape::canonical;

/// `[identity, stamp, fingerprint, scope, body]`: the stamp is `null` where it is the fingerprint, the scope where it is that
/// of the addition before; the body is left out where it is the fingerprint, and so is a `null` that would be the last.
pub struct Plain<'a> {
    identity: &'a str,
    stamp: &'a Fingerprint,
    base: &'a Base,
}

impl<'a> Plain<'a> {
    /// `None` = there is more to tell.
    pub fn of(intent: &'a Intent) -> Option<Self> {
        // All by name, so that none is ever forgotten.
        let Intent {
            identity,
            change: Change::Add,
            key: None,
            bytes: Some(Exact::AsNext),
            next: Some(next),
            prior: None,
            prior_fingerprint: None,
            prior_version: None,
            prior_base: None,
            retire: false,
            then,
            decision: None,
            lift: false,
            still_new: false,
            earlier: None,
        } = intent
        else {
            return None;
        };
        let PriorBase { stamp, base } = &**next;
        let Base {
            version,
            fingerprint: _,
            bytes: None,
            scope: _,
            body: _,
            key: None,
            carry: None,
            written: _,
        } = base
        else {
            return None;
        };
        (then.is_empty() && version.0.is_empty()).then_some(Plain { identity, stamp, base })
    }

    pub fn tell(&self, scope_before: &mut Option<&'a str>, to: &mut Vec<u8>) {
        let Base { fingerprint, scope, body, .. } = self.base;
        let known = scope_before.replace(scope) == Some(scope);
        let body = (!fingerprint.is_told_by(body)).then_some(body);
        to.push(b'[');
        canonical::write_string(to, self.identity);
        if self.stamp == fingerprint {
            to.extend_from_slice(b",null,");
        } else {
            to.push(b',');
            write_print(to, self.stamp);
            to.push(b',');
        }
        write_print(to, fingerprint);
        match (known, body) {
            (true, None) => {}
            (true, Some(_)) => to.extend_from_slice(b",null"),
            (false, _) => {
                to.push(b',');
                canonical::write_string(to, scope);
            }
        }
        if let Some(body) = body {
            to.push(b',');
            canonical::write_string(to, body);
        }
        to.push(b']');
    }
}

/// One of a batch as it is told.
pub enum Told {
    /// The scope is to be had from the one before where it is `None`.
    Plain(Box<Intent>, Option<Scope>),
    Whole(Box<Intent>),
}

impl<'de> Deserialize<'de> for Told {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Told;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a change, as an object or, if it is a plain addition, as an array")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Told, A::Error> {
                Intent::deserialize(MapAccessDeserializer::new(map))
                    .map(|intent| Told::Whole(Box::new(intent)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut told: A) -> Result<Told, A::Error> {
                let short = || A::Error::custom("an addition that tells too little");
                let identity: String = told.next_element()?.ok_or_else(short)?;
                let stamp: Option<Fingerprint> = told.next_element()?.ok_or_else(short)?;
                let fingerprint: Fingerprint = told.next_element()?.ok_or_else(short)?;
                let stamp = stamp.unwrap_or(fingerprint);
                let scope = told.next_element::<Option<Scope>>()?.flatten();
                let body = told.next_element::<String>()?.unwrap_or_else(|| fingerprint.to_string());
                let base = base(fingerprint, body);
                Ok(Told::Plain(Box::new(addition(identity, PriorBase { stamp, base })), scope))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

fn base(fingerprint: Fingerprint, body: String) -> Base {
    Base {
        version: Version::default(),
        fingerprint,
        bytes: None,
        scope: Scope::default(),
        body,
        key: None,
        carry: None,
        written: Pointer::unset(),
    }
}

fn addition(identity: String, next: PriorBase) -> Intent {
    Intent {
        identity,
        change: Change::Add,
        key: None,
        bytes: Some(Exact::AsNext),
        next: Some(Box::new(next)),
        prior: None,
        prior_fingerprint: None,
        prior_version: None,
        prior_base: None,
        retire: false,
        then: Vec::new(),
        decision: None,
        lift: false,
        still_new: false,
        earlier: None,
    }
}

/// The changes of a batch, each with its scope.
pub fn intents(told: Vec<Told>) -> Result<Vec<Intent>> {
    let mut before: Option<Scope> = None;
    let whole = told.into_iter().map(|told| match told {
        Told::Whole(intent) => Ok(*intent),
        Told::Plain(mut intent, scope) => {
            let scope = scope.or_else(|| before.clone()).ok_or_else(|| {
                Error::new(Kind::Corrupt, "the first addition in a batch of the journal has no scope")
            })?;
            if let Some(next) = &mut intent.next {
                next.base.scope = scope.clone();
            }
            before = Some(scope);
            Ok(*intent)
        }
    });
    whole.collect()
}

#[cfg(test)]
mod tests {
    use super::super::journal::journal;
    use super::*;
    use crate::store::Op;

    fn plain(identity: &str, scope: &str, body: Option<&str>) -> Intent {
        let fingerprint = Fingerprint::of(identity.as_bytes());
        let body = body.map_or_else(|| fingerprint.to_string(), str::to_owned);
        let base = Base { scope: scope.into(), ..base(fingerprint, body) };
        addition(identity.to_owned(), PriorBase { stamp: Fingerprint::of(b"stamp"), base })
    }

    fn told(batch: &[Intent]) -> String {
        let Op::Put { value, .. } = journal("key".into(), batch.iter()).unwrap().op else {
            panic!("a batch is put")
        };
        String::from_utf8(value.to_vec()).unwrap()
    }

    /// Its own stamp, as rows are.
    fn own(identity: &str, scope: &str) -> Intent {
        let mut intent = plain(identity, scope, None);
        if let Some(next) = &mut intent.next {
            next.stamp = next.base.fingerprint;
        }
        intent
    }

    fn letters(of: &str) -> String {
        Fingerprint::of(of.as_bytes()).with_letters(|letters| String::from_utf8(letters.to_vec()).unwrap())
    }

    #[test]
    fn plain_additions_are_arrays_that_come_back_whole() {
        let other = Intent { change: Change::Update, ..plain("u", "s", None) };
        let batch = [
            plain("a \"1\"", "s", None),
            plain("b", "s", None),
            plain("c", "s", Some("7")),
            other,
            plain("d", "s", None),
            plain("e", "", None),
            plain("f", "", Some("")),
            plain("g", "s/é", Some("8")),
            own("h", "t"),
            own("i", "t"),
        ];
        let text = told(&batch);
        let stamp = letters("stamp");
        for wanted in [
            format!(r#"[["a \"1\"","{stamp}","{}","s"],"#, letters("a \"1\"")),
            format!(r#",["b","{stamp}","{}"],"#, letters("b")),
            format!(r#",["c","{stamp}","{}",null,"7"],{{"i":"u","#, letters("c")),
            format!(r#",["d","{stamp}","{}"],"#, letters("d")),
            format!(r#",["e","{stamp}","{}",""],"#, letters("e")),
            format!(r#",["f","{stamp}","{}",null,""],"#, letters("f")),
            format!(r#",["g","{stamp}","{}","s/é","8"],"#, letters("g")),
            format!(r#",["h",null,"{}","t"],"#, letters("h")),
            format!(r#",["i",null,"{}"]]"#, letters("i")),
        ] {
            assert!(text.contains(&wanted), "{wanted} is not in {text}");
        }
        assert_eq!(intents(serde_json::from_str(&text).unwrap()).unwrap(), batch);
    }

    /// One thing more, whatever it is, and it is told by name.
    #[test]
    fn whatever_is_more_than_a_plain_addition_is_told_whole() {
        let base = |change: fn(&mut Base)| {
            let mut intent = plain("a", "s", None);
            change(&mut intent.next.as_mut().unwrap().base);
            intent
        };
        let pointer = || Pointer { run: "R".into(), batch: 1, index: 2 };
        let whole = [
            Intent { change: Change::Delete, next: None, bytes: None, ..plain("a", "s", None) },
            Intent { key: Some("k".into()), ..plain("a", "s", None) },
            Intent { bytes: None, ..plain("a", "s", None) },
            Intent { bytes: Some(Exact::Are(Fingerprint::of(b"b"))), ..plain("a", "s", None) },
            Intent { prior_version: Some(Version("1".into())), ..plain("a", "s", None) },
            Intent { prior_fingerprint: Some(Fingerprint::of(b"b")), ..plain("a", "s", None) },
            Intent { prior_base: plain("a", "s", None).next, ..plain("a", "s", None) },
            Intent { retire: true, ..plain("a", "s", None) },
            Intent { then: vec!["export".into()], ..plain("a", "s", None) },
            Intent { lift: true, ..plain("a", "s", None) },
            Intent { still_new: true, ..plain("a", "s", None) },
            Intent { earlier: Some(pointer()), ..plain("a", "s", None) },
            base(|base| base.version = Version("3".into())),
            base(|base| base.bytes = Some(Fingerprint::of(b"b"))),
            base(|base| base.key = Some("k".into())),
            base(|base| base.carry = Some(serde_json::json!({"x": 1}))),
        ];
        for intent in whole {
            let text = told(std::slice::from_ref(&intent));
            assert!(text.starts_with(r#"[{"i":"a","#), "{text}");
            assert_eq!(intents(serde_json::from_str(&text).unwrap()).unwrap(), [intent], "{text}");
        }
    }

    #[test]
    fn an_array_that_is_no_addition_is_an_error() {
        let print = letters("x");
        for told in [
            "[[]]".to_owned(),
            r#"[["a"]]"#.to_owned(),
            format!(r#"[["a","{print}"]]"#),
            format!(r#"[["a","{print}",null]]"#),
            format!(r#"[["a","{print}","{}"]]"#, &print[1..]),
            format!(r#"[["a","{print}","{print}",7]]"#),
            format!(r#"[["a","{print}","{print}","s","b","more"]]"#),
            "[7]".to_owned(),
        ] {
            assert!(serde_json::from_str::<Vec<Told>>(&told).is_err(), "{told}");
        }
        let nowhere = format!(r#"[["a","{print}","{print}"]]"#);
        assert!(intents(serde_json::from_str(&nowhere).unwrap()).is_err());
    }
}
