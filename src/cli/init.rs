//! `trueup init`: a config that runs as it is.

use clap::Args;
use std::io::Write;
use std::path::Path;

use super::desk::Desk;
use crate::config::recipe;
use crate::error::{Error, Kind, Result, from_io};

#[derive(Args)]
pub struct Init {
    /// What to start from
    #[arg(default_value = "files")]
    recipe: String,
}

impl Init {
    pub fn run(self, desk: &Desk) -> Result<u8> {
        let text = recipe::recipe(&self.recipe)?;
        let path = &desk.config;
        let doing = || format!("writing {}", path.display());
        let mut file = match std::fs::File::create_new(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let message = format!("{} exists already and is left as it is", path.display());
                return Err(Error::new(Kind::Config, message)
                    .remedy_is("Move it away, or write another one with `--config FILE`."));
            }
            Err(error) => return Err(from_io(error, doing())),
        };
        file.write_all(text.as_bytes()).map_err(|error| from_io(error, doing()))?;
        for (name, text) in recipe::beside(text) {
            write_beside(path, name, text)?;
        }
        let written = serde_json::json!({ "written": path, "recipe": self.recipe });
        desk.out.result(&written, || {
            let next = match self.recipe.as_str() {
                "replica" => {
                    "`trueup check` reaches both sides, `trueup replica init services` lays out the tables."
                }
                "workspace" => "`trueup page policies welcome` lists the policies of a first page.",
                _ => "`trueup plan` shows what it would do, `trueup sync` does it.",
            };
            format!("Wrote {}. Next: {next}", path.display())
        });
        Ok(0)
    }
}

/// A file the config names. One that is there already is somebody's work and stays as it is.
fn write_beside(config: &Path, name: &str, text: &str) -> Result<()> {
    let path = config.parent().unwrap_or(Path::new("")).join(name);
    let doing = || format!("writing {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| from_io(error, doing()))?;
    }
    match std::fs::File::create_new(&path) {
        Ok(mut file) => file.write_all(text.as_bytes()).map_err(|error| from_io(error, doing())),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(from_io(error, doing())),
    }
}
