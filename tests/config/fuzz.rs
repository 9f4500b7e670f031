//! Whatever is in the file: an answer, never a panic, and no secret in it.

use proptest::prelude::*;

use super::parse;

const VALID: &str = r#"
[state]
store = "sqlite:.trueup/state.db"
[stores]
kv = "sqlite:kv.db"
r2 = { url = "s3://bucket/p", endpoint = "http://h", secret_key_env = "KEY" }
[pipelines.f]
from = { files = "${FOLDER:-in}", include = ["**/*.md"] }
as = "raw"
into = "kv"
then = [{ export = "r2" }, { webhook = "https://h/x", timeout = "5s" }, { command = ["a", "b"] }]
when = "0 16 * * *"
tz = "Europe/Oslo"
guard = { max_delete = "30%", above = 10 }
journal = { keep = "30d", max = "1GB" }
"#;

/// Pieces that have a meaning somewhere.
const PIECES: [&str; 24] = [
    "\"",
    "'",
    "\"\"\"",
    "[",
    "]",
    "{",
    "}",
    "=",
    ",",
    "\n",
    "${",
    "}",
    ":-",
    "å",
    "\u{0}",
    "\u{feff}",
    "1e9",
    "-1",
    "true",
    "[[pipelines.f]]",
    "from.files",
    "1979-05-27",
    "sqlite:",
    "//",
];

/// Break a text at several places: cut, insert, double.
fn mutated() -> impl Strategy<Value = String> {
    let step = (any::<prop::sample::Index>(), 0..4_usize, prop::sample::select(&PIECES[..]), 0..12_usize);
    prop::collection::vec(step, 1..8).prop_map(|steps| {
        let mut chars: Vec<char> = VALID.chars().collect();
        for (at, what, piece, length) in steps {
            let at = at.index(chars.len().max(1));
            let end = (at + length).min(chars.len());
            match what {
                0 => drop(chars.drain(at..end)),
                1 => drop(chars.splice(at..at, piece.chars())),
                2 => drop(chars.splice(at..end, piece.chars())),
                _ => {
                    let part: Vec<char> = chars[at..end].to_vec();
                    chars.splice(at..at, part);
                }
            }
        }
        chars.into_iter().collect()
    })
}

#[test]
fn what_is_broken_below_was_whole() {
    parse(VALID).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_broken_config_gets_an_answer_with_a_position(text in mutated()) {
        if let Err(error) = parse(&text) {
            prop_assert!(error.to_string().starts_with("trueup.toml:"), "{}", error);
            prop_assert_eq!(error.kind(), trueup::error::Kind::Config);
        }
    }

    #[test]
    fn any_text_gets_an_answer(text in "\\PC*|[\\[\\]{}=\"'a-z.\n$ :-]{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_value_of_any_key_gets_an_answer(
        key in prop::sample::select(
            trueup::config::KEYS.iter().flat_map(|(_, keys)| keys.iter().copied()).collect::<Vec<_>>()),
        value in "[-+]?[0-9]{0,25}|\"[^\"\\\\\n]{0,30}\"|\\[\\]|\\{\\}|true|[0-9]{4}-0[1-9]-01",
    ) {
        let _ = parse(&format!("[pipelines.f]\nfrom = {{ files = \"in\" }}\ninto = \"memory:\"\n{key} = {value}\n"));
        let _ = parse(&format!("[pipelines.f]\nfrom = {{ {key} = {value} }}\ninto = {{ {key} = {value} }}\n"));
    }
}

#[test]
fn deep_and_long_files_get_an_answer() {
    for text in [
        "a.".repeat(100_000) + "b = 1",
        "a = ".to_owned() + &"[".repeat(100_000),
        "x = \"".to_owned() + &"${A:-".repeat(50_000) + "\"",
        "k".repeat(1_000_000) + " = 1",
    ] {
        assert!(parse(&text).is_err());
    }
}
