//! A GitHub repository as a source, through three requests of the REST API and no other: the commit a branch points to,
//! its tree, and the blobs that changed.
//!
//! An unchanged commit costs one request, one changed file three. The compare API is not used: it ends at 300 files and
//! at a force-push. A tree that GitHub cut short is walked folder by folder; if that fails, the listing is broken and
//! proves no absence. Symbolic links and submodules are not files and are left out.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use reqwest::header;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use url::Url;

use super::globs::Globs;
use super::object_id;
use super::silence::Silence;
use super::{Cursors, Event, Sink, Source, Versions};
use crate::clock::{SharedClock, rfc3339_ms};
use crate::error::{Context, Error, Fault, Kind, Result};
use crate::http::{Ask, Http, Refusal, parse_url};
use crate::record::{Body, Entry, Scope};
use crate::retry::Patience;
use crate::secret::Secret;

/// The public service.
pub const API: &str = "https://api.github.com";
/// GitHub answers within a second; what takes longer is better asked again.
const TIMEOUT: Duration = Duration::from_secs(5);
/// More would only run into the secondary rate limit.
const BLOBS_AT_ONCE: usize = 5;
/// A commit brings the diffs of up to 300 files along.
const COMMIT_BYTES_MAX: usize = 16 << 20;
/// GitHub cuts a tree at 7 MB; enterprise servers may allow more.
const TREE_BYTES_MAX: usize = 64 << 20;
/// GitHub serves blobs up to 100 MB, in base64.
const BLOB_BYTES_MAX: usize = 140 << 20;
/// Folders asked one by one before a tree counts as too large: a day of an authenticated user's requests.
const FOLDERS_MAX: usize = 5_000;

/// Where the repository is and which branch of it is wanted.
pub struct Repository {
    pub owner: String,
    pub name: String,
    /// `None` = its default branch.
    pub branch: Option<String>,
    pub api: String,
    pub token: Option<Secret>,
}

pub struct GitHub {
    shown: String,
    repository: Repository,
    api: Url,
    globs: Globs,
    http: Http,
    in_flight: Semaphore,
    /// The answer that said no more requests are allowed; it holds for every later request too.
    spent: Mutex<Option<Fault>>,
    silence: Silence,
    clock: SharedClock,
}

#[derive(Deserialize)]
struct Commit {
    sha: String,
    commit: Inner,
}

#[derive(Deserialize)]
struct Inner {
    tree: Named,
}

#[derive(Deserialize)]
struct Named {
    sha: String,
}

#[derive(Deserialize)]
struct Tree {
    sha: String,
    tree: Vec<Node>,
    #[serde(default)]
    truncated: bool,
}

#[derive(Deserialize)]
struct Node {
    path: String,
    #[serde(default)]
    mode: String,
    #[serde(rename = "type")]
    kind: String,
    sha: String,
    size: Option<u64>,
}

#[derive(Deserialize)]
struct Blob {
    content: String,
    encoding: String,
    size: Option<u64>,
}

impl GitHub {
    pub fn new(repository: Repository, globs: Globs, clock: SharedClock) -> Result<Self> {
        let api = parse_url(&repository.api)?;
        Ok(GitHub {
            shown: format!("github {}/{}", repository.owner, repository.name),
            repository,
            api,
            globs,
            http: Http::new(clock.clone())?,
            in_flight: Semaphore::new(BLOBS_AT_ONCE),
            spent: Mutex::new(None),
            silence: Silence::default(),
            clock,
        })
    }

    fn branch(&self) -> &str {
        self.repository.branch.as_deref().unwrap_or("HEAD")
    }

    /// `…/repos/OWNER/NAME/…`; slashes in the parts separate segments, everything else is escaped.
    fn url(&self, parts: &[&str]) -> Result<Url> {
        let mut url = self.api.clone();
        let fixed = ["repos", &self.repository.owner, &self.repository.name];
        url.path_segments_mut()
            .map_err(|()| Error::new(Kind::Config, "`api` is not an address HTTP can ask"))?
            .pop_if_empty()
            .extend(fixed)
            .extend(parts.iter().flat_map(|part| part.split('/')));
        Ok(url)
    }

    async fn get<T: DeserializeOwned>(&self, url: Url, bytes_max: usize) -> Result<T> {
        if let Some(fault) = &*self.spent.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(Error::from(fault));
        }
        let mut ask = Ask::get(url, TIMEOUT, bytes_max)
            .patience(self.silence.patience(Patience::REQUEST, self.clock.now())?)
            .meaning(meaning)
            .header(header::ACCEPT, "application/vnd.github+json")?
            .header(header::HeaderName::from_static("x-github-api-version"), "2022-11-28")?;
        if let Some(token) = &self.repository.token {
            ask = ask.bearer(token)?;
        }
        let answer = self.http.send(&ask).await.inspect_err(|error| self.note_spent(error));
        self.silence.heard(&answer, self.clock.now());
        let answer = answer?;
        serde_json::from_slice(&answer.body).map_err(|error| {
            Error::new(Kind::Invalid, "GitHub's answer cannot be read")
                .caused_by(error)
                .while_(self.shown.clone())
        })
    }

    fn note_spent(&self, error: &Error) {
        if error.kind() == Kind::Throttled && error.asked_wait_ms() == Some(NEVER) {
            *self.spent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Fault::of(error));
        }
    }

    /// The commit the branch points to, and the tree in it.
    async fn head(&self) -> Result<(String, String)> {
        self.silence.forget();
        let url = self.url(&["commits", self.branch()])?;
        let commit: Commit = self.get(url, COMMIT_BYTES_MAX).await.map_err(|error| self.explain(error))?;
        Ok((commit.sha, commit.commit.tree.sha))
    }

    fn explain(&self, error: Error) -> Error {
        if error.kind() != Kind::NotFound {
            return error;
        }
        let Repository { owner, name, .. } = &self.repository;
        Error::new(Kind::NotFound, format!("{owner}/{name} or its branch {} was not found", self.branch()))
            .caused_by(error)
            .remedy_is("Check `github` and `branch`; a private repository needs a token that may read it.")
    }

    async fn tree(&self, sha: &str, recursive: bool) -> Result<Tree> {
        let mut url = self.url(&["git", "trees", sha])?;
        if recursive {
            url.query_pairs_mut().append_pair("recursive", "1");
        }
        let tree: Tree = self.get(url, TREE_BYTES_MAX).await?;
        // What another tree lacks, of an older commit for instance, is not gone from this one.
        let odd = if !tree.sha.eq_ignore_ascii_case(sha) {
            tree.sha.as_str()
        } else if tree.tree.is_empty() && !tree.truncated && !object_id::is_empty_tree(sha) {
            "an empty one"
        } else {
            return Ok(tree);
        };
        Err(Error::new(
            Kind::Unavailable,
            format!("GitHub was asked for the tree {sha} and answered with {odd}"),
        )
        .remedy_is("Run again; if it stays so, see what is between GitHub and trueup."))
    }

    /// Every file of a tree. GitHub cuts large trees short; then each folder is asked for by itself.
    async fn files(&self, sha: &str) -> Result<Vec<Node>> {
        let whole = self.tree(sha, true).await?;
        if !whole.truncated {
            return Ok(whole.tree);
        }
        let mut files = Vec::new();
        let mut asked = 0;
        let mut folders = VecDeque::from([(String::new(), sha.to_owned(), true)]);
        while let Some((prefix, sha, cut)) = folders.pop_front() {
            asked += 1;
            if asked > FOLDERS_MAX {
                return Err(too_large(&format!("more than {FOLDERS_MAX} folders")));
            }
            // A folder known to be cut when asked with all below it is asked alone.
            let tree = self.tree(&sha, !cut).await?;
            if tree.truncated && cut {
                return Err(too_large(&format!(
                    "the folder /{} alone is cut short",
                    prefix.trim_end_matches('/')
                )));
            }
            if tree.truncated {
                folders.push_back((prefix, sha, true));
                continue;
            }
            for mut node in tree.tree {
                node.path.insert_str(0, &prefix);
                if cut && node.kind == "tree" {
                    folders.push_back((format!("{}/", node.path), node.sha, false));
                } else {
                    files.push(node);
                }
            }
        }
        Ok(files)
    }

    async fn tell(&self, tree: &str, out: &mut Sink) -> Result<()> {
        let mut files = self.files(tree).await?;
        let is_file = |node: &Node| node.kind == "blob" && node.mode != LINK && self.globs.wants(&node.path);
        files.retain(is_file);
        files.sort_unstable_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
        let scope: Scope = "".into();
        for node in files {
            let entry = Entry { size: node.size, ..Entry::new(node.path, &scope, node.sha.to_lowercase()) };
            out.send(Event::Seen(entry)).await?;
        }
        Ok(())
    }
}

/// The mode git gives a symbolic link.
const LINK: &str = "120000";

/// A pause nobody waits out: the error is reported at once.
const NEVER: u64 = u64::MAX;

fn too_large(what: &str) -> Error {
    Error::new(Kind::Invalid, format!("GitHub does not list the whole tree: {what}"))
        .remedy_is("Read the repository with `git = \"https://…\"` instead: it has no such limit.")
}

/// What GitHub's own words say when requests came too fast, whatever the headers say; enterprise servers have the older.
const TOO_FAST: [&str; 2] = ["secondary rate limit", "abuse detection mechanism"];
/// What GitHub asks those to wait whom it does not tell how long.
const TOO_FAST_WAIT_MS: u64 = 60_000;

/// GitHub says "no more requests" with 403 (or 429) and a count of zero, and "not so fast" with a `Retry-After` or in words
/// alone.
fn meaning(refusal: &Refusal<'_>) -> Option<Error> {
    let after = refusal.header("retry-after").and_then(|text| text.trim().parse::<u64>().ok());
    match (refusal.status.as_u16(), after) {
        (403, Some(seconds)) => Some(too_fast(seconds.saturating_mul(1_000))),
        (403 | 429, None) if refusal.header("x-ratelimit-remaining") == Some("0") => {
            Some(used_up(refusal.header("x-ratelimit-reset")))
        }
        (403 | 429, None) if is_too_fast(refusal.said) => Some(too_fast(TOO_FAST_WAIT_MS)),
        // What a branch that does not exist is answered with.
        (422, _) => {
            Some(Error::new(Kind::NotFound, format!("the server answered 422: {}", refusal.complaint)))
        }
        _ => None,
    }
}

fn is_too_fast(said: &[u8]) -> bool {
    let said = String::from_utf8_lossy(said).to_lowercase();
    TOO_FAST.iter().any(|words| said.contains(words))
}

fn too_fast(wait_ms: u64) -> Error {
    Error::new(Kind::Throttled, "GitHub asked to slow down").retry_after_ms(wait_ms)
}

fn used_up(reset: Option<&str>) -> Error {
    let reset = reset.and_then(|text| Timestamp::from_second(text.trim().parse().ok()?).ok());
    let (until, when) = match reset {
        Some(at) => (format!("it is reset at {}", rfc3339_ms(at)), "after that"),
        None => ("GitHub did not say until when".to_owned(), "in an hour"),
    };
    Error::new(Kind::Throttled, format!("GitHub's rate limit is used up; {until}"))
        .remedy_is(format!("Run again {when}, or set a token (`token_env`): it allows far more requests."))
        .retry_after_ms(NEVER)
}

/// The blob's bytes, as many as the tree and the answer itself say, and those its name stands for.
fn decode(blob: &Blob, sha: &str, listed: Option<u64>) -> Result<Bytes> {
    let odd = |what: String| Error::new(Kind::Invalid, what);
    if blob.encoding != "base64" {
        return Err(odd(format!("the blob came as {}, base64 was expected", blob.encoding)));
    }
    let text: Vec<u8> = blob.content.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes =
        STANDARD.decode(text).map_err(|error| odd("the blob is no base64".to_owned()).caused_by(error))?;
    let got = bytes.len() as u64;
    // An answer that was cut short is no document: the next run asks again.
    match [blob.size, listed].into_iter().flatten().find(|size| *size != got) {
        Some(size) => Err(Error::new(Kind::Unavailable, format!("the blob has {size} bytes, {got} arrived"))),
        None => object_id::check_blob(sha, &bytes).map(|()| Bytes::from(bytes)),
    }
}

#[async_trait]
impl Source for GitHub {
    fn name(&self) -> &str {
        &self.shown
    }

    fn sorted(&self) -> bool {
        true
    }

    fn versions(&self) -> Versions {
        Versions::Content
    }

    fn skips_unchanged(&self) -> bool {
        true
    }

    async fn list(&self, cursors: &Cursors, out: &mut Sink) -> Result<()> {
        let (commit, tree) = self.head().await?;
        if cursors.get("") == Some(&commit) {
            return out.send(Event::Unchanged("".into())).await;
        }
        let end = match self.tell(&tree, out).await {
            Ok(()) => Event::Complete("".into(), Some(commit)),
            Err(error) if error.kind() == Kind::Canceled => return Err(error),
            Err(error) => Event::Broken("".into(), error),
        };
        out.send(end).await
    }

    async fn open(&self, entry: &Entry) -> Result<Body> {
        let _turn =
            self.in_flight.acquire().await.map_err(|_| Error::bug("the queue for blobs was closed"))?;
        let url = self.url(&["git", "blobs", &entry.version])?;
        let doing = || format!("reading {}", entry.id);
        let blob: Blob = match self.get(url, BLOB_BYTES_MAX).await {
            Err(error) if error.kind() == Kind::NotFound => {
                Err(Error::new(Kind::Conflict, "the blob is no longer in the repository").caused_by(error))
            }
            other => other,
        }
        .context(doing)?;
        Ok(Body {
            bytes: decode(&blob, &entry.version, entry.size).context(doing)?,
            version: entry.version.clone(),
        })
    }

    fn requests(&self) -> u64 {
        self.http.requests()
    }

    fn remote(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<Vec<String>> {
        let (commit, _) = self.head().await?;
        let mut findings = vec![format!("{} is at {}", self.branch(), &commit[..commit.len().min(12)])];
        if self.repository.token.is_none() {
            findings.push("without a token GitHub allows 60 requests an hour".to_owned());
        }
        Ok(findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    fn hub(api: &str, branch: &str) -> GitHub {
        let repository = Repository {
            owner: "o".into(),
            name: "r".into(),
            branch: Some(branch.into()),
            api: api.into(),
            token: None,
        };
        GitHub::new(repository, Globs::new(&[], &[]).unwrap(), TestClock::at("2026-01-01T00:00:00Z", 1))
            .unwrap()
    }

    #[test]
    fn addresses_are_those_of_the_api_whatever_the_branch_is_called() {
        for (api, branch, expected) in [
            ("https://api.github.com", "main", "https://api.github.com/repos/o/r/commits/main"),
            ("https://ghe.example/api/v3/", "a/b", "https://ghe.example/api/v3/repos/o/r/commits/a/b"),
            ("http://127.0.0.1:1", "ü #?", "http://127.0.0.1:1/repos/o/r/commits/%C3%BC%20%23%3F"),
        ] {
            let hub = hub(api, branch);
            assert_eq!(hub.url(&["commits", hub.branch()]).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn a_blob_is_decoded_across_its_line_feeds_and_checked_for_size_and_name() {
        let blob = |content: &str, size| Blob { content: content.into(), encoding: "base64".into(), size };
        let (rules, empty, x) = (
            "f35ff70a470bab30fe420fe6a57b05822c545377",
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
            "c1b0730e0133447badcfd47fd144e254807b06e1",
        );
        assert_eq!(decode(&blob("IyDt\nlZnsuZk=\n", None), rules, Some(8)).unwrap(), "# 학칙".as_bytes());
        assert_eq!(decode(&blob("", Some(0)), empty, None).unwrap(), "");
        assert_eq!(decode(&blob("eA==", Some(1)), x, Some(1)).unwrap(), "x");
        assert_eq!(decode(&blob("eQ==", Some(1)), x, Some(1)).unwrap_err().kind(), Kind::Unavailable);
        for (said, listed) in [(Some(2), None), (None, Some(2)), (Some(1), Some(2)), (Some(2), Some(1))] {
            let short = decode(&blob("eA==", said), x, listed).unwrap_err();
            assert_eq!(short.kind(), Kind::Unavailable, "{said:?} {listed:?}");
        }
        assert_eq!(decode(&blob("!!", None), x, None).unwrap_err().kind(), Kind::Invalid);
    }
}
