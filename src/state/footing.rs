//! What a run that went well leaves behind, as one sum: the next one may stand on it instead of on every record.
//!
//! A run takes it away when it begins and gives one back when it ends well. Whatever happens in between, there is none,
//! and everything is compared one by one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::store::Sum;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footing {
    /// Keys and versions of the whole baseline.
    pub sum: Sum,
    /// The digest of the pipeline's settings.
    pub settings: String,
    /// What a run without a change counts, by group.
    pub groups: BTreeMap<String, Standing>,
}

/// The records of one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// They are at the source.
    pub there: u64,
    /// They are gone from it, and kept.
    pub missing: u64,
}
