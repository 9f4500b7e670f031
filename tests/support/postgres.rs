//! PostgreSQL with a data folder of its own, as user `postgres` where tests run as root (it refuses root).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::certificates::Authority;
use super::leash::{DataFolder, Leash, am_root, free_ports, program};
use super::{DEADLINE, until};

/// Another process took the port between our look and the server's: rare, and then another one is free.
const STARTS_MAX: u32 = 5;
/// One that is up answers within this time; one that is not says so at once.
const LOOK_SECONDS: u64 = 5;
const PACKAGE: &str = "postgresql";

pub struct Postgres {
    port: u16,
    settings: Vec<String>,
    /// `None` while killed.
    process: Mutex<Option<Leash>>,
    databases: AtomicU32,
    folder: DataFolder,
}

impl Postgres {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With settings besides, as `wal_level=logical`.
    pub async fn start_with(settings: &[&str]) -> Self {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self::begin(DataFolder::new("postgres"), settings).await
    }

    /// With a certificate for 127.0.0.1. The user `carrier` needs one of the same authority, others none.
    pub async fn start_tls(authority: &Authority) -> Self {
        let folder = DataFolder::new("postgres");
        let server = authority.issue("postgres", "IP:127.0.0.1");
        // It refuses a key that others own or may read.
        let key = folder.path().join("server.key");
        std::fs::copy(&server.key, &key).unwrap();
        give_to_postgres(&key);
        let rules = folder.path().join("hba.conf");
        std::fs::write(
            &rules,
            "hostssl all carrier all cert\nhostnossl all carrier all reject\nhost all all all trust\n",
        )
        .unwrap();
        let settings = vec![
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", server.certificate.display()),
            format!("ssl_key_file={}", key.display()),
            format!("ssl_ca_file={}", authority.file().display()),
            format!("hba_file={}", rules.display()),
        ];
        Self::begin(folder, settings).await
    }

    async fn begin(folder: DataFolder, settings: Vec<String>) -> Self {
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        give_to_postgres(&data);
        let output = as_postgres(&[
            tool("initdb").to_str().unwrap(),
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
            data.to_str().unwrap(),
        ]);
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));

        let (process, databases) = (Mutex::new(None), AtomicU32::new(0));
        let mut postgres = Postgres { port: 0, settings, process, databases, folder };
        for _ in 0..STARTS_MAX {
            postgres.port = free_ports(1)[0];
            postgres.launch();
            let mut ready = false;
            until("PostgreSQL is ready, or failed to start", || {
                ready = postgres.ready();
                ready || postgres.clashed()
            })
            .await;
            if ready {
                return postgres;
            }
        }
        panic!("PostgreSQL found its port taken {STARTS_MAX} times");
    }

    pub fn dsn(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The address of an empty database nobody else uses.
    pub fn fresh_database(&self) -> String {
        let name = format!("fresh_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        query(&self.dsn("postgres"), &format!("create database {name}"));
        self.dsn(&name)
    }

    /// Kill it as a power cut would.
    pub async fn kill(&self) {
        let leash = self.process.lock().unwrap().take().expect("PostgreSQL is running");
        leash.signal("KILL");
        until("PostgreSQL is gone", || leash.ended()).await;
    }

    /// Start it again on its old data, running or killed, and wait until it answers.
    pub async fn restart(&self) {
        drop(self.process.lock().unwrap().take());
        self.launch();
        until("PostgreSQL is back", || {
            // Children of a killed server hold on to its shared memory for a moment; the new one then ends at once.
            if self.ended() {
                self.launch();
            }
            self.ready()
        })
        .await;
    }

    fn launch(&self) {
        let (server, port) = (tool("postgres"), self.port.to_string());
        let data = self.folder.path().join("data");
        let data = data.to_str().unwrap();
        let mut command = user_switch();
        command.extend([server.to_str().unwrap(), "-D", data, "-h", "127.0.0.1", "-p", &port, "-k", data]);
        // Tests kill processes, not machines: the kernel keeps what was written.
        command.extend(["-c", "fsync=off", "-c", "max_connections=200"]);
        for setting in &self.settings {
            command.extend(["-c", setting]);
        }
        let log = self.folder.path().join("log");
        *self.process.lock().unwrap() = Some(Leash::start(&command, "QUIT", &log));
    }

    fn ready(&self) -> bool {
        psql_answers(&self.dsn("postgres"))
    }

    fn ended(&self) -> bool {
        self.process.lock().unwrap().as_ref().is_none_or(Leash::ended)
    }

    fn log(&self) -> String {
        self.process.lock().unwrap().as_ref().map(Leash::log).unwrap_or_default()
    }

    /// It ended: over a taken port (start again), or over something to fail with.
    fn clashed(&self) -> bool {
        if !self.ended() {
            return false;
        }
        let log = self.log();
        assert!(log.contains("Address already in use"), "PostgreSQL ended:\n{log}");
        true
    }
}

/// Whether somebody answers there.
pub fn psql_answers(dsn: &str) -> bool {
    psql(dsn, "select 1", LOOK_SECONDS).status.success()
}

/// `psql`: the rows, one per line, columns separated by `|`.
pub fn query(dsn: &str, sql: &str) -> String {
    let output = psql(dsn, sql, DEADLINE.as_secs());
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// The newest installed version's programs; Debian keeps the server out of PATH.
fn tool(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort_by_key(|folder| {
        let version = folder.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        std::cmp::Reverse(version.and_then(|version| version.parse::<u32>().ok()))
    });
    program(name, &folders, PACKAGE)
}

fn psql(dsn: &str, sql: &str, connect_seconds: u64) -> Output {
    Command::new(tool("psql"))
        .env("PGCONNECT_TIMEOUT", connect_seconds.to_string())
        .args(["--no-psqlrc", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--command", sql, dsn])
        .output()
        .unwrap()
}

/// What goes before a command so that it runs as `postgres`. It becomes the command, so its process id is the server's.
pub fn user_switch() -> Vec<&'static str> {
    if am_root() {
        vec!["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
    } else {
        Vec::new()
    }
}

fn as_postgres(command: &[&str]) -> Output {
    let whole: Vec<&str> = user_switch().into_iter().chain(command.iter().copied()).collect();
    Command::new(whole[0]).args(&whole[1..]).current_dir("/").output().unwrap()
}

pub fn give_to_postgres(folder: &Path) {
    if !am_root() {
        return;
    }
    let given = Command::new("chown").arg("postgres:postgres").arg(folder).output().unwrap();
    let why = String::from_utf8_lossy(&given.stderr).into_owned();
    assert!(given.status.success(), "no user `postgres` (apt-get install {PACKAGE}): {why}");
}
