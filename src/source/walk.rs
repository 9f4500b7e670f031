//! A walk over a tree of files in byte order of the full path, one folder's names in memory per level.
//!
//! It concludes nothing from trouble: a folder that cannot be listed, or that changed while it was, is `Broken`,
//! a file that cannot be looked at is `Bad`, and the walk goes on. Folders behind symbolic links are not entered
//! (they may lead back up), pipes, sockets and devices are passed over: neither is part of the source.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::globs::Globs;
use super::{Event, Sink};
use crate::error::{Error, Kind, Result, from_io};
use crate::record::{Entry, Scope};

/// The folder trueup keeps its own files in; syncing it would never come to rest.
const OWN_FOLDER: &str = ".trueup";

/// What a walk needs from a file system. Paths are relative to the root, "" is the root.
pub trait Tree {
    fn children(&self, folder: &Path) -> io::Result<Vec<Child>>;
    /// Follows symbolic links.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
}

#[derive(Debug, Clone)]
pub struct Child {
    pub name: OsString,
    pub node: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    File,
    Folder,
    Link,
    Special,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub node: Node,
    pub size: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub inode: u64,
}

/// Walk the tree into `out`. `version` names the state of a file. An error means that the root cannot be read.
pub fn walk(tree: &dyn Tree, globs: &Globs, version: &dyn Fn(&Stat) -> String, out: &mut Sink) -> Result<()> {
    let root = tree.children(Path::new("")).map_err(|error| from_io(error, "listing the folder"))?;
    let mut open = vec![Folder::new("", root)];
    let mut root_broken = false;
    while let Some(folder) = open.last_mut() {
        let Some(child) = folder.rest.next() else {
            open.pop();
            continue;
        };
        match visit(tree, globs, version, folder, &child) {
            Visit::Nothing => {}
            Visit::Say(event) => {
                root_broken |= matches!(&event, Event::Broken(scope, _) if scope.is_empty());
                out.blocking_send(event)?;
            }
            Visit::Enter(below) => open.push(below),
        }
    }
    if !root_broken {
        out.blocking_send(Event::Complete("".into(), None))?;
    }
    out.blocking_flush()
}

/// A folder on the way from the root to where the walk is.
struct Folder {
    scope: Scope,
    rest: std::vec::IntoIter<Named>,
    /// Said once, however many of its files vanished.
    broken: bool,
}

impl Folder {
    fn new(path: &str, children: Vec<Child>) -> Self {
        let mut children: Vec<Named> = children.into_iter().map(Named::of).collect();
        children.sort_unstable_by(|a, b| (&a.shown, a.enterable()).cmp(&(&b.shown, b.enterable())));
        Folder { scope: Arc::from(path), rest: children.into_iter(), broken: false }
    }

    fn path_of(&self, name: &str) -> String {
        if self.scope.is_empty() { name.to_owned() } else { format!("{}/{name}", self.scope) }
    }
}

/// A child under the name it sorts by: a folder's ends in a slash, as the paths below it continue with one.
///
/// A name that is not UTF-8 is shown with its odd bytes escaped and a slash at the end, which no file's id has:
/// it can be told apart from every real file, and still has one place in the order.
struct Named {
    shown: String,
    /// The name itself, when it is not UTF-8.
    raw: Option<OsString>,
    node: Node,
}

impl Named {
    fn of(child: Child) -> Self {
        match child.name.into_string() {
            Ok(mut shown) => {
                if child.node == Node::Folder {
                    shown.push('/');
                }
                Named { shown, raw: None, node: child.node }
            }
            Err(raw) => Named { shown: escaped(&raw) + "/", raw: Some(raw), node: child.node },
        }
    }

    fn enterable(&self) -> bool {
        self.raw.is_none() && self.node == Node::Folder
    }
}

enum Visit {
    Nothing,
    Say(Event),
    Enter(Folder),
}

fn visit(
    tree: &dyn Tree,
    globs: &Globs,
    version: &dyn Fn(&Stat) -> String,
    folder: &mut Folder,
    child: &Named,
) -> Visit {
    if let Some(raw) = &child.raw {
        return nameless(globs, folder, child, raw);
    }
    match child.node {
        Node::Special => Visit::Nothing,
        Node::Folder => enter(tree, globs, &folder.path_of(child.shown.trim_end_matches('/'))),
        Node::File | Node::Link => {
            let path = folder.path_of(&child.shown);
            if !globs.wants(&path) {
                return Visit::Nothing;
            }
            match tree.stat(Path::new(&path)) {
                Ok(stat) if stat.node == Node::File => Visit::Say(Event::Seen(Entry {
                    size: Some(stat.size),
                    ..Entry::new(path, &folder.scope, version(&stat))
                })),
                Ok(stat) if child.node == Node::File && stat.node == Node::Folder => changed(folder),
                Ok(_) => Visit::Nothing,
                Err(error) if child.node == Node::File && error.kind() == io::ErrorKind::NotFound => {
                    changed(folder)
                }
                Err(error) => {
                    let error = unreadable(child.node, error, &path);
                    Visit::Say(Event::Bad(Entry::new(path, &folder.scope, ""), error))
                }
            }
        }
    }
}

fn enter(tree: &dyn Tree, globs: &Globs, path: &str) -> Visit {
    if !globs.enters(path) || path.rsplit('/').next() == Some(OWN_FOLDER) {
        return Visit::Nothing;
    }
    match tree.children(Path::new(path)) {
        Ok(children) => Visit::Enter(Folder::new(path, children)),
        Err(error) => {
            let error = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => in_motion(path),
                _ => from_io(error, format!("listing the folder {path}"))
                    .remedy_is("Make the folder readable, or name it in `exclude`."),
            };
            Visit::Say(Event::Broken(Arc::from(path), error))
        }
    }
}

/// A file was there and is not: neither seen nor proven absent, so its folder proves nothing this time.
fn changed(folder: &mut Folder) -> Visit {
    if std::mem::replace(&mut folder.broken, true) {
        return Visit::Nothing;
    }
    Visit::Say(Event::Broken(folder.scope.clone(), in_motion(&folder.scope)))
}

fn in_motion(folder: &str) -> Error {
    let folder = if folder.is_empty() { "the folder" } else { folder };
    Error::new(Kind::Conflict, format!("{folder} changed while it was being listed"))
        .remedy_is("Run again once the folder is at rest; nothing is deleted there meanwhile.")
}

fn unreadable(node: Node, error: io::Error, path: &str) -> Error {
    if node == Node::Link && error.kind() == io::ErrorKind::NotFound {
        return Error::new(Kind::Invalid, format!("{path} is a symbolic link to nothing"))
            .remedy_is("Mend or remove the link, or name it in `exclude`.");
    }
    from_io(error, format!("looking at {path}")).remedy_is("Make the file readable, or name it in `exclude`.")
}

/// A name that is not UTF-8 cannot be a key. A folder of such a name can hold nothing with a key either.
fn nameless(globs: &Globs, folder: &Folder, child: &Named, raw: &OsStr) -> Visit {
    let path = Path::new(&*folder.scope).join(raw);
    let ours = match child.node {
        Node::Folder => globs.enters(&path),
        Node::File | Node::Link => globs.wants(&path),
        Node::Special => false,
    };
    if !ours {
        return Visit::Nothing;
    }
    let id = folder.path_of(&child.shown);
    let message = format!("the name {} is not valid UTF-8", id.trim_end_matches('/'));
    let error = Error::new(Kind::Invalid, message)
        .remedy_is("Rename it, or exclude it (`?` and `*` match the odd bytes).");
    Visit::Say(Event::Bad(Entry::new(id, &folder.scope, ""), error))
}

/// Every name its own text: invalid bytes as `\xE9`, a backslash doubled.
fn escaped(name: &OsStr) -> String {
    let mut text = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02X}")));
    }
    text
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
