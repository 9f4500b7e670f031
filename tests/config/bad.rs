//! Configs that cannot be meant, and the very words they are answered with: `bad.txt`, case by case.

use std::fmt::Write as _;

use trueup::error::Kind;

use super::parse;

const CASES: &str = include_str!("bad.txt");

/// The title of a case, its config, and the answer.
fn cases() -> Vec<(&'static str, &'static str, &'static str)> {
    let case = |block: &'static str| {
        let (title, rest) = block.split_once('\n').unwrap();
        let (config, answer) = rest.split_once("---\n").unwrap();
        (title, config, answer.trim_end())
    };
    CASES.split("=== ").skip(1).map(case).collect()
}

/// After a change of words: `UPDATE_EXPECT=1 cargo test --test it config::bad`, then read the diff.
#[test]
fn a_bad_config_is_answered_in_these_words() {
    let mut seen = String::new();
    for (title, config, _) in cases() {
        let error = parse(config).map(|_| ()).expect_err(title);
        assert_eq!(error.kind(), Kind::Config, "{title}");
        let _ = write!(seen, "=== {title}\n{config}---\n{error}\n\n");
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/bad.txt");
        std::fs::write(file, &seen).unwrap();
        return;
    }
    for (block, expected) in seen.split("=== ").zip(CASES.split("=== ")) {
        assert_eq!(block, expected);
    }
}

#[test]
fn no_answer_repeats_a_secret() {
    for (title, config, answer) in cases() {
        assert!(!answer.contains("hunter2"), "{title}: {config}");
    }
}
