//! A folder keeps the contract, and looks to others as a folder should.

use std::path::Path;

use trueup::error::Kind;
use trueup::store::folder::Folder;
use trueup::store::{Access, Item, Mode, PAGE, Query, Store, StoreExt, What};

use super::stores::{conforms, exactly, held, put};

fn open(path: &Path) -> Folder {
    Folder::open(path, Access::Write).unwrap()
}

async fn keys(store: &Folder, prefix: &str) -> Vec<String> {
    store.list_all(prefix, What::Keys).await.unwrap().into_iter().map(|line| line.key).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/on the way");
    conforms(&open(&path)).await;
    conforms(&open(&path)).await;
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "no file, no draft, no empty folder is left");
}

#[tokio::test]
async fn keys_are_files_and_files_are_keys() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, "규정/제1조 #1.md", "본문").await;
    assert_eq!(std::fs::read_to_string(folder.path().join("규정/제1조 #1.md")).unwrap(), "본문");
    std::fs::write(folder.path().join("by hand.txt"), "x").unwrap();
    assert_eq!(keys(&store, "").await, ["by hand.txt", "규정/제1조 #1.md"]);
    let before = held(&store, "by hand.txt", Some("x")).await.unwrap();
    std::fs::write(folder.path().join("by hand.txt"), "longer").unwrap();
    let after = held(&store, "by hand.txt", Some("longer")).await.unwrap();
    assert_ne!(before.version, after.version, "an edit by hand is a new version");
    let stale = Item::put("by hand.txt", "z").expecting(exactly(&before.version));
    assert!(!store.write_one(stale).await.unwrap().landed());
}

#[tokio::test]
async fn what_is_no_key_is_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, "a/b", "1").await;
    std::fs::create_dir_all(folder.path().join("empty/folder")).unwrap();
    std::fs::write(folder.path().join("a/.trueup-draft-interrupted"), "half").unwrap();
    std::os::unix::fs::symlink(folder.path(), folder.path().join("round-and-round")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("nowhere"), folder.path().join("dangling")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("a/b"), folder.path().join("link")).unwrap();
    assert_eq!(keys(&store, "").await, ["a/b", "link"]);
    assert!(store.get_one("empty").await.unwrap().is_none(), "a folder is no value");
}

/// A folder that was moved to another disk, with a link in its place, is where it was.
#[tokio::test]
async fn what_is_behind_a_link_to_a_folder_is_listed() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(folder.path());
    put(&store, "a/b", "1").await;
    put(&store, "d/e/f", "2").await;
    std::fs::rename(folder.path().join("d"), elsewhere.path().join("d")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("d"), folder.path().join("d")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("a"), elsewhere.path().join("d/sideways")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("d"), elsewhere.path().join("d/e/back")).unwrap();
    assert_eq!(keys(&store, "").await, ["a/b", "d/e/f", "d/sideways/b"]);
    assert_eq!(held(&store, "d/e/f", Some("2")).await.unwrap().value, "2");
}

#[tokio::test]
async fn a_draft_of_a_killed_process_goes_with_the_next_listing_and_one_being_written_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, "a/b", "1").await;
    let [left, written] =
        ["left", "written"].map(|name| folder.path().join(format!("a/.trueup-draft-{name}")));
    std::fs::write(&left, "half").unwrap();
    let writer = std::fs::File::create(&written).unwrap();
    writer.lock().unwrap();
    let reader = Folder::open(folder.path(), Access::Read).unwrap();
    assert_eq!(keys(&reader, "").await, ["a/b"]);
    assert!(left.exists(), "whoever only reads changes nothing");
    assert_eq!(keys(&store, "").await, ["a/b"]);
    assert!(!left.exists() && written.exists());
    drop(writer);
    assert_eq!(keys(&store, "").await, ["a/b"]);
    assert!(!written.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn drafts_in_the_making_survive_listings_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (open(folder.path()), open(folder.path()));
    let written = async {
        for round in 0..20 {
            let items = (0..50).map(|number| Item::put(number.to_string(), format!("{round}"))).collect();
            for outcome in store.write(items, Mode::Each).await.unwrap() {
                assert!(outcome.unwrap().landed());
            }
        }
    };
    let listing = async {
        loop {
            keys(&other, "").await;
        }
    };
    tokio::select! {
        () = written => {}
        () = listing => {}
    }
    assert_eq!(keys(&store, "").await.len(), 50);
}

#[tokio::test]
async fn keys_that_are_no_paths_are_refused_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("store");
    let store = open(&inner);
    let long = "x".repeat(300);
    let names = ["/a", "a/", "a//b", "../a", "a/../../b", ".", "a/./b", "a\0b", &long, ".trueup-draft-x"];
    let items = names.iter().map(|name| Item::put(*name, "x")).collect();
    for (name, outcome) in names.iter().zip(store.write(items, Mode::Each).await.unwrap()) {
        assert_eq!(outcome.unwrap_err().kind(), Kind::Invalid, "{name:?}");
        assert!(store.get_one(name).await.unwrap().is_none(), "{name:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 0);
}

#[tokio::test]
async fn a_file_where_a_folder_is_needed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, "a", "1").await;
    put(&store, "b/c", "1").await;
    for key in ["a/b", "a/b/c", "b"] {
        let error = store.write_one(Item::put(key, "x")).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{key}: {error}");
        assert!(error.remedy().contains("cannot hold both"), "{key}: {}", error.remedy());
    }
    assert_eq!(keys(&store, "").await, ["a", "b/c"]);
}

#[tokio::test]
async fn pages_of_a_large_folder_join_whatever_changes_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut names: Vec<String> = (0..300).map(|at| format!("dir{}/{at:03}", at % 7)).collect();
    names.extend((0..50).map(|at| format!("dir{}-{at}", at % 7)));
    for name in &names {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    names.sort();
    let (mut seen, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
    loop {
        let page = store.list(Query { limit: 13, after: after.as_deref(), ..Query::keys("") }).await.unwrap();
        seen.extend(page.items.into_iter().map(|line| line.key));
        if !page.more {
            break;
        }
        after = seen.last().cloned();
        // A key behind the page just given: a read that begins now must see it.
        if seen.len() == 130 {
            put(&store, "dir6/zzz", "late").await;
            std::fs::write(folder.path().join("dir6/zzz-by-hand"), "late").unwrap();
        }
    }
    names.extend(["dir6/zzz".to_owned(), "dir6/zzz-by-hand".to_owned()]);
    names.sort();
    assert_eq!(seen, names);
    assert_eq!(store.list(Query { limit: PAGE, ..Query::keys("dir3/") }).await.unwrap().items.len(), 43);
}

#[tokio::test]
async fn reading_creates_no_folder_and_a_vanished_one_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let reader = Folder::open(&path, Access::Read).unwrap();
    assert!(reader.list_all("", What::Keys).await.unwrap().is_empty());
    assert!(!path.exists());
    assert_eq!(reader.write_one(Item::put("a", "x")).await.unwrap_err().kind(), Kind::Bug);
    let writer = open(&path);
    std::fs::remove_dir(&path).unwrap();
    assert_eq!(writer.list(Query::keys("")).await.unwrap_err().kind(), Kind::NotFound, "gone is not empty");
    std::fs::write(folder.path().join("file"), "x").unwrap();
    assert_eq!(Folder::open(&folder.path().join("file"), Access::Read).err().unwrap().kind(), Kind::Config);
}
