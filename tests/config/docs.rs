//! docs/config.md is held to the code: its keys and its error messages.

use trueup::config;

use super::parse;

const PAGE: &str = include_str!("../../docs/config.md");

#[test]
fn the_page_names_every_key() {
    for (table, keys) in config::KEYS {
        for key in keys {
            assert!(PAGE.contains(&format!("`{key}`")), "docs/config.md says nothing of `{key}` ({table})");
        }
    }
}

/// The fenced blocks of one language, in order.
fn blocks(language: &str) -> Vec<String> {
    let open = format!("```{language}\n");
    PAGE.split(&open).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn every_example_of_the_page_holds() {
    let examples = blocks("toml");
    assert!(!examples.is_empty());
    for example in examples {
        parse(&example).unwrap_or_else(|error| panic!("{error}\n{example}"));
    }
}

#[test]
fn the_messages_on_the_page_are_the_ones_it_gives() {
    let (bad, said) = (blocks("toml bad"), blocks("text"));
    assert!(bad.len() >= 3);
    assert_eq!(bad.len(), said.len());
    for (config, said) in bad.iter().zip(said) {
        assert_eq!(parse(config).unwrap_err().to_string(), said.trim_end());
    }
}
