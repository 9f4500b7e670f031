//! A result that cannot be written is no success; a reader who has seen enough is no error.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use super::home::{Home, Ran};

/// With stdout on a disk that is full.
fn into_full(home: &Home, args: &[&str]) -> Ran {
    let full = File::options().write(true).open("/dev/full").unwrap();
    Ran::of(home.command(args).stdout(full).output().unwrap())
}

#[test]
fn a_result_that_could_not_be_written_is_a_failure() {
    let home = Home::with_notes(3);
    home.write("notes/big.md", &"x".repeat(200_000));
    home.run(&["sync"]).ends(0);
    let ways: [&[&str]; 10] = [
        &["kv", "get", "registry", "big.md"],
        &["kv", "get", "registry", "00.md"],
        &["kv", "ls", "registry"],
        &["kv", "ls", "registry", "--json"],
        &["status"],
        &["runs", "--json"],
        &["plan"],
        &["sync", "--json"],
        &["completions", "bash"],
        &["--help"],
    ];
    for args in ways {
        let ran = into_full(&home, args);
        assert_eq!(ran.code, 1, "{args:?}: {}", ran.err);
        ran.says(&["writing the result to stdout", "No space left", "Make room where stdout goes"]);
    }
    // What failed already fails no better.
    assert_eq!(into_full(&home, &["kv", "get", "registry", "none", "--json"]).code, 1);
}

#[test]
fn a_run_whose_report_could_not_be_written_is_done_all_the_same() {
    let home = Home::with_notes(3);
    into_full(&home, &["sync", "--json"]).ends(1);
    assert_eq!(home.keys("registry").len(), 3);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let home = Home::with_notes(3);
    home.write("notes/big.md", &"x".repeat(2_000_000));
    home.run(&["sync"]).ends(0);
    let ways: [&[&str]; 3] =
        [&["kv", "get", "registry", "big.md"], &["kv", "ls", "registry"], &["runs", "--json"]];
    for args in ways {
        let mut child = home.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}
