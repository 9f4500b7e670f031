//! What can be wrong with the world: each a clear message with a remedy and the right code; nothing lost, nothing
//! deleted.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Command;

use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, Item, StoreExt as _};

use super::home::{Home, untouched};

/// Three notes, all in the store.
fn settled() -> Home {
    let home = Home::with_notes(3);
    home.run(&["sync"]).ends(0);
    assert_eq!(home.keys("registry").len(), 3);
    home
}

fn nothing_lost(home: &Home) {
    for number in 0..3 {
        let value = home.value("registry", &format!("{number:02}.md"));
        assert_eq!(value, Some(format!("note {number}\n")), "{number}");
    }
}

#[test]
fn a_missing_folder() {
    let home = settled();
    fs::rename(home.path("notes"), home.path("elsewhere")).unwrap();
    let run =
        home.run(&["sync", "--json"]).ends(1).says(&["notes does not exist", "nothing was deleted"]).run();
    assert_eq!((&run["status"], &run["deleted"]), (&"failed".into(), &0.into()));
    home.run(&["plan"]).ends(1).says(&["notes does not exist"]);
    home.run(&["check"]).ends(1);
    nothing_lost(&home);
    home.write("notes", "a file");
    home.run(&["sync"]).ends(1).says(&["is not a folder"]);
    nothing_lost(&home);
}

/// Make a path of the home another user's, so that permissions count.
fn closed(home: &Home, path: &str) {
    fs::set_permissions(home.path(path), fs::Permissions::from_mode(0o0)).unwrap();
}

/// Let nobody write where the program keeps its own files.
fn open_to_all(home: &Home) {
    for path in ["", ".trueup", ".trueup/state.locks"] {
        if home.path(path).is_dir() {
            fs::set_permissions(home.path(path), fs::Permissions::from_mode(0o777)).unwrap();
        }
    }
    for entry in fs::read_dir(home.path(".trueup")).into_iter().flatten() {
        let path = entry.unwrap().path();
        let mode = if path.is_dir() { 0o777 } else { 0o666 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for entry in fs::read_dir(home.path(".trueup/state.locks")).into_iter().flatten() {
        fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o666)).unwrap();
    }
}

#[test]
fn an_unreadable_file() {
    let home = settled();
    home.write("notes/01.md", "secret now");
    home.write("notes/new.md", "new");
    closed(&home, "notes/01.md");
    open_to_all(&home);
    let run = home
        .run_as_nobody(&["sync", "--json"])
        .ends(3)
        .says(&["01.md", "may not be read", "`exclude`"])
        .run();
    assert_eq!((&run["failed"], &run["added"], &run["deleted"]), (&1.into(), &1.into(), &0.into()));
    assert_eq!(home.value("registry", "01.md").as_deref(), Some("note 1\n"), "what is stored stays");
}

#[test]
fn an_unreadable_folder() {
    let home = Home::with_notes(3);
    home.write("notes/sub/inner.md", "inner");
    home.run(&["sync"]).ends(0);
    home.remove("notes/00.md");
    closed(&home, "notes/sub");
    open_to_all(&home);
    let ran = home.run_as_nobody(&["sync", "--json"]);
    fs::set_permissions(home.path("notes/sub"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = ran.ends(3).says(&["sub", "Make the folder readable"]).run();
    assert_eq!((&run["unproven"], &run["deleted"]), (&1.into(), &1.into()));
    assert_eq!(home.value("registry", "sub/inner.md").as_deref(), Some("inner"));
}

/// What the kernel makes up while it is read is never the size it says it is.
#[test]
fn a_file_that_changes_while_it_is_read() {
    let home = settled();
    symlink("/proc/self/status", home.path("notes/busy")).unwrap();
    let run = home.run(&["sync", "--json"]).ends(3).says(&["busy", "changed while it was read"]).run();
    assert_eq!((&run["failed"], &run["unchanged"]), (&1.into(), &3.into()));
    assert_eq!(home.value("registry", "busy"), None);
    nothing_lost(&home);
}

#[test]
fn a_name_that_is_not_utf_8() {
    let home = settled();
    fs::write(home.path("notes").join(OsStr::from_bytes(b"caf\xe9.md")), "x").unwrap();
    home.run(&["sync", "--json"]).ends(3).says(&["caf\\xE9.md", "not valid UTF-8", "Rename it"]).run();
    // Who asked for quiet hears of it too, and of nothing else.
    let quiet = home.run(&["sync", "--quiet"]).ends(3).says(&["caf\\xE9.md", "not valid UTF-8", "Rename it"]);
    assert_eq!(quiet.err.lines().count(), 2, "{}", quiet.err);
    assert_eq!(home.keys("registry").len(), 3);
    nothing_lost(&home);
}

#[test]
fn a_file_of_five_gigabytes() {
    let home = settled();
    fs::File::create(home.path("notes/huge")).unwrap().set_len(5 * 1024 * 1024 * 1024).unwrap();
    let run = home.run(&["sync", "--json"]).ends(3).says(&["huge", "5368709120 bytes", "`exclude`"]).run();
    assert_eq!((&run["failed"], &run["unchanged"]), (&1.into(), &3.into()));
    nothing_lost(&home);
}

/// In a mount namespace of its own, so that nothing is left mounted however the test ends.
const FULL: &str = r#"
set -e
mount -t tmpfs -o size=2m tmpfs small
set +e
"$1" sync --json >full.json 2>full.txt; echo $? >full.code
"$1" kv ls sqlite:small/registry.db --json >full.keys 2>/dev/null
set -e
mount -o remount,size=256m small
set +e
"$1" sync --json >roomy.json 2>roomy.txt; echo $? >roomy.code
"$1" kv ls sqlite:small/registry.db --json >roomy.keys
"$1" sync --json >still.json 2>still.txt; echo $? >still.code
"#;

/// The disk filled up while the log was folded into the state's file. The half folded file was then looked at without
/// its log, called damaged and refused, for good.
#[test]
fn a_full_disk() {
    let home = Home::new(
        r#"
        [state]
        store = "sqlite:small/state.db"
        [pipelines.notes]
        from = { files = "notes" }
        into = "sqlite:small/registry.db"
        batch = 20
        "#,
    );
    for number in 0..400 {
        home.write(&format!("notes/{number}"), &number.to_string().repeat(3_000));
    }
    fs::create_dir(home.path("small")).unwrap();
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let space: &[&str] = if root { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] };
    let mut command = Command::new("unshare");
    command
        .args(space)
        .args(["sh", "-c", FULL, "sh", env!("CARGO_BIN_EXE_trueup")])
        .current_dir(home.path(""));
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "this test mounts a small disk: {}", String::from_utf8_lossy(&ran.stderr));

    let read = |name: &str| fs::read_to_string(home.path(name)).unwrap();
    let json = |name: &str| -> serde_json::Value { serde_json::from_str(&read(name)).unwrap() };
    let said = read("full.txt");
    assert!(
        said.contains("full") && said.contains("Free some space") && said.contains("nothing was lost"),
        "{said}"
    );
    let report = &json("full.json")["runs"][0];
    let (code, status) = (read("full.code"), report["status"].as_str().unwrap());
    assert!(matches!((code.trim(), status), ("1", "failed") | ("3", "partial")), "{code} {report}");
    assert_eq!(read("roomy.code").trim(), "0", "{}", read("roomy.txt"));
    assert_eq!(json("roomy.keys")["keys"].as_array().unwrap().len(), 400);
    let still = &json("still.json")["runs"][0];
    assert_eq!(
        (&still["unchanged"], &still["writes"], &still["status"]),
        (&400.into(), &0.into(), &"ok".into())
    );
}

#[test]
fn a_read_only_state() {
    let home = settled();
    home.write("notes/new.md", "new");
    for entry in fs::read_dir(home.path(".trueup")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
        }
    }
    fs::set_permissions(home.path(".trueup"), fs::Permissions::from_mode(0o555)).unwrap();
    let before = home.tree();
    home.run_as_nobody(&["sync"]).ends(6).says(&["state.db", "writable"]);
    let plan = home.run_as_nobody(&["plan", "--json"]).ends(0).json();
    assert_eq!(plan["plans"][0]["add"][0]["key"], "new.md", "looking is allowed: {plan}");
    untouched(&before, &home.tree(), "a run without permission");
    fs::set_permissions(home.path(".trueup"), fs::Permissions::from_mode(0o755)).unwrap();
    nothing_lost(&home);
}

#[test]
fn a_corrupt_state_file() {
    let garbled = |bytes: &mut Vec<u8>| bytes[..200].fill(b'?');
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 3 + 100);
    let holed = |bytes: &mut Vec<u8>| bytes[4_096..].fill(0xAA);
    let ways: [(&str, &dyn Fn(&mut Vec<u8>)); 3] = [("garbled", &garbled), ("cut", &cut), ("holed", &holed)];
    for (name, harm) in ways {
        let home = settled();
        home.remove("notes/00.md");
        let state = home.path(".trueup/state.db");
        let mut bytes = fs::read(&state).unwrap();
        harm(&mut bytes);
        fs::write(&state, &bytes).unwrap();
        let ran = home.run(&["sync", "--json"]);
        assert_eq!(ran.code, 1, "{name}: {} {}", ran.out, ran.err);
        let ran = ran.says(&["state", "backup"]);
        assert!(ran.out.contains("corrupt"), "{name}: {}", ran.out);
        home.run(&["plan"]).ends(1).says(&["state", "backup"]);
        assert_eq!(fs::read(&state).unwrap(), bytes, "{name}: it is left as it is");
        nothing_lost(&home);
    }
}

#[tokio::test]
async fn a_record_of_the_state_that_cannot_be_read() {
    let home = settled();
    home.remove("notes/00.md");
    let harm = |key: &'static str| {
        let path = home.path(".trueup/state.db");
        async move {
            let store = Sqlite::open(&path, Access::Write).unwrap();
            let before = store.get_one(key).await.unwrap();
            store.write_one(Item::put(key, "{not json")).await.unwrap();
            before
        }
    };
    harm("base/notes/01.md").await.expect("a baseline record");
    home.run(&["sync", "--json"]).ends(1).says(&["base/notes/01.md cannot be read", "backup"]);
    nothing_lost(&home);
}

#[test]
fn a_state_that_is_somebody_elses_database() {
    let home = Home::with_notes(1);
    fs::create_dir(home.path(".trueup")).unwrap();
    let made = rusqlite::Connection::open(home.path(".trueup/state.db")).unwrap();
    made.execute_batch("CREATE TABLE theirs(x); INSERT INTO theirs VALUES (1)").unwrap();
    drop(made);
    let before = home.tree();
    home.run(&["sync"]).ends(2).says(&["belongs to another program", "left as it is"]);
    untouched(&before, &home.tree(), "a refused run");
}

#[test]
fn a_config_in_a_folder_that_is_gone_or_a_store_that_cannot_be_made() {
    let home = Home::with_notes(1);
    home.write("blocked", "a file where a folder should be");
    home.write(
        "trueup.toml",
        "[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"sqlite:blocked/store.db\"\n",
    );
    let ran = home.run(&["sync"]);
    assert!([1, 2, 6].contains(&ran.code), "{}: {}", ran.code, ran.err);
    ran.says(&["blocked"]);
    assert_eq!(fs::read_to_string(home.path("blocked")).unwrap(), "a file where a folder should be");
}
