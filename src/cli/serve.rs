//! `trueup serve`: everything, all the time, until a signal asks to stop.

use clap::{Args, ValueEnum};

use super::desk::Desk;
use super::{log, signals};
use crate::error::{Error, Kind, Result};
use crate::secret::{Secret, SecretRef};
use crate::server::{self, Server};
use crate::store::Access;

#[derive(Args)]
pub struct Serve {
    /// Where to listen; anything but this machine needs TRUEUP_TOKEN. Port 0 takes a free one
    #[arg(long, default_value = server::LISTEN, value_name = "HOST:PORT")]
    listen: String,
    /// How log lines look
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

impl Serve {
    /// As the demo serves: with the usual logs, on this address.
    pub fn on(listen: String) -> Self {
        Serve { listen, log_format: LogFormat::Text }
    }

    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let memory = desk.memory(&config, Access::Write).await?;
        let token = SecretRef::Env(server::TOKEN.to_owned()).read()?;
        token.as_ref().map_or(Ok(()), can_be_shown)?;
        let server = Server::open(config, memory, desk.clock.clone(), &self.listen, token).await?;
        log::start(self.log_format == LogFormat::Json, desk.out.quiet, desk.clock.clone());
        // Before anybody can know that it is there.
        let house = server.house();
        signals::heed(move || {
            let first = house.ask_to_stop();
            if first {
                tracing::info!("stopping after what is in flight; once more to stop at once");
            }
            first
        });
        desk.out.note(&format!("Listening on http://{}", server.address()));
        server.run().await;
        Ok(0)
    }
}

/// A header has room for no other; a token with a blank around it would keep everybody out.
fn can_be_shown(token: &Secret) -> Result<()> {
    let token = token.expose();
    if token.trim() == token && token.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Ok(());
    }
    let message = format!("{} has blanks around it, or characters no header can hold", server::TOKEN);
    Err(Error::new(Kind::Config, message).remedy_is("Set it to letters, digits and signs of ASCII."))
}
