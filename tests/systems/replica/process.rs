//! A replica as a process of its own, to be killed and asked to end. It is this test binary, started again.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use trueup::clock::SystemClock;
use trueup::replica::{Replica, ReplicaSpec};

use super::Stage;

/// Set for the process under test: etcd URL, PostgreSQL URL and name, by lines.
const SPEC: &str = "TRUEUP_REPLICA_UNDER_TEST";

/// What it says goes to a file: a pipe nobody reads would stop it.
pub struct Process(Child, File);

impl Process {
    pub fn start(stage: &Stage) -> Self {
        let etcd = format!("etcd://{}{}", stage.spec.etcd.endpoints.join(","), stage.prefix);
        Self::start_with(&etcd, &stage.dsn, &stage.spec.name)
    }

    pub fn start_with(etcd: &str, postgres: &str, name: &str) -> Self {
        let said = tempfile::tempfile().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "systems::replica::process::the_process_under_test", "--nocapture"])
            .env(SPEC, format!("{etcd}\n{postgres}\n{name}"))
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone().unwrap())
            .spawn()
            .unwrap();
        Process(child, said)
    }

    /// As a power cut would.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// SIGTERM; the exit code.
    pub fn terminate(mut self) -> i32 {
        let sent = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
        self.0.wait().unwrap().code().unwrap_or(-1)
    }

    /// It ends by itself: the exit code and what it said.
    pub fn ends(mut self) -> (i32, String) {
        let code = self.0.wait().unwrap().code().unwrap_or(-1);
        (code, self.said())
    }

    /// The exit code, once it has ended by itself.
    pub fn ended(&mut self) -> Option<i32> {
        self.0.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    /// Everything it said so far.
    pub fn said(&mut self) -> String {
        let mut said = String::new();
        self.1.rewind().unwrap();
        self.1.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Run as a test it only checks that it was not asked to be a process; started by [`Process`] it is one.
#[test]
fn the_process_under_test() {
    let Ok(spec) = std::env::var(SPEC) else {
        assert!(std::env::var_os(SPEC).is_none());
        return;
    };
    let mut lines = spec.lines();
    let mut next = || lines.next().unwrap_or_default().to_owned();
    let (etcd, postgres, name) = (next(), next(), next());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let code = runtime.block_on(async move {
        match run(&etcd, &postgres, &name).await {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("error: {error}\nremedy: {}", error.remedy());
                i32::from(error.kind().exit_code())
            }
        }
    });
    std::process::exit(code);
}

async fn run(etcd: &str, postgres: &str, name: &str) -> trueup::error::Result<()> {
    let spec = ReplicaSpec::new(name, etcd, postgres)?;
    let listener = Arc::new(|note: &trueup::replica::Note| eprintln!("{}: {}", note.kind, note.message));
    let replica = Replica::new(spec, SystemClock::new())?.heard_by(listener);
    let (stop, asked) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let mut signals = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        signals.recv().await;
        let _ = stop.send(true);
        std::future::pending::<()>().await;
    });
    replica.run(asked).await.map(|_| ())
}
