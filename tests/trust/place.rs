//! Every kind of store, and a folder with a config in which the program runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use trueup::clock::SystemClock;
use trueup::etcd::EtcdPlace;
use trueup::pipeline::Ask;
use trueup::postgres::PostgresPlace;
use trueup::record::Fingerprint;
use trueup::state::Report;
use trueup::store::etcd::EtcdStore;
use trueup::store::folder::Folder;
use trueup::store::memory::Memory;
use trueup::store::objects::Objects;
use trueup::store::postgres::PostgresStore;
use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, SharedStore, StoreExt, What};

use crate::flow::rig::Rig;
use crate::support::{self, s3};

/// One of each, empty; the folder goes with the test.
pub async fn every_store(folder: &tempfile::TempDir, name: &str) -> Vec<SharedStore> {
    let etcd = format!("etcd://{}/trust-{name}/", support::etcd().await.endpoints());
    let postgres = support::postgres().await.fresh_database();
    let bucket = Objects::connect(&s3::new_bucket(), Access::Write, &*SystemClock::new()).await.unwrap();
    vec![
        Arc::new(Memory::named("memory")),
        Arc::new(Sqlite::open(&folder.path().join("store.db"), Access::Write).unwrap()),
        Arc::new(Folder::open(&folder.path().join("objects"), Access::Write).unwrap()),
        Arc::new(bucket),
        Arc::new(EtcdStore::open(&EtcdPlace::parse(&etcd).unwrap(), None).unwrap()),
        Arc::new(
            PostgresStore::open(&PostgresPlace::parse(&postgres).unwrap(), None, Access::Write)
                .await
                .unwrap(),
        ),
    ]
}

/// Everything a store holds, with the fingerprints it keeps.
pub async fn whole(store: &SharedStore) -> BTreeMap<String, (Bytes, Option<Fingerprint>)> {
    let lines = store.list_all("", What::Values).await.unwrap();
    lines.into_iter().map(|line| (line.key, (line.value.unwrap(), line.fingerprint))).collect()
}

/// Undo a run, and check what every run promises.
pub async fn undo(rig: &Rig, run: &str) -> Report {
    let report = rig.line().await.undo(run, &Ask::plain("undo"), None).await.unwrap();
    rig.kept_its_promises(&report).await;
    assert_eq!(report.undoes.as_deref(), Some(run));
    report
}

/// A folder with a config, and the program run in it.
pub struct Home {
    folder: tempfile::TempDir,
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub json: Value,
    pub err: String,
}

impl Home {
    pub fn new(config: &str) -> Self {
        let home = Home { folder: support::temp() };
        home.write("trueup.toml", config);
        home
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = support::trueup();
        command.args(args).arg("--json").current_dir(self.path("")).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("TRUEUP_CONFIG");
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        let output = self.command(args).output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        let json =
            serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {out}\n{err}"));
        Ended { code: output.status.code().unwrap_or(-1), json, err }
    }

    /// Run, and expect this exit code.
    #[track_caller]
    pub fn ends(&self, args: &[&str], code: i32) -> Value {
        let ended = self.run(args);
        assert_eq!(ended.code, code, "{args:?}: {ended:#?}");
        ended.json
    }

    pub fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }
}
