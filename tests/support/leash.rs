//! A server process that cannot outlive the test process, however that ends.
//!
//! A shell holds the server and reads from a pipe of ours. The pipe closes when the leash is dropped, when the
//! process ends (statics are never dropped) and when it is killed; then the shell kills the server.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// $1 = signal, $2 = log, the rest = the server. Signals of a terminal are for the test process alone.
const HOLD: &str = r#"
trap '' INT TERM HUP
signal=$1; log=$2; shift 2
"$@" >>"$log" 2>&1 </dev/null &
echo $!
cat >/dev/null
kill -"$signal" $! 2>/dev/null; kill -CONT $! 2>/dev/null
wait
"#;

/// $1 = folder. The server in it may be dying yet, so removal is tried for a while.
const SWEEP: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
for attempt in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1" 2>/dev/null && exit; sleep 0.5; done
"#;

pub struct Leash {
    shell: Child,
    server_id: u32,
    log: PathBuf,
}

impl Leash {
    /// Start `command`; `signal` is what ends it when the leash is let go.
    pub fn start(command: &[&str], signal: &str, log: &Path) -> Self {
        Self::on(Stdio::piped(), command, signal, log)
    }

    /// On a pipe that somebody else holds the other end of.
    pub fn on(pipe: Stdio, command: &[&str], signal: &str, log: &Path) -> Self {
        File::options().create(true).append(true).open(log).unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", HOLD, "sh", signal])
            .arg(log)
            .args(command)
            .stdin(pipe)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Leash { server_id: line.trim().parse().unwrap(), shell, log: log.to_owned() }
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.server_id.to_string()]).status();
        assert!(sent.unwrap().success(), "kill -{name} {}", self.server_id);
    }

    /// The server ended; the shell has not asked how, so its process id cannot be another's by now.
    pub fn ended(&self) -> bool {
        state_of(self.server_id).is_none_or(|state| state == 'Z')
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn server_id(&self) -> u32 {
        self.server_id
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// The state letter of a process, if there is such a process.
pub fn state_of(process_id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A folder for a server's data, removed after the server, even when the test process is killed.
/// It lies in /tmp and may be passed through by anybody: servers that refuse root run as somebody else.
pub struct DataFolder {
    path: PathBuf,
    sweeper: Child,
}

impl DataFolder {
    pub fn new(name: &str) -> Self {
        let path = tempfile::Builder::new()
            .prefix(&format!("trueup-{name}-"))
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir_in("/tmp")
            .unwrap()
            .keep();
        let sweeper =
            Command::new("sh").args(["-c", SWEEP, "sh"]).arg(&path).stdin(Stdio::piped()).spawn().unwrap();
        DataFolder { path, sweeper }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

/// Ports nobody listens on right now. Another process may take one before the server does: callers start again.
pub fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

/// A program from PATH or, failing that, from these folders; without it the test fails with advice.
pub fn program(name: &str, folders: &[PathBuf], package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(folders.iter().cloned())
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
        .unwrap_or_else(|| {
            panic!("this test needs `{name}`: run `./x services` or `apt-get install {package}`")
        })
}

pub fn am_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}
