//! `trueup adopt KEY…`: take over foreign keys.

use clap::Args;
use serde_json::json;

use super::desk::Desk;
use crate::error::{Error, Kind, Result};
use crate::operations;
use crate::store::Access;

#[derive(Args)]
pub struct Adopt {
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// For this pipeline alone, where several hold the key as foreign
    #[arg(long, value_name = "P")]
    pipeline: Option<String>,
}

impl Adopt {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let specs = match &self.pipeline {
            Some(name) => vec![operations::pipeline(&config, name)?],
            None => config.pipelines.values().collect(),
        };
        let memory = desk.memory(&config, Access::Write).await?;
        let mut adopted = Vec::new();
        for spec in specs {
            let line = desk.open(spec, &memory, Access::Write).await?;
            adopted.extend(line.adopt(&self.keys).await?);
        }
        let unknown: Vec<&String> = self.keys.iter().filter(|key| !adopted.contains(key)).collect();
        if let Some(key) = unknown.first() {
            return Err(Error::new(Kind::NotFound, format!("{key} is not held as foreign"))
                .remedy_is("`trueup held` shows what is; only such keys can be adopted."));
        }
        desk.out.result(&json!({ "adopted": adopted }), || {
            format!("Adopted {}; the next `trueup sync` brings them in step.", adopted.join(", "))
        });
        Ok(0)
    }
}
