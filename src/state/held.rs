//! What a person has to decide, and what they decided.

use serde::{Deserialize, Serialize};

use super::journal::Change;
use super::{State, item, keys};
use crate::error::{Error, Kind, Result};
use crate::record::Fingerprint;
use crate::store::{Item, Query};

/// A held plan: its header. The items are below `held-item/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub plan: String,
    pub pipeline: String,
    pub since: String,
    /// The run that held it.
    pub run: String,
    /// The undo run this plan belongs to; `None` = an ordinary sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
}

/// The slot of what an ordinary pass held.
pub const SYNC: &str = "sync";

impl Header {
    pub fn slot(&self) -> &str {
        self.undo.as_deref().unwrap_or(SYNC)
    }
}

/// One held change. No field is left out when empty: it also travels in the plan's binary encoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldItem {
    pub identity: String,
    pub key: String,
    pub change: Change,
    pub rule: String,
    pub scope: String,
    /// What the source said when it was held; `None` = absent there.
    pub stamp: Option<Fingerprint>,
    /// `approve` cannot release it (a foreign key wants `adopt`).
    pub foreign: bool,
}

/// A decision about one identity. It stands until the source's version of it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub verdict: Verdict,
    /// The source's stamp the decision was made about; `None` = it was absent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Fingerprint>,
    pub run: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A person undid it: hold it until approved.
    Undone,
    /// A person said no: leave it out silently.
    Rejected,
    /// A person took over a foreign key.
    Adopted,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Undone => "undone",
            Verdict::Rejected => "rejected",
            Verdict::Adopted => "adopted",
        }
    }
}

impl State {
    pub async fn held_header(&self, pipeline: &str, slot: &str) -> Result<Option<Header>> {
        self.read(&keys::held(pipeline, slot)).await
    }

    pub async fn held_headers(&self) -> Result<Vec<Header>> {
        Ok(self.read_all(keys::HELD).await?.into_iter().map(|(_, header)| header).collect())
    }

    pub async fn held_of(&self, pipeline: &str) -> Result<Vec<Header>> {
        Ok(self.read_all(&keys::held_of(pipeline)).await?.into_iter().map(|(_, header)| header).collect())
    }

    pub async fn held_items(&self, header: &Header) -> Result<Vec<HeldItem>> {
        let prefix = keys::held_items(&header.pipeline, &header.plan);
        Ok(self.read_all(&prefix).await?.into_iter().map(|(_, item)| item).collect())
    }

    /// Find a held plan by its id or an unambiguous beginning of it.
    pub async fn find_held(&self, plan: &str) -> Result<Header> {
        let mut found: Vec<Header> = self.held_headers().await?;
        let current: Vec<String> = found.iter().map(|header| header.plan.clone()).collect();
        found.retain(|header| header.plan == plan || (plan.len() >= 6 && header.plan.starts_with(plan)));
        match (found.pop(), found.is_empty()) {
            (Some(header), true) => Ok(header),
            (Some(_), false) => Err(Error::new(Kind::Config, format!("{plan} fits more than one held plan"))),
            (None, _) => Err(Error::new(Kind::Conflict, format!("nothing is held under the plan {plan}"))
                .remedy_is(if current.is_empty() {
                    "It was superseded or settled; `trueup held` shows that nothing is held now.".to_owned()
                } else {
                    format!("It was superseded or settled; held now: {}.", current.join(", "))
                })),
        }
    }

    /// Replace what is held for a pipeline. Items first, the header last: the header is what counts.
    pub async fn hold(&self, header: &Header, items: &[HeldItem]) -> Result<()> {
        let old = self.held_header(&header.pipeline, header.slot()).await?;
        if old.as_ref().is_some_and(|old| old.plan == header.plan) {
            return self.sweep_held_items(&header.pipeline).await;
        }
        let writes = items.iter().map(|held| {
            let key = keys::held_item(&header.pipeline, &header.plan, &held.identity);
            item(key, held)
        });
        self.commit_in_parts(writes.collect::<Result<_>>()?).await?;
        self.put(&keys::held(&header.pipeline, header.slot()), header).await?;
        self.sweep_held_items(&header.pipeline).await
    }

    pub async fn nothing_held(&self, pipeline: &str, slot: &str) -> Result<()> {
        let old = self.held_header(pipeline, slot).await?;
        if old.is_some() {
            self.commit(vec![Item::delete(keys::held(pipeline, slot))]).await?;
        }
        self.sweep_held_items(pipeline).await
    }

    /// Remove items that hang from no header: of the plan just replaced, or of one that was cut off half written.
    async fn sweep_held_items(&self, pipeline: &str) -> Result<()> {
        let headers = self.held_of(pipeline).await?;
        let prefix = keys::all_held_items(pipeline);
        let mut after = None;
        loop {
            let query = Query { limit: 1, after: after.as_deref(), ..Query::keys(&prefix) };
            let Some(first) = self.store().list(query).await?.items.pop() else { return Ok(()) };
            let plan = keys::below(&prefix, &first.key).split('/').next().unwrap_or_default();
            let items = keys::held_items(pipeline, plan);
            if headers.iter().any(|header| header.plan == plan) {
                // Go on behind this plan's items: `0` is the character after `/`.
                after = Some(format!("{}0", items.trim_end_matches('/')));
            } else {
                self.remove_below(&items).await?;
            }
        }
    }
}
