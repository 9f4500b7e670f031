//! From the config to a pipeline that can run: everything it names is opened here, once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Pipeline;
use super::notify::Notifier;
use super::place::Place as Whereabouts;
use crate::clock::SharedClock;
use crate::config::{self, Config, From, GitSpec, GithubSpec, Place, Selection, ShapeSpec};
use crate::error::{Context, Result};
use crate::queue::{Effect, FollowUp};
use crate::record::Fingerprint;
use crate::secret::{Secret, SecretRef};
use crate::shape::Shape;
use crate::shape::article::Articles;
use crate::shape::policy::Policy;
use crate::shape::raw::Raw;
use crate::shape::rows::Rows;
use crate::source::Source;
use crate::source::files::Files;
use crate::source::git::{self, Git};
use crate::source::github::{self, GitHub};
use crate::source::globs::Globs;
use crate::source::rest::Rest;
use crate::source::rss::Rss;
use crate::source::store::FromStore;
use crate::state::State;
use crate::state::lease::Leases;
use crate::state::lock::Locks;
use crate::store::tables::Tables;
use crate::store::{Access, SharedStore, open};

/// The state of a config, and the locks beside it.
#[derive(Clone)]
pub struct Memory {
    pub state: State,
    pub locks: Arc<Locks>,
    pub clock: SharedClock,
    /// The folder copies of git repositories are kept in, one folder each.
    pub copies: PathBuf,
}

impl Memory {
    pub async fn open(config: &Config, access: Access, clock: SharedClock) -> Result<Self> {
        let opened = async {
            let store = open::open_state(&config.state, access, clock.clone()).await?;
            match access {
                Access::Write => State::open(store).await,
                Access::Read => State::look(store).await,
            }
        };
        let state = opened.await.context(|| "opening the state".into())?;
        let locks = match &config.state.place {
            Place::Sqlite(file) => Locks::Folder(file.with_extension("locks")),
            Place::Etcd(_) | Place::Postgres(_) => {
                Locks::Leases(leases(config, &state, access, &clock).await?)
            }
            _ => Locks::in_process(),
        };
        let beside = match &config.state.place {
            Place::Sqlite(file) => file.parent().map(Path::to_owned).unwrap_or_default(),
            _ => config.base.join(".trueup"),
        };
        Ok(Memory { state, locks: Arc::new(locks), clock, copies: beside.join("git") })
    }
}

impl Memory {
    /// A state in which nothing is: for looking at everything else when the real one cannot be opened.
    pub async fn blank(config: &Config, clock: SharedClock) -> Result<Self> {
        let state = State::open(Arc::new(crate::store::memory::Memory::new())).await?;
        let copies = config.base.join(".trueup").join("git");
        Ok(Memory { state, locks: Arc::new(Locks::in_process()), clock, copies })
    }
}

/// Renewals have a connection of their own: they must not wait behind a run's writes.
async fn leases(config: &Config, state: &State, access: Access, clock: &SharedClock) -> Result<Leases> {
    let store = match access {
        Access::Write => open::open_state(&config.state, access, clock.clone()).await?,
        Access::Read => state.store().clone(),
    };
    Ok(Leases::new(store, clock.clone()))
}

impl Pipeline {
    /// Open a pipeline's source and store. The state is shared by all pipelines of a config.
    pub async fn open(spec: &config::Pipeline, memory: &Memory, access: Access) -> Result<Pipeline> {
        let clock = memory.clock.clone();
        // Either may take its time to answer.
        let (store, source) =
            tokio::try_join!(open_target(spec, access, clock.clone()), source(spec, memory, access))?;
        Ok(Pipeline {
            name: spec.name.clone(),
            settings: spec.digest.clone(),
            reading: spec.reading.clone(),
            source,
            shape: shape(&spec.shape, &spec.from),
            store,
            place: Whereabouts::named(&spec.place),
            state: memory.state.clone(),
            baseline: None,
            records: None,
            notifier: Notifier::of(spec, memory),
            locks: memory.locks.clone(),
            clock,
            guard: spec.guard,
            drift: spec.drift,
            adopt: spec.adopt,
            batch: spec.batch,
            concurrency: spec.concurrency.max(1),
            keep_runs: spec.keep_runs,
            journal: spec.journal,
            then: follow_ups(spec),
        })
    }
}

/// The names of what is to be done by us, messages about runs included.
pub fn worked_on(spec: &config::Pipeline, memory: &Memory) -> Vec<String> {
    let ours = follow_ups(spec).into_iter().filter(|then| !matches!(then.effect, Effect::Outside));
    let messages = Notifier::of(spec, memory).map(|notifier| notifier.follow_up());
    ours.chain(messages).map(|then| then.name).collect()
}

/// Policies nobody exports are left for somebody outside, who takes them from the queue.
fn follow_ups(spec: &config::Pipeline) -> Vec<FollowUp> {
    let mut all: Vec<FollowUp> = spec.then.iter().map(FollowUp::of).collect();
    if all.is_empty() && spec.shape == ShapeSpec::Policy {
        all.push(FollowUp::outside());
    }
    all
}

/// Tables are made after the recipe; every other store is what its URL says.
async fn open_target(spec: &config::Pipeline, access: Access, clock: SharedClock) -> Result<SharedStore> {
    match (&spec.into.place, &spec.from) {
        (Place::Tables(_), From::Rest(rest)) => {
            let tables = rest.resources.iter().map(|resource| resource.table.clone()).collect();
            let opened = Tables::open(&spec.into, tables, access, clock).await;
            open::watched(&spec.into, opened.map(|store| Arc::new(store) as SharedStore))
        }
        _ => open::open(&spec.into, access, clock).await,
    }
}

async fn source(spec: &config::Pipeline, memory: &Memory, access: Access) -> Result<Arc<dyn Source>> {
    let clock = memory.clock.clone();
    Ok(match &spec.from {
        From::Git(git) => {
            // Two addresses or branches in one pipeline's lifetime are two copies.
            let branch = git.files.branch.clone().unwrap_or_default();
            let print = Fingerprint::of_parts(&[git.address.expose().as_bytes(), branch.as_bytes()]);
            let cache = memory.copies.join(format!("{}-{}", spec.name, print.short()));
            Arc::new(Git::new(
                git_repository(git)?,
                globs(&git.files)?,
                &cache,
                access == Access::Write,
                clock,
            )?)
        }
        From::Github(hub) => Arc::new(GitHub::new(github_repository(hub)?, globs(&hub.files)?, clock)?),
        From::Rest(rest) => Arc::new(Rest::new(rest, spec.concurrency, clock)?),
        From::Files { folder, include, exclude } => {
            let own = memory.copies.parent().unwrap_or(&memory.copies);
            Arc::new(Files::new(folder.clone(), include, exclude, clock)?.without(own))
        }
        From::Rss(rss) => Arc::new(Rss::new(rss, clock)?),
        From::Store { store, prefix } => {
            Arc::new(FromStore::new(open::open(store, Access::Read, clock).await?, prefix.clone()))
        }
    })
}

fn globs(files: &Selection) -> Result<Globs> {
    Globs::new(&files.include, &files.exclude)
}

fn token(files: &Selection) -> Result<Option<Secret>> {
    Ok(files.token.as_ref().map(SecretRef::read).transpose()?.flatten())
}

fn git_repository(spec: &GitSpec) -> Result<git::Repository> {
    Ok(git::Repository {
        address: spec.address.expose().to_owned(),
        shown: spec.shown.clone(),
        branch: spec.files.branch.clone(),
        token: token(&spec.files)?,
    })
}

fn github_repository(spec: &GithubSpec) -> Result<github::Repository> {
    Ok(github::Repository {
        owner: spec.owner.clone(),
        name: spec.name.clone(),
        branch: spec.files.branch.clone(),
        api: spec.api.clone().unwrap_or_else(|| github::API.to_owned()),
        token: token(&spec.files)?,
    })
}

pub(super) fn shape(spec: &ShapeSpec, from: &From) -> Arc<dyn Shape> {
    match spec {
        ShapeSpec::Raw => Arc::new(Raw),
        ShapeSpec::Policy => Arc::new(Policy::default()),
        ShapeSpec::Rows(spec) => Arc::new(Rows::new(*spec)),
        ShapeSpec::Article(spec) => {
            let previews = matches!(from, From::Rss(rss) if rss.preview.is_some());
            Arc::new(Articles::new(spec.clone(), previews))
        }
    }
}
