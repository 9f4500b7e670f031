//! Canonical JSON: the RFC's own examples, Node on the same values, the reference crate, and a map that keeps order.

use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Map, Value, json};
use trueup::shape::canonical;

fn text(value: &Value) -> String {
    String::from_utf8(canonical::to_vec(value)).unwrap()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// RFC 8785, sections 3.2.2 to 3.2.4.
#[test]
fn the_examples_of_the_rfc_come_out_as_it_says() {
    let sample = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
                    \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    assert_eq!(text(&parsed(sample)), expected);
    let keys = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
                   "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
    let Value::Object(map) = parsed(&text(&parsed(keys))) else { panic!("an object stays an object") };
    assert_eq!(map.len(), 7);
    let order = ["\\r", "1", "\u{80}", "ö", "€", "😀", "\u{fb33}"].map(|key| format!("\"{key}\":"));
    let out = text(&parsed(keys));
    let places: Vec<_> =
        order.iter().map(|key| out.find(key.as_str()).unwrap_or_else(|| panic!("{key} in {out}"))).collect();
    assert!(places.is_sorted(), "{out}");
}

/// RFC 8785, appendix B.
#[test]
fn numbers_are_printed_as_the_appendix_of_the_rfc_says() {
    for (bits, expected) in [
        (0x0000_0000_0000_0000_u64, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        assert_eq!(text(&json!(f64::from_bits(bits))), expected, "{bits:x}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no others", |real| real.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Integers beyond 2^53 are doubles to JavaScript; the reference crate prints them in full.
fn as_doubles(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().unwrap()),
        Value::Array(items) => items.iter().map(as_doubles).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), as_doubles(value))).collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn the_reference_crate_agrees(value in any_json()) {
        let reference = serde_json_canonicalizer::to_string(&as_doubles(&value)).unwrap();
        prop_assert_eq!(text(&value), reference);
    }

    /// However many digits it is written with. A reader that is off by one digit in the last place would store another
    /// number than the source has.
    #[test]
    fn a_number_is_the_double_nearest_to_it(bits in any::<u64>(), small in -180.0f64..180.0) {
        let any = f64::from_bits(bits);
        for number in [small, if any.is_finite() { any } else { 0.5 }] {
            for text in [format!("{number:e}"), format!("{number:.14e}"), format!("{number:.16e}")] {
                let nearest: f64 = text.parse().unwrap();
                prop_assert_eq!(parsed(&text).as_f64().map(f64::to_bits), Some(nearest.to_bits()), "{}", text);
            }
        }
    }

    #[test]
    fn the_order_of_a_map_means_nothing(value in any_json(), seed in any::<u64>()) {
        // `preserve_order` would keep the order of insertion; text in another order stands for it.
        let shuffled = in_another_order(&value, seed);
        prop_assert_eq!(canonical::fingerprint(&parsed(&shuffled)), canonical::fingerprint(&value));
    }
}

fn in_another_order(value: &Value, seed: u64) -> String {
    match value {
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(|item| in_another_order(item, seed)).collect::<Vec<_>>().join(",")
        ),
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(key, _)| {
                key.bytes().fold(seed, |hash, byte| hash.rotate_left(7) ^ u64::from(byte))
            });
            let fields =
                fields.iter().map(|(key, value)| format!("{}:{}", json!(key), in_another_order(value, seed)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// The writer takes fields in the order it sorts them into, whatever order the map gives them in.
#[test]
fn keys_are_sorted_by_code_units_and_not_by_bytes() {
    let mut map = Map::new();
    for key in ["\u{fb33}", "\u{1f600}", "z", "a", "é"] {
        map.insert(key.to_owned(), Value::Null);
    }
    let out = text(&Value::Object(map));
    assert_eq!(out, "{\"a\":null,\"z\":null,\"é\":null,\"\u{1f600}\":null,\"\u{fb33}\":null}");
}

/// Node sorts keys by code units too, and prints as JSON.stringify does.
#[test]
fn node_prints_the_same() {
    const PRINT: &str = "const sorted = v => Array.isArray(v) ? v.map(sorted) : v && typeof v === 'object'
        ? Object.keys(v).sort().map(k => JSON.stringify(k) + ':' + sorted(v[k])) : JSON.stringify(v);
        const text = v => Array.isArray(v) ? '[' + v.map(text).join(',') + ']' : v && typeof v === 'object'
        ? '{' + Object.keys(v).sort().map(k => JSON.stringify(k) + ':' + text(v[k])).join(',') + '}' : JSON.stringify(v);
        for (const line of require('fs').readFileSync(0, 'utf8').split('\\n')) if (line) console.log(text(JSON.parse(line)));";
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let values: Vec<Value> = (0..500).map(|_| any_json().new_tree(&mut runner).unwrap().current()).collect();
    let lines: Vec<String> = values.iter().map(Value::to_string).collect();
    let mut node = Command::new("node")
        .args(["-e", PRINT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs `node`");
    let mut stdin = node.stdin.take().unwrap();
    let input = lines.join("\n");
    let feeding = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = node.wait_with_output().unwrap();
    feeding.join().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().count(), values.len());
    for (value, line) in values.iter().zip(printed.lines()) {
        assert_eq!(text(value), line);
    }
}
