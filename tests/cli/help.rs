//! The help of every command, as a user reads it.
//!
//! New wording is taken over with `INSTA_UPDATE=always cargo test --test it cli::help`, and read in the diff.

use super::home::Home;

/// The commands a help page lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// A command and everything below it, with its help.
fn pages(home: &Home, command: &[&str], into: &mut Vec<(String, String)>) {
    let help = home.run(&[command, &["--help"]].concat()).ends(0).out;
    into.push(([&["trueup"], command].concat().join(" "), help.clone()));
    for name in listed(&help) {
        pages(home, &[command, &[name.as_str()]].concat(), into);
    }
}

#[test]
fn every_command_explains_itself() {
    let home = Home::new("");
    let mut all = Vec::new();
    pages(&home, &[], &mut all);
    assert!(all.len() > 15, "{} pages", all.len());
    let text: String = all.iter().map(|(name, help)| format!("==== {name}\n{help}\n")).collect();
    insta::assert_snapshot!("help", text);
}

#[test]
fn no_command_and_an_unknown_one_end_with_usage() {
    let home = Home::new("");
    assert!(home.run(&[]).ends(2).err.contains("Usage:"));
    let ran = home.run(&["snyc"]).ends(2);
    assert!(ran.err.contains("sync"), "{}", ran.err);
    let ran = home.run(&["sync", "--no-such-flag", "--json"]).ends(2);
    assert_eq!(ran.json()["error"]["kind"], "config");
}

/// What is wrong is said over several lines to people, and as one message to programs.
#[test]
fn misuse_is_one_json_document_that_names_what_is_missing_or_near() {
    let home = Home::new("");
    let error = |args: &[&str]| home.run(args).ends(2).json()["error"].clone();
    let missing = error(&["--json", "reject"]);
    assert_eq!(missing["message"], "the following required arguments were not provided: <PLAN_ID>");
    let near = error(&["sync", "--onyl", "x", "--json"]);
    assert_eq!(near["message"], "unexpected argument '--onyl' found");
    assert!(near["remedy"].as_str().unwrap().contains("'--only'"), "{near}");
    let none = error(&["--json"]);
    assert!(none["message"].as_str().unwrap().contains("requires a subcommand"), "{none}");
    assert_eq!(error(&["--json", "kv"])["message"], "no command was named");
}
