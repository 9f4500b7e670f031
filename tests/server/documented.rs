//! `docs/operations.md` names every kind of error; the table is made from the source.

use std::path::Path;

use trueup::error::Kind;

/// What the source says each kind means.
fn meanings() -> Vec<String> {
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/error.rs")).unwrap();
    let body = source.split("pub enum Kind {").nth(1).unwrap().split("\n}").next().unwrap();
    let lines = body.lines().filter_map(|line| line.trim().strip_prefix("/// "));
    lines.map(str::to_owned).collect()
}

fn table() -> String {
    let meanings = meanings();
    assert_eq!(meanings.len(), Kind::ALL.len(), "one line of documentation per kind");
    let rows = Kind::ALL.iter().zip(meanings).map(|(kind, means)| {
        format!("| `{}` | {means} | {} | {} |\n", kind.name(), kind.remedy(), kind.exit_code())
    });
    rows.collect()
}

#[test]
fn every_kind_of_error_has_its_meaning_and_remedy_in_the_guide() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let head = "| kind | means | what to do | exit code |\n|---|---|---|---|\n";
    let (before, after) = page.split_once(head).unwrap();
    let rest: String =
        after.lines().skip_while(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect();
    let wanted = format!("{before}{head}{}{rest}", table());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(kept, wanted, "run this test with UPDATE_EXPECT=1 to write the table anew");
}
