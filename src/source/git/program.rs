//! Running the `git` program: no prompts, no hooks, no background work, a limit on every wait, and an error whose kind
//! says what to do next.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Error, Kind, Result, from_io};
use crate::secret::Secret;
use crate::tls::UNTRUSTED;

/// A first fetch of a large repository over a slow line fits; a hung one is noticed the same hour.
const FETCH_MAX: Duration = Duration::from_secs(30 * 60);
/// Everything else is local and answers at once.
const LOCAL_MAX: Duration = Duration::from_secs(60);
/// Of what git says when it fails, as much as a person reads.
const COMPLAINT_MAX: usize = 400;

/// Settings for every call: nothing asks, nothing runs hooks, nothing keeps working behind our back, and a transfer that
/// stalls for half a minute ends.
const SETTINGS: [&str; 6] = [
    "core.hooksPath=/dev/null",
    "maintenance.auto=false",
    "gc.auto=0",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=30",
    "core.quotePath=false",
];
/// What a surrounding git (a hook, a rebase) would force upon us.
const INHERITED: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
];

/// The git program, at work on one repository.
#[derive(Clone)]
pub struct Program {
    /// A bare repository (`--git-dir`), or a folder that holds one (`-C`).
    place: Place,
}

#[derive(Clone)]
enum Place {
    Bare(PathBuf),
    Folder { path: PathBuf, above: PathBuf },
}

impl Program {
    pub fn bare(path: &Path) -> Self {
        Program { place: Place::Bare(path.to_owned()) }
    }

    /// A repository on this machine, bare or not. Folders above it are not searched.
    pub fn in_folder(path: &Path) -> Result<Self> {
        let real = path.canonicalize().map_err(|error| from_io(error, path.display().to_string()))?;
        let above = real.parent().unwrap_or(&real).to_owned();
        Ok(Program { place: Place::Folder { path: real, above } })
    }

    /// What to do about an object that is damaged.
    pub fn mended_by(&self) -> String {
        match &self.place {
            Place::Bare(path) => {
                format!("Remove {}: it is a copy, and the next run fetches it again.", path.display())
            }
            Place::Folder { path, .. } => {
                format!(
                    "Look at `git -C {} fsck`, and fetch what it names from another copy.",
                    path.display()
                )
            }
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        for name in INHERITED {
            command.env_remove(name);
        }
        command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
        // An object is what its name says, not what somebody keeps to be shown in its place.
        command.env("GIT_NO_REPLACE_OBJECTS", "1");
        if std::env::var_os("GIT_SSH_COMMAND").is_none() {
            command.env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=10");
        }
        // Whom everything else here trusts, git trusts as well.
        if let (Some(authorities), None) =
            (std::env::var_os("SSL_CERT_FILE"), std::env::var_os("GIT_SSL_CAINFO"))
        {
            command.env("GIT_SSL_CAINFO", authorities);
        }
        match &self.place {
            Place::Bare(path) => command.arg("--git-dir").arg(path),
            Place::Folder { path, above } => {
                command.arg("-C").arg(path).env("GIT_CEILING_DIRECTORIES", above)
            }
        };
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Make an empty bare repository.
    pub async fn init(&self) -> Result<()> {
        let Place::Bare(path) = &self.place else { return Err(Error::bug("only a cache is initialised")) };
        std::fs::create_dir_all(path)
            .map_err(|error| from_io(error, format!("making {}", path.display())))?;
        finish(self.command(&["init", "--quiet", "--bare"]), LOCAL_MAX).await.map(drop)
    }

    /// Get one commit and all it holds, one deep; what is already here is not sent again.
    pub async fn fetch(&self, address: &str, from: &str, to: &str, token: Option<&Secret>) -> Result<()> {
        let refs = format!("+{from}:{to}");
        let mut command = self.command(&[
            "fetch",
            "--quiet",
            "--no-tags",
            "--depth=1",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--end-of-options",
            address,
            &refs,
        ]);
        if let Some(token) = token {
            // In the environment, where other users of the machine cannot see it; and for this address alone.
            let login = STANDARD.encode(format!("x-access-token:{}", token.expose()));
            command
                .env("GIT_CONFIG_COUNT", "1")
                .env("GIT_CONFIG_KEY_0", format!("http.{address}.extraHeader"))
                .env("GIT_CONFIG_VALUE_0", format!("Authorization: Basic {login}"));
        }
        finish(command, FETCH_MAX).await.map(drop)
    }

    /// Pack what earlier fetches left lying about, once there is enough of it.
    pub async fn tidy(&self) -> Result<()> {
        let command =
            self.command(&["-c", "gc.auto=2000", "gc", "--auto", "--quiet", "--no-detach", "--prune=now"]);
        finish(command, FETCH_MAX).await.map(drop)
    }

    /// The commit a ref points to.
    pub async fn commit(&self, name: &str) -> Result<String> {
        let wanted = format!("{name}^{{commit}}");
        let command = self.command(&["rev-parse", "--verify", "--end-of-options", &wanted]);
        let said = finish(command, LOCAL_MAX).await?;
        let text = String::from_utf8_lossy(&said);
        // `--end-of-options` may be echoed by older versions; the commit is the last line.
        Ok(text.lines().last().unwrap_or_default().trim().to_owned())
    }

    /// List a commit's tree; the caller reads the output and then calls [`ended`].
    pub fn list(&self, commit: &str) -> Result<Child> {
        self.command(&["ls-tree", "-r", "-z", "--full-tree", commit]).spawn().map_err(not_started)
    }

    /// What differs between the trees of two commits; as [`Program::list`].
    pub fn compare(&self, from: &str, to: &str) -> Result<Child> {
        self.command(&["diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", from, to])
            .spawn()
            .map_err(not_started)
    }

    /// A process that answers a blob's name with its bytes, for as long as its input is open.
    pub fn blobs(&self) -> Result<Child> {
        let mut command = self.command(&["cat-file", "--batch"]);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(not_started)
    }
}

/// A child whose output was read to its end: did it end well?
pub fn ended(child: Child, what: &str) -> Result<()> {
    let done = child.wait_with_output().map_err(|error| from_io(error, what))?;
    if done.status.success() { Ok(()) } else { Err(judge(&done.stderr)) }
}

/// A child whose output nobody wants to its end.
pub fn abandon(mut child: Child) {
    drop(child.kill());
    drop(child.wait());
}

async fn finish(command: Command, limit: Duration) -> Result<Vec<u8>> {
    let mut command = tokio::process::Command::from(command);
    let child = command.kill_on_drop(true).spawn().map_err(not_started)?;
    match tokio::time::timeout(limit, child.wait_with_output()).await {
        Err(_) => Err(Error::new(Kind::Unavailable, format!("git did not end within {} s", limit.as_secs()))),
        Ok(Err(error)) => Err(from_io(error, "running git")),
        Ok(Ok(done)) if done.status.success() => Ok(done.stdout),
        Ok(Ok(done)) => Err(judge(&done.stderr)),
    }
}

fn not_started(error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Error::new(Kind::Config, "the program git is not installed")
            .remedy_is("Install git, or read the repository through `github`.");
    }
    from_io(error, "starting git")
}

/// What git said, and what a person does about it.
const MEANINGS: [(Kind, &[&str]); 4] = [
    (
        Kind::Unauthorized,
        &[
            "authentication failed",
            "could not read username",
            "could not read password",
            "permission denied",
            "host key verification failed",
            "dubious ownership",
            "error: 401",
            "error: 403",
        ],
    ),
    (
        Kind::NotFound,
        &[
            "couldn't find remote ref",
            "needed a single revision",
            "not a git repository",
            "does not appear to be a git repository",
            "repository not found",
            "does not exist",
            "not found",
            "error: 404",
            "unknown revision",
        ],
    ),
    (Kind::Full, &["no space left", "disk quota exceeded"]),
    (
        Kind::Unavailable,
        &[
            "could not resolve host",
            "couldn't connect",
            "failed to connect",
            "connection refused",
            "connection reset",
            "connection timed out",
            "operation timed out",
            "operation too slow",
            "the remote end hung up",
            "early eof",
            "could not read from remote",
            "rpc failed",
            "unexpected disconnect",
            "network is unreachable",
            "error: 429",
            "error: 5",
            // Whatever else the transport says: it is not the cache that is damaged.
            "unable to access 'http",
        ],
    ),
];

/// The kind of a failure by git's own words. What nothing here explains is taken for damage.
fn judge(said: &[u8]) -> Error {
    let text = String::from_utf8_lossy(said);
    let low = text.to_lowercase();
    let kind = MEANINGS.iter().find(|(_, words)| words.iter().any(|word| low.contains(word)));
    let kind = kind.map_or(Kind::Corrupt, |(kind, _)| *kind);
    let telling = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let shown: String = telling.collect::<Vec<_>>().join("; ").chars().take(COMPLAINT_MAX).collect();
    let error =
        Error::new(kind, if shown.is_empty() { "git failed".to_owned() } else { format!("git: {shown}") });
    if low.contains("dubious ownership") {
        return error
            .remedy_is("Run trueup as the owner of the repository, or name it in git's safe.directory.");
    }
    match kind {
        Kind::Unavailable if low.contains("certificate") => error.remedy_is(UNTRUSTED).lasting(),
        // A damaged cache is made anew before anybody reads this.
        Kind::Corrupt => error.remedy_is(
            "Try `git fetch` with the same address by hand; if it works, move the cache of the repository away.",
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gits_words_say_what_to_do_next() {
        for (said, kind) in [
            ("fatal: couldn't find remote ref refs/heads/nope", Kind::NotFound),
            ("remote: Repository not found.\nfatal: repository 'https://h/x/' not found", Kind::NotFound),
            ("fatal: unable to access 'http://h/': The requested URL returned error: 404", Kind::NotFound),
            ("fatal: unable to access 'http://h/': The requested URL returned error: 503", Kind::Unavailable),
            (
                "fatal: unable to access 'http://h/': The requested URL returned error: 403",
                Kind::Unauthorized,
            ),
            ("fatal: Authentication failed for 'https://h/'", Kind::Unauthorized),
            ("fatal: could not read Username for 'https://h': terminal prompts disabled", Kind::Unauthorized),
            ("fatal: unable to access 'http://h/': Could not resolve host: h", Kind::Unavailable),
            ("fatal: unable to access: Failed to connect to 127.0.0.1 port 1", Kind::Unavailable),
            (
                "fatal: unable to access 'https://h/': server certificate verification failed.",
                Kind::Unavailable,
            ),
            ("fatal: unable to access 'https://h/': gnutls_handshake() failed: Error", Kind::Unavailable),
            ("fatal: unable to access '/r/config': Permission denied", Kind::Unauthorized),
            ("fatal: detected dubious ownership in repository at '/r'", Kind::Unauthorized),
            ("fatal: Unable to create '/c/shallow.lock': File exists.", Kind::Corrupt),
            ("", Kind::Corrupt),
        ] {
            assert_eq!(judge(said.as_bytes()).kind(), kind, "{said}");
        }
    }
}
