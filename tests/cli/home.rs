//! A folder with a config, and the real program run in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support;

/// Files into an embedded store, the plainest pipeline there is.
pub const FILES: &str = r#"
[stores]
registry = "sqlite:.trueup/registry.db"

[pipelines.notes]
from = { files = "notes" }
into = "registry"
guard = { max_delete = "30%", above = 10 }
"#;

pub struct Home {
    folder: tempfile::TempDir,
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// It ended so.
    #[track_caller]
    pub fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\n--- stdout\n{}\n--- stderr\n{}", self.out, self.err);
        self
    }

    /// It said each of these to a person, and what to do about it.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.err.contains(word), "nothing about \"{word}\" in:\n{}", self.err);
        }
        assert!(self.err.contains("what to do:"), "no remedy in:\n{}", self.err);
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }

    /// The one run of a `--json` answer.
    #[track_caller]
    pub fn run(&self) -> Value {
        let json = self.json();
        assert_eq!(json["runs"].as_array().map(Vec::len), Some(1), "{json}");
        adds_up(&json["runs"][0]);
        json["runs"][0].clone()
    }
}

/// Every scanned item ended somewhere, as the report has it.
#[track_caller]
pub fn adds_up(run: &Value) {
    let count = |name: &str| run[name].as_u64().unwrap_or_else(|| panic!("no {name} in {run}"));
    let ended =
        ["added", "updated", "unchanged", "skipped", "failed"].iter().map(|name| count(name)).sum::<u64>();
    let held = &run["held_by"];
    let held = held["add"].as_u64().unwrap() + held["update"].as_u64().unwrap();
    assert_eq!(count("scanned"), ended + held, "{run}");
}

impl Home {
    pub fn new(config: &str) -> Self {
        let home = Home { folder: support::temp() };
        // Other users may look in: some tests run the program as one.
        fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        home.write("trueup.toml", config);
        home
    }

    /// With `notes/` and this many files in it.
    pub fn with_notes(count: usize) -> Self {
        let home = Home::new(FILES);
        fs::create_dir(home.path("notes")).unwrap();
        for number in 0..count {
            home.write(&format!("notes/{number:02}.md"), &format!("note {number}\n"));
        }
        home
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = support::trueup();
        command.args(args).current_dir(self.path("")).stdin(Stdio::null());
        command.env_remove("TRUEUP_CONFIG").env_remove("TRUEUP_TOKEN").env_remove("NO_COLOR");
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// As a user who owns nothing here. Everybody but root is held by permissions already.
    pub fn run_as_nobody(&self, args: &[&str]) -> Ran {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            return self.run(args);
        }
        // The build folder may be closed to others.
        let program = self.path("trueup");
        // By a process of its own: a child that another test starts meanwhile would inherit the open file, and a
        // program that is open for writing cannot be started.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_trueup")).arg(&program).status();
        assert!(copied.unwrap().success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(args);
        let ran = Ran::of(command.current_dir(self.path("")).stdin(Stdio::null()).output().unwrap());
        fs::remove_file(program).unwrap();
        ran
    }

    /// Started, with its messages at hand.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The value of a key, as an outsider reads it.
    pub fn value(&self, store: &str, key: &str) -> Option<String> {
        let ran = self.run(&["kv", "get", store, key, "--json"]);
        (ran.code == 0).then(|| ran.json()["value"].as_str().unwrap().to_owned())
    }

    pub fn keys(&self, store: &str) -> Vec<String> {
        let keys = self.run(&["kv", "ls", store, "--json"]).ends(0).json();
        keys["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect()
    }

    /// Every file below, with its bytes, its time of change and its mode.
    pub fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut tree = BTreeMap::new();
        walk(self.folder.path(), &mut tree);
        tree
    }
}

fn walk(folder: &Path, into: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let facts = fs::symlink_metadata(&path).unwrap();
        let mut text =
            format!("{:o} {} {}.{}", facts.mode(), facts.size(), facts.mtime(), facts.mtime_nsec());
        if facts.is_dir() {
            walk(&path, into);
        } else if facts.is_file() {
            let mut bytes = Vec::new();
            fs::File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
            text.push_str(&trueup::record::Fingerprint::of(&bytes).to_string());
        }
        into.insert(path, text);
    }
}

/// What changed between two looks at a tree, by name.
#[track_caller]
pub fn untouched(before: &BTreeMap<PathBuf, String>, after: &BTreeMap<PathBuf, String>, by: &str) {
    let all: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changed: Vec<_> = all.into_iter().filter(|path| before.get(*path) != after.get(*path)).collect();
    assert!(changed.is_empty(), "{by} touched {changed:?}");
}
