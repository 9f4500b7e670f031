//! A folder as a source, on a real file system.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use trueup::clock::TestClock;
use trueup::error::Kind;
use trueup::record::Entry;
use trueup::source::files::{Files, VALUE_MAX};
use trueup::source::{Cursors, Event, Source, channel};

use super::{Holding, holding, list, seen, source_conforms};
use crate::support::temp;

/// A folder and a source on it whose clock is far ahead, so that fresh files count as long at rest.
struct Folder {
    root: tempfile::TempDir,
    source: Files,
}

impl Folder {
    fn of(files: &Holding) -> Self {
        let root = temp();
        for (path, body) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, body).unwrap();
        }
        let source = at(root.path());
        Folder { root, source }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }
}

fn at(folder: &Path) -> Files {
    Files::new(folder.to_owned(), &[], &[], TestClock::at("2200-01-01T00:00:00Z", 1)).unwrap()
}

#[tokio::test]
async fn a_folder_conforms() {
    let files = holding(&[
        ("README.md", "hello"),
        (".hidden", "h"),
        ("empty", ""),
        ("a/x", "1"),
        ("a-b", "2"),
        ("a.b/c", "3"),
        ("a0", "4"),
        ("deep/er/and/deeper", "5"),
        ("규정/제1조.md", "여섯"),
        ("with space & 'quotes\"", "7"),
    ]);
    source_conforms(&Folder::of(&files).source, &files).await;
    source_conforms(&Folder::of(&Holding::new()).source, &Holding::new()).await;
}

#[tokio::test]
async fn a_folder_larger_than_the_channel_conforms() {
    let files: Holding = (0..5_000).map(|n| (format!("{}/{n}", n % 7), n.to_string().into_bytes())).collect();
    source_conforms(&Folder::of(&files).source, &files).await;
}

#[tokio::test]
async fn an_entry_lies_in_the_scope_of_its_folder() {
    let folder = Folder::of(&holding(&[("top", ""), ("a/one", ""), ("a/b/two", "")]));
    let entries = seen(&list(&folder.source).await.unwrap());
    let scopes: Vec<_> = entries.iter().map(|entry| (entry.id.as_str(), &*entry.scope)).collect();
    assert_eq!(scopes, [("a/b/two", "a/b"), ("a/one", "a"), ("top", "")]);
}

#[tokio::test]
async fn a_folder_that_is_missing_or_a_file_is_an_error_and_never_empty() {
    let folder = Folder::of(&holding(&[("file", "x")]));
    for (path, kind) in [("missing", Kind::NotFound), ("file", Kind::Invalid)] {
        let source = at(&folder.path(path));
        for error in [list(&source).await.unwrap_err(), source.check().await.unwrap_err()] {
            assert_eq!(error.kind(), kind);
            assert!(error.remedy().contains("`files`"), "{}", error.remedy());
        }
    }
}

/// The file system refuses paths over 4,096 bytes, to root too: a folder that exists and cannot be listed.
#[tokio::test]
async fn a_folder_that_cannot_be_listed_proves_nothing_below_it_and_the_rest_stands() {
    let folder = Folder::of(&holding(&[("a/1", "x"), ("z/2", "y")]));
    let long = "n".repeat(250);
    let deep: PathBuf = std::iter::repeat_n(long.as_str(), 10).collect();
    fs::create_dir_all(folder.path("deep").join(&deep)).unwrap();
    fs::create_dir_all(folder.path("more").join(&deep)).unwrap();
    fs::rename(folder.path("more"), folder.path("deep").join(&deep).join("more")).unwrap();

    let events = list(&folder.source).await.unwrap();
    let ids: Vec<_> = seen(&events).into_iter().map(|entry| entry.id).collect();
    assert_eq!(ids, ["a/1", "z/2"]);
    let broken: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Broken(scope, error) => Some((scope, error)),
            _ => None,
        })
        .collect();
    let [(scope, error)] = broken[..] else { panic!("one folder is broken: {broken:?}") };
    assert!(scope.starts_with("deep/nnn"), "{scope}");
    assert!(error.remedy().contains("`exclude`"), "{error:?} {}", error.remedy());
    assert!(matches!(events.last(), Some(Event::Complete(scope, None)) if scope.is_empty()));
}

#[tokio::test]
async fn links_are_what_they_lead_to() {
    let folder = Folder::of(&holding(&[("dir/file", "x")]));
    symlink("dir/file", folder.path("to-file")).unwrap();
    symlink("dir", folder.path("to-dir")).unwrap();
    symlink("..", folder.path("dir/up")).unwrap();
    symlink("nowhere", folder.path("to-nothing")).unwrap();
    symlink("loop", folder.path("loop")).unwrap();
    let status = std::process::Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap();
    assert!(status.success());

    let events = list(&folder.source).await.unwrap();
    let ids: Vec<_> = seen(&events).into_iter().map(|entry| entry.id).collect();
    assert_eq!(ids, ["dir/file", "to-dir/file", "to-file"]);
    let broken: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Broken(scope, _) => Some(&**scope),
            _ => None,
        })
        .collect();
    assert_eq!(broken, ["dir/up", "to-dir/up"]);
    let bad: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Bad(entry, _) => Some(entry.id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(bad, ["loop", "to-nothing"]);
}

#[tokio::test]
async fn include_and_exclude_choose_among_paths() {
    let folder = Folder::of(&holding(&[("a.md", ""), ("b.txt", ""), ("sub/c.md", ""), ("drafts/d.md", "")]));
    let chosen = |include: &'static str, exclude: &'static str| {
        let list_of = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let clock = TestClock::at("2200-01-01T00:00:00Z", 1);
        let root = folder.root.path().to_owned();
        async move {
            let source = Files::new(root, &list_of(include), &list_of(exclude), clock).unwrap();
            let entries = seen(&list(&source).await.unwrap());
            entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>().join(" ")
        }
    };
    assert_eq!(chosen("**/*.md", "drafts/**").await, "a.md sub/c.md");
    assert_eq!(chosen("", "*.md").await, "b.txt");
    assert_eq!(chosen("sub/** *.txt", "").await, "b.txt sub/c.md");
}

#[tokio::test]
async fn an_edit_that_keeps_size_and_date_is_another_version() {
    let folder = Folder::of(&holding(&[("file", "one")]));
    let before = seen(&list(&folder.source).await.unwrap());
    let unedited = fs::metadata(folder.path("file")).unwrap();
    // File times advance in ticks, and the source's clock says that this one is long past: edit until it is.
    let edited = (0..1_000_000).any(|_| {
        fs::write(folder.path("file"), "two").unwrap();
        let file = fs::File::options().write(true).open(folder.path("file")).unwrap();
        file.set_modified(unedited.modified().unwrap()).unwrap();
        let now = file.metadata().unwrap();
        (now.ctime(), now.ctime_nsec()) != (unedited.ctime(), unedited.ctime_nsec())
    });
    assert!(edited);

    let after = seen(&list(&folder.source).await.unwrap());
    assert_eq!(before[0].size, after[0].size);
    assert_ne!(before[0].version, after[0].version);
    let body = folder.source.open(&before[0]).await.unwrap();
    assert_eq!((&*body.bytes, &body.version), (&b"two"[..], &after[0].version), "a body has its own version");
}

/// What the kernel makes up while it is read has more bytes than its size says, as a file that grows has.
#[tokio::test]
async fn a_file_that_changes_under_the_reader_is_a_conflict() {
    let folder = Folder::of(&Holding::new());
    symlink("/proc/self/status", folder.path("status")).unwrap();
    let entries = seen(&list(&folder.source).await.unwrap());
    let error = folder.source.open(&entries[0]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.to_string().contains("changed while it was read"), "{error}");
}

#[tokio::test]
async fn a_file_too_large_to_hold_is_refused_before_it_is_read() {
    let folder = Folder::of(&Holding::new());
    fs::File::create(folder.path("huge")).unwrap().set_len(VALUE_MAX + 1).unwrap();
    let entries = seen(&list(&folder.source).await.unwrap());
    let error = folder.source.open(&entries[0]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains(&(VALUE_MAX + 1).to_string()), "{error}");
    assert!(error.remedy().contains("`exclude`"));
}

#[tokio::test]
async fn an_id_that_leads_out_of_the_folder_is_refused() {
    let folder = Folder::of(&Holding::new());
    for id in ["../outside", "/etc/passwd", "a/../../b"] {
        let error = folder.source.open(&Entry::new(id, &"".into(), "1")).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{id}");
    }
}

#[tokio::test]
async fn a_walk_ends_when_nobody_reads_it() {
    let files: Holding = (0..5_000).map(|n| (n.to_string(), Vec::new())).collect();
    let folder = Folder::of(&files);
    let (mut sink, events) = channel();
    drop(events);
    let error = folder.source.list(&Cursors::new(), &mut sink).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Canceled);
}
