//! A rule that catches nothing is no rule: each is shown a fault, and something that only looks like one.

use std::path::Path;

use super::code::Source;
use super::{
    BANNED, banned_faults, dead_links, layer_faults, length_faults, linked, modules_of, name_faults,
    workplace_faults,
};

fn layers(path: &str, text: &str) -> usize {
    layer_faults(&Source::of(path, text)).len()
}

#[test]
fn a_use_of_a_higher_layer_is_caught_however_it_is_spelled() {
    for (path, text) in [
        ("src/store/sqlite.rs", "use crate::pipeline::Pass;"),
        ("src/store/sqlite.rs", "use crate::{error::{Error, Kind}, state};"),
        ("src/store/sqlite/mod.rs", "use super::super::pipeline;"),
        ("src/store.rs", "use super::cli;"),
        ("src/store.rs", "fn f() { format!(\"{}\", crate::cli::x()) }"),
        ("src/attic.rs", ""),
    ] {
        assert_eq!(layers(path, text), 1, "{path}: {text}");
    }
    for (path, text) in [
        ("src/pipeline/mod.rs", "use crate::store::Store; use super::state;"),
        ("src/source/store.rs", "use crate::store::Store;"),
        ("src/store/sqlite/writer.rs", "use super::cli;"),
        ("src/store.rs", "// crate::cli\nconst A: &str = \"crate::cli\";"),
        ("src/main.rs", "use crate::cli;"),
    ] {
        assert_eq!(layers(path, text), 0, "{path}: {text}");
    }
}

#[test]
fn long_files_and_functions_are_caught() {
    let function =
        |lines: usize| format!("impl A {{ fn long(&self) -> u8\n{{ {}  }} }}", "1;\n".repeat(lines - 2));
    assert_eq!(length_faults(&Source::of("src/a.rs", function(50))), Vec::<String>::new());
    let caught = length_faults(&Source::of("src/a.rs", function(51)));
    assert!(caught[0].starts_with("src/a.rs:1: `long` has 51 lines"), "{caught:?}");

    let file = |head: &str, lines: usize| {
        Source::of("src/a.rs", format!("{head}\n{}", "const A: u8 = 1;\n".repeat(lines - 1)))
    };
    assert_eq!(length_faults(&file("", 500)).len(), 0);
    assert_eq!(length_faults(&file("", 501)).len(), 1);
    assert_eq!(length_faults(&file("// @generated", 501)).len(), 0);
}

#[test]
fn banned_calls_are_caught_outside_their_place() {
    let faults = |path: &str, text: &str| banned_faults(&Source::of(path, text), &BANNED);
    for text in [
        "let a = std::time::Instant::now();",
        "use rand::random;",
        "println!(\"x\");",
        "if a { time::sleep(b) }",
    ] {
        assert_eq!(faults("src/a.rs", text).len(), 1, "{text}");
    }
    assert!(faults("src/a.rs", "println!()")[0].contains("use cli::output"));
    assert_eq!(faults("src/clock.rs", "rand::random()").len(), 0);
    assert_eq!(faults("src/cli/output.rs", "println!()").len(), 0);
    assert_eq!(faults("src/a.rs", "// println!\nclock.now(); clock.sleep(a); writeln!(b);").len(), 0);
}

#[test]
fn empty_words_are_caught_in_files_and_names() {
    let faults = |path: &str, text: &str| name_faults(&Source::of(path, text)).len();
    assert_eq!(faults("src/utils.rs", ""), 1);
    assert_eq!(faults("tests/common/mod.rs", ""), 1);
    assert_eq!(faults("src/a.rs", "struct RunManager; mod helper {} enum A { Manager }"), 2);
    assert_eq!(faults("src/a.rs", "struct Uncommon; fn manager() {}"), 0);
}

#[test]
fn words_of_a_workplace_are_caught() {
    let text = format!("fine\nsee {}here", super::WORKPLACE[0]);
    assert!(workplace_faults(Path::new("a.md"), &text)[0].starts_with("a.md:2:"));
    assert_eq!(workplace_faults(Path::new("a.md"), "network/path").len(), 0);
}

#[test]
fn pages_nobody_finds_and_links_to_nothing_are_caught() {
    let entrance = "[a](docs/a.md) [decisions](docs/decisions/)";
    for (page, found) in
        [("docs/a.md", true), ("docs/decisions/1.md", true), ("docs/b.md", false), ("docs/x/1.md", false)]
    {
        assert_eq!(linked(entrance, Path::new(page)), found, "{page}");
    }
    let links =
        "[is](Cargo.toml) [is](Cargo.toml#part) [web](https://a.b/c) [here](#part) [gone](no/such.md)";
    assert_eq!(
        dead_links(Path::new("README.md"), links),
        ["README.md: the link to no/such.md leads nowhere"]
    );
}

#[test]
fn modules_are_followed_to_their_files() {
    let files = |path: &str, text: &str| {
        let paths = modules_of(&Source::of(path, text));
        paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(files("src/lib.rs", "pub mod a;"), "src/a.rs src/a/mod.rs");
    assert_eq!(files("tests/a/mod.rs", "mod b; mod inline { }"), "tests/a/b.rs tests/a/b/mod.rs");
    assert_eq!(files("src/a/b.rs", "#[cfg(test)] mod c;"), "src/a/b/c.rs src/a/b/c/mod.rs");
    assert_eq!(files("src/a/b.rs", "#[path = \"b_tests.rs\"] mod tests;"), "src/a/b_tests.rs");
}
