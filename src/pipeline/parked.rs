//! Items that are present at the source but cannot be used, or lost to another of the same identity. They are
//! remembered, so that a run that did not need to read their scope still reports them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::Pipeline;
use crate::error::Result;
use crate::state::keys;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    pub identity: String,
    pub scope: String,
    pub why: String,
    /// It lost to another entry, which is counted by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadowed: bool,
    /// The identity has no baseline record, so nothing else stands for it in the counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

impl Parked {
    pub fn counts_alone(&self) -> bool {
        self.shadowed || self.unknown
    }
}

/// Parked items by entry id.
pub async fn load(line: &Pipeline) -> Result<HashMap<String, Parked>> {
    let prefix = keys::parked(&line.name);
    let all = line.state.read_all::<Parked>(&prefix).await?;
    Ok(all.into_iter().map(|(key, parked)| (keys::below(&prefix, &key).to_owned(), parked)).collect())
}
