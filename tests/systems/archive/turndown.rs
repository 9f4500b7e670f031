//! Our Markdown beside Turndown's, snippet by snippet. Every difference is listed with its reason, and a listed
//! difference that is none fails too.

use std::collections::BTreeMap;

use trueup::shape::article::html::{Links, to_markdown};

const SNIPPETS: &str = include_str!("../../fixtures/turndown/snippets.txt");
const ANSWERS: &str = include_str!("../../fixtures/turndown/answers.txt");
const DIFFERENCES: &str = include_str!("../../fixtures/turndown/differences.tsv");

/// Blocks of a fixture file: a line `%%% name`, then the text up to the next.
fn blocks(file: &str) -> BTreeMap<&str, &str> {
    let parts = file.strip_prefix("%%% ").unwrap().split("\n%%% ");
    parts
        .map(|part| {
            let (name, text) = part.split_once('\n').unwrap_or((part, ""));
            (name, text.strip_suffix('\n').unwrap_or(text))
        })
        .collect()
}

/// name → (what we write, the reason); line ends are written `\n`.
fn differences() -> BTreeMap<&'static str, (String, &'static str)> {
    let lines = DIFFERENCES.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut columns = line.split('\t');
            let (name, ours, reason) =
                (columns.next().unwrap(), columns.next().unwrap(), columns.next().unwrap());
            (name, (ours.replace("⏎", "\n"), reason))
        })
        .collect()
}

#[test]
fn every_snippet_becomes_what_turndown_makes_of_it_or_a_listed_difference() {
    let (snippets, answers, mut differences) = (blocks(SNIPPETS), blocks(ANSWERS), differences());
    assert!(snippets.len() >= 150);
    let mut wrong = Vec::new();
    for (name, html) in &snippets {
        let ours = to_markdown(html, &Links::relative_to("")).unwrap();
        let theirs = answers[name];
        match differences.remove(name) {
            None if ours == theirs => {}
            None => wrong.push(format!("{name}\n  ours   {ours:?}\n  theirs {theirs:?}")),
            Some((listed, reason)) => {
                assert!(reason.len() > 10, "{name}: a difference needs a reason");
                if listed != ours || ours == theirs {
                    wrong.push(format!(
                        "{name} (listed)\n  ours   {ours:?}\n  listed {listed:?}\n  theirs {theirs:?}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), snippets.len(), wrong.join("\n"));
    assert!(differences.is_empty(), "listed, but no such snippet: {:?}", differences.keys());
}
