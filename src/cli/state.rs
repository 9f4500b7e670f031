//! `trueup state`: a consistent copy of what trueup remembers.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::desk::Desk;
use crate::config::Place;
use crate::error::{Error, Kind, Result};
use crate::store::Access;
use crate::store::sqlite::Sqlite;

#[derive(Args)]
pub struct State {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Copy the state into a new file, consistently, also while a run is at work
    Backup { file: PathBuf },
}

impl State {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let Verb::Backup { file } = self.verb;
        let config = desk.config()?;
        let Place::Sqlite(path) = &config.state.place else {
            let message = "this state is not a file of its own".to_owned();
            return Err(
                Error::new(Kind::Config, message).remedy_is("Back it up with its own server's tools.")
            );
        };
        if !path.exists() {
            return Err(Error::new(Kind::NotFound, format!("there is no state yet at {}", path.display()))
                .remedy_is("`trueup sync` makes one."));
        }
        Sqlite::open(path, Access::Read)?.backup(&file).await?;
        desk.out.result(&json!({ "backup": file }), || {
            format!(
                "Copied the state to {}. To restore it, put it back as {}.",
                file.display(),
                path.display()
            )
        });
        Ok(0)
    }
}
