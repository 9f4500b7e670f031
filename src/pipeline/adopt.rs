//! A person says that foreign keys are ours from now on.

use super::Pipeline;
use crate::error::Result;
use crate::state::held::{Decision, SYNC, Verdict};
use crate::state::{item, keys};

impl Pipeline {
    /// Take over foreign keys: the next pass may overwrite them.
    pub async fn adopt(&self, keys_wanted: &[String]) -> Result<Vec<String>> {
        let Some(header) = self.state.held_header(&self.name, SYNC).await? else {
            return Ok(Vec::new());
        };
        let held = self.state.held_items(&header).await?;
        let foreign = held.iter().filter(|held| held.foreign && keys_wanted.contains(&held.key));
        let mut adopted = Vec::new();
        let mut items = Vec::new();
        for held in foreign {
            let decision = Decision { verdict: Verdict::Adopted, stamp: held.stamp, run: header.run.clone() };
            items.push(item(keys::decision(&self.name, &held.identity), &decision)?);
            adopted.push(held.key.clone());
        }
        self.state.commit_in_parts(items).await?;
        Ok(adopted)
    }
}
