//! What tests share: real servers on free loopback ports, temp folders, the built program.
//!
//! A test that needs a server never skips: without the server's package it fails and says what to install.

use std::process::Command;
use std::time::Duration;

use tokio::sync::OnceCell;

pub mod certificates;
pub mod cloudflare;
pub mod counted;
pub mod etcd;
pub mod git_http;
pub mod github;
pub mod http;
pub mod leash;
pub mod pooler;
pub mod postgres;
pub mod proxy;
pub mod python;
pub mod s3;
#[cfg(test)]
mod tests;

pub use etcd::Etcd;
pub use postgres::Postgres;

/// A folder that goes away with the test.
pub fn temp() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("trueup-test-").tempdir().unwrap()
}

/// The built program.
pub fn trueup() -> Command {
    Command::new(env!("CARGO_BIN_EXE_trueup"))
}

/// git at work in a folder, as nobody in particular; what it says.
pub fn git(at: &std::path::Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .arg("-C")
        .arg(at)
        .args(["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"])
        .args(args)
        .output()
        .unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// A single etcd that every test of this process may use; keep to a prefix of your own.
pub async fn etcd() -> &'static Etcd {
    static SHARED: OnceCell<Etcd> = OnceCell::const_new();
    SHARED.get_or_init(|| Etcd::start(1)).await
}

/// A PostgreSQL that every test of this process may use; take a `fresh_database`.
pub async fn postgres() -> &'static Postgres {
    static SHARED: OnceCell<Postgres> = OnceCell::const_new();
    SHARED.get_or_init(Postgres::start).await
}

/// A server under load starts in a few seconds; beyond this something is wrong.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Wait for a condition, and fail by its name if it does not come.
#[allow(clippy::disallowed_methods)] // servers live in real time; this is the one place that waits for them
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain for: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What a running system is given to show an effect: its own waits end within seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Look at a condition until it holds; `false` when the deadline passes first.
#[allow(clippy::disallowed_methods)] // as above
pub async fn eventually(mut condition: impl AsyncFnMut() -> bool) -> bool {
    let started = std::time::Instant::now();
    while !condition().await {
        if started.elapsed() > PATIENCE {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    true
}
