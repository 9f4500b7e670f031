//! What every command starts from: the config, the state, pipelines by name, and a way to be stopped.

use std::path::PathBuf;

use super::output::Output;
use super::signals::{self, STOPPING};
use crate::clock::SharedClock;
use crate::config::{self, Config};
use crate::error::Result;
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

    pub async fn open(&self, spec: &config::Pipeline, memory: &Memory, access: Access) -> Result<Pipeline> {
        registry::open(spec, memory, access).await
    }

    /// An ask with progress shown, and signals heard.
    pub fn ask(&self, trigger: &'static str) -> Ask {
        Ask { stop: self.stop(), progress: self.out.progress(), ..Ask::plain(trigger) }
    }

    /// Set by Ctrl-C, or by whoever supervises: once = finish what is in flight, twice = now.
    pub fn stop(&self) -> Stop {
        let stop = Stop::default();
        let (asked, out) = (stop.clone(), self.out);
        signals::heed(move || {
            let first = !asked.is_set();
            if first {
                asked.set();
                out.note(STOPPING);
            }
            first
        });
        stop
    }
}
