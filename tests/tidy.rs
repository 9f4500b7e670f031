//! House rules that a machine can check, each with the fix in its message. They read the tree, not the library.
#![allow(clippy::unwrap_used)] // a test that cannot unwrap has failed, which is what unwrap says

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "tidy/caught.rs"]
mod caught;
#[path = "tidy/code.rs"]
mod code;

use code::{Source, root, sources, texts};

/// Lower never uses higher. A new top module takes its place here.
const LAYERS: [&[&str]; 10] = [
    &["record", "portion", "error", "retry", "clock", "secret", "tls"],
    &["http", "etcd", "postgres"],
    &["config"],
    &["source", "shape", "store"],
    &["state"],
    &["queue"],
    &["pipeline"],
    &["registry", "replica", "workspace", "schedule"],
    &["operations"],
    &["server", "cli"],
];
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 50;
/// Words that say nothing about the domain.
const EMPTY_WORDS: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "types", "misc"];
/// Places and numbers that mean nothing to a reader of the project (in pieces, so that this file passes).
const WORKPLACE: [&str; 2] = [concat!("/wo", "rk/"), concat!("issue ", "#")];

/// A call, the files it may stand in, and what to use elsewhere.
const BANNED: [(&[&str], &[&str], &str); 12] = [
    (&["SystemTime", "::", "now"], CLOCK, "clock::Clock::now"),
    (&["Instant", "::", "now"], CLOCK, "clock::Clock::elapsed_ms"),
    (&["Timestamp", "::", "now"], CLOCK, "clock::Clock::now"),
    (&["Zoned", "::", "now"], CLOCK, "clock::Clock::now"),
    (&["rand", "::"], CLOCK, "clock::Clock::random"),
    (&["thread", "::", "sleep"], CLOCK, "clock::Clock::sleep"),
    (&["time", "::", "sleep"], CLOCK, "clock::Clock::sleep"),
    (&["println", "!"], OUTPUT, "cli::output"),
    (&["eprintln", "!"], OUTPUT, "cli::output"),
    (&["print", "!"], OUTPUT, "cli::output"),
    (&["eprint", "!"], OUTPUT, "cli::output"),
    (&["dbg", "!"], &[], "nothing; take it out"),
];
const CLOCK: &[&str] = &["src/clock.rs"];
const OUTPUT: &[&str] = &["src/cli/output.rs"];
/// Tests wait for conditions; the one place that looks at the time between two looks.
const SLEEPERS: &[&str] = &["tests/support/mod.rs"];

fn complain(faults: impl IntoIterator<Item = String>) {
    let faults: Vec<String> = faults.into_iter().collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

// ---- the rules ----

#[test]
fn lower_layers_never_use_higher_ones() {
    complain(sources("src").iter().flat_map(layer_faults));
}

#[test]
fn files_and_functions_stay_short() {
    complain(
        ["src", "tests", "benches"].iter().flat_map(|top| sources(top)).flat_map(|file| length_faults(&file)),
    );
}

#[test]
fn time_chance_and_printing_have_one_place_each() {
    complain(sources("src").iter().flat_map(|file| banned_faults(file, &BANNED)));
}

#[test]
fn tests_do_not_sleep() {
    let rules: [(&[&str], &[&str], &str); 2] = [
        (&["thread", "::", "sleep"], SLEEPERS, "support::until"),
        (&["time", "::", "sleep"], SLEEPERS, "support::until"),
    ];
    complain(sources("tests").iter().flat_map(|file| banned_faults(file, &rules)));
}

#[test]
fn every_file_of_code_is_compiled() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let mut open: Vec<PathBuf> = vec!["src/lib.rs".into(), "src/main.rs".into()];
    open.extend(manifest.split("path = \"").skip(1).map(|rest| rest.split('"').next().unwrap().into()));
    let mut reached = BTreeSet::new();
    while let Some(path) = open.pop() {
        if root().join(&path).is_file() && reached.insert(path.clone()) {
            open.extend(modules_of(&Source::read(&path)));
        }
    }
    let all = ["src", "tests"].iter().flat_map(|top| sources(top));
    complain(all.filter(|file| !reached.contains(&file.path)).map(|file| {
        format!("{} is never compiled: declare it with `mod`, or remove it", file.path.display())
    }));
}

#[test]
fn names_are_words_of_the_domain() {
    complain(
        ["src", "tests", "benches"].iter().flat_map(|top| sources(top)).flat_map(|file| name_faults(&file)),
    );
}

#[test]
fn the_project_speaks_only_of_itself() {
    complain(texts().into_iter().flat_map(|(path, text)| workplace_faults(&path, &text)));
}

#[test]
fn every_page_can_be_found_and_every_link_leads_somewhere() {
    let pages: Vec<_> =
        texts().into_iter().filter(|(path, _)| path.extension() == Some("md".as_ref())).collect();
    let entrance: String = pages
        .iter()
        .filter(|(path, _)| path.parent() == Some(Path::new("")))
        .map(|(_, text)| text.as_str())
        .collect();
    let lost = pages.iter().filter(|(path, _)| path.starts_with("docs") && !linked(&entrance, path)).map(
        |(path, _)| {
            format!(
                "{} is linked from no page at the top: link it from README.md or ARCHITECTURE.md",
                path.display()
            )
        },
    );
    complain(lost.chain(pages.iter().flat_map(|(path, text)| dead_links(path, text))));
}

// ---- what the rules look for ----

fn layer_faults(file: &Source) -> Vec<String> {
    let Some(own) = file.top_module() else { return Vec::new() };
    let Some(level) = level_of(&own) else {
        return vec![format!("{}: `{own}` has no place in LAYERS (tests/tidy.rs)", file.path.display())];
    };
    let higher = |(module, line): (String, usize)| {
        let other = level_of(&module)?;
        (other > level).then(|| format!("{}:{line}: `{own}` uses the higher `{module}`", file.path.display()))
    };
    file.uses().into_iter().filter_map(higher).collect()
}

fn level_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn length_faults(file: &Source) -> Vec<String> {
    if file.generated() {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        faults.push(format!(
            "{} has {lines} lines, {FILE_LINES_MAX} at most: make it two",
            file.path.display()
        ));
    }
    for (name, first, last) in file.functions() {
        let lines = last - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let at = format!("{}:{first}", file.path.display());
            faults.push(format!(
                "{at}: `{name}` has {lines} lines, {FUNCTION_LINES_MAX} at most: name its parts"
            ));
        }
    }
    faults
}

fn banned_faults(file: &Source, rules: &[(&[&str], &[&str], &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (call, allowed, instead) in rules {
        if allowed.iter().any(|path| file.path == Path::new(path)) {
            continue;
        }
        for window in file.tokens.windows(call.len()) {
            if window.iter().map(|token| token.text.as_str()).eq(call.iter().copied()) {
                let at = format!("{}:{}", file.path.display(), window[0].line);
                faults.push(format!("{at}: `{}` is not for here; use {instead}", call.concat()));
            }
        }
    }
    faults
}

fn name_faults(file: &Source) -> Vec<String> {
    let stems = file.path.iter().map(|part| part.to_str().unwrap().trim_end_matches(".rs").to_owned());
    let declared = file
        .tokens
        .windows(2)
        .filter(|pair| ["struct", "enum", "trait", "mod"].contains(&pair[0].text.as_str()));
    stems
        .chain(declared.map(|pair| pair[1].text.clone()))
        .filter(|name| words(name).iter().any(|word| EMPTY_WORDS.contains(&word.as_str())))
        .map(|name| format!("{}: `{name}` says nothing; name what it is in the domain", file.path.display()))
        .collect()
}

/// The words of a name in either case: `RunManager` → run, manager.
fn words(name: &str) -> Vec<String> {
    let mut spaced = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            spaced.push('_');
        }
        spaced.extend(letter.to_lowercase());
    }
    spaced.split('_').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn workplace_faults(path: &Path, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(at, line)| {
            let word = WORKPLACE.iter().find(|word| line.contains(*word))?;
            Some(format!(
                "{}:{}: \"{word}\" means nothing to a reader; say it in words",
                path.display(),
                at + 1
            ))
        })
        .collect()
}

/// A page in `docs` itself is linked by name, one deeper by name or by its folder.
fn linked(entrance: &str, page: &Path) -> bool {
    let folder = page.parent().unwrap();
    entrance.contains(page.to_str().unwrap())
        || (folder != Path::new("docs") && entrance.contains(&format!("({}/)", folder.display())))
}

fn dead_links(page: &Path, text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '#']).next());
    targets
        .filter(|target| !target.is_empty() && !target.contains(':'))
        .filter(|target| !root().join(page.parent().unwrap()).join(target).exists())
        .map(|target| format!("{}: the link to {target} leads nowhere", page.display()))
        .collect()
}

/// The files that a file's `mod name;` lines stand for.
fn modules_of(file: &Source) -> Vec<PathBuf> {
    let (folder, stem) = (file.path.parent().unwrap(), file.path.file_stem().unwrap());
    let is_root = ["mod", "lib", "main", "tidy"].contains(&stem.to_str().unwrap());
    let inside = if is_root { folder.to_owned() } else { folder.join(stem) };
    let mut found = Vec::new();
    for (at, window) in file.tokens.windows(3).enumerate() {
        let [mod_, name, end] = window else { continue };
        if mod_.text != "mod" || end.text != ";" {
            continue;
        }
        let attribute =
            file.tokens[..at].iter().rev().take(4).map(|token| token.text.as_str()).collect::<Vec<_>>();
        match attribute[..] {
            ["]", path, "=", "path"] => found.push(folder.join(path.trim_matches('"'))),
            _ => found
                .extend([inside.join(format!("{}.rs", name.text)), inside.join(&name.text).join("mod.rs")]),
        }
    }
    found
}
