//! The walk over trees that exist only in memory, so that every kind of trouble can be had on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::source::channel;

#[derive(Default)]
struct Model {
    /// Every node by its path; parents are made along with it.
    nodes: BTreeMap<PathBuf, Node>,
    list_fails: BTreeMap<PathBuf, io::ErrorKind>,
    stat_fails: BTreeMap<PathBuf, io::ErrorKind>,
    /// What a link leads to.
    targets: BTreeMap<PathBuf, Node>,
    /// Which folder a link leads to.
    same: BTreeMap<PathBuf, PathBuf>,
    own: Option<PathBuf>,
}

impl Model {
    fn of(files: &[&str]) -> Self {
        let mut model = Model::default();
        for file in files {
            model.add(file, Node::File);
        }
        model
    }

    fn add(&mut self, path: impl AsRef<Path>, node: Node) {
        let path = path.as_ref();
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            self.nodes.insert(parent.to_owned(), Node::Folder);
        }
        self.nodes.insert(path.to_owned(), node);
    }

    fn walk(&self, globs: &Globs) -> Result<Vec<Event>> {
        let (mut sink, mut events) = channel();
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut all = Vec::new();
                while let Some(batch) = events.blocking_recv() {
                    all.extend(batch);
                }
                all
            });
            let version = |stat: &Stat| format!("v{}", stat.inode);
            let wanted = Wanted { globs, own: self.own.as_deref(), version: &version };
            let walked = walk(self, &wanted, &mut sink);
            drop(sink);
            let events = reader.join().unwrap();
            walked.map(|()| events)
        })
    }

    fn walk_all(&self) -> Vec<String> {
        self.walk(&everything()).unwrap().iter().map(told).collect()
    }
}

impl Tree for Model {
    fn children(&self, folder: &Path) -> io::Result<Vec<Child>> {
        if let Some(kind) = self.list_fails.get(folder) {
            return Err((*kind).into());
        }
        let folder = self.real(folder);
        let inside = self.nodes.iter().filter(|(path, _)| path.parent() == Some(&*folder));
        let child = |(path, node): (&PathBuf, &Node)| Child {
            name: path.file_name().unwrap().to_owned(),
            node: *node,
        };
        // Real directories have no order; the walk must not lean on one.
        Ok(inside.map(child).rev().collect())
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        if let Some(kind) = self.stat_fails.get(path) {
            return Err((*kind).into());
        }
        let path = &*self.real(path);
        let root = path.as_os_str().is_empty().then_some(&Node::Folder);
        let node = self.targets.get(path).or_else(|| self.nodes.get(path)).or(root);
        let node = *node.ok_or(io::ErrorKind::NotFound)?;
        let inode = self.nodes.keys().position(|other| other == path).map_or(1, |at| at as u64 + 2);
        Ok(Stat { node, size: 1, mtime_ns: 2, ctime_ns: 3, inode, device: 1 })
    }
}

impl Model {
    /// The path without links to folders.
    fn real(&self, path: &Path) -> PathBuf {
        let mut real = PathBuf::new();
        for part in path.components() {
            real.push(part);
            if let Some(target) = self.same.get(&real) {
                real.clone_from(target);
            }
        }
        real
    }
}

fn everything() -> Globs {
    Globs::new(&[], &[]).unwrap()
}

fn told(event: &Event) -> String {
    match event {
        Event::Seen(entry) => format!("seen {} in {}", entry.id, entry.scope),
        Event::Bad(entry, error) => format!("bad {} {}", entry.id, error.kind()),
        Event::Broken(scope, error) => format!("broken {scope} {}", error.kind()),
        Event::Complete(scope, None) => format!("complete {scope}"),
        other => panic!("a walk never says {other:?}"),
    }
}

#[test]
fn a_walk_names_every_file_and_its_folder_in_byte_order() {
    let model = Model::of(&["b", "a/x", "a-b", "a.b", "a0", "a/-", ".hidden", "a/c/d"]);
    assert_eq!(
        model.walk_all(),
        [
            "seen .hidden in ",
            "seen a-b in ",
            "seen a.b in ",
            "seen a/- in a",
            "seen a/c/d in a/c",
            "seen a/x in a",
            "seen a0 in ",
            "seen b in ",
            "complete ",
        ]
    );
}

#[test]
fn a_folder_that_cannot_be_listed_is_broken_and_the_walk_goes_on() {
    let mut model = Model::of(&["a/1", "b/2", "c/3"]);
    model.list_fails.insert("b".into(), io::ErrorKind::PermissionDenied);
    assert_eq!(model.walk_all(), ["seen a/1 in a", "broken b unauthorized", "seen c/3 in c", "complete "]);
    model.list_fails.insert("b".into(), io::ErrorKind::NotFound);
    assert_eq!(model.walk_all()[1], "broken b conflict");
}

#[test]
fn an_excluded_folder_may_be_unreadable() {
    let mut model = Model::of(&["a/1", "b/2"]);
    model.list_fails.insert("b".into(), io::ErrorKind::PermissionDenied);
    let globs = Globs::new(&[], &["b/**".to_owned()]).unwrap();
    let events: Vec<_> = model.walk(&globs).unwrap().iter().map(told).collect();
    assert_eq!(events, ["seen a/1 in a", "complete "]);
}

#[test]
fn a_root_that_cannot_be_listed_is_an_error_and_says_nothing() {
    let mut model = Model::of(&["a"]);
    model.list_fails.insert(PathBuf::new(), io::ErrorKind::PermissionDenied);
    assert_eq!(model.walk(&everything()).unwrap_err().kind(), Kind::Unauthorized);
}

#[test]
fn a_file_that_vanishes_leaves_its_folder_unproven_once() {
    let mut model = Model::of(&["a/1", "a/2", "a/3", "b"]);
    model.stat_fails.insert("a/1".into(), io::ErrorKind::NotFound);
    model.stat_fails.insert("a/2".into(), io::ErrorKind::NotFound);
    assert_eq!(model.walk_all(), ["broken a conflict", "seen a/3 in a", "seen b in ", "complete "]);
}

#[test]
fn a_file_that_vanishes_from_the_root_leaves_everything_unproven() {
    let mut model = Model::of(&["a/1", "b"]);
    model.stat_fails.insert("b".into(), io::ErrorKind::NotFound);
    assert_eq!(model.walk_all(), ["seen a/1 in a", "broken  conflict"]);
}

#[test]
fn a_file_that_cannot_be_looked_at_is_bad_but_there() {
    let mut model = Model::of(&["a", "b"]);
    model.stat_fails.insert("a".into(), io::ErrorKind::PermissionDenied);
    assert_eq!(model.walk_all(), ["bad a unauthorized", "seen b in ", "complete "]);
}

#[test]
fn links_are_what_they_lead_to() {
    let mut model = Model::of(&["far/away/x", "far/away/y/z", "b"]);
    for (link, target) in [("file", Node::File), ("pipe", Node::Special)] {
        model.add(link, Node::Link);
        model.targets.insert(link.into(), target);
    }
    model.add("near", Node::Link);
    model.same.insert("near".into(), "far/away".into());
    model.add("socket", Node::Special);
    let globs = Globs::new(&[], &["far".to_owned()]).unwrap();
    let seen: Vec<_> = model.walk(&globs).unwrap().iter().map(told).collect();
    assert_eq!(
        seen,
        ["seen b in ", "seen file in ", "seen near/x in near", "seen near/y/z in near/y", "complete "]
    );
}

/// It may have been a folder, and whoever asked for no file of its name asked for what was in it.
#[test]
fn a_link_to_nothing_is_bad_or_leaves_a_folder_unproven() {
    let mut model = Model::of(&["a"]);
    model.add("nowhere", Node::Link);
    model.stat_fails.insert("nowhere".into(), io::ErrorKind::NotFound);
    assert_eq!(model.walk_all(), ["seen a in ", "bad nowhere invalid", "complete "]);
    let some = |include: &str, exclude: &[&str]| {
        let exclude: Vec<String> = exclude.iter().map(ToString::to_string).collect();
        let globs = Globs::new(&[include.to_owned()], &exclude).unwrap();
        model.walk(&globs).unwrap().iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(some("**/*.md", &[]), ["broken nowhere invalid", "complete "]);
    assert_eq!(some("b/*.md", &[]), ["complete "]);
    assert_eq!(some("**/*.md", &["nowhere"]), ["complete "], "named in exclude, it is of no interest");
}

#[test]
fn a_link_that_leads_back_is_not_followed_for_ever() {
    let mut model = Model::of(&["a/b/c"]);
    for (link, target) in [("a/b/up", "a"), ("a/b/top", "")] {
        model.add(link, Node::Link);
        model.same.insert(link.into(), target.into());
    }
    assert_eq!(
        model.walk_all(),
        ["seen a/b/c in a/b", "broken a/b/top invalid", "broken a/b/up invalid", "complete "]
    );
}

#[test]
fn what_trueup_keeps_for_itself_is_not_part_of_the_source_and_nothing_else_is_left_out() {
    let mut model = Model::of(&["sub/.trueup/state.db", ".trueup/x", "a.trueup"]);
    model.own = Some("sub/.trueup".into());
    assert_eq!(model.walk_all(), ["seen .trueup/x in .trueup", "seen a.trueup in ", "complete "]);
}

#[test]
fn a_name_that_is_not_utf8_is_bad_and_like_no_other() {
    let mut model = Model::of(&["caf\\xE9", "caf\u{FFFD}", "caf\u{E9}"]);
    for raw in [b"caf\xE9".to_vec(), b"caf\xE8".to_vec(), b"caf\\xE9\xE9".to_vec()] {
        model.add(OsString::from_vec(raw), Node::File);
    }
    model.add(PathBuf::from(OsString::from_vec(b"dir\xFF".to_vec())).join("inside"), Node::File);
    let events = model.walk_all();
    assert_eq!(events.iter().filter(|event| event.starts_with("bad ")).count(), 4);
    assert_eq!(events.iter().filter(|event| event.starts_with("seen ")).count(), 3);
    assert_eq!(events.iter().collect::<BTreeSet<_>>().len(), events.len());
    assert!(events.contains(&"bad caf\\xE9/ invalid".to_owned()), "{events:?}");
    assert!(events.contains(&"bad dir\\xFF/inside/ invalid".to_owned()), "{events:?}");
}

#[test]
fn a_name_that_is_not_utf8_can_be_excluded() {
    let mut model = Model::of(&["a"]);
    model.add(OsString::from_vec(b"caf\xE9".to_vec()), Node::File);
    let globs = Globs::new(&[], &["caf*".to_owned()]).unwrap();
    assert_eq!(model.walk(&globs).unwrap().len(), 2);
}

/// Few letters around the slash (0x2F), odd bytes among them, so that names are often each other's beginnings.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(b"ab-.0\\\xC3\xA9\xFF\xE9".to_vec());
    prop::collection::vec(byte, 1..4).prop_filter("not a name", |name| name != b"." && name != b"..")
}

proptest! {
    #[test]
    fn ids_come_in_byte_order_and_none_twice(paths in prop::collection::vec(prop::collection::vec(name(), 1..4), 0..40)) {
        let mut model = Model::default();
        let mut expected = BTreeSet::new();
        for parts in paths {
            let path: PathBuf = parts.into_iter().map(OsString::from_vec).collect();
            // A path that is a folder already, or leads through a file, cannot exist.
            let through_file = path.ancestors().skip(1).any(|above| model.nodes.get(above) == Some(&Node::File));
            if model.nodes.contains_key(&path) || through_file {
                continue;
            }
            if let Some(text) = path.to_str() {
                expected.insert(text.to_owned());
            }
            model.add(path, Node::File);
        }
        let events = model.walk(&everything()).unwrap();
        let ids: Vec<_> = events.iter().filter_map(|event| match event {
            Event::Seen(entry) | Event::Bad(entry, _) => Some(entry.id.as_bytes()),
            _ => None,
        }).collect();
        prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", events);
        let seen: BTreeSet<_> = events.iter().filter_map(|event| match event {
            Event::Seen(entry) => Some(entry.id.clone()),
            _ => None,
        }).collect();
        prop_assert_eq!(seen, expected);
    }
}
