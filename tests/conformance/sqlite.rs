//! SQLite keeps the contract, and the promises of its own about the file.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trueup::error::Kind;
use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, Expect, Item, Mode, Outcome, Query, Store, StoreExt, What};

use super::stores::{conforms, exactly, held, print, put};

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, Access::Write).unwrap()
}

/// Every file of a folder with its bytes.
fn bytes_in(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/on the way/store.db");
    conforms(&open(&path)).await;
    conforms(&open(&path)).await;
}

#[tokio::test]
async fn what_was_written_is_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let large = "x".repeat(70_000);
    let (small_version, large_version) = {
        let store = open(&path);
        let item = Item::put("small", "1").with_fingerprint(print("1"));
        store.write_one(item).await.unwrap();
        (held(&store, "small", Some("1")).await.unwrap().version, put(&store, "large", &large).await)
    };
    assert_eq!(
        bytes_in(folder.path()).keys().collect::<Vec<_>>(),
        ["store.db"],
        "the log is folded in on close"
    );
    let store = open(&path);
    let small = held(&store, "small", Some("1")).await.unwrap();
    assert_eq!((small.version.clone(), small.fingerprint), (small_version, Some(print("1"))));
    assert_eq!(held(&store, "large", Some(&large)).await.unwrap().version, large_version);
    let next = put(&store, "another", "x").await;
    assert!(next != small.version && next != large_version, "the counter goes on where it was");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_of_one_file_share_it() {
    const EACH: usize = 10;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let stores = [Arc::new(open(&path)), Arc::new(open(&path))];
    put(&*stores[0], "counter", "0").await;
    let tasks = stores.clone().map(|store| {
        tokio::spawn(async move {
            let mut done = 0;
            while done < EACH {
                let now = store.get_one("counter").await.unwrap().unwrap();
                let number: usize = std::str::from_utf8(&now.value).unwrap().parse().unwrap();
                let next = Item::put("counter", (number + 1).to_string()).expecting(exactly(&now.version));
                match store.write_one(next).await {
                    Ok(outcome) => done += usize::from(matches!(outcome, Outcome::Applied(_))),
                    // The other one had the file for long: nothing was written, and it is our turn again.
                    Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
                }
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    let all = (EACH * stores.len()).to_string();
    held(&*stores[0], "counter", Some(&all)).await;
    held(&*stores[1], "counter", Some(&all)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_share_a_transaction_keep_their_own_outcomes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder.path().join("store.db")));
    put(&*store, "taken", "x").await;
    let write = |at: usize| {
        let mut items = vec![Item::put(format!("key/{at}"), "x")];
        if at.is_multiple_of(3) {
            items.push(Item::put("taken", "y").expecting(Expect::Absent));
        }
        let store = Arc::clone(&store);
        tokio::spawn(async move { (at, store.write(items, Mode::All).await.unwrap()) })
    };
    for task in (0..200).map(write).collect::<Vec<_>>() {
        let (at, outcomes) = task.await.unwrap();
        let landed = outcomes.iter().all(|outcome| outcome.as_ref().unwrap().landed());
        assert_eq!(landed, !at.is_multiple_of(3), "batch {at}: {outcomes:?}");
        let there = store.get_one(&format!("key/{at}")).await.unwrap().is_some();
        assert_eq!(there, landed, "batch {at}");
    }
}

#[tokio::test]
async fn reading_creates_nothing_and_changes_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b%c?d#e.db");
    let missing = Sqlite::open(&path, Access::Read).unwrap();
    assert!(missing.get_one("a").await.unwrap().is_none());
    assert!(!missing.list(Query::keys("")).await.unwrap().more);
    assert_eq!(missing.write_one(Item::put("a", "x")).await.unwrap_err().kind(), Kind::Bug);
    assert!(bytes_in(folder.path()).is_empty());

    put(&open(&path), "a", "1").await;
    let before = bytes_in(folder.path());
    assert_eq!(before.len(), 1);
    {
        let reader = Sqlite::open(&path, Access::Read).unwrap();
        held(&reader, "a", Some("1")).await;
        assert_eq!(reader.list_all("", What::Values).await.unwrap().len(), 1);
        assert_eq!(bytes_in(folder.path()), before, "while it is open");
    }
    assert_eq!(bytes_in(folder.path()), before, "after it was closed");
}

#[tokio::test]
async fn a_reader_sees_what_a_writer_adds_and_the_file_it_makes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let reader = Sqlite::open(&path, Access::Read).unwrap();
    held(&reader, "a", None).await;
    {
        let writer = open(&path);
        put(&writer, "a", "1").await;
        held(&reader, "a", Some("1")).await;
        put(&writer, "a", "2").await;
        held(&reader, "a", Some("2")).await;
    }
    held(&reader, "a", Some("2")).await;
    put(&open(&path), "a", "3").await;
    held(&reader, "a", Some("3")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_reads_while_writers_come_and_go_sees_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let between = (0..600).map(|number| Item::put(format!("m/{number:04}"), "x".repeat(50_000))).collect();
    open(&path).write(between, Mode::All).await.unwrap();
    let write = async |round: u32| {
        // The last to close folds its log into the file.
        let items = ["a", "z"].map(|key| Item::put(key, round.to_string())).to_vec();
        open(&path).write(items, Mode::All).await.unwrap();
    };
    write(0).await;
    let (over, reader) = (AtomicBool::new(false), Sqlite::open(&path, Access::Read).unwrap());
    let writing = async {
        for round in 1..200 {
            write(round).await;
        }
        over.store(true, Ordering::SeqCst);
    };
    let reading = async {
        while !over.load(Ordering::SeqCst) {
            let lines = reader.list(Query::values("")).await.unwrap().items;
            let (first, last) = (lines.first().unwrap(), lines.last().unwrap());
            assert_eq!((lines.len(), first.key.as_str(), last.key.as_str()), (602, "a", "z"));
            assert_eq!(first.value, last.value, "of two moments");
        }
    };
    tokio::join!(writing, reading);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_waits_for_a_writer_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    put(&store, "a", "1").await;
    // A foreign transaction that stays open: writers wait for it, readers must not.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; UPDATE meta SET value = value + 100").unwrap();
    held(&store, "a", Some("1")).await;
    assert_eq!(store.list_all("", What::Keys).await.unwrap().len(), 1);
    other.execute_batch("ROLLBACK").unwrap();
    put(&store, "a", "2").await;
}

#[tokio::test]
async fn a_file_of_somebody_else_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE kv(a); INSERT INTO kv VALUES(1)").unwrap();
    drop(other);
    std::fs::write(folder.path().join("text.db"), "no database at all\n".repeat(100)).unwrap();
    std::fs::write(folder.path().join("short.db"), "short").unwrap();
    let before = bytes_in(folder.path());
    for (name, kind) in [("other.db", Kind::Config), ("text.db", Kind::Corrupt), ("short.db", Kind::Corrupt)]
    {
        for access in [Access::Read, Access::Write] {
            let error = Sqlite::open(&folder.path().join(name), access).err().unwrap();
            assert_eq!(error.kind(), kind, "{name}: {error}");
            assert!(error.remedy().contains("left as it is"), "{name}: {}", error.remedy());
        }
    }
    assert_eq!(Sqlite::open(folder.path(), Access::Write).err().unwrap().kind(), Kind::Config);
    assert_eq!(bytes_in(folder.path()), before);
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    put(&open(&path), "a", "1").await;
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    let before = bytes_in(folder.path());
    for access in [Access::Read, Access::Write] {
        let error = Sqlite::open(&path, access).err().unwrap();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.to_string().contains("format 99"), "{error}");
    }
    assert_eq!(bytes_in(folder.path()), before);
}

#[tokio::test]
async fn damage_is_an_error_and_never_an_empty_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    {
        let store = open(&path);
        let items = (0..5_000).map(|at| Item::put(format!("key/{at:05}"), "x".repeat(200))).collect();
        store.write(items, Mode::Each).await.unwrap();
    }
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xA5);
    std::fs::write(&path, &bytes).unwrap();
    let store = Sqlite::open(&path, Access::Read).unwrap();
    let error = store.list_all("", What::Values).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.remedy().contains("backup"));
}

#[tokio::test]
async fn a_backup_is_a_whole_store_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("store.db"));
    let large = "x".repeat(50_000);
    let version = put(&store, "a", "1").await;
    put(&store, "b", &large).await;
    let to = folder.path().join("backups/monday.db");
    store.backup(&to).await.unwrap();
    put(&store, "a", "2").await;
    let before = bytes_in(to.parent().unwrap());
    assert_eq!(before.keys().collect::<Vec<_>>(), ["monday.db"]);
    assert_eq!(store.backup(&to).await.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(bytes_in(to.parent().unwrap()), before);

    let copy = open(&to);
    assert_eq!(held(&copy, "a", Some("1")).await.unwrap().version, version);
    held(&copy, "b", Some(&large)).await;
    put(&copy, "a", "3").await;
    held(&store, "a", Some("2")).await;
}

#[tokio::test]
async fn a_person_can_read_the_entries_with_plain_sql() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path);
    let large = "규".repeat(2_000);
    store.write_one(Item::put("a", "{\"n\":1}").with_fingerprint(print("a"))).await.unwrap();
    put(&store, "b", &large).await;
    let plain = rusqlite::Connection::open(&path).unwrap();
    let read = |key: &str| {
        let sql = "SELECT value, fingerprint FROM entries WHERE key = ?1";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?));
        plain.query_row(sql, [key], row).unwrap()
    };
    assert_eq!(read("a"), ("{\"n\":1}".to_owned(), Some(print("a").to_string())));
    assert_eq!(read("b"), (large, None));
}

/// What a killed process had answered for is there: the answers arrive here through a pipe before the kill.
/// The process that is killed is this very test, told by a variable to play the other part.
#[tokio::test]
async fn an_answered_write_survives_kill_9() {
    const PART: &str = "TRUEUP_TEST_WRITES_UNTIL_KILLED";
    const ANSWERS: usize = 50;
    if let Ok(path) = std::env::var(PART) {
        let store = open(Path::new(&path));
        for number in 1.. {
            put(&store, &format!("key/{number}"), "x").await;
            println!("answered {number}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "conformance::sqlite::an_answered_write_survives_kill_9", "--nocapture"])
        .env(PART, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answered = lines.map(Result::unwrap).filter(|line| line.contains("answered ")).take(ANSWERS).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(answered, ANSWERS);
    let reader = Sqlite::open(&path, Access::Read).unwrap();
    assert!(reader.list_all("", What::Keys).await.unwrap().len() >= ANSWERS);
    let writer = open(&path);
    assert!(writer.list_all("", What::Keys).await.unwrap().len() >= ANSWERS);
    put(&writer, "another", "x").await;
}
