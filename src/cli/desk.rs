//! What every command starts from: the config, the state, pipelines by name, and a way to be stopped.

use std::path::PathBuf;

use super::output::Output;
use crate::clock::SharedClock;
use crate::config::{self, Config};
use crate::error::{Error, Kind, Result};
use crate::pipeline::open::Memory;
use crate::pipeline::{Ask, Pipeline, Stop};
use crate::registry;
use crate::store::Access;

pub struct Desk {
    pub config: PathBuf,
    pub out: Output,
    pub clock: SharedClock,
}

impl Desk {
    pub fn config(&self) -> Result<Config> {
        Config::load(&self.config, &|name| std::env::var(name).ok())
    }

    pub async fn memory(&self, config: &Config, access: Access) -> Result<Memory> {
        Memory::open(config, access, self.clock.clone()).await
    }

    /// The pipelines named, or every enabled one.
    pub fn chosen<'c>(&self, config: &'c Config, names: &[String]) -> Result<Vec<&'c config::Pipeline>> {
        if names.is_empty() {
            let enabled: Vec<_> = config.pipelines.values().filter(|pipeline| pipeline.enabled).collect();
            if enabled.is_empty() {
                let message = format!("{} has no pipeline to run", self.config.display());
                return Err(Error::new(Kind::Config, message)
                    .remedy_is("Add a `[pipelines.NAME]`; see docs/config.md."));
            }
            return Ok(enabled);
        }
        names.iter().map(|name| pipeline(config, name)).collect()
    }

    pub async fn open(&self, spec: &config::Pipeline, memory: &Memory, access: Access) -> Result<Pipeline> {
        registry::open(spec, memory, access).await
    }

    /// An ask with progress shown and Ctrl-C heard: once = finish what is in flight, twice = now.
    pub fn ask(&self, trigger: &'static str) -> Ask {
        let stop = Stop::default();
        let (heard, out) = (stop.clone(), self.out);
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                if heard.is_set() {
                    std::process::exit(130);
                }
                heard.set();
                out.note("Stopping after what is in flight; once more to stop at once.");
            }
        });
        Ask { stop, progress: self.out.progress(), ..Ask::plain(trigger) }
    }
}

/// A pipeline by name, or the nearest name there is.
pub fn pipeline<'c>(config: &'c Config, name: &str) -> Result<&'c config::Pipeline> {
    config.pipelines.get(name).ok_or_else(|| {
        let names = config.pipelines.keys().map(String::as_str);
        let known: Vec<&str> = names.clone().collect();
        let hint = config::suggestion(name, names);
        Error::new(Kind::Config, format!("there is no pipeline {name}{hint}"))
            .remedy_is(format!("Pipelines in the config: {}.", known.join(", ")))
    })
}
