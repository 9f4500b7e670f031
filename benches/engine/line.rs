//! A pipeline as a user would configure it, opened in a folder: state, source and target are SQLite files there.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Runtime;
use trueup::clock::SystemClock;
use trueup::config::Config;
use trueup::pipeline::open::Memory;
use trueup::pipeline::{Ask, Pipeline};
use trueup::source::Source;
use trueup::state::Status;
use trueup::store::Access;

use crate::harness::Outcome;

const CONFIG: &str = r#"
[state]
store = "sqlite:state.db"

[stores]
origin = "sqlite:origin.db"
target = "sqlite:target.db"

[pipelines.line]
from = { store = "origin" }
into = "target"
guard = { max_delete = "100%", max_update = "100%" }
"#;

pub const NAME: &str = "line";

pub fn key(number: usize) -> String {
    format!("item/{number:08}")
}

/// A value of `length` bytes that is this record's and this generation's alone.
pub fn value(number: usize, generation: u32, length: usize) -> Vec<u8> {
    let mut value = format!("{number:08} {generation} ").repeat(length / 11 + 1).into_bytes();
    value.truncate(length);
    value
}

/// The threads the program itself would have.
pub fn runtime() -> Outcome<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

pub fn config(folder: &Path, more: &str) -> Outcome<Config> {
    let path = folder.join("trueup.toml");
    std::fs::write(&path, format!("{CONFIG}{more}"))?;
    Ok(Config::load(&path, &|_| None)?)
}

pub async fn memory(config: &Config) -> Outcome<Memory> {
    Ok(Memory::open(config, Access::Write, SystemClock::new()).await?)
}

pub async fn open(folder: &Path, more: &str) -> Outcome<Pipeline> {
    let config = config(folder, more)?;
    let memory = memory(&config).await?;
    Ok(Pipeline::open(&config.pipelines[NAME], &memory, Access::Write).await?)
}

pub async fn open_from(folder: &Path, source: Arc<dyn Source>) -> Outcome<Pipeline> {
    Ok(Pipeline { source, ..open(folder, "").await? })
}

/// One pass that must go well and write this much.
pub async fn pass(line: &Pipeline, writes: usize) -> Outcome<()> {
    let report = line.run(&Ask::plain("bench")).await?;
    if report.status != Status::Ok || report.writes != writes as u64 {
        return Err(format!("a pass that was to write {writes} came to {report:?}").into());
    }
    Ok(())
}
