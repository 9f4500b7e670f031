//! Finding out whether a server honours conditions. Some accept the header, ignore it and overwrite; the only way to
//! know is to try, on an object of our own that is taken away again.

use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion};

use super::Objects;
use super::fault::{explain, is_missing, is_unmet};
use crate::error::{Context, Result};

/// Objects of this name are probes: no listing shows them, no key may be like them.
const PROBE: &str = ".trueup-probe-";

/// What a server was found to honour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conditions {
    /// `If-None-Match: *`: create only where nothing is.
    pub create: bool,
    /// `If-Match`: replace only what one knows.
    pub update: bool,
}

impl Conditions {
    /// For people; empty when all is well.
    pub fn findings(self) -> Vec<String> {
        let mut findings = Vec::new();
        if !self.create {
            findings.push(
                "the server ignores `If-None-Match`: two writers may both believe they created a key; \
                 let only one trueup write here"
                    .to_owned(),
            );
        }
        if !self.update {
            findings.push(
                "the server ignores `If-Match`: a change made by somebody else at the same moment may be overwritten"
                    .to_owned(),
            );
        }
        findings
    }
}

pub(super) fn is_reserved(key: &str) -> bool {
    key.split('/').any(|name| name.starts_with(PROBE))
}

pub(super) fn is_probe(location: &Path) -> bool {
    is_reserved(location.as_ref())
}

/// A name no other connection has.
pub(super) fn probe_key(random: u64) -> String {
    format!("{PROBE}{random:016x}")
}

impl Objects {
    /// Try both conditions where they must fail, and clean up whatever happened.
    pub(super) async fn try_conditions(&self) -> Result<Conditions> {
        let object = self.object(&self.probe_key)?;
        let tried = self.try_on(&object).await;
        let cleaned = match self.client.delete(&object).await {
            Err(error) if !is_missing(&error) => Err(explain(&error)),
            _ => Ok(()),
        };
        let doing = || format!("trying conditional writes on {}", self.name);
        let found = tried.context(doing)?;
        cleaned.context(doing)?;
        Ok(found)
    }

    async fn try_on(&self, object: &Path) -> Result<Conditions> {
        // Should an earlier probe of this connection have been left, the first create says so: that is fine.
        self.honours(object, "first", PutMode::Create).await?;
        let create = self.honours(object, "second", PutMode::Create).await?;
        let wrong =
            UpdateVersion { e_tag: Some("\"00000000000000000000000000000000\"".into()), version: None };
        let update = self.honours(object, "third", PutMode::Update(wrong)).await?;
        Ok(Conditions { create, update })
    }

    /// Whether the server refused a write whose condition does not hold. Servers that know no conditions at all
    /// may also answer that they do not implement them, which is not honouring them either.
    async fn honours(&self, object: &Path, value: &'static str, mode: PutMode) -> Result<bool> {
        match self
            .client
            .put_opts(object, PutPayload::from_static(value.as_bytes()), PutOptions::from(mode))
            .await
        {
            Ok(_) => Ok(false),
            Err(error) if is_unmet(&error) || is_missing(&error) => Ok(true),
            Err(error) if error.to_string().contains("NotImplemented") => Ok(false),
            Err(error) => Err(explain(&error)),
        }
    }
}
