//! A walk over a tree of files in byte order of the full path, one folder's names in memory per level.
//!
//! It concludes nothing from trouble: a folder that cannot be listed, or that changed while it was, is `Broken`,
//! a file that cannot be looked at is `Bad`, and the walk goes on. Symbolic links are what they lead to; one that leads
//! nowhere may have led to a file or to a folder, and one that leads back to a folder it is in leads nowhere. Pipes,
//! sockets and devices are passed over: they are no part of the source.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::globs::Globs;
use super::{Event, Sink};
use crate::error::{Error, Kind, Result, from_io};
use crate::record::{Entry, Scope};

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
    pub device: u64,
}

/// What of a tree is of interest.
pub struct Wanted<'a> {
    pub globs: &'a Globs,
    /// The folder trueup keeps its own files in, if it lies below: syncing it would never come to rest.
    pub own: Option<&'a Path>,
    /// Names the state of a file.
    pub version: &'a dyn Fn(&Stat) -> String,
}

/// Walk the tree into `out`. An error means that the root cannot be read.
pub fn walk(tree: &dyn Tree, wanted: &Wanted<'_>, out: &mut Sink) -> Result<()> {
    let root = tree.children(Path::new("")).map_err(|error| from_io(error, "listing the folder"))?;
    let mut open = vec![Folder::new(tree, "", None, root)];
    let mut root_broken = false;
    while let Some(folder) = open.last_mut() {
        let Some(child) = folder.rest.next() else {
            open.pop();
            continue;
        };
        match visit(tree, wanted, folder, &child) {
            Visit::Nothing => {}
            Visit::Say(event) => {
                root_broken |= matches!(&event, Event::Broken(scope, _) if scope.is_empty());
                out.blocking_send(event)?;
            }
            Visit::Enter(below) if child.link && leads_back(tree, &open, &below) => {
                out.blocking_send(Event::Broken(below.scope.clone(), in_itself(&below.scope)))?;
            }
            Visit::Enter(below) => open.push(below),
        }
    }
    if !root_broken {
        out.blocking_send(Event::Complete("".into(), None))?;
    }
    out.blocking_flush()
}

/// A folder behind a link is one of those the walk came through.
fn leads_back(tree: &dyn Tree, open: &[Folder], below: &Folder) -> bool {
    let place = |folder: &Folder| tree.stat(&folder.place()).ok().map(|stat| (stat.device, stat.inode));
    let there = place(below);
    there.is_some() && open.iter().any(|above| place(above) == there)
}

fn in_itself(path: &str) -> Error {
    Error::new(Kind::Invalid, format!("{path} is a symbolic link to a folder it is in"))
        .remedy_is("Remove the link, or name it in `exclude`.")
}

/// A folder on the way from the root to where the walk is.
struct Folder {
    scope: Scope,
    /// Where it is, if its name or one above it is not UTF-8: then nothing below it can be a key, either.
    raw: Option<PathBuf>,
    rest: std::vec::IntoIter<Named>,
    /// Said once, however many of its files vanished.
    broken: bool,
}

impl Folder {
    fn new(tree: &dyn Tree, path: &str, raw: Option<PathBuf>, children: Vec<Child>) -> Self {
        let mut folder = Folder { scope: Arc::from(path), raw, rest: Vec::new().into_iter(), broken: false };
        let mut named: Vec<Named> =
            children.into_iter().map(|child| Named::of(tree, &folder, child)).collect();
        named.sort_unstable_by(|a, b| (&a.shown, a.enterable()).cmp(&(&b.shown, b.enterable())));
        folder.rest = named.into_iter();
        folder
    }

    fn path_of(&self, name: &str) -> String {
        if self.scope.is_empty() { name.to_owned() } else { format!("{}/{name}", self.scope) }
    }

    fn place(&self) -> PathBuf {
        self.raw.clone().unwrap_or_else(|| PathBuf::from(&*self.scope))
    }
}

/// A child under the name it sorts by: a folder's ends in a slash, as the paths below it continue with one.
///
/// A name that is not UTF-8 is shown with its odd bytes escaped and a slash at the end, which no file's id has:
/// it can be told apart from every real file, and still has one place in the order.
struct Named {
    shown: String,
    /// The name itself, when it is not UTF-8 or lies in such a folder.
    raw: Option<OsString>,
    node: Node,
    /// It is a folder by way of a link.
    link: bool,
}

impl Named {
    fn of(tree: &dyn Tree, parent: &Folder, child: Child) -> Self {
        // What a link leads to decides about its place in the order.
        let link = child.node == Node::Link
            && tree.stat(&parent.place().join(&child.name)).is_ok_and(|stat| stat.node == Node::Folder);
        let node = if link { Node::Folder } else { child.node };
        match child.name.into_string() {
            Ok(mut shown) if parent.raw.is_none() => {
                if node == Node::Folder {
                    shown.push('/');
                }
                Named { shown, raw: None, node, link }
            }
            Ok(name) => Named { shown: escaped(name.as_ref()) + "/", raw: Some(name.into()), node, link },
            Err(raw) => Named { shown: escaped(&raw) + "/", raw: Some(raw), node, link },
        }
    }

    fn enterable(&self) -> bool {
        self.node == Node::Folder
    }
}

enum Visit {
    Nothing,
    Say(Event),
    Enter(Folder),
}

fn visit(tree: &dyn Tree, wanted: &Wanted<'_>, folder: &mut Folder, child: &Named) -> Visit {
    if let Some(raw) = &child.raw {
        return nameless(tree, wanted, folder, child, raw);
    }
    match child.node {
        Node::Special => Visit::Nothing,
        Node::Folder => {
            let path = folder.path_of(child.shown.trim_end_matches('/'));
            if !wanted.globs.enters(&path) || wanted.own == Some(Path::new(&path)) {
                return Visit::Nothing;
            }
            enter(tree, &path, None)
        }
        Node::File | Node::Link => file(tree, wanted, folder, child),
    }
}

fn file(tree: &dyn Tree, wanted: &Wanted<'_>, folder: &mut Folder, child: &Named) -> Visit {
    let path = folder.path_of(&child.shown);
    let wants = wanted.globs.wants(&path);
    let error = match tree.stat(Path::new(&path)) {
        Ok(_) if !wants => return Visit::Nothing,
        Ok(stat) if stat.node == Node::File => {
            let version = (wanted.version)(&stat);
            let entry = Entry { size: Some(stat.size), ..Entry::new(path, &folder.scope, version) };
            return Visit::Say(Event::Seen(entry));
        }
        // It was something else a moment ago.
        Ok(stat) if stat.node == Node::Folder => return changed(folder),
        Ok(_) => return Visit::Nothing,
        Err(error) => error,
    };
    if !wants {
        // No file of interest, but it may have led to a folder with some.
        let error = unreadable(child.node, &error, &path);
        let maybe = child.node == Node::Link && wanted.globs.enters(&path);
        return if maybe { Visit::Say(Event::Broken(path.into(), error)) } else { Visit::Nothing };
    }
    if child.node == Node::File && error.kind() == io::ErrorKind::NotFound {
        return changed(folder);
    }
    let error = unreadable(child.node, &error, &path);
    Visit::Say(Event::Bad(Entry::new(path, &folder.scope, ""), error))
}

fn enter(tree: &dyn Tree, path: &str, raw: Option<PathBuf>) -> Visit {
    match tree.children(raw.as_deref().unwrap_or(Path::new(path))) {
        Ok(children) => Visit::Enter(Folder::new(tree, path, raw, children)),
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

fn unreadable(node: Node, error: &io::Error, path: &str) -> Error {
    if node == Node::Link && error.kind() == io::ErrorKind::NotFound {
        return Error::new(Kind::Invalid, format!("{path} is a symbolic link to nothing"))
            .remedy_is("Mend or remove the link, or name it in `exclude`.");
    }
    from_io(io::Error::new(error.kind(), error.to_string()), format!("looking at {path}"))
        .remedy_is("Make the file readable, or name it in `exclude`.")
}

/// A name that is not UTF-8 cannot be a key, nor can what is below it; all of it is there, and must not be taken for
/// absent.
fn nameless(tree: &dyn Tree, wanted: &Wanted<'_>, folder: &Folder, child: &Named, raw: &OsStr) -> Visit {
    let path = folder.place().join(raw);
    let id = folder.path_of(&child.shown);
    match child.node {
        Node::Folder if wanted.globs.enters(&path) => {
            return enter(tree, id.trim_end_matches('/'), Some(path));
        }
        Node::File | Node::Link if wanted.globs.wants(&path) => {}
        _ => return Visit::Nothing,
    }
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
