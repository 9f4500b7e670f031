//! Python packages for tests: servers and official clients, installed on first use below `target`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python of its own with these packages, separated by blanks. Other test processes wait for the one that installs.
pub fn with(name: &str, packages: &str) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let ready = home.join("ready");
    let lock = File::create(home.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !ready.exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        run(Command::new(home.join("bin/pip"))
            .args(["install", "--quiet"])
            .args(packages.split_whitespace()));
        File::create(&ready).unwrap();
    }
    home
}

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
