//! From the config to a pipeline that can run: everything it names is opened here, once.

use std::sync::Arc;

use super::Pipeline;
use crate::clock::SharedClock;
use crate::config::{self, Config, From, Place, ShapeSpec};
use crate::error::{Context, Result};
use crate::queue::FollowUp;
use crate::shape::Shape;
use crate::shape::article::Articles;
use crate::shape::raw::Raw;
use crate::source::Source;
use crate::source::files::Files;
use crate::source::rss::Rss;
use crate::source::store::FromStore;
use crate::state::State;
use crate::state::lock::Locks;
use crate::store::{Access, open};

/// The state of a config, and the locks beside it.
#[derive(Clone)]
pub struct Memory {
    pub state: State,
    pub locks: Arc<Locks>,
    pub clock: SharedClock,
}

impl Memory {
    pub async fn open(config: &Config, access: Access, clock: SharedClock) -> Result<Self> {
        let opened = async {
            let store = open::open(&config.state, access, clock.clone()).await?;
            match access {
                Access::Write => State::open(store).await,
                Access::Read => State::look(store).await,
            }
        };
        let state = opened.await.context(|| "opening the state".into())?;
        let locks = match &config.state.place {
            Place::Sqlite(file) => Locks::Folder(file.with_extension("locks")),
            _ => Locks::in_process(),
        };
        Ok(Memory { state, locks: Arc::new(locks), clock })
    }
}

impl Pipeline {
    /// Open a pipeline's source and store. The state is shared by all pipelines of a config.
    pub async fn open(spec: &config::Pipeline, memory: &Memory, access: Access) -> Result<Pipeline> {
        let clock = memory.clock.clone();
        let store = open::open(&spec.into, access, clock.clone())
            .await
            .context(|| format!("opening the store {}", spec.into.name))?;
        Ok(Pipeline {
            name: spec.name.clone(),
            source: source(&spec.from, clock.clone()).await?,
            shape: shape(&spec.shape, &spec.from),
            store,
            state: memory.state.clone(),
            baseline: None,
            locks: memory.locks.clone(),
            clock,
            guard: spec.guard,
            drift: spec.drift,
            adopt: spec.adopt,
            batch: spec.batch,
            concurrency: spec.concurrency.max(1),
            keep_runs: spec.keep_runs,
            journal: spec.journal,
            then: spec.then.iter().map(FollowUp::of).collect(),
        })
    }
}

async fn source(from: &From, clock: SharedClock) -> Result<Arc<dyn Source>> {
    Ok(match from {
        From::Files { folder, include, exclude } => Arc::new(Files::new(folder.clone(), include, exclude, clock)?),
        From::Rss(spec) => Arc::new(Rss::new(spec, clock)?),
        From::Store { store, prefix } => {
            let opened = open::open(store, Access::Read, clock).await;
            Arc::new(FromStore::new(opened.context(|| format!("opening the store {}", store.name))?, prefix.clone()))
        }
    })
}

fn shape(spec: &ShapeSpec, from: &From) -> Arc<dyn Shape> {
    match spec {
        ShapeSpec::Raw => Arc::new(Raw),
        ShapeSpec::Article(spec) => {
            let previews = matches!(from, From::Rss(rss) if rss.preview.is_some());
            Arc::new(Articles::new(spec.clone(), previews))
        }
    }
}
