//! A look at a baseline record without decoding all of it: one is taken of every record of every pass.

use std::borrow::Cow;

use serde::Deserialize;

use super::detect::Body;
use super::plan::Kept;
use crate::error::{Error, Kind, Result};
use crate::record::Fingerprint;
use crate::state::decode;
use crate::store::Listed;

/// The fields of a baseline record that every comparison needs, without decoding the rest.
#[derive(Deserialize)]
pub struct Peek<'a> {
    #[serde(borrow, default, rename = "v")]
    pub version: Cow<'a, str>,
    /// Left out where the fingerprint says the same.
    #[serde(borrow, default, rename = "b")]
    body: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "f")]
    fingerprint: Cow<'a, str>,
    #[serde(borrow, default, rename = "k")]
    pub key: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "s")]
    pub scope: Cow<'a, str>,
    /// What a shape remembers, if it does.
    #[serde(default, rename = "c")]
    pub carry: Option<serde::de::IgnoredAny>,
}

impl Peek<'_> {
    /// The source's version of the body.
    pub fn body(&self) -> Body<'_> {
        self.body.as_deref().map_or(Body::Fingerprint(&self.fingerprint), Body::Is)
    }
}

pub fn peek(line: &Listed) -> Result<Peek<'_>> {
    let value = line.value.as_deref().unwrap_or_default();
    serde_json::from_slice(value).map_err(|error| {
        Error::new(Kind::Corrupt, format!("the state record {} cannot be read", line.key)).caused_by(error)
    })
}

/// The record as a plan carries it.
pub fn kept(known: &Listed) -> Result<Box<Kept>> {
    let value = known.value.as_deref().unwrap_or_default();
    let json = std::str::from_utf8(value).map_err(|error| {
        Error::new(Kind::Corrupt, format!("the state record {} cannot be read", known.key)).caused_by(error)
    })?;
    // A record that cannot be decoded is found here, before anything is planned on it.
    decode::<crate::state::Base>(&known.key, value)?;
    Ok(Box::new(Kept::new(known.fingerprint.unwrap_or(Fingerprint([0; 32])), json.to_owned())))
}
