//! Pages as folders: a sub-folder is a page, its files are the attachments, `page.md` or `page.html` is its text.
//!
//! A missing sub-folder is a page that is gone; a missing root says nothing about any page, and neither does a link that
//! leads nowhere: what it leads to may be away for a while. Files whose name begins with a dot and folders within a page
//! are left alone.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use super::{ATTACHMENT_BYTES_MAX, ATTACHMENTS_MAX, Attachment, Body, Existence, Pages, no_page};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result, from_io};
use crate::workspace::extract::{self, Media};
use crate::workspace::{instant, keys};

/// The files that are the page itself, the first that is there.
const BODIES: [&str; 2] = ["page.md", "page.html"];
/// Names of pages shown when one is not found.
const NEIGHBOURS_SHOWN: usize = 8;

#[derive(Clone)]
pub struct Folder {
    root: PathBuf,
    shown: String,
}

impl Folder {
    pub fn new(root: PathBuf) -> Self {
        Folder { shown: format!("folder {}", root.display()), root }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let folder = self.clone();
        tokio::task::spawn_blocking(move || work(&folder))
            .await
            .map_err(|error| Error::bug("reading a folder broke off").caused_by(error))?
    }

    fn find(&self, page: &str) -> Existence {
        if let Err(error) = keys::check_page(page) {
            return Existence::Unknown(error);
        }
        let doing = || format!("looking for page {page} in {}", self.root.display());
        match look(&self.root.join(page)) {
            Ok(Found::Facts(facts)) if facts.is_dir() => Existence::Exists,
            Ok(Found::Facts(_)) => {
                Existence::Unknown(Error::new(Kind::Invalid, "it is no folder").while_(doing()))
            }
            Ok(Found::DeadLink) => Existence::Unknown(dead_link().while_(doing())),
            // A folder that is not there proves something only inside a root that is.
            Ok(Found::Nothing) => match fs::read_dir(&self.root) {
                Ok(_) => Existence::Gone,
                Err(error) => Existence::Unknown(self.rootless(error)),
            },
            Err(error) => Existence::Unknown(from_io(error, doing())),
        }
    }

    fn rootless(&self, error: std::io::Error) -> Error {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let error = from_io(error, format!("the folder of pages {}", self.root.display()));
        if missing { error.remedy_is("Make the folder, with a sub-folder for each page.") } else { error }
    }

    fn require(&self, page: &str) -> Result<PathBuf> {
        match self.find(page) {
            Existence::Exists => Ok(self.root.join(page)),
            Existence::Gone => Err(no_page(page, self.neighbours())),
            Existence::Unknown(error) => Err(error),
        }
    }

    fn neighbours(&self) -> String {
        let mut names = fs::read_dir(&self.root).map(page_names).unwrap_or_default();
        if names.is_empty() {
            return format!("Make a sub-folder of {} for it.", self.root.display());
        }
        let more = if names.len() > NEIGHBOURS_SHOWN { ", …" } else { "" };
        names.truncate(NEIGHBOURS_SHOWN);
        format!("Pages are sub-folders of {}: {}{more}.", self.root.display(), names.join(", "))
    }

    fn list(&self, page: &str) -> Result<Vec<Attachment>> {
        let folder = self.require(page)?;
        let doing = || format!("listing {}", folder.display());
        let mut names: Vec<DirEntry> = Vec::new();
        for entry in fs::read_dir(&folder).map_err(|error| from_io(error, doing()))? {
            names.push(entry.map_err(|error| from_io(error, doing()))?);
            if names.len() > ATTACHMENTS_MAX {
                return Err(
                    Error::new(Kind::Invalid, format!("more than {ATTACHMENTS_MAX} files")).while_(doing())
                );
            }
        }
        names.sort_by_key(DirEntry::file_name);
        let mut attachments = Vec::new();
        for entry in names {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') || BODIES.contains(&name.as_str()) {
                continue;
            }
            match look(&entry.path()) {
                Ok(Found::Facts(facts)) if facts.is_file() => {
                    attachments.push(attachment(&entry.path(), name, &facts)?);
                }
                Ok(Found::DeadLink) => attachments.push(unread(&entry.path(), name)),
                // A folder; or removed since this one was listed: then it is not there.
                Ok(Found::Facts(_) | Found::Nothing) => {}
                Err(error) => return Err(from_io(error, format!("looking at {}", entry.path().display()))),
            }
        }
        name_sources(&mut attachments);
        Ok(attachments)
    }

    fn text(&self, page: &str) -> Result<(String, Option<(Media, Bytes)>)> {
        let folder = self.require(page)?;
        for name in BODIES {
            let path = folder.join(name);
            match read(&path) {
                Ok(bytes) => return Ok((page.to_owned(), Media::of(name, None).map(|media| (media, bytes)))),
                Err(error) if error.kind() == Kind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok((page.to_owned(), None))
    }
}

/// Sub-folders, in order; those that are hidden are no pages.
fn page_names(entries: fs::ReadDir) -> Vec<String> {
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

/// What is at a path, links followed.
enum Found {
    Facts(Metadata),
    /// A link to something that is not there.
    DeadLink,
    Nothing,
}

fn look(path: &Path) -> std::io::Result<Found> {
    let absent = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    match fs::metadata(path) {
        Ok(facts) => Ok(Found::Facts(facts)),
        Err(error) if absent(&error) => match fs::symlink_metadata(path) {
            Ok(_) => Ok(Found::DeadLink),
            Err(error) if absent(&error) => Ok(Found::Nothing),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

fn dead_link() -> Error {
    Error::new(Kind::NotFound, "it is a link that leads nowhere")
        .remedy_is("Bring back what it leads to (a folder that is not mounted?), or remove the link.")
}

/// Names as ids: what keys cannot hold becomes `_`, and an id that is taken gets a number. A name that is an id already is
/// its own, whoever else comes along.
fn name_sources(attachments: &mut [Attachment]) {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let own = |it: &Attachment| Path::new(&it.handle).file_name() == Some(OsStr::new(&it.source));
    for attachment in &mut *attachments {
        attachment.source = attachment.title.chars().map(plain).collect();
    }
    let mut taken: BTreeSet<String> =
        attachments.iter().filter(|it| own(it)).map(|it| it.source.clone()).collect();
    for attachment in attachments.iter_mut().filter(|attachment| !own(attachment)) {
        let id = attachment.source.clone();
        let mut free = std::iter::once(id.clone()).chain((2..).map(|number| format!("{id}-{number}")));
        attachment.source = free.find(|id| !taken.contains(id)).unwrap_or(id);
        taken.insert(attachment.source.clone());
    }
    attachments.sort_by(|a, b| a.source.cmp(&b.source));
}

/// A file that cannot be looked at now. Nothing is known of it, so nothing that was read of it is stale.
fn unread(path: &Path, name: String) -> Attachment {
    Attachment {
        media: Media::of(&name, None),
        no_text: extract::is_no_text(&name, None),
        title: name,
        source: String::new(),
        created: Timestamp::UNIX_EPOCH,
        version: Timestamp::UNIX_EPOCH,
        mark: None,
        handle: path.into(),
    }
}

fn attachment(path: &Path, name: String, facts: &Metadata) -> Result<Attachment> {
    let changed = facts.modified().ok().and_then(|at| Timestamp::try_from(at).ok()).map(instant::to_ms);
    let changed = changed
        .ok_or_else(|| Error::new(Kind::Invalid, format!("{} has no time of change", path.display())))?;
    Ok(Attachment {
        media: Media::of(&name, None),
        no_text: extract::is_no_text(&name, None),
        title: name,
        source: String::new(),
        created: changed,
        version: changed,
        mark: Some(mark(facts)),
        handle: path.into(),
    })
}

/// A file that was moved here keeps its old time; but it is another file, or another size.
#[cfg(unix)]
fn mark(facts: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt as _;
    format!("{}-{}", facts.ino(), facts.len())
}

#[cfg(not(unix))]
fn mark(facts: &Metadata) -> String {
    facts.len().to_string()
}

fn read(path: &Path) -> Result<Bytes> {
    let doing = || format!("reading {}", path.display());
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| from_io(error, doing()))?;
    file.take(ATTACHMENT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| from_io(error, doing()))?;
    if bytes.len() > ATTACHMENT_BYTES_MAX {
        let message = format!("it is larger than {} MiB", ATTACHMENT_BYTES_MAX >> 20);
        return Err(Error::new(Kind::Invalid, message).while_(doing()));
    }
    Ok(bytes.into())
}

#[async_trait]
impl Pages for Folder {
    fn name(&self) -> &str {
        &self.shown
    }

    /// File times are the machine's.
    fn now(&self, clock: &dyn Clock) -> Timestamp {
        clock.machine_now()
    }

    async fn names(&self) -> Result<Vec<String>> {
        self.blocking(|folder| {
            let entries = fs::read_dir(&folder.root).map_err(|error| folder.rootless(error))?;
            Ok(page_names(entries))
        })
        .await
    }

    async fn exists(&self, page: &str) -> Existence {
        let page = page.to_owned();
        self.blocking(move |folder| Ok(folder.find(&page))).await.unwrap_or_else(Existence::Unknown)
    }

    async fn attachments(&self, page: &str) -> Result<Vec<Attachment>> {
        let page = page.to_owned();
        self.blocking(move |folder| folder.list(&page)).await
    }

    async fn download(&self, _page: &str, attachment: &Attachment) -> Result<Bytes> {
        let path = PathBuf::from(&attachment.handle);
        self.blocking(move |_| match look(&path) {
            Ok(Found::DeadLink) => Err(dead_link().while_(format!("reading {}", path.display()))),
            _ => read(&path),
        })
        .await
    }

    async fn body(&self, page: &str) -> Result<Body> {
        let name = page.to_owned();
        let (title, found) = self.blocking(move |folder| folder.text(&name)).await?;
        let Some((media, bytes)) = found else {
            let message = format!("page {page} has no text to compare with its policies");
            let remedy =
                format!("Put the agreement into {}.", self.root.join(page).join(BODIES[0]).display());
            return Err(Error::new(Kind::NotFound, message).remedy_is(remedy));
        };
        let markdown =
            extract::markdown(media, bytes).await.map_err(|error| error.while_(format!("page {page}")))?;
        Ok(Body { title, markdown })
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.blocking(|folder| {
            let pages = fs::read_dir(&folder.root).map_err(|error| folder.rootless(error))?;
            let pages = pages.flatten().filter(|entry| entry.path().is_dir()).count();
            Ok(vec![if pages == 1 { "1 page".to_owned() } else { format!("{pages} pages") }])
        })
        .await
    }
}
