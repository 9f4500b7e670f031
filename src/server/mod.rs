//! `trueup serve`: one process that runs what is due and shows what is true.
//!
//! `house` is what everything in it shares; `timetable`, `workers`, `standing` and `workspaces` are the loops that run
//! pipelines, follow-up work, replicas and jobs; `doors` decides who may ask, `api` answers, `pages` is what people look
//! at, `events` tells what is going on, `meters` counts. `listen` is the wire. Nothing here decides anything about data:
//! that is asked of `operations`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::clock::SharedClock;
use crate::config::Config;
use crate::error::{Context, Error, Kind, Result, from_io};
use crate::pipeline::open::Memory;
use crate::schedule::Agenda;
use crate::secret::Secret;

mod answer;
mod api;
mod doors;
mod events;
mod front;
mod house;
mod listen;
mod meters;
mod pace;
pub mod pages;
mod sight;
mod standing;
mod timetable;
mod workers;
mod workspaces;

pub use house::House;

/// Where it listens unless told otherwise: this machine only.
pub const LISTEN: &str = "127.0.0.1:8787";
/// The variable that holds the token.
pub const TOKEN: &str = "TRUEUP_TOKEN";
/// Work in flight when a stop is asked for has this long to end; what has not is handed back by the next start.
const STOP_WAIT: Duration = Duration::from_secs(30);

pub struct Server {
    house: Arc<House>,
    agenda: Agenda,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Bind the address. Anything but loopback needs a token.
    pub async fn open(
        config: Config,
        memory: Memory,
        clock: SharedClock,
        listen: &str,
        token: Option<Secret>,
    ) -> Result<Server> {
        let wanted = resolve(listen).await?;
        if !wanted.ip().is_loopback() && token.is_none() {
            return Err(Error::new(Kind::Config, format!("{listen} can be reached from other machines"))
                .remedy_is(format!("Set {TOKEN} to a long random text, or listen on {LISTEN}.")));
        }
        let listener = TcpListener::bind(wanted)
            .await
            .map_err(|error| taken(from_io(error, format!("listening on {listen}"))))?;
        let address =
            listener.local_addr().map_err(|error| from_io(error, format!("listening on {listen}")))?;
        let house = House::new(config, memory, clock, address, token);
        let agenda = timetable::open(&house).await.context(|| "reading the schedule".into())?;
        Ok(Server { house, agenda, listener, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn house(&self) -> Arc<House> {
        self.house.clone()
    }

    /// Serve until the house is asked to stop; then wait, within bounds, for what is in flight.
    pub async fn run(self) {
        let house = self.house;
        let loops = [
            tokio::spawn(timetable::keep(house.clone(), self.agenda)),
            tokio::spawn(workers::keep(house.clone())),
            tokio::spawn(standing::keep(house.clone())),
            tokio::spawn(workspaces::keep(house.clone())),
        ];
        tracing::info!(address = %self.address, "serving");
        listen::serve(self.listener, api::router(&house), house.stopping()).await;
        if tokio::time::timeout(STOP_WAIT, house.idle()).await.is_err() {
            tracing::warn!("work in flight did not end in time; the next start takes it up");
        }
        for each in loops {
            each.abort();
        }
        tracing::info!("stopped");
    }
}

async fn resolve(listen: &str) -> Result<SocketAddr> {
    let wrong = || {
        Error::new(Kind::Config, format!("--listen {listen} is no address"))
            .remedy_is(format!("Write HOST:PORT, such as {LISTEN}."))
    };
    let mut found = tokio::net::lookup_host(listen).await.map_err(|error| wrong().caused_by(error))?;
    found.next().ok_or_else(wrong)
}

fn taken(error: Error) -> Error {
    error.remedy_is("Another program may listen there: name another port with --listen.")
}
